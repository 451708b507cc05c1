// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package manager_test

import (
	"maps"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
)

// judgesUnseenNodes deletes workers whose Node Cluster API does not know of, as MachineSets and people do right after a
// move. The API server of the test is that of the workload cluster too.
func judgesUnseenNodes(t *testing.T, c client.Client, config *rest.Config) {
	answers, silent, paused := newEstate(t, c, "answers"), newEstate(t, c, "silent"), newEstate(t, c, "resting")
	ending, downward, gone := newEstate(t, c, "ending"), newEstate(t, c, "downward"), newEstate(t, c, "gone")
	g := NewWithT(t)
	for _, e := range []*estate{answers, paused, ending, downward} {
		g.Expect(c.Create(t.Context(), kubeconfigOf(t, e.cluster, config))).To(Succeed())
	}
	paused.cluster.Spec.Paused = ptr.To(true)
	g.Expect(c.Update(t.Context(), paused.cluster)).To(Succeed())
	downward.cluster.Spec.ControlPlaneRef = clusterv1.ContractVersionedObjectReference{
		APIGroup: controlplanev1.GroupVersion.Group, Kind: "QuoinControlPlane", Name: "cp"}
	g.Expect(c.Update(t.Context(), downward.cluster)).To(Succeed())
	gone.cluster.Finalizers = nil
	g.Expect(c.Update(t.Context(), gone.cluster)).To(Succeed())
	for _, object := range []client.Object{ending.cluster, downward.plane, gone.cluster} {
		g.Expect(c.Delete(t.Context(), object)).To(Succeed())
	}
	for name, id := range map[string]string{"joined": "joined", "twin-1": "twin", "twin-2": "twin"} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{ProviderID: "quoin://" + id}}
		g.Expect(c.Create(t.Context(), node)).To(Succeed())
	}
	defer func() { g.Expect(c.DeleteAllOf(t.Context(), &corev1.Node{})).To(Succeed()) }()

	const unseen = "Cluster API has not found its Node joined yet"
	lost := map[string]string{infrav1.DeletionAnnotation: "where it came from"}
	lostUndrained := maps.Clone(lost)
	maps.Copy(lostUndrained, undrained)
	for name, s := range map[string]struct {
		in          *estate
		provider    string
		annotations map[string]string
		seen        string
		kind        string
		refusal     string
	}{
		"its-node-is-there":           {in: answers, provider: "joined", refusal: unseen},
		"its-node-is-found":           {in: answers, provider: "joined", seen: "joined"},
		"it-never-joined":             {in: answers, provider: "another"},
		"it-has-no-host":              {in: answers},
		"it-is-moved":                 {in: answers, provider: "joined", annotations: moved},
		"it-may-go-undrained":         {in: answers, provider: "joined", annotations: undrained},
		"its-drain-was-cut-off":       {in: answers, provider: "joined", annotations: excluded, refusal: unseen},
		"it-is-of-others":             {in: answers, provider: "joined", kind: "DockerMachine"},
		"its-deletion-was-lost":       {in: answers, provider: "joined", annotations: lost, refusal: unseen},
		"its-node-is-gone":            {in: answers, provider: "another", annotations: lost},
		"two-nodes-are-its":           {in: answers, provider: "twin", refusal: "have its provider ID: twin-1, twin-2"},
		"nobody-looks":                {in: paused, provider: "joined", refusal: "its Node joined while it is paused"},
		"its-cluster-goes":            {in: ending, provider: "joined", annotations: lost},
		"its-control-plane-goes":      {in: downward, provider: "joined", annotations: lost},
		"its-cluster-is-gone":         {in: gone, provider: "joined", annotations: lost},
		"nobody-knows-its-node":       {in: silent, provider: "joined"},
		"nobody-knows-of-a-lost-one":  {in: silent, provider: "joined", annotations: lost, refusal: "Have its API server"},
		"nobody-knows-and-it-is-said": {in: silent, provider: "joined", annotations: lostUndrained},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			machine := s.in.machine(name)
			delete(machine.Labels, clusterv1.MachineControlPlaneLabel)
			machine.OwnerReferences, machine.Annotations = nil, s.annotations
			if s.provider != "" {
				machine.Spec.ProviderID = "quoin://" + s.provider
			}
			if s.kind != "" {
				machine.Spec.InfrastructureRef.Kind = s.kind
			}
			g.Expect(c.Create(t.Context(), machine)).To(Succeed())
			if s.seen != "" {
				machine.Status.NodeRef.Name = s.seen
				g.Expect(c.Status().Update(t.Context(), machine)).To(Succeed())
			}
			for _, err := range []error{
				c.Delete(t.Context(), machine, client.DryRunAll),
				c.DeleteAllOf(t.Context(), &clusterv1.Machine{}, client.InNamespace(machine.Namespace), client.DryRunAll,
					client.MatchingFields{"metadata.name": name}),
				c.Delete(t.Context(), machine),
			} {
				if s.refusal == "" {
					g.Expect(err).NotTo(HaveOccurred())
					continue
				}
				g.Expect(err).To(MatchError(And(ContainSubstring("Machine "+name+" would go without"),
					ContainSubstring(s.refusal), ContainSubstring("annotate it with "+infrav1.DeleteUndrainedAnnotation))))
			}
			if s.refusal == "" {
				g.Expect(c.Delete(t.Context(), machine)).To(Succeed(), "what is being deleted already may be deleted again")
			}
		})
	}
}

var (
	moved     = map[string]string{clusterctlv1.DeleteForMoveAnnotation: ""}
	undrained = map[string]string{infrav1.DeleteUndrainedAnnotation: "its rack burned down"}
	// A rollout leaves it on a Machine whose drain took too long, and its hooks hold all the same.
	excluded = map[string]string{clusterv1.ExcludeNodeDrainingAnnotation: ""}
)
