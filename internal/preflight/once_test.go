// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// counting counts the lists that are made, and serves at most so many items at a time.
type counting struct {
	client.Reader
	mu    sync.Mutex
	lists map[string]int
	most  int
}

func (c *counting) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	asked := (&client.ListOptions{}).ApplyOptions(options)
	c.mu.Lock()
	c.lists[fmt.Sprintf("%T of %q %v %s", list, asked.Namespace, asked.LabelSelector, asked.Continue)]++
	c.mu.Unlock()
	if err := c.Reader.List(ctx, list, options...); err != nil {
		return err
	}
	if pods, ok := list.(*corev1.PodList); ok && c.most > 0 {
		for i := range pods.Items {
			pods.Items[i].ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubelet"}}
		}
		from := len(asked.Continue)
		all := pods.Items
		pods.Items = all[from:min(from+c.most, len(all))]
		if from+c.most < len(all) {
			pods.Continue = fmt.Sprintf("%0*d", from+c.most, 0)
		}
	}
	return nil
}

// Proves: S0-48
//
// All checks together read each thing once.
func TestChecksShareWhatTheyRead(t *testing.T) {
	g := NewWithT(t)
	s := subject(t, []client.Object{machine("cp", "v1.35.4", true), machine("w", "v1.35.4", false)},
		[]client.Object{shop(), node("cp"), node("w"), web("a", "w"), web("b", "w"), web("c", "w")})
	management := &counting{Reader: s.Management, lists: map[string]int{}}
	workload := &counting{Reader: s.Workload, lists: map[string]int{}, most: 2}
	s.Management, s.Workload = management, workload
	s.Metrics = func(context.Context) ([]byte, error) { return nil, nil }
	results := Run(t.Context(), Checks(), s, nil, clock.RealClock{})
	var names []string
	for _, result := range results {
		names = append(names, result.Name)
		for _, finding := range result.Findings {
			g.Expect(finding.Reason).NotTo(Equal("CheckFailed"), "%s: %s", result.Name, finding.Message)
		}
	}
	g.Expect(names).To(ContainElements("VersionPath", "Network", "Nodes"))
	for _, lists := range []map[string]int{management.lists, workload.lists} {
		g.Expect(lists).NotTo(BeEmpty())
		for list, times := range lists {
			g.Expect(times).To(Equal(1), list)
		}
	}
	g.Expect(workload.lists).To(HaveKey(`*v1.PodList of "" <nil> 00`), "the second page")
}

// What was read has all pages, and its like with other options is another list.
func TestAListHasAllPages(t *testing.T) {
	g := NewWithT(t)
	pods := []client.Object{web("a", "w"), web("b", "w"), web("c", "w", labeled("app", "other"))}
	reader := once(&counting{Reader: subject(t, nil, pods).Workload, lists: map[string]int{}, most: 2})
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			all, some, none := &corev1.PodList{}, &corev1.PodList{}, &corev1.PodList{}
			g.Expect(reader.List(t.Context(), all)).To(Succeed())
			g.Expect(reader.List(t.Context(), some, client.MatchingLabels{"app": "web"})).To(Succeed())
			g.Expect(reader.List(t.Context(), none, client.InNamespace("elsewhere"))).To(Succeed())
			g.Expect(all.Items).To(HaveLen(3))
			g.Expect(all.Items[0].ManagedFields).To(BeEmpty())
			g.Expect(some.Items).To(HaveLen(2))
			g.Expect(none.Items).To(BeEmpty())
		})
	}
	group.Wait()
}

func TestAListThatFailsFailsForAll(t *testing.T) {
	g := NewWithT(t)
	refused := errors.New("forbidden")
	reader := once(refusing{refused})
	for range 2 {
		g.Expect(reader.List(t.Context(), &clusterv1.MachineList{})).To(MatchError(refused))
	}
}

type refusing struct{ err error }

func (r refusing) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return r.err
}

func (r refusing) List(context.Context, client.ObjectList, ...client.ListOption) error { return r.err }
