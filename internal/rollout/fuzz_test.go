// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
)

// Whatever window a person writes, and whenever it is looked at: one that can be kept opens within a week and a day, is
// open until it closes and no longer, and was closed for as long as it was not open.
func FuzzWindows(f *testing.F) {
	for _, zone := range []string{"", "Europe/Vienna", "Australia/Lord_Howe", "America/New_York", "Local", "../etc/passwd",
		"Asia/Kathmandu", "Pacific/Apia", "Africa/Casablanca", "UTC"} {
		f.Add("02:30", int32(60), zone, "Sunday", int64(1790000000))
		f.Add("02:10", int32(60), zone, "Sunday", int64(1774742400)) // before clocks are put forward
		f.Add("02:30", int32(60), zone, "Sunday", int64(1792843200)) // before they are put back
		f.Add("05:17", int32(60), zone, "", int64(1790000000))
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
		if opens := s.next.from; !opens.IsZero() && s.open == nil {
			onTheClock(t, of, opens)
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

// onTheClock fails unless a window opens when a clock on the wall shows its start for the first time that day, or,
// where the clock leaves that out, when it is put forward.
func onTheClock(t *testing.T, of quoinv1.RolloutWindow, opens time.Time) {
	t.Helper()
	zone, err := time.LoadLocation(of.TimeZone)
	if err != nil {
		t.Fatal(err)
	}
	const clock = "2006-01-02 15:04"
	at := opens.In(zone)
	start, err := time.Parse("15:04", of.Start)
	if err != nil {
		t.Fatal(err)
	}
	since, _ := at.ZoneBounds()
	_, was := at.Add(-time.Second).Zone()
	if _, is := at.Zone(); since.Equal(at) && is > was {
		return
	}
	if shown := start.Format("15:04"); at.Format("15:04") != shown {
		t.Fatalf("%q opens at %s", shown, at)
	}
	if len(of.Days) > 0 && !slices.Contains(of.Days, quoinv1.RolloutDay(at.Weekday().String())) {
		t.Fatalf("%q opens on a %s", of.Days, at.Weekday())
	}
	for earlier := 10 * time.Minute; earlier < 24*time.Hour; earlier += 10 * time.Minute {
		if once := at.Add(-earlier); once.Format(clock) == at.Format(clock) {
			t.Fatalf("%q opens at %s, and the clock showed it at %s", of.Start, at, once)
		}
	}
}

// Whatever annotations say that a rollout wrote: they count for the Machine that they name and for no other, and what
// is written is read as it was meant.
func FuzzMarks(f *testing.F) {
	const uid = "6f1f7a52-9a3e-4b56-8f1e-0c2d5a6b7c8d"
	for _, value := range []string{"", "2026-11-23T08:00:00Z " + uid, "2026-11-23T08:00:00+01:00 " + uid +
		" Replace: it is old", "2026-11-23T08:00:00Z 3f2a 9b1c Machine m does not count: no", "now " + uid, uid,
		"2026-11-23T08:00:00Z " + uid + "x", "2026-11-23T08:00:00Z  " + uid, "2026-11-23T08:00:00Z " + uid + " ", "\xff"} {
		f.Add(value, uid, "Replace", "it is old: 3 months", int64(1790000000))
	}
	f.Fuzz(func(t *testing.T, value, uid, reason, message string, unix int64) {
		// What an API server gives, and what we say.
		if uid == "" || strings.Contains(uid, " ") || reason == "" || strings.ContainsAny(reason, " :") || unix < 0 ||
			unix > 1<<33 {
			return
		}
		machine, now := &clusterv1.Machine{}, time.Unix(unix, 0)
		machine.UID = types.UID(uid)
		words := append(strings.Split(value, " "), "", "")
		machine.Annotations = map[string]string{quoinv1.RolloutAdmittedAnnotation: value,
			quoinv1.RolloutDeletedAnnotation: value, clusterv1.DeleteMachineAnnotation: value}
		named := words[1] == uid
		if at := AdmittedAt(machine); !at.IsZero() && (!named || value != words[0]+" "+uid) {
			t.Fatalf("%q admits %s at %s", value, uid, at)
		}
		if why, at := DeletedFor(machine), DeletedSince(machine); (why != "" || !at.IsZero()) && !named ||
			why == "" && !at.IsZero() || !strings.Contains(value, string(why)) {
			t.Fatalf("%q deletes %s for %q since %s", value, uid, why, at)
		}
		if attempt := ParseAttempt(value); attempt.At.UTC().Year() > 0 && attempt.At.UTC().Year() < 10000 {
			again := ParseAttempt(attempt.String())
			if attempt.At = attempt.At.UTC().Truncate(time.Second); attempt != again || !strings.HasSuffix(value,
				strings.Join([]string{"", attempt.Failed, attempt.Restored, attempt.Why}, " ")) && attempt != (Attempt{}) {
				t.Fatalf("%q became %+v and %+v", value, attempt, again)
			}
		}
		SetMark(machine, false)
		if _, there := machine.Annotations[clusterv1.DeleteMachineAnnotation]; there == strings.HasPrefix(value, mark) {
			t.Fatalf("the mark %q is there: %v", value, there)
		}

		machine.Annotations = map[string]string{quoinv1.RolloutAdmittedAnnotation: Admission(machine, now),
			quoinv1.RolloutDeletedAnnotation: Deletion(machine, now, Decision{Reason: Reason(reason), Message: message})}
		if at := AdmittedAt(machine); !at.Equal(now) {
			t.Fatalf("%q admits at %s", machine.Annotations, at)
		}
		if why, at := DeletedFor(machine), DeletedSince(machine); string(why) != reason || !at.Equal(now) {
			t.Fatalf("%q deletes for %q since %s", machine.Annotations, why, at)
		}
		if SetMark(machine, true); !Marked(machine) || !SetMark(machine, false) || Marked(machine) ||
			DeletedFor(machine) != "" {
			t.Fatalf("%q stays", machine.Annotations)
		}
		machine.Annotations[quoinv1.RolloutAdmittedAnnotation] = Admission(machine, now)
		if machine.UID += "x"; !AdmittedAt(machine).IsZero() {
			t.Fatal("admitted is who copied an annotation")
		}
	})
}
