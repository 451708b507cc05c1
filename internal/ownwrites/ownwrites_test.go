// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package ownwrites

import (
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

func TestACacheIsBehindUntilItShowsTheLastWrite(t *testing.T) {
	for name, write := range map[string]func(*GomegaWithT, *Client, *corev1.Node){
		"update": func(g *GomegaWithT, c *Client, node *corev1.Node) {
			node.Labels = map[string]string{"a": "b"}
			g.Expect(c.Update(t.Context(), node)).To(Succeed())
		},
		"patch": func(g *GomegaWithT, c *Client, node *corev1.Node) {
			before := node.DeepCopy()
			node.Labels = map[string]string{"a": "b"}
			g.Expect(c.Patch(t.Context(), node, client.MergeFrom(before))).To(Succeed())
		},
		"status update": func(g *GomegaWithT, c *Client, node *corev1.Node) {
			node.Status.Phase = corev1.NodeRunning
			g.Expect(c.Status().Update(t.Context(), node)).To(Succeed())
		},
		"status patch": func(g *GomegaWithT, c *Client, node *corev1.Node) {
			before := node.DeepCopy()
			node.Status.Phase = corev1.NodeRunning
			g.Expect(c.Status().Patch(t.Context(), node, client.MergeFrom(before))).To(Succeed())
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "1"}}
			c := Track(fake.NewClientBuilder().WithObjects(node).WithStatusSubresource(node).Build())
			cached := &corev1.Node{}
			g.Expect(c.Get(t.Context(), client.ObjectKeyFromObject(node), cached)).To(Succeed())
			g.Expect(c.Behind(cached)).To(BeFalse(), "nothing was written")

			written := cached.DeepCopy()
			write(g, c, written)
			g.Expect(c.Behind(cached)).To(BeTrue())
			g.Expect(c.Behind(written)).To(BeFalse(), "the cache shows the write")
			g.Expect(c.writes).To(BeEmpty(), "and it need not be remembered")
		})
	}
}

func TestACacheIsNotWaitedForWithoutEnd(t *testing.T) {
	g := NewWithT(t)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "1"}}
	c := Track(fake.NewClientBuilder().WithObjects(node).Build())
	now := time.Now()
	c.now = func() time.Time { return now }
	cached := &corev1.Node{}
	g.Expect(c.Get(t.Context(), client.ObjectKeyFromObject(node), cached)).To(Succeed())
	written := cached.DeepCopy()
	written.Labels = map[string]string{"a": "b"}
	g.Expect(c.Update(t.Context(), written)).To(Succeed())
	g.Expect(c.Behind(cached)).To(BeTrue())
	now = now.Add(Timeout)
	g.Expect(c.Behind(cached)).To(BeFalse(), "resource versions may have begun anew")
}

func TestWhatIsGoneIsForgotten(t *testing.T) {
	g := NewWithT(t)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "1", Finalizers: []string{"a/b"}}}
	c := Track(fake.NewClientBuilder().WithObjects(node).Build())
	g.Expect(c.Delete(t.Context(), node)).To(Succeed())
	g.Expect(c.Get(t.Context(), client.ObjectKeyFromObject(node), node)).To(Succeed())
	node.Finalizers = nil
	g.Expect(c.Update(t.Context(), node)).To(Succeed())
	g.Expect(c.writes).To(BeEmpty(), "the write that took the last finalizer off was the object's end")
}

// What others end, and what a last write came before, nobody asks for again.
func TestNothingIsRememberedOfObjectsThatAreGone(t *testing.T) {
	g := NewWithT(t)
	c := Track(fake.NewClientBuilder().Build())
	now := time.Now()
	c.now = func() time.Time { return now }
	write := func(i int) *corev1.Node {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(i), UID: types.UID(fmt.Sprint(i)),
			Finalizers: []string{"a/b"}}}
		g.Expect(c.Create(t.Context(), node)).To(Succeed())
		node.Labels = map[string]string{"a": "b"}
		g.Expect(c.Update(t.Context(), node)).To(Succeed())
		return node
	}
	ended := write(0)
	g.Expect(c.Delete(t.Context(), ended)).To(Succeed())
	g.Expect(c.Get(t.Context(), client.ObjectKeyFromObject(ended), ended)).To(Succeed())
	ended.Finalizers = nil
	g.Expect(c.Update(t.Context(), ended)).To(Succeed())
	g.Expect(c.writes).To(BeEmpty(), "it was written to before its end")

	most := 0
	for i := range 200 {
		write(i + 1)
		most = max(most, len(c.writes))
		now = now.Add(Timeout / 10)
	}
	g.Expect(most).To(BeNumerically("<=", 20))
	now = now.Add(Timeout)
	write(2000)
	g.Expect(c.writes).To(HaveLen(1))
}
