#!/usr/bin/env bash
# Copyright The Quoin Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Makes the images of one Kubernetes version, one archive each, and prints the
# archives' names: $QUOIN_CACHE/images/<name>-<tag>.tar. The tags are those
# that kubeadm of that version asks for, whatever version we really build.
set -euo pipefail
# shellcheck source=hack/lib/common.sh
. "$(dirname "$0")/../lib/common.sh"
# shellcheck source=hack/lib/versions.sh
. "$QUOIN_ROOT/hack/lib/versions.sh"
# shellcheck source=hack/lib/engine.sh
. "$QUOIN_ROOT/hack/lib/engine.sh"

version=${1:-}
[ -n "$version" ] || die "usage: build-images.sh <Kubernetes version>"

images=$QUOIN_CACHE/images
sandbox_image=$(sed -n 's/^ *sandbox = "\(.*\)"/\1/p' "$QUOIN_ROOT/test/hostimage/host/files/etc/containerd/config.toml")
path=PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin

# archive <file> <key> <imagetar arguments...> writes one archive.
archive() {
    local file=$images/$1 key=$2
    shift 2
    if ! up_to_date "$file" "$key"; then
        log "packing $(basename "$file")"
        "$work/imagetar" -o "$file.new" "$@"
        put_in_place "$file.new" "$file" "$key"
    fi
    echo "$file"
}

# program <image> <binary> <folder in the image> [layer beneath] packs one
# program. kubeadm's manifests start the components by name, from PATH.
program() {
    local image=$1 binary=$2 folder=$3 layer name
    shift 3
    name=$(basename "$binary")
    layer=$work/layer-$name
    mkdir -p "$layer$folder" "$layer/tmp" "$layer/etc"
    ln -f "$binary" "$layer$folder/$name" 2>/dev/null || cp "$binary" "$layer$folder/$name"
    local names=()
    local reference
    for reference in $image; do names+=(-name "$reference"); done
    reference=${image%% *}
    archive "$(basename "${reference/:/-}").tar" \
        "$(sha256sum "$binary" "$@" "$work/imagetar" | cut -d' ' -f1 | printf '%s ' "$image" "$folder" "$(cat)" | sha256sum | cut -c1-12)" \
        "${names[@]}" -env "$path" -entrypoint "$folder/$name" "$@" "$layer"
}

# small builds one of our own few-line programs.
small() {
    (cd "$QUOIN_ROOT" && CGO_ENABLED=0 GOFLAGS='' GOWORK=off nice -n 5 \
        go build -buildvcs=false -trimpath -ldflags '-s -w' -o "$work/$(basename "$1")" "./$1") >&2
}

# userland prints a tar of the network tools that kube-proxy and testnet call,
# taken out of the hosts' root file system.
userland() {
    local rootfs key file
    rootfs=$("$QUOIN_ROOT/test/hostimage/build.sh" rootfs)
    key=$(key_of test/hostimage/images/userland <<<"$rootfs")
    file=$images/userland.tar
    if ! up_to_date "$file" "$key"; then
        log "collecting the network tools"
        engine run --rm --network none --entrypoint /bin/sh \
            --volume "$QUOIN_ROOT/test/hostimage/images/userland/collect.sh:/collect.sh:ro" \
            "$rootfs" -c '/bin/sh /collect.sh /collected >&2 && tar -C /collected -c --sort=name --mtime=@0 --numeric-owner .' >"$file.new"
        put_in_place "$file.new" "$file" "$key"
    fi
    echo "$file"
}

# complete tells whether every archive of a list is still there: the cache may
# have been tidied by hand.
complete() {
    local file
    while read -r file; do
        [ -s "$file" ] || return 1
    done <"$1"
}

# build makes all archives, unless nothing has changed since it last did.
build() {
    local list=$images/$version.list key
    kubernetes=$("$QUOIN_ROOT/hack/bundle/build-binaries.sh" kubernetes "$version")
    etcd=$("$QUOIN_ROOT/hack/bundle/build-binaries.sh" etcd)
    coredns=$("$QUOIN_ROOT/hack/bundle/build-binaries.sh" coredns)
    key=$(cat "$kubernetes"/*.key "$etcd"/*.key "$coredns"/*.key <(echo "$sandbox_image"; grep /go-containerregistry "$QUOIN_ROOT/go.mod") |
        key_of hack/bundle/build-images.sh hack/bundle/imagetar hack/image \
            test/hostimage/rootfs.sh test/hostimage/images test/hostimage/testnet)
    if ! { up_to_date "$list" "$key" && complete "$list"; }; then
        pack >"$work/archives"
        put_in_place "$work/archives" "$list" "$key"
    fi
    cat "$list"
}

# pack makes the archives and prints their names.
pack() {
    local tools image
    "$QUOIN_ROOT/hack/engine/ensure.sh"
    tools=$(userland)
    small hack/bundle/imagetar
    small test/hostimage/images/pause
    small test/hostimage/images/webserver
    small test/hostimage/testnet

    "$kubernetes/kubeadm" config images list --image-repository quoin.test \
        --kubernetes-version "$version" >"$work/list" 2>"$work/errors" || die "$(cat "$work/errors")"
    while read -r image; do
        case $image in
        */kube-proxy:*) program "$image" "$kubernetes/kube-proxy" /usr/local/bin "$tools" ;;
        */kube-*) program "$image" "$kubernetes/$(basename "${image%:*}")" /usr/local/bin ;;
        */etcd:*) program "$image" "$etcd/etcd" /usr/local/bin ;;
        */coredns:*) program "$image" "$coredns/coredns" "" ;;
        */pause:*)
            # containerd's own sandbox image may have another tag.
            case $image in "$sandbox_image") ;; *) image+=" $sandbox_image" ;; esac
            program "$image" "$work/pause" ""
            ;;
        *) die "kubeadm $version asks for an image that nobody here makes: $image" ;;
        esac
    done <"$work/list"
    program quoin.test/testnet:v1 "$work/testnet" /usr/local/bin "$tools"
    program quoin.test/webserver:v1 "$work/webserver" ""
}

mkdir -p "$images"
# In the cache, so that binaries can be linked instead of copied.
work=$(mktemp -d "$QUOIN_CACHE/.images.XXXXXX")
trap 'rm -rf "$work"' EXIT
locked images build
