#!/usr/bin/env bash
# Copyright The Quoin Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Gets the programs without which tests skip: those that destroy and look at
# disks, and at the rules and links of a host, prove that nobody's data is lost,
# and strace has the disk of an etcd hang.
# Where packages are not ours to install it names what will not be proved.
set -euo pipefail

packages=()
lacking=()
# want <program> <package>
want() {
    PATH=$PATH:/usr/sbin:/sbin command -v "$1" >/dev/null && return
    lacking+=("$1")
    [[ " ${packages[*]} " = *" $2 "* ]] || packages+=("$2")
}

want sfdisk fdisk
want mkfs.ext4 e2fsprogs
want mkswap util-linux
want losetup mount
want wipefs util-linux
want lsblk util-linux
want blkid util-linux
want unshare util-linux
want ip iproute2
want iptables-save iptables
want iptables-legacy iptables
want nft nftables
want ipset ipset
want curl curl
want jq jq
want ssh-keygen openssh-client
want strace strace
[ ${#lacking[@]} -gt 0 ] || exit 0

if [ "$(id -u)" = 0 ] && [ -f /etc/debian_version ]; then
    printf '==> installing %s\n' "${packages[*]}" >&2
    apt-get update -qq >&2 &&
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${packages[@]}" >&2 && exit 0
fi
printf '==> not on this machine, and tests that need them are skipped, or fail where CI is set: %s\n' \
    "${lacking[*]}" >&2
