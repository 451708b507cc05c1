// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"cmp"
	"slices"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew"
)

// Decide says what happens next. Its rules are asked in order and the first that has something to say is followed, so
// that at most one thing changes at a time and a later rule may rely on what an earlier one made sure of:
//
//   - nothing at all is changed by the management cluster that a host says is not its own any more;
//   - a Machine that leaves is finished with before anything else starts, so two are never deleted at once; only the
//     next one
//     may be made while the host of one that left is released;
//   - nothing is replaced before every other Machine works and every etcd member is a healthy voter, so the membership
//     never shrinks by more than the one whose replacement votes already;
//   - there are never more Machines than wanted plus one, without those that have left and the one that is made ahead.
func Decide(s Snapshot) Step {
	step := s.next()
	if step.Kind == DeleteMachine {
		// Cluster API looks at a Machine at most once a second, and its first look can be the one that drains: where the
		// agreement would follow anyhow, it is given with the deletion.
		if then := s.deleted(step.Machine).next(); then.Kind == OpenDrain && then.Machine == step.Machine {
			step.Then = &then
		}
	}
	return step
}

// next is the step without what is agreed to together with it.
func (s Snapshot) next() Step {
	if step := refuseStale(s); step != nil {
		return *step
	}
	for _, rule := range []func(Snapshot) *Step{tearDown, restore, leave, Snapshot.onceLeft} {
		if step := rule(s); step != nil {
			if step.Waiting() && !s.Deleting && !s.ClusterDeleting {
				step = cmp.Or(dropUnfit(s), beside(s, step), step)
			}
			return *step
		}
	}
	return Step{Kind: Done, RecheckAfter: RecheckIdle}
}

// onceLeft is the first step of the rules for when no Machine is leaving; nil when none of them has something to say.
func (s Snapshot) onceLeft() *Step {
	for _, rule := range []func(Snapshot) *Step{
		refuse, retryInit, begin, sayLoss, reach, remediate, dropOrphanedMembers, dropNodes, reschedule, settle, replace,
		scale, followVersion, dropSurplus,
	} {
		if step := rule(s); step != nil {
			return step
		}
	}
	return nil
}

// tearDown deletes the control plane: after the workers, all Machines at once, without regard for etcd.
func tearDown(s Snapshot) *Step {
	if !s.Deleting {
		if !s.ClusterDeleting {
			return nil
		}
		for _, machine := range s.Machines {
			if machine.Deleting && machine.held() {
				return s.depart(machine, ReleaseHook, ReasonClusterDeleting, "the Cluster is being deleted")
			}
		}
		return s.wait(Delete, ReasonClusterDeleting, "the Cluster is being deleted")
	}
	if s.Workers > 0 {
		return s.wait(Delete, ReasonWorkersFirst, "%d worker Machines go first", s.Workers)
	}
	if len(s.Machines)+len(s.Prepared) == 0 {
		return &Step{Kind: RemoveFinalizer, Operation: Delete, MayProceed: true, Reason: ReasonControlPlaneGoing,
			Message: "all Machines are gone"}
	}
	if len(s.Prepared) > 0 || slices.ContainsFunc(s.Machines, func(machine Machine) bool {
		return !machine.Deleting || machine.held()
	}) {
		return s.depart(Machine{}, DeleteAll, ReasonControlPlaneGoing, "deleting all control-plane Machines")
	}
	return s.wait(Delete, ReasonMachinesGoing, "%d control-plane Machines are being deleted", len(s.Machines))
}

// refuse stops what must never be done, whatever the state. Machines that never joined do not count for the version:
// a version that was mistyped can be taken back.
func refuse(s Snapshot) *Step {
	for _, machine := range s.Machines {
		if !s.Initialized || !machine.HostClaimed || s.Etcd.Known && s.neverJoined(machine) {
			continue
		}
		if err := skew.ControlPlaneStep(machine.Version, s.Version); err != nil {
			return s.refusal(s.during(Rollout), ReasonVersionSkew, "%s", err)
		}
	}
	if _, err := skew.Parse(s.Version); err != nil {
		return s.refusal(s.during(Rollout), ReasonVersionSkew, "%s", err)
	}
	if s.Replicas < 1 && len(s.Machines) > 0 {
		return s.refusal(s.during(s.refill()), ReasonReplicas,
			"spec.replicas is 0, which would lose the cluster's data: set it to 1 or more, or delete the Cluster")
	}
	if s.StackedEtcd && s.Replicas > 0 && s.Replicas%2 == 0 {
		return s.refusal(s.during(s.refill()), ReasonReplicas,
			"spec.replicas is %d, but etcd on the control plane needs an odd number of members: set %d or %d",
			s.Replicas, s.Replicas-1, s.Replicas+1)
	}
	return nil
}

// begin makes the first Machine and waits for it.
func begin(s Snapshot) *Step {
	if len(s.Machines) == 0 {
		switch {
		case s.Replicas == 0:
			return &Step{Kind: Done, RecheckAfter: RecheckIdle}
		case s.Initialized:
			return s.refusal(s.refill(), ReasonMachinesLost, "all Machines of the control plane are gone, and with them the "+
				"cluster's data: a new kubeadm init would hide that. Delete the Cluster and make it again, from a backup of etcd")
		case !s.Certificates:
			return s.wait(Initialize, ReasonCertificates, "waiting for the cluster's certificates")
		}
		if step := leaveNobodyBehind(s, Initialize, "the control plane needs its first Machine"); step != nil {
			return step
		}
		return change(CreateInit, Initialize, ReasonScaleUp, "making the first control-plane Machine")
	}
	if s.Initialized {
		return nil
	}
	for _, machine := range s.active() {
		// Without a host it holds nothing: an edit that corrects a mistake takes effect at once. With one, kubeadm init
		// may have made a cluster, and after a move of the objects that is not known until its API has been read.
		if !machine.UpToDate && !machine.HostClaimed {
			return s.changeOf(machine, DeleteMachine, ReasonReplaced, "Machine %s is outdated and has no host yet", machine.Name)
		}
		// Another cluster was faster: its failure domain cannot be changed, and hosts are free in others.
		if machine.NoHost && !machine.HostClaimed && s.Spare.Free > 0 {
			return dropHostless(Initialize, machine)
		}
	}
	machine := s.Machines[0]
	message := "waiting for kubeadm init on Machine " + machine.Name
	if machine.Problem != "" {
		message += ": " + machine.Problem
	}
	if !machine.UpToDate {
		message += ". It was made from an earlier spec: delete it to start over with the present one"
	}
	return s.waitFor(machine, ReasonInitializing, "%s", message)
}

// reach makes sure that later rules know what they decide about.
func reach(s Snapshot) *Step {
	if !s.Reachable {
		return s.wait(s.ongoing(), ReasonConnectionDown, "the workload cluster's API does not answer")
	}
	if s.StackedEtcd && !s.Etcd.Known {
		return s.wait(s.ongoing(), ReasonConnectionDown, "etcd cannot be read: %s", s.Etcd.Problem)
	}
	return nil
}
