// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/collections"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/placement"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/quorum"
)

// departure is a control-plane Machine that somebody wants to delete, and everything that the verdict on it rests on.
type departure struct {
	machine *clusterv1.Machine
	// free says why there is nothing to judge; empty when there is.
	free string
	// paused: its Cluster is.
	paused bool

	controlPlane *controlplanev1.QuoinControlPlane
	// machines of the control plane, those that are being deleted included.
	machines collections.Machines
	// stacked: each Machine runs a member of etcd.
	stacked    bool
	membership quorum.Membership
	// replaceable: although the Machine holds the only vote, another one can join before it goes.
	replaceable bool
}

// membershipOf is etcd as the control plane last read it. A member whose Machine is being deleted, or is gone already,
// and one that a person gave up is departing: it is no survivor, but counts until it is out of the list.
func membershipOf(
	of *controlplanev1.QuoinControlPlane, machines collections.Machines, now time.Time,
) quorum.Membership {
	membership := controlplane.MembershipFrom(of.Status.Etcd, now)
	var holders []quorum.Holder
	for _, machine := range machines {
		// Nobody is held here: of Machines that are deleted together, each is judged without those before it.
		holders = append(holders, quorum.Holder{Name: machine.Name, Deleting: !machine.DeletionTimestamp.IsZero()})
	}
	givenUp, _ := controlplanev1.MembersToRemove(of.Annotations[controlplanev1.RemoveEtcdMemberAnnotation])
	return membership.HeldBy(holders, givenUp)
}

// member of the Machine; nil when it has none.
func (d *departure) member() *quorum.Member {
	i := slices.IndexFunc(d.membership.Members, func(m quorum.Member) bool { return m.Machine == d.machine.Name })
	if i < 0 {
		return nil
	}
	return &d.membership.Members[i]
}

// members are what the Machine may take with it: its member; and while it has none, every member that has no known
// Machine, Node or no Node: one of them may have just been added for it, or its host does not say which it has. Beside
// one that leaves and whose member is not known, they are among what goes as well. A member's name says nothing that
// the control plane has not gone by.
func (d *departure) members() []uint64 {
	if !d.stacked || placement.ClaimHeld(d.machine) && d.member() == nil {
		return nil
	}
	var ids []uint64
	known := d.member() != nil && d.leavingUnknown() == 0
	for _, member := range d.membership.Members {
		if member.Machine == d.machine.Name || member.Machine == "" && !known {
			ids = append(ids, member.ID)
		}
	}
	return ids
}

// holdsNothing reports whether the Machine has no Node and no member. One that was a node once, as its provider ID
// says, has lost its status in a move or a restore: it is judged by what was read of etcd.
func (d *departure) holdsNothing() bool {
	return !d.machine.Status.NodeRef.IsDefined() && len(d.members()) == 0 && d.machine.Spec.ProviderID == ""
}

// holdsOnlyVote reports whether there is one voter, which is the Machine's.
func (d *departure) holdsOnlyVote() bool {
	member := d.member()
	return member != nil && member.State(quorum.Forever).Votes() && d.membership.Count().Voters == 1
}

// staying are the names of the other Machines that are not being deleted, leaving those of the other Machines that are.
func (d *departure) staying() []string {
	return d.others(collections.And(collections.ActiveMachines, func(m *clusterv1.Machine) bool {
		return !placement.ClaimHeld(m)
	}))
}
func (d *departure) leaving() []string { return d.others(collections.HasDeletionTimestamp) }

func (d *departure) others(filter collections.Func) []string {
	others := d.machines.Filter(filter, func(m *clusterv1.Machine) bool { return m.Name != d.machine.Name })
	return slices.Sorted(slices.Values(others.Names()))
}

// leavingUnknown counts the other Machines that are being deleted and whose member is not known. Where this one's is
// not known either, each takes one of those that may be its own. One that may have no host yet has none.
func (d *departure) leavingUnknown() int {
	unknown := 0
	for _, name := range d.leaving() {
		known := slices.ContainsFunc(d.membership.Members, func(m quorum.Member) bool { return m.Machine == name })
		if !known && !placement.ClaimHeld(d.machines[name]) {
			unknown++
		}
	}
	return unknown
}

// judge gives the verdict on the departure of this Machine; members of those that leave already are no survivors.
func (d *departure) judge() quorum.Verdict {
	if !d.stacked {
		return d.judgeExternal()
	}
	// Lowered, also when a host is free: then the hook before the drain lets a replacement vote first. What is asked here
	// is whether that, or a member less meanwhile, is possible at all.
	terms := quorum.ToBeDeleted(int(ptr.Deref(d.controlPlane.Spec.Replicas, 1)), controlplane.ReadingMaxAge)
	verdict := quorum.JudgeOneOf(d.membership, d.members(), d.leavingUnknown(), terms)
	if verdict.Reason != quorum.ReasonLastMember || !d.holdsOnlyVote() {
		return verdict
	}
	switch state := d.member().State(quorum.Forever); {
	case d.membership.Agreed && state == quorum.MemberFull:
		verdict.WayOut = "make room in its database, so that a replacement can join: " + quorum.MakeRoom
	case !d.membership.Agreed || state != quorum.MemberHealthy:
		verdict.WayOut = "repair its etcd member, so that a replacement can join"
	case !d.replaceable:
		verdict.WayOut = fmt.Sprintf("add a free host that QuoinMachineTemplate %s selects, so that a replacement can join "+
			"first",
			d.controlPlane.Spec.MachineTemplate.Spec.InfrastructureRef.Name)
	default:
		return quorum.Verdict{Allowed: true, Message: fmt.Sprintf(
			"Machine %s holds the only vote in etcd: it stays until a replacement votes", d.machine.Name)}
	}
	return verdict
}

// judgeExternal sees to it that some API server stays. There is no member to lose, but without any control-plane
// Machine there is also nobody whom a new one could join.
func (d *departure) judgeExternal() quorum.Verdict {
	for _, name := range d.staying() {
		if d.machines[name].Status.NodeRef.IsDefined() {
			return quorum.Verdict{Allowed: true}
		}
	}
	return quorum.Verdict{
		Reason:  "LastControlPlaneMachine",
		Message: "no other control-plane Machine has a Node and stays, so the cluster would be left without an API server",
		WayOut: fmt.Sprintf("wait until another control-plane Machine has a Node; if none is on its way, raise "+
			"spec.replicas of QuoinControlPlane %s first",
			d.controlPlane.Name),
	}
}

// lowered begins a text with a small letter, as part of a sentence.
func lowered(text string) string { return strings.ToLower(text[:1]) + text[1:] }

// lost is the refusal while the Cluster is paused: nobody acts on a deletion then, and what a move has copied already
// lives on, in the other management cluster, as if nobody had asked.
func (d *departure) lost() string {
	namespace, cluster := d.machine.Namespace, d.machine.Spec.ClusterName
	return fmt.Sprintf("Machine %s cannot be deleted now: Cluster %s is paused, as clusterctl move does while the "+
		"objects move, and a deletion would be lost in the copy. "+
		"Instead: wait until the move has ended, and delete the Machine where its Cluster is then; if no move is under "+
		"way, unpause the Cluster first: "+
		`kubectl -n %s patch cluster %s --type merge -p '{"spec":{"paused":false}}'.`, d.machine.Name, cluster, namespace,
		cluster)
}

// refusal is all that a person sees: what would be lost, and what to do instead.
func (d *departure) refusal(verdict quorum.Verdict, withoutReason bool) string {
	var text strings.Builder
	fmt.Fprintf(&text, "Machine %s cannot be deleted now: %s", d.machine.Name, fullStop(verdict.Message))
	var instead []string
	if leaving := d.leaving(); len(leaving) > 0 {
		fmt.Fprintf(&text, " Being deleted already: %s.", strings.Join(leaving, ", "))
		instead = append(instead, "wait until there is a replacement for "+strings.Join(leaving, " and "))
	}
	if verdict.WayOut != "" {
		instead = append(instead, lowered(strings.TrimRight(verdict.WayOut, ".")))
	}
	instead = append(instead,
		fmt.Sprintf("to have fewer control-plane Machines, lower spec.replicas of QuoinControlPlane %s", d.controlPlane.Name),
		fmt.Sprintf("to be rid of the cluster, delete Cluster %s", d.machine.Spec.ClusterName),
	)
	if withoutReason {
		instead = append(instead, fmt.Sprintf("to delete it all the same, give annotation %s a reason as its value: it has "+
			"none", controlplanev1.AllowQuorumLossAnnotation))
	} else {
		instead = append(instead, fmt.Sprintf("to delete it all the same, annotate it with %s: <reason>",
			controlplanev1.AllowQuorumLossAnnotation))
	}
	fmt.Fprintf(&text, " Instead: %s.", strings.Join(instead, "; "))
	return text.String()
}
