#!/usr/bin/env bash
# Copyright The Quoin Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Builds the images of the managers, makes sure that the engine holds them, and
# prints one line `<provider label>=<image>` for each provider, or with --tars
# the path of each image's tar in the cache.
#
#   hack/components/images.sh [--tars] [core] [bootstrap] [quoin]     (all by default)
#
# quoin.test/cluster-api-controller:<version>        core
# quoin.test/kubeadm-bootstrap-controller:<version>  bootstrap
# quoin.test/quoin-manager:dev                       quoin, from the working tree
#
# Each is one static program, for this machine's architecture, packed by what
# packs the image of a release. A tar has the hash of its program in its name:
# the same program, the same tar.
set -euo pipefail
# shellcheck source=hack/lib/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib/common.sh"
# shellcheck source=hack/lib/engine.sh
. "$QUOIN_ROOT/hack/lib/engine.sh"

# The label tells an image of this program from an older one of the same name.
label=dev.quoin.program
tars=no

# pack <program> <image> <provider label>... makes the tar, and the engine's image unless tars are asked for, and prints
# what was asked for.
pack() {
    local program=$1 image=$2 key tar provider
    shift 2
    key=$({ sha256sum <"$program"; echo "$image"; } | key_of hack/bundle/imagetar hack/image)
    tar=$QUOIN_CACHE/images/$(basename "${image%%:*}")-${image##*:}-$key.tar
    [ -e "$tar" ] || locked "image-$(basename "${image%%:*}")" write_tar "$program" "$image" "$key" "$tar"
    if [ "$tars" = yes ]; then
        echo "$tar"
        return
    fi
    "$QUOIN_ROOT/hack/engine/ensure.sh" >&2
    held "$image" "$key" || engine load --quiet --input "$tar" >&2
    for provider in "$@"; do echo "$provider=$image"; done
}

# held <image> <key> tells whether the engine's image is of this program.
held() { [ "$(engine image inspect --format "{{index .Config.Labels \"$label\"}}" "$1" 2>/dev/null)" = "$2" ]; }

# write_tar <program> <image> <key> <tar>
write_tar() {
    local program=$1 image=$2 key=$3 tar=$4 work
    [ ! -e "$tar" ] || return 0
    log "packing $image"
    work=$(mktemp -d)
    # shellcheck disable=SC2064 # the path is wanted as it is now
    trap "rm -rf '$work'" EXIT
    (cd "$QUOIN_ROOT" && CGO_ENABLED=0 go build -o "$work/imagetar" ./hack/bundle/imagetar) >&2
    install -D -m 0755 "$program" "$work/layer/manager"
    mkdir -p "$(dirname "$tar")"
    "$work/imagetar" -o "$tar.new" -name "$image" -label "$label=$key" \
        -user 65532:65532 -entrypoint /manager "$work/layer" >&2
    # Earlier builds are of no more use.
    rm -f "$(dirname "$tar")/$(basename "${image%%:*}")-${image##*:}"-*.tar
    mv "$tar.new" "$tar"
}

# upstream <tool> <provider label> packs a manager of Cluster API.
upstream() {
    local tool=$1 program version
    program=$("$QUOIN_ROOT/hack/tools/build.sh" "$tool")
    version=$(basename "$(dirname "$program")")
    version=${version#"$tool"-}
    pack "$program" "quoin.test/$tool:${version%-*}" "$2"
}

# own packs the working tree's manager.
own() {
    local work
    work=$(mktemp -d)
    # shellcheck disable=SC2064 # the path is wanted as it is now
    trap "rm -rf '$work'" EXIT
    (cd "$QUOIN_ROOT" && CGO_ENABLED=0 go build -trimpath -ldflags "-s -w" -o "$work/manager" .) >&2
    pack "$work/manager" quoin.test/quoin-manager:dev control-plane-quoin infrastructure-quoin
}

if [ "${1:-}" = --tars ]; then
    tars=yes
    shift
fi
if [ $# -eq 0 ]; then set -- core bootstrap quoin; fi
for wanted in "$@"; do
    case $wanted in
        core) upstream cluster-api-controller cluster-api ;;
        bootstrap) upstream kubeadm-bootstrap-controller bootstrap-kubeadm ;;
        quoin) (own) ;;
        *) die "unknown image $wanted; there are: core bootstrap quoin" ;;
    esac
done
