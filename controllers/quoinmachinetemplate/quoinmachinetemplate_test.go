// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinmachinetemplate

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/event"

	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/clienttest"
)

func host(name, role, architecture string, cpus int32, memory string) *infrav1.QuoinHost {
	return &infrav1.QuoinHost{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, Labels: map[string]string{"role": role}},
		Status: infrav1.QuoinHostStatus{State: infrav1.HostStateAvailable, Facts: &infrav1.HostFacts{
			CPUs: cpus, Memory: ptr.To(resource.MustParse(memory)), Architecture: architecture,
		}},
	}
}

func template() *infrav1.QuoinMachineTemplate {
	t := &infrav1.QuoinMachineTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "workers"}}
	t.Spec.Template.Spec.HostSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"role": "worker"}}
	return t
}

// reconciled is the status of the template with these hosts.
func reconciled(
	t *testing.T, made *infrav1.QuoinMachineTemplate, hosts ...client.Object,
) infrav1.QuoinMachineTemplateStatus {
	t.Helper()
	scheme := clienttest.Scheme(infrav1.AddToScheme)
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(append(hosts, made)...).
		WithStatusSubresource(&infrav1.QuoinMachineTemplate{}).Build()
	r := &Reconciler{Client: c}
	requests := r.templatesOfHost(t.Context(), nil)
	g := NewWithT(t)
	g.Expect(requests).To(Equal([]ctrl.Request{{NamespacedName: client.ObjectKeyFromObject(made)}}))
	for range 2 {
		_, err := r.Reconcile(t.Context(), requests[0])
		g.Expect(err).NotTo(HaveOccurred())
	}
	now := &infrav1.QuoinMachineTemplate{}
	g.Expect(c.Get(t.Context(), requests[0].NamespacedName, now)).To(Succeed())
	return now.Status
}

func TestATemplateTellsWhatTheSmallestOfItsHostsHas(t *testing.T) {
	g := NewWithT(t)
	elsewhere, quarantined, unknown := host("h4", "worker", "arm64", 1, "1Gi"), host("h5", "worker", "arm64", 1, "1Gi"),
		host("h6", "worker", "", 0, "1Gi")
	elsewhere.Namespace = "others"
	quarantined.Status.State = infrav1.HostStateQuarantined
	used := host("h2", "worker", "amd64", 64, "32Gi")
	used.Status.State = infrav1.HostStateProvisioned
	status := reconciled(t, template(), host("h1", "worker", "amd64", 16, "128Gi"), used,
		host("h3", "control-plane", "arm64", 2, "4Gi"), elsewhere, quarantined, unknown)
	g.Expect(status.Capacity).To(HaveLen(2))
	g.Expect(status.Capacity.Cpu().Value()).To(BeEquivalentTo(16))
	g.Expect(status.Capacity.Memory().String()).To(Equal("32Gi"), "of another host than the smallest number of processors")
	g.Expect(status.NodeInfo).To(Equal(infrav1.NodeInfo{Architecture: "amd64", OperatingSystem: "linux"}))
}

func TestATemplateTellsNothingOfHostsThatItDoesNotAccept(t *testing.T) {
	g := NewWithT(t)
	hostile := host("h2", "worker", "arm64", 1, "1Gi")
	hostile.Namespace, hostile.Spec.ConsumerNamespaces = "hostile", []string{"*"}
	status := reconciled(t, template(), host("h1", "worker", "amd64", 16, "128Gi"), hostile.DeepCopy())
	g.Expect(status.Capacity.Cpu().Value()).To(BeEquivalentTo(16))
	accepting := template()
	accepting.Spec.Template.Spec.HostNamespaces = []string{"team", "hostile"}
	status = reconciled(t, accepting, host("h1", "worker", "amd64", 16, "128Gi"), hostile.DeepCopy())
	g.Expect(status.Capacity.Cpu().Value()).To(BeEquivalentTo(1))
}

func TestATemplateTellsNoArchitectureWhereHostsDiffer(t *testing.T) {
	g := NewWithT(t)
	every := template()
	every.Spec.Template.Spec.HostSelector = nil
	status := reconciled(t, every, host("h1", "worker", "amd64", 16, "128Gi"), host("h2", "control-plane", "arm64", 8,
		"256Gi"))
	g.Expect(status.Capacity.Cpu().Value()).To(BeEquivalentTo(8))
	g.Expect(status.NodeInfo).To(Equal(infrav1.NodeInfo{OperatingSystem: "linux"}))
}

func TestATemplateWithoutHostsTellsNothing(t *testing.T) {
	g := NewWithT(t)
	old := template()
	old.Status.Capacity = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4")}
	g.Expect(reconciled(t, old, host("h1", "control-plane", "amd64", 16, "128Gi"))).To(BeZero())
	left := template()
	left.Annotations = map[string]string{clusterctlv1.DeleteForMoveAnnotation: ""}
	g.Expect(reconciled(t, left, host("h1", "worker", "amd64", 16, "128Gi"))).
		To(BeZero(), "it belongs to another management cluster by now")
}

func TestOnlyWhatATemplateTellsWakesIt(t *testing.T) {
	g := NewWithT(t)
	wakes := func(change func(*infrav1.QuoinHost)) bool {
		before := host("h1", "worker", "amd64", 16, "128Gi")
		after := before.DeepCopy()
		change(after)
		return sizeMatters().Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after})
	}
	g.Expect(wakes(func(h *infrav1.QuoinHost) { h.Status.State = infrav1.HostStateProvisioned })).To(BeFalse())
	g.Expect(wakes(func(h *infrav1.QuoinHost) { h.Status.State = infrav1.HostStateQuarantined })).To(BeTrue())
	g.Expect(wakes(func(h *infrav1.QuoinHost) { h.Status.Facts.CPUs = 8 })).To(BeTrue())
	g.Expect(wakes(func(h *infrav1.QuoinHost) { h.Status.Facts.Architecture = "arm64" })).To(BeTrue())
	g.Expect(wakes(func(h *infrav1.QuoinHost) { h.Labels["role"] = "storage" })).To(BeTrue())
	g.Expect(wakes(func(h *infrav1.QuoinHost) { h.Spec.ConsumerNamespaces = []string{"*"} })).To(BeTrue())
}
