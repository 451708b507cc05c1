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
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
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
			o := &Observation{clock: clock}
			o.At = clock.Now()
			o.Hosts, o.QuoinMachines = map[string]*infrav1.QuoinHost{"m": host}, map[string]*infrav1.QuoinMachine{"m": infra}
			o.Workload.Health = map[string]Health{"m": {lostSince: began, readySince: began}}
			g.Expect(ago(o, machine)).To(Equal(time.Minute))
		})
	}
}
