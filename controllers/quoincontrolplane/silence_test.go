// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoincontrolplane

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/quorum"
)

// Silence lasts from the first reading that missed a member to the first that found it healthy.
func TestSilenceIsCountedFromTheFirstMissedReading(t *testing.T) {
	g := NewWithT(t)
	cache := &silenceCache{}
	start := time.Now()
	silent := func(at time.Duration, known, healthy bool) time.Duration {
		m := &quorum.Membership{Known: known, Members: []quorum.Member{{ID: 7, Healthy: healthy}}}
		cache.note("uid", m, start.Add(at))
		return m.Members[0].Silent
	}
	g.Expect(silent(0, true, false)).To(BeZero())
	g.Expect(silent(20*time.Second, true, false)).To(Equal(20 * time.Second))
	silent(30*time.Second, false, false)
	g.Expect(silent(40*time.Second, true, false)).To(Equal(40 * time.Second))
	g.Expect(silent(50*time.Second, true, true)).To(BeZero())
	g.Expect(silent(60*time.Second, true, false)).To(BeZero())
	cache.forget("uid")
	g.Expect(cache.since).To(BeEmpty())
}
