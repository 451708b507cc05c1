// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/quorum"
)

// facts are a state with what follows from it.
type facts struct{ controlplane.State }

// active are the Machines that are not being deleted.
func (s facts) active() []controlplane.Machine {
	var active []controlplane.Machine
	for _, machine := range s.Machines {
		if !machine.Deleting {
			active = append(active, machine)
		}
	}
	return active
}

// deleted is the state as it will be when the named Machine has been deleted.
func (s facts) deleted(name string) facts {
	s.Machines = slices.Clone(s.Machines)
	for i := range s.Machines {
		if s.Machines[i].Name == name {
			s.Machines[i].Deleting, s.Machines[i].DeletedAt = true, math.MaxInt64
		}
	}
	return s
}

// present counts the Machines of which more is left than an object.
func (s facts) present() int {
	present := 0
	for _, machine := range s.Machines {
		if !machine.Gone() {
			present++
		}
	}
	return present
}

func (s facts) outdated() int {
	outdated := 0
	for _, machine := range s.active() {
		if !machine.UpToDate {
			outdated++
		}
	}
	return outdated
}

func (s facts) memberOf(machine controlplane.Machine) *quorum.Member {
	for i := range s.Etcd.Members {
		if s.Etcd.Members[i].Machine == machine.Name {
			return &s.Etcd.Members[i]
		}
	}
	return nil
}

// memberState is what the Machine is worth to etcd. Without a member of its own it may still have one: until etcd was
// read, and while some member has no known Machine, which might be that of any Machine with a host.
func (s facts) memberState(machine controlplane.Machine) quorum.MemberState {
	member := s.memberOf(machine)
	switch {
	case member == nil && machine.Joining:
		return quorum.MemberJoining
	case !s.StackedEtcd:
		return quorum.MemberNone
	case member != nil:
		return s.stateOf(*member)
	case machine.HostClaimed && (!s.Etcd.Known || len(s.orphanedMembers()) > 0):
		return quorum.MemberUnknown
	}
	return quorum.MemberNone
}

func (s facts) stateOf(member quorum.Member) quorum.MemberState {
	return member.State(s.DeadMemberTimeout)
}

// mayVote reports whether the loss of the Machine's vote would be felt, or may be: one that was a node, and has no
// member of its own, may run a member whose Machine is not known.
func (s facts) mayVote(machine controlplane.Machine) bool {
	state := s.memberState(machine)
	return state.Counts() || state == quorum.MemberUnknown && (machine.Node != "" || machine.Joined)
}

// explained adds to what is wrong with a Machine what ends that. Where nobody has asked for its replacement, somebody
// can: a silent host may be back any moment, so only a person can say that it will not. Where it was asked for, that
// waits too. What is wrong with a full database says itself how to make room.
func (s facts) explained(machine controlplane.Machine, problem string) string {
	reason, _ := s.unhealthyReason(machine)
	switch state := s.memberState(machine); {
	case state == quorum.MemberFull && strings.Contains(problem, quorum.MakeRoom):
		return problem
	case machine.Health.Spared != "":
		return problem + "; it is not replaced, because " + machine.Health.Spared
	case reason == "" && state == quorum.MemberDead:
		return problem + "; if it will not be back, " + haveReplaced
	case reason == "":
		return problem + "; if that stays so, " + haveReplaced
	}
	return problem + "; it is to be replaced, and condition Remediating says what that waits for"
}

// neverJoined reports whether the Machine holds nothing of the cluster: no node, and certainly no etcd member.
func (s facts) neverJoined(machine controlplane.Machine) bool {
	state := s.memberState(machine)
	return machine.Node == "" && !machine.Joined && (state == quorum.MemberNone ||
		state == quorum.MemberJoining && len(s.orphanedMembers()) == 0)
}

// shortcoming says why a Machine does not count as a working part of the control plane; empty when it does.
func (s facts) shortcoming(machine controlplane.Machine) string {
	switch {
	case machine.Node == "":
		return cmp.Or(machine.Problem, "it has no Node yet")
	case !machine.Healthy:
		return cmp.Or(machine.Problem, "its Node or its static pods are not ready")
	}
	return s.memberShortcoming(machine)
}

// outage says why a Machine is no working part of the control plane, whatever pods its Node could run besides. It is
// less than shortcoming: a network plugin may wait for the Machines that join after this one.
func (s facts) outage(machine controlplane.Machine) string {
	if machine.Node != "" && machine.Serving {
		return s.memberShortcoming(machine)
	}
	return s.shortcoming(machine)
}

// awaitsMember reports whether the etcd member of a Machine that has a Node does not vote in health yet.
func (s facts) awaitsMember() bool {
	return s.Etcd.Known && slices.ContainsFunc(s.active(), func(machine controlplane.Machine) bool {
		return machine.Node != "" && s.memberShortcoming(machine) != ""
	})
}

func (s facts) memberShortcoming(machine controlplane.Machine) string {
	if !s.StackedEtcd {
		return ""
	}
	member := s.memberOf(machine)
	if member == nil {
		return "it has no etcd member yet"
	}
	if shortcoming := member.Shortcoming(); shortcoming != "" {
		return "its etcd member " + shortcoming
	}
	return ""
}
