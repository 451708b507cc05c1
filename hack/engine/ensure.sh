#!/usr/bin/env bash
# Copyright The Quoin Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Makes sure of a container engine that can run a machine in a container, and
# leaves in $QUOIN_CACHE/engine what others need to know about it:
#
#   client            the engine's own client
#   privileged-flags  what stands for `--privileged` here, one argument a line
#   run-flags         all arguments of `run` that a host container needs
#   sandbox           `yes` where `--privileged` itself does not work
#   sysctls           what the kernel's settings were before, for stop.sh
#   dockerd.pid       only when this script started the engine
#
# It may be run again at any time.
set -euo pipefail
# shellcheck source=hack/lib/common.sh
. "$(dirname "$0")/../lib/common.sh"
# shellcheck source=hack/lib/engine.sh
. "$QUOIN_ROOT/hack/lib/engine.sh"

# can_install tells whether packages are ours to install.
can_install() { [ "$(id -u)" = 0 ] && [ -f /etc/debian_version ]; }

install_packages() {
    log "installing $*"
    apt-get update -qq >&2
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >&2
}

# install_engine gets the engine where we know how to, and else says how.
install_engine() {
    if can_install; then
        install_packages docker.io iptables
    else
        give_up
    fi
}

give_up() {
    cat >&2 <<'TEXT'
No container engine answers. Do one of these, then run the command again:
  - start the installed one:         sudo systemctl start docker
  - install it on Debian or Ubuntu:  sudo apt-get install docker.io debootstrap
    and let yourself use it:         sudo usermod -aG docker "$USER"   (log in anew)
  - name another client:             DOCKER=/path/to/docker
TEXT
    exit 1
}

# start_engine starts the installed engine: by systemd where it runs, else by
# hand with data of its own, so that an engine of somebody else keeps his.
start_engine() {
    if [ -d /run/systemd/system ]; then
        systemctl start docker >&2 && return
    fi
    [ -x /usr/sbin/dockerd ] || return 0
    [ "$(id -u)" = 0 ] || return 0
    log "starting /usr/sbin/dockerd"
    PATH=/usr/sbin:/usr/bin:/sbin:/bin setsid nohup /usr/sbin/dockerd \
        --data-root "$QUOIN_CACHE/engine-data" \
        >"$QUOIN_ENGINE/dockerd.log" 2>&1 </dev/null 9>&- &
    echo "$!" >"$QUOIN_ENGINE/dockerd.pid"
    local _
    for _ in $(seq 60); do
        if engine_answers; then return; fi
        sleep 0.5
    done
    tail -n 20 "$QUOIN_ENGINE/dockerd.log" >&2
    die "dockerd did not come up; its log: $QUOIN_ENGINE/dockerd.log"
}

# known tells whether this engine was looked at since the machine booted.
known() {
    [ -s "$QUOIN_ENGINE/run-flags" ] && [ -s "$QUOIN_ENGINE/boot" ] &&
        [ "$(cat "$QUOIN_ENGINE/boot")" = "$(cat /proc/sys/kernel/random/boot_id)" ] &&
        [ "$(cat "$QUOIN_ENGINE/client")" = "$(engine_client)" ]
}

# probe_privileged tries the one thing that sandboxes forbid. A static program
# is image enough.
probe_privileged() {
    local work image=quoin.test/probe:latest
    if ! has_image "$image"; then
        work=$(mktemp -d)
        (cd "$QUOIN_ROOT/test/hostimage/images/pause" &&
            CGO_ENABLED=0 GOFLAGS='' GO111MODULE=off go build -o "$work/probe" main.go)
        tar -C "$work" -c probe | engine import --change 'ENTRYPOINT ["/probe"]' - "$image" >/dev/null
        rm -rf "$work"
    fi
    engine run --rm --network none --privileged "$image" -v >/dev/null 2>"$QUOIN_ENGINE/probe.log"
}

# write_flags records what stands for --privileged on this machine.
write_flags() {
    if probe_privileged; then
        echo no >"$QUOIN_ENGINE/sandbox"
        printf '%s\n' --privileged >"$QUOIN_ENGINE/privileged-flags"
    else
        # Without CAP_SYS_RESOURCE the engine cannot grant it, which is what
        # `--privileged` asks for. Everything else of it can be had by name.
        echo yes >"$QUOIN_ENGINE/sandbox"
        printf '%s\n' --cap-add ALL --cap-drop SYS_RESOURCE \
            --security-opt systempaths=unconfined \
            --security-opt seccomp=unconfined \
            --security-opt apparmor=unconfined \
            --device-cgroup-rule 'a *:* rwm' \
            --device /dev/kmsg >"$QUOIN_ENGINE/privileged-flags"
    fi
    {
        cat "$QUOIN_ENGINE/privileged-flags"
        printf '%s\n' --cgroupns=private --init=false \
            --tmpfs /tmp:exec --tmpfs /run:exec,mode=755 \
            --volume /var --volume /lib/modules:/lib/modules:ro
    } >"$QUOIN_ENGINE/run-flags"
    engine_client >"$QUOIN_ENGINE/client"
}

# remember records the kernel's settings before the engine, the kubelets and
# this script change them. After a reboot the record is void.
remember() {
    local boot name names=(fs.inotify.max_user_instances vm.overcommit_memory kernel.panic kernel.panic_on_oops)
    boot=$(cat /proc/sys/kernel/random/boot_id)
    if [ "$(cat "$QUOIN_ENGINE/boot" 2>/dev/null)" = "$boot" ]; then return; fi
    # An engine switches forwarding on when it starts.
    if ! engine_answers; then names+=(net.ipv4.ip_forward); fi
    for name in "${names[@]}"; do
        printf '%s=%s\n' "$name" "$(cat "/proc/sys/${name//.//}")"
    done >"$QUOIN_ENGINE/sysctls"
    rm -f "$QUOIN_ENGINE/run-flags"
    echo "$boot" >"$QUOIN_ENGINE/boot"
}

# tune raises what several kubelets on one kernel exceed.
tune() {
    if [ "$(cat /proc/sys/fs/inotify/max_user_instances)" -lt 8192 ]; then
        # 128, the usual default, is used up by about seven nodes: then
        # kube-proxy crashes with "too many open files".
        echo 8192 >/proc/sys/fs/inotify/max_user_instances 2>/dev/null ||
            log "warning: could not raise fs.inotify.max_user_instances; run: sudo sysctl -w fs.inotify.max_user_instances=8192"
    fi
}

ensure() {
    remember
    if ! engine_answers; then
        if [ ! -x /usr/sbin/dockerd ]; then install_engine; fi
        start_engine
        engine_answers || give_up
    fi
    # Hosts' root file systems are made with it.
    if ! command -v debootstrap >/dev/null && can_install; then
        install_packages debootstrap
    fi
    if ! known; then write_flags; fi
    tune
}

mkdir -p "$QUOIN_ENGINE"
locked engine ensure
