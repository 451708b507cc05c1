// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"context"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim/kube"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim/plane"
)

// TestTheOlderGenerationChangesNothing moves a node's objects to another management plane and leaves the first one
// running, as a move that was cut short does. The first one is then asked for everything that changes a host.
func TestTheOlderGenerationChangesNothing(t *testing.T) {
	g := NewWithT(t)
	ctx := t.Context()
	l := newLab(t, newFleet(t, kube.Options{}, nil), "generations")
	l.untilState(infrav1.HostStateAvailable)
	l.addMachine()
	g.Expect(l.untilProvisioned()).To(Equal(infrav1.HostProvisionedReason), l.describe())
	l.untilState(infrav1.HostStateProvisioned)
	old := l.object().Spec.ClaimGeneration

	second, err := plane.Start(context.Background(), "sim-second")
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { _ = second.Stop() })
	move(g, l, second)
	manager, err := second.Run(context.Background(), plane.Options{Namespaces: []string{l.key.Namespace}, Haste: hurry})
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { _ = manager.Stop() })
	moved := &infrav1.QuoinHost{}
	g.Eventually(func() string {
		_ = second.Client.Get(ctx, l.key, moved)
		return string(moved.Status.State)
	}).WithTimeout(patience).Should(Equal(string(infrav1.HostStateProvisioned)), func() string { return l.describe() })
	g.Expect(moved.Spec.ClaimGeneration).To(Equal(old + 1))
	g.Eventually(func() string { return l.host.Machine.FS().Text("/var/lib/quoin/owner.json") }).WithTimeout(patience).
		Should(ContainSubstring(`"generation":2`))
	before := l.host.Tree()

	// The first one is asked for images, and for the end of the Machine: the reset of a live node.
	quoinMachine := &infrav1.QuoinMachine{}
	key := client.ObjectKey{Namespace: l.key.Namespace, Name: "m"}
	g.Expect(l.plane.Client.Get(ctx, key, quoinMachine)).To(Succeed())
	patch := client.MergeFrom(quoinMachine.DeepCopy())
	quoinMachine.Spec.AddonVersions = []string{"v1.37.0"}
	g.Expect(l.plane.Client.Patch(ctx, quoinMachine, patch)).To(Succeed())
	stale := func(h *infrav1.QuoinHost) bool {
		return conditions.GetReason(h, infrav1.HostReadyCondition) == infrav1.HostStaleClaimReason
	}
	l.until("stale", stale)
	machine := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	for _, object := range []client.Object{machine, quoinMachine} {
		g.Expect(l.plane.Client.Delete(ctx, object)).To(Succeed())
	}
	host := l.until("stale in its deletion", func(h *infrav1.QuoinHost) bool {
		return stale(h) && h.Status.State == infrav1.HostStateCleaning && ptr.Deref(h.Status.Failures, 0) >= 2
	})
	g.Expect(conditions.GetMessage(host, infrav1.HostReadyCondition)).To(And(ContainSubstring("generation 2"), ContainSubstring("ours is 1")))
	l.kill()
	l.until("stale after a restart", func(h *infrav1.QuoinHost) bool {
		return stale(h) && ptr.Deref(h.Status.Failures, 0) > *host.Status.Failures
	})

	g.Expect(l.host.Tree()).To(Equal(before), "the older generation changed something")
	g.Expect(l.plane.Client.Get(ctx, client.ObjectKey{Name: "generations"}, &corev1.Node{})).To(Succeed(), "the node lives")
}

// move copies what clusterctl move copies: specs and metadata, new UIDs, no status; and leaves the source as it is.
func move(g *WithT, l *lab, to *plane.Plane) {
	ctx := l.t.Context()
	namespace := l.key.Namespace
	g.Expect(to.Namespace(ctx, namespace)).To(Succeed())
	fresh := func(o client.Object) {
		o.SetUID("")
		o.SetResourceVersion("")
		o.SetOwnerReferences(nil)
		o.SetManagedFields(nil)
	}
	for _, name := range []string{"ssh", "m"} {
		secret := &corev1.Secret{}
		g.Expect(l.plane.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, secret)).To(Succeed())
		fresh(secret)
		g.Expect(to.Client.Create(ctx, secret)).To(Succeed())
	}
	machine, quoinMachine, host := &clusterv1.Machine{}, &infrav1.QuoinMachine{}, &infrav1.QuoinHost{}
	for object, name := range map[client.Object]string{machine: "m", quoinMachine: "m", host: l.key.Name} {
		g.Expect(l.plane.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, object)).To(Succeed())
		fresh(object)
	}
	machine.Spec.ProviderID = quoinMachine.Spec.ProviderID
	g.Expect(to.Client.Create(ctx, machine)).To(Succeed())
	quoinMachine.OwnerReferences = []metav1.OwnerReference(nil)
	g.Expect(controllerutil.SetControllerReference(machine, quoinMachine, to.Scheme())).To(Succeed())
	quoinMachine.Status = infrav1.QuoinMachineStatus{}
	g.Expect(to.Client.Create(ctx, quoinMachine)).To(Succeed())
	host.Status = infrav1.QuoinHostStatus{}
	g.Expect(to.Client.Create(ctx, host)).To(Succeed())
}
