# Copyright The Quoin Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Wipes the disks that belonged to the claim. What must not be wiped is left as it is and told at the end, when
# everything else is done. $keep lists the disks whose content stays.

refused=
refuse() { refused="$refused${refused:+; }$*"; }

# wipe_disk <id>
wipe_disk() {
	disk=$(quoin_disk "$1") || { refuse "no disk of this host has the id $1, or two have"; return 0; }
	for kept in $keep; do
		[ "$(quoin_disk "$kept")" != "$disk" ] || { refuse "$1 is the same disk as $kept ($disk), whose content is kept"; return 0; }
	done
	use=$(quoin_disk_system "$disk") || { refuse "what uses $1 ($disk) cannot be read (lsblk)"; return 0; }
	[ -z "$use" ] || { refuse "$1 is $disk, which carries $use of the running system"; return 0; }
	# What the claim had mounted, an earlier step has unmounted.
	use=$(quoin_disk_use "$disk") || { refuse "what uses $1 ($disk) cannot be read (lsblk)"; return 0; }
	[ -z "$use" ] || { refuse "$1 ($disk) is mounted at $(echo $use)"; return 0; }
	# Volumes that a storage plugin made on it, the innermost first.
	lsblk -nrpo NAME,TYPE "$disk" | tac | while read -r node type; do
		case $type in lvm | crypt) dmsetup remove --retry "$node" || : ;; esac
	done
	held=$(quoin_disk_held "$disk")
	[ -z "$held" ] || { refuse "$1 ($disk) is in use, by a mount of some container, an array or a pool ($held); end that, or reboot the host"; return 0; }
	lsblk -nrpo NAME,TYPE "$disk" | sed -n 's/ part$//p' | while read -r node; do wipefs --all --force "$node" >/dev/null || :; done
	wipefs --all --force "$disk" >/dev/null || { refuse "$1 ($disk) cannot be wiped (wipefs); is the disk healthy?"; return 0; }
	if command -v blkdiscard >/dev/null; then blkdiscard "$disk" 2>/dev/null || :; fi
	sectors=$(blockdev --getsz "$disk")
	if [ "$sectors" -gt 4096 ]; then
		dd if=/dev/zero of="$disk" bs=512 count=2048 conv=notrunc,fsync 2>/dev/null &&
			dd if=/dev/zero of="$disk" bs=512 count=2048 seek=$((sectors - 2048)) conv=notrunc,fsync 2>/dev/null ||
			refuse "$1 ($disk) cannot be written; is the disk healthy?"
	fi
	blockdev --rereadpt "$disk" 2>/dev/null || :
	if command -v udevadm >/dev/null; then udevadm settle --timeout=30; fi
}

wipe_disks() {
	for program in wipefs lsblk blockdev; do
		command -v $program >/dev/null || quoin_fail "$program is not installed on this host, but disks with the role Wipe need it; install util-linux"
	done
	for id in "$@"; do wipe_disk "$id"; done
	[ -z "$refused" ] || quoin_fail "$refused; correct spec.disks of the QuoinHost, or what the host does with the disk"
}
