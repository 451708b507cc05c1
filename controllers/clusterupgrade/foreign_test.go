// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterupgrade

import (
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
)

// foreign is another provider of control planes: which contract of Cluster API it follows, and whether it hosts them,
// without Machines and without a number of them.
type foreign struct {
	contract string
	hosted   bool
}

func newForeignWorld(t *testing.T, of foreign) *world {
	t.Helper()
	object := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"version": "v1.34.4"}}}
	object.SetGroupVersionKind(schema.GroupVersionKind{Group: "controlplane.example.com", Version: "v1", Kind: "Other"})
	object.SetNamespace(namespace)
	object.SetName("c1")
	crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "others.controlplane.example.com",
		Labels: map[string]string{"cluster.x-k8s.io/" + of.contract: "v1"}}}
	w := newWorld(t, object, crd)
	w.foreign = &of
	cluster := w.cluster()
	cluster.Spec.ControlPlaneRef = clusterv1.ContractVersionedObjectReference{APIGroup: "controlplane.example.com",
		Kind: "Other", Name: "c1"}
	w.Expect(w.client.Update(t.Context(), cluster)).To(Succeed())
	if of.hosted {
		w.Expect(w.client.DeleteAllOf(t.Context(), &clusterv1.Machine{}, client.InNamespace(namespace),
			client.HasLabels{clusterv1.MachineControlPlaneLabel})).To(Succeed())
	}
	w.tell("v1.34.4", 3)
	return w
}

func (w *world) foreignPlane() *unstructured.Unstructured {
	w.t.Helper()
	found := &unstructured.Unstructured{}
	found.SetGroupVersionKind(schema.GroupVersionKind{Group: "controlplane.example.com", Version: "v1", Kind: "Other"})
	w.Expect(w.client.Get(w.t.Context(), client.ObjectKey{Namespace: namespace, Name: "c1"}, found)).To(Succeed())
	return found
}

// advanceForeign has the control plane go on by one step: its Machines first, and then it is settled.
func (w *world) advanceForeign() bool {
	of := w.foreignPlane()
	version, _, _ := unstructured.NestedString(of.Object, "spec", "version")
	told, _, _ := unstructured.NestedString(of.Object, "status", "version")
	if !w.foreign.hosted && w.roll(version, client.HasLabels{clusterv1.MachineControlPlaneLabel}) {
		w.tell(told, 2)
		return true
	}
	if told == version {
		return false
	}
	w.tell(version, 3)
	return true
}

// tell has the control plane tell what it runs, in the fields of its contract, and Cluster API what it makes of that.
func (w *world) tell(version string, upToDate int64) {
	w.t.Helper()
	status := map[string]any{"version": version, "replicas": int64(3), "readyReplicas": int64(3)}
	if w.foreign.contract == "v1beta1" {
		status["updatedReplicas"], status["unavailableReplicas"] = upToDate, int64(0)
	} else {
		status["upToDateReplicas"], status["availableReplicas"] = upToDate, int64(3)
		status["versions"] = []any{map[string]any{"version": version, "replicas": int64(3)}}
	}
	of, cluster := w.foreignPlane(), w.cluster()
	if w.foreign.hosted {
		status = map[string]any{"version": version}
	} else {
		w.Expect(unstructured.SetNestedField(of.Object, int64(3), "spec", "replicas")).To(Succeed())
	}
	of.Object["status"] = status
	w.Expect(w.client.Update(w.t.Context(), of)).To(Succeed())
	cluster.Status.ControlPlane = &clusterv1.ClusterControlPlaneStatus{}
	if !w.foreign.hosted {
		cluster.Status.ControlPlane = &clusterv1.ClusterControlPlaneStatus{DesiredReplicas: ptr.To[int32](3),
			Replicas: ptr.To[int32](3), AvailableReplicas: ptr.To[int32](3), UpToDateReplicas: ptr.To(int32(upToDate))}
	}
	w.Expect(w.client.Status().Update(w.t.Context(), cluster)).To(Succeed())
}

// The control plane of another provider is upgraded by Cluster API's contract, whichever it follows, and whether
// Machines or the provider's own pods carry it. Nobody tells when it changes, so it is looked at.
func TestAForeignControlPlane(t *testing.T) {
	sets := append([]string{}, whole...)
	for i, set := range sets {
		sets[i] = strings.Replace(set, "*v1alpha1.QuoinControlPlane", "*unstructured.Unstructured", 1)
	}
	for name, c := range map[string]struct {
		of      foreign
		nodes   int32
		waiting string
	}{
		"by today's contract":    {foreign{contract: "v1beta2"}, 7, "2 of 3 Machines of c1 are up to date"},
		"by the contract before": {foreign{contract: "v1beta1"}, 7, "2 of 3 Machines of c1 are up to date"},
		"hosted": {foreign{contract: "v1beta1", hosted: true}, 4,
			"Other c1 is not everywhere at v1.36.3 yet"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newForeignWorld(t, c.of)
			waited := map[string]time.Duration{}
			for range 100 {
				result := w.reconcile()
				waited[conditions.GetMessage(w.upgrade(), quoinv1.ClusterUpgradeProgressingCondition)] = result.RequeueAfter
				w.advance()
			}
			w.expectEndOf(c.nodes, sets...)
			w.Expect(w.upgrade().Status.ControlPlaneVersions).To(ConsistOf(HaveField("Version", "v1.36.3")))
			w.Expect(waited).To(HaveKeyWithValue(ContainSubstring(c.waiting), time.Minute))
		})
	}
}

// A control plane whose Machines Cluster API did not count yet is not done with.
func TestAForeignControlPlaneIsCounted(t *testing.T) {
	w := newForeignWorld(t, foreign{contract: "v1beta2"})
	cluster := w.cluster()
	cluster.Status.ControlPlane = nil
	w.Expect(w.client.Status().Update(t.Context(), cluster)).To(Succeed())
	seen, err := w.r.observe(t.Context(), w.client, w.upgrade())
	w.Expect(err).NotTo(HaveOccurred())
	w.Expect(seen.world.ControlPlane.Unsettled).To(ContainSubstring("did not look yet"))
}
