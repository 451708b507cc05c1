// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package rolloutpolicy

import (
	"context"
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
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
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew"
)

// onDelete has blue be of that strategy and its Machines be healthy.
func (w *world) onDelete() {
	w.t.Helper()
	blue := &clusterv1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Name: "blue"}}
	w.adjust(blue, func() {
		blue.Spec.Rollout.Strategy = clusterv1.MachineDeploymentRolloutStrategy{
			Type: clusterv1.OnDeleteMachineDeploymentStrategyType}
	})
	w.joins("old-0")
	w.joins("old-1")
	for _, name := range []string{"old-0", "old-1"} {
		machine := w.machine(name)
		w.adjust(machine, func() { machine.Finalizers = []string{"test/host"} })
	}
}

func (w *world) deleting() (names []string) {
	w.t.Helper()
	machines := &clusterv1.MachineList{}
	w.Expect(w.client.List(w.t.Context(), machines)).To(Succeed())
	for _, machine := range machines.Items {
		if !machine.DeletionTimestamp.IsZero() {
			names = append(names, machine.Name)
		}
	}
	return names
}

// marked are the Machines that their MachineSets are to delete first, with whether we say so.
func (w *world) marked() map[string]bool {
	w.t.Helper()
	machines := &clusterv1.MachineList{}
	w.Expect(w.client.List(w.t.Context(), machines)).To(Succeed())
	marked := map[string]bool{}
	for i := range machines.Items {
		if _, is := machines.Items[i].Annotations[clusterv1.DeleteMachineAnnotation]; is {
			marked[machines.Items[i].Name] = rollout.Marked(&machines.Items[i])
		}
	}
	return marked
}

// Of a pool with OnDelete exactly one Machine is deleted, with its reason written down, and the next when what takes its
// place counts, whatever write the process dies at.
//
// Proves: S3-13, S3-19, S3-26
func TestOnDeletePoolsAreDeletedOneByOne(t *testing.T) {
	for _, every := range []int{0, 1, 2, 3} {
		t.Run(fmt.Sprint("killed at every write of ", every), func(t *testing.T) {
			w := newWorld(t)
			w.onDelete()
			w.kills = func(write int) bool { return every > 0 && write%every == 0 && write < 40 }
			w.reconcile()
			w.Expect(w.deleting()).To(ConsistOf("old-0"))
			gone := w.machine("old-0")
			w.Expect(rollout.DeletedFor(gone)).To(Equal(rollout.First))
			w.Expect(rollout.DeletedFor(w.machine("old-1"))).To(BeEmpty())
			w.Expect(w.policy().Status.MachineDeployments[0].Message).To(ContainSubstring("old-0 is being deleted"))

			w.adjust(gone, func() { gone.Finalizers = nil })
			w.make(machineOf("new-0", "v2"), hostedBy("new-0", ""))
			w.reconcile()
			w.Expect(w.admitted("new-0")).To(BeTrue())
			w.joins("new-0")
			w.reconcile()
			w.Expect(w.deleting()).To(BeEmpty(), "what takes its place has not soaked")
			w.clock.Step(time.Minute)
			w.reconcile()
			w.Expect(w.deleting()).To(ConsistOf("old-1"))
		})
	}
}

// What takes the place of a Machine would not start beside older API servers, nor while nobody knows the policy: so the
// Machine stays until it would.
//
// Proves: R3
func TestNoMachineIsDeletedForOneThatMayNotStart(t *testing.T) {
	plane := machineOf("cp", "")
	plane.Labels = map[string]string{clusterv1.ClusterNameLabel: "c1", clusterv1.MachineControlPlaneLabel: ""}
	plane.OwnerReferences, plane.Spec.Version, plane.Status.NodeRef.Name = nil, "v1.35.4", "cp"
	w := newWorld(t, plane)
	w.onDelete()
	blue, set, cluster := &clusterv1.MachineDeployment{}, &clusterv1.MachineSet{}, &clusterv1.Cluster{}
	blue.Name, set.Name, cluster.Name = "blue", "blue-v2", "c1"
	w.adjust(blue, func() { blue.Spec.Template.Spec.Version = "v1.36.3" })
	w.adjust(set, func() { set.Spec.Template.Spec.Version = "v1.36.3" })
	stays := func(why string) {
		w.reconcile()
		w.Expect(w.deleting()).To(BeEmpty())
		w.Expect(w.policy().Status.MachineDeployments[0]).To(And(HaveField("Reason", string(rollout.ControlPlane)),
			HaveField("Message", ContainSubstring(why))))
	}
	stays("newer than API server v1.35.4")
	w.adjust(cluster, func() { cluster.Annotations = map[string]string{skew.PolicyAnnotation: "Kubernets"} })
	stays("correct the annotation")
	w.adjust(cluster, func() { cluster.Annotations = nil })
	w.adjust(plane, func() { plane.Spec.Version = "v1.36.3" })
	w.reconcile()
	w.Expect(w.deleting()).To(ConsistOf("old-0"))
}

// A Machine that its cluster's kube-proxy is too new for would be given no host.
//
// Proves: S1-25
func TestNoMachineIsDeletedForOneThatIsOlderThanKubeProxy(t *testing.T) {
	plane := machineOf("cp", "")
	plane.Labels = map[string]string{clusterv1.ClusterNameLabel: "c1", clusterv1.MachineControlPlaneLabel: ""}
	plane.OwnerReferences, plane.Spec.Version, plane.Status.NodeRef.Name = nil, "v1.24.3", "cp"
	w := newWorld(t, plane)
	w.onDelete()
	blue, set, cluster := &clusterv1.MachineDeployment{}, &clusterv1.MachineSet{}, &clusterv1.Cluster{}
	blue.Name, set.Name, cluster.Name = "blue", "blue-v2", "c1"
	w.adjust(blue, func() { blue.Spec.Template.Spec.Version = "v1.23.9" })
	w.adjust(set, func() { set.Spec.Template.Spec.Version = "v1.23.9" })
	w.adjust(cluster, func() { cluster.Annotations = map[string]string{skew.PolicyAnnotation: "Kubernetes-1.24"} })
	daemonSet := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "kube-proxy"}}
	runs := func(version string) *appsv1.DaemonSet {
		daemonSet.Spec.Template.Spec.Containers = []corev1.Container{{Name: "kube-proxy",
			Image: "quoin.test/kube-proxy:" + version}}
		return daemonSet
	}
	workload := fake.NewClientBuilder().WithObjects(runs("v1.24.3")).Build()
	w.r.ClusterCache = clustercache.NewFakeClusterCache(workload, client.ObjectKey{Namespace: namespace, Name: "c1"},
		nodesWatch)
	w.reconcile()
	w.Expect(w.deleting()).To(BeEmpty())
	w.Expect(w.policy().Status.MachineDeployments[0]).To(And(HaveField("Reason", string(rollout.ControlPlane)),
		HaveField("Message", And(ContainSubstring("kube-proxy v1.24.3"), ContainSubstring("S1-25")))))
	w.Expect(workload.Update(t.Context(), runs("v1.23.9"))).To(Succeed())
	w.reconcile()
	w.Expect(w.deleting()).To(ConsistOf("old-0"))
}

// A control plane without Machines tells by itself what it runs.
//
// Proves: R3
func TestNoMachineIsDeletedForOneThatAHostedControlPlaneDoesNotAllow(t *testing.T) {
	w := newWorld(t)
	w.onDelete()
	blue, set, cluster := &clusterv1.MachineDeployment{}, &clusterv1.MachineSet{}, &clusterv1.Cluster{}
	blue.Name, set.Name, cluster.Name = "blue", "blue-v2", "c1"
	w.adjust(blue, func() { blue.Spec.Template.Spec.Version = "v1.36.3" })
	w.adjust(set, func() { set.Spec.Template.Spec.Version = "v1.36.3" })
	w.adjust(cluster, func() {
		cluster.Spec.ControlPlaneRef = clusterv1.ContractVersionedObjectReference{Kind: "Hosted", Name: "c1",
			APIGroup: "controlplane.example.com"}
	})
	crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{
		Name: "hosteds.controlplane.example.com", Labels: map[string]string{"cluster.x-k8s.io/v1beta2": "v1"}}}
	hosted := &unstructured.Unstructured{Object: map[string]any{"kind": "Hosted",
		"apiVersion": "controlplane.example.com/v1", "metadata": map[string]any{"namespace": namespace, "name": "c1"},
		"status": map[string]any{"version": "v1.35.4"}}}
	scheme := runtime.NewScheme()
	w.Expect(apiextensionsv1.AddToScheme(scheme)).To(Succeed())
	foreign := fake.NewClientBuilder().WithScheme(scheme).WithObjects(crd, hosted).Build()
	w.r.APIReader = interceptor.NewClient(w.client, interceptor.Funcs{Get: func(ctx context.Context,
		c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
		switch object.(type) {
		case *unstructured.Unstructured, *metav1.PartialObjectMetadata:
			return foreign.Get(ctx, key, object, options...)
		}
		return c.Get(ctx, key, object, options...)
	}})
	w.reconcile()
	w.Expect(w.deleting()).To(BeEmpty())
	w.Expect(w.policy().Status.MachineDeployments[0]).To(And(HaveField("Reason", string(rollout.ControlPlane)),
		HaveField("Message", ContainSubstring("newer than API server v1.35.4"))))
	w.Expect(unstructured.SetNestedField(hosted.Object, "v1.36.3", "status", "version")).To(Succeed())
	w.Expect(foreign.Update(t.Context(), hosted)).To(Succeed())
	w.reconcile()
	w.Expect(w.deleting()).To(ConsistOf("old-0"))
}

// A deletion that fails has no other Machine deleted in place of it: more would be missing than may be.
//
// Proves: K-9
func TestADeletionThatFailsBeginsNoOther(t *testing.T) {
	w := newWorld(t)
	w.onDelete()
	policy := w.policy()
	w.adjust(policy, func() {
		policy.Spec.Strategy = &quoinv1.RolloutStrategy{MaxUnavailable: ptr.To(intstr.FromInt32(2))}
	})
	asked, refuses := []string{}, true
	w.r.Client = interceptor.NewClient(w.client, interceptor.Funcs{Delete: func(ctx context.Context, c client.WithWatch,
		object client.Object, options ...client.DeleteOption) error {
		asked = append(asked, object.GetName())
		if refuses {
			return apierrors.NewForbidden(schema.GroupResource{Resource: "machines"}, object.GetName(), nil)
		}
		return c.Delete(ctx, object, options...)
	}})
	for range 10 {
		_, _ = w.r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Namespace: namespace, Name: "c1"}})
	}
	w.Expect(asked).To(And(Not(BeEmpty()), HaveEach("old-0")))
	w.Expect(rollout.DeletedFor(w.machine("old-0"))).NotTo(BeEmpty())
	refuses = false
	w.reconcile()
	w.Expect(w.deleting()).To(ConsistOf("old-0"))
}

// A template that was reverted, which the cache does not know yet, has nothing deleted.
func TestNothingIsDeletedByAnOldCache(t *testing.T) {
	w := newWorld(t)
	w.onDelete()
	before := &clusterv1.MachineDeploymentList{}
	w.Expect(w.client.List(t.Context(), before)).To(Succeed())
	blue := &clusterv1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Name: "blue"}}
	w.adjust(blue, func() { blue.Spec.Template = template("v1") })
	behind := true
	w.r.Client = interceptor.NewClient(w.client, interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch,
		list client.ObjectList, options ...client.ListOption) error {
		if pools, is := list.(*clusterv1.MachineDeploymentList); is && behind {
			before.DeepCopyInto(pools)
			return nil
		}
		return c.List(ctx, list, options...)
	}})
	for range 3 {
		result, err := w.r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Namespace: namespace,
			Name: "c1"}})
		w.Expect(err).NotTo(HaveOccurred())
		w.Expect(result.RequeueAfter).To(Or(BeZero(), Equal(cacheLag)))
	}
	w.Expect(w.deleting()).To(BeEmpty())
	w.adjust(blue, func() { blue.Spec.Template = template("v2") })
	behind = false
	w.reconcile()
	w.Expect(w.deleting()).To(ConsistOf("old-0"))
}

// A Machine that changed after it was read is not deleted: what is deleted is exactly what was decided about.
func TestAMachineThatChangedIsNotDeleted(t *testing.T) {
	w := newWorld(t)
	w.onDelete()
	w.r.Client = interceptor.NewClient(w.client, interceptor.Funcs{Delete: func(ctx context.Context, c client.WithWatch,
		object client.Object, options ...client.DeleteOption) error {
		machine := w.machine(object.GetName())
		w.adjust(machine, func() { metav1.SetMetaDataAnnotation(&machine.ObjectMeta, "example.com/changed", "now") })
		return c.Delete(ctx, object, options...)
	}})
	_, err := w.r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Namespace: namespace, Name: "c1"}})
	w.Expect(err).NotTo(HaveOccurred())
	w.Expect(w.deleting()).To(BeEmpty())
	w.restart()
	w.reconcile()
	w.Expect(w.deleting()).To(ConsistOf("old-0"))
}

// What was written down about a deletion that is no more to be done is taken off, or a person's would be taken for ours.
func TestAReasonDoesNotOutliveItsRollout(t *testing.T) {
	w := newWorld(t)
	w.onDelete()
	w.kills = func(write int) bool { return rollout.DeletedFor(w.machine("old-0")) != "" }
	for range 20 {
		if _, err := w.r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Namespace: namespace,
			Name: "c1"}}); err != nil {
			break
		}
	}
	w.Expect(rollout.DeletedFor(w.machine("old-0"))).NotTo(BeEmpty())
	w.Expect(w.deleting()).To(BeEmpty())
	w.kills = func(int) bool { return false }
	w.restart()
	blue := &clusterv1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Name: "blue"}}
	w.adjust(blue, func() { blue.Spec.Template = template("v1") })
	w.reconcile()
	w.Expect(w.machine("old-0").Annotations).NotTo(HaveKey(quoinv1.RolloutDeletedAnnotation))
	w.Expect(w.deleting()).To(BeEmpty())
}

// inDomains has the old Machines have hosts there, and a new one that counts in a third.
func (w *world) inDomains(domains ...string) {
	w.t.Helper()
	for i, domain := range domains {
		quoinMachine := &infrav1.QuoinMachine{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("old-", i)}}
		w.adjust(quoinMachine, func() { quoinMachine.Status.FailureDomain = domain })
		w.joins(fmt.Sprint("old-", i))
	}
	policy := w.policy()
	w.adjust(policy, func() {
		policy.Spec.Strategy = &quoinv1.RolloutStrategy{RolloutVictims: quoinv1.RolloutVictims{
			Waves: quoinv1.RolloutWavesFailureDomain}}
	})
}

// A Machine that is on its way when its pool is taken out of all groups has no gate that nobody would open.
func TestAPoolThatNoGroupSelectsAnyMoreIsNotHeld(t *testing.T) {
	w := newWorld(t, machineOf("new-0", "v2"), hostedBy("new-0", ""))
	w.reconcile()
	w.Expect(rollout.Gated(w.machine("new-0"))).To(BeTrue())
	w.joins("new-0")
	w.reconcile()
	policy := w.policy()
	w.adjust(policy, func() {
		policy.Spec.Groups = []quoinv1.RolloutGroup{{Name: "others", MachineDeployments: quoinv1.RolloutSelector{
			Names: []string{"green"}}}}
	})
	w.reconcile()
	w.Expect(rollout.Gated(w.machine("new-0"))).To(BeFalse())
	w.Expect(conditions.Get(w.machine("new-0"), quoinv1.MachineRolloutValidatedCondition)).To(BeNil())
}

// The Machines of one failure domain are marked before a new one counts. A person's mark stays whatever happens, and so
// does ours when somebody wrote it anew; ours goes with its reason: the template is what it was, the policy is gone, or
// no group selects the pool.
func TestMarksComeAndGo(t *testing.T) {
	for name, end := range map[string]func(*world){
		"reverted": func(w *world) {
			blue := &clusterv1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Name: "blue"}}
			w.adjust(blue, func() { blue.Spec.Template = template("v1") })
		},
		"policy deleted": func(w *world) { w.Expect(w.client.Delete(w.t.Context(), w.policy())).To(Succeed()) },
		"not selected": func(w *world) {
			policy := w.policy()
			w.adjust(policy, func() {
				policy.Spec.Groups = []quoinv1.RolloutGroup{{Name: "others", MachineDeployments: quoinv1.RolloutSelector{
					Names: []string{"green"}}}}
			})
		},
		"waves no more": func(w *world) {
			policy := w.policy()
			w.adjust(policy, func() { policy.Spec.Strategy = nil })
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, machineOf("new-0", "v2"), hostedBy("new-0", "quoin://y"), machineOf("old-2", "v1"),
				hostedBy("old-2", "quoin://z"), machineOf("old-3", "v1"), hostedBy("old-3", "quoin://w"))
			w.inDomains("a", "b", "a", "a")
			mine := w.machine("old-2")
			w.adjust(mine, func() {
				metav1.SetMetaDataAnnotation(&mine.ObjectMeta, clusterv1.DeleteMachineAnnotation, "")
			})
			w.reconcile()
			w.Expect(w.marked()).To(Equal(map[string]bool{"old-0": true, "old-2": false, "old-3": true}))
			anew := w.machine("old-3")
			w.adjust(anew, func() { anew.Annotations[clusterv1.DeleteMachineAnnotation] = "by the autoscaler" })
			marked := w.machine("old-0")
			end(w)
			w.restart()
			w.Expect(w.r.ofCluster(t.Context(), marked)).To(HaveLen(1), "the Machine itself brings its Cluster here")
			w.reconcile()
			left := w.marked()
			delete(left, "new-0") // which is the one to be replaced when the template is what it was
			w.Expect(left).To(Equal(map[string]bool{"old-2": false, "old-3": false}))
		})
	}
}

// What a template says about deletions is on every Machine, and means nothing. Marks are refused there.
func TestATemplateDeletesNothing(t *testing.T) {
	g := NewWithT(t)
	one, another := machineOf("one", "v1"), machineOf("another", "v1")
	g.Expect(rollout.SetMark(one, true)).To(BeTrue())
	one.Annotations[quoinv1.RolloutDeletedAnnotation] = rollout.Deletion(one, time.Unix(0, 0), rollout.Decision{Reason: rollout.Next})
	another.Annotations = one.Annotations
	g.Expect(rollout.Marked(one)).To(BeTrue())
	g.Expect(rollout.DeletedFor(one)).To(Equal(rollout.Next))
	g.Expect(rollout.DeletedFor(another)).To(BeEmpty())
	g.Expect(rollout.SetMark(another, false)).To(BeTrue())
	g.Expect(another.Annotations).To(HaveKey(quoinv1.RolloutDeletedAnnotation))
}

// Each Machine in deletion is marked as to be deleted first, so that a move keeps the choice. That is nobody's wish, and
// says nothing about who is drained first.
func TestWhatIsWrittenDownOfADeletionMarksNobody(t *testing.T) {
	const of = "0b5e"
	for name, c := range map[string]struct {
		annotations map[string]string
		marked      bool
	}{
		"a person marks":                  {map[string]string{clusterv1.DeleteMachineAnnotation: "yes"}, true},
		"a person marks with no value":    {map[string]string{clusterv1.DeleteMachineAnnotation: ""}, true},
		"its deletion was written down":   {map[string]string{clusterv1.DeleteMachineAnnotation: "", infrav1.DeletionAnnotation: of}, false},
		"that of another one was":         {map[string]string{clusterv1.DeleteMachineAnnotation: "", infrav1.DeletionAnnotation: "1"}, true},
		"a person's mark was there first": {map[string]string{clusterv1.DeleteMachineAnnotation: "yes", infrav1.DeletionAnnotation: of}, true},
		"nobody marks":                    {map[string]string{infrav1.DeletionAnnotation: of}, false},
	} {
		machine := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{UID: of, Annotations: c.annotations}}
		NewWithT(t).Expect(departure(machine, nil, nil).Marked).To(Equal(c.marked), name)
	}
	ours := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{UID: of}}
	rollout.SetMark(ours, true)
	ours.Annotations[infrav1.DeletionAnnotation] = of
	NewWithT(t).Expect(departure(ours, nil, nil)).To(And(HaveField("Marked", true), HaveField("MarkedByUs", true)))
}
