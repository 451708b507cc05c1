#!/usr/bin/env bash
# Copyright The Quoin Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Builds programs from their Go modules into $QUOIN_CACHE/bin/<tool>-<version>/
# and prints that folder. What is there already, built from the same inputs by
# the same Go, is not built again.
#
#   build-binaries.sh kubernetes v1.36.3 [kubelet kubeadm ...]
#   build-binaries.sh etcd|containerd|coredns|kind [program ...]
set -euo pipefail
# shellcheck source=hack/lib/common.sh
. "$(dirname "$0")/../lib/common.sh"
# shellcheck source=hack/lib/versions.sh
. "$QUOIN_ROOT/hack/lib/versions.sh"

usage() { die "usage: build-binaries.sh kubernetes <version> [program ...] | etcd|containerd|coredns|kind [program ...]"; }

# kubernetes_ldflags stamps a version: without it every component calls itself
# v0.0.0-master, and kubeadm's skew checks refuse to work with it.
kubernetes_ldflags() {
    local version=$1 package minor
    minor=${version#v1.}
    minor=${minor%%.*}
    for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
        printf ' -X %s.gitVersion=%s -X %s.gitMajor=1 -X %s.gitMinor=%s -X %s.gitTreeState=clean' \
            "$package" "$version" "$package" "$package" "$minor" "$package"
    done
}

# choose sets what a tool is made of: module, version, programs (name=package)
# and link flags.
choose() {
    tool=$1
    flags="-s -w"
    case $tool in
    kubernetes)
        version=${2:-}
        [ -n "$version" ] || usage
        module=$(kubernetes_module "$version")
        flags+=$(kubernetes_ldflags "$version")
        local name
        for name in kube-apiserver kube-controller-manager kube-scheduler kube-proxy kubelet kubeadm kubectl; do
            programs+=("$name=k8s.io/kubernetes/cmd/$name")
        done
        ;;
    etcd)
        module=etcd version=$(etcd_version)
        programs=(etcd=go.etcd.io/etcd/server/v3 etcdctl=go.etcd.io/etcd/etcdctl/v3 etcdutl=go.etcd.io/etcd/etcdutl/v3)
        ;;
    containerd)
        module=containerd version=$(containerd_version)
        flags+=" -X github.com/containerd/containerd/v2/version.Version=$version"
        local name
        for name in containerd containerd-shim-runc-v2 ctr; do
            programs+=("$name=github.com/containerd/containerd/v2/cmd/$name")
        done
        ;;
    coredns)
        module=coredns version=$(coredns_version)
        programs=(coredns=.)
        ;;
    kind)
        module=kind version=$(kind_version)
        programs=(kind=sigs.k8s.io/kind)
        ;;
    *) usage ;;
    esac
}

# build compiles those of the wanted programs that are missing or outdated.
build() {
    local key target=$QUOIN_BIN/$tool-$version program name
    key=$(printf '%s\n' "$flags" "$(go env GOVERSION GOARCH)" | key_of "hack/tools/$module")
    mkdir -p "$target"
    for program in "${programs[@]}"; do
        name=${program%%=*}
        case " $wanted " in "  " | *" $name "*) ;; *) continue ;; esac
        if up_to_date "$target/$name" "$key"; then continue; fi
        log "building $name $version"
        # GOFLAGS of the caller (-mod=mod, say) must not leak into a build
        # whose inputs are pinned by go.sum.
        (cd "$QUOIN_ROOT/hack/tools/$module" &&
            CGO_ENABLED=0 GOFLAGS='' GOWORK=off nice -n 5 \
                go build -buildvcs=false -trimpath -tags "$tags" -ldflags "$flags" \
                -o "$target/.$name.new" "${program#*=}") >&2
        put_in_place "$target/.$name.new" "$target/$name" "$key"
    done
    echo "$target"
}

tags=""
programs=()
choose "$@"
if [ "$tool" = kubernetes ]; then shift 2; else shift; fi
wanted="$*"
# containerd's snapshotters for other file systems need C libraries.
if [ "$tool" = containerd ]; then tags="no_btrfs no_devmapper no_zfs"; fi
mkdir -p "$QUOIN_BIN"
locked "bin-$tool-$version" build
