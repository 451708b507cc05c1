#!/usr/bin/env bash
# Copyright The Quoin Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Makes what a host in QEMU boots: Debian's packages, with Debian's kernel and
# containerd, and kubelet, kubeadm and kubectl as they are built here, with the
# image of a pause for every pod, and prints
# the folder with vmlinuz, initrd and root.ext4: $QUOIN_CACHE/vm-<key>. Must run
# as root; takes about three minutes.
set -euo pipefail
# shellcheck source=hack/lib/common.sh
. "$(dirname "$0")/../../hack/lib/common.sh"
# shellcheck source=hack/lib/versions.sh
. "$QUOIN_ROOT/hack/lib/versions.sh"

release=bookworm
mirror=${QUOIN_DEBIAN_MIRROR:-}
# The newest that Debian's containerd 1.6 serves.
kubernetes=$(kubernetes_versions | grep '^v1\.35\.')

pause=quoin.test/pause:3.10.1

packages=(
    systemd systemd-sysv dbus openssh-server procps kmod udev curl ca-certificates
    iproute2 iptables nftables conntrack ipset ipvsadm socat ethtool
    util-linux mount e2fsprogs
    containerd runc containernetworking-plugins
    linux-image-cloud-amd64 initramfs-tools lz4
)

# furnish makes a host of a plain Debian: one that knows its network and whose
# identity is made at the first boot.
furnish() {
    local root=$1
    rm -f "$root"/etc/machine-id "$root"/var/lib/dbus/machine-id "$root"/etc/ssh/ssh_host_* "$root"/etc/resolv.conf
    rm -rf "$root"/var/cache/apt/* "$root"/var/lib/apt/lists/* "$root"/usr/share/doc/* "$root"/usr/share/man/* \
        "$root"/usr/share/locale/*
    echo vm-1 >"$root/etc/hostname"
    echo '127.0.0.1 localhost vm-1' >"$root/etc/hosts"
    # QEMU's own resolver; the kubelet hands the file on to pods, and makes none without it.
    echo 'nameserver 10.0.2.3' >"$root/etc/resolv.conf"
    printf '[Match]\nName=e*\n[Network]\nAddress=10.0.2.15/24\nGateway=10.0.2.2\nIPv6AcceptRA=no\n' \
        >"$root/etc/systemd/network/lan.network"
    cp "$QUOIN_ROOT"/hack/bundle/units/kubelet.service "$root/usr/lib/systemd/system/"
    mkdir -p "$root/usr/lib/systemd/system/kubelet.service.d"
    cp "$QUOIN_ROOT"/hack/bundle/units/10-kubeadm.conf "$root/usr/lib/systemd/system/kubelet.service.d/"
    # Without it, the presets of a first boot start a kubelet that has nothing to do, and inspection finds it at times.
    mkdir -p "$root/etc/systemd/system-preset"
    printf 'disable kubelet.service\n' >"$root/etc/systemd/system-preset/00-kubelet.preset"
    # systemd-firstboot and the host keys, which Debian makes when the package is configured.
    mkdir -p "$root/etc/systemd/system/ssh.service.d"
    printf '[Service]\nExecStartPre=\nExecStartPre=/usr/bin/ssh-keygen -A\nExecStartPre=/usr/sbin/sshd -t\n' \
        >"$root/etc/systemd/system/ssh.service.d/keys.conf"
    # Whose key it is comes with each start, on a disk of its own.
    printf '[Unit]\nBefore=ssh.service\n[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/bin/sh -c %s\n[Install]\nWantedBy=multi-user.target\n' \
        "'mkdir -p -m 0700 /root/.ssh && tr -d \"\\\\0\" </dev/disk/by-id/virtio-key >/root/.ssh/authorized_keys'" \
        >"$root/etc/systemd/system/login-key.service"
    chroot "$root" systemctl --quiet enable systemd-networkd login-key.service ssh.service containerd.service
    chroot "$root" systemctl --quiet mask apt-daily.timer apt-daily-upgrade.timer e2scrub_all.timer fstrim.timer \
        systemd-networkd-wait-online.service
}

# runtime has containerd know what a kubelet of kubeadm's wants of it, and puts
# the image of a pause beside it, which nobody could pull.
runtime() {
    local root=$1 layer=$2
    mkdir -p "$root/etc/containerd" "$root/opt" "$layer"
    cat >"$root/etc/containerd/config.toml" <<END
version = 2
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "$pause"
[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "/usr/lib/cni"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
  SystemdCgroup = true
END
    (cd "$QUOIN_ROOT" && CGO_ENABLED=0 GOFLAGS='' GOWORK=off go build -buildvcs=false -trimpath -ldflags '-s -w' \
        -o "$layer/pause" ./test/hostimage/images/pause &&
        go run ./hack/bundle/imagetar -o "$root/opt/pause.tar" -name "$pause" -entrypoint /pause "$layer") >&2
}

# kernel makes an initrd that has what QEMU's machine needs, and nothing that
# emulation would have to unpack for nothing.
kernel() {
    local root=$1
    sed -i 's/^MODULES=.*/MODULES=list/; s/^COMPRESS=.*/COMPRESS=lz4/' "$root/etc/initramfs-tools/initramfs.conf"
    printf '%s\n' virtio_pci virtio_blk ext4 >>"$root/etc/initramfs-tools/modules"
    chroot "$root" update-initramfs -u
    mv "$root"/boot/vmlinuz-* "$2/vmlinuz"
    mv "$root"/boot/initrd.img-* "$2/initrd"
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
    local program
    for program in debootstrap mkfs.ext4; do
        command -v "$program" >/dev/null || die "$program is missing: apt-get install debootstrap e2fsprogs"
    done
    local work list programs
    programs=$("$QUOIN_ROOT/hack/bundle/build-binaries.sh" kubernetes "$kubernetes" kubelet kubeadm kubectl)
    work=$(mktemp -d "$QUOIN_CACHE/.vm.XXXXXX")
    # shellcheck disable=SC2064 # the name is known now, not at exit
    trap "[ \$? = 0 ] || tail -n 20 '$work/log' >&2; discard '$work'" EXIT
    log "making a Debian $release with a kernel (about 3 minutes)"
    list=$(IFS=,; echo "${packages[*]}")
    mkdir "$work/new"
    # shellcheck disable=SC2086 # an empty mirror is no argument
    debootstrap --variant=minbase --include="$list" "$release" "$work/root" $mirror >"$work/log" 2>&1
    kernel "$work/root" "$work/new" >>"$work/log" 2>&1
    furnish "$work/root" >>"$work/log" 2>&1
    runtime "$work/root" "$work/layer"
    install -m 0755 "$programs"/kube{let,adm,ctl} "$work/root/usr/bin/"
    mkfs.ext4 -q -L root -d "$work/root" "$work/new/root.ext4" 3G >&2
    put_in_place "$work/new" "$product" "$key"
}

mkdir -p "$QUOIN_CACHE"
key=$(echo "$kubernetes" | key_of test/vm/image.sh hack/bundle/units hack/bundle/imagetar test/hostimage/images/pause)
product=$QUOIN_CACHE/vm-$key
locked vm build
echo "$product"
