// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package recovery is what a host does so that etcd comes back as a person says, and in no other way: no member begins
// a cluster anew because it has lost its data; when a quorum is lost and a person asks for a recovery, members that are
// given up stop for good, and one becomes a cluster of one.
package recovery

import (
	_ "embed"
	"fmt"
	"time"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/run"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
)

//go:embed etcd.sh
var etcdFunctions string

//go:embed steps.sh
var recoveryFunctions string

// Action is what a host does in a recovery.
type Action string

const (
	// Stop ends the etcd member on the host for good: its data stay, and nothing starts it again.
	Stop Action = "Stop"
	// Survive makes the member on the host a cluster of one, with the data that it has, or with those of a snapshot.
	Survive Action = "Survive"
)

// Order is one host's part in a recovery.
type Order struct {
	// ID of the plan, which is that of the recovery.
	ID     string
	Action Action
	// Member is the name of the etcd member that survives.
	Member string
	// Snapshot whose data Deliver brought to the host, for Survive; the member's own data count when nil.
	Snapshot *Snapshot
}

// Snapshot is by what a host knows that the data that were delivered are whole.
type Snapshot struct {
	// SHA256 of the list of files, in hexadecimal.
	SHA256 string
	// Size of the files in bytes.
	Size int64
}

// long is for steps that wait for etcd twice: to end, and to be ready with a large database.
const long = 45 * time.Minute

// Plan never runs beside an etcd that has a quorum: its first step refuses, before anything is changed.
func Plan(order Order) run.Plan {
	step := func(name, call string) run.Step {
		return run.Step{Name: name, Script: etcdFunctions + guardFunctions + recoveryFunctions + call + "\n", Timeout: long}
	}
	plan := run.Plan{ID: order.ID}
	switch order.Action {
	case Stop:
		plan.Steps = []run.Step{
			step("check-quorum", "recovery_check_stop"),
			step("stop-etcd", "recovery_stop"),
		}
	case Survive:
		if s := order.Snapshot; s != nil {
			id := ssh.Quote(order.ID)
			plan.Steps = []run.Step{
				step("check-snapshot", fmt.Sprintf("recovery_check_snapshot %s %s %s %d", ssh.Quote(order.Member), id,
					ssh.Quote(s.SHA256), s.Size)),
				step("stop-etcd", "recovery_stop"),
				step("put-data", fmt.Sprintf("recovery_put %s %s", id, ssh.Quote(s.SHA256))),
				step("start-etcd", "recovery_start "+id),
				step("end-recovery", "recovery_end_snapshot "+id),
			}
			return plan
		}
		plan.Steps = []run.Step{
			step("check-member", "recovery_check "+ssh.Quote(order.Member)),
			step("stop-etcd", "recovery_stop"),
			step("keep-data", `recovery_keep "$kept"/`+ssh.Quote("data-"+order.ID)),
			step("force-new-cluster", "recovery_force"),
			step("raise-revision", "recovery_raise "+ssh.Quote(order.ID)),
			step("start-etcd", "recovery_start "+ssh.Quote(order.ID)),
			step("end-recovery", "recovery_end_raised "+ssh.Quote(order.ID)),
		}
	}
	return plan
}
