#!/usr/bin/env bash
# Copyright The Quoin Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Makes the bundle of one Kubernetes version and prints its folder:
# $QUOIN_CACHE/bundles/<version>/. All a host needs of that version is in it.
# With BUNDLE_SIGNING_KEY, the file of an SSH key, its manifest is signed. With BUNDLE_IMAGES, archives of one image
# each that every host gets too, the folder is $QUOIN_CACHE/bundles/own/<version>/.
set -euo pipefail
# shellcheck source=hack/lib/common.sh
. "$(dirname "$0")/../lib/common.sh"
# shellcheck source=hack/lib/versions.sh
. "$QUOIN_ROOT/hack/lib/versions.sh"

version=${1:-}
[ -n "$version" ] || die "usage: make-bundle.sh <version>, one of: $(kubernetes_versions | xargs)"
case $version in v*) ;; *) version=v$version ;; esac
read -ra own <<<"${BUNDLE_IMAGES:-}"
for archive in "${own[@]}"; do
    [ -f "$archive" ] || die "$archive is no file: BUNDLE_IMAGES has archives of images, such as \`docker save\` writes"
done

# place puts a file into the bundle, as a link where the file system can.
place() { ln -f "$1" "$2" 2>/dev/null || cp "$1" "$2"; }

# In the bundle's folder old and new must not mix: a host may be reading it. So
# a new one is made beside it and takes its name in one step.
build() {
    local kubernetes etcd archives archive name key
    local bundle=$QUOIN_CACHE/bundles/${own:+own/}$version
    kubernetes=$("$QUOIN_ROOT/hack/bundle/build-binaries.sh" kubernetes "$version")
    etcd=$("$QUOIN_ROOT/hack/bundle/build-binaries.sh" etcd)
    mapfile -t archives < <("$QUOIN_ROOT/hack/bundle/build-images.sh" "$version")
    [ ${#archives[@]} -gt 0 ] || die "the images of $version could not be built"
    key=$(key_of hack/bundle/units hack/bundle/manifest hack/bundle/make-bundle.sh \
        < <(cat "${archives[@]/%/.key}" "$kubernetes"/{kubeadm,kubelet,kubectl}.key "$etcd"/{etcdctl,etcdutl}.key
            if [ ${#own[@]} -gt 0 ]; then sha256sum "${own[@]}"; fi))
    if ! up_to_date "$bundle" "$key"; then
        log "making the bundle of $version"
        work=$(mktemp -d "$QUOIN_CACHE/.bundle.XXXXXX")
        trap 'rm -rf "$work"' EXIT
        mkdir -p "$work"/{bin,images,units}
        for name in kubeadm kubelet kubectl; do place "$kubernetes/$name" "$work/bin/$name"; done
        for name in etcdctl etcdutl; do place "$etcd/$name" "$work/bin/$name"; done
        for archive in "${archives[@]}"; do place "$archive" "$work/images/"; done
        for archive in "${own[@]}"; do
            [ ! -e "$work/images/$(basename "$archive")" ] || die "two images are called $(basename "$archive")"
            cp "$archive" "$work/images/"
        done
        cp "$QUOIN_ROOT"/hack/bundle/units/* "$work/units"
        (cd "$QUOIN_ROOT" && GOFLAGS='' go run -buildvcs=false ./hack/bundle/manifest -version "$version" "$work")
        chmod -R a+rX "$work"
        put_in_place "$work" "$bundle" "$key"
    fi
    if [ -n "${BUNDLE_SIGNING_KEY:-}" ]; then
        "$QUOIN_ROOT/hack/bundle/sign.sh" "$bundle" "$BUNDLE_SIGNING_KEY"
    fi
    echo "$bundle"
}

mkdir -p "$QUOIN_CACHE/bundles${own:+/own}"
locked "bundle-$version" build
