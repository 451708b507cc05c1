#!/usr/bin/env bash
# Copyright The Quoin Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Builds the images of the test machines and prints their names:
#
#   build.sh rootfs      the bare root file system
#   build.sh host        a bare-metal host, no Kubernetes in it
#   build.sh kind-node   kind's node, for the newest Kubernetes we build
#   build.sh             host and kind-node
set -euo pipefail
# shellcheck source=hack/lib/common.sh
. "$(dirname "$0")/../../hack/lib/common.sh"
# shellcheck source=hack/lib/versions.sh
. "$QUOIN_ROOT/hack/lib/versions.sh"
# shellcheck source=hack/lib/engine.sh
. "$QUOIN_ROOT/hack/lib/engine.sh"

here=test/hostimage

# context makes a build context in the cache, where the parts can be linked
# instead of copied, and sets work to it. It goes when the build ends, however
# that is.
context() {
    work=$(mktemp -d "$QUOIN_CACHE/.context.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    cp -R "$QUOIN_ROOT/$here/$1/." "$work"
}

# plain_modes gives a context the modes it is meant to have: a checkout has
# those of somebody's umask, a module those of the module cache.
plain_modes() { chmod -R u=rwX,go=rX "$work"; }

# rootfs_image imports the root file system into the engine.
rootfs_image() {
    local tar image
    tar=$("$QUOIN_ROOT/$here/rootfs.sh")
    image=$(basename "$tar" .tar)
    image=quoin.test/rootfs:${image#rootfs-}
    has_image "$image" || engine import "$tar" "$image" >/dev/null
    echo "$image"
}

# host_image builds the host. Its name carries the key: hosts of two checkouts
# may run side by side.
host_image() {
    local rootfs containerd key image
    rootfs=$(rootfs_image)
    containerd=$("$QUOIN_ROOT/hack/bundle/build-binaries.sh" containerd)
    key=$(key_of $here/host <<<"$rootfs $(cat "$containerd"/*.key)")
    image=quoin.test/host:$key
    if ! has_image "$image"; then
        log "building $image"
        context host
        plain_modes
        cp "$containerd"/{containerd,containerd-shim-runc-v2,ctr} "$work"
        engine build --quiet --network none --build-arg "ROOTFS=$rootfs" --tag "$image" "$work" >&2
    fi
    echo "$image"
}

# kind_node_image puts Kubernetes, its images and kind's files into a host.
kind_node_image() {
    local version host kubernetes image key kind archives archive
    version=$(newest_kubernetes)
    host=$(host_image)
    mapfile -t archives < <("$QUOIN_ROOT/hack/bundle/build-images.sh" "$version")
    [ ${#archives[@]} -gt 0 ] || die "the images of $version could not be built"
    kubernetes=$("$QUOIN_ROOT/hack/bundle/build-binaries.sh" kubernetes "$version" kubeadm kubelet kubectl)
    kind=$(cd "$QUOIN_ROOT/hack/tools/kind" && go mod download sigs.k8s.io/kind >&2 && go list -m -f '{{.Dir}}' sigs.k8s.io/kind)
    image=quoin.test/kind-node:$version
    key=$(key_of $here/kindnode $here/testnet/testnet.yaml <<<"$host $(kind_version) $(cat "${archives[@]/%/.key}" "$kubernetes"/{kubeadm,kubelet,kubectl}.key)")
    if [ "$(engine image inspect --format '{{index .Config.Labels "quoin.test/key"}}' "$image" 2>/dev/null)" != "$key" ]; then
        log "building $image"
        context kindnode
        cp "$QUOIN_ROOT/$here/testnet/testnet.yaml" "$work"
        mkdir -p "$work/kind" "$work/images"
        cp -r "$kind/images/base/files/." "$work/kind"
        # The runtime's configuration is ours; kind's names other images.
        rm -rf "$work"/kind/etc/containerd "$work"/kind/etc/systemd/system/containerd*.service "$work"/kind/etc/crictl.yaml
        plain_modes
        for archive in "${archives[@]}"; do
            case $archive in
            */webserver-*) ;;
            *) ln "$archive" "$work/images/" 2>/dev/null || cp "$archive" "$work/images/" ;;
            esac
        done
        cp "$kubernetes"/{kubeadm,kubelet,kubectl} "$work"
        printf '%s' "$version" >"$work/version"
        engine build --quiet --network none --build-arg "HOST=$host" \
            --label "quoin.test/key=$key" --tag "$image" "$work" >&2
    fi
    echo "$image"
}

"$QUOIN_ROOT/hack/engine/ensure.sh"
case ${1:-all} in
rootfs) rootfs_image ;;
host) locked image-host host_image ;;
kind-node) locked image-kind-node kind_node_image ;;
all)
    locked image-host host_image
    locked image-kind-node kind_node_image
    ;;
*) die "usage: build.sh [rootfs|host|kind-node]" ;;
esac
