// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/rapidtest"
)

// passes has a script's time pass, or Machines have taken so long.
func (f *fleet) passes(t *testing.T, d *datadriven.TestData) {
	if d.Cmd == "at" {
		at, err := time.Parse(time.RFC3339, d.CmdArgs[0].Key)
		if err != nil {
			t.Fatal(err)
		}
		f.now = at
		return
	}
	of := f.pool(d.CmdArgs[0].Key)
	of.pace = nil
	for _, arg := range d.CmdArgs[1:] {
		took, err := time.ParseDuration(arg.Key)
		if err != nil {
			t.Fatal(err)
		}
		of.pace = append(of.pace, took)
	}
}

func windowOf(start string, minutes int32, zone string, days ...quoinv1.RolloutDay) quoinv1.RolloutWindow {
	return quoinv1.RolloutWindow{Start: start, DurationMinutes: ptr.To(minutes), TimeZone: zone, Days: days}
}

// When windows open and close, as the clock on the wall and as the one in UTC shows it.
func TestWindowsOpen(t *testing.T) {
	const vienna, lordHowe = "Europe/Vienna", "Australia/Lord_Howe"
	for name, c := range map[string]struct {
		windows  []quoinv1.RolloutWindow
		now      string
		open     string // until then; empty when none is
		nextFrom string
	}{
		"before it opens": {[]quoinv1.RolloutWindow{windowOf("22:00", 60, "")},
			"2026-11-23T21:59:59Z", "", "2026-11-23T22:00:00Z"},
		"as it opens": {[]quoinv1.RolloutWindow{windowOf("22:00", 60, "")},
			"2026-11-23T22:00:00Z", "2026-11-23T23:00:00Z", "2026-11-24T22:00:00Z"},
		"as it closes": {[]quoinv1.RolloutWindow{windowOf("22:00", 60, "")},
			"2026-11-23T23:00:00Z", "", "2026-11-24T22:00:00Z"},
		"over midnight, on the day after": {[]quoinv1.RolloutWindow{windowOf("22:00", 240, vienna, "Monday")},
			"2026-11-24T00:30:00Z", "2026-11-24T01:00:00Z", "2026-11-30T21:00:00Z"},
		"the day is the one of its zone": {[]quoinv1.RolloutWindow{windowOf("00:30", 60, vienna, "Tuesday")},
			"2026-11-23T23:45:00Z", "2026-11-24T00:30:00Z", "2026-11-30T23:30:00Z"},
		"a whole weekend": {[]quoinv1.RolloutWindow{windowOf("20:00", 58*60, "", "Friday")},
			"2026-11-29T12:00:00Z", "2026-11-30T06:00:00Z", "2026-12-04T20:00:00Z"},
		"a whole week, always": {[]quoinv1.RolloutWindow{windowOf("20:00", 7*24*60, "", "Friday")},
			"2026-11-27T19:59:00Z", "2026-12-11T20:00:00Z", ""},
		"two that meet are one": {[]quoinv1.RolloutWindow{windowOf("10:00", 60, ""), windowOf("11:00", 60, "")},
			"2026-11-23T10:30:00Z", "2026-11-23T12:00:00Z", "2026-11-24T10:00:00Z"},
		"one within another": {[]quoinv1.RolloutWindow{windowOf("10:00", 240, ""), windowOf("11:00", 60, "")},
			"2026-11-23T10:30:00Z", "2026-11-23T14:00:00Z", "2026-11-24T10:00:00Z"},
		"two zones": {[]quoinv1.RolloutWindow{windowOf("10:00", 60, vienna), windowOf("10:00", 60, "America/New_York")},
			"2026-11-23T12:00:00Z", "", "2026-11-23T15:00:00Z"},
		"no such time on that day, so at the change": {[]quoinv1.RolloutWindow{windowOf("02:30", 60, vienna, "Sunday")},
			"2026-03-28T12:00:00Z", "", "2026-03-29T01:00:00Z"},
		"no such time in the west": {[]quoinv1.RolloutWindow{windowOf("02:30", 60, "America/New_York", "Sunday")},
			"2026-03-07T12:00:00Z", "", "2026-03-08T07:00:00Z"},
		"open from the change": {[]quoinv1.RolloutWindow{windowOf("02:30", 60, vienna, "Sunday")},
			"2026-03-29T01:59:00Z", "2026-03-29T02:00:00Z", "2026-04-05T00:30:00Z"},
		"twice on that day, so at the first": {[]quoinv1.RolloutWindow{windowOf("02:30", 60, vienna, "Sunday")},
			"2026-10-24T12:00:00Z", "", "2026-10-25T00:30:00Z"},
		"and not at the second": {[]quoinv1.RolloutWindow{windowOf("02:30", 60, vienna, "Sunday")},
			"2026-10-25T01:40:00Z", "", "2026-11-01T01:30:00Z"},
		"over the change it lasts as long": {[]quoinv1.RolloutWindow{windowOf("22:00", 480, vienna, "Saturday")},
			"2026-10-25T03:30:00Z", "2026-10-25T04:00:00Z", "2026-10-31T21:00:00Z"},
		"half an hour is left out": {[]quoinv1.RolloutWindow{windowOf("02:10", 60, lordHowe, "Sunday")},
			"2026-10-03T12:00:00Z", "", "2026-10-03T15:30:00Z"},
		"half an hour comes twice": {[]quoinv1.RolloutWindow{windowOf("01:40", 60, lordHowe, "Sunday")},
			"2026-04-04T12:00:00Z", "", "2026-04-04T14:40:00Z"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			now, err := time.Parse(time.RFC3339, c.now)
			g.Expect(err).NotTo(HaveOccurred())
			s, err := scheduled(c.windows, now)
			g.Expect(err).NotTo(HaveOccurred())
			open, next := "", ""
			if s.open != nil {
				open = s.open.to.UTC().Format(time.RFC3339)
			}
			if !s.next.from.IsZero() {
				next = s.next.from.UTC().Format(time.RFC3339)
			}
			g.Expect(open).To(Equal(c.open))
			g.Expect(next).To(Equal(c.nextFrom))
			g.Expect(s.closed()).To(Equal(c.open == ""))
		})
	}
}

func TestWindowsThatCannotBeKept(t *testing.T) {
	g := NewWithT(t)
	g.Expect(Window(windowOf("22:00", 60, "Europe/Wien"))).To(MatchError(ContainSubstring("Europe/Wien is none of")))
	g.Expect(Window(windowOf("22:00", 60, "../etc/passwd"))).To(MatchError(ContainSubstring("is none of")))
	g.Expect(Window(windowOf("22:00", 60, "Local"))).To(MatchError(ContainSubstring("whatever the manager runs with")))
	g.Expect(Window(windowOf("24:00", 60, ""))).To(MatchError(ContainSubstring("no time of day")))
	g.Expect(Window(windowOf("22:00", 0, ""))).To(MatchError(ContainSubstring("never opens")))
	g.Expect(Window(quoinv1.RolloutWindow{Start: "22:00"})).To(MatchError(ContainSubstring("never opens")))
	g.Expect(Window(windowOf("22:00", 60, "", "Someday"))).To(MatchError(ContainSubstring("never opens")))
	g.Expect(Window(windowOf("22:00", 60, "Asia/Kathmandu", "Sunday"))).To(Succeed())
	policy := &quoinv1.RolloutPolicySpec{Windows: []quoinv1.RolloutWindow{windowOf("22:00", 60, "Europe/Wien")}}
	g.Expect(Plan(State{}, policy, time.Now()).Problem).To(HavePrefix("windows[0]: timeZone Europe/Wien is none of"))
}

// How long windows were closed, each time once.
func TestClosedFor(t *testing.T) {
	weekly := windowOf("08:00", 60, "", "Saturday")
	for name, c := range map[string]struct {
		windows      []quoinv1.RolloutWindow
		since, until string
		closed       time.Duration
	}{
		"no windows":        {nil, "2026-11-23T08:00:00Z", "2026-11-30T08:00:00Z", 0},
		"always open":       {[]quoinv1.RolloutWindow{windowOf("20:00", 7*24*60, "", "Friday")}, "2026-01-23T08:00:00Z", "2026-11-30T08:00:00Z", 0},
		"between two":       {[]quoinv1.RolloutWindow{weekly}, "2026-11-23T08:00:00Z", "2026-11-24T08:00:00Z", 24 * time.Hour},
		"over a year":       {[]quoinv1.RolloutWindow{weekly}, "2025-11-24T08:00:00Z", "2026-11-23T08:00:00Z", 364*24*time.Hour - 52*time.Hour},
		"from one into one": {[]quoinv1.RolloutWindow{weekly}, "2026-11-21T08:45:00Z", "2026-11-28T08:10:00Z", 7*24*time.Hour - time.Hour},
		"two that overlap": {[]quoinv1.RolloutWindow{weekly, windowOf("08:30", 60, "")},
			"2026-11-28T00:00:00Z", "2026-11-29T00:00:00Z", 22*time.Hour + 30*time.Minute},
		"no such zone": {[]quoinv1.RolloutWindow{windowOf("08:00", 60, "Europe/Wien")}, "2026-11-23T08:00:00Z", "2026-11-24T08:00:00Z", 0},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			since, err := time.Parse(time.RFC3339, c.since)
			g.Expect(err).NotTo(HaveOccurred())
			until, err := time.Parse(time.RFC3339, c.until)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(ClosedFor(c.windows, since, until)).To(Equal(c.closed))
		})
	}
}

// A Machine takes what the last ones took and its soak, where one is to be replaced and anything was measured.
func TestWhatTheNextMachineTakes(t *testing.T) {
	counting, selected, gone := Machine{Hosted: true, Joined: true}, Machine{Hosted: true, Joined: true}, old("gone", "")
	selected.NeedsUpdate, gone.Deleting = "marked", true
	held := gone
	held.Leave.PreDrain = true
	for name, c := range map[string]struct {
		machines []Machine
		pace     Pace
		takes    time.Duration
	}{
		"one is outdated":       {[]Machine{old("a", ""), counting}, Pace{10 * time.Minute}, 11 * time.Minute},
		"two are":               {[]Machine{old("a", ""), old("b", "")}, Pace{10 * time.Minute}, 11 * time.Minute},
		"a person selected one": {[]Machine{counting, selected}, Pace{10 * time.Minute}, 11 * time.Minute},
		"nothing was measured":  {[]Machine{old("a", "")}, nil, 0},
		"nothing is replaced":   {[]Machine{counting}, Pace{10 * time.Minute}, 0},
		"the last one leaves":   {[]Machine{counting, gone}, Pace{10 * time.Minute}, 0},
		"the last one is held":  {[]Machine{held}, Pace{10 * time.Minute}, 11 * time.Minute},
		"it is held beside one": {[]Machine{counting, held}, Pace{10 * time.Minute}, 0},
	} {
		pool := &rules{Pool: Pool{Replicas: 1, Machines: c.machines, Pace: c.pace}, soak: time.Minute}
		NewWithT(t).Expect((&planner{}).takes(pool)).To(Equal(c.takes), name)
	}
}

// A window holds the drain of the Machine that is replaced as well, where any is drained and that was measured.
func TestAWindowHoldsADrain(t *testing.T) {
	takes := func(drain *drainRules, drains ...time.Duration) time.Duration {
		pool := &rules{Pool: Pool{Replicas: 1, Machines: []Machine{old("a", "")}, Pace: Pace{10 * time.Minute},
			Drains: drains}, soak: time.Minute, drain: drain}
		return (&planner{}).takes(pool)
	}
	g := NewWithT(t)
	g.Expect(takes(&drainRules{})).To(Equal(11 * time.Minute))
	g.Expect(takes(&drainRules{}, 2*time.Minute, 40*time.Minute, 3*time.Minute)).To(Equal(14 * time.Minute))
	g.Expect(takes(nil, 2*time.Minute)).To(Equal(11*time.Minute), "nothing is drained any more")
	times, err := scheduled([]quoinv1.RolloutWindow{windowOf("08:00", 13, ""), windowOf("20:00", 60, "")}, eight)
	g.Expect(err).NotTo(HaveOccurred())
	pool := &rules{Pool: Pool{Replicas: 1, Machines: []Machine{old("a", "")}, Pace: Pace{10 * time.Minute},
		Drains: Pace{4 * time.Minute}}, drain: &drainRules{}}
	_, why := (&planner{now: eight, schedule: times}).fits(pool, &room{present: 1, actual: true})
	g.Expect(why).To(Equal("a Machine takes 14m0s here with its soak and a drain, and the window closes Mon 2026-11-23 " +
		"08:13 UTC; the next one opens Mon 2026-11-23 20:00 UTC"))
	times.longest = 13 * time.Minute
	g.Expect((&planner{schedule: times}).fitsNowhere(pool)).To(Equal("a Machine takes 14m0s here with its soak and a " +
		"drain, and windows are shorter: give them a durationMinutes of at least 14"))
}

// How long a drain takes is measured once, until the host is given up, of what was drained.
func TestHowLongADrainTakesIsMeasured(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Pool, *Machine)
		want   Pace
	}{
		"it is drained": {func(*Pool, *Machine) {}, Pace{time.Minute, 3 * time.Minute}},
		"Cluster API went on with it after a pause": {func(_ *Pool, m *Machine) { m.Resumed = eight.Add(-2 * time.Minute) },
			Pace{time.Minute, 2 * time.Minute}},
		"it is measured already": {func(p *Pool, _ *Machine) { p.LastTermination = eight.Add(-time.Second) },
			Pace{time.Minute}},
		"it took as long as it may": {func(_ *Pool, m *Machine) { m.Leave.Began = eight.Add(-15 * time.Minute) },
			Pace{time.Minute, 15 * time.Minute}},
		"it waited for somebody": {func(_ *Pool, m *Machine) { m.Leave.Began = eight.Add(-time.Second - 15*time.Minute) },
			Pace{time.Minute}},
		"its drain goes on": {func(_ *Pool, m *Machine) { m.Leave.Passed = time.Time{} }, Pace{time.Minute}},
		"it has no Node":    {func(_ *Pool, m *Machine) { m.Leave.Node.Gone = true }, Pace{time.Minute}},
		"it is not drained": {func(_ *Pool, m *Machine) { m.Leave.Excluded = true }, Pace{time.Minute}},
		"nobody waits for its kubelet": {func(_ *Pool, m *Machine) { m.Leave.Node.Unreachable = true },
			Pace{time.Minute}},
		"its host is given up in a moment": {func(_ *Pool, m *Machine) { m.Leave.Passed = eight }, Pace{time.Minute}},
	} {
		m := serving("a")
		m.Deleting, m.Leave.PreDrain, m.Leave.Node.Listed = true, false, true
		m.Leave.Began, m.Leave.Passed = eight.Add(-3*time.Minute), eight.Add(-time.Minute)
		pool := Pool{Name: "blue", Replicas: 1, Revision: "2", Drains: Pace{time.Minute}, Machines: []Machine{m}}
		c.change(&pool, &pool.Machines[0])
		result := Plan(State{Pools: []Pool{pool}}, &quoinv1.RolloutPolicySpec{Drain: &quoinv1.RolloutDrain{}}, eight)
		NewWithT(t).Expect(result.Progress[0].Drains).To(Equal(c.want), name)
		result = Plan(State{Pools: []Pool{pool}}, &quoinv1.RolloutPolicySpec{}, eight)
		NewWithT(t).Expect(result.Progress[0].Drains).To(Equal(Pace{time.Minute}), name)
	}
}

// A Machine is begun that is done as its window closes, or would be missing, and no window is waited for that is as
// short as all others.
func TestWhichMachineFitsAWindow(t *testing.T) {
	const hour = time.Hour
	for name, c := range map[string]struct {
		takes   time.Duration
		windows []quoinv1.RolloutWindow
		present int
		want    string
	}{
		"it is done as the window closes": {hour, []quoinv1.RolloutWindow{windowOf("08:00", 60, "")}, 1, ""},
		"it is done a second later": {hour + time.Second, []quoinv1.RolloutWindow{windowOf("08:00", 60, "")}, 1,
			"a Machine takes 1h0m1s here with its soak, and windows are shorter: give them a durationMinutes of at least 61"},
		"another window is as long": {2 * hour,
			[]quoinv1.RolloutWindow{windowOf("08:00", 60, ""), windowOf("20:00", 120, "")}, 1, "a Machine takes 2h0m0s here " +
				"with its soak, and the window closes Mon 2026-11-23 09:00 UTC; the next one opens Mon 2026-11-23 20:00 UTC"},
		"it would be missing": {2 * hour, []quoinv1.RolloutWindow{windowOf("08:00", 60, "")}, 0, ""},
		"no window is open":   {2 * hour, []quoinv1.RolloutWindow{windowOf("20:00", 60, "")}, 1, ""},
		"there are none":      {2 * hour, nil, 1, ""},
		"one is always open":  {1000 * hour, []quoinv1.RolloutWindow{windowOf("08:00", 24*60, "")}, 1, ""},
	} {
		g := NewWithT(t)
		times, err := scheduled(c.windows, eight)
		g.Expect(err).NotTo(HaveOccurred())
		pool := &rules{Pool: Pool{Replicas: 1, Machines: []Machine{old("a", "")}, Pace: Pace{c.takes}}}
		reason, why := (&planner{now: eight, schedule: times}).fits(pool, &room{present: c.present, actual: true})
		g.Expect(why).To(Equal(c.want), name)
		g.Expect(reason).To(Equal(map[bool]Reason{true: WillNotFit}[c.want != ""]), name)
	}
}

// A plan is made again as the window closes that is open, or as the next one opens, and says when that is; what is
// missing is made meanwhile where the present template is known to work.
func TestWhenAWindowIsLookedAtAgain(t *testing.T) {
	for name, c := range map[string]struct {
		windows []quoinv1.RolloutWindow
		present int // -1 where none would be after a deletion
		counts  bool
		again   time.Duration
		closed  bool
		done    string
	}{
		"there are none": {nil, 1, true, 0, false, "1"},
		"one is open":    {[]quoinv1.RolloutWindow{windowOf("07:30", 60, "")}, 1, true, 30 * time.Minute, false, "1"},
		"one opens":      {[]quoinv1.RolloutWindow{windowOf("09:00", 60, "")}, 1, true, time.Hour, true, "1"},
		"one opens, and a Machine is missing": {[]quoinv1.RolloutWindow{windowOf("09:00", 60, "")}, 0, true, time.Hour,
			false, "1"},
		"one opens, and a deletion would leave one missing": {[]quoinv1.RolloutWindow{windowOf("09:00", 60, "")}, -1,
			true, time.Hour, true, "1"},
		"one opens, and nothing counts": {[]quoinv1.RolloutWindow{windowOf("09:00", 60, "")}, 0, false, time.Hour, true, "1"},
		"one opens, and all that counted is missing": {[]quoinv1.RolloutWindow{windowOf("09:00", 60, "")}, 0, false,
			time.Hour, false, "2"},
	} {
		g := NewWithT(t)
		times, err := scheduled(c.windows, eight)
		g.Expect(err).NotTo(HaveOccurred())
		p := &planner{now: eight, schedule: times}
		pool := &rules{Pool: Pool{Replicas: 1, Revision: "2", Completed: c.done}}
		if c.counts {
			pool.Machines = []Machine{{Hosted: true, Joined: true}}
		}
		reason, why := p.inWindow(pool, &room{present: max(0, c.present), actual: c.present >= 0})
		g.Expect(p.result.Again).To(Equal(c.again), name)
		g.Expect(reason == Closed).To(Equal(c.closed), name)
		g.Expect(why == "no window is open; the next one opens Mon 2026-11-23 09:00 UTC").To(Equal(c.closed), name)
	}
}

// Who asks from outside is answered by the windows alone.
func TestUntilWhenWindowsAreClosed(t *testing.T) {
	g := NewWithT(t)
	message, until, err := ClosedUntil([]quoinv1.RolloutWindow{windowOf("09:00", 60, "")}, eight)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(message).To(Equal("no window is open; the next one opens Mon 2026-11-23 09:00 UTC"))
	g.Expect(until).To(Equal(eight.Add(time.Hour)))
	for _, windows := range [][]quoinv1.RolloutWindow{nil, {windowOf("08:00", 60, "")}, {windowOf("x", 60, "")}} {
		message, until, err = ClosedUntil(windows, eight)
		g.Expect(message).To(BeEmpty())
		g.Expect(until).To(BeZero())
		g.Expect(err != nil).To(Equal(len(windows) > 0 && windows[0].Start == "x"))
	}
}

// A window is where any look at it says, whatever moment that is: it opens at the time that its zone shows unless the
// clock is changed then, lasts as long as it says, and there is always a next one.
func TestWindowsAreTheSameFromEveryMoment(t *testing.T) {
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	rapidtest.CheckAll(t, 100, func(t *rapid.T) {
		zone := rapid.SampledFrom([]string{"", "Europe/Vienna", "America/New_York", "Australia/Lord_Howe",
			"Africa/Casablanca", "Asia/Kathmandu", "Pacific/Apia", "America/Santiago"}).Draw(t, "zone")
		minute := rapid.IntRange(0, 24*60-1).Draw(t, "start")
		start := time.Time{}.Add(time.Duration(minute) * time.Minute).Format("15:04")
		lasts := int32(rapid.IntRange(1, 20*60).Draw(t, "minutes"))
		windows := []quoinv1.RolloutWindow{windowOf(start, lasts, zone, "Sunday", "Wednesday")}
		now := begin.Add(time.Duration(rapid.IntRange(0, 365*24*60).Draw(t, "now")) * time.Minute)
		s, err := scheduled(windows, now)
		if err != nil {
			t.Fatal(err)
		}
		from := s.next.from
		if !from.After(now) || from.Sub(now) > 5*24*time.Hour || s.next.to.Sub(from) != time.Duration(lasts)*time.Minute {
			t.Fatalf("at %s the next is %s to %s", now, from, s.next.to)
		}
		changes, _ := from.ZoneBounds()
		if from.Format("15:04") != start && !from.Equal(changes) {
			t.Fatalf("it opens at %s", from)
		}
		within := from.Add(time.Duration(rapid.IntRange(0, int(lasts)-1).Draw(t, "within")) * time.Minute)
		then, err := scheduled(windows, within)
		if err != nil || then.open == nil || !then.open.from.Equal(from) || !then.open.to.Equal(s.next.to) {
			t.Fatalf("seen at %s it opens %s, and at %s %+v", now, from, within, then)
		}
	})
}
