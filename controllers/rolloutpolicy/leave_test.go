// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package rolloutpolicy

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/rollout"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/steady"
)

// draining is a world whose two new Machines count, and whose old ones run a pod each.
type draining struct {
	*world
	// refuses says why pods are not evicted; empty when they are.
	refuses string
}

func newDraining(t *testing.T, drain quoinv1.RolloutDrain, kills int) *draining {
	t.Helper()
	w := &draining{world: newWorld(t, machineOf("new-0", "v2"), machineOf("new-1", "v2"), hostedBy("new-0", "quoin://y"),
		hostedBy("new-1", "quoin://y"))}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, appsv1.AddToScheme, storagev1.AddToScheme} {
		w.Expect(add(scheme)).To(Succeed())
	}
	objects := []client.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}}}
	for _, name := range []string{"old-0", "old-1", "new-0", "new-1"} {
		objects = append(objects, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "on-" + name, Labels: map[string]string{"on": name},
				OwnerReferences: []metav1.OwnerReference{{Kind: "StatefulSet", Name: "db", Controller: ptr.To(true)}}},
			Spec: corev1.PodSpec{NodeName: name}})
	}
	w.workload = fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
		WithIndex(&corev1.Pod{}, "spec.nodeName", func(o client.Object) []string {
			return []string{o.(*corev1.Pod).Spec.NodeName}
		}).WithInterceptorFuncs(interceptor.Funcs{SubResourceCreate: func(ctx context.Context, c client.Client, of string,
		object, sub client.Object, options ...client.SubResourceCreateOption) error {
		if w.refuses != "" {
			return apierrors.NewTooManyRequests(w.refuses, 0)
		}
		return c.SubResource(of).Create(ctx, object, sub, options...)
	}}).Build()
	policy := w.policy()
	w.adjust(policy, func() { policy.Spec.Drain = &drain })
	for _, name := range []string{"old-0", "old-1", "new-0", "new-1"} {
		w.joins(name)
		machine := w.machine(name)
		w.adjust(machine, func() { machine.Finalizers = []string{clusterv1.MachineFinalizer} })
	}
	w.kills = func(write int) bool { return kills > 0 && write%kills == 0 && write < 60 }
	w.restart()
	return w
}

func (w *draining) node(name string) *corev1.Node {
	w.t.Helper()
	node := &corev1.Node{}
	w.Expect(w.workload.Get(w.t.Context(), client.ObjectKey{Name: name}, node)).To(Succeed())
	return node
}

func (w *draining) hooks(name string) (hooks []string) {
	w.t.Helper()
	for _, hook := range []string{quoinv1.RolloutPreDrainHookAnnotation, quoinv1.RolloutPreTerminateHookAnnotation} {
		if _, is := w.machine(name).Annotations[hook]; is {
			hooks = append(hooks, hook[:len("pre-drain")])
		}
	}
	return hooks
}

var both, onlyTerminate = []string{"pre-drain", "pre-termi"}, []string{"pre-termi"}

func (w *draining) tainted(name string) bool {
	w.t.Helper()
	for _, t := range w.node(name).Spec.Taints {
		if t == taint {
			return true
		}
	}
	return false
}

func (w *draining) delete(name string) {
	w.t.Helper()
	w.Expect(w.client.Delete(w.t.Context(), w.machine(name))).To(Succeed())
}

// says has Cluster API say how far a deletion is.
func (w *draining) says(name, reason, message string, set func(*clusterv1.MachineDeletionStatus, metav1.Time)) {
	w.t.Helper()
	machine := w.machine(name)
	conditions.Set(machine, metav1.Condition{Type: clusterv1.MachineDeletingCondition, Status: metav1.ConditionTrue,
		Reason: reason, Message: message})
	if machine.Status.Deletion == nil {
		machine.Status.Deletion = &clusterv1.MachineDeletionStatus{}
	}
	set(machine.Status.Deletion, metav1.NewTime(w.clock.Now()))
	w.Expect(w.client.Status().Update(w.t.Context(), machine)).To(Succeed())
}

func (w *draining) begins(name, message string) {
	w.t.Helper()
	w.says(name, clusterv1.MachineDeletingDrainingNodeReason, message,
		func(d *clusterv1.MachineDeletionStatus, now metav1.Time) { d.NodeDrainStartTime = now })
}

func (w *draining) passes(name string) {
	w.t.Helper()
	w.says(name, clusterv1.MachineDeletingWaitingForPreTerminateHookReason, "Waiting",
		func(d *clusterv1.MachineDeletionStatus, now metav1.Time) { d.WaitForPreTerminateHookStartTime = now })
}

func (w *draining) pods(name string) int {
	w.t.Helper()
	list := &corev1.PodList{}
	w.Expect(w.workload.List(w.t.Context(), list, client.MatchingLabels{"on": name})).To(Succeed())
	return len(list.Items)
}

// Nodes are tainted first; a Machine that leaves is cordoned and taken out of load balancers before Cluster API drains
// it, its host is kept until no pod is left and five seconds more, and the next one comes fifteen seconds later.
// Whatever write the process dies at, it goes on.
//
// Proves: S3-11, S3-14, S3-15, S3-16, S3-17, S3-18, S3-20, K-1, S0-71
func TestANodeIsDrainedBeforeItsHostIsGivenUp(t *testing.T) {
	for _, every := range []int{0, 1, 2, 3} {
		t.Run(fmt.Sprint("killed at every write of ", every), func(t *testing.T) {
			w := newDraining(t, quoinv1.RolloutDrain{}, every)
			w.reconcile()
			for _, name := range []string{"old-0", "old-1", "new-0", "new-1"} {
				w.Expect(w.hooks(name)).To(Equal(both), name)
				w.Expect(w.tainted(name)).To(Equal(name[:3] == "old"), name)
				w.Expect(w.node(name).Spec.Unschedulable).To(BeFalse())
			}
			version := w.node("old-0").ResourceVersion

			w.delete("old-0")
			w.reconcile()
			w.Expect(w.hooks("old-0")).To(Equal(onlyTerminate))
			w.Expect(w.node("old-0").ResourceVersion).NotTo(Equal(version))
			w.Expect(w.node("old-0").Spec.Unschedulable).To(BeTrue())
			w.Expect(w.node("old-0").Labels).To(HaveKey(corev1.LabelNodeExcludeBalancers))
			w.Expect(w.node("old-1").Spec.Unschedulable).To(BeFalse())

			// Its QuoinMachine was deleted by hand: Cluster API goes on without a drain.
			w.refuses = "the disruption budget db needs 2 healthy pods"
			w.passes("old-0")
			w.reconcile()
			w.Expect(w.hooks("old-0")).To(Equal(onlyTerminate))
			w.refuses = ""
			w.clock.Step(20 * time.Second)
			w.reconcile()
			w.Expect(w.pods("old-0")).To(BeZero(), "what Cluster API did not evict is evicted")
			if every == 0 { // a process that began anew did not see them
				w.Expect(w.hooks("old-0")).To(Equal(onlyTerminate), "five seconds are not over")
			}
			w.clock.Step(5 * time.Second)
			w.reconcile()
			w.Expect(w.hooks("old-0")).To(BeEmpty())
			last := w.policy().Status.MachineDeployments[0].LastTermination.Time
			w.Expect(last).To(BeTemporally("~", w.clock.Now(), 5*time.Second))
			w.Expect(w.policy().Status.MachineDeployments[0].RecentDrainSeconds).To(ConsistOf(BeNumerically("~", 25, 5)))

			w.delete("old-1")
			result := w.reconcile()
			w.Expect(w.hooks("old-1")).To(Equal(both))
			w.Expect(result.RequeueAfter).To(Equal(last.Add(15 * time.Second).Sub(w.clock.Now())))
			w.clock.Step(15 * time.Second)
			w.reconcile()
			w.Expect(w.hooks("old-1")).To(Equal(onlyTerminate))
		})
	}
}

// A Machine that is deleted and held says so where it is looked for, once for each reason.
func TestAMachineThatIsHeldSaysWhy(t *testing.T) {
	w := newDraining(t, quoinv1.RolloutDrain{}, 0)
	w.reconcile()
	blue := w.blue()
	w.adjust(blue, func() { blue.Spec.Paused = ptr.To(true) })
	w.delete("old-0")
	said := w.notes()
	for range 3 {
		w.reconcile()
	}
	suspended := HaveKeyWithValue(And(HavePrefix("Normal Suspended the MachineDeployment is paused: resume it"),
		ContainSubstring("take the annotation "+quoinv1.RolloutPreDrainHookAnnotation)), 1)
	w.Expect(said.about["old-0"]).To(And(HaveLen(1), suspended))
	cluster := &clusterv1.Cluster{}
	w.read(cluster, "c1")
	cluster.Status.Conditions = []metav1.Condition{{Type: clusterv1.ClusterControlPlaneAvailableCondition,
		Status: metav1.ConditionFalse, Reason: "NotAvailable", Message: "etcd has no leader"}}
	w.Expect(w.client.Status().Update(t.Context(), cluster)).To(Succeed())
	w.adjust(blue, func() { blue.Spec.Paused = nil })
	for range 3 {
		w.reconcile()
	}
	w.Expect(said.about["old-0"]).To(And(HaveLen(2), suspended,
		HaveKeyWithValue(HavePrefix("Normal ControlPlane workers wait until the control plane is healthy: etcd has no leader"), 1)))
}

// A Node that cannot be read nor changed is waited for as long as ever after a pause, whatever is paused.
//
// Proves: S0-71
func TestAPauseTakesNothingOfAWait(t *testing.T) {
	for by, pause := range pauses {
		t.Run(by, func(t *testing.T) {
			w := newDraining(t, quoinv1.RolloutDrain{}, 0)
			w.reconcile()
			down := errors.New("etcdserver: request timed out")
			failing := interceptor.NewClient(w.workload.(client.WithWatch), interceptor.Funcs{
				List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error { return down },
				Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
					return down
				}})
			w.r.ClusterCache = clustercache.NewFakeClusterCache(failing, client.ObjectKey{Namespace: namespace, Name: "c1"},
				nodesWatch)
			w.delete("old-0")
			w.says("old-0", clusterv1.MachineDeletingWaitingForPreDrainHookReason, "Waiting",
				func(d *clusterv1.MachineDeletionStatus, now metav1.Time) { d.WaitForPreDrainHookStartTime = now })
			w.isPausedFor(time.Hour, pause)
			w.clock.Step(time.Minute - time.Second)
			w.reconcile()
			w.Expect(w.hooks("old-0")).To(Equal(both))
			w.clock.Step(time.Second)
			w.reconcile()
			w.Expect(w.hooks("old-0")).To(Equal(onlyTerminate))
		})
	}
}

// A Node that cannot be cordoned keeps its drain up, since nothing else takes it out of load balancers, and not for
// ever.
//
// Proves: S3-15
func TestADrainWaitsForItsCordon(t *testing.T) {
	for name, refusals := range map[string]int{"once": 1, "always": -1} {
		t.Run(name, func(t *testing.T) {
			w := newDraining(t, quoinv1.RolloutDrain{}, 0)
			w.reconcile()
			failing := interceptor.NewClient(w.workload.(client.WithWatch), interceptor.Funcs{Patch: func(ctx context.Context,
				c client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
				if refusals != 0 {
					refusals--
					return errors.New("etcdserver: request timed out")
				}
				return c.Patch(ctx, object, patch, options...)
			}})
			key := client.ObjectKey{Namespace: namespace, Name: "c1"}
			w.r.ClusterCache = clustercache.NewFakeClusterCache(failing, key, nodesWatch)
			w.delete("old-0")
			refused := func() {
				w.t.Helper()
				_, err := w.once()
				w.Expect(err).To(MatchError(ContainSubstring("cordon Node old-0: etcdserver: request timed out")))
				w.Expect(w.hooks("old-0")).To(Equal(both))
			}
			refused()
			if name == "always" {
				w.clock.Step(time.Hour)
				refused() // Cluster API did not come to the hook
				w.says("old-0", clusterv1.MachineDeletingWaitingForPreDrainHookReason, "Waiting",
					func(d *clusterv1.MachineDeletionStatus, now metav1.Time) { d.WaitForPreDrainHookStartTime = now })
				w.clock.Step(time.Minute - time.Second)
				refused()
				w.clock.Step(time.Second)
			}
			w.recorded()
			w.reconcile()
			w.Expect(w.hooks("old-0")).To(Equal(onlyTerminate))
			_, excluded := w.node("old-0").Labels[corev1.LabelNodeExcludeBalancers]
			w.Expect(excluded).To(Equal(name == "once"))
			warns := ContainElement(And(HavePrefix("Warning NotCordoned Node old-0 is drained"),
				HaveSuffix("cordon Node old-0: etcdserver: request timed out")))
			if name == "once" {
				warns = Not(warns)
			}
			w.Expect(w.recorded()).To(warns)
		})
	}
}

// Somebody writes a Machine between its reading and our patch: it is read anew soon, and nobody is told of a failure.
func TestAMachineThatWasWrittenMeanwhileIsReadAnew(t *testing.T) {
	w := newDraining(t, quoinv1.RolloutDrain{}, 0)
	w.reconcile()
	w.delete("old-0")
	writer, meanwhile := w.r.Client.(client.WithWatch), 1
	w.r.Client = interceptor.NewClient(writer, interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch,
		object client.Object, patch client.Patch, options ...client.PatchOption) error {
		if object.GetName() == "old-0" && meanwhile > 0 {
			meanwhile--
			machine := w.machine("old-0")
			w.adjust(machine, func() { metav1.SetMetaDataAnnotation(&machine.ObjectMeta, "written", "meanwhile") })
		}
		return c.Patch(ctx, object, patch, options...)
	}})
	key := ctrl.Request{NamespacedName: client.ObjectKey{Namespace: namespace, Name: "c1"}}
	for meanwhile > 0 {
		result, err := w.r.Reconcile(t.Context(), key)
		w.Expect(err).NotTo(HaveOccurred())
		w.Expect(result.RequeueAfter).To(Equal(cacheLag))
	}
	w.reconcile()
	w.Expect(w.hooks("old-0")).To(Equal(onlyTerminate))
}

// A disruption budget that never lets go: the host is kept, whatever the template's time-out says, and the policy names
// Machine, budget and pod. It goes on by itself when that lets go.
//
// Proves: S3-16, K-6, C7
func TestADrainThatFailsIsNamedAndKeepsItsHost(t *testing.T) {
	w := newDraining(t, quoinv1.RolloutDrain{}, 0)
	w.reconcile()
	w.delete("old-0")
	w.reconcile()
	w.begins("old-0", "Pod default/on-old-0: the disruption budget db needs 2 healthy pods")
	w.Expect(w.reconcile().RequeueAfter).To(Equal(15 * time.Minute))
	w.clock.Step(15 * time.Minute)
	w.reconcile()
	stalled := func() *metav1.Condition { return conditions.Get(w.policy(), quoinv1.RolloutPolicyStalledCondition) }
	w.Expect(stalled().Reason).To(Equal(quoinv1.DrainFailedReason))
	w.Expect(stalled().Message).To(And(ContainSubstring("default/on-old-0"), ContainSubstring("budget db"),
		HavePrefix("Machine old-0 of MachineDeployment blue: its Node old-0 has been draining since ")))

	// The template's nodeDrainTimeoutSeconds is over, and Quoin evicts.
	w.refuses = "the disruption budget web needs 3 healthy pods"
	w.passes("old-0")
	w.reconcile()
	w.clock.Step(20 * time.Second)
	w.reconcile()
	w.Expect(w.hooks("old-0")).To(Equal(onlyTerminate))
	w.Expect(stalled().Message).To(ContainSubstring("budget web"))
	w.delete("old-1")
	w.reconcile()
	w.Expect(w.hooks("old-1")).To(Equal(both), "its group waits")

	w.refuses = ""
	w.clock.Step(20 * time.Second)
	w.reconcile()
	w.clock.Step(5 * time.Second)
	w.reconcile()
	w.Expect(w.hooks("old-0")).To(BeEmpty())
	w.Expect(stalled().Status).To(Equal(metav1.ConditionFalse))
	w.clock.Step(15 * time.Second)
	w.reconcile()
	w.Expect(w.hooks("old-1")).To(Equal(onlyTerminate))
}

// Cluster API waits for volumes before the pre-terminate hooks, and not again for those of pods that were evicted
// since: the host is kept until they are detached, and for the delay that logs have. What is never detached keeps it
// for five minutes, and no minute where the Machine says that nobody waits for volumes.
//
// Proves: S2-26, S2-27, C7
func TestVolumesAreDetachedBeforeTheHostIsGivenUp(t *testing.T) {
	attached := func(w *draining, volumes ...corev1.AttachedVolume) {
		node := w.node("old-0")
		node.Status.VolumesAttached = volumes
		w.Expect(w.workload.Status().Update(w.t.Context(), node)).To(Succeed())
	}
	begin := func(t *testing.T, onTimeout quoinv1.RolloutDrainTimeout) *draining {
		w := newDraining(t, quoinv1.RolloutDrain{OnTimeout: onTimeout, PostDrainDelaySeconds: ptr.To[int32](30)}, 0)
		w.reconcile()
		attached(w, corev1.AttachedVolume{Name: "csi/db"})
		w.delete("old-0")
		w.reconcile()
		w.begins("old-0", "Pod default/on-old-0: the disruption budget db needs 2 healthy pods")
		w.passes("old-0") // the template's nodeDrainTimeoutSeconds is over
		return w
	}
	for _, onTimeout := range []quoinv1.RolloutDrainTimeout{quoinv1.RolloutDrainFail, quoinv1.RolloutDrainForce} {
		t.Run(string(onTimeout), func(t *testing.T) {
			w := begin(t, onTimeout)
			if onTimeout == quoinv1.RolloutDrainForce {
				w.refuses = "the disruption budget db needs 2 healthy pods"
				w.lookAfter(15 * time.Minute)
				w.Expect(w.recorded()).To(ContainElement(ContainSubstring(
					"deletes default/on-old-0 (StatefulSet db makes it anew when it has ended)")))
			} else {
				w.lookAfter(20 * time.Second)
			}
			w.Expect(w.pods("old-0")).To(BeZero())
			w.Expect(w.lookAfter(time.Minute)).To(Equal(onlyTerminate), "the volume is attached")
			w.Expect(w.policy().Status.MachineDeployments[0].Message).To(
				ContainSubstring("volumes are attached to its Node: csi/db;"))
			attached(w)
			w.Expect(w.lookAfter(time.Second)).To(BeEmpty(), "thirty seconds are over since the last pod")
		})
	}
	t.Run("never", func(t *testing.T) {
		w := begin(t, quoinv1.RolloutDrainFail)
		w.lookAfter(20 * time.Second)
		w.Expect(w.lookAfter(4 * time.Minute)).To(Equal(onlyTerminate))
		w.Expect(w.lookAfter(time.Minute)).To(BeEmpty())
	})
	// claims are bound to volumes of a driver, by their handles.
	claims := func(w *draining, handles map[string]string) {
		for claim, handle := range handles {
			pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-" + claim}}
			pv.Spec.ClaimRef = &corev1.ObjectReference{Kind: "PersistentVolumeClaim", Namespace: "default", Name: claim}
			pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: "csi", VolumeHandle: handle}
			w.Expect(w.workload.Create(t.Context(), pv)).To(Succeed())
		}
	}
	attachment := func(name string, volume *string) *storagev1.VolumeAttachment {
		a := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: name}}
		a.Spec.NodeName, a.Spec.Source.PersistentVolumeName, a.Status.Attached = "old-0", volume, true
		return a
	}
	// skipped has an agent run on the Node that no drain ends, with a claim.
	skipped := func(t *testing.T, claim string) *draining {
		w := begin(t, quoinv1.RolloutDrainFail)
		agent := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "agent",
			Labels: map[string]string{clusterv1.PodDrainLabel: "skip"}}, Spec: corev1.PodSpec{NodeName: "old-0"}}
		agent.Spec.Volumes = []corev1.Volume{{Name: claim, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}}}
		w.Expect(w.workload.Create(t.Context(), agent)).To(Succeed())
		return w
	}
	const handle = "kubernetes.io/csi/csi^"
	t.Run("of pods that a drain skips", func(t *testing.T) {
		w := skipped(t, "logs")
		attached(w, corev1.AttachedVolume{Name: handle + "logs"}, corev1.AttachedVolume{Name: handle + "db"})
		claims(w, map[string]string{"logs": "logs", "db": "db"})
		db := attachment("a", ptr.To("pv-db"))
		w.Expect(w.workload.Create(t.Context(), db)).To(Succeed())
		w.Expect(w.workload.Create(t.Context(), attachment("b", ptr.To("pv-logs")))).To(Succeed())
		w.lookAfter(20 * time.Second)
		w.Expect(w.lookAfter(time.Minute)).To(Equal(onlyTerminate), "the volume of db is attached")
		w.Expect(w.policy().Status.MachineDeployments[0].Message).To(ContainSubstring("to its Node: default/db;"))
		attached(w, corev1.AttachedVolume{Name: handle + "logs"})
		w.Expect(w.lookAfter(time.Second)).To(Equal(onlyTerminate), "it is being detached")
		w.Expect(w.policy().Status.MachineDeployments[0].Message).To(ContainSubstring("to its Node: default/db;"))
		w.Expect(w.workload.Delete(t.Context(), db)).To(Succeed())
		w.Expect(w.lookAfter(time.Second)).To(BeEmpty())
	})
	t.Run("that pods share with one that a drain skips", func(t *testing.T) {
		w := skipped(t, "cache")
		attached(w, corev1.AttachedVolume{Name: handle + "share"})
		claims(w, map[string]string{"cache": "share", "db": "share", "web": "share"})
		w.lookAfter(20 * time.Second)
		w.Expect(w.lookAfter(time.Minute)).To(Equal(onlyTerminate), "the Node reports it")
		w.Expect(w.policy().Status.MachineDeployments[0].Message).To(
			ContainSubstring("to its Node: default/db, default/web;"))
	})
	t.Run("that no PersistentVolume has", func(t *testing.T) {
		w := begin(t, quoinv1.RolloutDrainFail)
		attached(w)
		inline := attachment("inline", nil)
		w.Expect(w.workload.Create(t.Context(), inline)).To(Succeed())
		w.lookAfter(20 * time.Second)
		w.Expect(w.lookAfter(time.Minute)).To(Equal(onlyTerminate))
		w.Expect(w.workload.Delete(t.Context(), inline)).To(Succeed())
		w.Expect(w.lookAfter(time.Second)).To(BeEmpty())
	})
	t.Run("nobody is to wait", func(t *testing.T) {
		w := begin(t, quoinv1.RolloutDrainFail)
		machine := w.machine("old-0")
		w.adjust(machine, func() { machine.Annotations[clusterv1.ExcludeWaitForNodeVolumeDetachAnnotation] = "" })
		w.lookAfter(20 * time.Second)
		w.Expect(w.lookAfter(29*time.Second)).To(Equal(onlyTerminate), "the delay for logs")
		w.Expect(w.lookAfter(time.Second)).To(BeEmpty())
	})
	t.Run("Proceed", func(t *testing.T) {
		w := begin(t, quoinv1.RolloutDrainProceed)
		w.refuses = "the disruption budget db needs 2 healthy pods"
		w.Expect(w.lookAfter(19 * time.Minute)).To(Equal(onlyTerminate))
		w.Expect(w.lookAfter(time.Minute)).To(BeEmpty())
		w.Expect(w.pods("old-0")).To(Equal(1))
		w.Expect(w.recorded()).To(ContainElement(ContainSubstring("The host is taken away with pods on it: default/on-old-0" +
			". StatefulSets make theirs anew, and volumes are attached elsewhere, when its Node is deleted")))
	})
}

// Proves: C7, S0-74
func TestWhatBecomesOfADrainThatTakesTooLong(t *testing.T) {
	for onTimeout, after := range map[quoinv1.RolloutDrainTimeout]time.Duration{
		quoinv1.RolloutDrainProceed: 20 * time.Minute, quoinv1.RolloutDrainForce: 15 * time.Minute,
	} {
		t.Run(string(onTimeout), func(t *testing.T) {
			w := newDraining(t, quoinv1.RolloutDrain{OnTimeout: onTimeout}, 0)
			w.reconcile()
			w.delete("old-0")
			w.reconcile()
			w.begins("old-0", "Pod default/on-old-0: the disruption budget db needs 2 healthy pods")
			w.clock.Step(after - time.Second)
			w.reconcile()
			w.Expect(w.pods("old-0")).To(Equal(1))
			w.Expect(w.machine("old-0").Annotations).NotTo(HaveKey(clusterv1.ExcludeNodeDrainingAnnotation))
			w.clock.Step(time.Second)
			w.reconcile()
			if onTimeout == quoinv1.RolloutDrainForce {
				w.Expect(w.pods("old-0")).To(BeZero())
				w.Expect(w.pods("old-1")).To(Equal(1))
				w.Expect(w.machine("old-0").Annotations).NotTo(HaveKey(clusterv1.ExcludeNodeDrainingAnnotation))
				w.clock.Step(5 * time.Minute) // its volumes are not detached
				w.reconcile()
			}
			w.Expect(w.machine("old-0").Annotations).To(And(HaveKey(clusterv1.ExcludeNodeDrainingAnnotation),
				HaveKey(clusterv1.ExcludeWaitForNodeVolumeDetachAnnotation)))
			w.Expect(w.hooks("old-0")).To(BeEmpty())
		})
	}
}

// What carries hooks and is guarded by nobody any more is let go of, and its Node is not tainted any more. A workload
// cluster that does not answer keeps no Machine that is being deleted.
func TestNoHookOutlivesItsPolicy(t *testing.T) {
	free := func(w *draining) {
		w.t.Helper()
		for _, name := range []string{"old-0", "old-1", "new-0", "new-1"} {
			w.Expect(w.hooks(name)).To(BeEmpty(), name)
		}
	}
	for name, end := range unguarded() {
		t.Run(name, func(t *testing.T) {
			w := newDraining(t, quoinv1.RolloutDrain{}, 0)
			w.reconcile()
			w.refuses = "never"
			w.delete("old-0")
			w.reconcile()
			w.passes("old-0")
			w.reconcile()
			w.Expect(w.hooks("old-0")).To(Equal(onlyTerminate))
			cache := w.r.ClusterCache
			w.r.ClusterCache = clustercache.NewFakeClusterCache(w.workload, client.ObjectKey{Name: "another"}, nodesWatch)
			end(w.world)
			w.Expect(w.reconcile().RequeueAfter).NotTo(BeZero())
			w.Expect(w.hooks("old-0")).To(BeEmpty())
			free(w)
			w.Expect(rollout.TaintSince(w.machine("old-1"))).NotTo(BeZero(), "the Machine remembers the taint")
			w.Expect(w.r.ofCluster(t.Context(), w.machine("old-1"))).To(HaveLen(1))
			w.r.ClusterCache = cache
			w.reconcile()
			free(w)
			w.Expect(w.tainted("old-1")).To(BeFalse())
			w.Expect(w.machine("old-1").Annotations).NotTo(HaveKey(quoinv1.RolloutUntaintAnnotation))
		})
	}
	t.Run("the Cluster is deleted", func(t *testing.T) {
		w := newDraining(t, quoinv1.RolloutDrain{}, 0)
		w.reconcile()
		cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "c1"}}
		w.adjust(cluster, func() { cluster.Finalizers = []string{"test/stays"} })
		w.Expect(w.client.Delete(t.Context(), cluster)).To(Succeed())
		w.r.ClusterCache = clustercache.NewFakeClusterCache(w.workload, client.ObjectKey{Name: "another"}, nodesWatch)
		w.reconcile()
		free(w)
	})
	t.Run("a Machine is remediated", func(t *testing.T) {
		w := newDraining(t, quoinv1.RolloutDrain{}, 0)
		w.reconcile()
		w.remediated("new-0", clusterv1.MachineSetMachineRemediationMachineDeletingReason)
		w.reconcile()
		w.Expect(w.hooks("new-0")).To(BeEmpty())
		w.Expect(w.hooks("new-1")).To(Equal(both))
	})
	t.Run("an outdated one that fails, and then the policy goes", func(t *testing.T) {
		w := newDraining(t, quoinv1.RolloutDrain{}, 0)
		w.reconcile()
		w.Expect(w.tainted("old-0")).To(BeTrue())
		// A health check asks for it; Cluster API does not, because a rollout takes it away, which is to drain it.
		for _, reason := range []string{clusterv1.MachineOwnerRemediatedWaitingForRemediationReason,
			clusterv1.MachineSetMachineCannotBeRemediatedReason} {
			w.remediated("old-0", reason)
			w.reconcile()
			w.Expect(w.hooks("old-0")).To(Equal(both), reason)
		}
		w.remediated("old-0", clusterv1.MachineSetMachineRemediationMachineDeletingReason)
		w.reconcile()
		w.Expect(w.hooks("old-0")).To(BeEmpty())
		w.Expect(w.client.Delete(t.Context(), w.policy())).To(Succeed())
		w.reconcile()
		w.Expect(w.tainted("old-0")).To(BeFalse())
		w.Expect(w.machine("old-0").Annotations).NotTo(HaveKey(quoinv1.RolloutUntaintAnnotation))
	})
	t.Run("the template is taken back", func(t *testing.T) {
		w := newDraining(t, quoinv1.RolloutDrain{}, 0)
		w.reconcile()
		w.Expect(w.tainted("old-0")).To(BeTrue())
		blue := &clusterv1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Name: "blue"}}
		w.adjust(blue, func() { blue.Spec.Template = template("v1") })
		w.reconcile()
		w.Expect(w.tainted("old-0")).To(BeFalse())
	})
}

// remediated has Cluster API say what becomes of a Machine that a health check found ill.
func (w *draining) remediated(name, reason string) {
	w.t.Helper()
	machine := w.machine(name)
	conditions.Set(machine, metav1.Condition{Type: clusterv1.MachineOwnerRemediatedCondition,
		Status: metav1.ConditionFalse, Reason: reason})
	w.Expect(w.client.Status().Update(w.t.Context(), machine)).To(Succeed())
}

// However many Nodes do not answer, one reconcile asks them for no longer than ten seconds, after every Machine was let
// go of; they are asked again, and after an hour an event says what a person may do.
func TestNodesThatDoNotAnswerHoldUpNobody(t *testing.T) {
	for name, end := range map[string]func(w *draining){
		"without a policy": func(w *draining) { w.Expect(w.client.Delete(w.t.Context(), w.policy())).To(Succeed()) },
		"with one": func(w *draining) {
			policy := w.policy()
			w.adjust(policy, func() { policy.Spec.Drain = nil })
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newDraining(t, quoinv1.RolloutDrain{}, 0)
				w.reconcile()
				w.workload = interceptor.NewClient(w.workload.(client.WithWatch), interceptor.Funcs{Get: func(ctx context.Context,
					c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
					if _, is := object.(*corev1.Node); is && w.refuses != "" {
						<-ctx.Done()
						return ctx.Err()
					}
					return c.Get(ctx, key, object, options...)
				}})
				w.restart()
				w.refuses = "nobody answers"
				end(w)
				began := time.Now()
				_, err := w.r.Reconcile(t.Context(), w.request())
				w.Expect(err).NotTo(HaveOccurred())
				w.Expect(time.Since(began)).To(BeNumerically("<=", 10*time.Second))
				for _, name := range []string{"old-0", "old-1", "new-0", "new-1"} {
					w.Expect(w.hooks(name)).To(BeEmpty(), name)
					w.Expect(w.r.ofCluster(t.Context(), w.machine(name))).To(HaveLen(1))
				}
				w.clock.Step(59 * time.Minute)
				w.Expect(w.reconcile().RequeueAfter).To(Equal(workloadRetry))
				w.clock.Step(time.Minute)
				w.reconcile()
				w.Expect(w.machine("old-0").Annotations).NotTo(HaveKey(quoinv1.RolloutUntaintAnnotation))
				w.Expect(w.recorded()).To(ContainElement(ContainSubstring("do kubectl taint nodes old-0 " + quoinv1.RolloutTaintKey + "-")))
			})
		})
	}
}

// A Node that is not scheduled to is not tainted, a taint is not added twice, and a Machine without a Node, or whose
// kubelet does not answer, is neither cordoned nor waited for.
//
// Proves: K-1, S3-18
func TestNodesThatAreLeftAlone(t *testing.T) {
	w := newDraining(t, quoinv1.RolloutDrain{}, 0)
	node := w.node("old-0")
	node.Spec.Unschedulable = true
	w.Expect(w.workload.Update(t.Context(), node)).To(Succeed())
	w.reconcile()
	w.Expect(w.tainted("old-0")).To(BeFalse())
	w.Expect(w.node("old-1").Spec.Taints).To(ConsistOf(taint))
	w.reconcile()
	w.Expect(w.node("old-1").Spec.Taints).To(ConsistOf(taint))

	node = w.node("old-1")
	silent := metav1.NewTime(w.clock.Now().Add(-5 * time.Minute))
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown,
		LastTransitionTime: silent}}
	w.Expect(w.workload.Status().Update(t.Context(), node)).To(Succeed())
	seen, err := nodeOf(t.Context(), w.workload, w.machine("old-1"), node)
	w.Expect(err).NotTo(HaveOccurred())
	w.Expect(seen.UnreachableSince).To(BeTemporally("==", silent.Time))
	w.delete("old-1")
	w.reconcile()
	w.passes("old-1")
	w.reconcile()
	w.Expect(w.pods("old-1")).To(Equal(1))
	w.Expect(w.hooks("old-1")).To(BeEmpty())
	w.Expect(w.node("old-1").Spec.Unschedulable).To(BeFalse())

	w.Expect(w.workload.Delete(t.Context(), w.node("old-0"))).To(Succeed())
	w.clock.Step(15 * time.Second)
	w.delete("old-0")
	w.reconcile()
	w.Expect(w.hooks("old-0")).To(BeEmpty())
}

// Cluster API drops a pod that should have ended from its count as soon as the kubelet is silent. Its containers may run
// on, and the host is kept until the kubelet is back, or was silent for as long as pods tolerate that.
func TestASilentKubeletMayRunPodsThatShouldHaveEnded(t *testing.T) {
	w := newDraining(t, quoinv1.RolloutDrain{OnTimeout: quoinv1.RolloutDrainFail}, 0)
	w.reconcile()
	w.delete("old-0")
	w.reconcile()
	w.Expect(w.hooks("old-0")).To(Equal(onlyTerminate))
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "on-old-0"}}
	w.Expect(w.workload.Get(t.Context(), client.ObjectKeyFromObject(pod), pod)).To(Succeed())
	pod.Finalizers = []string{"test/ends"}
	w.Expect(w.workload.Update(t.Context(), pod)).To(Succeed())
	w.Expect(w.workload.Delete(t.Context(), pod)).To(Succeed())
	node := w.node("old-0")
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown,
		LastTransitionTime: metav1.NewTime(w.clock.Now())}}
	w.Expect(w.workload.Status().Update(t.Context(), node)).To(Succeed())
	time.Sleep(2100 * time.Millisecond) // Cluster API goes by the clock of the process
	w.passes("old-0")
	for range 4 {
		w.clock.Step(time.Minute)
		w.reconcile()
		w.Expect(w.hooks("old-0")).To(Equal(onlyTerminate))
	}
	w.clock.Step(time.Minute)
	w.reconcile()
	w.Expect(w.hooks("old-0")).To(BeEmpty(), "its kubelet is gone")
}

// The clock is set forward by a day while a Node is drained, and a moment after its kubelet fell silent: neither was so for
// a day, and its pods are not given up for that.
func TestAClockThatIsSetForwardEndsNoDrain(t *testing.T) {
	w := newDraining(t, quoinv1.RolloutDrain{OnTimeout: quoinv1.RolloutDrainProceed}, 0)
	elapsed := time.Duration(0)
	w.r.Clock = steady.From(w.clock.Now, func() time.Duration { return elapsed })
	passes := func(by time.Duration) {
		w.clock.Step(by)
		elapsed += by
	}
	w.refuses = "db would have none"
	w.reconcile()
	w.delete("old-0")
	w.reconcile()
	w.Expect(w.hooks("old-0")).To(Equal(onlyTerminate))
	w.passes("old-0")
	w.reconcile()
	w.clock.Step(24 * time.Hour)
	w.reconcile()
	w.Expect(w.hooks("old-0")).To(Equal(onlyTerminate), "it is drained for a moment")
	node := w.node("old-0")
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown,
		LastTransitionTime: metav1.NewTime(w.clock.Now())}}
	w.Expect(w.workload.Status().Update(t.Context(), node)).To(Succeed())
	passes(2 * time.Second)
	w.clock.Step(24 * time.Hour)
	w.reconcile()
	w.Expect(w.hooks("old-0")).To(Equal(onlyTerminate), "its kubelet is silent for a moment")
	passes(5 * time.Minute)
	w.reconcile()
	w.Expect(w.hooks("old-0")).To(BeEmpty())
}

// Cluster API taints what is outdated and nothing that a person marked, and takes its taint off by itself: ours is
// beside it, on both, and leaves it alone.
//
// Proves: S3-3, S3-11, K-1
func TestOurTaintIsBesideClusterAPIs(t *testing.T) {
	w := newDraining(t, quoinv1.RolloutDrain{}, 0)
	theirs := clusterv1.NodeOutdatedRevisionTaint
	another := corev1.Taint{Key: "storage", Effect: corev1.TaintEffectNoSchedule}
	node := w.node("old-0")
	node.Spec.Taints = []corev1.Taint{theirs, another}
	w.Expect(w.workload.Update(t.Context(), node)).To(Succeed())
	marked := w.machine("new-0")
	w.adjust(marked, func() { mark(marked) })
	w.reconcile()
	w.Expect(w.node("old-0").Spec.Taints).To(ConsistOf(theirs, another, taint))
	w.Expect(w.node("new-0").Spec.Taints).To(ConsistOf(taint))
	w.Expect(w.node("new-1").Spec.Taints).To(BeEmpty())

	marked = w.machine("new-0")
	w.adjust(marked, func() { delete(marked.Annotations, quoinv1.NeedsUpdateAnnotation) })
	blue := &clusterv1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Name: "blue"}}
	w.adjust(blue, func() { blue.Spec.Template = template("v1") })
	w.reconcile()
	w.Expect(w.node("old-0").Spec.Taints).To(ConsistOf(theirs, another))
	w.Expect(w.node("new-1").Spec.Taints).To(ConsistOf(taint), "it is outdated now")
	blue = &clusterv1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Name: "blue"}}
	w.adjust(blue, func() { blue.Spec.Template = template("v2") })
	w.reconcile()
	w.Expect(w.node("new-0").Spec.Taints).To(BeEmpty(), "it is neither outdated nor marked any more")
}

// MachineDrainRules hold as in Cluster API's own drain where Quoin goes on with it: what is skipped is neither evicted
// nor waited for, what is later in the order is evicted when the earlier ones are gone, and what is to complete is
// waited for and never evicted.
//
// Proves: S2-25, S3-16
func TestDrainRulesHoldAfterClusterAPIPassedOn(t *testing.T) {
	w := newDraining(t, quoinv1.RolloutDrain{}, 0)
	pod := func(app string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: app,
			Labels: map[string]string{"on": "old-0", "app": app}}, Spec: corev1.PodSpec{NodeName: "old-0"}}
	}
	rule := func(app string, behavior clusterv1.MachineDrainRuleDrainBehavior, order *int32) *clusterv1.MachineDrainRule {
		return &clusterv1.MachineDrainRule{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: app},
			Spec: clusterv1.MachineDrainRuleSpec{Drain: clusterv1.MachineDrainRuleDrainConfig{Behavior: behavior, Order: order},
				Pods: []clusterv1.MachineDrainRulePodSelector{{
					Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}}}}}
	}
	for _, app := range []string{"agent", "job", "storage"} {
		w.Expect(w.workload.Create(t.Context(), pod(app))).To(Succeed())
	}
	w.make(rule("agent", clusterv1.MachineDrainRuleDrainBehaviorSkip, nil),
		rule("job", clusterv1.MachineDrainRuleDrainBehaviorWaitCompleted, nil),
		rule("storage", clusterv1.MachineDrainRuleDrainBehaviorDrain, ptr.To[int32](10)))
	left := func() (names []string) {
		list := &corev1.PodList{}
		w.Expect(w.workload.List(t.Context(), list, client.MatchingLabels{"on": "old-0"})).To(Succeed())
		for _, pod := range list.Items {
			names = append(names, pod.Name)
		}
		return names
	}
	w.reconcile()
	w.delete("old-0")
	w.reconcile()
	w.passes("old-0") // the template's nodeDrainTimeoutSeconds is over
	w.Expect(w.lookAfter(20 * time.Second)).To(ConsistOf("pre-termi"))
	w.Expect(left()).To(ConsistOf("agent", "job", "storage"), "what has no rule is of order 0 and goes first")
	w.Expect(w.lookAfter(10*time.Minute)).To(ConsistOf("pre-termi"), "the job has not completed, and is of order 0")
	w.Expect(left()).To(ConsistOf("agent", "job", "storage"))
	w.Expect(w.workload.Delete(t.Context(), pod("job"))).To(Succeed())
	w.Expect(w.lookAfter(20 * time.Second)).To(ConsistOf("pre-termi"))
	w.Expect(left()).To(ConsistOf("agent"))
	w.Expect(w.lookAfter(20 * time.Second)).To(BeEmpty())
	w.Expect(left()).To(ConsistOf("agent"))
}

// Pods of a DaemonSet stay, although nothing forbids that they are evicted or deleted: it would make them anew on the same
// Node. Neither an eviction nor a deletion by force ends them, and nobody waits for them. Where the DaemonSet is gone they
// are pods like others.
//
// Proves: S3-16
func TestPodsOfADaemonSetStay(t *testing.T) {
	for _, onTimeout := range []quoinv1.RolloutDrainTimeout{quoinv1.RolloutDrainFail, quoinv1.RolloutDrainForce} {
		for _, orphaned := range []bool{false, true} {
			t.Run(fmt.Sprint(onTimeout, " orphaned ", orphaned), func(t *testing.T) {
				w := newDraining(t, quoinv1.RolloutDrain{OnTimeout: onTimeout}, 0)
				agent := metav1.ObjectMeta{Namespace: "default", Name: "agent", Labels: map[string]string{"daemon": "agent"},
					OwnerReferences: []metav1.OwnerReference{{Kind: "DaemonSet", Name: "agent", Controller: ptr.To(true)}}}
				w.Expect(w.workload.Create(t.Context(), &corev1.Pod{ObjectMeta: agent,
					Spec: corev1.PodSpec{NodeName: "old-0"}})).To(Succeed())
				if !orphaned {
					w.Expect(w.workload.Create(t.Context(), &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{
						Namespace: "default", Name: "agent"}})).To(Succeed())
				}
				w.reconcile()
				w.delete("old-0")
				w.reconcile()
				w.begins("old-0", "Pod default/on-old-0 is being evicted")
				if onTimeout == quoinv1.RolloutDrainForce {
					w.lookAfter(15 * time.Minute)
				} else {
					w.passes("old-0") // the template's nodeDrainTimeoutSeconds is over
					w.lookAfter(20 * time.Second)
				}
				w.Expect(w.pods("old-0")).To(BeZero(), "others end")
				daemons := &corev1.PodList{}
				w.Expect(w.workload.List(t.Context(), daemons, client.MatchingLabels{"daemon": "agent"})).To(Succeed())
				w.Expect(daemons.Items).To(HaveLen(map[bool]int{false: 1, true: 0}[orphaned]))
				if onTimeout == quoinv1.RolloutDrainForce {
					w.passes("old-0")
				}
				w.lookAfter(time.Second)
				w.Expect(w.lookAfter(5*time.Second)).To(BeEmpty(), "nobody waits for it")
			})
		}
	}
}

// lookAfter has a reconcile look once after so long, and is the hooks of old-0 then.
func (w *draining) lookAfter(after time.Duration) []string {
	w.t.Helper()
	w.clock.Step(after)
	_, err := w.r.Reconcile(w.t.Context(), w.request())
	w.Expect(err).NotTo(HaveOccurred())
	return w.hooks("old-0")
}

// A workload cluster that does not answer keeps no drain up for ever: Cluster API has clocks of its own.
func TestAClusterThatDoesNotAnswerHoldsNoDrainForEver(t *testing.T) {
	w := newDraining(t, quoinv1.RolloutDrain{}, 0)
	w.reconcile()
	w.r.ClusterCache = clustercache.NewFakeClusterCache(w.workload, client.ObjectKey{Name: "another"}, nodesWatch)
	w.delete("old-0")
	w.says("old-0", clusterv1.MachineDeletingWaitingForPreDrainHookReason, "Waiting",
		func(d *clusterv1.MachineDeletionStatus, now metav1.Time) { d.WaitForPreDrainHookStartTime = now })
	w.Expect(w.reconcile().RequeueAfter).To(Equal(workloadRetry))
	w.Expect(w.hooks("old-0")).To(Equal(both))
	w.clock.Step(time.Minute)
	w.reconcile()
	w.Expect(w.hooks("old-0")).To(Equal(onlyTerminate))
}

// A worker that was deleted ahead of the control plane gives its host up where the control plane waits for it, and only
// there.
func TestAWorkerGivesItsHostToTheControlPlane(t *testing.T) {
	for _, waits := range []string{"NoSpareHost", "Quorum"} {
		w := newDraining(t, quoinv1.RolloutDrain{}, 0)
		w.reconcile()
		member := machineOf("member", "v2")
		member.OwnerReferences = nil
		member.Labels = map[string]string{clusterv1.ClusterNameLabel: "c1", clusterv1.MachineControlPlaneLabel: ""}
		controlPlane := &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{
			"operation": map[string]any{"waitingOn": waits + " since 08:00"}}}}
		controlPlane.SetAPIVersion("controlplane.cluster.x-k8s.io/v1alpha1")
		controlPlane.SetKind("QuoinControlPlane")
		controlPlane.SetNamespace(namespace)
		controlPlane.SetName("c1")
		for _, object := range []client.Object{member, hostedBy("member", "quoin://m"), controlPlane,
			hostIn("host-0", infrav1.HostStateProvisioned, "old-0")} {
			w.make(object)
		}
		cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "c1"}}
		w.adjust(cluster, func() {
			cluster.Spec.ControlPlaneRef = clusterv1.ContractVersionedObjectReference{Kind: "QuoinControlPlane", Name: "c1",
				APIGroup: "controlplane.cluster.x-k8s.io"}
		})
		conditions.Set(cluster, metav1.Condition{Type: clusterv1.ClusterControlPlaneMachinesUpToDateCondition,
			Status: metav1.ConditionFalse, Reason: "NotUpToDate", Message: "1 of 3 is outdated"})
		w.Expect(w.client.Status().Update(t.Context(), cluster)).To(Succeed())
		w.delete("old-0")
		w.reconcile()
		w.Expect(w.hooks("old-0")).To(Equal(map[string][]string{"NoSpareHost": onlyTerminate, "Quorum": both}[waits]), waits)
	}
}
