// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package sshtest

import (
	"fmt"
	"strings"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
)

// Setsid is a run.Starter of plain processes, for hosts that have no systemd of their own.
type Setsid struct {
	// Dir holds one file with the process ID per unit.
	Dir string
}

// Start implements run.Starter.
func (s Setsid) Start(unit string, argv []string) string {
	quoted := make([]string, 0, len(argv))
	for _, arg := range argv {
		quoted = append(quoted, ssh.Quote(arg))
	}
	file := ssh.Quote(s.Dir+"/") + unit
	return fmt.Sprintf(`rm -f %[1]s; setsid /bin/sh -c 'echo $$ >"$0.part" && mv "$0.part" "$0"; exec "$@"' %[1]s %[2]s </dev/null >/dev/null 2>&1 &
while ! [ -e %[1]s ]; do sleep 0.01; done`, file, strings.Join(quoted, " "))
}

// Alive implements run.Starter. A process that nobody reaped yet is not alive.
func (s Setsid) Alive(unit string) string {
	return fmt.Sprintf(`grep -q '^State:[[:space:]]*[RSDTt]' "/proc/$(cat %s 2>/dev/null)/status" 2>/dev/null`,
		ssh.Quote(s.Dir+"/")+unit)
}

// Stop implements run.Starter.
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
