//go:build e2e

// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"strings"
	"time"

	. "github.com/onsi/gomega"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
)

// What the API server answers to who would delete a protected Cluster.
const (
	judged = "refused by its webhook"
	silent = "refused, for no webhook answers"
	open   = "not judged, for no webhook is configured"
)

// guard asks, as a dry run and several times a second, for the deletion of the first Cluster, which is protected.
type guard struct {
	site    *site
	cluster *clusterv1.Cluster
	longest map[string]time.Duration
}

// watchGuard begins to ask. What it returns ends that, and holds what docs/install.md says of the time meanwhile against
// what was seen: nobody judges for a second or two, and what nobody answers is refused.
func (s *site) watchGuard(ctx context.Context, g Gomega) (end func()) {
	w := &guard{site: s, cluster: &clusterv1.Cluster{}, longest: map[string]time.Duration{}}
	g.Expect(s.lab.Management.Get(ctx, client.ObjectKey{Namespace: "default", Name: "first"}, w.cluster)).To(Succeed())
	w.protect(ctx, g, true)
	g.Expect(w.ask(ctx)).To(Equal(judged))
	asking, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.watch(asking)
	}()
	return func() {
		g.Eventually(w.ask).WithContext(ctx).WithTimeout(2 * time.Minute).WithPolling(time.Second).Should(Equal(judged))
		cancel()
		<-done
		s.lab.Printf("   deletion of a protected Cluster: %s for %s at most, %s for %s at most",
			silent, w.longest[silent].Round(time.Millisecond), open, w.longest[open].Round(time.Millisecond))
		g.Expect(w.longest[judged]).NotTo(BeZero())
		// As long as clusterctl takes from one object of the provider to the next, on a machine that has more to do.
		g.Expect(w.longest[open]).To(BeNumerically("<", 20*time.Second))
		w.protect(ctx, g, false)
	}
}

// protect the Cluster, or do no longer.
func (w *guard) protect(ctx context.Context, g Gomega, protected bool) {
	before := client.MergeFrom(w.cluster.DeepCopy())
	if delete(w.cluster.Annotations, controlplanev1.ProtectAnnotation); protected {
		if w.cluster.Annotations == nil {
			w.cluster.Annotations = map[string]string{}
		}
		w.cluster.Annotations[controlplanev1.ProtectAnnotation] = ""
	}
	g.Expect(w.site.lab.Management.Patch(ctx, w.cluster, before)).To(Succeed())
}

func (w *guard) watch(ctx context.Context) {
	said, since := "", time.Now()
	for {
		says := w.ask(ctx)
		if ctx.Err() != nil {
			return
		}
		now := time.Now()
		if says != said {
			w.longest[said] = max(w.longest[said], now.Sub(since))
			said, since = says, now
		}
		w.longest[said] = max(w.longest[said], now.Sub(since))
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (w *guard) ask(ctx context.Context) string {
	err := w.site.lab.Management.Delete(ctx, w.cluster.DeepCopy(), client.DryRunAll)
	switch {
	case err == nil:
		return open
	case strings.Contains(err.Error(), "is protected by annotation"):
		return judged
	}
	return silent
}
