// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinhost

import (
	"context"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/run"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
)

// pauseCluster is the first thing that clusterctl move does.
func pauseCluster(w *world, paused bool) {
	w.t.Helper()
	cluster := &clusterv1.Cluster{}
	w.g.Expect(w.client.Get(context.Background(), client.ObjectKey{Namespace: "team", Name: "c1"}, cluster)).To(Succeed())
	cluster.Spec.Paused = ptr.To(paused)
	w.g.Expect(w.client.Update(context.Background(), cluster)).To(Succeed())
}

func (w *world) expectQuiet(status metav1.ConditionStatus, says string) {
	w.t.Helper()
	w.until("quiet="+string(status)+": "+says, func(h *infrav1.QuoinHost) bool {
		c := condition1(h, infrav1.HostQuietCondition)
		return c != nil && c.Status == status && strings.Contains(c.Message, says)
	})
	w.linger(5)
	c := condition1(w.host(), infrav1.HostQuietCondition)
	w.g.Expect(c.Status).To(Equal(status), "and stays so: %s", c.Message)
}

func TestAPausedHostIsQuietWhenItsPlanHasEnded(t *testing.T) {
	w := atWork(t)
	w.g.Expect(condition1(w.host(), infrav1.HostQuietCondition)).To(BeNil(), "nobody asks")
	pauseCluster(w, true)
	w.linger(10)
	w.expectQuiet(metav1.ConditionFalse, "plan "+provisionPlanID+" runs (kubeadm-join)")
	w.expectQuiet(metav1.ConditionFalse, "annotate quoinhost h1 "+infrav1.DetachedAnnotation+"=")

	w.room.set(func() { w.room.script[provisionPlanID] = []run.Status{{Phase: run.Succeeded}} })
	w.linger(5)
	w.expectQuiet(metav1.ConditionTrue, nothingRuns)
	w.g.Expect(w.host().Status.State).To(Equal(infrav1.HostStateProvisioning), "what follows from it is done after the "+
		"pause")

	pauseCluster(w, false)
	w.untilState(infrav1.HostStateProvisioned)
	w.g.Expect(condition1(w.host(), infrav1.HostQuietCondition)).To(BeNil())
}

// The conversation that hands a plan over takes minutes when the host is slow. The pause may come in the middle.
func TestAPlanThatIsHandedOverDuringThePauseIsWaitedFor(t *testing.T) {
	w := claimedWorld(t, false)
	w.room.script[provisionPlanID] = []run.Status{{Phase: run.Running, Step: "kubeadm-join"}}
	w.until("about to start", func(h *infrav1.QuoinHost) bool {
		return h.Status.Operation != nil && h.Status.Operation.ID == provisionPlanID
	})
	block := make(chan struct{})
	for range 20 {
		w.room.set(func() { w.room.block = block })
		_, err := w.r.Reconcile(context.Background(), request(w))
		w.g.Expect(err).NotTo(HaveOccurred())
		op, _, under := w.r.Calls.Running(w.key)
		if strings.HasPrefix(op, "start ") {
			break
		}
		// Another conversation comes first.
		w.room.set(func() { w.room.block = nil })
		close(block)
		block = make(chan struct{})
		if under {
			<-w.r.Calls.Events()
		}
	}
	pauseCluster(w, true)
	for range 5 {
		_, err := w.r.Reconcile(context.Background(), request(w))
		w.g.Expect(err).NotTo(HaveOccurred())
	}
	w.g.Expect(condition1(w.host(), infrav1.HostQuietCondition).Message).To(
		ContainSubstring("a conversation with the host has not ended yet (start " + provisionPlanID + ")"))

	w.room.set(func() { w.room.block = nil })
	close(block)
	w.linger(10)
	w.expectQuiet(metav1.ConditionFalse, "plan "+provisionPlanID+" runs")
	w.room.set(func() { w.room.script[provisionPlanID] = []run.Status{{Phase: run.Succeeded}} })
	w.linger(5)
	w.expectQuiet(metav1.ConditionTrue, nothingRuns)
	w.g.Expect(w.room.plans[provisionPlanID].starts).To(Equal(1))
}

// The manager dies right after it has handed the plan over: only the status says that there may be one.
func TestAPlanOfAManagerThatDiedIsAskedForDuringThePause(t *testing.T) {
	for name, c := range map[string]struct {
		handedOver bool
		status     metav1.ConditionStatus
		says       string
	}{
		"handed over": {true, metav1.ConditionFalse, "plan " + provisionPlanID + " runs"},
		"not yet":     {false, metav1.ConditionTrue, nothingRuns},
	} {
		t.Run(name, func(t *testing.T) {
			w := claimedWorld(t, false)
			w.room.script[provisionPlanID] = []run.Status{{Phase: run.Running, Step: "kubeadm-join"}}
			w.until("about to start", func(h *infrav1.QuoinHost) bool {
				return h.Status.Operation != nil && h.Status.Operation.ID == provisionPlanID && w.room.count("provision") == 0
			})
			if c.handedOver {
				w.room.set(func() { w.room.plans[provisionPlanID] = &fakePlan{starts: 1} })
			}
			w.restart()
			pauseCluster(w, true)
			w.linger(10)
			w.expectQuiet(c.status, c.says)
			w.g.Expect(w.room.count("provision")).To(BeZero())
		})
	}
}

// No plan is handed over that the status does not name: a manager that died could not be told from one that did
// nothing.
func TestAPlanIsNotedBeforeItIsHandedOver(t *testing.T) {
	w := claimedWorld(t, false)
	w.untilState(infrav1.HostStateProvisioned)
	deleteMachine(w)
	w.expectNotedBeforeHandedOver()
}

// The order in spec is written before the status: a manager that dies between the two leaves a plan that only spec
// names.
func TestAPlanWhoseOrderIsThereAlreadyIsNotedBeforeItIsHandedOver(t *testing.T) {
	w := claimedWorld(t, false)
	w.untilState(infrav1.HostStateProvisioned)
	deleteMachine(w)
	w.update(func(h *infrav1.QuoinHost) { h.Spec.Order = nextOrder(h.Spec.Order, "reset-0123abcd", true, "given") })
	w.restart()
	w.expectNotedBeforeHandedOver()
}

// expectNotedBeforeHandedOver reconciles until the reset is handed over.
func (w *world) expectNotedBeforeHandedOver() {
	w.t.Helper()
	for range 60 {
		operation := w.host().Status.Operation
		w.reconcile()
		if w.room.count("clean") > 0 {
			w.g.Expect(operation.ID).To(HavePrefix("reset-"))
			return
		}
	}
	w.t.Fatal("never handed over")
}

func TestWhatCannotRunIsNotWaitedFor(t *testing.T) {
	t.Run("a plan that a reboot cut off", func(t *testing.T) {
		w := atWork(t)
		w.room.set(func() { w.room.script[provisionPlanID] = []run.Status{{Phase: run.Running, Lost: true}} })
		pauseCluster(w, true)
		w.linger(10)
		w.expectQuiet(metav1.ConditionTrue, nothingRuns)
		w.g.Expect(w.changes()).NotTo(ContainElement("resume " + provisionPlanID))
	})
	t.Run("a plan on a host that is detached, by a person's word", func(t *testing.T) {
		w := atWork(t)
		pauseCluster(w, true)
		w.linger(5)
		w.expectQuiet(metav1.ConditionFalse, "runs")
		w.update(modes["detached"])
		w.linger(5)
		w.expectQuiet(metav1.ConditionTrue, "detached")
	})
}

// Silence is no end.
func TestAPlanOnASilentHostIsWaitedFor(t *testing.T) {
	w := atWork(t)
	w.room.set(func() { w.room.err = &ssh.UnreachableError{Endpoint: "192.0.2.11:22"} })
	pauseCluster(w, true)
	w.linger(5)
	w.expectQuiet(metav1.ConditionFalse, "plan "+provisionPlanID+" may run")
}

func TestAHeldHostIsQuietAndNobodyLooksAtIt(t *testing.T) {
	w := newWorld(t, newHost())
	w.untilState(infrav1.HostStateAvailable)
	w.update(func(h *infrav1.QuoinHost) {
		h.Spec.HeldFor = &infrav1.HostHold{Source: string(h.UID), Clusters: []string{"c1", "c2", "c3", "c4", "c5"}}
	})
	w.linger(1)
	probes := w.room.count("probe")
	w.linger(10)
	w.expectQuiet(metav1.ConditionTrue, nothingRuns)
	w.g.Expect(w.room.count("probe")).To(Equal(probes))
	w.g.Expect(condition1(w.host(), infrav1.HostReadyCondition).Message).To(And(
		ContainSubstring("held while Cluster c1, c2, c3 and 2 more moves"), ContainSubstring(`"heldFor":null`)))
}
