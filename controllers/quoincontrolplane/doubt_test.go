// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoincontrolplane

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
)

// Cluster API tells where it has come to a moment before it tells that it has drained: nothing is evicted for that.
func TestASkippedDrainIsBelievedWhenItStaysSo(t *testing.T) {
	g := NewWithT(t)
	var doubts doubtCache
	const plane = types.UID("plane")
	now := time.Now()
	look := func(after time.Duration, undrained bool) (controlplane.Machine, bool) {
		machines := []controlplane.Machine{{Name: "other", AtTermination: true}, {Name: "m", AtTermination: true, Undrained: undrained}}
		doubtful := doubts.settle(plane, machines, now.Add(after), time.Second)
		g.Expect(machines[0].AtTermination).To(BeTrue())
		return machines[1], doubtful
	}
	seen, doubtful := look(0, true)
	g.Expect(doubtful).To(BeTrue())
	g.Expect(seen.AtTermination).To(BeFalse(), "else its member would go without a drain")
	g.Expect(seen.Undrained).To(BeFalse())

	seen, doubtful = look(100*time.Millisecond, false)
	g.Expect(doubtful).To(BeFalse())
	g.Expect(seen.AtTermination).To(BeTrue(), "it was drained after all")

	_, doubtful = look(2*time.Second, true)
	g.Expect(doubtful).To(BeTrue(), "what was seen before counts no more")
	seen, doubtful = look(3*time.Second, true)
	g.Expect(doubtful).To(BeFalse())
	g.Expect(seen.Undrained && seen.AtTermination).To(BeTrue(), "now it is believed")
	seen, _ = look(4*time.Second, true)
	g.Expect(seen.Undrained).To(BeTrue())

	doubts.settle(plane, nil, now, time.Second)
	g.Expect(doubts.since).To(BeEmpty())
}
