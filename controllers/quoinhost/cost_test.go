// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinhost

import (
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/cachetest"
)

// silentBeside is a silent host of a rack of 20 among that many hosts.
func silentBeside(tb testing.TB, hosts int) (*reconciliation, *cachetest.Client) {
	tb.Helper()
	c := cachetest.New(tb)
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	one := &reconciliation{controller: &Reconciler{Client: c, Timings: DefaultTimings()}, now: now}
	for i := range hosts {
		h := newHost()
		h.Name, h.Spec.FailureDomain = fmt.Sprintf("h%d", i), fmt.Sprintf("rack-%d", i/20)
		h.Status.State = infrav1.HostStateProvisioned
		if i == 0 {
			h.Status.UnreachableSince = &metav1.Time{Time: now}
			one.host = h
		}
		c.Put(h)
	}
	return one, c
}

func TestASilentHostIsJudgedByItsRackAndNotByTheFleet(t *testing.T) {
	g := NewWithT(t)
	one, c := silentBeside(t, 1000)
	verdict, err := one.domain(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(verdict.Silent).To(Equal(1))
	g.Expect(verdict.Hosts).To(Equal(20))
	g.Expect(c.Listed).To(Equal(20))
}

// BenchmarkSilentHost is one look at a silent host whose claim must end, in racks of 20, among 50 and 5,000 hosts.
func BenchmarkSilentHost(b *testing.B) {
	for _, hosts := range []int{50, 5000} {
		b.Run(fmt.Sprintf("hosts=%d", hosts), func(b *testing.B) {
			one, c := silentBeside(b, hosts)
			for b.Loop() {
				if _, err := one.domain(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(c.Listed)/float64(b.N), "listed/op")
		})
	}
}
