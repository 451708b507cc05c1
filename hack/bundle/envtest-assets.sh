#!/usr/bin/env bash
# Copyright The Quoin Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Prints a folder for KUBEBUILDER_ASSETS: etcd, kube-apiserver, kubectl, and
# the kube-controller-manager that tests run for garbage collection. Builds
# what is missing of these four, nothing else.
set -euo pipefail
# shellcheck source=hack/lib/common.sh
. "$(dirname "$0")/../lib/common.sh"
# shellcheck source=hack/lib/versions.sh
. "$QUOIN_ROOT/hack/lib/versions.sh"

version=${1:-$(newest_kubernetes)}
etcd=$("$QUOIN_ROOT/hack/bundle/build-binaries.sh" etcd etcd)
kubernetes=$("$QUOIN_ROOT/hack/bundle/build-binaries.sh" kubernetes "$version" \
    kube-apiserver kube-controller-manager kubectl)

assets=$QUOIN_BIN/envtest-$version
mkdir -p "$assets"
ln -sfn "$etcd/etcd" "$assets/etcd"
for name in kube-apiserver kube-controller-manager kubectl; do
    ln -sfn "$kubernetes/$name" "$assets/$name"
done
echo "$assets"
