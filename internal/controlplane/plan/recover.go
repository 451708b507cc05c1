// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/quorum"
)

// restore carries out a recovery that a person asked for. It goes before everything that waits for a quorum, and in
// this order, so that at no moment two clusters can take writes: every member that is given up is stopped for good or
// is known not to run; only then one becomes a cluster of its own; only then the Machines of the others go.
func restore(s facts) *controlplane.Step {
	r := s.Recovery
	if r == nil || !s.Initialized {
		return nil
	}
	var step *controlplane.Step
	switch {
	case recoveryOver(r):
		step = releaseHosts(r)
	case r.Withdrawn:
		step = s.withdrawn(*r)
	default:
		step = s.restoring(*r)
	}
	if step != nil {
		step.MayProceed = true
	}
	return step
}

// recoveryOver reports whether the recovery was carried out, or never will be.
func recoveryOver(r *controlplane.Recovery) bool {
	return r.State == controlplane.RecoveryComplete ||
		r.State == controlplane.RecoveryVoid
}

// releaseHosts takes from the hosts the parts of a recovery that is over, which its end did not come to: its record is
// written first, because without their parts it would look as if somebody else had brought the quorum back.
func releaseHosts(r *controlplane.Recovery) *controlplane.Step {
	for _, host := range r.Hosts {
		if !host.Ordered {
			continue
		}
		step := change(controlplane.EndRecovery, controlplane.Recover, controlplane.ReasonRecovered,
			"recovery %s is over: no host has a part in it any more", r.ID)
		if r.State == controlplane.RecoveryVoid {
			step.Kind, step.Reason = controlplane.VoidRecovery, controlplane.ReasonRecoveryVoid
		}
		return step
	}
	return nil
}

// withdrawn ends a recovery that was taken away after hosts were given parts in it. A part that has not begun never
// does: its host may be silent or in maintenance, and would stop its member when a quorum has long come back. What has
// begun is ended, and its host does nothing else, until a quorum is there: who puts the recovery back before goes on
// with it. Without parts the Machines of members that were stopped are replaced like any whose member is dead.
func (s facts) withdrawn(r controlplane.Recovery) *controlplane.Step {
	for _, machine := range s.Machines {
		if host := r.Hosts[machine.Name]; host.Ordered && !host.Began {
			return &controlplane.Step{Kind: controlplane.OrderRecovery, Operation: controlplane.Recover,
				RecheckAfter: controlplane.RecheckStep, Machine: machine.Name, Reason: controlplane.ReasonRecoveryVoid,
				Message: fmt.Sprintf("recovery %s was taken away, and the host of Machine %s has not begun its part: it never does",
					r.ID, machine.Name)}
		}
	}
	if !s.Etcd.Known || !s.Etcd.Agreed {
		return nil
	}
	for _, machine := range s.Machines {
		host := r.Hosts[machine.Name]
		// The quorum may be that of a survivor which its plan forced, and stops again.
		answers := !host.Silent || machine.Name == r.Machine && s.memberState(machine) == quorum.MemberHealthy
		if host.Ordered && !host.Succeeded && !host.Failed && answers {
			unheard := ""
			if host.Silent {
				unheard = ". Nobody hears of that while the host does not answer: condition Reachable of its QuoinHost says why"
			}
			return s.wait(controlplane.Recover, controlplane.ReasonRecovering, "recovery %s was taken away, and the host of "+
				"Machine %s has begun its part: nothing else is done until that has ended, in the time that its steps have%s",
				r.ID, machine.Name, unheard).WithMachine(machine.Name)
		}
	}
	if partDone(r.Hosts[r.Machine]) {
		return change(controlplane.EndRecovery, controlplane.Recover, controlplane.ReasonRecovered,
			"recovery %s was taken away when etcd on Machine %s was restored: no host has a part in it any more", r.ID,
			r.Machine)
	}
	return change(controlplane.VoidRecovery, controlplane.Recover, controlplane.ReasonRecoveryVoid,
		"recovery %s was taken away, and etcd has a quorum: no host has a part in it any more, and it is not carried out, "+
			"now or later", r.ID)
}

func (s facts) restoring(r controlplane.Recovery) *controlplane.Step {
	survivor := r.Hosts[r.Machine]
	if s.quorate(survivor) {
		// It would else begin by itself at the next loss, at nobody's word.
		return change(controlplane.VoidRecovery, controlplane.Recover, controlplane.ReasonRecoveryVoid,
			"etcd has a quorum, so recovery %s is not carried out, now or later; ask under another id if the quorum is lost",
			r.ID)
	}
	if r.State == controlplane.RecoveryAsked || r.State == controlplane.RecoveryFetching {
		if s.Etcd.Known && s.quorumLoss() == nil && !s.electing() {
			return nil
		}
		if why := s.refuseRecovery(r); why != "" {
			return s.refusal(controlplane.Recover, controlplane.ReasonRecoveryRefused, "recovery %s is not carried out: %s",
				r.ID, why)
		}
		if s.ElectionGrace > 0 {
			return s.wait(controlplane.Recover, controlplane.ReasonQuorumLost, "recovery %s has not begun, because no single "+
				"reading of etcd begins one: it may be electing a leader, or was not reached for a moment. That it has no quorum "+
				"is believed once it stays so: it is waited for, for %s", r.ID, s.ElectionGrace)
		}
		if step := s.fetching(r); step != nil {
			return step
		}
		return change(controlplane.BeginRecovery, controlplane.Recover, controlplane.ReasonRecovering,
			"recovery %s of etcd begins: Machine %s carries the cluster on%s, "+
				"given up are %s", r.ID, r.Machine, withData(r), orNobody(r.GiveUp)).WithMachine(r.Machine)
	}
	if r.Edited {
		return s.refusal(controlplane.Recover, controlplane.ReasonRecoveryRefused, "recovery %s has begun with another "+
			"Machine that survives, others that are given up, or another snapshot, by its name or its digest, than it names "+
			"now: put those back that the annotation controlplane.cluster.x-k8s.io/quoin-recovery names, or ask "+
			"under another id", r.ID)
	}
	if step := s.fence(r); step != nil {
		return step
	}
	switch {
	case survivor.Gone, survivor.Unbound:
		return s.refusal(controlplane.Recover, controlplane.ReasonRecoveryFailed, "recovery %s goes no further: the host of "+
			"Machine %s, which is to survive, is gone, or nobody can tell it anything; ask under another id", r.ID,
			r.Machine).WithMachine(r.Machine)
	case partFailed(survivor):
		return s.recoveryFailed(r, r.Machine, survivor)
	case !survivor.Ordered:
		return &controlplane.Step{Kind: controlplane.OrderRecovery, Operation: controlplane.Recover,
			RecheckAfter: controlplane.RecheckStep, Machine: r.Machine,
			Order: controlplane.OrderSurvive, Reason: controlplane.ReasonRecovering, Message: fmt.Sprintf(
				"the etcd member of Machine %s becomes a cluster of one%s: no other can come back. Its revision is raised, "+
					"so that clients which saw later ones list everything again", r.Machine, withData(r))}
	case !partDone(survivor):
		return s.recoveryWaits(r.Machine, survivor, "makes its etcd member a cluster of one")
	}
	return s.carryOn(r)
}

// fetching has the snapshot brought to the survivor's host before any member is stopped: it may be damaged, or nobody
// may have its key.
func (s facts) fetching(r controlplane.Recovery) *controlplane.Step {
	switch {
	case r.Snapshot == "" || r.Delivered && r.State == controlplane.RecoveryFetching:
		return nil
	case r.State == controlplane.RecoveryAsked:
		return change(controlplane.FetchSnapshot, controlplane.Recover, controlplane.ReasonRecoveryFetching,
			"recovery %s: snapshot %s is brought to the host of Machine %s "+
				"before any etcd member is stopped", r.ID, r.Snapshot, r.Machine).WithMachine(r.Machine)
	}
	return s.wait(controlplane.Recover, controlplane.ReasonRecoveryFetching,
		"snapshot %s is brought to the host of Machine %s before any etcd member is stopped: %s. What fails is tried again; "+
			"for another snapshot, ask under another id",
		r.Snapshot, r.Machine, r.Delivery).WithMachine(r.Machine)
}

// quorate reports whether a quorum is there which the recovery has not made.
func (s facts) quorate(survivor controlplane.RecoveryHost) bool {
	return s.StackedEtcd && s.Etcd.Known && s.Etcd.Agreed && (!survivor.Ordered || s.Etcd.Count().Voters > 1 &&
		!partDone(survivor))
}

// refuseRecovery says why a recovery cannot begin as it was asked for; empty when it can.
func (s facts) refuseRecovery(r controlplane.Recovery) string {
	if !s.StackedEtcd {
		return "etcd is external and has to be restored where it runs"
	}
	index := slices.IndexFunc(s.Machines, func(m controlplane.Machine) bool { return m.Name == r.Machine })
	switch {
	case s.Etcd.Contradicts:
		return s.Etcd.Problem + ". " + contradiction
	case r.Superseded:
		return "it came before another one, and what was done under an id is never done again: ask under another one"
	case slices.ContainsFunc(slices.Collect(maps.Values(r.Hosts)), func(h controlplane.RecoveryHost) bool {
		return h.Ordered
	}):
		// It began before another one did, and what a host did then may be no part of what is asked for now.
		return "hosts were given their parts under this id before: ask under another one"
	case index < 0:
		return fmt.Sprintf("Machine %s, which is to survive, is none of this control plane. Name another Machine: it has %s",
			r.Machine, orNobody(s.names("")))
	case s.Machines[index].Deleting:
		return fmt.Sprintf("Machine %s, which is to survive, is being deleted"+otherWay, r.Machine)
	case s.Machines[index].Node == "":
		return fmt.Sprintf("Machine %s, which is to survive, never became a node"+otherWay, r.Machine)
	case !s.Machines[index].Bootstrapped:
		why := s.Machines[index].Health.Final
		if why != "" {
			why = ": " + why
		}
		return fmt.Sprintf("the host of Machine %s, which is to survive, takes no orders, because its bootstrap data did "+
			"not run to their end%s"+otherWay, r.Machine, why)
	case r.Hosts[r.Machine].Gone:
		return fmt.Sprintf("the host of Machine %s, which is to survive, is gone. Name another Machine", r.Machine)
	case r.Hosts[r.Machine].Unbound:
		return fmt.Sprintf("the host of Machine %s, which is to survive, "+unbound+otherWay, r.Machine)
	}
	others, unclaimed := s.names(r.Machine), s.unclaimedIDs(r)
	lost, what := slices.Sorted(slices.Values(slices.Concat(others, unclaimed))), "Machines whose members would be lost"
	if len(unclaimed) > 0 {
		what = "members that would be lost"
	}
	if given := slices.Sorted(slices.Values(r.GiveUp)); !slices.Equal(given, lost) {
		why := fmt.Sprintf("giveUp names %s, but the %s are %s: name exactly those", orNobody(given), what, orNobody(lost))
		if len(unclaimed) > 0 {
			why += fmt.Sprintf(". No Machine of this control plane runs the members %s, so nobody here can stop them, and the "+
				"objects here may be older than they: %s", strings.Join(unclaimed, ", "), findUnclaimed)
		}
		return why
	}
	return ""
}

// otherWay is what a person does when no recovery can begin on a host whose data may be the only ones.
const otherWay = ". Name another Machine, or, while that host is not reset, make a cluster of one there by hand " +
	"(docs/disaster-recovery.md, \"Without a management cluster\")"

// findUnclaimed is what a person does about members that no Machine runs, before anything else survives beside them.
const findUnclaimed = "if another management cluster has their Machines, pause this Cluster. Else find their hosts, " +
	"by the names and ids that status.etcd shows, switch them off, keep them off until they are reset, and only then " +
	"name their ids in giveUp"

// unclaimedIDs are the ids of all members that no known Machine runs, sorted. No order stops them, and one that does
// not vote here may vote where they agree.
func (s facts) unclaimedIDs(r controlplane.Recovery) []string {
	if !s.Etcd.Known {
		return slices.Sorted(slices.Values(r.Unclaimed))
	}
	var ids []string
	for _, member := range s.orphanedMembers() {
		ids = append(ids, fmt.Sprintf("%x", member.ID))
	}
	slices.Sort(ids)
	return ids
}

// unbound says, of a host, why nobody can tell it anything.
const unbound = "takes no orders: its QuoinHost or its QuoinMachine is not there, or is not the Machine's any more"

// names of all Machines but one, sorted.
func (s facts) names(except string) []string {
	var names []string
	for _, machine := range s.Machines {
		if machine.Name != except {
			names = append(names, machine.Name)
		}
	}
	slices.Sort(names)
	return names
}

func orNobody(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

// fence makes sure that no member that is given up can ever come back: two of them would be a majority of the old
// cluster. Hosts that answer are ordered to stop theirs, all at once; of those that do not, somebody must know that
// they do not run: no time that passes tells.
func (s facts) fence(r controlplane.Recovery) *controlplane.Step {
	var first *controlplane.Step
	for _, machine := range s.Machines {
		if host := r.Hosts[machine.Name]; machine.Name != r.Machine && partFailed(host) {
			return s.recoveryFailed(r, machine.Name, host)
		}
	}
	unnamed := slices.DeleteFunc(s.unclaimedIDs(r), func(id string) bool { return slices.Contains(r.GiveUp, id) })
	if len(unnamed) > 0 && !r.Hosts[r.Machine].Ordered {
		return s.refusal(controlplane.Recover, controlplane.ReasonRecoveryRefused, "recovery %s goes no further: ask under "+
			"another id, and name there also %s, which no Machine of this control plane runs: %s", r.ID,
			strings.Join(unnamed, ", "), findUnclaimed)
	}
	for _, machine := range s.Machines {
		host := r.Hosts[machine.Name]
		if machine.Name == r.Machine || host.Gone || partDone(host) || s.neverStarted(machine) {
			continue
		}
		var step *controlplane.Step
		switch {
		case host.Unbound:
			step = s.wait(controlplane.Recover, controlplane.ReasonRecoveryFencing,
				"the host of Machine %s, which is given up, "+unbound+". Its etcd member must never come back: switch it off, "+
					"keep it off until it is reset, and say so: kubectl annotate %s quoin.cluster.x-k8s.io/abandon=%s",
				machine.Name, host.Name, host.ProviderID).WithMachine(machine.Name)
		case host.Silent:
			step = s.wait(controlplane.Recover, controlplane.ReasonRecoveryFencing,
				"the host of Machine %s, which is given up, does not answer, and its etcd member must never come back. "+
					"Switch it off, keep it off until it is reset, and say so: kubectl annotate %s "+
					"quoin.cluster.x-k8s.io/abandon=%s",
				machine.Name, host.Name, host.ProviderID).WithMachine(machine.Name)
		case !machine.Bootstrapped && machine.Health.Final != "":
			step = s.wait(controlplane.Recover, controlplane.ReasonRecoveryFencing,
				"the bootstrap data of Machine %s, which is given up, failed: its host takes no orders, and may run an etcd "+
					"member, which must never come back. Switch it off, keep it off until it is reset, and say so: "+
					"kubectl annotate %s quoin.cluster.x-k8s.io/abandon=%s",
				machine.Name, host.Name, host.ProviderID).WithMachine(machine.Name)
		case !machine.Bootstrapped:
			step = s.wait(controlplane.Recover, controlplane.ReasonRecoveryFencing,
				"the bootstrap data of Machine %s, which is given up, still runs, until the time of its step is over at the "+
					"latest. If its host does not run any more, say so: kubectl annotate %s "+
					"quoin.cluster.x-k8s.io/abandon=%s", machine.Name, host.Name, host.ProviderID).WithMachine(machine.Name)
		case !host.Ordered:
			return &controlplane.Step{Kind: controlplane.OrderRecovery, Operation: controlplane.Recover,
				RecheckAfter: controlplane.RecheckStep, Machine: machine.Name,
				Order: controlplane.OrderStop, Reason: controlplane.ReasonRecoveryFencing, Message: fmt.Sprintf(
					"the etcd member of Machine %s, which is given up, is stopped for good", machine.Name)}
		default:
			step = s.recoveryWaits(machine.Name, host, "stops its etcd member")
		}
		if first == nil {
			first = step
		}
	}
	return first
}

// neverStarted reports whether the bootstrap data of the Machine ended before there was a member, or never ran. Whoever
// cannot read etcd does not know that: what failed may have failed after kubeadm join.
func (s facts) neverStarted(machine controlplane.Machine) bool {
	return machine.Health.Final != "" && !machine.Bootstrapped && !machine.Joining && s.neverJoined(machine)
}

func partDone(h controlplane.RecoveryHost) bool { return h.Ordered && h.Succeeded }

func partFailed(h controlplane.RecoveryHost) bool { return h.Ordered && h.Failed }

// withData says what the survivor begins with, unless it is what it has.
func withData(r controlplane.Recovery) string {
	if r.Snapshot == "" {
		return ""
	}
	return " with the data of snapshot " + r.Snapshot
}

// recoveryWaits has no bound. Another survivor would have other writes than this one: who wants one says so.
func (s facts) recoveryWaits(machine string, host controlplane.RecoveryHost, what string) *controlplane.Step {
	if !host.Began {
		what = fmt.Sprintf("has yet to begin its part (kubectl describe %s says what it waits for; if that never ends, ask "+
			"under another id): it %s", host.Name, what)
	}
	text := fmt.Sprintf("the host of Machine %s %s, in the time that its steps have", machine, what)
	if host.Message != "" {
		text += ": " + host.Message
	}
	if host.Silent {
		text += ". It does not answer: bring it back; or, if it is gone for good, ask under another id"
	}
	return s.wait(controlplane.Recover, controlplane.ReasonRecovering, "%s", text).WithMachine(machine)
}

// recoveryFailed stops: a person looks. Nothing is lost, because a host refuses before it changes anything, and keeps a
// copy. Where the host names another way out, its etcd answers, or may, and beside that no other id is admitted.
func (s facts) recoveryFailed(r controlplane.Recovery, machine string,
	host controlplane.RecoveryHost) *controlplane.Step {
	wayOut := "; look at the host, and ask again under another id"
	if strings.Contains(host.Message, "take spec.recovery away") {
		wayOut = ""
	}
	return s.refusal(controlplane.Recover, controlplane.ReasonRecoveryFailed,
		"recovery %s failed on the host of Machine %s: %s. Nothing else is done under this id%s", r.ID, machine,
		host.Message, wayOut).WithMachine(machine)
}

// carryOn gives up the Machines of the lost members once the survivor is a cluster that works; what follows is
// ordinary.
func (s facts) carryOn(r controlplane.Recovery) *controlplane.Step {
	answers := s.Etcd.Known && s.Etcd.Agreed && s.Etcd.Count().Voters == 1
	switch state := s.memberState(controlplane.Machine{Name: r.Machine}); {
	case answers && state == quorum.MemberFull:
		// Another id would change nothing: the alarm is among the data.
		return s.wait(controlplane.Recover, controlplane.ReasonRecovering,
			"etcd on Machine %s was restored and answers as a cluster of one, but it takes no writes, so nothing could join "+
				"it: %s", r.Machine, quorum.MakeRoom).WithMachine(r.Machine)
	case !answers || state != quorum.MemberHealthy:
		step := s.wait(controlplane.Recover, controlplane.ReasonRecovering,
			"etcd on Machine %s was restored; waiting until it answers as a cluster of one. If it "+
				"does not, look at etcd on its host, and ask under another id if that cannot be mended", r.Machine).
			WithMachine(r.Machine)
		if s.Etcd.Contradicts {
			step.Message += ": " + s.Etcd.Problem
		}
		return step
	}
	for _, machine := range s.Machines {
		if machine.Name != r.Machine && slices.Contains(r.GiveUp, machine.Name) && !machine.Deleting &&
			!machine.Health.ByHand {
			return change(controlplane.MarkForRemediation, controlplane.Recover, controlplane.ReasonRecovering,
				"Machine %s was given up in recovery %s: it is to be replaced", machine.Name, r.ID).WithMachine(machine.Name)
		}
	}
	if len(s.PreCreated) > 0 {
		return drop(s.PreCreated[0], controlplane.Recover, "its bootstrap token may not be among the data that were restored")
	}
	return change(controlplane.EndRecovery, controlplane.Recover, controlplane.ReasonRecovered,
		"recovery %s is complete: etcd has the one member of Machine %s, and the Machines "+
			"that were given up are replaced now", r.ID, r.Machine).WithMachine(r.Machine)
}
