# Copyright The Quoin Authors.
# SPDX-License-Identifier: Apache-2.0

# quoin_disk <id>: prints the device of the disk with this stable name, as the inspection prints it: a name below
# /dev/disk/by-id, or a WWN or serial number of the kernel's own. Code 1 when no disk has it, or two have. The kernel's
# names are never taken: they move from one disk to another at a boot.
quoin_disk() {
	if [ -L "/dev/disk/by-id/$1" ]; then
		at=$(readlink -f "/dev/disk/by-id/$1")
		# A partition has a link of its own.
		[ -e "/sys/block/${at##*/}" ] && echo "$at"
		return
	fi
	at=
	for d in /sys/block/*; do
		# One path of an NVMe disk that has several; the disk itself has the same names.
		[ "$(cat "$d/hidden" 2>/dev/null)" != 1 ] || continue
		for f in "$d/wwid" "$d/device/wwid" "$d/device/serial" "$d/serial"; do
			[ -r "$f" ] || continue
			[ "$(tr -d '\0' <"$f" 2>/dev/null | tr -s '[:space:]' '_' | sed 's/^_//; s/_$//')" = "$1" ] || continue
			[ -z "$at" ] || [ "$at" = "/dev/${d##*/}" ] || return 1
			at=/dev/${d##*/}
		done
	done
	[ -n "$at" ] && echo "$at"
}

# quoin_disk_use <device>: the mount points of a disk, of its partitions and of what is built on them, one per line; swap
# is [SWAP]. Code 1 when that cannot be known.
quoin_disk_use() {
	used=$(lsblk -nro MOUNTPOINT "$1") || return 1
	printf '%s\n' "$used" | sed '/^$/d' | sort -u
}

# quoin_disk_system <device>: where the running system uses the disk, or nothing. Code 1 when that cannot be known.
quoin_disk_system() {
	used=$(quoin_disk_use "$1") || return 1
	for point in $used; do
		case $point in / | /boot | /boot/* | /usr | /var | /var/lib | /etc | '[SWAP]') echo "$point" && return 0 ;; esac
	done
}

# quoin_disk_held <device>: says so when somebody holds the device for himself, or it cannot be opened. lsblk knows the
# mounts of its own namespace only, and not those of a file system that spans several disks. Nothing is written.
quoin_disk_held() {
	for _ in 1 2 3 4 5; do
		held=$(wipefs --all --no-act "$1" 2>&1 >/dev/null) && return 0
		# What was unmounted lazily lets go a moment later.
		sleep 1
	done
	printf '%s\n' "$held" | head -n 1
}
