// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoincluster

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/clienttest"
)

type world struct {
	t      *testing.T
	g      *WithT
	client client.Client
	r      *Reconciler
}

func newWorld(t *testing.T, objects ...client.Object) *world {
	scheme := clienttest.Scheme(corev1.AddToScheme, clusterv1.AddToScheme, infrav1.AddToScheme,
		controlplanev1.AddToScheme)
	w := &world{t: t, g: NewWithT(t)}
	w.client = clienttest.Unmanaged(scheme).WithObjects(objects...).
		WithStatusSubresource(&infrav1.QuoinHost{}, &infrav1.QuoinMachine{}, &infrav1.QuoinCluster{}, &clusterv1.Cluster{},
			&controlplanev1.QuoinControlPlane{}).Build()
	w.r = &Reconciler{Client: w.client, APIReader: w.client}
	return w
}

func (w *world) reconcile(name string) {
	w.t.Helper()
	for range 3 {
		_, err := w.r.Reconcile(context.Background(),
			ctrl.Request{NamespacedName: types.NamespacedName{Namespace: "team", Name: name}})
		w.g.Expect(err).NotTo(HaveOccurred())
	}
}

func (w *world) get(name string) *infrav1.QuoinCluster {
	w.t.Helper()
	c := &infrav1.QuoinCluster{}
	w.g.Expect(w.client.Get(context.Background(), client.ObjectKey{Namespace: "team", Name: name}, c)).To(Succeed())
	return c
}

func (w *world) expect(name, kind string, status metav1.ConditionStatus, reason string, says ...string) {
	w.t.Helper()
	c := conditions.Get(w.get(name), kind)
	w.g.Expect(c).NotTo(BeNil(), kind)
	w.g.Expect(c.Status).To(Equal(status), c.Message)
	w.g.Expect(c.Reason).To(Equal(reason), c.Message)
	for _, text := range says {
		w.g.Expect(c.Message).To(ContainSubstring(text))
	}
}

var begun = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func owned(name, address string, routerID int32, age time.Duration) (*clusterv1.Cluster, *infrav1.QuoinCluster) {
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, UID: types.UID(name)}}
	return cluster, &infrav1.QuoinCluster{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "team", Name: name, CreationTimestamp: metav1.NewTime(begun.Add(-age)),
			Labels: map[string]string{clusterv1.ClusterNameLabel: name},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster", Name: name,
				UID: types.UID(name)}},
		},
		Spec: infrav1.QuoinClusterSpec{
			ControlPlaneEndpoint: infrav1.APIEndpoint{Host: address},
			LoadBalancer: infrav1.LoadBalancer{Type: infrav1.LoadBalancerKeepalived,
				Keepalived: &infrav1.Keepalived{VirtualRouterID: routerID}},
		},
	}
}

func host(namespace, name, domain string, free bool, namespaces ...string) *infrav1.QuoinHost {
	h := &infrav1.QuoinHost{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       infrav1.QuoinHostSpec{FailureDomain: domain, ConsumerNamespaces: namespaces},
		Status:     infrav1.QuoinHostStatus{State: infrav1.HostStateQuarantined},
	}
	if free {
		h.Status.State = infrav1.HostStateAvailable
		conditions.Set(h, metav1.Condition{Type: infrav1.HostReadyCondition, Status: metav1.ConditionTrue,
			Reason: "Available"})
	}
	return h
}

// accepting is a machine template whose Machines accept hosts of the namespaces.
func accepting(name string, namespaces ...string) *infrav1.QuoinMachineTemplate {
	template := &infrav1.QuoinMachineTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name}}
	template.Spec.Template.Spec.HostNamespaces = namespaces
	return template
}

func TestAClusterShowsEndpointFailureDomainsAndHosts(t *testing.T) {
	cluster, quoinCluster := owned("c1", "10.0.0.100", 51, 0)
	w := newWorld(t, cluster, quoinCluster, accepting("pool", "team", "hosts"),
		host("team", "h1", "rack-b", true), host("team", "h2", "rack-a", false), host("hosts", "h3", "rack-c", true, "team"),
		host("hosts", "h4", "rack-d", true), host("team", "h5", "rack-e", true, "others"), host("team", "h6", "", true))
	w.reconcile("c1")
	c := w.get("c1")
	w.g.Expect(c.Spec.ControlPlaneEndpoint).To(Equal(infrav1.APIEndpoint{Host: "10.0.0.100", Port: 6443}))
	w.g.Expect(*c.Status.Initialization.Provisioned).To(BeTrue())
	w.g.Expect(c.Status.FailureDomains).To(Equal([]clusterv1.FailureDomain{
		{Name: "rack-a", ControlPlane: ptr.To(true)}, {Name: "rack-b", ControlPlane: ptr.To(true)},
		{Name: "rack-c", ControlPlane: ptr.To(true)},
	}))
	w.g.Expect(*c.Status.Hosts.Total).To(BeEquivalentTo(4))
	w.g.Expect(*c.Status.Hosts.Available).To(BeEquivalentTo(3))
	w.expect("c1", infrav1.ClusterReadyCondition, metav1.ConditionTrue, clusterv1.ReadyReason)
	w.expect("c1", infrav1.ClusterHostsAvailableCondition, metav1.ConditionTrue, infrav1.HostAvailableReason,
		"3 of 4 hosts are free")
	w.g.Expect(c.Finalizers).To(ContainElement(infrav1.ClusterFinalizer))
}

func TestAMissingEndpointSaysWhatToSet(t *testing.T) {
	cluster, quoinCluster := owned("c1", "", 51, 0)
	w := newWorld(t, cluster, quoinCluster)
	w.reconcile("c1")
	w.expect("c1", infrav1.ClusterReadyCondition, metav1.ConditionFalse, infrav1.ClusterEndpointMissingReason,
		"free IP address", "controlPlaneEndpoint.host")
	w.expect("c1", infrav1.ClusterHostsAvailableCondition, metav1.ConditionFalse, infrav1.ClusterNoHostsReason,
		"namespace team")
	w.g.Expect(w.get("c1").Status.Initialization.Provisioned).To(BeNil())
}

func TestTheYoungerOfTwoClustersWithOneAddressIsRefused(t *testing.T) {
	cluster1, older := owned("c1", "fd00::100", 51, time.Hour)
	cluster2, younger := owned("c2", "fd00:0::0100", 52, 0)
	w := newWorld(t, cluster1, older, cluster2, younger)
	w.reconcile("c1")
	w.reconcile("c2")
	w.expect("c1", infrav1.ClusterReadyCondition, metav1.ConditionTrue, clusterv1.ReadyReason)
	w.expect("c2", infrav1.ClusterReadyCondition, metav1.ConditionFalse, infrav1.ClusterEndpointConflictReason,
		"QuoinCluster team/c1", "choose another address")
	w.g.Expect(w.get("c2").Status.Initialization.Provisioned).To(BeNil())

	w.g.Expect(w.r.rivalsOf(context.Background(), older)).
		To(Equal([]ctrl.Request{{NamespacedName: types.NamespacedName{Namespace: "team", Name: "c2"}}}))
	gone := w.get("c1")
	gone.Finalizers = nil
	w.g.Expect(w.client.Update(context.Background(), gone)).To(Succeed())
	w.g.Expect(w.client.Delete(context.Background(), gone)).To(Succeed())
	w.reconcile("c2")
	w.expect("c2", infrav1.ClusterReadyCondition, metav1.ConditionTrue, clusterv1.ReadyReason)
}

func TestTheYoungerOfTwoClustersWithOneVirtualRouterIDIsRefused(t *testing.T) {
	cluster1, first := owned("c1", "10.0.0.100", 51, 0)
	cluster2, second := owned("c2", "10.0.0.101", 51, 0)
	w := newWorld(t, cluster1, first, cluster2, second)
	w.reconcile("c1")
	w.reconcile("c2")
	w.expect("c1", infrav1.ClusterReadyCondition, metav1.ConditionTrue, clusterv1.ReadyReason)
	w.expect("c2", infrav1.ClusterEndpointReadyCondition, metav1.ConditionFalse, infrav1.ClusterEndpointConflictReason,
		"virtualRouterID 51 is that of QuoinCluster team/c1")
}

func TestAnExternalLoadBalancerMayServeSeveralClustersOnTheirOwnPorts(t *testing.T) {
	cluster1, first := owned("c1", "lb.example.com", 1, time.Hour)
	cluster2, second := owned("c2", "LB.example.com.", 1, 0)
	first.Spec.LoadBalancer, second.Spec.LoadBalancer = infrav1.LoadBalancer{}, infrav1.LoadBalancer{}
	second.Spec.ControlPlaneEndpoint.Port = 7443
	w := newWorld(t, cluster1, first, cluster2, second)
	w.reconcile("c2")
	w.expect("c2", infrav1.ClusterReadyCondition, metav1.ConditionTrue, clusterv1.ReadyReason)
	changed := w.get("c2")
	changed.Spec.ControlPlaneEndpoint.Port = 6443
	w.g.Expect(w.client.Update(context.Background(), changed)).To(Succeed())
	w.reconcile("c2")
	w.expect("c2", infrav1.ClusterReadyCondition, metav1.ConditionFalse, infrav1.ClusterEndpointConflictReason)
	w.g.Expect(*w.get("c2").Status.Initialization.Provisioned).To(BeTrue(), "the contract: once provisioned, for ever")
}

func TestAClusterStaysUntilItsMachinesAreGone(t *testing.T) {
	cluster, quoinCluster := owned("c1", "10.0.0.100", 51, 0)
	machine := &infrav1.QuoinMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "m1",
		Labels: map[string]string{clusterv1.ClusterNameLabel: "c1"}}}
	w := newWorld(t, cluster, quoinCluster, machine)
	w.reconcile("c1")
	w.g.Expect(w.client.Delete(context.Background(), w.get("c1"))).To(Succeed())
	w.reconcile("c1")
	w.expect("c1", infrav1.ClusterReadyCondition, metav1.ConditionFalse, clusterv1.DeletingReason, "QuoinMachine m1")
	w.g.Expect(w.r.waitingClusterOf(context.Background(), machine)).To(HaveLen(1))
	w.g.Expect(w.client.Delete(context.Background(), machine)).To(Succeed())
	w.reconcile("c1")
	w.g.Expect(apierrors.IsNotFound(w.client.Get(context.Background(), client.ObjectKeyFromObject(quoinCluster),
		&infrav1.QuoinCluster{}))).To(BeTrue())
}

func TestAPausedClusterIsLeftAlone(t *testing.T) {
	cluster, quoinCluster := owned("c1", "10.0.0.100", 51, 0)
	cluster.Spec.Paused = ptr.To(true)
	w := newWorld(t, cluster, quoinCluster)
	w.reconcile("c1")
	w.g.Expect(conditions.Get(w.get("c1"), infrav1.ClusterReadyCondition)).To(BeNil())
	w.expect("c1", clusterv1.PausedCondition, metav1.ConditionTrue, clusterv1.PausedReason)
}
