// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"fmt"
	"net/http"
	"os"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// atOnce takes the first answer: of a budget that is not counted yet an API server says to come again in ten seconds,
// which a client would do ten times.
type atOnce struct{ http.RoundTripper }

func (a atOnce) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := a.RoundTripper.RoundTrip(request)
	if err == nil {
		response.Header.Del("Retry-After")
	}
	return response, err
}

// realWorkload is a real API server, without what would schedule pods or count budgets.
func realWorkload(t *testing.T) client.Client {
	t.Helper()
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		t.Skip("KUBEBUILDER_ASSETS is not set: see hack/bundle/envtest-assets.sh")
	}
	g, environment := NewWithT(t), &envtest.Environment{ControlPlaneStartTimeout: 5 * time.Minute}
	config, err := environment.Start()
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { g.Expect(environment.Stop()).To(Succeed()) })
	config.Wrap(func(wrapped http.RoundTripper) http.RoundTripper { return atOnce{wrapped} })
	workload, err := client.New(config, client.Options{})
	g.Expect(err).NotTo(HaveOccurred())
	return workload
}

// What Disruption says of a pod's budgets is what the API server says when it is asked to evict it.
func TestTheAPIServerRefusesWhatIsFound(t *testing.T) {
	workload := realWorkload(t)
	all := func(b *policyv1.PodDisruptionBudget) { b.Spec.Selector = &metav1.LabelSelector{} }
	failed := func(b *policyv1.PodDisruptionBudget) {
		b.Status.Conditions = []metav1.Condition{{Type: policyv1.DisruptionAllowedCondition, Status: metav1.ConditionFalse,
			Reason: policyv1.SyncFailedReason, Message: "found no controllers", LastTransitionTime: metav1.Time{Time: now}}}
	}
	unlabeled := func(pod *corev1.Pod) { pod.Labels = nil }
	type budgets = []*policyv1.PodDisruptionBudget
	edited := func(b *policyv1.PodDisruptionBudget, changes ...func(*policyv1.PodDisruptionBudget)) budgets {
		b.Status.ObservedGeneration = 1
		for _, change := range changes {
			change(b)
		}
		return budgets{b}
	}
	for i, c := range []struct {
		name    string
		budgets budgets
		pod     []func(*corev1.Pod)
		refused bool
	}{
		{name: "none"},
		{name: "one may go", budgets: edited(budget("web", 1, 3, 2, 3))},
		{name: "none may go", budgets: edited(budget("web", 0, 3, 3, 3)), refused: true},
		{name: "too few are healthy", budgets: edited(budget("web", 0, 2, 2, 3)), refused: true},
		{name: "counts nobody", budgets: edited(budget("web", 0, 0, 0, 0)), refused: true},
		{name: "cannot be counted", budgets: edited(budget("web", 0, 0, 0, 0), failed), refused: true},
		{name: "is not observed", refused: true, budgets: edited(budget("web", 1, 3, 2, 3),
			func(b *policyv1.PodDisruptionBudget) { b.Status.ObservedGeneration = 0 })},
		{name: "selects nothing", budgets: edited(budget("web", 0, 3, 3, 3),
			func(b *policyv1.PodDisruptionBudget) { b.Spec.Selector = nil })},
		{name: "selects all", budgets: edited(budget("web", 0, 3, 3, 3), all), refused: true},
		{name: "selects all, a pod without labels", budgets: edited(budget("web", 0, 3, 3, 3), all),
			pod: []func(*corev1.Pod){unlabeled}, refused: true},
		{name: "two", budgets: append(edited(budget("web", 1, 3, 2, 3)), edited(budget("every", 1, 3, 2, 3), all)...),
			refused: true},
		{name: "pending", budgets: edited(budget("web", 0, 3, 3, 3)), pod: []func(*corev1.Pod){inPhase(corev1.PodPending)}},
		{name: "failed", budgets: edited(budget("web", 0, 3, 3, 3)), pod: []func(*corev1.Pod){inPhase(corev1.PodFailed)}},
		{name: "succeeded", budgets: edited(budget("web", 0, 3, 3, 3)), pod: []func(*corev1.Pod){inPhase(corev1.PodSucceeded)}},
		{name: "not ready, and enough are", budgets: edited(budget("web", 0, 2, 2, 2)), pod: []func(*corev1.Pod){unready}},
		{name: "not ready, and none has to be", budgets: edited(budget("web", 0, 0, 0, 2)), pod: []func(*corev1.Pod){unready},
			refused: true},
		{name: "not ready, and too few are", budgets: edited(budget("web", 0, 1, 2, 3)), pod: []func(*corev1.Pod){unready},
			refused: true},
		{name: "not ready, and may go then", pod: []func(*corev1.Pod){unready}, budgets: edited(budget("web", 0, 1, 2, 3),
			func(b *policyv1.PodDisruptionBudget) {
				b.Spec.UnhealthyPodEvictionPolicy = ptr.To(policyv1.AlwaysAllow)
			})},
	} {
		t.Run(c.name, func(t *testing.T) {
			g, on := NewWithT(t), fmt.Sprintf("w%d", i)
			pod := web("a", on, c.pod...)
			pod.Namespace, pod.Spec.Containers = on, []corev1.Container{{Name: "c", Image: "quoin.test/c"}}
			g.Expect(workload.Create(t.Context(),
				&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: on}})).To(Succeed())
			for _, b := range c.budgets {
				status := b.Status
				b.Namespace = on
				g.Expect(workload.Create(t.Context(), b)).To(Succeed())
				b.Status = status
				g.Expect(workload.Status().Update(t.Context(), b)).To(Succeed())
			}
			status := pod.Status
			g.Expect(workload.Create(t.Context(), pod)).To(Succeed())
			pod.Status = status
			g.Expect(workload.Status().Update(t.Context(), pod)).To(Succeed())

			s := subject(t, []client.Object{machine(on, "v1.35.4", false)}, nil)
			s.Workload = once(workload)
			_, findings, err := lookAtDisruption(t.Context(), s)
			g.Expect(err).NotTo(HaveOccurred())
			err = workload.SubResource("eviction").Create(t.Context(), pod,
				&policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: on, Name: pod.Name}}, client.DryRunAll)
			g.Expect(err != nil).To(Equal(c.refused), "%v", err)
			g.Expect(len(findings) > 0).To(Equal(c.refused), "%v", says(findings))
		})
	}
}
