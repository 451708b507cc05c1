#!/usr/bin/env bash
# Copyright The Quoin Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Builds one tool from its pinned tools module and prints the path of the binary.
#
#   hack/tools/build.sh <tool>...
#
# Binaries live in ${QUOIN_CACHE}/bin/<tool>-<version>-<key>/<tool>, the key being a hash of everything that decides
# what comes out. A build goes to a temporary folder first and is renamed when done, so that a killed build leaves
# nothing that looks finished, and two builds at once do not hurt each other.
set -euo pipefail

here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
cache="${QUOIN_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/quoin}"

# describe sets module (folder), package, source (the module that carries the version) and, where wanted, ldflags.
describe() {
  ldflags="-s -w"
  case "$1" in
    cluster-api-controller)
      folder=cluster-api package=sigs.k8s.io/cluster-api/core source=sigs.k8s.io/cluster-api ;;
    kubeadm-bootstrap-controller)
      folder=cluster-api package=sigs.k8s.io/cluster-api/bootstrap/kubeadm source=sigs.k8s.io/cluster-api ;;
    clusterctl)
      folder=cluster-api package=sigs.k8s.io/cluster-api/cmd/clusterctl source=sigs.k8s.io/cluster-api ;;
    kustomize)
      folder=kustomize package=sigs.k8s.io/kustomize/kustomize/v5 source=sigs.k8s.io/kustomize/kustomize/v5 ;;
    controller-gen)
      folder=controller-gen package=sigs.k8s.io/controller-tools/cmd/controller-gen source=sigs.k8s.io/controller-tools ;;
    golangci-lint)
      folder=golangci-lint package=github.com/golangci/golangci-lint/v2/cmd/golangci-lint
      source=github.com/golangci/golangci-lint/v2 ;;
    *)
      echo "unknown tool: $1" >&2
      exit 2 ;;
  esac
  version="$(cd "$here/$folder" && go list -m -f '{{.Version}}' "$source")"
  case "$folder" in
    cluster-api)
      # clusterctl refuses to work without a version, and the managers print theirs.
      local v="${version#v}" at=sigs.k8s.io/cluster-api/version
      ldflags+=" -X $at.gitVersion=$version -X $at.gitMajor=${v%%.*} -X $at.gitMinor=$(cut -d. -f2 <<<"$v")"
      ldflags+=" -X $at.gitTreeState=clean" ;;
    golangci-lint)
      ldflags+=" -X main.version=${version#v}" ;;
    kustomize)
      ldflags+=" -X sigs.k8s.io/kustomize/api/provenance.version=$version" ;;
  esac
}

build() {
  local tool="$1" folder package source version ldflags key out tmp
  describe "$tool"
  key="$(
    { cat "${BASH_SOURCE[0]}" "$here/$folder/go.mod" "$here/$folder/go.sum"; go env GOVERSION GOOS GOARCH; } |
      sha256sum | cut -c1-12
  )"
  out="$cache/bin/$tool-$version-$key"
  if [[ ! -x "$out/$tool" ]]; then
    mkdir -p "$cache/bin"
    tmp="$(mktemp -d "$cache/bin/.$tool.XXXXXX")"
    # shellcheck disable=SC2064 # the path is wanted as it is now
    trap "rm -rf '$tmp'" EXIT
    echo "building $tool $version" >&2
    (cd "$here/$folder" && CGO_ENABLED=0 go build -trimpath -ldflags "$ldflags" -o "$tmp/$tool" "$package") >&2
    chmod 0755 "$tmp"
    mv -T "$tmp" "$out" 2>/dev/null || [[ -x "$out/$tool" ]]
    rm -rf "$tmp"
    trap - EXIT
  fi
  echo "$out/$tool"
}

if [[ $# -eq 0 ]]; then
  sed -n '5,8s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2
  exit 2
fi
for tool in "$@"; do
  build "$tool"
done
