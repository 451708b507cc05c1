// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoincontrolplane

import (
	"context"
	"errors"
	"testing"

	. "github.com/onsi/gomega"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/controllers/quoincontrolplane/observe"
)

func (w *world) dnsBudget() *policyv1.PodDisruptionBudget {
	w.t.Helper()
	found := &policyv1.PodDisruptionBudget{}
	err := w.workload.Get(w.t.Context(), client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: observe.DNSBudgetName}, found)
	w.g.Expect(client.IgnoreNotFound(err)).To(Succeed())
	if err != nil {
		return nil
	}
	return found
}

// CoreDNS has a budget from the first look on, again when somebody deletes it, and none beside one that somebody makes
// of their own, also while a Machine is drained.
//
// Proves: S0-42
func TestCoreDNSHasABudget(t *testing.T) {
	w := newWorld(t, 1)
	g := w.g
	name := initialized(t, w)
	made := w.dnsBudget()
	g.Expect(made.Spec).To(Equal(policyv1.PodDisruptionBudgetSpec{MaxUnavailable: ptr.To(intstr.FromInt32(1)),
		Selector:                   &metav1.LabelSelector{MatchLabels: map[string]string{"k8s-app": "kube-dns"}},
		UnhealthyPodEvictionPolicy: ptr.To(policyv1.AlwaysAllow)}))

	g.Expect(w.workload.Delete(t.Context(), made)).To(Succeed())
	w.once()
	g.Expect(w.dnsBudget()).NotTo(BeNil())

	g.Expect(w.mgmt.Delete(t.Context(), w.machine(name))).To(Succeed())
	w.once()
	theirs := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: made.Namespace, Name: "theirs"}, Spec: made.Spec}
	g.Expect(w.workload.Create(t.Context(), theirs)).To(Succeed())
	w.once()
	g.Expect(w.dnsBudget()).To(BeNil())
	w.reconcile()
	g.Expect(w.dnsBudget()).To(BeNil(), "it stays away beside another one")
	g.Expect(w.workload.Delete(t.Context(), theirs)).To(Succeed())
	w.once()
	g.Expect(w.dnsBudget()).NotTo(BeNil())

	g.Expect(w.mgmt.Delete(t.Context(), w.plane())).To(Succeed())
	g.Expect(w.workload.Delete(t.Context(), w.dnsBudget())).To(Succeed())
	w.once()
	g.Expect(w.dnsBudget()).To(BeNil(), "nothing is made in a cluster that goes")
}

// A cluster that takes no budget gets its Machines all the same: an event has the refusal, and the next attempt is a
// while later.
func TestABudgetThatIsRefusedHoldsNothingUp(t *testing.T) {
	w := newWorld(t, 1)
	g := w.g
	initialized(t, w)
	g.Expect(w.workload.Delete(t.Context(), w.dnsBudget())).To(Succeed())
	refused := 0
	w.r.ClusterCache = clustercache.NewFakeClusterCache(interceptor.NewClient(w.workload.(client.WithWatch), interceptor.Funcs{
		Create: func(ctx context.Context, inner client.WithWatch, object client.Object, options ...client.CreateOption) error {
			if _, budget := object.(*policyv1.PodDisruptionBudget); budget {
				refused++
				return errors.New("a webhook says no")
			}
			return inner.Create(ctx, object, options...)
		}}), client.ObjectKey{Namespace: namespace, Name: "c"}, "quoincontrolplane-nodes")
	w.edit(func(p *controlplanev1.QuoinControlPlane) { p.Spec.Replicas = ptr.To[int32](3) })
	w.reconcile()
	g.Expect(w.machines()).To(HaveLen(2), "the next Machine is made")
	g.Expect(refused).To(Equal(1))
	var said []string
	for recorded := w.r.Recorder.(*events.FakeRecorder).Events; len(recorded) > 0; {
		said = append(said, <-recorded)
	}
	g.Expect(said).To(ContainElement(And(HavePrefix("Warning DNSBudget"), ContainSubstring("a webhook says no"))))
}
