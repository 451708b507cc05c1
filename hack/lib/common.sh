# shellcheck shell=bash
# Copyright The Quoin Authors.
# SPDX-License-Identifier: Apache-2.0
#
# What every script of the project needs: where things are, how a product is
# built at most once, and how it appears all at once or not at all.
# Source it; it runs nothing by itself.

QUOIN_ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
QUOIN_CACHE=${QUOIN_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/quoin}
QUOIN_BIN=$QUOIN_CACHE/bin
export QUOIN_ROOT QUOIN_CACHE QUOIN_BIN

# log prints a line of progress. Standard output is left to results, so that
# `dir=$(some-script)` works.
log() { printf '%s %s\n' "$(date +%H:%M:%S)" "$*" >&2; }

# die ends the script with what went wrong and, where known, the way out.
die() {
    printf 'error: %s\n' "$*" >&2
    exit 1
}

# key_of prints a short key for the content of the given files and folders and
# of the text on standard input. Names are part of it relative to the project,
# so that two clones share one cache.
key_of() {
    {
        local path
        for path in "$@"; do
            (cd "$QUOIN_ROOT" && find "$path" -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum)
        done
        if [ ! -t 0 ]; then cat; fi
    } | sha256sum | cut -c1-12
}

# locked <name> <command...> runs a command while nobody else builds the same
# product: two make targets may start the same build at the same moment, and
# the second then finds it in the cache.
locked() {
    local name=$1
    shift
    mkdir -p "$QUOIN_CACHE/locks"
    (
        flock 9
        "$@"
    ) 9>"$QUOIN_CACHE/locks/$name"
}

# up_to_date <product> <key> tells whether a product was built from these
# inputs. The key is written after the product, so a killed build has none.
up_to_date() {
    [ -e "$1" ] && [ "$(cat "$1.key" 2>/dev/null)" = "$2" ]
}

# put_in_place <new> <product> <key> gives a finished product its name.
# A folder cannot be renamed over another one, so the old one leaves first.
put_in_place() {
    local new=$1 product=$2 key=$3
    rm -f "$product.key"
    if [ -d "$product" ]; then rm -rf "$product"; fi
    mv -T "$new" "$product"
    printf '%s\n' "$key" >"$product.key"
}
