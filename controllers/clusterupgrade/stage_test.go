// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterupgrade

import (
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
)

// freeHost may be claimed from the namespaces.
func freeHost(name, role string, namespaces ...string) *infrav1.QuoinHost {
	host := &infrav1.QuoinHost{ObjectMeta: metav1.ObjectMeta{Namespace: "hosts", Name: name,
		Labels: map[string]string{"role": role}}, Spec: infrav1.QuoinHostSpec{ConsumerNamespaces: namespaces}}
	host.Status.State = infrav1.HostStateAvailable
	conditions.Set(host, metav1.Condition{Type: infrav1.HostReadyCondition, Status: metav1.ConditionTrue, Reason: "Test"})
	return host
}

// templateOf says that hosts of a role read bundles themselves.
func templateOf(role string) *infrav1.QuoinMachineTemplate {
	template := &infrav1.QuoinMachineTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: role}}
	template.Spec.Template.Spec.HostSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"role": role}}
	template.Spec.Template.Spec.HostNamespaces = []string{"hosts"}
	template.Spec.Template.Spec.Artifacts.Bundle = &infrav1.Bundle{Location: "https://bundles.test/{{version}}"}
	return template
}

// stagingWorld is the world of an upgrade whose control plane and pool blue are made of hosts of roles.
func stagingWorld(t *testing.T, objects ...client.Object) *world {
	t.Helper()
	w := newWorld(t, objects...)
	ref := clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: "QuoinMachineTemplate",
		Name: "plane"}
	plane := w.plane()
	plane.Spec.MachineTemplate.Spec.InfrastructureRef = ref
	w.Expect(w.client.Update(t.Context(), plane)).To(Succeed())
	pool := &clusterv1.MachineDeployment{}
	w.Expect(w.client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "blue"}, pool)).To(Succeed())
	pool.Spec.Template.Spec.InfrastructureRef, pool.Spec.Template.Spec.InfrastructureRef.Name = ref, "worker"
	w.Expect(w.client.Update(t.Context(), pool)).To(Succeed())
	return w
}

func (w *world) host(name string) *infrav1.QuoinHost {
	w.t.Helper()
	host := &infrav1.QuoinHost{}
	w.Expect(w.client.Get(w.t.Context(), client.ObjectKey{Namespace: "hosts", Name: name}, host)).To(Succeed())
	return host
}

// asked lists what hosts are asked for, as "host version role".
func (w *world) asked() (all []string) {
	w.t.Helper()
	hosts := &infrav1.QuoinHostList{}
	w.Expect(w.client.List(w.t.Context(), hosts)).To(Succeed())
	for _, host := range hosts.Items {
		if host.Spec.Stage != nil {
			w.Expect(host.Spec.Stage.RequestedBy).To(Equal(key.String()))
			for _, wanted := range host.Spec.Stage.Artifacts {
				all = append(all, strings.Join([]string{host.Name, wanted.Version, wanted.Role}, " "))
			}
		}
	}
	return all
}

func TestHostsThatMachinesMayClaimAreAskedForWhatComesNext(t *testing.T) {
	push := templateOf("worker")
	push.Spec.Template.Spec.Artifacts.Bundle.Delivery = infrav1.BundleDeliveryPush
	inUse := freeHost("in-use", "plane", "*")
	inUse.Spec.ConsumerRef = &infrav1.ConsumerReference{Namespace: "prod", Name: "x"}
	broken := freeHost("broken", "plane", "*")
	broken.Status.State = infrav1.HostStateQuarantined
	careful := templateOf("plane")
	careful.Spec.Template.Spec.HostNamespaces = nil
	for name, c := range map[string]struct {
		objects []client.Object
		want    []string
	}{
		"that their template accepts": {[]client.Object{careful, freeHost("a", "plane", "*")}, nil},
		"by their roles": {[]client.Object{templateOf("plane"), templateOf("worker"), freeHost("a", "plane", "*"),
			freeHost("b", "worker", namespace), freeHost("c", "other", "*")},
			[]string{"a v1.35.4 ControlPlane", "b v1.36.3 Worker"}},
		"and no others": {[]client.Object{templateOf("plane"), inUse, broken, freeHost("foreign", "plane", "team"),
			freeHost("own", "plane")}, nil},
		"where bundles are fetched": {[]client.Object{push, freeHost("a", "worker", "*")}, nil},
		"with a template":           {[]client.Object{freeHost("a", "plane", "*")}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := stagingWorld(t, c.objects...)
			w.reconcile()
			w.Expect(w.asked()).To(Equal(c.want))
		})
	}
}

func TestNoMoreHostsAreAskedThanThereAreMachines(t *testing.T) {
	objects := []client.Object{templateOf("plane")}
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		objects = append(objects, freeHost(name, "plane", "*"))
	}
	w := stagingWorld(t, objects...)
	w.reconcile()
	w.Expect(w.asked()).To(HaveLen(3))
}

// A host that becomes free does not take the place of one that has the next version already, whatever its name.
func TestAHostThatHasTheVersionStaysAsked(t *testing.T) {
	w := stagingWorld(t, templateOf("plane"), freeHost("b", "plane", "*"), freeHost("c", "plane", "*"),
		freeHost("d", "plane", "*"))
	w.reconcile()
	for _, name := range []string{"b", "c", "d"} {
		host := w.host(name)
		host.Status.Staged = host.Spec.Stage.Artifacts
		w.Expect(w.client.Update(t.Context(), host)).To(Succeed())
	}
	w.Expect(w.client.Create(t.Context(), freeHost("a", "plane", "*"))).To(Succeed())
	w.reconcile()
	w.Expect(w.asked()).To(Equal([]string{"b v1.35.4 ControlPlane", "c v1.35.4 ControlPlane", "d v1.35.4 ControlPlane"}))
}

// Each process dies after each of its writes, and the hosts are asked for what comes next all the same; at the end
// nobody is asked for anything.
func TestHostsAreAskedUntilTheUpgradeIsOver(t *testing.T) {
	for _, killed := range []bool{false, true} {
		w := stagingWorld(t, templateOf("plane"), freeHost("a", "plane", "*"))
		w.kills = func(int) bool { return killed }
		var seen []string
		for range 200 {
			w.reconcile()
			if host := w.host("a"); host.Spec.Stage != nil {
				if version := host.Spec.Stage.Artifacts[0].Version; !slices.Contains(seen, version) {
					seen = append(seen, version)
				}
				host.Status.Staged = host.Spec.Stage.Artifacts
				w.Expect(w.client.Update(t.Context(), host)).To(Succeed())
				w.reconcile()
				w.Expect(conditions.IsTrue(w.upgrade(), quoinv1.ClusterUpgradeStagedCondition)).To(BeTrue())
			}
			if !w.advance() {
				break
			}
		}
		w.reconcile()
		w.Expect(seen).To(Equal([]string{"v1.35.4", "v1.36.3"}))
		w.Expect(conditions.IsTrue(w.upgrade(), quoinv1.ClusterUpgradeCompletedCondition)).To(BeTrue())
		w.Expect(w.asked()).To(BeEmpty())
		w.sets = slices.DeleteFunc(w.sets, func(set string) bool { return strings.Contains(set, "QuoinHost") })
		w.Expect(w.sets).To(Equal(whole))
	}
}

func TestAHostTellsTheUpgradeThatAsksIt(t *testing.T) {
	g := NewWithT(t)
	before := freeHost("a", "plane", "*")
	g.Expect(ofHost(t.Context(), before)).To(BeEmpty())
	before.Spec.Stage = &infrav1.HostStage{RequestedBy: key.String()}
	g.Expect(ofHost(t.Context(), before)).To(ConsistOf(HaveField("NamespacedName", key)))
	after := before.DeepCopy()
	after.Status.Operation = &infrav1.HostOperation{ID: "stage-1"}
	news := func() bool { return stagedChanged().Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after}) }
	g.Expect(news()).To(BeFalse())
	after.Status.Staged = []infrav1.StagedArtifacts{{Version: "v1.36.3"}}
	g.Expect(news()).To(BeTrue())
}
