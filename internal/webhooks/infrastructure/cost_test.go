// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package infrastructure

import (
	"fmt"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/cachetest"
)

// ofHosts is a webhook beside that many hosts.
func ofHosts(tb testing.TB, hosts int) (*HostWebhook, *cachetest.Client) {
	tb.Helper()
	c := cachetest.New(tb)
	for i := range hosts {
		c.Put(host(fmt.Sprintf("h%d", i), at(fmt.Sprintf("198.51.%d.%d", i/250, i%250))))
	}
	return &HostWebhook{Client: c}, c
}

func TestAdmissionOfAHostListsNoFleet(t *testing.T) {
	g := NewWithT(t)
	webhook, c := ofHosts(t, 1000)
	_, err := webhook.ValidateCreate(t.Context(), host("new"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(c.Listed).To(BeZero())
	_, err = webhook.ValidateCreate(t.Context(), host("new", at("198.51.1.1")))
	g.Expect(err).To(MatchError(ContainSubstring("hosts/h251 already describes")))
	g.Expect(c.Listed).To(Equal(1))
}

// BenchmarkHostAdmission is the admission of one new host beside 50 and 5,000.
func BenchmarkHostAdmission(b *testing.B) {
	for _, hosts := range []int{50, 5000} {
		b.Run(fmt.Sprintf("hosts=%d", hosts), func(b *testing.B) {
			webhook, c := ofHosts(b, hosts)
			added := host("new")
			for b.Loop() {
				if _, err := webhook.ValidateCreate(b.Context(), added); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(c.Listed)/float64(b.N), "listed/op")
		})
	}
}
