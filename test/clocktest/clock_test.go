// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package clocktest

import (
	"testing"
	"time"
)

// This fails where a later Go lays times out in another way.
func TestAClockThatIsSetShowsAnotherTimeAndNoneThatPassed(t *testing.T) {
	for _, by := range []time.Duration{0, 7 * time.Hour, -7 * time.Hour, -time.Second} {
		now := time.Now()
		stepped := Stepped(now, by)
		if shown := stepped.Round(0).Sub(now.Round(0)); shown != by {
			t.Errorf("a clock that was set by %s shows %s more", by, shown)
		}
		if passed := stepped.Sub(now); passed != 0 {
			t.Errorf("%s passed when it was set by %s", passed, by)
		}
		if later := Stepped(time.Now(), -by).Sub(stepped); later < 0 || later > time.Minute {
			t.Errorf("%s passed when it was set back", later)
		}
	}
}
