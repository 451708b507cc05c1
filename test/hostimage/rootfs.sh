#!/usr/bin/env bash
# Copyright The Quoin Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Makes the root file system of a test host, a plain Debian with what a
# Kubernetes node needs beneath Kubernetes, and prints the tar's name:
# $QUOIN_CACHE/rootfs-<key>.tar. Must run as root; takes about two minutes.
#
# The release stays at bookworm: its systemd still drives cgroup v1, which
# machines that run these tests may have.
set -euo pipefail
# shellcheck source=hack/lib/common.sh
. "$(dirname "$0")/../../hack/lib/common.sh"

release=bookworm
mirror=${QUOIN_DEBIAN_MIRROR:-}

packages=(
    # what makes it a machine one can log into
    systemd systemd-sysv dbus openssh-server sudo procps kmod udev less
    ca-certificates curl jq xz-utils
    # networking, and the tools with which it is looked at
    iproute2 iputils-ping iputils-arping iptables nftables conntrack ipset
    socat ethtool netcat-openbsd
    # beneath the kubelet
    runc containernetworking-plugins util-linux mount e2fsprogs
    # what a virtual address and its tests need
    keepalived haproxy
)

# strip removes what identifies a machine and what no test reads.
strip() {
    local root=$1
    # Identity is made at first boot. Were it in the image, all hosts would
    # be one machine: to DHCP, to journald, to whoever pins their SSH keys.
    rm -f "$root"/etc/machine-id "$root"/var/lib/dbus/machine-id "$root"/etc/ssh/ssh_host_*
    rm -f "$root"/etc/hostname "$root"/etc/resolv.conf
    rm -rf "$root"/var/cache/apt/* "$root"/var/lib/apt/lists/* "$root"/var/log/*.log \
        "$root"/usr/share/doc/* "$root"/usr/share/man/* "$root"/usr/share/locale/* \
        "$root"/usr/share/info/* "$root"/var/cache/debconf/*-old
}

# discard removes the work folder. A debootstrap that was killed leaves mounts in
# it, and nothing may be removed through those.
discard() {
    umount "$1/root/proc" "$1/root/sys" 2>/dev/null || true
    rm -rf --one-file-system "$1"
}

build() {
    if up_to_date "$product" "$key"; then return; fi
    [ "$(id -u)" = 0 ] || die "making a root file system needs root: run it with sudo"
    command -v debootstrap >/dev/null || die "debootstrap is missing: apt-get install debootstrap"
    local work
    work=$(mktemp -d "$QUOIN_CACHE/.rootfs.XXXXXX")
    # shellcheck disable=SC2064 # the name is known now, not at exit
    trap "discard '$work'" EXIT
    log "making a Debian $release root file system (about 2 minutes)"
    local list
    list=$(IFS=,; echo "${packages[*]}")
    # shellcheck disable=SC2086 # an empty mirror is no argument
    debootstrap --variant=minbase --include="$list" "$release" "$work/root" $mirror >"$work/log" 2>&1 || {
        tail -n 20 "$work/log" >&2
        die "debootstrap failed; with another mirror: QUOIN_DEBIAN_MIRROR=<URL>"
    }
    strip "$work/root"
    tar -C "$work/root" --numeric-owner --one-file-system -cf "$work/rootfs.tar" .
    put_in_place "$work/rootfs.tar" "$product" "$key"
}

mkdir -p "$QUOIN_CACHE"
key=$(key_of test/hostimage/rootfs.sh </dev/null)
product=$QUOIN_CACHE/rootfs-$key.tar
locked rootfs build
echo "$product"
