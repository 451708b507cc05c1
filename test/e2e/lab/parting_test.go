// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
)

func second(n int) time.Time { return time.Unix(1700000000+int64(n), 0) }

// surge is a Machine that comes on h2 and another one that leaves h1 for it, with what ran on both hosts.
func surge() ([]Life, []Plan) {
	comes := Life{Name: "new", Host: "h2", Claim: "aaaa", Created: second(2), Claimed: second(5), NodeReady: second(40),
		Votes: second(43), Available: second(44)}
	leaves := Life{Name: "old", Host: "h1", Claim: "bbbb", Created: second(-900), Claimed: second(-890), Available: second(-800),
		Deleting: second(46), Drainable: second(47), Empty: second(57), Drained: second(59), Terminable: second(62),
		Cleaning: second(63), Free: second(76), Gone: second(77)}
	return []Life{comes, leaves}, []Plan{
		{Host: "h2", ID: "provision-aaaa", Began: second(7), Took: 30 * time.Second,
			Steps: []PlanStep{{"check-bundle", second(8)}, {"pull-images", second(17)}, {"kubeadm-join", second(35)},
				{"enable-kubelet", second(37)}}},
		{Host: "h1", ID: "reset-bbbb", Began: second(64), Took: 10 * time.Second},
		{Host: "h1", ID: "provision-cccc", Began: second(80), Took: 30 * time.Second}, // the next one's
	}
}

func TestTheLifeOfAMachineIsPartedByWhatWasSeen(t *testing.T) {
	g := NewWithT(t)
	lives, plans := surge()
	took := func(life Life) map[Phase]time.Duration {
		all := map[Phase]time.Duration{}
		for _, span := range life.Spans(plans) {
			all[span.Phase] += span.To.Sub(span.From) / time.Second
		}
		return all
	}
	g.Expect(took(lives[0])).To(Equal(map[Phase]time.Duration{Claim: 3, Connect: 2, Artifacts: 12, Kubeadm: 18, NodeStart: 3,
		Voter: 3, Healthy: 1}))
	g.Expect(took(lives[1])).To(Equal(map[Phase]time.Duration{Claim: 10, Healthy: 90, Hold: 1, Drain: 10, Drained: 2, Member: 3,
		Release: 2, Reset: 10, Verify: 2, Gone: 1}))

	unseen := lives[0]
	unseen.NodeReady, unseen.Votes = time.Time{}, time.Time{}
	g.Expect(took(unseen)).To(HaveKeyWithValue(Healthy, time.Duration(7)), "what was not seen falls to the next that was")
}

func TestJoinsAreComparedByWhatWasStaged(t *testing.T) {
	g := NewWithT(t)
	lives, plans := surge()
	lives = append(lives, Life{Name: "next", Host: "h1", Claim: "cccc", Staged: true, Created: second(78),
		Claimed: second(79), Votes: second(110)}, Life{Name: "none", Staged: true})
	plans[2].Took, plans[2].Steps = 20*time.Second, []PlanStep{{"check-bundle", second(82)}, {"kubeadm-join", second(98)}}
	g.Expect(JoinsOf(lives, plans, false)).To(Equal(Joins{1, 12 * time.Second, 30 * time.Second}))
	g.Expect(JoinsOf(lives, plans, true)).To(Equal(Joins{1, 2 * time.Second, 20 * time.Second}))
	lives[2].Votes = time.Time{}
	g.Expect(JoinsOf(lives, plans, true)).To(Equal(Joins{}), "a worker")
	g.Expect(JoinsOf(nil, plans, true)).To(Equal(Joins{}))
	g.Expect(Table(lives, plans, nil)).To(And(ContainSubstring("next on h1, staged; "), ContainSubstring("new on h2; ")))
}

func TestEverySecondOfAnUpgradeHasOnePhase(t *testing.T) {
	g := NewWithT(t)
	lives, plans := surge()
	var spans []Span
	for _, life := range lives {
		spans = append(spans, life.Spans(plans)...)
	}
	// The managers are away while kubeadm goes on, and for four seconds more.
	spans = append(spans, Span{Killed, second(30), second(44)}, Span{Addons, second(70), second(90)})

	shares := Part(second(0), second(100), spans)

	var sum time.Duration
	took := map[Phase]time.Duration{}
	for _, share := range shares {
		sum, took[share.Phase] = sum+share.Took, share.Took/time.Second
	}
	g.Expect(sum).To(Equal(100 * time.Second))
	g.Expect(took).To(HaveKeyWithValue(Kubeadm, time.Duration(18)), "a kill costs nothing that kubeadm needs anyhow")
	g.Expect(took).To(HaveKeyWithValue(Killed, time.Duration(4)), "nor do managers tell who votes")
	g.Expect(took).NotTo(HaveKey(Healthy), "nobody could look")
	g.Expect(took).To(HaveKeyWithValue(Addons, time.Duration(13)), "from when the host was free again")
	g.Expect(took).To(HaveKeyWithValue(Decision, time.Duration(2+2+10)), "nothing was under way")
	g.Expect(Of(shares, ByHosts)).To(Equal((12 + 18 + 3 + 10 + 10) * time.Second))
	g.Expect(Table(lives, plans, shares)).To(And(ContainSubstring("new on h2; "), ContainSubstring(" kubeadm 18s"),
		MatchRegexp(`kubeadm +host +18s`), MatchRegexp(`managers away +kills +4s`)))
}

func TestAResetDelaysOnlyWhoWaitsForTheHost(t *testing.T) {
	g := NewWithT(t)
	reset := Span{Reset, second(0), second(10)}
	waits := Part(second(0), second(10), []Span{reset, {Claim, second(0), second(10)}})
	g.Expect(waits).To(Equal([]Share{{Reset, 10 * time.Second}}))
	beside := Part(second(0), second(10), []Span{reset, {Hold, second(0), second(10)}})
	g.Expect(beside).To(Equal([]Share{{Hold, 10 * time.Second}}), "we could have gone on meanwhile")
}

func TestATimelineNotesWhenThingsAreSeenFirst(t *testing.T) {
	g := NewWithT(t)
	line := newTimeline(nil)
	is := func(kind string, n int) metav1.Condition {
		return metav1.Condition{Type: kind, Status: metav1.ConditionTrue, LastTransitionTime: metav1.NewTime(second(n))}
	}
	machine := clusterv1.Machine{}
	machine.Name, machine.CreationTimestamp = "m1", metav1.NewTime(second(0))
	machine.Spec.ProviderID, machine.Spec.InfrastructureRef.Name = "quoin://default/h1/aaaa", "q1"
	infra := infrav1.QuoinMachine{}
	infra.Name = "q1"
	infra.Status.Conditions = []metav1.Condition{is(infrav1.MachineHostClaimedCondition, 1), is(infrav1.MachineDrainedCondition, 3)}
	nodes := []Node{{Name: "h1", ProviderID: "quoin://default/h1/aaaa", Ready: true, ReadySince: second(9)}}
	host := infrav1.QuoinHost{}
	host.Name, host.Spec.ConsumerRef = "h1", &infrav1.ConsumerReference{Machine: "m1"}
	look := func(n int, machines ...clusterv1.Machine) {
		line.live(second(n), machines, []infrav1.QuoinMachine{infra}, nodes, []infrav1.QuoinHost{host}, []string{"m1"}[:min(n/20, 1)])
	}
	look(10, machine)
	nodes[0].ReadySince = second(15) // it was away for a moment
	deleted := metav1.NewTime(second(18))
	machine.DeletionTimestamp = &deleted
	infra.Status.Conditions[1] = is(infrav1.MachineDrainedCondition, 21)
	look(20, machine)
	host.Status.State = infrav1.HostStateCleaning
	look(22, machine)
	host.Status.State, host.Spec.ConsumerRef = infrav1.HostStateAvailable, nil
	look(30)

	host.Status.State, host.Spec.ConsumerRef = infrav1.HostStateProvisioned, &infrav1.ConsumerReference{Machine: "m2"}
	look(40)

	g.Expect(line.Lives()).To(ConsistOf(Life{Name: "m1", Host: "h1", Claim: "aaaa", Created: second(0), Claimed: second(1),
		NodeReady: second(9), Deleting: second(18), Empty: second(20), Drained: second(21), Cleaning: second(22),
		Free: second(30), Gone: second(30)}))
}

func TestAHostThatGoesToTheNextAtOnceWasFree(t *testing.T) {
	g := NewWithT(t)
	line := newTimeline(nil)
	line.lives["m1"] = &Life{Name: "m1", Host: "h1"}
	host := infrav1.QuoinHost{}
	host.Name, host.Status.State, host.Spec.ConsumerRef = "h1", infrav1.HostStateCleaning, &infrav1.ConsumerReference{Machine: "m1"}
	look := func(n int) { line.live(second(n), nil, nil, nil, []infrav1.QuoinHost{host}, nil) }
	look(10)
	host.Status.State, host.Spec.ConsumerRef.Machine = infrav1.HostStateClaimed, "m2"
	look(20)
	host.Status.State, host.Spec.ConsumerRef = infrav1.HostStateAvailable, nil
	look(30)
	g.Expect(line.Lives()[0].Free).To(Equal(second(20)))
}

func TestATimelineNotesWhatAHostHadBeforeItsClaim(t *testing.T) {
	g := NewWithT(t)
	line := newTimeline(nil)
	hosts := []infrav1.QuoinHost{{}, {}}
	machines := []clusterv1.Machine{{}, {}}
	for i, version := range []string{"v1.36.3", "v1.35.4"} {
		hosts[i].Name = []string{"h1", "h2"}[i]
		hosts[i].Status.Staged = []infrav1.StagedArtifacts{{Version: version}}
		machines[i].Name, machines[i].Spec.Version = []string{"m1", "m2"}[i], "v1.36.3"
	}
	look := func() { line.live(second(1), machines, nil, nil, hosts, nil) }
	look()
	for i := range machines {
		machines[i].Spec.ProviderID = "quoin://default/" + hosts[i].Name + "/aaaa"
		hosts[i].Spec.ConsumerRef = &infrav1.ConsumerReference{Machine: machines[i].Name}
		hosts[i].Status.Staged = nil // what was used is forgotten
	}
	look()
	look()
	g.Expect(line.Lives()).To(HaveExactElements(HaveField("Staged", true), HaveField("Staged", false)))
}
