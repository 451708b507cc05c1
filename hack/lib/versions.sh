# shellcheck shell=bash
# Copyright The Quoin Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Which version of what. The tools modules are the only place where versions
# are written down; this file reads them. Needs common.sh.

# module_version <tools module> <module path> prints the required version.
module_version() {
    awk -v module="$2" '$1 == "require" { sub(/^require /, "") }
        $1 == module && $2 ~ /^v/ { print $2; exit }' \
        "$QUOIN_ROOT/hack/tools/$1/go.mod"
}

# kubernetes_versions prints the Kubernetes versions that can be built, oldest
# first, one per line.
kubernetes_versions() {
    local module
    for module in "$QUOIN_ROOT"/hack/tools/kubernetes-*; do
        module_version "$(basename "$module")" k8s.io/kubernetes
    done | sort -V
}

# kubernetes_module <version> prints the tools module that builds a version.
kubernetes_module() {
    local minor=${1#v}
    minor=${minor%.*}
    local module=kubernetes-$minor
    if [ ! -f "$QUOIN_ROOT/hack/tools/$module/go.mod" ] ||
        [ "$(module_version "$module" k8s.io/kubernetes)" != "$1" ]; then
        die "Kubernetes $1 cannot be built here, only: $(kubernetes_versions | xargs)"
    fi
    echo "$module"
}

etcd_version() { module_version etcd go.etcd.io/etcd/server/v3; }
containerd_version() { module_version containerd github.com/containerd/containerd/v2; }
coredns_version() { module_version coredns github.com/coredns/coredns; }
kind_version() { module_version kind sigs.k8s.io/kind; }

# newest_kubernetes prints the version that the management side uses: kind's
# nodes and envtest.
newest_kubernetes() { kubernetes_versions | tail -n 1; }
