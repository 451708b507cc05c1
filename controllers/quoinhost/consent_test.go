// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinhost

import (
	"context"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
