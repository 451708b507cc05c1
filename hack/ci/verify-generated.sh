#!/usr/bin/env bash
# Copyright The Quoin Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Fails when a generated file is not what its sources make of it. It works on
# a copy, so that it neither repairs nor disturbs the working tree.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
# What git knows or would add: neither artifacts nor ignored files.
git ls-files --cached --others --exclude-standard -z |
    while IFS= read -r -d '' file; do if [ -e "$file" ]; then printf '%s\0' "$file"; fi; done |
    tar --null --files-from - --create --file - | tar --extract --directory "$copy"

(
    cd "$copy"
    git init --quiet
    git add --all --force
    make --no-print-directory generate manifests
    go run ./hack/checklist
    go mod tidy
)
if ! git -C "$copy" diff --exit-code; then
    echo "error: the files above are out of date; run: make generate manifests checklist tidy" >&2
    exit 1
fi
