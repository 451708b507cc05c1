# shellcheck shell=bash
# Copyright The Quoin Authors.
# SPDX-License-Identifier: Apache-2.0
#
# The container engine as the other scripts use it. Needs common.sh.

# Where ensure.sh writes what it found and changed.
QUOIN_ENGINE=$QUOIN_CACHE/engine
export QUOIN_ENGINE

# engine_client prints the engine's own client. On some machines the first
# `docker` in PATH is a stand-in that talks to something else, so the packaged
# client goes first; DOCKER overrides both.
engine_client() {
    if [ -n "${DOCKER:-}" ]; then
        echo "$DOCKER"
    elif [ -x /usr/bin/docker ]; then
        echo /usr/bin/docker
    else
        command -v docker || true
    fi
}

# engine runs the client.
engine() { "$(engine_client)" "$@"; }

# engine_answers tells whether there is an engine behind the client.
engine_answers() { [ -n "$(engine_client)" ] && engine info >/dev/null 2>&1; }

# has_image tells whether the engine holds an image.
has_image() { engine image inspect "$1" >/dev/null 2>&1; }
