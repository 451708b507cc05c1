// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package plan decides what a control plane does next. It is pure: a State of everything that was observed goes in, an
// Assessment with one Step comes out. Nothing here reads an API, a clock or a host.
package plan

import (
	"cmp"
	"slices"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
)

// Assess says what a state means. It is the one question that anybody asks here, and asks nobody itself.
func Assess(state controlplane.State) controlplane.Assessment {
	s := facts{state}
	assessment := controlplane.Assessment{Step: s.decide(), Unhealthy: s.unhealthy(), QuorumLoss: s.quorumLoss()}
	for _, member := range s.unclaimed() {
		assessment.Unclaimed = append(assessment.Unclaimed, controlplane.UnclaimedMember{Member: member,
			Message: s.describeUnclaimed(member)})
	}
	return assessment
}

// rule is one thing to see to: the step that does it, or that waits for it; nil when there is nothing to do.
type rule func(facts) *controlplane.Step

// first asks rules in order and follows the first that has something to say.
func (s facts) first(rules ...rule) *controlplane.Step {
	for _, rule := range rules {
		if step := rule(s); step != nil {
			return step
		}
	}
	return nil
}

// decide says what happens next. Its rules are asked in order, so that at most one thing changes at a time and a later
// rule may rely on what an earlier one made sure of:
//
//   - nothing at all is changed by the management cluster that a host says is not its own any more;
//   - a Machine that leaves is finished with before anything else starts, so two are never deleted at once; only while
//     the host of one that left is released the next one may be made, and what casts no vote may go;
//   - nothing is replaced before every other Machine works and every etcd member is a healthy voter, so the membership
//     never shrinks by more than the one whose replacement votes already;
//   - there are never more Machines than wanted plus one, without those that have left and the one that is pre-created.
func (s facts) decide() controlplane.Step {
	step := s.firstStep()
	if step.Kind == controlplane.DeleteMachine {
		// Cluster API reconciles a Machine at most once a second, and its first reconcile can be the one that drains: where
		// the approval would follow anyhow, it is given with the deletion.
		then := s.deleted(step.Machine).firstStep()
		if then.Kind == controlplane.ReleaseDrainHook && then.Machine == step.Machine {
			step.Then = &then
		}
	}
	if step.Joins() || step.Kind == controlplane.CreateFirstMachine {
		if step.FailureDomain = s.nextDomain(); step.FailureDomain != "" {
			step.Message += "; it belongs in failure domain " + step.FailureDomain
		}
	}
	return step
}

// firstStep is the step without what is approved together with it.
func (s facts) firstStep() controlplane.Step {
	if step := refuseStale(s); step != nil {
		return *step
	}
	step := s.awaitElection(s.first(tearDown, restore, leave, facts.steadyState), "")
	switch {
	case step == nil:
		return controlplane.Step{Kind: controlplane.Done, RecheckAfter: controlplane.RecheckIdle}
	case step.Waiting() && !s.Deleting && !s.ClusterDeleting:
		return *cmp.Or(dropUnfit(s), dropUnjoinable(s), preCreateWhileJoining(s, step), step)
	}
	return *step
}

// steadyState is the first step of the rules for when no Machine is leaving; nil when none of them has something to
// say. What is refused of the spec keeps nothing from going that casts no vote.
func (s facts) steadyState() *controlplane.Step {
	if refusal := beforeAnything(s); refusal != nil {
		return cmp.Or(dropIll(s), refusal)
	}
	return s.first(retryInit, initialize, reportQuorumLoss, requireReachability, remediate,
		dropOrphanedMembers, dropNodes, dropIdle, waitUntilStable, replace, scale, followVersion, dropSurplus)
}

// dropIll takes away what is ill and casts no vote, whatever else is wrong; nil when there is nothing of that kind.
func dropIll(s facts) *controlplane.Step {
	if !s.Initialized || s.first(reportQuorumLoss, requireReachability) != nil {
		return nil
	}
	if step := s.remediateBy(s.castsNoVote); step != nil && s.castsNoVote(step) {
		return step
	}
	if step := dropOrphanedMembers(s); step != nil && s.castsNoVote(step) {
		return step
	}
	return nil
}

// castsNoVote reports whether the step takes away what leaves no gap in etcd: an orphaned member, or a Machine without
// a voter that lives.
func (s facts) castsNoVote(step *controlplane.Step) bool {
	if step.Kind == controlplane.DeleteMachine {
		return !slices.ContainsFunc(s.Machines, func(machine controlplane.Machine) bool {
			return machine.Name == step.Machine && s.mayVote(machine)
		})
	}
	return step.Kind == controlplane.RemoveEtcdMember
}

const deletingSays = "condition Deleting of each Machine says what it waits for"

// tearDown deletes the control plane: after the workers, all Machines at once, without regard for etcd.
func tearDown(s facts) *controlplane.Step {
	if !s.Deleting {
		if !s.ClusterDeleting {
			return nil
		}
		for _, machine := range s.Machines {
			if machine.Deleting && machine.Hooked() {
				return s.depart(machine, controlplane.ReleaseTerminateHook, controlplane.ReasonClusterDeleting,
					"the Cluster is being deleted")
			}
		}
		return s.wait(controlplane.Delete, controlplane.ReasonClusterDeleting,
			"the Cluster is being deleted: Cluster API deletes the control plane once nothing else is left of it, and "+
				"condition Deleting of the Cluster says what that is")
	}
	if s.Workers > 0 {
		return s.wait(controlplane.Delete, controlplane.ReasonWorkersFirst, "%d worker Machines go first; "+deletingSays,
			s.Workers)
	}
	if len(s.Machines)+len(s.PreCreated) == 0 {
		return &controlplane.Step{Kind: controlplane.RemoveFinalizer, Operation: controlplane.Delete, MayProceed: true,
			Reason:  controlplane.ReasonControlPlaneGoing,
			Message: "all Machines are gone"}
	}
	if len(s.PreCreated) > 0 || slices.ContainsFunc(s.Machines, func(machine controlplane.Machine) bool {
		return !machine.Deleting || machine.Hooked()
	}) {
		return s.depart(controlplane.Machine{}, controlplane.DeleteAll, controlplane.ReasonControlPlaneGoing,
			"deleting all control-plane Machines")
	}
	return s.wait(controlplane.Delete, controlplane.ReasonMachinesGoing, "%d control-plane Machines are being deleted; "+
		deletingSays, len(s.Machines))
}

// initialize makes the first Machine and waits for it.
func initialize(s facts) *controlplane.Step {
	if s.present() == 0 {
		switch {
		case s.Replicas == 0:
			return &controlplane.Step{Kind: controlplane.Done, RecheckAfter: controlplane.RecheckIdle}
		case s.Initialized:
			return s.refusal(s.refill(), controlplane.ReasonMachinesLost,
				"all Machines of the control plane are gone, and with them the "+
					"cluster's data: a new kubeadm init would hide that. Delete the Cluster and make it again, from a backup of etcd")
		case !s.Certificates:
			return s.wait(controlplane.Initialize, controlplane.ReasonCertificates, "waiting for the cluster's certificates; "+
				certificatesSay)
		}
		if step := leaveNobodyBehind(s, controlplane.Initialize, "the control plane needs its first Machine"); step != nil {
			return step
		}
		return change(controlplane.CreateFirstMachine, controlplane.Initialize, controlplane.ReasonScaleUp,
			"making the first control-plane Machine")
	}
	if s.Initialized {
		return nil
	}
	for _, machine := range s.active() {
		// Without a host it holds nothing: an edit that corrects a mistake takes effect at once. With one, kubeadm init may
		// have made a cluster, and after a move of the objects that is not known until its API has been read.
		if !machine.UpToDate && !machine.HostClaimed {
			return s.changeOf(machine, controlplane.DeleteMachine, controlplane.ReasonReplaced,
				"Machine %s is outdated and has no host yet", machine.Name)
		}
		// Another cluster was faster: its failure domain cannot be changed, and hosts are free in others.
		if machine.NoHost && !machine.HostClaimed && s.Spare.Free > 0 {
			return s.dropHostless(controlplane.Initialize, machine)
		}
	}
	machine := s.Machines[slices.IndexFunc(s.Machines, func(machine controlplane.Machine) bool { return !machine.Gone() })]
	message := "waiting for kubeadm init on Machine " + machine.Name
	if machine.Problem != "" {
		message += ": " + machine.Problem
	}
	if !machine.UpToDate {
		message += ". It was made from an earlier spec: delete it to start over with the present one"
	} else {
		message += ". If it will not come, " + haveReplaced
	}
	return s.waitFor(machine, controlplane.ReasonInitializing, "%s", message)
}
