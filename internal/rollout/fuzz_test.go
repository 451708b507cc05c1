// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"strings"
	"testing"
	"time"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
)

// Whatever window a person writes, and whenever it is looked at: one that can be kept opens within a week and a day, is
// open until it closes and no longer, and was closed for as long as it was not open.
func FuzzWindows(f *testing.F) {
	for _, zone := range []string{"", "Europe/Vienna", "Australia/Lord_Howe", "America/New_York", "Local", "../etc/passwd",
		"Asia/Kathmandu", "Pacific/Apia", "Africa/Casablanca", "UTC"} {
		f.Add("02:30", int32(60), zone, "Sunday", int64(1790000000))
		f.Add("02:10", int32(60), zone, "Sunday", int64(1774742400)) // before clocks are put forward
		f.Add("23:59", int32(7*24*60), zone, "Monday Friday", int64(1774742400))
	}
	f.Add("24:00", int32(1), "", "", int64(0))
	f.Add("1:2", int32(-1), "", "Someday", int64(1<<40))
	f.Fuzz(func(t *testing.T, start string, minutes int32, zone, days string, unix int64) {
		// What the API takes, in the years that somebody may live in.
		if unix < 0 || unix > 1<<33 || minutes > 7*24*60 {
			return
		}
		of := windowOf(start, minutes, zone)
		for _, day := range strings.Fields(days) {
			of.Days = append(of.Days, quoinv1.RolloutDay(day))
		}
		windows, now := []quoinv1.RolloutWindow{of}, time.Unix(unix, 0)
		s, err := scheduled(windows, now)
		message, until, closedErr := ClosedUntil(windows, now)
		if (Window(of) == nil) != (err == nil) || (closedErr == nil) != (err == nil) {
			t.Fatalf("%v, %v and %v", Window(of), err, closedErr)
		}
		if err != nil {
			if closed := ClosedFor(windows, now, now.Add(time.Hour)); closed != 0 || err.Error() == "" {
				t.Fatalf("closed for %s: %v", closed, err)
			}
			return
		}
		if s.open != nil && (now.Before(s.open.from) || !now.Before(s.open.to)) || s.closed() != (message != "") ||
			s.closed() != !until.IsZero() {
			t.Fatalf("%+v, %q until %s", s, message, until)
		}
		if s.open == nil && (!s.next.from.After(now) || s.next.from.Sub(now) > 8*24*time.Hour) {
			t.Fatalf("it opens at %s", s.next.from)
		}
		if s.closed() {
			if s, err := scheduled(windows, until); err != nil || s.open == nil {
				t.Fatalf("at %s it does not open", until)
			}
			if s, err := scheduled(windows, until.Add(-time.Second)); err != nil || s.open != nil {
				t.Fatalf("before %s it is open", until)
			}
			if closed := ClosedFor(windows, now, until); closed != until.Sub(now) {
				t.Fatalf("closed for %s and not %s", closed, until.Sub(now))
			}
		} else if !s.next.from.IsZero() { // else it is open always
			if closed := ClosedFor(windows, now, s.open.to); closed != 0 {
				t.Fatalf("closed for %s while it is open", closed)
			}
			if s, err := scheduled(windows, s.open.to); err != nil || s.open != nil {
				t.Fatalf("open at its end: %+v", s)
			}
		}
		// Two halves are the whole.
		end := now.Add(9 * 24 * time.Hour)
		middle := now.Add(end.Sub(now) / 3)
		if all := ClosedFor(windows, now, end); all != ClosedFor(windows, now, middle)+ClosedFor(windows, middle, end) ||
			all > end.Sub(now) || all < 0 {
			t.Fatalf("closed for %s", all)
		}
	})
}
