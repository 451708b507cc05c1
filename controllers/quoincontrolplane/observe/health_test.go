// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"errors"
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	gomegatypes "github.com/onsi/gomega/types"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/controllers/quoincontrolplane/history"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/etcd"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/fieldindex"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/quorum"
)

// A Machine that is left alone says who did it, and what ends it; one that only waits at our word is no person's wish.
func TestWhatIsSparedSaysWhatReleasesIt(t *testing.T) {
	skip := clusterv1.MachineSkipRemediationAnnotation
	for name, tc := range map[string]struct {
		annotations map[string]string
		conditions  []metav1.Condition
		want        gomegatypes.GomegaMatcher
	}{
		"nothing":                {want: BeEmpty()},
		"a person's annotation":  {annotations: map[string]string{skip: ""}, want: ContainSubstring("Take the annotation off")},
		"ours, because it waits": {annotations: map[string]string{skip: "waiting", infrav1.SparedAnnotation: ""}, want: BeEmpty()},
		"paused": {annotations: map[string]string{clusterv1.PausedAnnotation: ""},
			want: ContainSubstring("Take the annotation " + clusterv1.PausedAnnotation + " off")},
		"an external remediation": {conditions: []metav1.Condition{{Type: clusterv1.MachineExternallyRemediatedCondition,
			Status: metav1.ConditionFalse}}, want: ContainSubstring("Delete the Machine")},
	} {
		t.Run(name, func(t *testing.T) {
			machine := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Annotations: tc.annotations}}
			machine.SetConditions(tc.conditions)
			NewWithT(t).Expect(Spared(machine)).To(tc.want)
		})
	}
}

// Silence lasts from the first reading that missed a member to the first that found it healthy.
func TestSilenceIsCountedFromTheFirstMissedReading(t *testing.T) {
	g := NewWithT(t)
	past := history.Since[history.Standstill]{}
	start := time.Now()
	silent := func(at time.Duration, healthy bool) time.Duration {
		m := &quorum.Membership{Known: true, Agreed: true, Members: []quorum.Member{{ID: 7, Healthy: healthy}}}
		past = noteUnhealthy(past, m, start.Add(at))
		return m.Members[0].Silent
	}
	g.Expect(silent(0, false)).To(BeZero())
	g.Expect(silent(20*time.Second, false)).To(Equal(20 * time.Second))
	past = noteUnhealthy(past, &quorum.Membership{Problem: "it was not read"}, start.Add(30*time.Second))
	g.Expect(silent(40*time.Second, false)).To(Equal(40 * time.Second))
	g.Expect(silent(50*time.Second, true)).To(BeZero())
	g.Expect(silent(60*time.Second, false)).To(BeZero())
	g.Expect(silent(70*time.Second, false)).NotTo(BeZero())
	past = history.Since[history.Standstill]{}
	g.Expect(silent(80*time.Second, false)).To(BeZero())
}

// Two readings that missed a member, with a pause between them, say nothing of the time between; nor does a clock that
// was set back.
func TestSilenceIsNotCountedOverAPause(t *testing.T) {
	g := NewWithT(t)
	past := history.Since[history.Standstill]{}
	start := time.Now()
	silent := func(at time.Duration) time.Duration {
		m := &quorum.Membership{Known: true, Agreed: true, Members: []quorum.Member{{ID: 7}}}
		past = noteUnhealthy(past, m, start.Add(at))
		return m.Members[0].Silent
	}
	g.Expect(silent(0)).To(BeZero())
	g.Expect(silent(time.Hour)).To(BeZero())
	g.Expect(silent(time.Hour + time.Minute)).To(Equal(time.Minute))
	g.Expect(silent(time.Minute)).To(BeZero())
	g.Expect(silent(2 * time.Minute)).To(Equal(time.Minute))
}

// A voter whose database is full votes all the same, and one that nobody could ask may: what comes after that, such as a
// restart while there is made room, is no end of a long silence.
func TestAFullDatabaseIsNoSilence(t *testing.T) {
	g := NewWithT(t)
	start := time.Now()
	for _, before := range []quorum.Member{{ID: 7, Full: true}, {ID: 7, Unasked: true}} {
		past, last := history.Since[history.Standstill]{}, time.Duration(0)
		for i, member := range []quorum.Member{before, before, {ID: 7}, {ID: 7}} {
			m := &quorum.Membership{Known: true, Agreed: true, Members: []quorum.Member{member}}
			past = noteUnhealthy(past, m, start.Add(time.Duration(i)*time.Minute))
			last = m.Members[0].Silent
		}
		g.Expect(last).To(Equal(time.Minute))
	}
}

// A voter without a Machine that is silent is one that nobody could ask as soon as another voter is late in one
// reading. It is silent for no time then, and its silence goes on in the next one. It does not go on over a longer
// time, in which it may have voted, nor once it was heard, or nobody agreed.
func TestSilenceGoesOnAfterAReadingThatCouldNotAsk(t *testing.T) {
	g := NewWithT(t)
	past, start := history.Since[history.Standstill]{}, time.Now()
	silent, unasked := quorum.Member{ID: 7}, quorum.Member{ID: 7, Unasked: true}
	at := func(at time.Duration, agreed bool, member quorum.Member) quorum.Member {
		m := &quorum.Membership{Known: true, Agreed: agreed, Members: []quorum.Member{{ID: 1, Healthy: true}, member}}
		past = noteUnhealthy(past, m, start.Add(at))
		return m.Members[1]
	}
	for i := range 10 {
		minute := time.Duration(i) * time.Minute
		g.Expect(at(minute, true, silent).Silent).To(Equal(minute))
		late := at(minute+30*time.Second, true, unasked)
		g.Expect(late.Silent).To(BeZero())
		g.Expect(late.State(0)).To(Equal(quorum.MemberUnasked))
	}
	g.Expect(at(10*time.Minute, true, silent).Silent).To(Equal(10 * time.Minute))

	type reading struct {
		agreed bool
		member quorum.Member
	}
	for name, between := range map[string]reading{
		"it is heard":               {true, quorum.Member{ID: 7, Healthy: true}},
		"its database is full":      {true, quorum.Member{ID: 7, Full: true, Unasked: true}},
		"nobody agrees":             {false, silent},
		"nobody agrees, or asks it": {false, unasked},
	} {
		past = history.Since[history.Standstill]{}
		at(0, true, silent)
		g.Expect(at(time.Minute, true, silent).Silent).To(Equal(time.Minute))
		at(2*time.Minute, between.agreed, between.member)
		g.Expect(at(3*time.Minute, true, silent).Silent).To(BeZero(), name)
	}
	past = history.Since[history.Standstill]{}
	at(0, true, silent)
	at(4*time.Minute, true, unasked)
	at(6*time.Minute, true, unasked)
	g.Expect(at(7*time.Minute, true, silent).Silent).To(BeZero(), "for longer nobody could ask")
	past = history.Since[history.Standstill]{}
	at(0, true, unasked)
	g.Expect(at(time.Minute, true, silent).Silent).To(BeZero(), "it does not begin with one that could not ask")
}

// A voter that hangs and goes on now and then has a slow disk. Silence counts in readings in which others agreed.
func TestAVoterIsStuckWhenItComesNoFurtherWhileOthersAgree(t *testing.T) {
	g := NewWithT(t)
	past, start := history.Since[history.Standstill]{}, time.Now()
	silent := func(at time.Duration, agreed bool, syncs uint64) time.Duration {
		o := &Observation{Inventory: Inventory{Subject: Subject{
			ControlPlane: &controlplanev1.QuoinControlPlane{}}}}
		o.Etcd.Cluster = etcd.Cluster{Agreed: agreed, Members: []etcd.Member{{ID: 7, Hangs: agreed, Syncs: syncs}}}
		m := o.Membership()
		past = noteUnhealthy(past, &m, start.Add(at))
		return m.Members[0].Silent
	}
	for i := range 20 {
		g.Expect(silent(time.Duration(i)*time.Minute, true, uint64(i))).To(BeZero(), "it is slow")
	}
	g.Expect(silent(20*time.Minute, true, 19)).To(Equal(time.Minute))
	g.Expect(silent(21*time.Minute, true, 20)).To(BeZero(), "once more it came further")
	g.Expect(silent(22*time.Minute, true, 20)).To(Equal(time.Minute))
	g.Expect(silent(23*time.Minute, false, 20)).To(BeZero(), "nobody agrees")
	g.Expect(silent(24*time.Minute, true, 20)).To(BeZero())
	g.Expect(silent(25*time.Minute, true, 20)).To(Equal(time.Minute))
	for i := range 4 {
		at := time.Duration(i) * time.Minute
		g.Expect(silent(26*time.Minute+at, true, []uint64{0, 20}[i%2])).To(Equal(2*time.Minute+at), "it says so now and then")
	}
	g.Expect(silent(30*time.Minute, true, 0)).To(Equal(6 * time.Minute))
	g.Expect(silent(31*time.Minute, true, 21)).To(BeZero(), "meanwhile it came further")
}

// A voter that hangs does not always say how far its disk has come: meanwhile it is what it was, lest what is decided
// and what status tells change with each look. Once it was healthy, nothing of that counts.
func TestAVoterThatHangsStaysWhatItIsWhileItDoesNotSay(t *testing.T) {
	g := NewWithT(t)
	past, start := history.Since[history.Standstill]{}, time.Now()
	state := func(i int, member quorum.Member) quorum.MemberState {
		member.ID = 7
		m := &quorum.Membership{Known: true, Agreed: true, Members: []quorum.Member{member}}
		past = noteUnhealthy(past, m, start.Add(time.Duration(i)*time.Second))
		return m.Members[0].State(time.Minute)
	}
	for i, syncs := range []uint64{20, 0, 20, 0, 0, 21, 0} {
		g.Expect(state(i, quorum.Member{Progress: syncs})).To(Equal(quorum.MemberSlow))
	}
	g.Expect(state(10, quorum.Member{Healthy: true})).To(Equal(quorum.MemberHealthy))
	g.Expect(state(11, quorum.Member{})).To(Equal(quorum.MemberWavering))
	g.Expect(state(71, quorum.Member{})).To(Equal(quorum.MemberDead))
}

// A quorum is away from the first reading in which nobody agreed to the first in which somebody does, however many look
// healthy meanwhile: voters whose disks hang name their old leader. A reading that failed, or a manager that was frozen
// for an hour, counts for nothing.
func TestAQuorumIsAwayFromTheFirstReadingThatMissedIt(t *testing.T) {
	g := NewWithT(t)
	past, start := history.Since[struct{}]{}, time.Now()
	away := func(at time.Duration, m quorum.Membership) (lasts time.Duration) {
		past, lasts = noteNoQuorum(past, m, start.Add(at))
		return lasts
	}
	of := func(agreed bool, healthy ...bool) quorum.Membership {
		m := quorum.Membership{Known: true, Agreed: agreed}
		for _, each := range healthy {
			m.Members = append(m.Members, quorum.Member{Healthy: each})
		}
		return m
	}
	lost := of(false, true, false, false)
	g.Expect(away(0, of(true, true, true, false))).To(BeZero())
	g.Expect(away(time.Hour, lost)).To(BeZero())
	g.Expect(away(time.Hour+time.Minute, lost)).To(Equal(time.Minute))
	g.Expect(away(time.Hour+2*time.Minute, quorum.Membership{})).To(BeZero())
	g.Expect(away(time.Hour+3*time.Minute, lost)).To(Equal(3 * time.Minute))
	g.Expect(away(time.Hour+4*time.Minute, of(false, true, true, false))).To(Equal(4*time.Minute), "they may hang")
	away(time.Hour+5*time.Minute, of(true, true, true, false))
	g.Expect(away(time.Hour+6*time.Minute, of(false, true, true, true))).To(BeZero())
	g.Expect(away(time.Hour+7*time.Minute, lost)).To(Equal(time.Minute))
	away(time.Hour+8*time.Minute, of(true, true, false, false))
	g.Expect(away(time.Hour+9*time.Minute, lost)).To(BeZero(), "who agrees has a quorum, whoever looks ill")
	g.Expect(away(3*time.Hour, lost)).To(BeZero())
}

// A manager that starts again goes on with the silence that the one before wrote down, as it would have itself: not when
// nobody looked for longer than five minutes, nor with a member that has come further, nor with what was healthy since.
func TestSilenceOutlivesARestart(t *testing.T) {
	const nine = 9 * time.Minute
	for name, c := range map[string]struct {
		gap    time.Duration
		change func(*etcd.Member, *controlplanev1.EtcdMember)
		silent time.Duration
	}{
		"it does":                {gap: time.Minute, silent: nine + time.Minute},
		"nobody looked for long": {gap: 5*time.Minute + time.Second},
		"the clock was set back": {gap: -time.Second},
		"it is well": {gap: time.Minute,
			change: func(m *etcd.Member, _ *controlplanev1.EtcdMember) { m.Answers = true }},
		"nothing was known of it": {gap: time.Minute,
			change: func(_ *etcd.Member, was *controlplanev1.EtcdMember) { was.SilentSince = metav1.Time{} }},
		"it is another one": {gap: time.Minute,
			change: func(_ *etcd.Member, was *controlplanev1.EtcdMember) { was.ID = "4" }},
		"it hangs where it did": {gap: time.Minute, silent: nine + time.Minute,
			change: func(m *etcd.Member, was *controlplanev1.EtcdMember) { m.Syncs, was.Syncs = 7, ptr.To[int64](7) }},
		"it hangs, and does not say": {gap: time.Minute, silent: nine + time.Minute,
			change: func(_ *etcd.Member, was *controlplanev1.EtcdMember) { was.Syncs = ptr.To[int64](7) }},
		"it has come further": {gap: time.Minute,
			change: func(m *etcd.Member, was *controlplanev1.EtcdMember) { m.Syncs, was.Syncs = 8, ptr.To[int64](7) }},
	} {
		t.Run(name, func(t *testing.T) {
			g, start := NewWithT(t), time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
			was := controlplanev1.EtcdMember{Name: "n-b", ID: "2", SilentSince: metav1.NewTime(start)}
			look := func(at time.Time, past history.Past) (quorum.Member, history.Past) {
				o := threeMembers()
				o.Cluster, o.At, o.Etcd.ReadAt = &clusterv1.Cluster{}, at, at
				member := &o.Etcd.Cluster.Members[1]
				member.Answers = false
				if c.change != nil {
					c.change(member, &was)
				}
				o.ControlPlane.Status.Etcd = &controlplanev1.EtcdStatus{Members: []controlplanev1.EtcdMember{was},
					ObservedTime: metav1.NewTime(start.Add(nine))}
				built, next := buildState(o, past, Delays{})
				return built.State.Etcd.Members[1], next
			}
			member, past := look(start.Add(nine+c.gap), history.Past{})
			g.Expect(member.Silent).To(Equal(c.silent))
			// What the process saw itself goes before what is written down.
			past.Unhealthy = history.Since[history.Standstill]{}
			member, _ = look(start.Add(nine+c.gap), past)
			g.Expect(member.Silent).To(BeZero())
		})
	}
}

// What another process has seen makes nobody dead at the first look of this one: the member may have been late in one
// reading of each, and well between. Once this one has seen it for long enough itself, all of it counts. While nobody
// could ask the member, nothing was seen.
func TestARecalledSilenceCountsOnceItIsSeen(t *testing.T) {
	const after = 30 * time.Second
	g, start := NewWithT(t), time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	past := history.Past{}
	look := func(at time.Duration, change ...func(*etcd.Member)) quorum.Member {
		o := threeMembers()
		o.Cluster, o.At, o.Etcd.ReadAt = &clusterv1.Cluster{}, start.Add(at), start.Add(at)
		member := &o.Etcd.Cluster.Members[1]
		member.Answers = false
		for _, change := range change {
			change(member)
		}
		o.ControlPlane.Status.Etcd = &controlplanev1.EtcdStatus{ObservedTime: metav1.NewTime(start),
			Members: []controlplanev1.EtcdMember{{Name: "n-b", ID: "2", SilentSince: metav1.NewTime(start)}}}
		built, next := buildState(o, past, Delays{DeadMember: after})
		past = next
		return built.State.Etcd.Members[1]
	}
	const first = 40 * time.Second
	for at := first; at < first+after; at += time.Second {
		member := look(at)
		g.Expect(member.State(after)).To(Equal(quorum.MemberWavering), "after %s", at)
		g.Expect(member.Silent+member.Recalled).To(Equal(at), "the next process is to know it")
	}
	member := look(first + after)
	g.Expect(member.State(after)).To(Equal(quorum.MemberDead))
	g.Expect(member.Silent).To(Equal(first + after))
	g.Expect(member.Recalled).To(BeZero())

	past = history.Past{}
	unasked := func(m *etcd.Member) { m.Name, m.ReportedBy, m.PeerAddresses, m.Unasked = "n-d", "", nil, true }
	g.Expect(look(first, unasked).State(after)).To(Equal(quorum.MemberUnasked))
	for at := first + after; at < first+2*after; at += after / 2 {
		g.Expect(look(at).State(after)).To(Equal(quorum.MemberWavering))
	}
	g.Expect(look(first + 2*after).Silent).To(Equal(first + 2*after))
}

// Two looks minutes apart, as of a manager that got no processor between them, make nobody dead: the member may have been
// late in both, and well between. A third look that finds it silent counts all of it.
func TestTwoLooksMakeNobodyDead(t *testing.T) {
	const after = 30 * time.Second
	g, start := NewWithT(t), time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	past := history.Past{}
	look := func(at time.Duration) quorum.Member {
		o := threeMembers()
		o.Cluster, o.At, o.Etcd.ReadAt = &clusterv1.Cluster{}, start.Add(at), start.Add(at)
		o.Etcd.Cluster.Members[1].Answers = false
		built, next := buildState(o, past, Delays{DeadMember: after})
		past = next
		return built.State.Etcd.Members[1]
	}
	g.Expect(look(0).State(after)).To(Equal(quorum.MemberWavering))
	member := look(4 * time.Minute)
	g.Expect(member.State(after)).To(Equal(quorum.MemberWavering))
	g.Expect(member.Silent+member.Recalled).To(Equal(4*time.Minute), "the next process is to know it")
	g.Expect(member.Silent).To(Equal(after/2), "two looks count for half of that")
	g.Expect(look(4*time.Minute).State(after)).To(Equal(quorum.MemberWavering), "a second observation of the same reading")
	member = look(4*time.Minute + 2*time.Second)
	g.Expect(member.State(after)).To(Equal(quorum.MemberDead))
	g.Expect(member.Silent).To(Equal(4*time.Minute + 2*time.Second))
	g.Expect(member.Recalled).To(BeZero())
}

// How long a quorum is waited for counts from the reading that missed it first. Where no member answers, from the first
// that showed none: a recovery may be asked for all the same. One that fails says nothing of the election that the next
// one meets.
func TestWhereNobodyAnswersAQuorumIsWaitedForAsLong(t *testing.T) {
	g := NewWithT(t)
	past, start := history.Past{}, time.Now()
	grace := func(at time.Duration, answers, agreed bool) (wait time.Duration) {
		read := threeMembers()
		read.Cluster, read.At, read.Etcd.ReadAt = &clusterv1.Cluster{}, start.Add(at), start.Add(at)
		read.Etcd.Cluster.Agreed = agreed
		if !answers {
			read.Etcd.Err = errors.New("no member answered")
		}
		concluded, next := buildState(read, past, Delays{})
		past = next
		return concluded.State.ElectionGrace
	}
	const no, yes = false, true
	g.Expect(grace(0, no, no)).To(Equal(time.Minute))
	g.Expect(grace(59*time.Second, no, no)).To(Equal(time.Minute))
	g.Expect(grace(60*time.Second, no, no)).To(BeZero())
	g.Expect(grace(61*time.Second, yes, no)).To(Equal(time.Minute), "it may be electing")
	g.Expect(grace(62*time.Second, no, no)).To(BeZero(), "nobody has shown a quorum for a minute")
	g.Expect(grace(121*time.Second, yes, no)).To(BeZero())
	g.Expect(grace(122*time.Second, yes, yes)).To(Equal(time.Minute))
	g.Expect(grace(182*time.Second, no, no)).To(Equal(time.Minute))
	g.Expect(grace(242*time.Second, yes, no)).To(Equal(time.Minute))
	g.Expect(grace(243*time.Second, no, no)).To(BeZero())
	g.Expect(grace(3*time.Hour, no, no)).To(Equal(time.Minute), "nobody looked for hours")
}

// Cluster API tells where it has come to a moment before it tells that it has drained: nothing is evicted for that.
func TestASkippedDrainIsBelievedWhenItStaysSo(t *testing.T) {
	g := NewWithT(t)
	past := history.Since[string]{}
	now := time.Now()
	look := func(after time.Duration, undrained bool) (controlplane.Machine, bool) {
		machines := []controlplane.Machine{{Name: "other", AtTermination: true},
			{Name: "m", AtTermination: true, Undrained: undrained}}
		var doubtful bool
		past, doubtful = debounceDrains(past, machines, now.Add(after), time.Second)
		g.Expect(machines[0].AtTermination).To(BeTrue())
		return machines[1], doubtful
	}
	seen, doubtful := look(0, true)
	g.Expect(doubtful).To(BeTrue())
	g.Expect(seen.AtTermination).To(BeFalse(), "else its member would go without a drain")
	g.Expect(seen.Undrained).To(BeFalse())

	seen, doubtful = look(100*time.Millisecond, false)
	g.Expect(doubtful).To(BeFalse())
	g.Expect(seen.AtTermination).To(BeTrue(), "it was drained after all")

	_, doubtful = look(2*time.Second, true)
	g.Expect(doubtful).To(BeTrue(), "what was seen before counts no more")
	seen, doubtful = look(3*time.Second, true)
	g.Expect(doubtful).To(BeFalse())
	g.Expect(seen.Undrained && seen.AtTermination).To(BeTrue(), "now it is believed")
	seen, _ = look(4*time.Second, true)
	g.Expect(seen.Undrained).To(BeTrue())

	past = history.Since[string]{}
	_, doubtful = look(5*time.Second, true)
	g.Expect(doubtful).To(BeTrue())
}

// The last that a host said before it was lost is that its bootstrap data run. Once it is known not to run, or nobody
// waits for it any more, or what ran there has ended by its own time, nothing joins there.
func TestAHostThatIsLostDoesNotJoin(t *testing.T) {
	infra := &infrav1.QuoinMachine{}
	infra.Spec.ProviderID = infrav1.ProviderID("metal", "h", "c1")
	for name, test := range map[string]struct {
		state                     infrav1.HostState
		condition, status, reason string
		joins                     bool
		silent                    time.Duration
	}{
		"silent":  {joins: true, silent: time.Hour - time.Minute},
		"lost":    {silent: time.Hour},
		"fenced":  {condition: infrav1.HostFencedCondition, status: "True", reason: "PoweredOff"},
		"running": {condition: infrav1.HostFencedCondition, status: "False", reason: "PoweredOn", joins: true},
		"abandoned": {infrav1.HostStateQuarantined, infrav1.HostCleanCondition, "False", infrav1.HostAbandonedReason,
			false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			host := &infrav1.QuoinHost{}
			host.Status.State = test.state
			host.Status.Operation = &infrav1.HostOperation{ID: infrav1.ProvisionOperation("c1"),
				Phase: infrav1.HostOperationRunning}
			if test.condition != "" {
				host.Status.Conditions = []metav1.Condition{{Type: test.condition, Status: metav1.ConditionStatus(test.status),
					Reason: test.reason}}
			}
			running, ended := joining(host, infra, test.silent)
			NewWithT(t).Expect(running).To(Equal(test.joins))
			NewWithT(t).Expect(ended).To(BeFalse())
		})
	}
}

// Whoever registers hosts in another namespace names any failure domain, and silences any number of them.
func TestAFailureDomainIsLostByTheHostsOfItsNamespace(t *testing.T) {
	g := NewWithT(t)
	silent := func(namespace, name string) infrav1.QuoinHost {
		host := infrav1.QuoinHost{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
		host.Spec.FailureDomain, host.Status.State = "rack-a", infrav1.HostStateProvisioned
		host.Status.UnreachableSince = &metav1.Time{Time: time.Date(2026, 11, 25, 8, 0, 0, 0, time.UTC)}
		return host
	}
	mine, strangers := silent("hosts", "h1"), []infrav1.QuoinHost{silent("other", "h2"), silent("other", "h3")}
	lost := lostDomains(append(strangers, mine))
	g.Expect(lost).To(HaveKey(fieldindex.DomainOf(&strangers[0])))
	g.Expect(lost).NotTo(HaveKey(fieldindex.DomainOf(&mine)))
	lost = lostDomains([]infrav1.QuoinHost{mine, silent("hosts", "h2")})
	g.Expect(lost[fieldindex.DomainOf(&mine)]).To(HavePrefix("failure domain rack-a is lost: 2 of 2 hosts"))
}

// Hosts that nobody tries to reach, or that are in no failure domain, prove nothing.
func TestWhichSilenceMakesAFailureDomainLost(t *testing.T) {
	in := func(state infrav1.HostState) func(*infrav1.QuoinHost) {
		return func(h *infrav1.QuoinHost) { h.Status.State = state }
	}
	for name, test := range map[string]struct {
		change     func(*infrav1.QuoinHost)
		both, lost bool
	}{
		"both are silent":        {func(*infrav1.QuoinHost) {}, false, true},
		"one answers":            {func(h *infrav1.QuoinHost) { h.Status.UnreachableSince = nil }, false, false},
		"one is elsewhere":       {func(h *infrav1.QuoinHost) { h.Spec.FailureDomain = "rack-b" }, false, false},
		"they are anywhere":      {func(h *infrav1.QuoinHost) { h.Spec.FailureDomain = "" }, true, false},
		"one is new":             {in(""), false, false},
		"one was never reached":  {in(infrav1.HostStateRegistering), false, false},
		"one is kept apart":      {in(infrav1.HostStateQuarantined), false, false},
		"one is left to people":  {func(h *infrav1.QuoinHost) { note(h, infrav1.DetachedAnnotation) }, false, false},
		"both have another name": {func(h *infrav1.QuoinHost) { h.Spec.FailureDomain = "rack-b" }, true, true},
	} {
		fleet := make([]infrav1.QuoinHost, 2)
		for i := range fleet {
			fleet[i].Spec.FailureDomain, fleet[i].Status.State = "rack-a", infrav1.HostStateProvisioned
			fleet[i].Status.UnreachableSince = ptr.To(metav1.NewTime(noon))
			if test.both || i == 1 {
				test.change(&fleet[i])
			}
		}
		NewWithT(t).Expect(lostDomains(fleet)).To(HaveLen(map[bool]int{true: 1}[test.lost]), name)
	}
}

// Each thing that is read of a Machine's health is one thing that a decision knows, and nothing else changes by it.
func TestWhatADecisionKnowsOfTheHealthOfAMachine(t *testing.T) {
	type health = controlplane.Health
	is := func(kind string, status metav1.ConditionStatus, reason, message string) func(*Observation) {
		return func(o *Observation) {
			conditions.Set(o.Machines["a"], metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message,
				LastTransitionTime: metav1.NewTime(noon)})
		}
	}
	const yes, no = metav1.ConditionTrue, metav1.ConditionFalse
	failed := is(clusterv1.MachineHealthCheckSucceededCondition, no, "NodeNotReady", "it is not ready")
	unsaid := is(clusterv1.MachineHealthCheckSucceededCondition, no, "NodeNotReady", "")
	passed := is(clusterv1.MachineHealthCheckSucceededCondition, yes, "Succeeded", "it is ready")
	unremedied := is(clusterv1.MachineOwnerRemediatedCondition, no, "Waiting", "")
	deleted := is(clusterv1.MachineInfrastructureReadyCondition, no, clusterv1.MachineInfrastructureDeletedReason, "")
	unready := is(clusterv1.MachineInfrastructureReadyCondition, no, clusterv1.MachineInfrastructureNotReadyReason, "")
	torn := func(o *Observation) { o.QuoinMachines = nil }
	ill := is(controlplanev1.MachineEtcdMemberHealthyCondition, no, "Ill", "")
	full := func(machine string, full bool) func(*Observation) {
		return func(o *Observation) {
			o.State.Etcd.Members = []quorum.Member{{Machine: "z", Full: true}, {Machine: machine, Full: full}}
		}
	}
	silent := func(o *Observation) { o.Hosts["a"].Status.UnreachableSince = ptr.To(metav1.NewTime(noon)) }
	answers := func(status metav1.ConditionStatus) func(*Observation) {
		return func(o *Observation) {
			conditions.Set(o.Hosts["a"], metav1.Condition{Type: infrav1.HostReachableCondition, Status: status, Reason: "R",
				LastTransitionTime: metav1.NewTime(noon)})
		}
	}
	for name, test := range map[string]struct {
		changes []func(*Observation)
		want    func(*health)
	}{
		"nothing": {nil, func(*health) {}},
		"a person wants it replaced": {[]func(*Observation){func(o *Observation) {
			note(o.Machines["a"], clusterv1.RemediateMachineAnnotation)
		}}, func(h *health) { h.ByHand = true }},
		"a person does not": {[]func(*Observation){func(o *Observation) {
			note(o.Machines["a"], clusterv1.PausedAnnotation)
		}}, func(h *health) {
			h.Spared = "it is paused. Take the annotation " + clusterv1.PausedAnnotation + " off to have it replaced"
		}},
		"it replaces another": {[]func(*Observation){func(o *Observation) {
			o.Machines["a"].Annotations = map[string]string{controlplanev1.RemediationForAnnotation: attempted("z", noon)}
		}}, func(h *health) { h.Replaces = &controlplane.Attempt{Machine: "z", Time: noon, RetryCount: 2} }},
		"its health check says why": {[]func(*Observation){failed, unremedied},
			func(h *health) { h.Marked = "it is not ready" }},
		"its health check says what": {[]func(*Observation){unsaid, unremedied},
			func(h *health) { h.Marked = "NodeNotReady" }},
		"its health check asks not us": {[]func(*Observation){failed}, func(*health) {}},
		"its health check passed":      {[]func(*Observation){passed, unremedied}, func(*health) {}},
		"nothing checks it":            {[]func(*Observation){unremedied}, func(*health) {}},
		"its infrastructure is deleted": {[]func(*Observation){func(o *Observation) {
			o.QuoinMachines["a"].DeletionTimestamp = ptr.To(metav1.Now())
		}}, func(h *health) { h.InfrastructureGone = true }},
		"its infrastructure was deleted": {[]func(*Observation){torn, deleted},
			func(h *health) { h.InfrastructureGone = true }},
		"its infrastructure is back":           {[]func(*Observation){deleted}, func(*health) {}},
		"its infrastructure is only not ready": {[]func(*Observation){torn, unready}, func(*health) {}},
		"nobody knows of its infrastructure":   {[]func(*Observation){torn}, func(*health) {}},
		"it failed": {[]func(*Observation){func(o *Observation) {
			conditions.Set(o.QuoinMachines["a"], metav1.Condition{Type: infrav1.MachineHostProvisionedCondition, Status: no,
				Reason: infrav1.HostStepFailedReason, Message: "exit status 1"})
		}}, func(h *health) { h.Final = "exit status 1" }},
		"its failure domain is lost": {[]func(*Observation){func(o *Observation) {
			o.Hosts["a"].Spec.FailureDomain = "rack"
		}}, func(h *health) { h.DomainLost = "rack is lost" }},
		"its host is silent":           {[]func(*Observation){silent}, func(h *health) { h.SilentSince = noon }},
		"its host answers":             {[]func(*Observation){answers(yes)}, func(h *health) { h.AnswersSince = noon }},
		"its host does not answer yet": {[]func(*Observation){answers(no)}, func(*health) {}},
		"its host is silent since it answered": {[]func(*Observation){answers(yes), silent},
			func(h *health) { h.SilentSince = noon }},
		"it has no host": {[]func(*Observation){func(o *Observation) { o.Hosts = nil }}, func(*health) {}},
		"its Node is lost": {[]func(*Observation){func(o *Observation) {
			o.Workload.Health["a"] = Health{lostSince: noon}
		}}, func(h *health) { h.NodeLostSince = noon }},
		"its Node is Ready": {[]func(*Observation){func(o *Observation) {
			o.Workload.Health["a"] = Health{readySince: noon}
		}}, func(h *health) { h.NodeReadySince = noon }},
		"its member is ill": {[]func(*Observation){ill}, func(h *health) { h.MemberIllSince = noon }},
		"its member is well": {[]func(*Observation){
			is(controlplanev1.MachineEtcdMemberHealthyCondition, yes, "Well", "")}, func(*health) {}},
		"its member is full":     {[]func(*Observation){ill, full("a", true)}, func(*health) {}},
		"its member is not full": {[]func(*Observation){ill, full("a", false)}, func(h *health) { h.MemberIllSince = noon }},
		"another member is full": {[]func(*Observation){ill, full("b", true)}, func(h *health) { h.MemberIllSince = noon }},
	} {
		t.Run(name, func(t *testing.T) {
			o := atNoon()
			for _, change := range test.changes {
				change(o)
			}
			want := health{Born: time.Unix(7, 0)}
			test.want(&want)
			NewWithT(t).Expect(o.healthOf(o.Machines["a"], map[string]string{"hosts/rack": "rack is lost"})).To(Equal(want))
		})
	}
}

// attempted is the second attempt to replace a Machine.
func attempted(machine string, at time.Time) string {
	return fmt.Sprintf(`{"machine":%q,"timestamp":%q,"retryCount":2}`, machine, at.Format(time.RFC3339))
}

// A host that still may become the node is no end.
func TestWhatEndsAMachineForGood(t *testing.T) {
	for reason, final := range map[string]bool{infrav1.HostStepFailedReason: true,
		infrav1.HostBootstrapInterruptedReason: true, infrav1.HostAbandonedReason: true, infrav1.HostDeadReason: true,
		infrav1.HostUnreachableReason: false, "": false} {
		g, infra := NewWithT(t), &infrav1.QuoinMachine{}
		g.Expect(FinalProblem(infra)).To(BeEmpty())
		condition := metav1.Condition{Type: infrav1.MachineHostProvisionedCondition, Status: metav1.ConditionFalse,
			Reason: reason, Message: "why"}
		infra.Status.Conditions = []metav1.Condition{condition}
		g.Expect(FinalProblem(infra)).To(Equal(map[bool]string{true: "why"}[final]), reason)
		infra.Status.Conditions[0].Status = metav1.ConditionTrue
		g.Expect(FinalProblem(infra)).To(BeEmpty(), reason)
	}
}

func TestWhatIsNoAttempt(t *testing.T) {
	for _, value := range []string{"", "{", "[]", "{}", `{"retryCount":3}`} {
		NewWithT(t).Expect(AttemptFrom(value)).To(BeNil(), value)
	}
}

// The terms of remediation are the user's, and an attempt is under way until a Machine carries it.
func TestTheTermsOfRemediation(t *testing.T) {
	g, o := NewWithT(t), atNoon()
	o.At = noon.Add(time.Millisecond).In(time.FixedZone("east", 3600))
	o.State.Machines = []controlplane.Machine{{Name: "a"}}
	terms := func() controlplane.Remediation {
		o.fillHealth()
		return o.State.Remediation
	}
	g.Expect(terms()).To(Equal(controlplane.Remediation{Now: noon}))
	g.Expect(o.State.Machines[0].Health.Born).To(Equal(time.Unix(7, 0)))

	wanted := &o.ControlPlane.Spec.Remediation
	wanted.MaxRetry, wanted.RetryPeriodSeconds, wanted.MinHealthyPeriodSeconds = ptr.To[int32](3), ptr.To[int32](60),
		ptr.To[int32](7200)
	o.Cluster.Spec.Topology.ClassRef.Name, o.Cluster.Spec.Topology.Version = "class", "v1.37.0"
	g.Expect(terms()).To(Equal(controlplane.Remediation{Now: noon, MaxRetry: ptr.To(3),
		RetryPeriod: ptr.To(time.Minute), MinHealthyPeriod: ptr.To(2 * time.Hour),
		Deferred: "version v1.37.0 has yet to come from the Cluster's topology"}))

	// A Machine goes on to carry the attempt that it was made for when that is over.
	o.Machines["a"].Annotations = map[string]string{controlplanev1.RemediationForAnnotation: attempted("z", noon)}
	g.Expect(terms().Pending).To(BeNil())
	o.ControlPlane.Annotations = map[string]string{controlplanev1.RemediationInProgressAnnotation: attempted("z", noon)}
	pending := &controlplane.Attempt{Machine: "z", Time: noon, RetryCount: 2}
	for carried, want := range map[string]*controlplane.Attempt{"": pending, attempted("z", noon): nil,
		attempted("y", noon): pending, attempted("z", noon.Add(time.Second)): pending} {
		o.Machines["a"].Annotations = map[string]string{controlplanev1.RemediationForAnnotation: carried}
		g.Expect(terms().Pending).To(Equal(want), carried)
	}
	// One that had no host is deleted and made again: what is made next is still for z.
	o.Machines["a"].Annotations = map[string]string{controlplanev1.RemediationForAnnotation: attempted("z", noon)}
	o.State.Machines[0].Deleting = true
	g.Expect(terms().Pending).To(Equal(pending))
}

// Where there was nobody to ask, etcd was read at no time at all, and a quorum is waited for by the clock.
func TestWhereNobodyCanBeAskedAQuorumIsWaitedForByTheClock(t *testing.T) {
	g, past := NewWithT(t), history.Past{}
	grace := func(at time.Duration) time.Duration {
		read := atNoon()
		read.At, read.Etcd.Err = noon.Add(at), errors.New("no Machine has a host and a Node yet")
		built, next := buildState(read, past, Delays{})
		past = next
		return built.State.ElectionGrace
	}
	g.Expect(grace(0)).To(Equal(time.Minute))
	g.Expect(grace(59 * time.Second)).To(Equal(time.Minute))
	g.Expect(grace(time.Minute)).To(BeZero())
}

// What another process wrote down of a member is read as it was written: an id is hexadecimal and of 64 bits. A count
// that is less than none, as a hand may have left it in status, is none.
func TestWhatIsRecalledOfAMember(t *testing.T) {
	const id, long = "8e9e05c52164694d", uint64(0x8e9e05c52164694d)
	since := metav1.NewTime(noon)
	for name, test := range map[string]struct {
		member controlplanev1.EtcdMember
		want   []history.Standstill
	}{
		"it is silent": {controlplanev1.EtcdMember{ID: id, SilentSince: since}, []history.Standstill{{Member: long}}},
		"it hangs": {controlplanev1.EtcdMember{ID: id, SilentSince: since, Syncs: ptr.To[int64](7)},
			[]history.Standstill{{Member: long, Progress: 7}}},
		"it hangs, with less than no count": {controlplanev1.EtcdMember{ID: id, SilentSince: since,
			Syncs: ptr.To[int64](-7)}, []history.Standstill{{Member: long}}},
		"it is well":     {controlplanev1.EtcdMember{ID: id}, nil},
		"its id is none": {controlplanev1.EtcdMember{ID: "n-b", SilentSince: since}, nil},
	} {
		o := threeMembers()
		o.ControlPlane.Status.Etcd = &controlplanev1.EtcdStatus{Members: []controlplanev1.EtcdMember{test.member},
			ObservedTime: since}
		NewWithT(t).Expect(o.recallUnhealthy().Parts()).To(ConsistOf(test.want), name)
	}
}
