#!/usr/bin/env bash
# Copyright The Quoin Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Builds the images of the managers and prints the path of each image's tar,
# one per line, for `kind load image-archive` or `ctr images import`.
#
#   hack/components/images.sh [core] [bootstrap] [quoin]     (all by default)
#
# quoin.test/cluster-api-controller:<version>        core
# quoin.test/kubeadm-bootstrap-controller:<version>  bootstrap
# quoin.test/quoin-manager:dev                       quoin, from the working tree
#
# Each image holds one static program and nothing else, and runs as 65532. A
# tar has the hash of its program in its name: the same program, the same tar.
set -euo pipefail
# shellcheck source=hack/lib/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib/common.sh"
# shellcheck source=hack/lib/engine.sh
. "$QUOIN_ROOT/hack/lib/engine.sh"

dockerfile='FROM scratch
COPY manager /manager
USER 65532:65532
ENTRYPOINT ["/manager"]'

# pack <program> <image> makes the tar, unless it is there, and prints its path.
pack() {
    local program=$1 image=$2 key tar
    key=$({ sha256sum <"$program"; echo "$image $dockerfile"; } | sha256sum | cut -c1-12)
    tar=$QUOIN_CACHE/images/$(basename "${image%%:*}")-${image##*:}-$key.tar
    if [ ! -e "$tar" ]; then
        locked "image-$(basename "${image%%:*}")" save "$program" "$image" "$tar"
    fi
    echo "$tar"
}

# save <program> <image> <tar>
save() {
    local program=$1 image=$2 tar=$3 context
    if [ -e "$tar" ]; then return; fi
    log "building image $image"
    "$QUOIN_ROOT/hack/engine/ensure.sh" >&2
    context=$(mktemp -d)
    # shellcheck disable=SC2064 # the paths are wanted as they are now
    trap "rm -rf '$context' '$tar.new'" EXIT
    install -m 0755 "$program" "$context/manager"
    echo "$dockerfile" >"$context/Dockerfile"
    engine build --quiet --tag "$image" "$context" >&2
    mkdir -p "$(dirname "$tar")"
    engine save --output "$tar.new" "$image"
    # Earlier builds of the working tree are of no more use.
    rm -f "$(dirname "$tar")/$(basename "${image%%:*}")-${image##*:}"-*.tar
    mv "$tar.new" "$tar"
}

# upstream <tool> packs a manager of Cluster API.
upstream() {
    local tool=$1 program version
    program=$("$QUOIN_ROOT/hack/tools/build.sh" "$tool")
    version=$(basename "$(dirname "$program")")
    version=${version#"$tool"-}
    pack "$program" "quoin.test/$tool:${version%-*}"
}

# own packs the working tree's manager.
own() {
    local work
    work=$(mktemp -d)
    # shellcheck disable=SC2064 # the path is wanted as it is now
    trap "rm -rf '$work'" EXIT
    (cd "$QUOIN_ROOT" && CGO_ENABLED=0 go build -trimpath -ldflags "-s -w" -o "$work/manager" .) >&2
    pack "$work/manager" quoin.test/quoin-manager:dev
}

if [ $# -eq 0 ]; then set -- core bootstrap quoin; fi
for wanted in "$@"; do
    case $wanted in
        core) upstream cluster-api-controller ;;
        bootstrap) upstream kubeadm-bootstrap-controller ;;
        quoin) (own) ;;
        *) die "unknown image $wanted; there are: core bootstrap quoin" ;;
    esac
done
