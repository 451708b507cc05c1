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
	}{
		"nothing is set":                      {[]act{{0, time.Minute}}, time.Minute},
		"a day forward":                       {[]act{{day, 0}}, 0},
		"a day forward, and time goes on":     {[]act{{day, time.Hour}}, time.Hour},
		"forward twice":                       {[]act{{day, time.Hour}, {day, time.Hour}}, 2 * time.Hour},
		"forward and back again":              {[]act{{day, time.Hour}, {-day, time.Hour}}, 2 * time.Hour},
		"forward, and back by less":           {[]act{{day, time.Hour}, {-time.Hour, time.Hour}}, 2 * time.Hour},
		"slewed":                              {[]act{{time.Second, time.Hour}}, time.Hour + time.Second},
		"set back, which others have to bear": {[]act{{-day, time.Hour}}, time.Hour - day},
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
			if got := c.Now().Sub(c.Shift(began)); got != test.since {
				t.Errorf("it began %s ago, not %s", got, test.since)
			}
			later := c.Now()
			wall, elapsed = wall.Add(time.Minute), elapsed+time.Minute
			if got := c.Now().Sub(c.Shift(later)); got != time.Minute {
				t.Errorf("what began after it began %s ago, not a minute", got)
			}
		})
	}
	if at := time.Now(); !Shift(New(), at).Equal(at) || !Shift(nil, at).Equal(at) || !New().Shift(time.Time{}).IsZero() {
		t.Error("something is shifted without a step")
	}
}
