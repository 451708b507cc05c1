#!/usr/bin/env bash
# Copyright The Quoin Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Takes back what ensure.sh did: the kernel's settings, and the engine if it
# was started there. Refuses while containers of the tests are there, because
# their kubelets would set the kernel anew.
set -euo pipefail
# shellcheck source=hack/lib/common.sh
. "$(dirname "$0")/../lib/common.sh"
# shellcheck source=hack/lib/engine.sh
. "$QUOIN_ROOT/hack/lib/engine.sh"

# ours prints the containers of the tests: their hosts, and the nodes of kind
# clusters with a name like quoin-lab. On an engine that runs for the tests
# alone, whatever runs counts.
ours() {
    engine ps --all --filter label=dev.quoin.lab --format '{{.Names}}'
    engine ps --all --filter label=io.x-k8s.kind.cluster --format '{{.Names}}' | grep '^quoin-' || true
    if started_here; then engine ps --format '{{.Names}}'; fi
}

# started_here tells whether ensure.sh started the engine, and that the process
# id it wrote down is still that engine's and not a later stranger's.
started_here() {
    [ -f "$QUOIN_ENGINE/dockerd.pid" ] &&
        tr '\0' ' ' <"/proc/$(cat "$QUOIN_ENGINE/dockerd.pid")/cmdline" 2>/dev/null |
        grep -q -- "--data-root $QUOIN_CACHE/engine-data"
}

restore_sysctls() {
    local name value
    [ -f "$QUOIN_ENGINE/sysctls" ] || return 0
    if [ "$(cat "$QUOIN_ENGINE/boot" 2>/dev/null)" = "$(cat /proc/sys/kernel/random/boot_id)" ]; then
        while IFS='=' read -r name value; do
            # An engine that goes on running needs it.
            if [ "$name" = net.ipv4.ip_forward ] && ! started_here; then continue; fi
            [ "$(cat "/proc/sys/${name//.//}")" = "$value" ] ||
                echo "$value" >"/proc/sys/${name//.//}" ||
                log "warning: could not set $name back to $value"
        done <"$QUOIN_ENGINE/sysctls"
    fi
    rm -f "$QUOIN_ENGINE/sysctls" "$QUOIN_ENGINE/boot"
}

# stop_engine ends the engine by its process id.
stop_engine() {
    local pid _
    if started_here; then
        pid=$(cat "$QUOIN_ENGINE/dockerd.pid")
        kill "$pid"
        for _ in $(seq 60); do
            [ -e "/proc/$pid" ] || break
            sleep 0.5
        done
        # It leaves its bridge behind.
        ip link delete docker0 2>/dev/null || true
    fi
    rm -f "$QUOIN_ENGINE/dockerd.pid"
}

stop() {
    if engine_answers && [ -n "$(ours)" ]; then
        die "containers are still there: $(ours | sort -u | xargs)"
    fi
    restore_sysctls
    stop_engine
    rm -f "$QUOIN_ENGINE"/{client,sandbox,privileged-flags,run-flags}
}

[ -d "$QUOIN_ENGINE" ] || exit 0
locked engine stop
