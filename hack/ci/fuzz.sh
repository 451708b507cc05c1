#!/usr/bin/env bash
# Copyright The Quoin Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Runs every fuzz target for FUZZTIME (20s unless set), or those whose name
# matches FUZZ, one after the other: `go test -fuzz` takes one target of one
# package. An input that fails is kept in the package's testdata/fuzz.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

time=${FUZZTIME:-20s}
wanted=${FUZZ:-.}
failed=()
count=0
while IFS=: read -r file target; do
    [[ $target =~ $wanted ]] || continue
    package=./$(dirname "$file")
    count=$((count + 1))
    printf '=== %s %s for %s\n' "$package" "$target" "$time"
    # A worker that eats memory without bound is a finding; it must not take the machine along.
    # Each input that is new is made smaller for a minute unless told otherwise, and nothing else is tried meanwhile.
    GOMEMLIMIT=1GiB go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" -fuzzminimizetime 20x -parallel 2 "$package" || failed+=("$package $target")
done < <(git grep --untracked -oE '^func Fuzz[A-Za-z0-9_]+' -- '*_test.go' | sed 's/:func /:/' | sort)

[ "$count" -gt 0 ] || { echo "no fuzz target matches $wanted" >&2; exit 1; }
printf '=== %d targets\n' "$count"
[ ${#failed[@]} = 0 ] || { printf 'FAIL %s\n' "${failed[@]}"; exit 1; }
