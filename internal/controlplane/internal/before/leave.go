// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package before

import (
	"fmt"
	"sort"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/quorum"
)

// leave sees Machines out that are being deleted, by us or by anybody: first its departure is judged and leadership moves
// away, then its drain begins, then its API server goes, then its etcd member, then the host. While one leaves, nothing else starts, except the
// replacement without which it cannot leave.
func leave(s Snapshot) *Step {
	leavers := s.leavers()
	for _, machine := range leavers {
		if machine.held() && nothingToGuard(s, machine) {
			return &Step{Kind: ReleaseHook, Machine: machine.Name, Reason: ReasonNothingToGuard,
				Message: fmt.Sprintf("Machine %s holds no etcd member: its host can go", machine.Name)}
		}
	}
	// One host after another: the next member goes when the one before is gone for good.
	for _, machine := range leavers {
		if !machine.held() {
			if step := follow(s, leavers); step != nil {
				return step
			}
			return wait(ReasonTerminating, "Machine %s is being deleted: its host is released", machine.Name).about(machine)
		}
	}
	// The first that can go goes, so that one that is kept does not keep the others.
	var kept []*Step
	for _, machine := range leavers {
		step := s.lead(machine)
		if !step.Waiting() {
			return step
		}
		kept = append(kept, step)
	}
	if len(kept) == 0 {
		return nil
	}
	if step := unblock(s, kept); step != nil {
		return step
	}
	if len(leavers) == 1 {
		if step := ahead(s, leavers[0], kept[0]); step != nil {
			return step
		}
	}
	return kept[0]
}

// follow makes the next Machine while the hosts of those that left are released: of the control plane, they are no part any
// more. Nothing else is begun beside that. A reset takes minutes, and what Cluster API does for a Machine before it can have a
// host need not come after it.
func follow(s Snapshot, leavers []Machine) *Step {
	for _, machine := range leavers {
		if machine.held() || machine.Joining || s.memberOf(machine) != nil {
			return nil
		}
	}
	step := s.onceLeft()
	if step == nil {
		return nil
	}
	switch step.Kind {
	case CreateJoin, AdmitMachine, UpdateKubeadmConfig, PrepullAddons, RequestBackup:
		return step
	}
	return nil
}

func (s Snapshot) lead(machine Machine) *Step {
	if machine.DrainHook {
		return agree(s, machine)
	}
	return seeOut(s, machine)
}

// leavers are the Machines that are being deleted and not gone yet. What was begun is ended first, and a member that does not
// work anyway goes before one that does.
func (s Snapshot) leavers() []Machine {
	var leavers []Machine
	for _, machine := range s.Machines {
		if machine.Deleting && !machine.gone() {
			leavers = append(leavers, machine)
		}
	}
	rank := func(machine Machine) int {
		member := s.memberOf(machine)
		switch {
		case member == nil:
			return 0
		case !machine.DrainHook:
			return 1
		case !member.Healthy:
			return 2
		}
		return 3
	}
	sort.SliceStable(leavers, func(i, j int) bool {
		if a, b := rank(leavers[i]), rank(leavers[j]); a != b {
			return a < b
		}
		if leavers[i].DeletedAt != leavers[j].DeletedAt {
			return leavers[i].DeletedAt < leavers[j].DeletedAt
		}
		return leavers[i].Name < leavers[j].Name
	})
	return leavers
}

// present counts the Machines of which more is left than an object.
func (s Snapshot) present() int {
	present := 0
	for _, machine := range s.Machines {
		if !machine.gone() {
			present++
		}
	}
	return present
}

// held tells that one of our holds is on the Machine.
func (m Machine) held() bool { return m.Hook || m.DrainHook }

// nothingToGuard tells that the Machine cannot have an etcd member.
func nothingToGuard(s Snapshot, machine Machine) bool {
	switch {
	case !machine.HostClaimed:
		return true
	case !s.StackedEtcd:
		return machine.AtTermination && len(machine.OtherHooks) == 0 && !machine.Undrained && deleteNode(s, machine) == nil
	case !s.Initialized:
		// A cluster whose init ran to its end has data, though nobody has seen its API yet.
		return !machine.Bootstrapped && machine.Node == "" && machine.AtTermination && len(machine.OtherHooks) == 0
	}
	return false
}

// agree opens the way out of a Machine when etcd can do without its member: while the kubelet there drains, and until the
// host is released, that member may fail at any moment.
func agree(s Snapshot, machine Machine) *Step {
	if !s.StackedEtcd {
		return openDrain(machine, ReasonNothingToGuard, "Machine %s has no etcd member: its drain can begin", machine.Name)
	}
	if !s.Etcd.Known {
		return etcdUnknown(s, machine)
	}
	member := s.memberOf(machine)
	if member == nil {
		return openDrain(machine, ReasonNothingToGuard, "Machine %s has no etcd member: its drain can begin", machine.Name)
	}
	if why := s.keptByUnclaimed(machine); why != "" {
		return wait(ReasonMemberWithoutMachine, "Machine %s is being deleted but kept: %s", machine.Name, why).about(machine)
	}
	// A member that is dead leaves no gap.
	if other := s.onItsWay(machine); other != "" && !s.dead(member) {
		return wait(ReasonOneAtATime, "Machine %s is being deleted but kept until Machine %s, which leaves now, is gone",
			machine.Name, other).about(machine)
	}
	verdict := s.mayDepart(machine, s.terms(machine))
	if !verdict.Allowed {
		return replaceFirst(s, machine, verdict)
	}
	if step := handOver(s, machine, ReasonLeaving); step != nil {
		return step
	}
	if verdict.Reason != "" {
		return openDrain(machine, ReasonToleranceLowered, "Machine %s is being deleted: its drain can begin, although %s",
			machine.Name, verdict.Message)
	}
	return openDrain(machine, ReasonLeaving, "Machine %s is being deleted: etcd can do without its member, so its drain can begin", machine.Name)
}

func openDrain(machine Machine, reason, format string, args ...any) *Step {
	return &Step{Kind: OpenDrain, Machine: machine.Name, Reason: reason, Message: fmt.Sprintf(format, args...)}
}

func etcdUnknown(s Snapshot, machine Machine) *Step {
	step := wait(ReasonConnectionDown, "Machine %s keeps its host until its etcd member is removed, but etcd cannot be read: %s",
		machine.Name, s.Etcd.Problem).about(machine)
	if !s.Etcd.Contradicts {
		step.Message += ". If the cluster is lost, delete the Cluster; or remove our hooks from the Machine, and the one in " +
			"spec.lifecycleHooks from its QuoinMachine"
	}
	return step
}

// onItsWay names another Machine whose departure was agreed to and is not over; empty when there is none.
func (s Snapshot) onItsWay(except Machine) string {
	for _, machine := range s.Machines {
		if machine.Deleting && !machine.DrainHook && machine.Name != except.Name && s.memberOf(machine) != nil {
			return machine.Name
		}
	}
	return ""
}

// handOver moves leadership away from the Machine's member while all members still work. Only the leader itself can hand
// over: one that does not answer loses its lead by the removal.
func handOver(s Snapshot, machine Machine, reason string) *Step {
	member := s.memberOf(machine)
	if member == nil || !member.Leader || !member.Healthy {
		return nil
	}
	next := s.successor(*member)
	if next == nil {
		return nil
	}
	return &Step{Kind: MoveLeader, Machine: machine.Name, Member: member.ID, To: next.ID, Reason: reason,
		Message: fmt.Sprintf("moving etcd leadership from Machine %s to %s", machine.Name, next.Machine)}
}

// seeOut leads a Machine whose departure was agreed to from its drain to the release of its host.
func seeOut(s Snapshot, machine Machine) *Step {
	if s.StackedEtcd && !s.Etcd.Known {
		return etcdUnknown(s, machine)
	}
	if step := handOver(s, machine, ReasonLeaving); step != nil {
		return step
	}
	if !machine.AtTermination {
		return wait(ReasonDraining, "Machine %s is being deleted: waiting until it is drained", machine.Name).about(machine)
	}
	if step := evict(machine); step != nil {
		return step
	}
	if len(machine.OtherHooks) > 0 {
		return wait(ReasonOtherHooks, "Machine %s is being deleted: waiting for the hooks %s", machine.Name, list(machine.OtherHooks)).about(machine)
	}
	member := s.memberOf(machine)
	if member == nil && machine.Node == "" && machine.Joining {
		// The join may add its member after this look, and nobody would remove it.
		return wait(ReasonJoinRuns, "Machine %s is being deleted: its host is kept until the bootstrap that runs there has ended, "+
			"because it may still add an etcd member", machine.Name).about(machine)
	}
	if member == nil {
		// A member whose Machine is not known may be the one of this Machine, which never got a Node.
		if step := dropOrphanedMembers(s); step != nil && machine.Node == "" {
			return step
		}
		if step := deleteNode(s, machine); step != nil {
			return step
		}
		return &Step{Kind: ReleaseHook, Machine: machine.Name, Reason: ReasonLeaving,
			Message: fmt.Sprintf("Machine %s has no etcd member any more: its host can go", machine.Name)}
	}
	verdict := s.mayRemove(member.ID, s.terms(machine))
	if !verdict.Allowed {
		// It may have been let go while its member looked dead or no host was free. Without a replacement to wait for, what was
		// agreed to is done as long as a quorum is left.
		step := replaceFirst(s, machine, verdict)
		if !step.Waiting() || s.replacementComes() {
			return step
		}
		verdict = s.mayRemove(member.ID, quorum.Terms{Lowered: true, DeadMemberTimeout: s.Patience})
	}
	if !verdict.Allowed {
		return replaceFirst(s, machine, verdict)
	}
	if step := stopAPIServer(s, machine, member); step != nil {
		return step
	}
	return removeDrained(machine, member)
}

// replaceFirst makes a replacement for a Machine that somebody deleted although etcd needs it.
func replaceFirst(s Snapshot, leaver Machine, verdict quorum.Verdict) *Step {
	held := fmt.Sprintf("Machine %s is being deleted but kept: %s", leaver.Name, verdict.Message)
	if step := refuse(s); step != nil {
		return step
	}
	if member := s.memberOf(leaver); s.wavering(member) {
		return wait(ReasonQuorum, "%s. Its etcd member was healthy less than %s ago and may be back: %s", held, s.Patience, member.Problem).about(leaver)
	}
	if !s.Initialized || !s.Reachable {
		return wait(ReasonQuorum, "%s", held).about(leaver)
	}
	if step := replant(s); step != nil {
		return step
	}
	for _, machine := range s.active() {
		if problem := s.outage(machine); problem != "" {
			return wait(ReasonQuorum, "%s; waiting for Machine %s: %s", held, machine.Name, s.explained(machine, problem)).about(leaver)
		}
	}
	if s.present() > s.Replicas || len(s.active()) >= s.Replicas {
		return wait(ReasonQuorum, "%s. %s", held, verdict.WayOut).about(leaver)
	}
	for _, member := range s.Etcd.Members {
		if member.Learner || !member.Healthy {
			return wait(ReasonQuorum, "%s. %s", held, verdict.WayOut).about(leaver)
		}
	}
	if s.Spare.Free == 0 && s.Spare.Coming > 0 {
		return wait(ReasonNoSpareHost, "%s; %s", held, s.coming()).about(leaver)
	}
	if s.Spare.Free == 0 {
		return wait(ReasonNoSpareHost, "%s; %s", held, s.missing(leaver)).about(leaver)
	}
	step := join(s, ReasonReplacementFirst, held+"; making a replacement")
	if step.Waiting() && step.Machine == "" {
		step.Machine = leaver.Name
	}
	return step
}
