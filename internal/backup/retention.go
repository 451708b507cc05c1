// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"fmt"
	"time"
)

// Retention says which good snapshots stay: each that one of its rules keeps.
type Retention struct {
	// Last is how many of the newest stay; at least one does.
	Last int
	// Hourly, Daily and Weekly: of each of so many hours, days and weeks (of UTC, weeks from Monday) in which snapshots
	// were taken, the newest stays. Those without any do not count, so that an idle time costs no history.
	Hourly, Daily, Weekly int
}

// keeps reports for each snapshot, the newest first, whether it stays. One that is dated ahead of now stays until its
// time comes, and counts for nothing: neither a clock that was ahead nor a thief pushes others out with it.
func (r Retention) keeps(found []Metadata, now time.Time) []bool {
	kept := make([]bool, len(found))
	for _, rule := range []struct {
		count  int
		period func(int, time.Time) string
	}{
		{max(r.Last, 1), func(i int, _ time.Time) string { return fmt.Sprint(i) }},
		{r.Hourly, func(_ int, at time.Time) string { return at.Format("2006-01-02T15") }},
		{r.Daily, func(_ int, at time.Time) string { return at.Format(time.DateOnly) }},
		{r.Weekly, func(_ int, at time.Time) string { return fmt.Sprint(at.ISOWeek()) }},
	} {
		left, last := rule.count, ""
		for i, m := range found {
			if m.Time.After(now) {
				kept[i] = true
				continue
			}
			if period := rule.period(i, m.Time.UTC()); left > 0 && period != last {
				kept[i], last = true, period
				left--
			}
		}
	}
	return kept
}
