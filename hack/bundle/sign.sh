#!/usr/bin/env bash
# Copyright The Quoin Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Signs the manifest of a bundle, with a private SSH key, or with a public one
# whose private half an agent or a security key has:
#
#   sign.sh <bundle folder> <key>
#
# A manifest that this very key has signed already stays as it is.
set -euo pipefail

[ $# = 2 ] || { echo "usage: sign.sh <bundle folder> <key>" >&2; exit 2; }
manifest=$1/manifest.json key=$2
[ -f "$manifest" ] || { echo "error: there is no $manifest; make the bundle first" >&2; exit 1; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
{
    printf 'bundle '
    cat "$key.pub" 2>/dev/null || ssh-keygen -y -f "$key" 2>/dev/null || cat "$key"
} >"$work/signers"
if ssh-keygen -q -Y verify -n quoin-bundle -I bundle -f "$work/signers" -s "$manifest.sig" \
    <"$manifest" >/dev/null 2>&1; then
    exit 0
fi
ssh-keygen -q -Y sign -n quoin-bundle -f "$key" <"$manifest" >"$work/signature" ||
    { echo "error: $key could not sign $manifest" >&2; exit 1; }
# It takes its name in one step: a host may be reading it.
install -m 0644 "$work/signature" "$manifest.sig.new"
mv -f "$manifest.sig.new" "$manifest.sig"
