// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"
	_ "time/tzdata" // the image has no zones of its own

	"k8s.io/utils/ptr"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
)

// week is how far windows are looked for: each opens once in it, and none lasts longer.
const week = 7

// opening is a time without a break in which Machines may be replaced.
type opening struct{ from, to time.Time }

// window is one that was read.
type window struct {
	days         []time.Weekday
	hour, minute int
	lasts        time.Duration
	zone         *time.Location
}

// Window says of a RolloutWindow why it cannot be kept; nil when it can.
func Window(of quoinv1.RolloutWindow) error {
	_, err := read(of)
	return err
}

func read(of quoinv1.RolloutWindow) (window, error) {
	if of.TimeZone == "Local" {
		return window{}, errors.New("timeZone Local is whatever the manager runs with: give one such as Europe/Vienna")
	}
	zone, err := time.LoadLocation(of.TimeZone)
	if err != nil {
		return window{}, fmt.Errorf("timeZone %s is none of the IANA database: give one such as Europe/Vienna, or none "+
			"for UTC", of.TimeZone)
	}
	start, err := time.Parse("15:04", of.Start)
	if err != nil {
		return window{}, fmt.Errorf("start %q is no time of day: give one such as \"22:00\"", of.Start)
	}
	w := window{hour: start.Hour(), minute: start.Minute(), zone: zone,
		lasts: time.Duration(ptr.Deref(of.DurationMinutes, 0)) * time.Minute}
	for day := time.Sunday; day <= time.Saturday; day++ {
		if len(of.Days) == 0 || slices.Contains(of.Days, quoinv1.RolloutDay(day.String())) {
			w.days = append(w.days, day)
		}
	}
	if w.lasts <= 0 || len(w.days) == 0 {
		return window{}, errors.New("it never opens: give days of the week, and durationMinutes above 0")
	}
	return w, nil
}

// opens is when the window opens on a day; what the clock leaves out begins at its change, and what comes twice at the
// first.
func (w window) opens(year int, month time.Month, day int) time.Time {
	asked := time.Date(year, month, day, w.hour, w.minute, 0, 0, time.UTC)
	at := time.Date(year, month, day, w.hour, w.minute, 0, 0, w.zone)
	since, until := at.ZoneBounds()
	// What the clock leaves out was taken for a time beside its change.
	switch assumed := asked.Sub(at); {
	case offset(at) > assumed:
		return since
	case offset(at) < assumed:
		return until
	}
	if first := at.Add(offset(at) - offset(since.Add(-time.Second))); first.Before(since) {
		return first
	}
	return at
}

// offset of the clock on the wall from UTC.
func offset(at time.Time) time.Duration {
	_, east := at.Zone()
	return time.Duration(east) * time.Second
}

// openings of all windows between two times and around them, in their order; those that meet are one.
func openings(windows []quoinv1.RolloutWindow, since, until time.Time) ([]opening, error) {
	var all []opening
	for i, of := range windows {
		w, err := read(of)
		if err != nil {
			return nil, fmt.Errorf("windows[%d]: %w", i, err)
		}
		noon := func(at time.Time, offset int) time.Time {
			is := at.In(w.zone)
			return time.Date(is.Year(), is.Month(), is.Day()+offset, 12, 0, 0, 0, time.UTC)
		}
		last := noon(until, week)
		for day := noon(since, -week); !day.After(last); day = day.AddDate(0, 0, 1) {
			if slices.Contains(w.days, day.Weekday()) {
				from := w.opens(day.Year(), day.Month(), day.Day())
				all = append(all, opening{from, from.Add(w.lasts)})
			}
		}
	}
	slices.SortFunc(all, func(a, b opening) int { return cmp.Or(a.from.Compare(b.from), a.to.Compare(b.to)) })
	var joined []opening
	for _, o := range all {
		if last := len(joined) - 1; last >= 0 && !o.from.After(joined[last].to) {
			if o.to.After(joined[last].to) {
				joined[last].to = o.to
			}
			continue
		}
		joined = append(joined, o)
	}
	return joined, nil
}

// schedule is what windows say of a moment.
type schedule struct {
	// open is the window that is open; nil when none is, or when there are no windows.
	open *opening
	// next is the one that opens next; zero when there are no windows.
	next opening
	// longest that a window is open within a week of now.
	longest time.Duration
}

// closed reports whether nothing may be replaced.
func (s schedule) closed() bool { return s.open == nil && !s.next.from.IsZero() }

func scheduled(windows []quoinv1.RolloutWindow, now time.Time) (schedule, error) {
	all, err := openings(windows, now, now)
	if err != nil {
		return schedule{}, err
	}
	s := schedule{}
	for _, o := range all {
		s.longest = max(s.longest, o.to.Sub(o.from))
	}
	for _, o := range all {
		switch {
		case o.from.After(now):
			s.next = o
			return s, nil
		case now.Before(o.to):
			s.open = &o
		}
	}
	return s, nil
}

// ClosedUntil says, while none of the windows is open, when the next one opens; it is empty, and the time zero, else.
func ClosedUntil(windows []quoinv1.RolloutWindow, now time.Time) (message string, until time.Time, err error) {
	s, err := scheduled(windows, now)
	if err != nil || !s.closed() {
		return "", time.Time{}, err
	}
	return "no window is open; the next one opens " + clock(s.next.from), s.next.from, nil
}

// ClosedFor is how long none of the windows was open between two times; 0 where there are none, or they cannot be read.
func ClosedFor(windows []quoinv1.RolloutWindow, since, until time.Time) time.Duration {
	all, err := openings(windows, since, until)
	if err != nil || len(all) == 0 || until.Before(since) {
		return 0
	}
	closed := until.Sub(since)
	for _, o := range all {
		from, to := o.from, o.to
		if from.Before(since) {
			from = since
		}
		if to.After(until) {
			to = until
		}
		closed -= max(0, to.Sub(from))
	}
	return closed
}

// clock writes a time as the clock of its zone shows it.
func clock(t time.Time) string { return t.Format("Mon 2006-01-02 15:04 MST") }

// inWindow keeps a rollout from going on while no window is open. What is missing is made at any time, once the present
// template is known to work: windows are there to lose no capacity at the wrong time.
func (p *planner) inWindow(pool *rules, room *room) (Reason, string) {
	if p.schedule.open != nil {
		p.again(p.schedule.open.to.Sub(p.now))
	}
	if !p.schedule.closed() {
		return "", ""
	}
	p.again(p.schedule.next.from.Sub(p.now))
	if room.missing(pool) && (pool.in(counts) > 0 || pool.onlySelected()) {
		return "", ""
	}
	return Closed, "no window is open; the next one opens " + clock(p.schedule.next.from)
}

// fits keeps a Machine from being begun that by what the last ones took would not be done before the window closes.
// What is missing is made all the same, or it would be until the next window.
func (p *planner) fits(pool *rules, room *room) (Reason, string) {
	takes := p.takes(pool)
	if room.missing(pool) || p.schedule.open == nil || p.schedule.next.from.IsZero() ||
		!p.now.Add(takes).After(p.schedule.open.to) {
		return "", ""
	}
	if why := p.fitsNowhere(pool); why != "" {
		return WillNotFit, why
	}
	return WillNotFit, fmt.Sprintf("a Machine takes %s here with its soak%s, and the window closes %s; the next one "+
		"opens %s", takes, pool.withDrain(), clock(p.schedule.open.to), clock(p.schedule.next.from))
}

// takes is how long the next Machine of the pool takes with its soak and the drain of the one that it replaces; 0 when
// that is not known, or when there is none.
func (p *planner) takes(pool *rules) time.Duration {
	missed := pool.staying() < pool.Replicas
	next := func(m Machine) bool { return m.needsUpdate() || missed && m.leavesReplaced() && m.Leave.PreDrain }
	if takes := pool.Pace.Median(); takes > 0 && (pool.in(outdated) > 0 || slices.ContainsFunc(pool.Machines, next)) {
		return takes + pool.soak + pool.drains()
	}
	return 0
}

// drains is how long a Machine of the pool is drained; 0 where that is not known, or none is.
func (r *rules) drains() time.Duration {
	if r.drain == nil {
		return 0
	}
	return r.Drains.Median()
}

func (r *rules) withDrain() string {
	if r.drains() == 0 {
		return ""
	}
	return " and a drain"
}

// fitsNowhere says that no window is as long as the next Machine of the pool takes, which would wait for ever; it is
// empty when one is.
func (p *planner) fitsNowhere(pool *rules) string {
	takes := p.takes(pool)
	if p.schedule.next.from.IsZero() || takes <= p.schedule.longest {
		return ""
	}
	return fmt.Sprintf("a Machine takes %s here with its soak%s, and windows are shorter: give them a durationMinutes of "+
		"at least %d", takes, pool.withDrain(), int((takes+time.Minute-1)/time.Minute))
}
