// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package history

import (
	"maps"
	"slices"
	"time"
)

// Since says since when something has been so with parts of a control plane. It is a value: to note is to make another
// one.
type Since[K comparable] struct{ since map[K]span }

// span is from when it was first seen to be so until when it was last. seen is when this process saw it first, zero
// before, and looks is in how many observations it was sure of it: two of the same time are one.
type span struct {
	first, last, seen time.Time
	looks             int
}

// LongestGap may lie between two observations of which the second goes on with the first. Nobody knows what was in a
// longer one, such as a pause: two misses an hour apart are no hour of silence. Both the idlest control plane and one
// whose reconciles fail are observed several times within it.
const LongestGap = 5 * time.Minute

// Note is what is known once these are the parts with which it is so now, and the unsure ones those with which it may
// be: what was known of an unsure part stays, and nothing begins. All others begin anew, and so does each part after a
// gap in which nobody was sure of it, or when the clock was set back.
func (s Since[K]) Note(now time.Time, parts []K, unsure ...K) Since[K] {
	after := make(map[K]span, len(parts)+len(unsure))
	for _, part := range unsure {
		if known, goesOn := s.at(part, now); goesOn {
			after[part] = known
		}
	}
	for _, part := range parts {
		known, goesOn := s.at(part, now)
		if !goesOn {
			known = span{first: now}
		}
		if known.looks == 0 || now.After(known.last) {
			known.looks++
		}
		if known.last = now; known.seen.IsZero() {
			known.seen = now
		}
		after[part] = known
	}
	if len(after) == 0 {
		return Since[K]{}
	}
	return Since[K]{since: after}
}

// Recall is what is known as well when it was so with a part from first to last, which another process wrote down.
func (s Since[K]) Recall(part K, first, last time.Time) Since[K] {
	after := maps.Clone(s.since)
	if after == nil {
		after = map[K]span{}
	}
	after[part] = span{first: first, last: last}
	return Since[K]{since: after}
}

// at is what is known of a part, and whether that goes on now.
func (s Since[K]) at(part K, now time.Time) (known span, goesOn bool) {
	known, noted := s.since[part]
	gap := now.Sub(known.last)
	return known, noted && gap >= 0 && gap <= LongestGap
}

// Of reports since when it has been so with a part, if it is, or may still be.
func (s Since[K]) Of(part K) (time.Time, bool) {
	known, noted := s.since[part]
	return known.first, noted
}

// Seen is since when this process has seen it to be so with a part itself, and how often; zero when it has not.
func (s Since[K]) Seen(part K) (since time.Time, looks int) {
	return s.since[part].seen, s.since[part].looks
}

// Parts are those with which it was so, or may have been, when that was noted last.
func (s Since[K]) Parts() []K { return slices.Collect(maps.Keys(s.since)) }
