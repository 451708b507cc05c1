// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/quorum"
)

// preCreateWhileDraining makes the next Machine while the one that leaves is drained, if that is what follows. What
// Cluster API does for a Machine before it can have a host takes seconds, and need not come after the drain.
func preCreateWhileDraining(s facts, leaving controlplane.Machine, waits *controlplane.Step) *controlplane.Step {
	if waits.Reason != controlplane.ReasonDraining {
		return nil
	}
	return s.preCreate(leaving, waits, fmt.Sprintf("while Machine %s is drained", leaving.Name), s.without(leaving))
}

// preCreateWhileJoining makes the next Machine while another joins that a rollout waits for, if an outdated one leaves
// after it and yet another joins: a drain may be shorter than those seconds. Once kubeadm runs the rest is short as a
// rule. What takes longer, because the host is silent, may take days.
func preCreateWhileJoining(s facts, waits *controlplane.Step) *controlplane.Step {
	at := slices.IndexFunc(s.Machines, func(machine controlplane.Machine) bool { return machine.Name == waits.Machine })
	if waits.Reason != controlplane.ReasonMachineNotReady || at < 0 || len(s.deletingMachines()) > 0 {
		return nil
	}
	joins := s.Machines[at]
	if !joins.KubeadmBegan || !joins.UpToDate {
		return nil
	}
	joined := s.joined(joins)
	step := joined.steadyState()
	if step == nil || step.Reason != controlplane.ReasonReplaced && step.Reason != controlplane.ReasonRemoveFirst {
		return nil
	}
	at = slices.IndexFunc(joined.Machines, func(machine controlplane.Machine) bool { return machine.Name == step.Machine })
	if at < 0 {
		return nil
	}
	return s.preCreate(joins, waits, fmt.Sprintf("while Machine %s joins", joins.Name),
		joined.without(joined.Machines[at]))
}

// preCreate makes a Machine that claims no host yet, unless there is one or something else follows than a join; what is
// awaited meanwhile is about another Machine.
func (s facts) preCreate(about controlplane.Machine, waits *controlplane.Step, meanwhile string,
	later facts) *controlplane.Step {
	if len(s.PreCreated) > 0 || about.PreCreationBackoff {
		return nil
	}
	step := later.steadyState()
	if step == nil || step.Kind != controlplane.CreateMachine || step.Remediates != "" {
		return nil
	}
	return &controlplane.Step{Kind: controlplane.PreCreateMachine, Operation: waits.Operation,
		RecheckAfter: controlplane.RecheckStep, Machine: about.Name,
		Reason: step.Reason, Fallback: waits, Message: "making the next Machine ahead, " + meanwhile}
}

// joined is the state as it will be when the Machine, which joins, does its work.
func (s facts) joined(joins controlplane.Machine) facts {
	s.Machines, s.Hosts = slices.Clone(s.Machines), slices.Clone(s.Hosts)
	for i := range s.Machines {
		if machine := &s.Machines[i]; machine.Name == joins.Name {
			machine.Bootstrapped, machine.Joining, machine.KubeadmBegan, machine.Joined = true, false, false, true
			machine.Node, machine.Kubelet = cmp.Or(machine.Node, machine.Name), machine.Version
			machine.Healthy, machine.Serving, machine.Problem = true, true, ""
		}
	}
	for i := range s.Hosts {
		if host := &s.Hosts[i]; host.Machine == joins.Name {
			host.Provisioned, host.Present, host.PresentRunning = true, true, true
		}
	}
	if s.StackedEtcd {
		voter := quorum.Member{Name: joins.Name, Machine: joins.Name, Healthy: true}
		var members []quorum.Member
		for _, member := range s.Etcd.Members {
			voter.ID = max(voter.ID, member.ID+1)
			if member.Machine != joins.Name {
				members = append(members, member)
			}
		}
		members = append(members, voter)
		s.Etcd.Members = members
	}
	return s
}

// without is the state as it will be when the Machine has left, and its host is being released.
func (s facts) without(leaving controlplane.Machine) facts {
	member := s.memberOf(leaving)
	s.Machines = slices.DeleteFunc(slices.Clone(s.Machines), func(machine controlplane.Machine) bool {
		return machine.Name == leaving.Name
	})
	s.Hosts = slices.DeleteFunc(slices.Clone(s.Hosts),
		func(host controlplane.Host) bool { return host.Machine == leaving.Name })
	if member != nil {
		s.Etcd = s.Etcd.After(quorum.Operation{Kind: quorum.Remove, Members: []uint64{member.ID}})
	}
	if leaving.Returns {
		s.Spare.Returning++
	}
	return s
}

// allowHostClaim lets the Machine that was pre-created join; nil when there is none, or none that can.
func (s facts) allowHostClaim(reason, message string) *controlplane.Step {
	if len(s.PreCreated) == 0 || s.PreCreated[0].Unfit != "" {
		return nil
	}
	return change(controlplane.AllowHostClaim, s.ongoing(), reason, "%s: Machine %s, which was made ahead", message,
		s.PreCreated[0].Name).WithMachine(s.PreCreated[0].Name)
}

// dropUnfit deletes a Machine that was pre-created and cannot join.
func dropUnfit(s facts) *controlplane.Step {
	if len(s.PreCreated) == 0 || s.PreCreated[0].Unfit == "" || s.disturbed() {
		return nil
	}
	return drop(s.PreCreated[0], s.operationOf(controlplane.Machine{}), s.PreCreated[0].Unfit)
}

// disturbed reports whether somebody leaves, or a person restores etcd, who names the Machines as they are: there is no
// hurry then to delete one that cannot join.
func (s facts) disturbed() bool {
	restoring := s.Recovery != nil && !recoveryOver(s.Recovery) || s.StackedEtcd && !s.Etcd.Agreed
	return restoring || len(s.deletingMachines()) > 0
}

// dropSurplus deletes a Machine that was pre-created when nothing is left to do that could want it.
func dropSurplus(s facts) *controlplane.Step {
	if len(s.PreCreated) == 0 {
		return nil
	}
	return drop(s.PreCreated[0], s.operationOf(controlplane.Machine{}), "no further Machine is wanted")
}

func drop(machine controlplane.PreCreatedMachine, operation controlplane.Operation, why string) *controlplane.Step {
	return change(controlplane.DeleteMachine, operation, controlplane.ReasonHostClaimNotAllowed,
		"deleting Machine %s, which was made ahead and has no host yet: %s", machine.Name, why).WithMachine(machine.Name)
}
