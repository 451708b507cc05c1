// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/controllers/quoincontrolplane/history"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/steady"
)

// A manager whose clock is set forward by a day, or that was frozen for one, has seen nothing for so long: whatever it
// judges by a time that it reads somewhere began a minute ago before and after.
func TestAStepOfTheClockMakesNobodyDeadOrStuckOrGivenUp(t *testing.T) {
	began := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	healthSince := func(o *Observation, m *clusterv1.Machine, of func(controlplane.Health) time.Time) time.Duration {
		return o.At.Sub(of(o.healthOf(m, nil)))
	}
	for name, ago := range map[string]func(*Observation, *clusterv1.Machine) time.Duration{
		"a host is silent, as the planner has it": func(o *Observation, m *clusterv1.Machine) time.Duration {
			return healthSince(o, m, func(h controlplane.Health) time.Time { return h.SilentSince })
		},
		"a host is silent, which ends its join and the wait for its API server": func(
			o *Observation, _ *clusterv1.Machine,
		) time.Duration {
			return o.silence(o.Hosts["m"])
		},
		"a host answers": func(o *Observation, m *clusterv1.Machine) time.Duration {
			o.Hosts["m"].Status.UnreachableSince = nil
			return healthSince(o, m, func(h controlplane.Health) time.Time { return h.AnswersSince })
		},
		"a member is ill, is a learner, or has not started": func(o *Observation, m *clusterv1.Machine) time.Duration {
			return healthSince(o, m, func(h controlplane.Health) time.Time { return h.MemberIllSince })
		},
		"a kubelet does not report": func(o *Observation, m *clusterv1.Machine) time.Duration {
			return healthSince(o, m, func(h controlplane.Health) time.Time { return h.NodeLostSince })
		},
		"a Node is Ready": func(o *Observation, m *clusterv1.Machine) time.Duration {
			return healthSince(o, m, func(h controlplane.Health) time.Time { return h.NodeReadySince })
		},
		"a replacement was tried": func(o *Observation, m *clusterv1.Machine) time.Duration {
			return healthSince(o, m, func(h controlplane.Health) time.Time { return h.Replaces.Time })
		},
		"an API server was asked to end": func(o *Observation, _ *clusterv1.Machine) time.Duration {
			o.Hosts["m"].Status.UnreachableSince = nil
			state, _ := apiServerOf(o.Hosts["m"], o.QuoinMachines["m"], o.ago, 2*time.Minute)
			if state != controlplane.APIServerLeaving {
				return 2 * time.Minute
			}
			return time.Minute
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			wall, elapsed := began, time.Duration(0)
			clock := steady.From(func() time.Time { return wall }, func() time.Duration { return elapsed })
			wall, elapsed = wall.Add(24*time.Hour+time.Minute), time.Minute

			at := metav1.NewTime(began)
			machine := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "m", UID: types.UID("m"),
				Annotations: map[string]string{controlplanev1.RemediationForAnnotation: fmt.Sprintf(
					`{"machine":"m0","timestamp":%q,"retryCount":1}`, began.Format(time.RFC3339))}}}
			conditions.Set(machine, metav1.Condition{Type: controlplanev1.MachineEtcdMemberHealthyCondition,
				Status: metav1.ConditionFalse, Reason: "Ill", LastTransitionTime: at})
			host := &infrav1.QuoinHost{}
			host.Spec.ConsumerRef = &infrav1.ConsumerReference{Claim: "1"}
			host.Status.UnreachableSince = &at
			conditions.Set(host, metav1.Condition{Type: infrav1.HostReachableCondition, Status: metav1.ConditionTrue,
				Reason: infrav1.HostReachableReason, LastTransitionTime: at})
			infra := &infrav1.QuoinMachine{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
				infrav1.StopAPIServerAnnotation: began.Format(time.RFC3339)}}}
			infra.Spec.ProviderID = host.ProviderID()
			o := &Observation{At: clock.Now(), steps: steady.StepsOf(clock)}
			o.Hosts, o.QuoinMachines = map[string]*infrav1.QuoinHost{"m": host}, map[string]*infrav1.QuoinMachine{"m": infra}
			o.Workload.Health = map[string]Health{"m": {lostSince: began, readySince: began}}
			g.Expect(ago(o, machine)).To(Equal(time.Minute))
		})
	}
}

// What was written down at noon, by a clock that is set back by three hours then, began when it is first seen to lie
// ahead: neither does it last for three hours at once, nor does anybody wait until noon for it to begin. So it stays
// when the clock comes to noon again.
func TestWhatLiesAheadOfTheClockBeganWhenItWasFirstSeen(t *testing.T) {
	g, past := NewWithT(t), history.Past{}
	look := func(at time.Time) *Observation {
		o := atNoon()
		o.At = at
		machine, host, infra := o.Machines["a"], o.Hosts["a"], o.QuoinMachines["a"]
		machine.DeletionTimestamp = ptr.To(metav1.NewTime(noon))
		o.ControlPlane.Annotations = map[string]string{
			controlplanev1.RemediationInProgressAnnotation: attempted("z", noon)}
		machine.Annotations = map[string]string{controlplanev1.RemediationForAnnotation: attempted("z", noon)}
		conditions.Set(machine, metav1.Condition{Type: controlplanev1.MachineEtcdMemberHealthyCondition,
			Status: metav1.ConditionFalse, Reason: "Ill", LastTransitionTime: metav1.NewTime(noon)})
		conditions.Set(host, metav1.Condition{Type: infrav1.HostReachableCondition, Status: metav1.ConditionTrue,
			Reason: infrav1.HostReachableReason, LastTransitionTime: metav1.NewTime(noon.Add(time.Minute))})
		infra.Status.Initialization.Provisioned = ptr.To(true)
		infra.Annotations = map[string]string{infrav1.StopAPIServerAnnotation: noon.Format(time.RFC3339)}
		built, then := buildState(o, past, Delays{APIServerStop: 4 * time.Minute})
		past = then
		g.Expect(built.State.Remediation.Pending).To(BeNil(), "the Machine carries that attempt, by whatever clock")
		return built
	}
	began := func(at time.Time) []time.Time {
		health := look(at).State.Machines[0].Health
		return []time.Time{health.MemberIllSince, health.AnswersSince, health.Replaces.Time}
	}
	nine := noon.Add(-3 * time.Hour)
	g.Expect(began(nine.Add(time.Second / 2))).To(HaveEach(nine))
	machine := look(nine.Add(4 * time.Minute)).State.Machines[0]
	g.Expect(machine.APIServer).To(Equal(controlplane.APIServerLeaving))
	machine = look(nine.Add(5 * time.Minute)).State.Machines[0]
	g.Expect(machine.APIServer).To(Equal(controlplane.APIServerStays))
	for at := nine.Add(9 * time.Minute); at.Before(noon.Add(time.Hour)); at = at.Add(4 * time.Minute) {
		g.Expect(began(at)).To(HaveEach(nine), "at %s", at)
	}

	// It begins anew with another manager, after a gap in which nobody looked, and when the clock is set back once more.
	past = history.Past{}
	half := nine.Add(30 * time.Minute)
	g.Expect(began(half)).To(HaveEach(half))
	g.Expect(began(half.Add(time.Hour))).To(HaveEach(half.Add(time.Hour)))
	g.Expect(began(nine)).To(HaveEach(nine))

	past = history.Past{}
	g.Expect(began(noon.Add(time.Hour))).To(Equal([]time.Time{noon, noon.Add(time.Minute), noon}))
	g.Expect(past.Ahead.Parts()).To(BeEmpty())
}

// Hosts that are silent since times ahead of the clock did not fall silent together, which is when they were seen so.
func TestSilencesAheadOfTheClockStayApart(t *testing.T) {
	g, o := NewWithT(t), atNoon()
	o.At = noon.Add(-3 * time.Hour)
	o.Hosts["a"].Status.UnreachableSince = ptr.To(metav1.NewTime(noon))
	o.Workload.Health["a"] = Health{lostSince: noon}
	built, _ := buildState(o, history.Past{}, Delays{})
	health := built.State.Machines[0].Health
	g.Expect([]time.Time{health.SilentSince, health.NodeLostSince}).To(HaveEach(BeTemporally("==", noon)))
}

// Our own drain of a Machine ends when its time is over, which is not when the clock is set forward.
func TestAStepOfTheClockEndsNoDrain(t *testing.T) {
	wall, elapsed := noon, time.Duration(0)
	clock := steady.From(func() time.Time { return wall }, func() time.Duration { return elapsed })
	undrained := func() bool {
		o := atNoon()
		o.At, o.steps = clock.Now(), steady.StepsOf(clock)
		machine := o.Machines["a"]
		machine.DeletionTimestamp = ptr.To(metav1.NewTime(noon))
		machine.Status.NodeRef.Name = "n-a"
		machine.Spec.Deletion.NodeDrainTimeoutSeconds = ptr.To[int32](120)
		machine.Annotations = map[string]string{controlplanev1.EvictionStartedAnnotation: noon.Format(time.RFC3339)}
		machine.Status.Conditions = []metav1.Condition{{Type: clusterv1.MachineDeletingCondition,
			Status: metav1.ConditionTrue, Reason: clusterv1.MachineDeletingWaitingForPreTerminateHookReason}}
		return o.stateOf(machine).Undrained
	}
	g := NewWithT(t)
	g.Expect(undrained()).To(BeTrue())
	wall, elapsed = wall.Add(24*time.Hour+time.Minute), time.Minute
	g.Expect(undrained()).To(BeTrue(), "a minute has passed, and not a day")
	wall, elapsed = wall.Add(time.Minute), 2*time.Minute
	g.Expect(undrained()).To(BeFalse())
}
