// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinhost

import (
	"net/netip"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
)

const hookOfOthers = clusterv1.PreDrainDeleteHookAnnotationPrefix + "/others"

// leavingWorld has the Machine of a control-plane host deleted beside another one that is a node, less what a case
// changes first.
func leavingWorld(t *testing.T, controlPlane bool, change func(w *world, peer *clusterv1.Machine)) *world {
	w := claimedWorld(t, controlPlane)
	w.untilState(infrav1.HostStateProvisioned)
	_, _, peer, _, _ := consumer(true)
	peer.Name, peer.UID = "m2", "peer"
	peer.Status.NodeRef.Name = "node-2"
	if change != nil {
		change(w, peer)
	}
	if peer.Name != "" {
		leaves := !peer.DeletionTimestamp.IsZero()
		w.create(peer)
		if leaves {
			w.g.Expect(w.client.Delete(t.Context(), peer)).To(Succeed())
		}
	}
	machine := &clusterv1.Machine{}
	w.object(machine, "m1")
	w.g.Expect(w.client.Delete(t.Context(), machine)).To(Succeed())
	return w
}

func TestAHostThatLeavesHandsTheVirtualAddressOver(t *testing.T) {
	g := NewWithT(t)
	w := leavingWorld(t, true, nil)
	w.linger(10)
	g.Expect(w.room.count("handover")).To(Equal(1))
	g.Expect(w.room.handedOver).To(Equal([]netip.Prefix{netip.MustParsePrefix("10.0.0.100/32")}))
	w.restart()
	w.linger(10)
	g.Expect(w.room.count("handover")).To(Equal(2), "the host knows whether it has done so")
	g.Expect(w.host().Status.State).To(Equal(infrav1.HostStateProvisioned))
}

func TestTheVirtualAddressStaysWhereItIs(t *testing.T) {
	update := func(object client.Object, name string, change func()) func(w *world, _ *clusterv1.Machine) {
		return func(w *world, _ *clusterv1.Machine) {
			w.object(object, name)
			change()
			w.g.Expect(w.client.Update(w.t.Context(), object)).To(Succeed())
		}
	}
	machine, quoinCluster, cluster := &clusterv1.Machine{}, &infrav1.QuoinCluster{}, &clusterv1.Cluster{}
	for name, c := range map[string]struct {
		worker bool
		change func(w *world, peer *clusterv1.Machine)
	}{
		"on a worker": {worker: true},
		"before the drain": {change: update(machine, "m1",
			func() { machine.Annotations = map[string]string{hookOfOthers: ""} })},
		"at a load balancer": {change: update(quoinCluster, "c1",
			func() { quoinCluster.Spec.LoadBalancer = infrav1.LoadBalancer{Type: infrav1.LoadBalancerExternal} })},
		"on the last host":       {change: func(_ *world, peer *clusterv1.Machine) { peer.Name = "" }},
		"while nobody is a node": {change: func(_ *world, peer *clusterv1.Machine) { peer.Status.NodeRef.Name = "" }},
		"while all others leave": {change: func(_ *world, peer *clusterv1.Machine) {
			peer.DeletionTimestamp = ptr.To(metav1.Now())
		}},
		"in another cluster": {change: func(_ *world,
			peer *clusterv1.Machine) {
			peer.Labels[clusterv1.ClusterNameLabel] = "c2"
		}},
		"while a person works": {change: func(w *world, _ *clusterv1.Machine) {
			w.update(func(h *infrav1.QuoinHost) { h.Spec.Maintenance = &infrav1.Maintenance{} })
		}},
		"when the Cluster is gone": {change: func(w *world, _ *clusterv1.Machine) {
			w.object(cluster, "c1")
			cluster.Finalizers = []string{clusterv1.ClusterFinalizer}
			w.g.Expect(w.client.Update(w.t.Context(), cluster)).To(Succeed())
			w.g.Expect(w.client.Delete(w.t.Context(), cluster)).To(Succeed())
		}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			w := leavingWorld(t, !c.worker, c.change)
			w.linger(10)
			g.Expect(w.room.count("handover")).To(BeZero())
		})
	}
}

// All Machines were deleted at once: those whose turn has not come stay meanwhile.
func TestTheVirtualAddressGoesToAHostWhoseTurnHasNotCome(t *testing.T) {
	g := NewWithT(t)
	w := leavingWorld(t, true, func(_ *world, peer *clusterv1.Machine) {
		peer.DeletionTimestamp = ptr.To(metav1.Now())
		peer.Annotations = map[string]string{hookOfOthers: ""}
	})
	w.linger(10)
	g.Expect(w.room.count("handover")).To(Equal(1))
}

// A host that cannot hand it over is asked once, is looked after as before, and is released all the same.
func TestAHostThatCannotHandTheVirtualAddressOverLeavesAllTheSame(t *testing.T) {
	g := NewWithT(t)
	w := leavingWorld(t, true, nil)
	w.room.set(func() { w.room.errs["handover"] = &ssh.ExitError{Code: 1, Stderr: "Job for keepalived.service failed"} })
	probes := w.room.count("probe")
	w.linger(5)
	g.Expect(w.room.count("handover")).To(Equal(1))
	g.Expect(w.room.count("probe")).To(BeNumerically(">", probes))
	g.Expect(conditions.IsTrue(w.host(), infrav1.HostReadyCondition)).To(BeTrue())
	deleteMachine(w)
	w.until("clean", (*infrav1.QuoinHost).Released)
}
