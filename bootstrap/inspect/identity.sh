# Copyright The Quoin Authors.
# SPDX-License-Identifier: Apache-2.0
#
# What tells one machine and one installation from another, as facts. Needs POSIX sh and coreutils.
say() {
	# A fact is one line, whatever the host says of itself.
	case $2 in
	*"
"*) set -- "$1" "$(printf '%s' "$2" | tr '\n' ' ')" ;;
	esac
	printf '%s %s\n' "$1" "$2"
}

quoin_identity() {
	say boot "$(cat /proc/sys/kernel/random/boot_id 2>/dev/null)"
	say machineid "$(cat /etc/machine-id 2>/dev/null)"
	say uuid "$(cat /sys/class/dmi/id/product_uuid 2>/dev/null)"
	say serial "$(cat /sys/class/dmi/id/product_serial 2>/dev/null)"
}

# quoin_disks <command>: disk <name> <512-byte sectors> <rotational> <id>, and what the command says of each, which gets
# its name and its directory.
quoin_disks() {
	for d in /sys/block/*; do
		[ -e "$d" ] || continue
		n=${d##*/}
		case $n in loop* | ram* | zram* | sr* | fd* | dm-* | md* | nbd* | drbd*) continue ;; esac
		# One path of an NVMe disk that has several.
		[ "$(cat "$d/hidden" 2>/dev/null)" != 1 ] || continue
		id=
		for link in /dev/disk/by-id/wwn-* /dev/disk/by-id/nvme-eui.* /dev/disk/by-id/*; do
			if [ -L "$link" ] && [ "$(readlink -f "$link")" = "/dev/$n" ]; then
				id=${link##*/}
				break
			fi
		done
		for f in "$d/wwid" "$d/device/wwid" "$d/device/serial" "$d/serial"; do
			[ -z "$id" ] && [ -r "$f" ] && id=$(tr -d '\0' <"$f" 2>/dev/null | tr -s '[:space:]' '_' | sed 's/^_//; s/_$//')
		done
		say disk "$n $(cat "$d/size") $(cat "$d/queue/rotational" 2>/dev/null || echo 0) ${id:-$n}"
		"$1" "$n" "$d"
	done
}
