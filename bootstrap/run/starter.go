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

func quoteAll(argv []string) string {
	quoted := make([]string, 0, len(argv))
	for _, arg := range argv {
		quoted = append(quoted, ssh.Quote(arg))
	}
	return strings.Join(quoted, " ")
}
