// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"slices"
	"time"
)

const (
	// recently is how many measured durations are kept.
	recently = 5
	// steady is how far an expected end may drift before another one is said: it would change with each look.
	steady = time.Minute
)

// Pace is how long new Machines of a pool took from their admission until they counted, the latest last.
type Pace []time.Duration

// With is the pace after one more Machine counted.
func (p Pace) With(took time.Duration) Pace {
	longer := append(slices.Clone(p), max(took, 0).Round(time.Second))
	return longer[max(0, len(longer)-recently):]
}

// Last is how long the latest one took; 0 when none was measured.
func (p Pace) Last() time.Duration {
	if len(p) == 0 {
		return 0
	}
	return p[len(p)-1]
}

// Median of what was measured, the longer one of two; 0 when nothing was.
func (p Pace) Median() time.Duration {
	if len(p) == 0 {
		return 0
	}
	return slices.Sorted(slices.Values(p))[len(p)/2]
}

// took is how long a Machine that counts now was on its way. The time that a person took to look at it says nothing
// about the next one.
func (p *planner) took(pool *rules, m Machine) time.Duration {
	if p.policy.ContinueAfter == m.Name {
		return m.Since.Add(pool.soak).Sub(m.Admitted)
	}
	return p.now.Sub(m.Admitted)
}
