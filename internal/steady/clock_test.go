// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package steady

import (
	"testing"
	"time"
)

// A silence of a minute stays one of a minute when the clock is set, and goes on from there.
func TestAStepForwardIsNoTimeThatPassed(t *testing.T) {
	const day = 24 * time.Hour
	type act struct{ step, passes time.Duration }
	for name, test := range map[string]struct {
		acts  []act
		since time.Duration
		// kept steps: those that were not taken back.
		kept int
	}{
		"nothing is set":                      {[]act{{0, time.Minute}}, time.Minute, 0},
		"a day forward":                       {[]act{{day, 0}}, 0, 1},
		"a day forward, and time goes on":     {[]act{{day, time.Hour}}, time.Hour, 1},
		"forward twice":                       {[]act{{day, time.Hour}, {day, time.Hour}}, 2 * time.Hour, 2},
		"forward and back again":              {[]act{{day, time.Hour}, {-day, time.Hour}}, 2 * time.Hour, 0},
		"forward, and back by less":           {[]act{{day, time.Hour}, {-time.Hour, time.Hour}}, 2 * time.Hour, 1},
		"forward, and back by more":           {[]act{{day, time.Hour}, {-2 * day, time.Hour}}, 2*time.Hour - day, 0},
		"forward twice, and back once":        {[]act{{day, 0}, {time.Hour, 0}, {-day, time.Hour}}, time.Hour, 1},
		"a minute forward":                    {[]act{{time.Minute, time.Hour}}, time.Hour, 1},
		"forward and back by a minute":        {[]act{{time.Minute, time.Hour}, {-time.Minute, 0}}, time.Hour, 0},
		"slewed":                              {[]act{{time.Second, time.Hour}}, time.Hour + time.Second, 0},
		"slewed back after a step":            {[]act{{day, time.Hour}, {-time.Second, 0}}, time.Hour - time.Second, 1},
		"set back, which others have to bear": {[]act{{-day, time.Hour}}, time.Hour - day, 0},
	} {
		t.Run(name, func(t *testing.T) {
			wall, elapsed := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC), time.Duration(0)
			c := From(func() time.Time { return wall }, func() time.Duration { return elapsed })
			wall, elapsed = wall.Add(time.Hour), time.Hour
			began := c.Now()
			for _, a := range test.acts {
				wall = wall.Add(a.step)
				c.Now()
				wall, elapsed = wall.Add(a.passes), elapsed+a.passes
			}
			if got := c.Now().Sub(Shift(c, began)); got != test.since {
				t.Errorf("it began %s ago, not %s", got, test.since)
			}
			later := c.Now()
			wall, elapsed = wall.Add(time.Minute), elapsed+time.Minute
			if got := c.Since(Shift(c, later)); got != time.Minute {
				t.Errorf("what began after it began %s ago, not a minute", got)
			}
			if len(c.steps) != test.kept || !Shift(c, time.Time{}).IsZero() {
				t.Errorf("steps are %v, not %d, and no time is shifted to %s", c.steps, test.kept, Shift(c, time.Time{}))
			}
			wall = wall.Add(day)
			if got := Shift(c, later).Sub(later); got != day {
				t.Errorf("a step that nobody saw yet shifts by %s", got)
			}
		})
	}
	if at := time.Now(); !Shift(New(), at).Equal(at) || !Shift(nil, at).Equal(at) || !Shift((*Clock)(nil), at).Equal(at) {
		t.Error("something is shifted without a step")
	}
}
