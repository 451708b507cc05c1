// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/quorum"
)

// Prepared is a Machine that was made ahead: it gets its bootstrap data but claims no host until it is admitted. Until
// then it is no part of the control plane, and whatever becomes of it matters to nobody.
type Prepared struct {
	Name string
	// Unfit says why it will never be admitted, as the end of a sentence; empty when it can be.
	Unfit string
}

// ahead makes the next Machine while the one that leaves is drained, if that is what follows. What Cluster API does for
// a Machine before it can have a host takes seconds, and need not come after the drain.
func ahead(s Snapshot, leaver Machine, waits *Step) *Step {
	if waits.Reason != ReasonDraining {
		return nil
	}
	return s.prepare(leaver, waits, fmt.Sprintf("while Machine %s is drained", leaver.Name), s.without(leaver))
}

// beside makes the next Machine while another joins that a rollout waits for, if an outdated one leaves after it and
// yet another joins: a drain may be shorter than those seconds. Once kubeadm runs the rest is short as a rule. What
// takes longer, because the host is silent, may take days.
func beside(s Snapshot, waits *Step) *Step {
	at := slices.IndexFunc(s.Machines, func(machine Machine) bool { return machine.Name == waits.Machine })
	if waits.Reason != ReasonMachineNotReady || at < 0 || len(s.leavers()) > 0 {
		return nil
	}
	joins := s.Machines[at]
	if !joins.KubeadmBegan || !joins.UpToDate {
		return nil
	}
	joined := s.joined(joins)
	step := joined.onceLeft()
	if step == nil || step.Reason != ReasonReplaced && step.Reason != ReasonRemoveFirst {
		return nil
	}
	at = slices.IndexFunc(joined.Machines, func(machine Machine) bool { return machine.Name == step.Machine })
	if at < 0 {
		return nil
	}
	return s.prepare(joins, waits, fmt.Sprintf("while Machine %s joins", joins.Name), joined.without(joined.Machines[at]))
}

// prepare makes a Machine ahead, unless there is one or something else follows than a join; what is awaited meanwhile
// is about another Machine.
func (s Snapshot) prepare(about Machine, waits *Step, meanwhile string, later Snapshot) *Step {
	if len(s.Prepared) > 0 || about.NoneAhead {
		return nil
	}
	step := later.onceLeft()
	if step == nil || step.Kind != CreateJoin || step.Remediates != "" {
		return nil
	}
	return &Step{Kind: PrepareMachine, Operation: waits.Operation, RecheckAfter: RecheckStep, Machine: about.Name,
		Reason: step.Reason, Otherwise: waits, Message: "making the next Machine ahead, " + meanwhile}
}

// joined is the snapshot as it will be when the Machine, which joins, does its work.
func (s Snapshot) joined(joins Machine) Snapshot {
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

// without is the snapshot as it will be when the Machine has left, and its host is being released.
func (s Snapshot) without(leaver Machine) Snapshot {
	member := s.memberOf(leaver)
	s.Machines = slices.DeleteFunc(slices.Clone(s.Machines), func(machine Machine) bool {
		return machine.Name == leaver.Name
	})
	s.Hosts = slices.DeleteFunc(slices.Clone(s.Hosts), func(host Host) bool { return host.Machine == leaver.Name })
	if member != nil {
		s.Etcd = s.Etcd.After(quorum.Operation{Kind: quorum.Remove, Members: []uint64{member.ID}})
	}
	if leaver.Returns {
		s.Spare.Returning++
	}
	return s
}

// admit lets the Machine that was made ahead join; nil when there is none, or none that can.
func (s Snapshot) admit(reason, message string) *Step {
	if len(s.Prepared) == 0 || s.Prepared[0].Unfit != "" {
		return nil
	}
	return change(AdmitMachine, s.ongoing(), reason, "%s: Machine %s, which was made ahead", message, s.Prepared[0].Name).
		about(s.Prepared[0].Name)
}

// dropUnfit deletes a Machine that was made ahead and cannot join. There is no hurry: not while somebody leaves, and
// not while a person restores etcd, who names the Machines as they are.
func dropUnfit(s Snapshot) *Step {
	restoring := s.Recovery != nil && !s.Recovery.over() || s.StackedEtcd && !s.Etcd.Agreed
	if len(s.Prepared) == 0 || s.Prepared[0].Unfit == "" || len(s.leavers()) > 0 || restoring {
		return nil
	}
	return drop(s.Prepared[0], s.operationOf(Machine{}), s.Prepared[0].Unfit)
}

// dropSurplus deletes a Machine that was made ahead when nothing is left to do that could want it.
func dropSurplus(s Snapshot) *Step {
	if len(s.Prepared) == 0 {
		return nil
	}
	return drop(s.Prepared[0], s.operationOf(Machine{}), "no further Machine is wanted")
}

func drop(machine Prepared, operation Operation, why string) *Step {
	return change(DeleteMachine, operation, ReasonNotAdmitted,
		"deleting Machine %s, which was made ahead and has no host yet: %s", machine.Name, why).about(machine.Name)
}
