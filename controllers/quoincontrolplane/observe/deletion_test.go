// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/cluster-api/util/conditions"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
)

func TestOnlyTheHostOfTheClaimIsAsked(t *testing.T) {
	g := NewWithT(t)
	now := time.Now()
	host := func(change func(*infrav1.QuoinHost)) *infrav1.QuoinHost {
		h := &infrav1.QuoinHost{ObjectMeta: metav1.ObjectMeta{Namespace: "hosts", Name: "h"}}
		h.Spec.ConsumerRef = &infrav1.ConsumerReference{Claim: "1"}
		conditions.Set(h, metav1.Condition{Type: infrav1.HostAPIServerStoppedCondition, Status: metav1.ConditionTrue,
			Reason: infrav1.HostAPIServerStoppedReason})
		change(h)
		return h
	}
	infra := &infrav1.QuoinMachine{Spec: infrav1.QuoinMachineSpec{ProviderID: "quoin://hosts/h/1"}}
	of := func(h *infrav1.QuoinHost) controlplane.APIServer {
		state, _ := apiServerOf(h, infra, now.Sub, time.Minute)
		return state
	}
	none := controlplane.APIServer("")
	g.Expect(of(nil)).To(Equal(none))
	g.Expect(of(host(func(h *infrav1.QuoinHost) { h.Spec.ConsumerRef.Claim = "2" }))).To(Equal(none), "it was reset since")
	g.Expect(of(host(func(h *infrav1.QuoinHost) { h.Spec.ConsumerRef = nil }))).To(Equal(none))
	g.Expect(of(host(func(*infrav1.QuoinHost) {}))).To(Equal(controlplane.APIServerServing),
		"what a host said before it was asked is about another Machine")
	infra.Annotations = map[string]string{infrav1.StopAPIServerAnnotation: now.Format(time.RFC3339)}
	g.Expect(of(host(func(*infrav1.QuoinHost) {}))).To(Equal(controlplane.APIServerLeft))
	g.Expect(of(host(func(h *infrav1.QuoinHost) {
		conditions.Delete(h, infrav1.HostAPIServerStoppedCondition)
	}))).To(Equal(controlplane.APIServerLeaving))
	infra.Annotations[infrav1.StopAPIServerAnnotation] = now.Add(3 * time.Hour).Format(time.RFC3339)
	g.Expect(of(host(func(h *infrav1.QuoinHost) {
		conditions.Delete(h, infrav1.HostAPIServerStoppedCondition)
	}))).To(Equal(controlplane.APIServerLeaving), "the clock was set back, and no time has passed")
}

// Nobody waits longer for an API server to end than it may take, by whatever clock, and what the host says of it counts
// as long as the host answers.
func TestHowFarAnAPIServerHasLeft(t *testing.T) {
	const never, minute = time.Duration(-1 << 62), time.Minute
	type stopped = metav1.Condition
	done := &stopped{Status: metav1.ConditionTrue}
	waits := &stopped{Status: metav1.ConditionFalse, Reason: "Waits", Message: "it waits"}
	says := &stopped{Status: metav1.ConditionFalse, Reason: "Waits"}
	failed := &stopped{Status: metav1.ConditionFalse, Reason: infrav1.HostStepFailedReason, Message: "no such file"}
	for name, test := range map[string]struct {
		asked, silent time.Duration
		condition     *stopped
		want          controlplane.APIServer
		problem       string
	}{
		"not asked":                        {never, never, nil, controlplane.APIServerServing, ""},
		"not asked, and said to be ended":  {never, never, done, controlplane.APIServerServing, ""},
		"not asked, and failed before":     {never, never, failed, controlplane.APIServerServing, ""},
		"not asked, and silent for a bit":  {never, minute, nil, controlplane.APIServerServing, ""},
		"not asked, and silent for longer": {never, minute + 1, nil, controlplane.APIServerStays, "host h does not answer"},
		"asked":                            {minute, never, nil, controlplane.APIServerLeaving, ""},
		"asked, and silent for a bit":      {0, minute, nil, controlplane.APIServerLeaving, ""},
		"asked, and silent for longer":     {0, minute + 1, nil, controlplane.APIServerStays, "host h does not answer"},
		"ended, and silent since":          {0, minute + 1, done, controlplane.APIServerLeft, ""},
		"ended late":                       {minute + time.Second, never, done, controlplane.APIServerLeft, ""},
		"it waits":                         {minute, never, waits, controlplane.APIServerLeaving, ""},
		"it waits for too long": {minute + time.Second, never, waits, controlplane.APIServerStays,
			"host h has not ended it within 1m0s (it waits)"},
		"it says nothing for too long": {minute + time.Second, never, says, controlplane.APIServerStays,
			"host h has not ended it within 1m0s"},
		"the host says nothing for too long": {minute + time.Second, never, nil, controlplane.APIServerStays,
			"host h has not ended it within 1m0s"},
		"it failed":                             {0, never, failed, controlplane.APIServerStays, "no such file"},
		"asked by a clock ahead":                {-minute, never, nil, controlplane.APIServerLeaving, ""},
		"asked by a clock far ahead":            {-3 * time.Hour, never, waits, controlplane.APIServerLeaving, ""},
		"asked, and silent since a clock ahead": {0, -3 * time.Hour, nil, controlplane.APIServerLeaving, ""},
	} {
		t.Run(name, func(t *testing.T) {
			g, o := NewWithT(t), atNoon()
			host, infra := o.Hosts["a"], o.QuoinMachines["a"]
			infra.Status.Initialization.Provisioned = ptr.To(true)
			if test.asked != never {
				note(infra, infrav1.StopAPIServerAnnotation)
				infra.Annotations[infrav1.StopAPIServerAnnotation] = noon.Add(-test.asked).Format(time.RFC3339)
			}
			if test.silent != never {
				host.Status.UnreachableSince = ptr.To(metav1.NewTime(noon.Add(-test.silent)))
			}
			if test.condition != nil {
				host.Status.Conditions = []metav1.Condition{*test.condition}
				host.Status.Conditions[0].Type = infrav1.HostAPIServerStoppedCondition
			}
			fill := func() controlplane.Machine {
				o.State.Machines = []controlplane.Machine{{Name: "a", Deleting: true}}
				o.fillAPIServers(minute)
				return o.State.Machines[0]
			}
			g.Expect(fill()).To(Equal(controlplane.Machine{Name: "a", Deleting: true, APIServer: test.want,
				APIServerProblem: test.problem}))
			host.Status.Conditions = append(host.Status.Conditions, metav1.Condition{Type: infrav1.HostFencedCondition,
				Status: metav1.ConditionTrue})
			g.Expect(fill()).To(Equal(controlplane.Machine{Name: "a", Deleting: true}), "it does not run any more")
		})
	}
}

// Only of a Machine that is being deleted, and that ran, there is an API server to wait for.
func TestWhoseAPIServerIsAskedFor(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*Observation)
		want   controlplane.APIServer
	}{
		"deleted":          {func(*Observation) {}, controlplane.APIServerServing},
		"stays":            {func(o *Observation) { o.State.Machines[0].Deleting = false }, ""},
		"its parts went":   {func(o *Observation) { delete(o.QuoinMachines, "a") }, ""},
		"it was never one": {func(o *Observation) { o.QuoinMachines["a"].Status.Initialization.Provisioned = nil }, ""},
	} {
		o := atNoon()
		o.QuoinMachines["a"].Status.Initialization.Provisioned = ptr.To(true)
		o.State.Machines = []controlplane.Machine{{Name: "a", Deleting: true}}
		test.change(o)
		o.fillAPIServers(time.Minute)
		NewWithT(t).Expect(o.State.Machines[0].APIServer).To(Equal(test.want), name)
	}
}

// Without our hook a host is reset with its member on it.
func TestWhichHostLacksTheHook(t *testing.T) {
	hook := func(name string) func(*Observation) {
		return func(o *Observation) {
			o.QuoinMachines["a"].Spec.LifecycleHooks.PreTerminate = []infrav1.LifecycleHook{{Name: name}}
		}
	}
	for name, test := range map[string]struct {
		change func(*Observation)
		lacks  bool
	}{
		"it has none":       {func(*Observation) {}, true},
		"it has somebody's": {hook("backup"), true},
		"it has ours":       {hook(controlplanev1.HookName), false},
		"it is being deleted": {func(o *Observation) {
			o.QuoinMachines["a"].DeletionTimestamp = ptr.To(metav1.Now())
		}, false},
		"there is no member on": {external, false},
	} {
		o := atNoon()
		test.change(o)
		NewWithT(t).Expect(o.LacksHostHook(o.QuoinMachines["a"])).To(Equal(test.lacks), name)
	}
	NewWithT(t).Expect(HasHostHook(nil)).To(BeFalse())
}
