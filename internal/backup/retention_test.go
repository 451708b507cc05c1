// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
)

// TestRetention takes the snapshots of a script, one after another, and deletes after each what does not stay. A line
// is a time, or the first one, the time between two, and how many there are. "ahead" is one of a clock that is ahead.
func TestRetention(t *testing.T) {
	datadriven.RunTest(t, "testdata/retention.txt", func(t *testing.T, d *datadriven.TestData) string {
		var r Retention
		d.MaybeScanArgs(t, "last", &r.Last)
		d.MaybeScanArgs(t, "hourly", &r.Hourly)
		d.MaybeScanArgs(t, "daily", &r.Daily)
		d.MaybeScanArgs(t, "weekly", &r.Weekly)
		var found []Metadata
		take := func(at, now time.Time) {
			found = append(found, Metadata{Time: at})
			slices.SortFunc(found, func(a, b Metadata) int { return b.Time.Compare(a.Time) })
			kept := r.keeps(found, now)
			var left []Metadata
			for i, m := range found {
				if kept[i] {
					left = append(left, m)
				}
			}
			if found = left; !slices.ContainsFunc(found, func(m Metadata) bool { return m.Time.Equal(at) }) {
				t.Errorf("%s is deleted as soon as it is there", at)
			}
		}
		clock := func(raw string) time.Time {
			at, err := time.Parse("2006-01-02T15:04", raw)
			if err != nil {
				d.Fatalf(t, "%v", err)
			}
			return at
		}
		var now time.Time
		for line := range strings.Lines(d.Input) {
			fields, every, count := strings.Fields(line), time.Duration(0), 1
			if fields[0] == "ahead" {
				take(clock(fields[1]), now)
				continue
			}
			if len(fields) == 3 {
				every, _ = time.ParseDuration(fields[1])
				_, _ = fmt.Sscan(fields[2], &count)
			}
			now = clock(fields[0])
			for i := range count {
				if i > 0 {
					now = now.Add(every)
				}
				take(now, now)
			}
		}
		var told strings.Builder
		for _, m := range found {
			fmt.Fprintln(&told, m.Time.Format("Mon 2006-01-02T15:04"))
		}
		return told.String()
	})
}
