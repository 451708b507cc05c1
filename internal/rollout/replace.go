// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
)

// A Machine that a person deletes is one of its MachineSet's replicas until it is gone, so that nobody makes another
// one while a deletion hook keeps it (getAndAdoptMachinesForMachineSet in machineset_controller.go). A Machine that is
// made beside it is one above replicas, and of these the MachineSet takes what is in deletion already (mustDelete in
// machineset_deletion_order.go): it deletes no other one. So replicas are never changed.

// Replace has another Machine made of the same MachineSet's templates, and keeps the pre-drain hook.
const Replace Action = "Replace"

// ReplacementFirst says that what takes the place of a Machine that a person deleted comes first.
const ReplacementFirst Reason = "ReplacementFirst"

// replacementTakes is how long a replacement is waited for where the policy has no deadline.
const replacementTakes = 20 * time.Minute

// Succession is which Machine takes the place of which.
type Succession struct {
	// Deleted is when somebody deleted the Machine; zero when nobody did.
	Deleted time.Time
	// Replacement is the Machine that was made in its place, which may be gone; empty when none was.
	Replacement string
	// Replaces is the Machine in whose place this one was made, while that is there.
	Replaces string
}

// Room is what one more Machine of a pool could have.
type Room struct {
	// Hosts that are free for it.
	Hosts int
	// Replicas that its present MachineSet is to have. While they are fewer than those of the pool, as after a template
	// was taken back, one more Machine would be one too many.
	Replicas int
	// Unmade says why none can be made beside those of Cluster API; empty when one can.
	Unmade string
}

// ReplacementOf is the value of the annotation that says which Machine was made in the place of the given one.
func ReplacementOf(machine *clusterv1.Machine, replacement string) string {
	return string(machine.UID) + " " + replacement
}

// SuccessionOf is what the Machine itself says about what takes its place. It names itself there, so that what a
// template has, or a Machine before a move, says nothing.
func SuccessionOf(machine *clusterv1.Machine) Succession {
	s := Succession{}
	if machine.DeletionTimestamp != nil {
		s.Deleted = machine.DeletionTimestamp.Time
	}
	if uid, name, _ := strings.Cut(machine.Annotations[quoinv1.RolloutReplacementAnnotation], " "); uid != "" &&
		uid == string(machine.UID) {
		s.Replacement = name
	}
	return s
}

// replaceFirst decides whether another Machine comes before one that was deleted is drained. Without an action it may
// be drained, and why says whether that is without another one; it is empty where nobody expects one.
func (l *leaver) replaceFirst(m Machine) (action Action, reason Reason, why string) {
	if m.Outdated && m.Replacement == "" || m.Condemned || m.Deleted.IsZero() || m.Leave.Excluded {
		return "", "", ""
	}
	end := anew(m.Deleted, l.Resumed).Add(l.replacementTakes())
	if m.Replacement == "" {
		if why := l.unreplaced(m, end); why != "" {
			return "", "", ", and none is made in its place before: " + why
		}
		if !l.pool.replaced(m) {
			l.pool.Room.Hosts--
		}
		return Replace, ReplacementFirst, "another Machine is made in its place, and it is drained when that is Available"
	}
	made := ", which was made in its place,"
	for _, other := range l.pool.Machines {
		switch {
		case other.Name != m.Replacement:
		case other.Deleting:
			return "", "", fmt.Sprintf(". Machine %s%s is being deleted", other.Name, made)
		case other.Joined && other.Available && other.Unhealthy == "":
			return "", "", fmt.Sprintf(". Machine %s%s is Available", other.Name, made)
		case other.NoHost != "":
			return "", "", fmt.Sprintf(". Machine %s%s finds no host: %s", other.Name, made, other.NoHost)
		case other.Outdated && !other.started():
			return "", "", fmt.Sprintf(". Machine %s%s is of an earlier template by now and gets no host", other.Name, made)
		case !l.now.Before(end):
			return "", "", fmt.Sprintf(". Machine %s%s is not Available after %s: %s", other.Name, made,
				l.replacementTakes(), cmp.Or(other.Unhealthy, "it does not count yet, or its minReadySeconds are not over"))
		default:
			l.again(end.Sub(l.now))
			return HoldDrain, ReplacementFirst, fmt.Sprintf("Machine %s takes its place and is waited for, until %s at the "+
				"latest", other.Name, utc(end))
		}
	}
	return "", "", fmt.Sprintf(". Machine %s%s is gone", m.Replacement, made)
}

// replacementTakes is how long a replacement may take.
func (p *planner) replacementTakes() time.Duration {
	return cmp.Or(seconds(p.policy.DeadlineSeconds), replacementTakes)
}

// unreplaced says why no Machine is made in the place of one that was deleted; empty when one is. Whoever deleted it is
// written down nowhere: as long as there are more Machines than replicas it may have been a scale-down.
func (l *leaver) unreplaced(m Machine, end time.Time) string {
	pool := l.pool
	switch {
	case !m.serves():
		return "it does not serve"
	case pool.rolling() && !pool.stuck():
		return "its MachineDeployment is rolled out"
	case pool.suspended != "":
		return pool.suspended
	case l.Unhealthy != "":
		return "the control plane is not healthy: " + l.Unhealthy
	case l.Outdated != "":
		return "workers come after the control plane: " + l.Outdated
	case !l.now.Before(end):
		return "it was deleted at " + utc(m.Deleted)
	case pool.replaced(m):
		return ""
	case pool.surplus() > 0:
		return fmt.Sprintf("there are %d Machines for %d replicas", pool.Replicas+pool.surplus(), pool.Replicas)
	case cmp.Or(pool.Blocked, pool.Room.Unmade) != "":
		return cmp.Or(pool.Blocked, pool.Room.Unmade)
	case pool.Room.Replicas < pool.Replicas:
		return fmt.Sprintf("its MachineSet has %d of %d replicas", pool.Room.Replicas, pool.Replicas)
	case pool.Room.Hosts-pool.hostless() <= 0:
		return "no host is free"
	}
	return ""
}

// replaced reports whether a Machine is there that was made in the place of the given one.
func (r *rules) replaced(m Machine) bool {
	for _, other := range r.Machines {
		if other.Replaces == m.Name && !other.Deleting {
			return true
		}
	}
	return false
}

// surplus is how many Machines there are above replicas, but for those that were made in the place of one that is
// there.
func (r *rules) surplus() int {
	n := len(r.Machines) - r.Replicas
	for _, m := range r.Machines {
		if m.Replaces != "" {
			n--
		}
	}
	return n
}

// hostless are the Machines that will want a host before any other one does.
func (r *rules) hostless() int {
	n := 0
	for _, m := range r.Machines {
		if !m.Deleting && !m.Hosted {
			n++
		}
	}
	return n
}

// replaces says which Machine of the pool waits for the one that takes its place; empty when none does.
func (p *planner) replaces(pool *rules) (Reason, string) {
	for _, d := range p.result.Leaves {
		if d.Pool == pool.Name && d.Reason == ReplacementFirst {
			return ReplacementFirst, fmt.Sprintf("Machine %s: %s", d.Machine, d.Message)
		}
	}
	return "", ""
}
