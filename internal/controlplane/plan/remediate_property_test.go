// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/quorum"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/rapidtest"
)

// Whatever state Machines, members and hosts are in, and whoever calls them ill, no step costs the quorum, takes a
// second Machine, or touches anything while the quorum is lost or hosts went away together.
func TestRemediationPromises(t *testing.T) {
	// States are cheap: enough of them that every broken rule was met when it was tried.
	rapidtest.CheckAll(t, 10000, func(t *rapid.T) {
		s := anyIllness(t)
		step := Assess(s).Step
		t.Logf("%s", tell(step))
		s.StaleHosts = []controlplane.StaleHost{{Name: "metal/a",
			Message: "the host knows generation 5 of its claim, ours is 3"}}
		if stale := Assess(s).Step; stale.Kind != controlplane.Refuse || stale.Reason != controlplane.ReasonStaleClaim {
			t.Fatalf("the stale side does %s", tell(stale))
		}
		s.StaleHosts = nil
		unhealthy := Assess(s).Unhealthy
		voters, healthy := 0, 0
		for _, member := range s.Etcd.Members {
			if !member.Learner && member.ID != step.Member && (step.Kind != controlplane.DeleteMachine ||
				member.Machine != step.Machine) {
				voters++
				if member.Healthy {
					healthy++
				}
			}
		}
		leaving, kept := 0, 0
		for _, machine := range s.Machines {
			// One that has left etcd is on no way out of it, however long its host takes.
			if out := !machine.Hook && !machine.Joining && !slices.ContainsFunc(s.Etcd.Members,
				func(member quorum.Member) bool { return member.Machine == machine.Name }); machine.Deleting && !out {
				leaving++
			}
			if machine.Deleting && (machine.DrainHook || machine.AtTermination) {
				kept++
			}
		}
		switch step.Kind {
		case controlplane.DeleteMachine:
			holds, votes, idle := false, false, slices.ContainsFunc(s.Machines, func(machine controlplane.Machine) bool {
				return machine.Name == step.Machine && machine.Node == "" && !machine.Joined
			})
			for _, member := range s.Etcd.Members {
				idle = idle && member.Machine != step.Machine
				holds = holds || member.Machine == step.Machine && !member.Learner
				votes = votes || member.Machine == step.Machine && !member.Learner && member.Healthy
			}
			if leaving > 0 && votes {
				t.Fatalf("a second Machine with a vote is deleted")
			}
			if leaving > kept && !idle {
				t.Fatalf("a Machine is deleted while another is on its way out")
			}
			if holds && (voters == 0 || healthy < voters/2+1) {
				t.Fatalf("%d of %d voters would be healthy", healthy, voters)
			}
			if holds && !s.Etcd.Agreed {
				t.Fatalf("a member's Machine is deleted without a quorum")
			}
			if together := awayTogether(s); together != "" && mayBeBack(s, step.Remediates) {
				t.Fatalf("replaced although %s", together)
			}
		case controlplane.CreateMachine, controlplane.AllowHostClaim:
			if len((facts{s}).active()) > s.Replicas {
				t.Fatalf("%d Machines for %d", len((facts{s}).active()), s.Replicas)
			}
			if !agree(s) {
				t.Fatalf("a Machine is made without a quorum")
			}
		case controlplane.RemoveEtcdMember:
			if !agree(s) {
				t.Fatalf("a member is removed without a quorum")
			}
			for _, member := range s.Etcd.Members {
				if member.ID == step.Member && member.Machine == "" && member.Healthy && !member.Learner {
					t.Fatalf("a voter that works is removed because its Machine is not known")
				}
			}
		}
		for _, target := range unhealthy {
			if target.Machine.Health.Spared != "" || target.Machine.Deleting {
				t.Fatalf("%s is to be left alone", target.Machine.Name)
			}
		}
		if rash := calledDeadEarly(s, unhealthy); rash != "" {
			t.Fatal(rash)
		}
	})
}

// calledDeadEarly says which Machine is to be replaced for a dead member that fell silent less than ten minutes ago,
// however long it was ill before; empty when there is none.
func calledDeadEarly(s controlplane.State, unhealthy []controlplane.UnhealthyMachine) string {
	for _, target := range unhealthy {
		for _, member := range s.Etcd.Members {
			if target.Reason == controlplane.UnhealthyMemberDead && member.Machine == target.Machine.Name &&
				member.Silent < 10*time.Minute {
				return fmt.Sprintf("the member of %s is called dead, and fell silent %s ago", member.Machine, member.Silent)
			}
		}
	}
	return ""
}

// agree reports whether a quorum confirmed the list of members. It is judged here without the words of what is tested.
func agree(s controlplane.State) bool { return s.Etcd.Known && s.Etcd.Agreed }

// mayBeBack reports whether a Machine that is replaced may be one of those that went away together, and nobody says that
// it will not be back. One that never was a node, has no member, and whose host answers has nothing to come back with.
func mayBeBack(s controlplane.State, name string) bool {
	member := slices.ContainsFunc(s.Etcd.Members, func(member quorum.Member) bool { return member.Machine == name })
	return slices.ContainsFunc(s.Machines, func(machine controlplane.Machine) bool {
		health := machine.Health
		silent := !health.SilentSince.IsZero() || !health.NodeLostSince.IsZero()
		return machine.Name == name && !health.ByHand && (machine.Node != "" || machine.Joined || member || silent)
	})
}

// awayTogether says that what happened did not happen to one Machine: two or more, and half of those that are Nodes,
// were last heard of within ten minutes, or came back within the last fifteen; or a failure domain is lost. Nothing is
// asked of what is tested, and where that is more cautious nothing is said. Empty when none of it is so.
func awayTogether(s controlplane.State) string {
	var away []time.Time
	nodes, back := 0, 0
	for _, machine := range s.Machines {
		health := machine.Health
		gone, came := health.SilentSince, health.NodeReadySince
		if lost := health.NodeLostSince; gone.IsZero() || !lost.IsZero() && lost.Before(gone) {
			gone = lost
		}
		if health.AnswersSince.After(came) {
			came = health.AnswersSince
		}
		switch {
		case health.DomainLost != "" && !gone.IsZero():
			return health.DomainLost
		case machine.Node == "":
			continue
		case !gone.IsZero():
			away = append(away, gone)
		case came.Sub(health.Born) > time.Hour && s.Remediation.Now.Sub(came) < 15*time.Minute &&
			came.Sub(s.Remediation.Now) <= time.Minute: // nobody came back at a time that has yet to come
			back++
		}
		nodes++
	}
	for _, first := range away {
		together := 0
		for _, since := range away {
			if after := since.Sub(first); after >= 0 && after <= 10*time.Minute {
				together++
			}
		}
		if together >= 2 && 2*together >= nodes {
			return fmt.Sprintf("%d of %d went away together", together, nodes)
		}
	}
	if back >= 2 && 2*back >= nodes {
		return fmt.Sprintf("%d of %d just came back", back, nodes)
	}
	return ""
}

// anyIllness is a control plane of which anything may be ill.
func anyIllness(t *rapid.T) controlplane.State {
	often := func(name string) bool { return rapid.IntRange(0, 3).Draw(t, name) == 0 }
	past := func(name string) time.Time {
		if !often(name) {
			return time.Time{}
		}
		return noon.Add(-time.Duration(rapid.IntRange(0, 60).Draw(t, name+" minutes")) * time.Minute)
	}
	s := controlplane.State{Replicas: rapid.SampledFrom([]int{1, 3, 5}).Draw(t, "replicas"), Version: "v1.36.3",
		ConfigVersion: "v1.36.3",
		StackedEtcd:   true, Certificates: true, Initialized: true, Reachable: true, AddonsCurrent: true,
		Remediation: controlplane.Remediation{Now: noon}}
	if often("spare") {
		s.Spare.Free = 1
	}
	s.Etcd = quorum.Membership{Known: true}
	voters, healthy := 0, 0
	for i := range rapid.IntRange(1, s.Replicas+1).Draw(t, "machines") {
		name := fmt.Sprintf("m%d", i)
		machine := controlplane.Machine{Name: name, Version: s.Version, Kubelet: s.Version, Node: name, HostClaimed: true,
			Hook:     true,
			Created:  int64(i),
			UpToDate: !often("outdated"), Healthy: !often("sick"), FailureDomain: fmt.Sprintf("r%d", i%3),
			Deleting: rapid.IntRange(0, 15).Draw(t, "deleting") == 0}
		machine.Serving, machine.Joined, machine.Bootstrapped = machine.Healthy, true, true
		machine.DrainHook = !machine.Deleting || often("kept")
		machine.AtTermination = machine.Deleting && !machine.DrainHook && often("drained")
		machine.Health = controlplane.Health{ByHand: often("by hand"), InfrastructureGone: often("infrastructure gone"),
			MemberIllSince: past("member ill"),
			SilentSince:    past("silent"), NodeLostSince: past("node lost"), Born: noon.Add(-240 * time.Hour)}
		if machine.Health.SilentSince.IsZero() {
			machine.Health.AnswersSince = noon.Add(-time.Duration(rapid.IntRange(0, 10000).Draw(t, "answers")) * time.Minute)
		}
		if often("marked") {
			machine.Health.Marked = "ill"
		}
		if often("spared") {
			machine.Health.Spared = "spared"
		}
		joins := rapid.IntRange(0, 9).Draw(t, "joins") == 0
		if joins {
			machine.Node, machine.Kubelet, machine.Joined, machine.Bootstrapped, machine.Healthy, machine.Serving = "", "",
				false, false, false, false
			if often("failed") {
				machine.Health.Final = "failed"
			}
		}
		if rapid.IntRange(0, 19).Draw(t, "domain lost") == 1 {
			machine.Health.DomainLost = "failure domain r1 is lost"
		}
		unreleased := machine.Deleting && !joins && rapid.Bool().Draw(t, "not released")
		if unreleased {
			machine.Hook, machine.DrainHook, machine.AtTermination = false, false, false
		}
		s.Machines = append(s.Machines, machine)
		if unreleased && !often("in etcd") || joins && often("no member") {
			continue
		}
		member := quorum.Member{ID: uint64(i + 1), Name: name, Machine: name, Healthy: !often("member sick"),
			Learner: joins && often("learner")}
		if !member.Healthy {
			member.Silent = time.Duration(rapid.IntRange(0, 20).Draw(t, "silence")) * time.Minute
		}
		if rapid.IntRange(0, 9).Draw(t, "stray") == 0 {
			member.Machine = ""
		}
		s.Etcd.Members = append(s.Etcd.Members, member)
		if !member.Learner {
			voters++
			if member.Healthy {
				healthy++
			}
		}
	}
	s.Etcd.Agreed = voters > 0 && healthy >= voters/2+1 && rapid.IntRange(0, 9).Draw(t, "unconfirmed") != 1
	s.DeadMemberTimeout = rapid.SampledFrom([]time.Duration{0, 10 * time.Minute}).Draw(t, "dead member timeout")
	return s
}
