// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoincluster

import (
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
)

// Somebody else's system owns what is annotated so, its endpoint and its status.
func TestAClusterThatIsManagedElsewhereIsNotTouched(t *testing.T) {
	cluster, quoinCluster := owned("c1", "10.0.0.100", 51, 0)
	quoinCluster.Annotations = map[string]string{clusterv1.ManagedByAnnotation: "site-tool"}
	w := newWorld(t, cluster, quoinCluster, host("team", "h1", "rack-a", true))
	before := w.get("c1")
	w.reconcile("c1")
	w.g.Expect(w.get("c1")).To(Equal(before))
	w.g.Expect(before.Spec.ControlPlaneEndpoint.Port).To(BeZero())
}

func TestAClusterThatIsManagedElsewhereOnlySinceThenCanGo(t *testing.T) {
	cluster, quoinCluster := owned("c1", "10.0.0.100", 51, 0)
	w := newWorld(t, cluster, quoinCluster)
	w.reconcile("c1")
	c := w.get("c1")
	c.Annotations = map[string]string{clusterv1.ManagedByAnnotation: "site-tool"}
	w.g.Expect(w.client.Update(t.Context(), c)).To(Succeed())
	w.g.Expect(w.client.Delete(t.Context(), c)).To(Succeed())
	w.reconcile("c1")
	w.g.Expect(client.IgnoreNotFound(w.client.Get(t.Context(), client.ObjectKeyFromObject(c), c))).To(Succeed())
	w.g.Expect(w.client.Get(t.Context(), client.ObjectKeyFromObject(c), c)).
		NotTo(Succeed(), "our own finalizer holds it no more")
}

func TestAFailureDomainIsAControlPlanesOnlyWhereOneOfItsHostsIs(t *testing.T) {
	selected := &infrav1.QuoinMachineTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "cp"}}
	selected.Spec.Template.Spec.HostSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"role": "cp"}}
	every := &infrav1.QuoinMachineTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "every"}}
	for name, c := range map[string]struct {
		kind, template string
		want, theirs   bool
	}{
		"by its template":               {"QuoinControlPlane", "cp", false, false},
		"without a selector":            {"QuoinControlPlane", "every", true, false},
		"that accepts other hosts too":  {"QuoinControlPlane", "workers", true, true},
		"of another kind":               {"KubeadmControlPlane", "cp", true, true},
		"whose template is yet to come": {"QuoinControlPlane", "later", true, true},
	} {
		t.Run(name, func(t *testing.T) {
			cluster, quoinCluster := owned("c1", "10.0.0.100", 51, 0)
			cluster.Spec.ControlPlaneRef = clusterv1.ContractVersionedObjectReference{
				APIGroup: controlplanev1.GroupVersion.Group, Kind: c.kind, Name: "cp"}
			controlPlane := &controlplanev1.QuoinControlPlane{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "cp"}}
			controlPlane.Spec.MachineTemplate.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{
				APIGroup: infrav1.GroupVersion.Group, Kind: "QuoinMachineTemplate", Name: c.template}
			one := host("team", "h1", "rack-a", false)
			one.Labels = map[string]string{"role": "cp"}
			theirs := host("hosts", "h4", "rack-c", true, "team")
			theirs.Labels = one.Labels
			w := newWorld(t, cluster, quoinCluster, controlPlane, selected, every, accepting("workers", "team", "hosts"), one,
				host("team", "h2", "rack-a", true), host("team", "h3", "rack-b", true), theirs)
			w.reconcile("c1")
			w.g.Expect(w.get("c1").Status.FailureDomains).To(Equal([]clusterv1.FailureDomain{
				{Name: "rack-a", ControlPlane: ptr.To(true)}, {Name: "rack-b", ControlPlane: ptr.To(c.want)},
				{Name: "rack-c", ControlPlane: ptr.To(c.theirs)},
			}))
		})
	}
}

// A host that a member had before its namespace had to be accepted keeps its failure domain a control plane's, and one
// that a worker has makes none.
func TestAFailureDomainOfAMemberStaysAControlPlanes(t *testing.T) {
	cluster, quoinCluster := owned("c1", "10.0.0.100", 51, 0)
	cluster.Spec.ControlPlaneRef = clusterv1.ContractVersionedObjectReference{
		APIGroup: controlplanev1.GroupVersion.Group, Kind: "QuoinControlPlane", Name: "cp"}
	controlPlane := &controlplanev1.QuoinControlPlane{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "cp"}}
	controlPlane.Spec.MachineTemplate.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{
		APIGroup: infrav1.GroupVersion.Group, Kind: "QuoinMachineTemplate", Name: "own"}
	objects := []client.Object{cluster, quoinCluster, controlPlane, accepting("own")}
	for name, domain := range map[string]string{"member": "rack-a", "worker": "rack-b"} {
		had := host("hosts", name, domain, false, "team")
		had.Spec.ConsumerRef = &infrav1.ConsumerReference{Namespace: "team", Name: name, Machine: name, Claim: "0123abcd"}
		machine := &infrav1.QuoinMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name,
			Labels: map[string]string{clusterv1.ClusterNameLabel: "c1"}}}
		if name == "member" {
			machine.Labels[clusterv1.MachineControlPlaneLabel] = ""
		}
		machine.Spec.ProviderID = had.ProviderID()
		objects = append(objects, had, machine)
	}
	w := newWorld(t, objects...)
	w.reconcile("c1")
	w.g.Expect(w.get("c1").Status.FailureDomains).To(Equal([]clusterv1.FailureDomain{
		{Name: "rack-a", ControlPlane: ptr.To(true)}, {Name: "rack-b", ControlPlane: ptr.To(false)}}))
}

// An endpoint that somebody else provides comes when it comes.
func TestAnEndpointOfTheClusterThatComesLaterWakesItsInfrastructure(t *testing.T) {
	cluster, quoinCluster := owned("c1", "", 0, 0)
	quoinCluster.Spec.LoadBalancer = infrav1.LoadBalancer{Type: infrav1.LoadBalancerExternal}
	w := newWorld(t, cluster, quoinCluster)
	w.reconcile("c1")
	w.g.Expect(w.get("c1").Status.Initialization.Provisioned).To(BeNil())

	later := cluster.DeepCopy()
	w.g.Expect(clusterMatters().Update(event.UpdateEvent{ObjectOld: cluster, ObjectNew: later})).To(BeFalse())
	later.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint{Host: "api.example.com", Port: 6443}
	w.g.Expect(clusterMatters().Update(event.UpdateEvent{ObjectOld: cluster, ObjectNew: later})).To(BeTrue())
	w.g.Expect(w.client.Update(t.Context(), later)).To(Succeed())
	w.reconcile("c1")
	w.g.Expect(*w.get("c1").Status.Initialization.Provisioned).To(BeTrue())
}
