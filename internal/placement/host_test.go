// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew"
)

// Each thing that a QuoinHost says is one thing that placement knows, and nothing else changes by it.
func TestWhatPlacementKnowsOfAHost(t *testing.T) {
	g := NewWithT(t)
	is := func(kind string, status metav1.ConditionStatus) func(*infrav1.QuoinHost) {
		return func(h *infrav1.QuoinHost) {
			h.Status.Conditions = append(h.Status.Conditions, metav1.Condition{Type: kind, Status: status})
		}
	}
	in := func(state infrav1.HostState, more ...func(*infrav1.QuoinHost)) func(*infrav1.QuoinHost) {
		return func(h *infrav1.QuoinHost) {
			h.Status.State = state
			for _, change := range more {
				change(h)
			}
		}
	}
	silent := is(infrav1.HostReachableCondition, metav1.ConditionFalse)
	lost := func(h *infrav1.QuoinHost) { h.Status.UnreachableSince = ptr.To(metav1.Now()) }
	noted := func(key string) func(*infrav1.QuoinHost) {
		return func(h *infrav1.QuoinHost) { h.Annotations = map[string]string{key: "team/blue"} }
	}
	cgroup := func(told *bool) func(*infrav1.QuoinHost) {
		return func(h *infrav1.QuoinHost) {
			h.Status.Facts = &infrav1.HostFacts{ContainerRuntime: "containerd://2.2.0", CgroupVersion: 1,
				KubeletOnCgroupV1: told}
		}
	}
	failed := metav1.Now()
	for name, c := range map[string]struct {
		change func(*infrav1.QuoinHost)
		want   Host
	}{
		"nothing":   {func(*infrav1.QuoinHost) {}, Host{}},
		"ready":     {is(infrav1.HostReadyCondition, metav1.ConditionTrue), Host{Ready: true}},
		"not ready": {is(infrav1.HostReadyCondition, metav1.ConditionFalse), Host{}},
		"in use": {func(h *infrav1.QuoinHost) {
			h.Spec.ConsumerRef = &infrav1.ConsumerReference{}
		}, Host{InUse: true}},
		"deleted":  {func(h *infrav1.QuoinHost) { h.DeletionTimestamp = &failed }, Host{Leaving: true}},
		"paused":   {noted(clusterv1.PausedAnnotation), Host{Leaving: true}},
		"detached": {noted(infrav1.DetachedAnnotation), Host{Detached: true}},
		"former":   {noted(infrav1.FormerPoolAnnotation), Host{FormerPool: "team/blue"}},
		"held":     {func(h *infrav1.QuoinHost) { h.Spec.HeldFor = &infrav1.HostHold{} }, Host{Held: true}},
		"maintained": {func(h *infrav1.QuoinHost) {
			h.Spec.Maintenance = &infrav1.Maintenance{}
		}, Host{Maintenance: true}},
		"available":      {in(infrav1.HostStateAvailable), Host{State: "Available"}},
		"cleaning":       {in(infrav1.HostStateCleaning), Host{State: "Cleaning", Preparing: true}},
		"silent":         {in(infrav1.HostStateCleaning, silent), Host{State: "Cleaning"}},
		"lost":           {in(infrav1.HostStateCleaning, lost), Host{State: "Cleaning"}},
		"inspecting":     {in(infrav1.HostStateInspecting), Host{State: "Inspecting", Preparing: true}},
		"not inspecting": {in(infrav1.HostStateInspecting, silent), Host{State: "Inspecting"}},
		"unfit": {in(infrav1.HostStateInspecting, is(infrav1.HostInspectedCondition, metav1.ConditionFalse)),
			Host{State: "Inspecting"}},
		"claimed":        {in(infrav1.HostStateClaimed), Host{State: "Claimed", Serving: true}},
		"provisioning":   {in(infrav1.HostStateProvisioning), Host{State: "Provisioning", Serving: true}},
		"provisioned":    {in(infrav1.HostStateProvisioned), Host{State: "Provisioned", Serving: true}},
		"serves no more": {in(infrav1.HostStateProvisioned, silent), Host{State: "Provisioned"}},
		"quarantined in its reset, which its status does not say yet": {in(infrav1.HostStateCleaning, func(h *infrav1.QuoinHost) {
			h.Spec.Quarantine = &infrav1.HostQuarantine{}
		}), Host{State: "Quarantined"}},
		"quarantined while it served": {in(infrav1.HostStateProvisioned, func(h *infrav1.QuoinHost) {
			h.Spec.Quarantine = &infrav1.HostQuarantine{}
		}), Host{State: "Quarantined"}},
		"quarantined, which its status does not say yet": {in(infrav1.HostStateAvailable, func(h *infrav1.QuoinHost) {
			h.Spec.Quarantine = &infrav1.HostQuarantine{}
		}), Host{State: "Quarantined"}},
		"failed": {func(h *infrav1.QuoinHost) {
			h.Status.LastFailure = &infrav1.HostFailure{Time: failed, Pool: "team/blue"}
		}, Host{FailedAt: failed.Time, FailedPool: "team/blue"}},
		"cgroup v1":                        {cgroup(ptr.To(false)), Host{Runtime: "containerd://2.2.0", Cgroup: 1}},
		"cgroup v1, and tells its kubelet": {cgroup(ptr.To(true)), Host{Runtime: "containerd://2.2.0"}},
		"cgroup v1, before that was asked": {cgroup(nil), Host{Runtime: "containerd://2.2.0"}},
	} {
		h := &infrav1.QuoinHost{}
		c.change(h)
		g.Expect(HostOf(h)).To(Equal(c.want), name)
	}
}

// What every host would do wrong, or what is still to come, is no failure of this one.
func TestWhatFailsOnAnotherHostToo(t *testing.T) {
	for reason, fails := range map[string]bool{infrav1.HostStepFailedReason: true, infrav1.HostDeadReason: true,
		infrav1.HostUnreachableReason: true, infrav1.HostKeyMissingReason: true,
		infrav1.HostBootstrapDataInvalidReason: false, infrav1.HostWaitingForBootstrapDataReason: false, "": false} {
		NewWithT(t).Expect(HostFails(reason)).To(Equal(fails), reason)
	}
}

// Machines of a namespace accept what one of its templates names, and by default the hosts of their own.
func TestTemplatesAcceptHosts(t *testing.T) {
	template := func(namespaces ...string) infrav1.QuoinMachineTemplate {
		of := infrav1.QuoinMachineTemplate{}
		of.Spec.Template.Spec.HostNamespaces = namespaces
		return of
	}
	for _, c := range []struct {
		templates []infrav1.QuoinMachineTemplate
		of        string
		accepted  bool
	}{
		{nil, "team", true},
		{nil, "hosts", false},
		{[]infrav1.QuoinMachineTemplate{template("hosts")}, "team", false},
		{[]infrav1.QuoinMachineTemplate{template("hosts"), template()}, "team", true},
		{[]infrav1.QuoinMachineTemplate{template(), template("*")}, "hosts", true},
	} {
		NewWithT(t).Expect(AcceptedByAny(c.templates, "team", c.of)).To(Equal(c.accepted), "%v", c)
	}
}

// What keeps hosts from a machine is counted in the order in which it goes away: what frees itself first.
func TestWhyHostsAreNotFree(t *testing.T) {
	g := NewWithT(t)
	request := Request{Namespace: "team", Worker: true, Version: "v1.36.3", FailCgroupV1: true, FailureDomain: "a",
		Selector: labels.SelectorFromSet(labels.Set{"role": "worker"}), Taken: []Identity{"hostname x"}}
	free := Host{Namespace: "team", State: StateAvailable, Ready: true, FailureDomain: "a",
		Labels: map[string]string{"role": "worker"}}
	g.Expect(Select(request, []Host{free}).Counts()).To(BeEmpty())
	g.Expect(Select(request, []Host{free}).Message()).To(BeEmpty())
	g.Expect(Select(request, nil).Message()).To(HaveSuffix("there are no QuoinHosts; register one"))
	var hosts []Host
	var counts []Count
	for _, c := range []struct {
		change func(*Host)
		reason Reason
	}{
		{func(h *Host) { h.InUse = true }, InUse},
		{func(h *Host) { h.State = "Cleaning" }, "Cleaning"},
		{func(h *Host) { h.Leaving = true }, Leaving},
		{func(h *Host) { h.Detached = true }, Detached},
		{func(h *Host) { h.Held = true }, Held},
		{func(h *Host) { h.Maintenance = true }, InMaintenance},
		{func(h *Host) { h.State = "" }, NotRegistered},
		{func(h *Host) { h.Ready = false }, NotReady},
		{func(h *Host) { h.Identities = request.Taken }, Duplicate},
		{func(h *Host) { h.Cgroup = 1 }, Reason(skew.CgroupEnded(1, "v1.36.3"))},
		{func(h *Host) { h.Runtime = "containerd://1.7.1" }, Reason(skew.RuntimeEnded("containerd://1.7.1", "v1.36.3"))},
		{func(h *Host) { h.FailureDomain = "b" }, "not in failure domain a"},
		{func(h *Host) { h.Labels = nil }, "not selected by role=worker"},
		{func(h *Host) {
			h.Labels = map[string]string{"role": "worker", infrav1.ReservedForLabel: infrav1.ReservedForControlPlane}
		}, Reserved},
		{func(h *Host) { h.Namespace, h.ConsumerNamespaces = "hosts", []string{AnyNamespace} }, NotAccepted},
		{func(h *Host) { h.ConsumerNamespaces = []string{"hosts"} }, "not offered to namespace team"},
	} {
		host := free
		c.change(&host)
		hosts = append([]Host{host}, hosts...)
		counts = append(counts, Count{c.reason, 1})
	}
	g.Expect(Select(request, hosts).Counts()).To(Equal(counts))
}

// A host that is in use, or not ready, is free for nobody; one that is used returns when it answers.
func TestFreeAndReturningHosts(t *testing.T) {
	g, request := NewWithT(t), Request{Namespace: "team"}
	free := Host{Namespace: "team", State: StateAvailable, Ready: true}
	used, unready := free, free
	used.InUse, unready.Ready = true, false
	g.Expect([]bool{Free(free), Free(used), Free(unready)}).To(Equal([]bool{true, false, false}))
	g.Expect(NoReturn(request, used)).To(Equal(NoAnswer))
	used.Serving = true
	g.Expect(NoReturn(request, used)).To(BeEmpty())
	used.Detached = true
	g.Expect(NoReturn(request, used)).To(Equal(Detached))
}

// Who does not say what time it is asks for no failure.
func TestFailuresCountOnlyAtATime(t *testing.T) {
	failed := Host{Namespace: "team", State: StateAvailable, Ready: true, FailedAt: now}
	NewWithT(t).Expect(Select(Request{Namespace: "team"}, []Host{failed}).LastResort).To(BeFalse())
	NewWithT(t).Expect(Select(Request{Namespace: "team", Now: now}, []Host{failed}).LastResort).To(BeTrue())
}
