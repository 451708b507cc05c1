// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package history

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
)

// An attempt that failed is made again later and later, and one that succeeded is forgotten, as is a Machine that is
// gone.
func TestFailedAttemptsAreMadeLaterEachTime(t *testing.T) {
	g := NewWithT(t)
	c := &Backoff{}
	start := time.Now()
	g.Expect(c.Due("p", "m", start)).To(BeTrue())
	at, pause := start, time.Duration(0)
	for range 10 {
		c.Note("p", "m", at, false)
		pause = c.failed["p"]["m"].pause
		g.Expect(c.Due("p", "m", at.Add(pause-time.Second))).To(BeFalse())
		g.Expect(c.Due("p", "m", at.Add(pause))).To(BeTrue())
		at = at.Add(pause)
	}
	g.Expect(pause).To(Equal(longest))
	g.Expect(c.Due("p", "other", at)).To(BeTrue())
	g.Expect(c.Due("other", "m", at)).To(BeTrue())
	c.Note("p", "m", at, true)
	g.Expect(c.Due("p", "m", at)).To(BeTrue())
	c.Note("p", "m", at, false)
	c.Keep("p", map[types.UID]bool{"other": true})
	g.Expect(c.failed).To(BeEmpty())
}

// Nothing is left of a control plane that is forgotten, and the others keep what is theirs.
func TestForgetDropsOneControlPlane(t *testing.T) {
	g := NewWithT(t)
	h, now := &History{}, time.Now()
	for _, plane := range []types.UID{"gone", "stays"} {
		h.Unhealthy.Note(plane, now, []Standstill{{Member: 1}})
		h.Undrained.Note(plane, now, []string{"m"})
		h.Expiry.Note(plane, "m", now, false)
		h.PreCreation.Note(plane, "m", now, false)
		h.Applied.Set(Applied{ControlPlane: plane, Object: "m", Manager: "quoin"}, 7)
		g.Expect(h.Events.New(plane, "event")).To(BeTrue())
	}
	h.Forget("gone")
	g.Expect([]any{h.Unhealthy.since, h.Undrained.since, h.Expiry.failed, h.PreCreation.failed, h.Applied.digests,
		h.Events.last}).
		To(HaveEach(HaveLen(1)))
	g.Expect(h.Applied.Is(Applied{ControlPlane: "stays", Object: "m", Manager: "quoin"}, 7)).To(BeTrue())
	g.Expect(h.Events.New("stays", "event")).To(BeFalse())
	g.Expect(h.Expiry.Due("stays", "m", now)).To(BeFalse())
}
