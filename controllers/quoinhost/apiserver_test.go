// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinhost

import (
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/owner"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
)

const stopped = infrav1.HostAPIServerStoppedCondition

// askToStop asks for the end of the API server, as the control plane does.
func askToStop(w *world, at string) {
	w.t.Helper()
	quoinMachine := &infrav1.QuoinMachine{}
	w.object(quoinMachine, "qm1")
	metav1.SetMetaDataAnnotation(&quoinMachine.ObjectMeta, infrav1.StopAPIServerAnnotation, at)
	w.g.Expect(w.client.Update(w.t.Context(), quoinMachine)).To(Succeed())
}

var now = time.Now().UTC().Format(time.RFC3339)

func TestAHostThatLeavesEndsItsAPIServerWhenItIsAsked(t *testing.T) {
	g := NewWithT(t)
	w := leavingWorld(t, true, nil)
	w.linger(5)
	g.Expect(w.room.count("stop API server")).To(BeZero(), "the node may still be drained, which the kubelet needs it for")
	g.Expect(conditions.Has(w.host(), stopped)).To(BeFalse())
	askToStop(w, now)
	w.untilReason(stopped, infrav1.HostAPIServerStoppedReason)
	g.Expect(w.room.count("handover")).To(Equal(1), "the virtual address goes first")
	w.linger(5)
	w.restart()
	w.linger(5)
	g.Expect(w.room.count("stop API server")).To(Equal(1), "what was done is written down")
	g.Expect(conditions.IsTrue(w.host(), infrav1.HostReadyCondition)).To(BeTrue())
	deleteMachine(w)
	host := w.until("clean", (*infrav1.QuoinHost).Released)
	g.Expect(conditions.Has(host, stopped)).To(BeFalse(), "it says nothing about the next Machine")
}

func TestTheAPIServerOfAHostThatStaysServes(t *testing.T) {
	for name, c := range map[string]struct {
		worker bool
		at     string
		change func(w *world)
	}{
		"of a Machine that lives": {at: now, change: func(*world) {}},
		"of a worker": {worker: true, at: now, change: func(w *world) {
			w.g.Expect(w.client.Delete(w.t.Context(), machineOf(w))).To(Succeed())
		}},
		"when nobody says when": {at: "true", change: func(w *world) {
			w.g.Expect(w.client.Delete(w.t.Context(), machineOf(w))).To(Succeed())
		}},
		"while a person works": {at: now, change: func(w *world) {
			w.g.Expect(w.client.Delete(w.t.Context(), machineOf(w))).To(Succeed())
			w.update(func(h *infrav1.QuoinHost) { h.Spec.Maintenance = &infrav1.Maintenance{Reason: "cables"} })
		}},
		"when the Cluster goes": {at: now, change: func(w *world) {
			cluster := &clusterv1.Cluster{}
			w.object(cluster, "c1")
			cluster.Finalizers = []string{clusterv1.ClusterFinalizer}
			w.g.Expect(w.client.Update(w.t.Context(), cluster)).To(Succeed())
			w.g.Expect(w.client.Delete(w.t.Context(), cluster)).To(Succeed())
			w.g.Expect(w.client.Delete(w.t.Context(), machineOf(w))).To(Succeed())
		}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			w := claimedWorld(t, !c.worker)
			w.untilState(infrav1.HostStateProvisioned)
			c.change(w)
			askToStop(w, c.at)
			w.linger(10)
			g.Expect(w.room.count("stop API server")).To(BeZero())
			g.Expect(conditions.IsTrue(w.host(), stopped)).To(BeFalse())
		})
	}
}

func machineOf(w *world) *clusterv1.Machine {
	machine := &clusterv1.Machine{}
	w.object(machine, "m1")
	return machine
}

// The control plane then goes on without it, and the host is released like any other.
func TestAHostWhoseKubeletDoesNotEndTheAPIServerSaysSo(t *testing.T) {
	g := NewWithT(t)
	w := leavingWorld(t, true, nil)
	w.room.set(func() {
		w.room.errs["stop API server"] = &ssh.ExitError{Code: 1, Stderr: "the kubelet has not ended the API server"}
	})
	askToStop(w, now)
	g.Expect(w.untilReason(stopped, infrav1.HostStepFailedReason).Message).To(
		ContainSubstring("the kubelet has not ended the API server"))
	w.linger(5)
	g.Expect(w.room.count("stop API server")).To(Equal(1))
	deleteMachine(w)
	w.until("clean", (*infrav1.QuoinHost).Released)
}

// A connection that breaks proves nothing: the host is asked again, and says what it has done.
func TestAStopThatWasCutOffIsAskedForAgain(t *testing.T) {
	g := NewWithT(t)
	w := leavingWorld(t, true, nil)
	w.linger(5)
	w.room.set(func() { w.room.errs["stop API server"] = &ssh.UnreachableError{} })
	askToStop(w, now)
	w.linger(2)
	g.Expect(conditions.IsTrue(w.host(), stopped)).To(BeFalse())
	w.room.set(func() { delete(w.room.errs, "stop API server") })
	w.untilReason(stopped, infrav1.HostAPIServerStoppedReason)
}

// Whoever manages the host by now says when its API server goes.
func TestAManagementClusterThatIsNoneAnyMoreEndsNoAPIServer(t *testing.T) {
	g := NewWithT(t)
	w := leavingWorld(t, true, nil)
	w.room.set(func() {
		newer := owner.Record{Namespace: "hosts", Host: "h1", Machine: "m1", UID: "0123abcd", Generation: 9,
			ManagementCluster: "another"}
		w.room.record = &newer
	})
	askToStop(w, now)
	w.linger(10)
	g.Expect(conditions.IsTrue(w.host(), stopped)).To(BeFalse())
	g.Expect(conditions.GetReason(w.host(), stopped)).NotTo(Equal(infrav1.HostStepFailedReason),
		"another management cluster is no refusal to go on from")
	w.room.mu.Lock()
	defer w.room.mu.Unlock()
	g.Expect(slices.Index(w.room.changed, "stop API server")).To(Equal(-1))
}
