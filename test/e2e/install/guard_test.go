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

	"github.com/quoin-dev/cluster-api-provider-quoin/test/e2e/lab"
)

// What the API server answers to who would delete the only control-plane Machine.
const (
	judged = "judged"
	silent = "refused, for no webhook answers"
	open   = "not judged, for no webhook is there"
)

// guard asks, as a dry run and several times a second, for the deletion of the control plane's only Machine.
type guard struct {
	site    *site
	machine clusterv1.Machine
	stop    context.CancelFunc
	done    chan struct{}
	longest map[string]time.Duration
}

// watchGuard begins to ask. What it returns ends that, and holds what docs/install.md says of the time meanwhile against
// what was seen.
func (s *site) watchGuard(ctx context.Context, g Gomega) (end func()) {
	cluster, err := s.lab.Open(ctx, lab.ClusterSpec{Name: "first"})
	g.Expect(err).NotTo(HaveOccurred())
	machines, err := cluster.Machines(ctx)
	g.Expect(err).NotTo(HaveOccurred())
	w := &guard{site: s, done: make(chan struct{}), longest: map[string]time.Duration{}}
	for _, machine := range machines {
		if _, controlPlane := machine.Labels[clusterv1.MachineControlPlaneLabel]; controlPlane {
			w.machine = machine
		}
	}
	g.Expect(w.machine.Name).NotTo(BeEmpty())
	g.Expect(w.ask(ctx)).To(Equal(judged))
	asking, cancel := context.WithCancel(ctx)
	w.stop = cancel
	go w.watch(asking)
	return func() {
		g.Eventually(w.ask).WithContext(ctx).WithTimeout(2 * time.Minute).WithPolling(time.Second).Should(Equal(judged))
		w.stop()
		<-w.done
		s.lab.Printf("   deletions of a control-plane Machine: %s for %s at most, %s for %s at most", silent, w.longest[silent],
			open, w.longest[open])
		g.Expect(w.longest[judged]).NotTo(BeZero())
		g.Expect(w.longest[open]).To(BeNumerically("<", time.Minute))
		machines, err := cluster.Machines(ctx)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(machines).To(ContainElement(And(HaveField("UID", w.machine.UID), HaveField("DeletionTimestamp", BeNil()))))
	}
}

func (w *guard) watch(ctx context.Context) {
	defer close(w.done)
	var said string
	var since time.Time
	for ctx.Err() == nil {
		says := w.ask(ctx)
		now := time.Now()
		if says != said {
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
	err := w.site.lab.Management.Delete(ctx, w.machine.DeepCopy(), client.DryRunAll)
	switch {
	case err == nil:
		return open
	case strings.Contains(err.Error(), "denied the request"):
		return judged
	}
	return silent
}
