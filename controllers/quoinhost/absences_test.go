// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinhost

import (
	"context"
	"testing"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
)

func TestAnAbsenceIsKnownAsItWasConfirmed(t *testing.T) {
	g := NewWithT(t)
	var known confirmedAbsenceCache
	key := types.NamespacedName{Namespace: "hosts", Name: "h1"}
	host := newHost()
	host.UID = "host"
	host.Spec.ConsumerRef = &infrav1.ConsumerReference{Namespace: "c", Name: "m", Machine: "m", Claim: "0123abcd"}
	machine := &clusterv1.Machine{}
	machine.UID = "machine"
	seen := consumerStateOf(host, claim{status: missing, machine: machine})
	g.Expect(known.known(key, seen)).To(BeFalse(), "nobody has asked")
	known.note(key, seen)
	g.Expect(known.known(key, seen)).To(BeTrue())

	g.Expect(known.known(types.NamespacedName{Namespace: "hosts", Name: "h2"}, seen)).To(BeFalse(), "another host")
	for name, other := range map[string]func(*infrav1.QuoinHost, *claim){
		"the Machine is gone as well":        func(_ *infrav1.QuoinHost, c *claim) { c.machine = nil },
		"a QuoinMachine of the name is seen": func(_ *infrav1.QuoinHost, c *claim) { c.status = leaving },
		"the claim is another one":           func(h *infrav1.QuoinHost, _ *claim) { h.Spec.ConsumerRef.Claim = "89abcdef" },
		"the host was registered anew":       func(h *infrav1.QuoinHost, _ *claim) { h.UID = "other" },
	} {
		h, c := host.DeepCopy(), claim{status: missing, machine: machine}
		other(h, &c)
		g.Expect(known.known(key, consumerStateOf(h, c))).To(BeFalse(), name)
	}
	known.forget(key)
	g.Expect(known.known(key, seen)).To(BeFalse())
}

// The release of a host takes many looks, and each would ask for objects that are gone for good.
func TestTheAPIServerIsAskedOnceWhetherAConsumerHasGone(t *testing.T) {
	w := claimedWorld(t, false)
	w.untilState(infrav1.HostStateProvisioned)
	deleteMachine(w)
	w.until("clean", (*infrav1.QuoinHost).Released)
	finish(w, &infrav1.QuoinMachine{}, "qm1")
	asked := 0
	w.r.APIReader = interceptor.NewClient(w.client.(client.WithWatch), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object,
			options ...client.GetOption) error {
			if _, ok := o.(*infrav1.QuoinMachine); ok {
				asked++
			}
			return c.Get(ctx, key, o, options...)
		},
	})
	for range 5 {
		w.reconcile()
	}
	w.g.Expect(asked).To(Equal(1))
	w.g.Expect(w.host().Spec.ConsumerRef).NotTo(BeNil(), "the Machine is still there")
}

// A move or a restore of the objects brings a host before its consumer, and then the cache shows that late.
func TestAPersonsWordDoesNotResetAHostWhoseConsumerHasComeBack(t *testing.T) {
	w := claimedWorld(t, false)
	w.untilState(infrav1.HostStateProvisioned)
	loseConsumer(w)
	w.untilReason(infrav1.HostProvisionedCondition, infrav1.HostConsumerMissingReason)
	w.annotate(infrav1.RetryAnnotation, "")
	w.untilReason(infrav1.HostResetConfirmedCondition, infrav1.HostConfirmationNeededReason)

	_, _, _, back, _ := consumer(false)
	w.create(back)
	w.r.Client = interceptor.NewClient(w.client.(client.WithWatch), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object,
			options ...client.GetOption) error {
			if _, ok := o.(*infrav1.QuoinMachine); ok {
				return apierrors.NewNotFound(infrav1.GroupVersion.WithResource("quoinmachines").GroupResource(), key.Name)
			}
			return c.Get(ctx, key, o, options...)
		},
	})
	w.annotate(infrav1.RetryAnnotation, w.host().ProviderID())
	w.linger(5)
	w.g.Expect(w.room.count("clean")).To(BeZero())
	w.g.Expect(condition1(w.host(), infrav1.HostResetConfirmedCondition)).To(BeNil(), "the question ends with what it "+
		"was about")
}

// Two claims of one Machine may be written at once; its QuoinMachine settles on one of the hosts. The other one would
// else be lost for as long as the Machine lives.
func TestAHostIsFreedWhoseQuoinMachineSettledOnAnother(t *testing.T) {
	w := claimedWorld(t, false)
	w.pair(func(q *infrav1.QuoinMachine, _ *clusterv1.Machine) { q.Spec.ProviderID = "quoin://hosts/h2/0123abcd" })
	w.untilState(infrav1.HostStateAvailable)
	w.g.Expect(w.host().Spec.ConsumerRef).To(BeNil())
	w.g.Expect(w.room.count("clean")).To(Equal(1))

	w = claimedWorld(t, false)
	w.pair(func(q *infrav1.QuoinMachine, m *clusterv1.Machine) {
		q.Spec.ProviderID, m.Spec.ProviderID = "quoin://hosts/h2/0123abcd", "quoin://hosts/h1/0123abcd"
	})
	w.until("clean", (*infrav1.QuoinHost).Released)
	w.linger(5)
	w.g.Expect(w.host().Spec.ConsumerRef).NotTo(BeNil(), "the Node of the Machine is this one's")
}
