// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinhost

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
)

// twin is a host h2 of the same machine-id as h1.
func twin(change ...func(*infrav1.QuoinHost)) *infrav1.QuoinHost {
	host := newHost()
	host.Name, host.UID = "h2", "twin-uid"
	host.Status.State = infrav1.HostStateAvailable
	host.Status.Facts = &infrav1.HostFacts{Hostname: "h2", MachineID: "abcd"}
	for _, c := range change {
		c(host)
	}
	return host
}

// claimedBy makes it the host of a Machine of the cluster.
func claimedBy(machine string) func(*infrav1.QuoinHost) {
	return func(h *infrav1.QuoinHost) {
		h.Status.State = infrav1.HostStateClaimed
		h.Spec.ConsumerRef = &infrav1.ConsumerReference{Namespace: "team", Name: machine, Machine: machine, Claim: "88888888"}
	}
}

func peer(name, cluster string) *clusterv1.Machine {
	return &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name},
		Spec: clusterv1.MachineSpec{ClusterName: cluster, InfrastructureRef: clusterv1.ContractVersionedObjectReference{
			APIGroup: infrav1.GroupVersion.Group, Kind: "QuoinMachine", Name: name}}}
}

func TestHostsThatAreAlikeNameEachOther(t *testing.T) {
	w := newWorld(t, newHost(), twin())
	w.room.facts.MachineID = "abcd"
	found := w.untilReason(infrav1.HostUniqueCondition, infrav1.HostDuplicateReason)
	w.g.Expect(found.Message).To(And(ContainSubstring("machine-id abcd"), ContainSubstring("QuoinHost hosts/h2"),
		ContainSubstring("systemd-machine-id-setup")))
	w.untilState(infrav1.HostStateAvailable)
	w.g.Expect(condition1(w.host(), infrav1.HostReadyCondition).Status).To(Equal(metav1.ConditionTrue),
		"it may serve a Cluster without the other")

	// The other one hears of it.
	w.g.Expect(w.r.hostsAlike(t.Context(), w.host())).To(ConsistOf(HaveField("Name", "h2")))
	w.g.Expect(identityChanged().Update(event.UpdateEvent{ObjectOld: newHost(), ObjectNew: w.host()})).To(BeTrue())
	w.g.Expect(identityChanged().Update(event.UpdateEvent{ObjectOld: w.host(), ObjectNew: w.host()})).To(BeFalse())

	w.room.set(func() { w.room.facts.MachineID = "ef01" })
	w.annotate(infrav1.RetryAnnotation, "")
	w.until("told apart", func(h *infrav1.QuoinHost) bool { return condition1(h, infrav1.HostUniqueCondition) == nil })
}

func TestHostsThatNoClusterCanBothHaveAreNotCompared(t *testing.T) {
	w := newWorld(t, newHost(), twin(func(h *infrav1.QuoinHost) { h.Spec.ConsumerNamespaces = []string{"elsewhere"} }))
	w.room.facts.MachineID = "abcd"
	w.update(func(h *infrav1.QuoinHost) { h.Spec.ConsumerNamespaces = []string{"team"} })
	w.untilState(infrav1.HostStateAvailable)
	w.linger(3)
	w.g.Expect(condition1(w.host(), infrav1.HostUniqueCondition)).To(BeNil())
}

// Whose BMC a UUID means is asked of all hosts of a namespace, whichever Clusters they may serve.
func TestHostsWhoseUUIDIsOneHearOfEachOther(t *testing.T) {
	const uuid = "33221100-5544-7766-8899-aabbccddeeff"
	known := func(name string, consumers ...string) *infrav1.QuoinHost {
		h := twin()
		h.Name, h.Spec.ConsumerNamespaces = name, consumers
		h.Spec.BMC = &infrav1.BMC{Address: "https://" + name + ".example.com"}
		h.Status.Facts = &infrav1.HostFacts{ProductUUID: uuid}
		return h
	}
	w := newWorld(t, newHost(), known("h2", "elsewhere"), known("h3", "team"))
	heard := w.r.hostsAlike(t.Context(), known("h4", "team"))
	w.g.Expect(heard).To(ConsistOf(HaveField("Name", "h2"), HaveField("Name", "h3")))
}

// Two Machines may claim two such hosts at the same moment.
func TestKubeadmRunsOnOneOfTwoHostsThatAreAlike(t *testing.T) {
	began := func(h *infrav1.QuoinHost) {
		h.Status.Operation = &infrav1.HostOperation{ID: infrav1.ProvisionOperation("88888888"), Phase: "Running"}
	}
	named := func(name string) func(*infrav1.QuoinHost) { return func(h *infrav1.QuoinHost) { h.Name = name } }
	// Offered to everybody, with a claim that whoever wrote the host made up.
	foreign := func(quoinMachine string, change ...func(*infrav1.QuoinHost)) *infrav1.QuoinHost {
		return twin(append([]func(*infrav1.QuoinHost){claimedBy("m2"), func(h *infrav1.QuoinHost) {
			h.Namespace, h.Spec.ConsumerNamespaces = "evil", []string{"*"}
			h.Spec.ConsumerRef.Name = quoinMachine
		}}, change...)...)
	}
	joined, elsewhere, others := peer("m2", "c1"), peer("m2", "c1"), peer("m2", "c1")
	joined.Spec.ProviderID = "quoin://hosts/h2/88888888"
	elsewhere.Spec.ProviderID = "quoin://hosts/h9/99999999"
	others.Spec.InfrastructureRef.Kind = "OtherMachine"
	for name, c := range map[string]struct {
		other   *infrav1.QuoinHost
		machine *clusterv1.Machine
		refused bool
	}{
		"which has begun":                 {twin(claimedBy("m2"), began), peer("m2", "c1"), true},
		"whose status a move dropped":     {twin(claimedBy("m2")), joined, true},
		"which comes first by its name":   {twin(claimedBy("m2"), named("h0")), peer("m2", "c1"), true},
		"which comes last by its name":    {twin(claimedBy("m2")), peer("m2", "c1"), false},
		"of another Cluster":              {twin(claimedBy("m2"), began), peer("m2", "c2"), false},
		"that is free":                    {twin(named("h0")), peer("m2", "c1"), false},
		"whose Machine has another":       {foreign("nope", began), elsewhere, false},
		"whose QuoinMachine is no such":   {foreign("nope", began), peer("m2", "c1"), false},
		"first, and its Machine's not":    {foreign("nope", named("h0")), peer("m2", "c1"), false},
		"whose Machine is no QuoinHost's": {foreign("m2", named("h0")), others, false},
	} {
		t.Run("beside one "+name, func(t *testing.T) {
			w := claimedWorld(t, false)
			w.create(c.other, c.machine)
			w.room.facts.MachineID = "abcd"
			if !c.refused {
				w.untilState(infrav1.HostStateProvisioned)
				return
			}
			found := w.untilReason(infrav1.HostProvisionedCondition, infrav1.HostDuplicateReason)
			w.g.Expect(found.Message).To(And(ContainSubstring("machine-id abcd"),
				ContainSubstring("QuoinHost hosts/"+c.other.Name), ContainSubstring("Machine m2"),
				ContainSubstring("delete Machine m1")))
			w.linger(10)
			w.g.Expect(w.room.count("provision")).To(BeZero())

			w.room.set(func() { w.room.facts.MachineID = "ef01" })
			w.untilState(infrav1.HostStateProvisioned)
		})
	}
}

// Containers and some boards of a make share a product UUID, so it counts where a BMC is known by it.
func TestAProductUUIDIsOnesOwnWhereThereIsABMC(t *testing.T) {
	const uuid, swapped = "33221100-5544-7766-8899-aabbccddeeff", "00112233-4455-6677-8899-AABBCCDDEEFF"
	for name, c := range map[string]struct {
		mine, others func(*infrav1.QuoinHost)
		refused      bool
	}{
		"neither has a BMC": {nothing, nothing, false},
		"the other has one": {nothing, withBMC, false},
		"it has one":        {withBMC, nothing, false},
		"both have one":     {withBMC, withBMC, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := claimedWorld(t, false)
			w.update(c.mine)
			w.create(twin(claimedBy("m2"), c.others, func(h *infrav1.QuoinHost) {
				h.Name, h.Status.Facts = "h0", &infrav1.HostFacts{Hostname: "h0", MachineID: "abcd", ProductUUID: swapped}
			}), peer("m2", "c1"))
			w.room.facts.ProductUUID = uuid
			if !c.refused {
				w.untilState(infrav1.HostStateProvisioned)
				w.g.Expect(condition1(w.host(), infrav1.HostUniqueCondition)).To(BeNil())
				return
			}
			found := w.untilReason(infrav1.HostUniqueCondition, infrav1.HostDuplicateReason)
			w.g.Expect(found.Status).To(Equal(metav1.ConditionFalse))
			w.g.Expect(found.Message).To(And(ContainSubstring("product UUID"), ContainSubstring("QuoinHost hosts/h0")))
			w.untilReason(infrav1.HostProvisionedCondition, infrav1.HostDuplicateReason)
			w.g.Expect(w.room.count("provision")).To(BeZero())
		})
	}
}

// That it cannot be known says nothing against the host.
func TestAFailedSearchForHostsThatAreAlikeIsNoDuplicate(t *testing.T) {
	w := claimedWorld(t, false)
	w.create(twin(claimedBy("m2"), func(h *infrav1.QuoinHost) { h.Name = "h0" }), peer("m2", "c1"))
	w.room.facts.MachineID = "abcd"
	down := true
	w.r.Client = interceptor.NewClient(w.watching(), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object,
			options ...client.GetOption) error {
			if _, machine := o.(*clusterv1.Machine); machine && key.Name == "m2" && down {
				return apierrors.NewTimeoutError("the API server is overloaded", 1)
			}
			return c.Get(ctx, key, o, options...)
		}})
	var failed error
	for range 100 {
		var result ctrl.Result
		if result, failed = w.attempt(); failed != nil {
			break
		}
		w.now = w.now.Add(min(result.RequeueAfter, 10*time.Second))
	}
	w.g.Expect(failed).To(MatchError(ContainSubstring("the API server is overloaded")), "it is tried again")
	found := condition1(w.host(), infrav1.HostProvisionedCondition)
	w.g.Expect(found.Reason).To(Equal(infrav1.HostOperationFailedReason))
	w.g.Expect(found.Message).To(And(ContainSubstring("QuoinHost hosts/h0"), ContainSubstring("Machine team/m2"),
		ContainSubstring("overloaded")))
	w.g.Expect(w.room.count("provision")).To(BeZero())

	down = false
	w.untilReason(infrav1.HostProvisionedCondition, infrav1.HostDuplicateReason)
}
