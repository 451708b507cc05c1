#!/usr/bin/env bash
# Copyright The Quoin Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Builds tools from their pinned tools modules and prints the path of each binary.
#
#   hack/tools/build.sh <tool>...
#
# Binaries live in ${QUOIN_CACHE}/bin/<tool>-<version>-<key>/<tool>, the key being a hash of everything that decides
# what comes out. A build goes to a temporary folder first and is renamed when done, so that a killed build leaves
# nothing that looks finished.
set -euo pipefail
# shellcheck source=hack/lib/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib/common.sh"

# describe sets folder (of the tools module), package, source (the module that carries the version) and ldflags.
describe() {
  local capi=sigs.k8s.io/cluster-api
  ldflags="-s -w"
  case "$1" in
    cluster-api-controller) folder=cluster-api package=$capi/core source=$capi ;;
    kubeadm-bootstrap-controller) folder=cluster-api package=$capi/bootstrap/kubeadm source=$capi ;;
    clusterctl) folder=cluster-api package=$capi/cmd/clusterctl source=$capi ;;
    kubeadm-control-plane-controller) folder=peer package=$capi/controlplane/kubeadm source=$capi ;;
    cluster-api-dev-controller) folder=peer package=$capi/test/infrastructure/docker source=$capi/test ;;
    kustomize) folder=kustomize source=sigs.k8s.io/kustomize/kustomize/v5 package=$source ;;
    controller-gen) folder=controller-gen source=sigs.k8s.io/controller-tools package=$source/cmd/controller-gen ;;
    golangci-lint) folder=golangci-lint source=github.com/golangci/golangci-lint/v2 package=$source/cmd/golangci-lint ;;
    govulncheck) folder=govulncheck source=golang.org/x/vuln package=$source/cmd/govulncheck ;;
    *) die "unknown tool $1; there are: cluster-api-controller kubeadm-bootstrap-controller clusterctl kubeadm-control-plane-controller cluster-api-dev-controller kustomize controller-gen golangci-lint govulncheck" ;;
  esac
  version=$(cd "$QUOIN_ROOT/hack/tools/$folder" && GOWORK=off go list -m -f '{{.Version}}' "$source")
  case "$folder" in
    cluster-api | peer)
      # clusterctl refuses to work without a version, and the managers print theirs.
      local plain=${version#v} at=$capi/version
      ldflags+=" -X $at.gitVersion=$version -X $at.gitMajor=${plain%%.*} -X $at.gitMinor=$(cut -d. -f2 <<<"$plain")"
      ldflags+=" -X $at.gitTreeState=clean" ;;
    golangci-lint) ldflags+=" -X main.version=${version#v}" ;;
    kustomize) ldflags+=" -X sigs.k8s.io/kustomize/api/provenance.version=$version" ;;
  esac
}

# compile <tool> <folder of the binary>
compile() {
  local tool=$1 out=$2 tmp
  [[ ! -x $out/$tool ]] || return 0
  log "building $tool $version"
  tmp=$(mktemp -d "$QUOIN_BIN/.$tool.XXXXXX")
  # shellcheck disable=SC2064 # the path is wanted as it is now
  trap "rm -rf '$tmp'" EXIT
  (cd "$QUOIN_ROOT/hack/tools/$folder" &&
    CGO_ENABLED=0 GOWORK=off go build -trimpath -ldflags "$ldflags" -o "$tmp/$tool" "$package") >&2
  chmod 0755 "$tmp"
  mv -T "$tmp" "$out"
}

[[ $# -gt 0 ]] || die "usage: hack/tools/build.sh <tool>..."
mkdir -p "$QUOIN_BIN"
for tool in "$@"; do
  describe "$tool"
  key=$(printf '%s\n' "$package" "$ldflags" "$(go env GOVERSION GOOS GOARCH)" |
    key_of "hack/tools/$folder/go.mod" "hack/tools/$folder/go.sum")
  out=$QUOIN_BIN/$tool-$version-$key
  locked "$tool" compile "$tool" "$out"
  echo "$out/$tool"
done
