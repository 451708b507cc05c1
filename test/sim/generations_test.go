// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"context"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim/kube"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim/plane"
)

// TestTheOlderGenerationChangesNothing moves a node's objects to another management plane and leaves the first one
// running, as a move that was cut short does. The first one is then asked for everything that changes a host.
func TestTheOlderGenerationChangesNothing(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	ctx := t.Context()
	l := newLab(t, newFleet(t, kube.Options{}, nil), "generations")
	l.untilState(infrav1.HostStateAvailable)
	l.addMachine()
	g.Expect(l.untilProvisioned()).To(Equal(infrav1.HostProvisionedReason), l.describe())
	l.untilState(infrav1.HostStateProvisioned)
	old := l.object().Spec.ClaimGeneration

	second := secondPlane(t)
	l.ready(l.plane)
	move := &plane.Move{From: l.plane, To: second, Namespace: l.key.Namespace, Before: firstDeletion}
	g.Expect(move.Run(ctx)).To(MatchError(plane.ErrMoverKilled))
	g.Expect(move.Writes()).To(ContainElements("target create Secret ssh", "target create QuoinHost "+l.key.Name, "target create QuoinMachine m"))
	l.ready(second)
	// A person has both go on.
	for _, p := range []*plane.Plane{l.plane, second} {
		cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: l.key.Namespace, Name: "c"}}
		g.Expect(p.Client.Patch(ctx, cluster, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"paused":null}}`)))).To(Succeed())
	}
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
	before := l.settled()

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

	g.Expect(differing(before, l.host.Tree())).To(BeEmpty(), "the older generation changed something")
	g.Expect(l.plane.Client.Get(ctx, client.ObjectKey{Name: "generations"}, &corev1.Node{})).To(Succeed(), "the node lives")
}

// ready has the Cluster and the Machine say what core says of those that run: clusterctl moves no others.
func (l *lab) ready(p *plane.Plane) {
	l.t.Helper()
	cluster, machine := &clusterv1.Cluster{}, &clusterv1.Machine{}
	change := func(object client.Object, name string, change func()) {
		l.t.Helper()
		err := p.Client.Get(l.t.Context(), client.ObjectKey{Namespace: l.key.Namespace, Name: name}, object)
		if err == nil {
			patch := client.MergeFrom(object.DeepCopyObject().(client.Object))
			change()
			err = p.Client.Status().Patch(l.t.Context(), object, patch)
		}
		if err != nil {
			l.t.Fatal(err)
		}
	}
	change(cluster, "c", func() {
		cluster.Status.Initialization.InfrastructureProvisioned, cluster.Status.Initialization.ControlPlaneInitialized = ptr.To(true), ptr.To(true)
		conditions.Set(cluster, metav1.Condition{Type: clusterv1.ClusterControlPlaneInitializedCondition, Status: metav1.ConditionTrue, Reason: "Initialized"})
	})
	change(machine, "m", func() { machine.Status.NodeRef = clusterv1.MachineNodeReference{Name: l.key.Name} })
}
