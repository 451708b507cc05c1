// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"fmt"
	"strings"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
)

// Starter makes a command outlive the session that starts it. Its methods return sh text; unit is a plain word, or a
// double-quoted expression, so it is put in bare.
type Starter interface {
	// Start begins argv detached under the unit name. It must fail or do nothing when the unit already runs.
	Start(unit string, argv []string) string
	// Alive ends with code 0 when the unit runs.
	Alive(unit string) string
	// Stop ends the unit with everything that it started, and waits for that. Nothing to stop is fine.
	Stop(unit string) string
}

// Systemd starts transient units. They are gone after a reboot; the plan then is Lost until it is resumed.
type Systemd struct {
	// Idle leaves processors and disks to everybody else.
	Idle bool
}

// Start implements Starter.
func (s Systemd) Start(unit string, argv []string) string {
	idle := ""
	if s.Idle {
		idle = "--property=Nice=19 --property=IOSchedulingClass=idle "
	}
	// --collect forgets a unit that failed, or the same name could not start again. A plan that is taken up while the host
	// still boots waits for containerd, or the step that asks it first would fail.
	return fmt.Sprintf("systemd-run --quiet --collect --unit=%s --property=TimeoutStopSec=15 "+
		"--property=After=containerd.service --description='Quoin plan' %s-- %s", unit, idle, quoteAll(argv))
}

// Alive implements Starter.
func (Systemd) Alive(unit string) string {
	// A unit on its way down still works on the plan; is-active would deny that.
	return fmt.Sprintf("case $(systemctl show --property=ActiveState --value %s.service 2>/dev/null) in "+
		"active|activating|deactivating|reloading) true;; *) false;; esac", unit)
}

// Stop implements Starter.
func (Systemd) Stop(unit string) string {
	return fmt.Sprintf("systemctl stop %s.service 2>/dev/null || :", unit)
}

// Setsid starts plain processes, for simulated hosts that have no systemd of their own.
type Setsid struct {
	// Dir holds one file with the process ID per unit.
	Dir string
}

// Start implements Starter.
func (s Setsid) Start(unit string, argv []string) string {
	file := ssh.Quote(s.Dir+"/") + unit
	return fmt.Sprintf(`rm -f %[1]s; setsid /bin/sh -c 'echo $$ >"$0.part" && mv "$0.part" "$0"; exec "$@"' %[1]s %[2]s </dev/null >/dev/null 2>&1 &
while ! [ -e %[1]s ]; do sleep 0.01; done`, file, quoteAll(argv))
}

// Alive implements Starter. A process that nobody reaped yet is not alive.
func (s Setsid) Alive(unit string) string {
	return fmt.Sprintf(`grep -q '^State:[[:space:]]*[RSDTt]' "/proc/$(cat %s 2>/dev/null)/status" 2>/dev/null`,
		ssh.Quote(s.Dir+"/")+unit)
}

// Stop implements Starter.
func (s Setsid) Stop(unit string) string {
	// First the runner, which starts no further step then; then the rest of its session, for a step has a process group
	// of its own.
	return fmt.Sprintf(`sid=$(cat %s 2>/dev/null) || sid=
if [ -n "$sid" ]; then
	kill -s KILL -- "-$sid" 2>/dev/null || :
	while pids=$(cat /proc/[0-9]*/stat 2>/dev/null | sed -n "s/^\\([0-9]*\\) (.*) [^ZX] [0-9]* [0-9]* $sid .*/\\1/p") && [ -n "$pids" ]; do
		kill -s KILL $pids 2>/dev/null || :
		sleep 0.02
	done
fi`, ssh.Quote(s.Dir+"/")+unit)
}

func quoteAll(argv []string) string {
	quoted := make([]string, 0, len(argv))
	for _, arg := range argv {
		quoted = append(quoted, ssh.Quote(arg))
	}
	return strings.Join(quoted, " ")
}
