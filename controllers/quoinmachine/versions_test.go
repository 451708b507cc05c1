// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinmachine

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kcpv1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/estatetest"
)

// apiServer is a control-plane Machine with a Node.
func apiServer(name, version string) *clusterv1.Machine {
	machine := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, Labels: map[string]string{
		clusterv1.ClusterNameLabel: "c1", clusterv1.MachineControlPlaneLabel: "",
	}}, Spec: clusterv1.MachineSpec{ClusterName: "c1", Version: version}}
	machine.Status.NodeRef.Name = name
	return machine
}

// Proves: S0-23, S1-21, R3
//
// A pool that was edited together with its control plane waits for the last API server, and holds no host meanwhile.
func TestAWorkerWaitsForTheAPIServersThatItsKubeletNeeds(t *testing.T) {
	machine, quoinMachine := owned("m1", uid1)
	machine.Spec.Version = "v1.36.3"
	w := newWorld(t, cluster(), machine, quoinMachine, host("h1", ""), apiServer("cp-old", "v1.35.4"),
		apiServer("cp-new", "v1.36.3"))
	w.reconcile("m1")
	w.expect("m1", infrav1.MachineHostClaimedCondition, metav1.ConditionFalse, infrav1.MachineWaitingForControlPlaneReason,
		"no host is claimed", "newer than API server v1.35.4", "R3")
	w.g.Expect(w.host("h1").Spec.ConsumerRef).To(BeNil())
	w.g.Expect(w.core("m1").Annotations).To(HaveKey(skip), "our own gate")
	old := w.core("cp-old")
	w.g.Expect(versionsRunChanges().Delete(event.DeleteEvent{Object: old})).To(BeTrue())
	w.g.Expect(w.r.waitingForControlPlane(t.Context(), old)).To(ConsistOf(request("m1")))

	w.g.Expect(w.client.Delete(t.Context(), old)).To(Succeed())
	w.reconcile("m1")
	w.g.Expect(w.host("h1").Spec.ConsumerRef).NotTo(BeNil())
	w.g.Expect(w.r.waitingForControlPlane(t.Context(), old)).To(BeEmpty(), "nobody waits")
}

func TestAWorkerThatIsTooOldForItsControlPlaneIsGivenNoHost(t *testing.T) {
	machine, quoinMachine := owned("m1", uid1)
	machine.Spec.Version = "v1.33.9"
	restricted := cluster()
	w := newWorld(t, restricted, machine, quoinMachine, host("h1", ""), apiServer("cp", "v1.37.0"))
	w.reconcile("m1")
	w.expect("m1", infrav1.MachineHostClaimedCondition, metav1.ConditionFalse, infrav1.MachineWaitingForControlPlaneReason,
		"bring it to v1.34 or later")
	w.change("m1", func(m *clusterv1.Machine) { m.Spec.Version = "v1.34.1" })
	w.g.Expect(w.host("h1").Spec.ConsumerRef).NotTo(BeNil())
}

// The cache may have seen no Machine of the control plane's new version yet: the API server is asked right before the
// claim, and again in a moment.
//
// Proves: R9
func TestAClaimIsJudgedByWhatRunsNow(t *testing.T) {
	machine, quoinMachine := owned("m1", uid1)
	machine.Spec.Version = "v1.33.9"
	w := newWorld(t, cluster(), machine, quoinMachine, host("h1", ""), apiServer("cp", "v1.36.3"))
	w.r.APIReader = interceptor.NewClient(w.client, interceptor.Funcs{List: func(ctx context.Context,
		c client.WithWatch, list client.ObjectList, options ...client.ListOption,
	) error {
		err := c.List(ctx, list, options...)
		if machines, are := list.(*clusterv1.MachineList); are {
			for i := range machines.Items {
				machines.Items[i].Spec.Version = "v1.37.0"
			}
		}
		return err
	}})
	w.g.Expect(w.reconcile("m1").RequeueAfter).To(Equal(time.Second))
	w.expect("m1", infrav1.MachineHostClaimedCondition, metav1.ConditionFalse, infrav1.MachineWaitingForControlPlaneReason,
		"bring it to v1.34 or later")
	w.g.Expect(w.host("h1").Spec.ConsumerRef).To(BeNil())
	w.r.APIReader = w.client
	w.reconcile("m1")
	w.g.Expect(w.host("h1").Spec.ConsumerRef).NotTo(BeNil())
}

// An API server that does not answer is an error, which is tried again soon, and nothing that a control plane has to do.
func TestAClaimThatIsNotJudgedIsNoWait(t *testing.T) {
	machine, quoinMachine := owned("m1", uid1)
	machine.Spec.Version = "v1.36.3"
	w := newWorld(t, cluster(), machine, quoinMachine, host("h1", ""), apiServer("cp", "v1.36.3"))
	w.r.APIReader = interceptor.NewClient(w.client, interceptor.Funcs{List: func(ctx context.Context,
		c client.WithWatch, list client.ObjectList, options ...client.ListOption,
	) error {
		if _, are := list.(*clusterv1.MachineList); are {
			return context.DeadlineExceeded
		}
		return c.List(ctx, list, options...)
	}})
	var err error
	for range 3 {
		_, err = w.r.Reconcile(t.Context(), request("m1"))
	}
	w.g.Expect(err).To(MatchError(context.DeadlineExceeded))
	w.g.Expect(w.host("h1").Spec.ConsumerRef).To(BeNil())
	w.g.Expect(conditions.GetReason(w.machine("m1"), infrav1.MachineHostClaimedCondition)).NotTo(
		Equal(infrav1.MachineWaitingForControlPlaneReason))
}

func TestThePolicyOfTheClusterHoldsForItsWorkers(t *testing.T) {
	machine, quoinMachine := owned("m1", uid1)
	machine.Spec.Version = "v1.34.1"
	restricted := cluster()
	restricted.Annotations = map[string]string{skew.PolicyAnnotation: "Kubernetes-1.24"}
	w := newWorld(t, restricted, machine, quoinMachine, host("h1", ""), apiServer("cp", "v1.37.0"))
	w.reconcile("m1")
	w.expect("m1", infrav1.MachineHostClaimedCondition, metav1.ConditionFalse, infrav1.MachineWaitingForControlPlaneReason,
		"S1-5")
	restricted = &clusterv1.Cluster{}
	w.g.Expect(w.client.Get(t.Context(), client.ObjectKey{Namespace: "team", Name: "c1"}, restricted)).To(Succeed())
	restricted.Annotations[skew.PolicyAnnotation] = "Kubernets"
	w.g.Expect(w.client.Update(t.Context(), restricted)).To(Succeed())
	w.reconcile("m1")
	w.expect("m1", infrav1.MachineHostClaimedCondition, metav1.ConditionFalse, infrav1.MachineWaitingForControlPlaneReason,
		`no version-skew policy "Kubernets"`)
}

// Proves: S1-25
//
// A pool without Machines holds kube-proxy back by nothing. When it grows, its kubelets wait rather than run beside one
// that is too new.
func TestAWorkerThatIsOlderThanKubeProxyIsGivenNoHost(t *testing.T) {
	for name, c := range map[string]struct {
		policy, proxy string
		gone, held    bool
		// alone has an annotation of the control plane leave kube-proxy to somebody else.
		alone bool
	}{
		"newer":                     {policy: "Kubernetes-1.24", proxy: "v1.24.3", held: true},
		"of its minor":              {policy: "Kubernetes-1.24", proxy: "v1.23.0"},
		"newer, and may be":         {proxy: "v1.24.3"},
		"in a cluster that is mute": {policy: "Kubernetes-1.24", proxy: "v1.24.3", gone: true},
		"newer, and left alone":     {policy: "Kubernetes-1.24", proxy: "v1.24.3", alone: true},
	} {
		t.Run(name, func(t *testing.T) {
			machine, quoinMachine := owned("m1", uid1)
			machine.Spec.Version = "v1.23.9"
			restricted := cluster()
			restricted.Annotations = map[string]string{skew.PolicyAnnotation: c.policy}
			restricted.Spec.ControlPlaneRef = clusterv1.ContractVersionedObjectReference{
				APIGroup: "controlplane.example.com", Kind: "Other", Name: "c1"}
			w := newWorld(t, restricted, machine, quoinMachine, host("h1", ""), apiServer("cp", "v1.24.3"))
			w.r.APIReader = interceptor.NewClient(w.client, interceptor.Funcs{Get: func(ctx context.Context,
				under client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
				switch of := object.(type) {
				case *metav1.PartialObjectMetadata: // the kind's definition
					of.Labels = map[string]string{"cluster.x-k8s.io/v1beta2": "v1"}
					return nil
				case *unstructured.Unstructured:
					if c.alone {
						of.SetAnnotations(map[string]string{kcpv1.SkipKubeProxyAnnotation: ""})
					}
					return nil
				}
				return under.Get(ctx, key, object, options...)
			}})
			workload := fake.NewFakeClient(estatetest.KubeProxy(c.proxy))
			w.r.ClusterCache = clustercache.NewFakeClusterCache(workload, client.ObjectKeyFromObject(restricted))
			if c.gone {
				w.r.ClusterCache = clustercache.NewFakeEmptyClusterCache()
			}
			result := w.reconcile("m1")
			w.g.Expect(w.host("h1").Spec.ConsumerRef == nil).To(Equal(c.held))
			if c.held {
				w.expect("m1", infrav1.MachineHostClaimedCondition, metav1.ConditionFalse,
					infrav1.MachineWaitingForControlPlaneReason, "kube-proxy v1.24.3", "S1-25")
				w.g.Expect(result.RequeueAfter).To(Equal(unseenRecheck))
			}
		})
	}
}

func TestWhatChangesTheAPIServersThatRun(t *testing.T) {
	g := NewWithT(t)
	changes := versionsRunChanges()
	without := apiServer("cp", "v1.36.3")
	without.Status.NodeRef = clusterv1.MachineNodeReference{}
	worker := apiServer("w", "v1.36.3")
	delete(worker.Labels, clusterv1.MachineControlPlaneLabel)
	newer := apiServer("cp", "v1.36.3")
	newer.Status.NodeInfo = &corev1.NodeSystemInfo{KubeletVersion: "v1.36.4"}
	g.Expect(changes.Create(event.CreateEvent{Object: worker})).To(BeFalse())
	g.Expect(changes.Create(event.CreateEvent{Object: newer})).To(BeTrue())
	g.Expect(changes.Update(event.UpdateEvent{ObjectOld: without, ObjectNew: apiServer("cp", "v1.36.3")})).To(BeTrue())
	g.Expect(changes.Update(event.UpdateEvent{ObjectOld: apiServer("cp", "v1.36.3"), ObjectNew: newer})).To(BeTrue())
	g.Expect(changes.Update(event.UpdateEvent{ObjectOld: newer, ObjectNew: newer})).To(BeFalse())
	g.Expect(changes.Delete(event.DeleteEvent{Object: worker})).To(BeFalse())
}

// The control plane is what the others wait for.
func TestAControlPlaneMachineWaitsForNoAPIServer(t *testing.T) {
	machine, quoinMachine := owned("m1", uid1)
	machine.Labels = map[string]string{clusterv1.ClusterNameLabel: "c1", clusterv1.MachineControlPlaneLabel: ""}
	machine.Spec.Version = "v1.36.3"
	w := newWorld(t, cluster(), machine, quoinMachine, host("h1", ""), apiServer("cp", "v1.35.4"))
	w.reconcile("m1")
	w.g.Expect(w.host("h1").Spec.ConsumerRef).NotTo(BeNil())
}

// Right after a move no Machine has its Node in the status.
func TestAWorkerWaitsWhileNoAPIServerIsKnownToRun(t *testing.T) {
	machine, quoinMachine := owned("m1", uid1)
	machine.Spec.Version = "v1.36.3"
	moved := apiServer("cp", "v1.35.4")
	moved.Status.NodeRef = clusterv1.MachineNodeReference{}
	w := newWorld(t, cluster(), machine, quoinMachine, host("h1", ""), moved)
	w.reconcile("m1")
	w.expect("m1", infrav1.MachineHostClaimedCondition, metav1.ConditionFalse, infrav1.MachineWaitingForControlPlaneReason)
}
