// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinhost

import (
	"context"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
)

// accepts has qm1 accept hosts of the namespaces.
func (w *world) accepts(namespaces ...string) {
	w.t.Helper()
	machine := &infrav1.QuoinMachine{}
	w.object(machine, "qm1")
	machine.Spec.HostNamespaces = namespaces
	w.g.Expect(w.client.Update(context.Background(), machine)).To(Succeed())
}

// live is what the API server says: change makes QuoinMachines other than the cache shows them. Whoever reads the
// bootstrap data of the world's Machine fails the test.
func (w *world) live(change func(*infrav1.QuoinMachine)) {
	w.r.APIReader = interceptor.NewClient(w.watching(), interceptor.Funcs{Get: func(ctx context.Context,
		c client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
		if _, is := o.(*corev1.Secret); is && key.Namespace == "team" {
			w.t.Errorf("Secret %s was read", key)
		}
		err := c.Get(ctx, key, o, options...)
		if machine, is := o.(*infrav1.QuoinMachine); is && err == nil {
			change(machine)
		}
		return err
	}})
}

// A tenant registers a machine of his own and offers it to every namespace: it gets nothing of theirs.
func TestAHostThatItsConsumerDoesNotAcceptGetsNothing(t *testing.T) {
	for name, namespaces := range map[string][]string{"by default": nil, "among others": {"team", "elsewhere"}} {
		t.Run(name, func(t *testing.T) {
			w := claimedWorld(t, true)
			w.accepts(namespaces...)
			w.live(func(*infrav1.QuoinMachine) {})
			w.linger(30)
			w.g.Expect(w.room.asked).To(BeEmpty(), "nobody even connects")
			ready := condition1(w.host(), infrav1.HostReadyCondition)
			w.g.Expect(ready.Reason).To(Equal(infrav1.HostNotAcceptedReason))
			w.g.Expect(ready.Message).To(And(ContainSubstring("QuoinMachine team/qm1"),
				ContainSubstring("accepts no hosts of namespace hosts"), ContainSubstring("add hosts to spec.hostNamespaces"),
				ContainSubstring("delete Machine m1")))

			w.restart()
			w.accepts("hosts")
			w.untilState(infrav1.HostStateProvisioned)
			w.accepts()
			w.linger(3)
			w.g.Expect(condition1(w.host(), infrav1.HostReadyCondition).Status).To(Equal(metav1.ConditionTrue),
				"what was begun is seen to its end")
			deleteMachine(w)
			w.until("clean", (*infrav1.QuoinHost).Released)
		})
	}
}

// The cache may be behind, and the status that a claim was begun by is the word of the host's side.
func TestBootstrapDataIsNotReadWhileTheConsumerDoesNotAcceptTheHostAnyMore(t *testing.T) {
	w := claimedWorld(t, true)
	w.live(func(machine *infrav1.QuoinMachine) { machine.Spec.HostNamespaces = nil })
	w.untilReason(infrav1.HostProvisionedCondition, infrav1.HostNotAcceptedReason)
	w.linger(30)
	w.g.Expect(w.room.count("provision")).To(BeZero())
}

// An upgrade of the manager takes nothing away from a node whose Machine was never asked, and neither does a move.
func TestANodeStaysWhereNobodyAskedWhetherItsHostIsAccepted(t *testing.T) {
	w := claimedWorld(t, false)
	w.untilState(infrav1.HostStateProvisioned)
	w.accepts()
	machine := &clusterv1.Machine{}
	w.object(machine, "m1")
	machine.Spec.ProviderID = w.host().ProviderID()
	w.g.Expect(w.client.Update(context.Background(), machine)).To(Succeed())
	w.restart()
	w.linger(3)
	w.g.Expect(condition1(w.host(), infrav1.HostReadyCondition).Status).To(Equal(metav1.ConditionTrue))

	w.forgetStatus()
	w.untilState(infrav1.HostStateProvisioned)
	w.linger(1)
	w.g.Expect(condition1(w.host(), infrav1.HostReadyCondition).Status).To(Equal(metav1.ConditionTrue))
	w.g.Expect(w.room.count("provision")).To(Equal(1))
}

// pair changes qm1 and m1.
func (w *world) pair(change func(*infrav1.QuoinMachine, *clusterv1.Machine)) {
	w.t.Helper()
	quoinMachine, machine := &infrav1.QuoinMachine{}, &clusterv1.Machine{}
	w.object(quoinMachine, "qm1")
	w.object(machine, "m1")
	change(quoinMachine, machine)
	w.g.Expect(w.client.Update(context.Background(), quoinMachine)).To(Succeed())
	w.g.Expect(w.client.Update(context.Background(), machine)).To(Succeed())
}

// Whoever writes a QuoinHost writes the Machine into its claim. A host that one of his Machines has must not get the
// bootstrap data of another, which may be those of a control plane.
func TestAHostGetsTheBootstrapDataOfItsOwnMachineOnly(t *testing.T) {
	for name, change := range map[string]func(*world){
		"of another": func(w *world) {
			_, _, machine, _, secret := consumer(true)
			machine.Name, machine.UID, machine.Spec.InfrastructureRef.Name = "cp", "89abcdef-0000", "qcp"
			machine.Spec.Bootstrap.DataSecretName = ptr.To("cp-bootstrap")
			secret.Name = "cp-bootstrap"
			w.create(machine, secret)
			w.update(func(h *infrav1.QuoinHost) { h.Spec.ConsumerRef.Machine = "cp" })
		},
		"of one with other infrastructure": func(w *world) {
			w.pair(func(_ *infrav1.QuoinMachine, m *clusterv1.Machine) { m.Spec.InfrastructureRef.Name = "qm2" })
		},
		"of one with infrastructure of another kind": func(w *world) {
			w.pair(func(_ *infrav1.QuoinMachine, m *clusterv1.Machine) { m.Spec.InfrastructureRef.Kind = "OtherMachine" })
		},
		"of a later one of the name": func(w *world) {
			w.pair(func(q *infrav1.QuoinMachine, _ *clusterv1.Machine) { q.OwnerReferences[0].UID = "89abcdef-0000" })
		},
		"of one that does not own the QuoinMachine": func(w *world) {
			w.pair(func(q *infrav1.QuoinMachine, _ *clusterv1.Machine) { q.OwnerReferences = nil })
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := claimedWorld(t, true)
			change(w)
			w.live(func(*infrav1.QuoinMachine) {})
			w.linger(30)
			w.g.Expect(w.room.asked).To(BeEmpty(), "nobody even connects")
			ready := condition1(w.host(), infrav1.HostReadyCondition)
			w.g.Expect(ready.Reason).To(Equal(infrav1.HostMachineMismatchReason))
			w.g.Expect(ready.Message).To(And(ContainSubstring("QuoinMachine team/qm1 is not that of Machine team/"),
				MatchRegexp("kubectl -n team delete (machine m1|quoinmachine qm1)")))
		})
	}
}

// What the API server says counts: the cache may show a QuoinMachine as it was before.
func TestBootstrapDataAreNotReadForAHostThatTheQuoinMachineDoesNotHaveAnyMore(t *testing.T) {
	for name, change := range map[string]func(*infrav1.QuoinMachine){
		"it has another":        func(m *infrav1.QuoinMachine) { m.Spec.ProviderID = "quoin://hosts/h2/0123abcd" },
		"another Machine's now": func(m *infrav1.QuoinMachine) { m.OwnerReferences[0].UID = "89abcdef-0000" },
	} {
		t.Run(name, func(t *testing.T) {
			w := claimedWorld(t, true)
			w.live(change)
			w.untilReason(infrav1.HostProvisionedCondition, infrav1.HostMachineMismatchReason)
			w.linger(30)
			w.g.Expect(w.room.count("provision")).To(BeZero())
		})
	}
}

// A restore brings owner references with UIDs of before, and a move may bring the QuoinMachine before them: a node is
// not disturbed by either.
func TestANodeStaysWhileItsQuoinMachineNamesNoOwner(t *testing.T) {
	w := claimedWorld(t, false)
	w.untilState(infrav1.HostStateProvisioned)
	w.pair(func(q *infrav1.QuoinMachine, m *clusterv1.Machine) {
		q.OwnerReferences, m.Spec.ProviderID = nil, w.host().ProviderID()
	})
	w.restart()
	w.linger(3)
	w.g.Expect(condition1(w.host(), infrav1.HostReadyCondition).Status).To(Equal(metav1.ConditionTrue))

	w.forgetStatus()
	w.untilState(infrav1.HostStateProvisioned)
	w.linger(1)
	w.g.Expect(condition1(w.host(), infrav1.HostReadyCondition).Status).To(Equal(metav1.ConditionTrue))
	w.g.Expect(w.room.count("provision")).To(Equal(1))
}
