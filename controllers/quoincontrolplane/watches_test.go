// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoincontrolplane

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/event"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew"
)

func TestOnlyOthersChangesOfAControlPlaneAreNews(t *testing.T) {
	set := func(plane *controlplanev1.QuoinControlPlane, condition string) {
		conditions.Set(plane, metav1.Condition{Type: condition, Status: metav1.ConditionTrue, Reason: "New"})
	}
	for name, c := range map[string]struct {
		change func(*controlplanev1.QuoinControlPlane)
		news   bool
	}{
		"what it writes itself": {change: func(p *controlplanev1.QuoinControlPlane) {
			p.ResourceVersion = "2"
			p.Status.Replicas = ptr.To[int32](4)
			p.Status.Operation = &controlplanev1.ControlPlaneOperation{Message: "new"}
			set(p, controlplanev1.ControlPlaneProgressingCondition)
		}},
		"the spec": {change: func(p *controlplanev1.QuoinControlPlane) {
			p.Generation, p.Spec.Version = 2, newVer
		}, news: true},
		"an annotation": {change: func(p *controlplanev1.QuoinControlPlane) {
			p.Annotations = map[string]string{"a": "b"}
		}, news: true},
		"its finalizer": {change: func(p *controlplanev1.QuoinControlPlane) {
			p.Finalizers = []string{"f"}
		}, news: true},
		"its deletion": {change: func(p *controlplanev1.QuoinControlPlane) {
			p.DeletionTimestamp = ptr.To(metav1.Now())
		}, news: true},
		"a snapshot of etcd": {change: func(p *controlplanev1.QuoinControlPlane) {
			p.Status.Backup = &controlplanev1.EtcdBackupStatus{}
		}, news: true},
		"a condition of backups": {change: func(p *controlplanev1.QuoinControlPlane) {
			set(p, controlplanev1.ControlPlaneBackupHealthyCondition)
		}, news: true},
		"that it is not paused": {change: func(p *controlplanev1.QuoinControlPlane) {
			set(p, clusterv1.PausedCondition)
		}, news: true},
	} {
		t.Run(name, func(t *testing.T) {
			before := &controlplanev1.QuoinControlPlane{ObjectMeta: metav1.ObjectMeta{Generation: 1, ResourceVersion: "1"}}
			after := before.DeepCopy()
			c.change(after)
			NewWithT(t).Expect(controlPlaneOfInterest().Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after})).
				To(Equal(c.news))
		})
	}
}

// What a version, or kube-proxy, waited for is heard at once.
func TestWorkersThatNoLongerHoldAVersionAreNews(t *testing.T) {
	g := NewWithT(t)
	old := &clusterv1.Machine{}
	old.Spec.Version = oldVer
	raised, labeled, ours := old.DeepCopy(), old.DeepCopy(), old.DeepCopy()
	raised.Spec.Version = newVer
	labeled.Labels = map[string]string{"a": "b"}
	ours.Labels = map[string]string{clusterv1.MachineControlPlaneLabel: ""}
	p := workerChangedVersion()
	g.Expect(p.Update(event.UpdateEvent{ObjectOld: old, ObjectNew: raised})).To(BeTrue())
	g.Expect(p.Update(event.UpdateEvent{ObjectOld: old, ObjectNew: labeled})).To(BeFalse())
	g.Expect(p.Delete(event.DeleteEvent{Object: old})).To(BeTrue())
	g.Expect(p.Delete(event.DeleteEvent{Object: ours})).To(BeFalse(), "it is watched already")
	cluster := &clusterv1.Cluster{}
	strict := cluster.DeepCopy()
	strict.Annotations = map[string]string{skew.PolicyAnnotation: "Kubernetes-1.24"}
	g.Expect(skewPolicyChanged().Update(event.UpdateEvent{ObjectOld: cluster, ObjectNew: strict})).To(BeTrue())
	g.Expect(skewPolicyChanged().Update(event.UpdateEvent{ObjectOld: strict, ObjectNew: strict})).To(BeFalse())
	topology := cluster.DeepCopy()
	topology.Spec.Topology = clusterv1.Topology{Version: newVer, ClassRef: clusterv1.ClusterClassRef{Name: "class"}}
	step := topology.DeepCopy()
	step.Annotations = map[string]string{clusterv1.ClusterTopologyUpgradeStepAnnotation: oldVer}
	g.Expect(topologyVersionChanged().Update(event.UpdateEvent{ObjectOld: topology, ObjectNew: step})).To(BeTrue())
	g.Expect(topologyVersionChanged().Update(event.UpdateEvent{ObjectOld: step, ObjectNew: step})).To(BeFalse())
	g.Expect(topologyVersionChanged().Update(event.UpdateEvent{ObjectOld: cluster, ObjectNew: strict})).To(BeFalse())
}

func TestStaticPodsAreNewsWhenTheirReadinessChanges(t *testing.T) {
	g := NewWithT(t)
	ready := readyPod("etcd-n-a")
	unready := ready.DeepCopy()
	unready.Status.Conditions[0].Status = corev1.ConditionFalse
	restarted := ready.DeepCopy()
	restarted.Status.StartTime = ptr.To(metav1.Now())
	other := ready.DeepCopy()
	other.Labels = nil
	p := podOfInterest()
	g.Expect(p.Update(event.UpdateEvent{ObjectOld: unready, ObjectNew: ready})).To(BeTrue())
	g.Expect(p.Update(event.UpdateEvent{ObjectOld: ready, ObjectNew: unready})).To(BeTrue())
	g.Expect(p.Update(event.UpdateEvent{ObjectOld: ready, ObjectNew: restarted})).To(BeFalse())
	g.Expect(p.Create(event.CreateEvent{Object: ready})).To(BeTrue())
	g.Expect(p.Create(event.CreateEvent{Object: unready})).To(BeFalse())
	g.Expect(p.Create(event.CreateEvent{Object: other})).To(BeFalse())
	g.Expect(p.Delete(event.DeleteEvent{Object: ready})).To(BeTrue())
}
