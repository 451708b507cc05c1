// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package history

import (
	"fmt"
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
	c.Note("q", "m", start, false)
	c.Note("q", "m", start, false)
	g.Expect(c.failed["q"]["m"].pause).To(Equal(2 * shortest))
	c.Keep("q", nil)
	g.Expect(pause).To(Equal(longest))
	g.Expect(c.Due("p", "other", at)).To(BeTrue())
	g.Expect(c.Due("other", "m", at)).To(BeTrue())
	c.Note("p", "m", at, true)
	g.Expect(c.Due("p", "m", start)).To(BeTrue())
	c.Note("p", "m", at, false)
	c.Keep("p", map[types.UID]bool{"other": true})
	g.Expect(c.failed).To(BeEmpty())
}

// Nothing is left of a control plane that is forgotten, and the others keep what is theirs.
func TestForgetDropsOneControlPlane(t *testing.T) {
	g := NewWithT(t)
	h, now := &History{}, time.Now()
	for _, plane := range []types.UID{"gone", "stays"} {
		h.Remember(plane, Past{Undrained: Since[string]{}.Note(now, []string{"m"})})
		h.Expiry.Note(plane, "m", now, false)
		h.DNSBudget.Note(plane, "", now, false)
		h.PreCreation.Note(plane, "m", now, false)
		h.Applied.Set(Applied{ControlPlane: plane, Object: "m", Manager: "quoin"}, 7)
		g.Expect(h.Events.New(plane, "event")).To(BeTrue())
	}
	h.Forget("gone")
	g.Expect([]any{h.past, h.Expiry.failed, h.DNSBudget.failed, h.PreCreation.failed, h.Applied.digests, h.Events.last}).
		To(HaveEach(HaveLen(1)))
	g.Expect(h.Applied.Is(Applied{ControlPlane: "stays", Object: "m", Manager: "quoin"}, 7)).To(BeTrue())
	g.Expect(h.Events.New("stays", "event")).To(BeFalse())
	g.Expect(h.Expiry.Due("stays", "m", now)).To(BeFalse())
	g.Expect(h.Past("stays").Undrained.Parts()).To(ConsistOf("m"))
}

// What is so of a part goes on from one observation to the next that finds it so. It begins anew after one that does
// not, after a gap in which nobody looked, and when the clock was set back.
func TestWhatIsSoGoesOnWhileItIsSeen(t *testing.T) {
	g := NewWithT(t)
	c, start := Since[string]{}, time.Now()
	since := func(at time.Duration, parts ...string) map[string]time.Time {
		before := c
		was := before.Parts()
		c = before.Note(start.Add(at), parts)
		g.Expect(before.Parts()).To(ConsistOf(was), "what was known stays as it is")
		first := map[string]time.Time{}
		for _, part := range []string{"a", "b"} {
			if seen, noted := c.Of(part); noted {
				first[part] = seen
			}
		}
		return first
	}
	g.Expect(c.Parts()).To(BeEmpty())
	g.Expect(since(0, "a")).To(Equal(map[string]time.Time{"a": start}))
	g.Expect(since(time.Minute, "a", "b")).To(Equal(map[string]time.Time{"a": start, "b": start.Add(time.Minute)}))
	g.Expect(since(time.Minute, "a", "b")).To(HaveKeyWithValue("a", start), "at the same instant")
	g.Expect(c.Parts()).To(ConsistOf("a", "b"))

	at := 6 * time.Minute
	g.Expect(since(at, "a")).To(Equal(map[string]time.Time{"a": start}), "five minutes are no gap")
	at += 5*time.Minute + 1
	g.Expect(since(at, "a")).To(HaveKeyWithValue("a", start.Add(at)), "more is one")
	at--
	g.Expect(since(at, "a")).To(HaveKeyWithValue("a", start.Add(at)), "the clock was set back")
	g.Expect(since(at + time.Minute)).To(BeEmpty())
	g.Expect(c).To(BeZero(), "nothing is kept of it")
	at += 2 * time.Minute
	g.Expect(since(at, "a")).To(HaveKeyWithValue("a", start.Add(at)))
}

// Of a part of which nobody is sure now what was known stays, and nothing begins by it. It goes on once somebody is
// sure again, unless that took too long, or it was seen to be over.
func TestWhatNobodyIsSureOfStaysForAWhile(t *testing.T) {
	g := NewWithT(t)
	c, start := Since[string]{}, time.Now()
	since := func(at time.Duration, parts []string, unsure ...string) time.Duration {
		c = c.Note(start.Add(at), parts, unsure...)
		first, noted := c.Of("a")
		if !noted {
			return -1
		}
		return first.Sub(start)
	}
	sure := []string{"a"}
	g.Expect(since(0, nil, "a")).To(BeEquivalentTo(-1), "nothing begins")
	g.Expect(c).To(BeZero())
	g.Expect(since(time.Minute, sure)).To(Equal(time.Minute))
	g.Expect(since(2*time.Minute, []string{"b"}, "a")).To(Equal(time.Minute))
	g.Expect(c.Parts()).To(ConsistOf("a", "b"))
	g.Expect(since(5*time.Minute, nil, "a")).To(Equal(time.Minute))
	g.Expect(since(6*time.Minute, sure)).To(Equal(time.Minute), "within five minutes somebody is sure again")
	g.Expect(since(8*time.Minute, nil, "a")).To(Equal(time.Minute))
	g.Expect(since(11*time.Minute, nil, "a")).To(Equal(time.Minute))
	g.Expect(since(11*time.Minute+1, nil, "a")).To(BeEquivalentTo(-1), "it took longer")
	g.Expect(since(12*time.Minute, sure)).To(Equal(12 * time.Minute))
	g.Expect(since(13*time.Minute, nil)).To(BeEquivalentTo(-1), "it is over")
	g.Expect(since(14*time.Minute, nil, "a")).To(BeEquivalentTo(-1))
	g.Expect(since(15*time.Minute, sure)).To(Equal(15 * time.Minute))
	g.Expect(since(14*time.Minute, nil, "a")).To(BeEquivalentTo(-1), "the clock was set back")
}

// What one observation hands to the next is that one's alone: no attempt that is made meanwhile changes what was handed
// out. What it forgets of its Machines is forgotten, and nothing is kept of a control plane with which all is well.
func TestThePastIsAValue(t *testing.T) {
	g := NewWithT(t)
	h, now := &History{}, time.Now()
	h.PreCreation.Note("plane", "m", now, false)
	h.PreCreation.Note("plane", "gone", now, false)
	past := h.Past("plane")
	g.Expect(past.PreCreation).To(HaveLen(2))
	next := Past{Unhealthy: past.Unhealthy.Note(now, []Standstill{{Member: 1}}),
		PreCreation: past.PreCreation.Only(map[types.UID]bool{"m": true, "new": true})}
	g.Expect(past.PreCreation).To(HaveLen(2))

	h.Remember("plane", next)
	g.Expect(h.Past("plane")).To(Equal(next))
	g.Expect(h.Past("other")).To(BeZero())
	g.Expect(h.PreCreation.Due("plane", "gone", now)).To(BeTrue())
	g.Expect(h.PreCreation.Due("plane", "m", now)).To(BeFalse())
	handed := h.Past("plane")
	h.PreCreation.Note("plane", "m", now, true)
	g.Expect(handed.PreCreation.Due("m", now)).To(BeFalse())
	g.Expect(h.Past("plane").PreCreation.Due("m", now)).To(BeTrue())

	next.Unhealthy, next.Undrained = next.Unhealthy.Note(now, nil), Since[string]{}.Note(now, []string{"m"})
	h.Remember("plane", next)
	g.Expect(h.Past("plane").Undrained).To(Equal(next.Undrained))
	next.Unhealthy = next.Unhealthy.Note(now, []Standstill{{Member: 1}})
	h.Remember("plane", next)
	g.Expect(h.Past("plane").Unhealthy).To(Equal(next.Unhealthy), "as many of one kind as of the other")
	ahead := Past{Ahead: Since[int64]{}.Note(now, []int64{now.Unix()})}
	h.Remember("plane", ahead)
	g.Expect(h.Past("plane").Ahead).To(Equal(ahead.Ahead))
	requested := Past{Snapshot: Request{Made: now}}
	h.Remember("plane", requested)
	g.Expect(h.Past("plane").Snapshot).To(Equal(requested.Snapshot))
	lost := Past{NoQuorum: Since[struct{}]{}.Note(now, []struct{}{{}})}
	h.Remember("plane", lost)
	g.Expect(h.Past("plane").NoQuorum).To(Equal(lost.NoQuorum))
	h.Remember("plane", Past{})
	g.Expect(h.past).To(BeEmpty())
}

// What was applied last is known by its digest, and what was never applied by none.
func TestWhatWasAppliedIsKnownByItsDigest(t *testing.T) {
	g := NewWithT(t)
	c, key := &Digests{}, Applied{ControlPlane: "p", Object: "m", Manager: "quoin"}
	g.Expect(c.Is(key, 0)).To(BeFalse())
	c.Set(key, 7)
	g.Expect(c.Is(key, 7)).To(BeTrue())
	g.Expect(c.Is(key, 8)).To(BeFalse())
	other := key
	other.Object = "n"
	c.Set(other, 8)
	g.Expect(c.Is(key, 7) && c.Is(other, 8)).To(BeTrue())
	c.Forget(key)
	g.Expect(c.Is(key, 7)).To(BeFalse())
	g.Expect(c.Is(other, 8)).To(BeTrue())
}

// An event is one when it says something else than the last one of its control plane.
func TestAnEventThatSaysTheSameIsNone(t *testing.T) {
	g := NewWithT(t)
	c := &Deduplicator{}
	g.Expect(c.New("p", "")).To(BeTrue())
	g.Expect(c.New("p", "")).To(BeFalse())
	g.Expect(c.New("q", "event")).To(BeTrue())
	g.Expect(c.New("p", "event")).To(BeTrue())
	g.Expect(c.New("q", "event")).To(BeFalse())
	g.Expect(c.New("p", "")).To(BeTrue())
}

// A memory of which nobody takes anything away does not grow for ever.
func TestAMemoryThatIsFullIsEmptied(t *testing.T) {
	g := NewWithT(t)
	digests, events := &Digests{}, &Deduplicator{}
	for i := range 10000 {
		uid := types.UID(fmt.Sprint(i))
		digests.Set(Applied{Object: uid}, 7)
		events.New(uid, "event")
	}
	g.Expect([]any{digests.digests, events.last}).To(HaveEach(HaveLen(10000)))
	digests.Set(Applied{Object: "more"}, 7)
	events.New("more", "event")
	g.Expect([]any{digests.digests, events.last}).To(HaveEach(HaveLen(1)))
}

// What another process wrote down goes on, but is nothing that this one has seen: that begins with its own first look.
func TestWhatAnotherProcessWroteDownIsNotSeen(t *testing.T) {
	g, now := NewWithT(t), time.Now()
	seen := func(c Since[string], part string) []any {
		since, looks := c.Seen(part)
		return []any{since, looks}
	}
	nothing, began := []any{time.Time{}, 0}, now.Add(-time.Hour)
	recalled := Since[string]{}.Recall("a", began, now.Add(-time.Minute))
	first, noted := recalled.Of("a")
	g.Expect(noted).To(BeTrue())
	g.Expect(first).To(Equal(began))
	g.Expect(seen(recalled, "a")).To(Equal(nothing))

	c := recalled.Note(now, []string{"a", "b"})
	first, _ = c.Of("a")
	g.Expect(first).To(Equal(began), "it goes on")
	g.Expect(seen(c, "a")).To(Equal([]any{now, 1}))
	c = c.Note(now.Add(time.Minute), []string{"a"}, "b")
	g.Expect(seen(c, "a")).To(Equal([]any{now, 2}), "since the first look")
	g.Expect(seen(c, "b")).To(Equal([]any{now, 1}), "nobody was sure of it")
	g.Expect(seen(c, "c")).To(Equal(nothing))
	both := c.Recall("c", began, now)
	g.Expect(both.Parts()).To(ConsistOf("a", "b", "c"))
	g.Expect(c.Parts()).To(ConsistOf("a", "b"), "what was known stays as it is")
}

// Whatever kinds of things are known of a control plane, and however many of each, all of them are kept.
func TestWhatIsKnownOfSeveralKindsIsRemembered(t *testing.T) {
	now := time.Now()
	so := Since[struct{}]{}.Note(now, []struct{}{{}})
	for name, past := range map[string]Past{
		"a member is ill, and no quorum agrees": {Unhealthy: Since[Standstill]{}.Note(now, []Standstill{{Member: 1}}), NoQuorum: so},
		"no quorum agrees, and none is seen":    {NoQuorum: so, NoneSeen: so},
		"one is not drained, and a time lies ahead": {Undrained: Since[string]{}.Note(now, []string{"m"}),
			Ahead: Since[int64]{}.Note(now, []int64{now.Unix()})},
	} {
		h := &History{}
		h.Remember("plane", past)
		NewWithT(t).Expect(h.Past("plane")).To(Equal(past), name)
	}
}
