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
type Since[K comparable] struct {
	since map[K]time.Time
	noted time.Time
}

// longestGap may lie between two observations of which the second goes on with the first. Nobody knows what was in a
// longer one, such as a pause: two misses an hour apart are no hour of silence. The idlest control plane is observed
// several times within it.
const longestGap = 5 * time.Minute

// Note is what is known once these are the parts with which it is so now. All others begin anew, and so does everything
// after a gap, or when the clock was set back.
func (s Since[K]) Note(now time.Time, parts []K) Since[K] {
	if len(parts) == 0 {
		return Since[K]{}
	}
	before, after := s.since, make(map[K]time.Time, len(parts))
	if gap := now.Sub(s.noted); gap < 0 || gap > longestGap {
		before = nil
	}
	for _, part := range parts {
		first, seen := before[part]
		if !seen {
			first = now
		}
		after[part] = first
	}
	return Since[K]{since: after, noted: now}
}

// Of reports since when it has been so with a part, if it is.
func (s Since[K]) Of(part K) (time.Time, bool) {
	first, noted := s.since[part]
	return first, noted
}

// Parts are those with which it was so when that was noted last.
func (s Since[K]) Parts() []K { return slices.Collect(maps.Keys(s.since)) }
