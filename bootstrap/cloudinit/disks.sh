# Copyright The Quoin Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Partitions and formats disks. Two rules stand above what the bootstrap data wants: only a disk that the QuoinHost gives
# the role Data or Wipe is touched, and what holds something unexpected is never formatted. $disks lists "role:id".

# need <program> <package>
need() {
	command -v "$1" >/dev/null || quoin_fail "$1 is not installed on this host, but the bootstrap data sets up disks; install the package $2"
}

# locate <device>: sets node (the device), disk (the whole disk below it), id and role.
locate() {
	need lsblk util-linux; need readlink coreutils
	node=$(readlink -f -- "$1") && [ -b "$node" ] ||
		quoin_fail "$1 is no disk of this host; correct the device in the KubeadmConfig, or the labels that chose this host"
	name=${node##*/}
	[ ! -e "/sys/class/block/$name/partition" ] || name=$(basename "$(dirname "$(readlink -f "/sys/class/block/$name")")")
	disk=/dev/$name id='' role=''
	for entry in $disks; do
		if [ "$(quoin_disk "${entry#*:}")" = "$disk" ]; then
			role=${entry%%:*} id=${entry#*:}
			break
		fi
	done
	case $role in
	Data | Wipe) ;;
	System) quoin_fail "$1 is a system disk, as spec.disks of the QuoinHost says ($id), and is not set up; correct the device in the KubeadmConfig" ;;
	*) quoin_fail "$1 is $disk, which spec.disks of the QuoinHost does not list; add it there with its id from status.facts.disks and the role Data or Wipe" ;;
	esac
	use=$(quoin_disk_system "$disk") || quoin_fail "what uses $disk cannot be read (lsblk)"
	[ -z "$use" ] || quoin_fail "$1 is $disk, which carries $use of the running system; correct spec.disks of the QuoinHost, which gives it the role $role"
}

# content <device>: the kinds of what is on it; nothing when it is empty.
content() {
	signatures=$(wipefs --no-act --parsable "$1") || quoin_fail "$1 cannot be read (wipefs); is the disk healthy?"
	printf '%s\n' "$signatures" | sed '/^#/d; /^$/d; s/.*,//' | sort -u | tr '\n' ' ' | sed 's/ $//'
}

# label_of <device> and type_of <device>: of its file system.
type_of() { blkid -p -s TYPE -o value "$1" 2>/dev/null; }
label_of() { blkid -p -s LABEL -o value "$1" 2>/dev/null; }

# partition_at <number>: the device of a partition of $disk.
partition_at() { case $disk in *[0-9]) echo "${disk}p$1" ;; *) echo "$disk$1" ;; esac; }

# Intents are kept over a reboot. One says that this very plan found the place free and began to write there, so whatever
# half a table or half a file system is there now is ours.
intends() { [ "$(cat "$QUOIN_RUN_DIR/$1" 2>/dev/null)" = "$2" ]; }
intend() {
	printf '%s\n' "$2" >"$QUOIN_RUN_DIR/$1.part" && sync "$QUOIN_RUN_DIR/$1.part" &&
		mv -f "$QUOIN_RUN_DIR/$1.part" "$QUOIN_RUN_DIR/$1" && sync "$QUOIN_RUN_DIR" || quoin_fail "$QUOIN_RUN_DIR cannot be written"
}

# settled: the kernel and udev know the partitions.
settled() {
	command -v partx >/dev/null && partx -u "$disk" 2>/dev/null
	command -v udevadm >/dev/null && udevadm settle --timeout=30
	return 0
}

# free <device>: nobody uses it.
free() {
	use=$(quoin_disk_use "$1") || quoin_fail "what uses $1 cannot be read (lsblk)"
	[ -z "$use" ] || quoin_fail "$1 is in use at $(echo $use); unmount it, or correct the device in the KubeadmConfig"
	use=$(quoin_disk_held "$1")
	[ -z "$use" ] || quoin_fail "$1 is in use, by a mount of some container, an array or a pool ($use); end that, or correct the device in the KubeadmConfig"
}

# partition <intent> <device> <dos|gpt> <overwrite> <percent[:type]>...
partition() {
	intent=$1 device=$2 table=$3 overwrite=$4
	shift 4
	need sfdisk fdisk; need wipefs util-linux; need blkid util-linux; need blockdev util-linux
	locate "$device"
	[ "$node" = "$disk" ] || quoin_fail "$device is a partition and is not partitioned; name the disk in disk_setup"
	if [ "$(blkid -p -s PTTYPE -o value "$disk" 2>/dev/null)" = "$table" ] && [ "$(sfdisk --dump "$disk" 2>/dev/null | grep -c ' start=')" = $# ]; then
		echo "$device has its $# partitions"
		settled
		return 0
	fi
	what=$(content "$disk") || exit 1
	if [ -n "$what" ]; then
		intends "$intent" "$id" || { [ "$role" = Wipe ] && [ "$overwrite" = 1 ]; } ||
			quoin_fail "$device ($id) holds $what and is not partitioned: only an empty disk is, or one with the role Wipe when overwrite is true. Look whether that is needed; if not: wipefs --all $disk"
		free "$disk"
		# Half a table of ours on a data disk goes; what lies where its partitions begin may be older than it, and stays.
		[ "$role" = Data ] || lsblk -nrpo NAME,TYPE "$disk" | sed -n 's/ part$//p' | while read -r part; do
			wipefs --all --force "$part" >/dev/null || quoin_fail "$part cannot be wiped"
		done || exit 1
		wipefs --all --force "$disk" >/dev/null || quoin_fail "$disk cannot be wiped"
	fi
	intend "$intent" "$id"
	# In MiB, whatever the disk's sectors are; both ends keep what the tables need.
	total=$(($(blockdev --getsize64 "$disk") / 1048576 - 2))
	layout="label: $table"
	sum=0
	for entry in "$@"; do
		percent=${entry%%:*}
		sum=$((sum + percent))
		size="size=$((total * percent / 100))MiB"
		[ $sum -lt 100 ] || size="size=+"
		case $entry in *:*) size="$size, type=${entry#*:}" ;; esac
		layout="$layout
$size"
	done
	# What lies where a partition of a data disk begins may be an old file system, which then is found and kept.
	wipe=never
	[ "$role" = Data ] || wipe=always
	printf '%s\n' "$layout" | sfdisk --quiet --wipe always --wipe-partitions $wipe "$disk" || quoin_fail "$device cannot be partitioned"
	settled
	echo "$device has $# new partitions"
}

# choose <any|auto> <type> <label>: the partition that holds such a file system, else the first empty one.
choose() {
	for part in $(lsblk -nrpo NAME,TYPE "$disk" | sed -n 's/ part$//p'); do
		[ "$(type_of "$part")" = "$2" ] || continue
		if [ "$1" = any ] || [ -z "$3" ] || [ "$(label_of "$part")" = "$3" ]; then echo "$part"; return; fi
	done
	for part in $(lsblk -nrpo NAME,TYPE "$disk" | sed -n 's/ part$//p'); do
		if [ -z "$(content "$part")" ]; then echo "$part"; return; fi
	done
}

# format <intent> <device> <partition> <type> <label> <overwrite> <type to replace> [<option>...]
format() {
	intent=$1 device=$2 partition=$3 type=$4 label=$5 overwrite=$6 replace=$7
	shift 7
	case $type in xfs) package=xfsprogs ;; btrfs) package=btrfs-progs ;; *) package=e2fsprogs ;; esac
	need "mkfs.$type" "$package"; need wipefs util-linux; need blkid util-linux
	locate "$device"
	begun=$(cat "$QUOIN_RUN_DIR/$intent" 2>/dev/null)
	case $partition in
	none) target=$node ;;
	any | auto)
		# A place that was chosen before the host went down stays chosen.
		if [ "${begun% *}" = "$id" ]; then target=$(partition_at "${begun##* }"); else target=$(choose "$partition" "$type" "$label"); fi
		[ -n "$target" ] || quoin_fail "$device has no partition that is empty or holds $type; partition it in disk_setup, or set partition to none"
		;;
	*) target=$(partition_at "$partition") ;;
	esac
	tries=0
	while ! [ -b "$target" ]; do
		tries=$((tries + 1))
		[ $tries -lt 15 ] || quoin_fail "$target is not on this host; is the disk partitioned as fs_setup expects?"
		settled
		sleep 1
	done
	number=$(printf '%s' "${target#"$disk"}" | sed 's/^p//')
	what=$(content "$target") || exit 1
	is=$(type_of "$target") named=$(label_of "$target")
	same=0
	[ "$is" = "$type" ] && { [ -z "$label" ] || [ "$partition" = any ] || [ "$named" = "$label" ]; } && same=1
	mine=0
	intends "$intent" "$id ${number:-0}" && mine=1
	replaceable=0
	[ "$role" = Wipe ] && { [ "$overwrite" = 1 ] || { [ -n "$replace" ] && [ "$is" = "$replace" ]; }; } && replaceable=1
	if [ $same = 1 ] && { [ $mine = 1 ] || [ $replaceable = 0 ]; }; then
		echo "$target holds $type already and is kept"
		return 0
	fi
	if [ -n "$what" ] && [ $mine = 0 ] && [ $replaceable = 0 ]; then
		quoin_fail "$target of $device ($id) holds $what${named:+ with the label $named} and is not formatted: wanted is $type${label:+ with the label $label}. Look whether that is needed; if not: wipefs --all $target"
	fi
	free "$target"
	intend "$intent" "$id ${number:-0}"
	if [ -n "$what" ]; then wipefs --all --force "$target" >/dev/null || quoin_fail "$target cannot be wiped"; fi
	[ -z "$label" ] || set -- -L "$label" "$@"
	case $type in ext*) set -- -q -F "$@" ;; *) set -- -q -f "$@" ;; esac
	"mkfs.$type" "$@" "$target" || quoin_fail "mkfs.$type could not format $target"
	sync
	settled
	echo "$target holds a new $type"
}
