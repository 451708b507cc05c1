// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package objectpatch

import (
	"context"
	"errors"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/clienttest"
)

const finalizer = "quoin.test/finalizer"

// world has one QuoinCluster, and notes each request that changes it.
type world struct {
	*WithT
	t        *testing.T
	client   client.Client
	requests []string
	// refuse is what patches of the status end with.
	refuse error
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{WithT: NewWithT(t), t: t}
	scheme := clienttest.Scheme(infrav1.AddToScheme)
	stored := &infrav1.QuoinCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "c",
		Finalizers: []string{finalizer}}}
	w.client = clienttest.Unmanaged(scheme).WithObjects(stored).WithStatusSubresource(stored).
		WithInterceptorFuncs(interceptor.Funcs{
			Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch,
				options ...client.PatchOption) error {
				w.requests = append(w.requests, "object")
				return c.Patch(ctx, o, p, options...)
			},
			SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch,
				options ...client.SubResourcePatchOption) error {
				w.requests = append(w.requests, sub)
				if w.refuse != nil {
					return w.refuse
				}
				return c.SubResource(sub).Patch(ctx, o, p, options...)
			},
		}).Build()
	return w
}

func (w *world) read() *infrav1.QuoinCluster {
	cluster := &infrav1.QuoinCluster{}
	w.Expect(w.client.Get(w.t.Context(), client.ObjectKey{Namespace: "n", Name: "c"}, cluster)).To(Succeed())
	return cluster
}

func (w *world) helper(cluster *infrav1.QuoinCluster) *Helper {
	helper, err := New(cluster, w.client)
	w.Expect(err).NotTo(HaveOccurred())
	return helper
}

func condition(kind, reason string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: reason}
}

func TestAStatusIsWrittenInOneRequestWithItsConditions(t *testing.T) {
	w := newWorld(t)
	cluster := w.read()
	helper := w.helper(cluster)
	conditions.Set(cluster, condition("Ready", "Fine"))
	cluster.Status.Initialization.Provisioned = new(bool)
	w.Expect(helper.Patch(w.t.Context(), cluster, "Ready")).To(Succeed())
	w.Expect(w.requests).To(Equal([]string{"status"}))
	stored := w.read()
	w.Expect(conditions.GetReason(stored, "Ready")).To(Equal("Fine"))
	w.Expect(stored.Status.Initialization.Provisioned).NotTo(BeNil())
}

func TestTheRestIsWrittenInOneRequestMore(t *testing.T) {
	w := newWorld(t)
	cluster := w.read()
	helper := w.helper(cluster)
	conditions.Set(cluster, condition("Ready", "Fine"))
	cluster.Spec.ControlPlaneEndpoint.Host = "192.0.2.1"
	cluster.Labels = map[string]string{"a": "b"}
	w.Expect(helper.Patch(w.t.Context(), cluster, "Ready")).To(Succeed())
	w.Expect(w.requests).To(Equal([]string{"status", "object"}))
	stored := w.read()
	w.Expect(stored.Spec.ControlPlaneEndpoint.Host).To(Equal("192.0.2.1"))
	w.Expect(stored.Labels).To(HaveKeyWithValue("a", "b"))
	w.Expect(conditions.GetReason(stored, "Ready")).To(Equal("Fine"))
}

func TestWhatDidNotChangeIsNotWritten(t *testing.T) {
	w := newWorld(t)
	cluster := w.read()
	w.Expect(w.helper(cluster).Patch(w.t.Context(), cluster, "Ready")).To(Succeed())
	w.Expect(w.requests).To(BeEmpty())
}

func TestAConditionThatSomebodyElseWroteMeanwhileStays(t *testing.T) {
	w := newWorld(t)
	cluster := w.read()
	helper := w.helper(cluster)
	other := w.read()
	theirs := w.helper(other)
	conditions.Set(other, condition("Other", "Theirs"))
	conditions.Set(other, condition("Ready", "Theirs"))
	w.Expect(theirs.Patch(w.t.Context(), other, "Other", "Ready")).To(Succeed())

	conditions.Set(cluster, condition("Ready", "Ours"))
	cluster.Status.Initialization.Provisioned = new(bool)
	w.Expect(helper.Patch(w.t.Context(), cluster, "Ready")).To(Succeed())
	stored := w.read()
	w.Expect(conditions.GetReason(stored, "Other")).To(Equal("Theirs"))
	w.Expect(conditions.GetReason(stored, "Ready")).To(Equal("Ours"), "a condition that is ours is as we say")
	w.Expect(stored.Status.Initialization.Provisioned).NotTo(BeNil())
}

func TestTheStatusOfAnObjectThatGoesIsNotWritten(t *testing.T) {
	w := newWorld(t)
	w.Expect(w.client.Delete(w.t.Context(), w.read())).To(Succeed())
	cluster := w.read()
	helper := w.helper(cluster)
	conditions.Set(cluster, condition("Ready", "Gone"))
	cluster.Finalizers = nil
	w.Expect(helper.Patch(w.t.Context(), cluster, "Ready")).To(Succeed())
	w.Expect(w.requests).To(Equal([]string{"object"}))
	w.Expect(client.IgnoreNotFound(w.client.Get(w.t.Context(), client.ObjectKey{Namespace: "n", Name: "c"}, cluster))).
		To(Succeed())
	w.Expect(w.client.Get(w.t.Context(), client.ObjectKey{Namespace: "n", Name: "c"}, cluster)).NotTo(Succeed())
}

// Else an object in deletion would keep our finalizer for as long as its status cannot be written.
func TestAStatusThatIsRefusedDoesNotKeepTheRestFromBeingWritten(t *testing.T) {
	w := newWorld(t)
	w.refuse = errors.New("the status is refused")
	cluster := w.read()
	helper := w.helper(cluster)
	conditions.Set(cluster, condition("Ready", "Fine"))
	cluster.Finalizers = nil
	w.Expect(helper.Patch(w.t.Context(), cluster, "Ready")).To(MatchError(ContainSubstring("refused")))
	w.Expect(w.read().Finalizers).To(BeEmpty())
}
