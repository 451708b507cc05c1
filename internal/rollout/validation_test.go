// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/rapidtest"
)

// looks is what looks find in the model of a Cluster.
type looks struct {
	record *quoinv1.RolloutValidationStatus
	// finding of every look; empty when looks find nothing. Where it is of one pool, others do not see it.
	finding, pool string
	// flapping: every other look fails, and none between these.
	flapping bool
	// spoiled are templates with whose Machines looks find something.
	spoiled map[int]bool
	made    int
	// seen is by look what it was about, whether it found nothing, and when.
	seen []lookMade
}

type lookMade struct {
	pool     string
	machines []string
	passed   bool
	at       time.Time
}

// look is made where one is due, and what it found is decided by at once.
func (f *fleet) look() {
	look := f.result.Look
	f.looks.record = f.result.Validation
	if look == nil || look.Due.After(f.now) {
		return
	}
	f.looks.made++
	result := quoinv1.RolloutCheckResult{Name: "Pods", Status: quoinv1.RolloutCheckPassed}
	finds := f.looks.finding != ""
	if f.looks.flapping {
		finds = f.looks.made%2 == 0
	}
	if finds && (f.looks.pool == "" || f.looks.pool == look.Pool) {
		result.Status, result.Message = quoinv1.RolloutCheckFailed, f.looks.finding
	}
	for _, m := range look.Machines {
		if n := f.pool(look.Pool).node(m.Name); f.looks.spoiled[n.template] {
			result.Status, result.Machines = quoinv1.RolloutCheckFailed, append(result.Machines, m.Name)
			result.Message = "a pod on Node " + m.Name + " is not ready"
		}
	}
	made := lookMade{pool: look.Pool, passed: result.Status == quoinv1.RolloutCheckPassed, at: f.now}
	for _, m := range look.Machines {
		made.machines = append(made.machines, m.Name)
	}
	f.looks.seen = append(f.looks.seen, made)
	f.looks.record = Looked(f.looks.record, look, []quoinv1.RolloutCheckResult{result}, f.now)
	f.result = Plan(f.state(), &f.policy, f.now)
	f.looks.record = f.result.Validation
}

func (l *looks) spoil(template int, is bool) {
	if l.spoiled == nil {
		l.spoiled = map[int]bool{}
	}
	l.spoiled[template] = is
}

// validates does the commands of scripts that are about looks:
//
//	looks find [pool]    and what they find, at every look; nothing when that is empty
//	looks flap           and what every other one finds
//	looks spoiled <pool>, looks mended <pool>    they find something on Machines of the present template, or not
func (f *fleet) validates(d *datadriven.TestData) bool {
	if d.Cmd != "looks" {
		return false
	}
	if what := d.CmdArgs[0].Key; what == "spoiled" || what == "mended" {
		f.looks.spoil(f.pool(d.CmdArgs[1].Key).template, what == "spoiled")
		return true
	}
	f.looks.finding, f.looks.flapping, f.looks.pool = strings.TrimSpace(d.Input), d.CmdArgs[0].Key == "flap", ""
	if f.looks.flapping {
		f.looks.made = 1
	}
	if len(d.CmdArgs) > 1 {
		f.looks.pool = d.CmdArgs[1].Key
	}
	return true
}

// proved says what is missing for a Machine to count, by the looks alone.
func (l *looks) proved(pool, machine string, healthy, now time.Time, enough int) string {
	passed, last := 0, time.Time{}
	for _, look := range l.seen {
		switch {
		case look.pool != pool:
		case !look.passed:
			passed = 0
		case slices.Contains(look.machines, machine) && !look.at.Before(healthy):
			passed++
			last = look.at
		}
	}
	switch {
	case passed < enough:
		return "too few looks in a row found nothing"
	case now.Sub(last) >= time.Minute:
		return "the last look is too old"
	}
	return ""
}

// Whatever happens to Machines, looks and the record of them, no Machine counts and none is admitted alone without the
// looks that the policy asks for, and it ends when looks find nothing.
//
// Proves: S3-10, S3-21, K-7
func TestNothingCountsThatLooksDidNotProve(t *testing.T) {
	rapidtest.CheckAll(t, 100, func(t *rapid.T) {
		f := drawn(t)
		enough := rapid.IntRange(1, 4).Draw(t, "threshold")
		f.policy.Validation = &quoinv1.RolloutValidation{SuccessThreshold: ptr.To(int32(enough)),
			TimeoutSeconds: ptr.To(int32(rapid.IntRange(60, 900).Draw(t, "timeout")))}
		for range rapid.IntRange(0, 120).Draw(t, "steps") {
			f.disturb(t)
			switch rapid.SampledFrom([]string{"", "", "", "", "find", "find in one", "nothing", "flap", "lost"}).Draw(t, "looks") {
			case "find":
				f.looks.finding, f.looks.pool = "a pod is not ready", ""
			case "find in one":
				f.looks.finding, f.looks.pool = "a pod is not ready", rapid.SampledFrom(f.pools).Draw(t, "in").name
			case "nothing":
				f.looks.finding, f.looks.flapping = "", false
			case "flap":
				f.looks.flapping = true
			case "lost":
				f.looks.record = nil
			}
			f.validatedStep(t, enough)
			if f.result.PausedAfter != "" && rapid.Bool().Draw(t, "continues") {
				f.policy.ContinueAfter = f.result.PausedAfter
			}
		}
		f.looks.finding, f.looks.flapping = "", false
		for range 4000 {
			f.heal(true)
			f.policy.ContinueAfter = f.result.PausedAfter
			f.validatedStep(t, enough)
			if f.settled() {
				return
			}
		}
		t.Fatalf("it does not end: %s\n%s\n%+v", f.draw(), f.says(), strings.Join(f.lines(), "\n"))
	})
}

func (f *fleet) validatedStep(t *rapid.T, enough int) {
	flying, available := map[string]bool{}, map[string]bool{}
	for _, d := range f.pools {
		for _, n := range d.machines {
			available[n.name] = n.available()
			flying[d.name] = flying[d.name] || n.occupies() && n.deleted.IsZero() && n.template == d.template &&
				(n.gated || !n.joined)
		}
		flying[d.name] = flying[d.name] || d.onDelete && f.begun(d)
	}
	at := f.now
	f.step(t)
	for _, d := range f.result.Decisions {
		switch {
		case d.Action == Count:
			n := f.pool(d.Pool).node(d.Machine)
			if n == nil {
				continue // it is gone meanwhile
			}
			if why := f.looks.proved(d.Pool, d.Machine, n.healthy, at, enough); why != "" {
				t.Fatalf("%s counts: %s", d.Machine, why)
			}
		case d.Action == Admit && d.Reason == Selected:
			flying[d.Pool] = true // it was looked at before what it takes the place of was deleted
		case f.pool(d.Pool).onDelete == (d.Action == Delete) && (d.Reason == First || d.Reason == Next):
			if flying[d.Pool] || d.Action == Delete && !available[d.Machine] {
				continue // what is broken keeps the Cluster from being validated
			}
			flying[d.Pool] = true
			last := lookMade{}
			for _, look := range f.looks.seen {
				if look.pool == d.Pool {
					last = look
				}
			}
			if !last.passed || at.Sub(last.at) >= time.Minute {
				t.Fatalf("%s is replaced without a look: %+v", d.Machine, last)
			}
		}
	}
}

// The limits of what is remembered hold, and nothing of another specification counts.
func TestTheRecordIsBounded(t *testing.T) {
	g := NewWithT(t)
	at := time.Date(2026, 11, 23, 8, 0, 0, 0, time.UTC)
	look := &Look{Pool: "blue", Digest: "a", Validation: &quoinv1.RolloutValidation{}}
	passed := []quoinv1.RolloutCheckResult{{Name: "Nodes", Status: quoinv1.RolloutCheckPassed}}
	var record *quoinv1.RolloutValidationStatus
	for i := range 101 {
		look.Machines = append(look.Machines, Subject{Name: strings.Repeat("m", i+1), Since: at})
	}
	record = Looked(record, look, passed, at)
	g.Expect(record.Machines).To(HaveLen(64))
	g.Expect(record.Machines[0].Name).To(HaveLen(101-63), "the last are kept")
	g.Expect(record.Successes).To(HaveValue(BeEquivalentTo(1)))
	later := at.Add(10 * time.Second)
	record = Looked(record, look, passed, later)
	g.Expect(record.Successes).To(HaveValue(BeEquivalentTo(2)))
	g.Expect(record.Results[0].Since.Time.Equal(at)).To(BeTrue(), "it passes since the first look")
	g.Expect(record.LastLookTime.Time.Equal(later)).To(BeTrue())
	look.Digest = "b"
	record = Looked(record, look, passed, later)
	g.Expect(record.Successes).To(HaveValue(BeEquivalentTo(1)))
	// A Machine that was not healthy in between begins anew, also where no look saw it.
	look.Machines = []Subject{{Name: "m", Since: later}}
	record = Looked(record, look, passed, later.Add(time.Minute))
	i := slices.IndexFunc(record.Machines, func(m quoinv1.RolloutValidatedMachine) bool { return m.Name == "m" })
	g.Expect(record.Machines[i].Successes).To(BeEquivalentTo(1))
	// A failure takes back what the pool had, and nothing of others.
	record.Machines = append(record.Machines[:3], quoinv1.RolloutValidatedMachine{Name: "other", MachineDeployment: "green"})
	record = Looked(record, look, []quoinv1.RolloutCheckResult{{Name: "Nodes", Status: quoinv1.RolloutCheckFailed}}, later)
	g.Expect(record.Machines).To(ConsistOf(HaveField("Name", "other")))
	g.Expect(record.Results[0].Since).To(Equal(metav1.NewTime(later)))
}

// A record proves a Machine only as it was when it was looked at, by the specification of now, and not for long.
func TestARecordProvesNothingElse(t *testing.T) {
	now := time.Date(2026, 11, 23, 8, 0, 0, 0, time.UTC)
	policy := &quoinv1.RolloutPolicySpec{Validation: &quoinv1.RolloutValidation{}}
	since := now.Add(-time.Hour)
	for name, c := range map[string]struct {
		change func(*quoinv1.RolloutValidationStatus)
		want   Reason
	}{
		"it is proved":          {func(*quoinv1.RolloutValidationStatus) {}, Validated},
		"another specification": {func(r *quoinv1.RolloutValidationStatus) { r.Digest = "other" }, Validating},
		"it was not healthy in between": {func(r *quoinv1.RolloutValidationStatus) {
			r.Machines[0].HealthySince = metav1.NewTime(since.Add(-time.Second))
		}, Validating},
		"another Machine": {func(r *quoinv1.RolloutValidationStatus) { r.Machines[0].Name = "other" }, Validating},
		"a minute ago": {func(r *quoinv1.RolloutValidationStatus) {
			r.Machines[0].LastLookTime = metav1.NewTime(now.Add(-time.Minute))
		}, Validating},
		"too few": {func(r *quoinv1.RolloutValidationStatus) { r.Machines[0].Successes = 1 }, Validating},
	} {
		record := &quoinv1.RolloutValidationStatus{MachineDeployment: "blue", Digest: validationDigest(policy),
			Since: metav1.NewTime(now.Add(-20 * time.Second)), LastLookTime: metav1.NewTime(now), Successes: ptr.To[int32](2),
			Machines: []quoinv1.RolloutValidatedMachine{{Name: "new", MachineDeployment: "blue", Successes: 2,
				HealthySince: metav1.NewTime(since), LastLookTime: metav1.NewTime(now)}}}
		c.change(record)
		pool := Pool{Name: "blue", Replicas: 1, Revision: "2", Completed: "1", Machines: []Machine{
			{Name: "old", Outdated: true, Hosted: true, Joined: true},
			{Name: "new", Hosted: true, Admitted: since, Gated: true, Joined: true, Since: since}}}
		result := Plan(State{Validation: record, Pools: []Pool{pool}}, policy, now)
		NewWithT(t).Expect(result.Decisions[0].Reason).To(Equal(c.want), name)
	}
}

// What is remembered after looks in a row, and when it is due to have found nothing.
func TestWhatLooksProve(t *testing.T) {
	g := NewWithT(t)
	look := &Look{Pool: "blue", Digest: "a", Validation: &quoinv1.RolloutValidation{SuccessThreshold: ptr.To[int32](3)},
		Machines: []Subject{{Name: "a", Since: eight}, {Name: "b", Since: eight}}}
	of := func(names ...string) (results []quoinv1.RolloutCheckResult) {
		for _, name := range names {
			result := quoinv1.RolloutCheckResult{Name: strings.ToLower(name), Status: quoinv1.RolloutCheckPassed}
			if result.Name != name {
				result.Status, result.Message = quoinv1.RolloutCheckFailed, strings.Repeat(name, 2000)
			}
			results = append(results, result)
		}
		return results
	}
	record := &quoinv1.RolloutValidationStatus{Digest: "b", MachineDeployment: "blue", Successes: ptr.To[int32](2)}
	for i, c := range []struct {
		found string
		// since when it is looked at and each result is so, in seconds, and how often nothing was found.
		since     int
		results   []int
		successes int32
	}{
		{"x y", 0, []int{0, 0}, 1},
		{"x y", 0, []int{0, 0}, 2},
		{"X y", 0, []int{20, 0}, 0},
		{"X y", 0, []int{20, 0}, 0},
		{"x y", 0, []int{40, 0}, 1},
		{"x y", 0, []int{40, 0}, 2},
		{"x y z", 60, []int{40, 0, 60}, 3},
		{"x y z", 70, []int{40, 0, 60}, 3},
	} {
		at := func(seconds int) metav1.Time { return metav1.NewTime(eight.Add(time.Duration(seconds) * time.Second)) }
		record = Looked(record, look, of(strings.Fields(c.found)...), at(10*i).Add(time.Millisecond))
		g.Expect(record.Since).To(Equal(at(c.since)), "%d", i)
		g.Expect(record.LastLookTime).To(Equal(at(10*i)), "%d", i)
		for j, since := range c.results {
			g.Expect(record.Results[j].Since).To(Equal(at(since)), "%d", i)
		}
		g.Expect(record.Successes).To(HaveValue(Equal(c.successes)), "%d", i)
		g.Expect(len(failures(record))).To(Equal(map[bool]int{true: 1024}[c.successes == 0]))
		if c.successes == 0 {
			g.Expect(record.Machines).To(BeEmpty())
			continue
		}
		for j, name := range []string{"a", "b"} {
			g.Expect(record.Machines[j]).To(Equal(quoinv1.RolloutValidatedMachine{Name: name, MachineDeployment: "blue",
				Successes: c.successes, HealthySince: at(0), LastLookTime: at(10 * i)}))
		}
	}
	// Of another pool there is nothing but what is known of Machines.
	look.Pool, look.Machines = "green", nil
	known := record.Machines
	record = Looked(record, look, of("x"), eight)
	g.Expect(record.MachineDeployment).To(Equal("green"))
	g.Expect(record.Machines).To(Equal(known))
	g.Expect(record.Successes).To(HaveValue(BeEquivalentTo(1)))
}

// What looks proved holds while the policy says the same about all of them.
func TestAnotherSpecificationProvesNothing(t *testing.T) {
	policy := &quoinv1.RolloutPolicySpec{Groups: []quoinv1.RolloutGroup{{Name: "a"}}}
	was := validationDigest(policy)
	for _, change := range []func(){
		func() { policy.Validation = &quoinv1.RolloutValidation{} },
		func() { policy.Groups[0].Name = "b" },
		func() { policy.Groups[0].Validation = &quoinv1.RolloutValidation{} },
	} {
		change()
		is := validationDigest(policy)
		NewWithT(t).Expect(is).NotTo(Equal(was))
		was = is
	}
}

// lookedAt is a pool whose new Machine is validated, what is known of it, and the policy that asks for it.
func lookedAt() (State, *quoinv1.RolloutPolicySpec) {
	policy := &quoinv1.RolloutPolicySpec{Validation: &quoinv1.RolloutValidation{}}
	since := eight.Add(-time.Hour)
	return State{Pools: []Pool{{Name: "blue", Replicas: 1, Revision: "2", Completed: "1", Stock: Limits{Surge: 1},
		Machines: []Machine{{Name: "old", Outdated: true, Hosted: true, Joined: true, Available: true},
			{Name: "new", Hosted: true, Gated: true, Joined: true, Since: since}}}},
		Validation: &quoinv1.RolloutValidationStatus{MachineDeployment: "blue", Digest: validationDigest(policy),
			Since: metav1.NewTime(eight.Add(-time.Minute)), LastLookTime: metav1.NewTime(eight.Add(-3 * time.Second)),
			Successes: ptr.To[int32](1), Machines: []quoinv1.RolloutValidatedMachine{{Name: "new", MachineDeployment: "blue",
				Successes: 1, HealthySince: metav1.NewTime(since), LastLookTime: metav1.NewTime(eight)}}}}, policy
}

// No more Machines are looked at together than may be remembered.
func TestALookIsOfSoManyMachines(t *testing.T) {
	s, policy := lookedAt()
	for i := range 70 {
		s.Pools[0].Machines = append(s.Pools[0].Machines, s.Pools[0].Machines[1])
		s.Pools[0].Machines[i+2].Name = fmt.Sprint(i)
	}
	NewWithT(t).Expect(Plan(s, policy, eight).Look.Machines).To(HaveLen(mostSubjects))
}

// When the next look is made, and what is kept of those before it.
func TestWhenTheNextLookIsMade(t *testing.T) {
	fails := func(s *State, _ *quoinv1.RolloutPolicySpec) {
		s.Validation.Results = []quoinv1.RolloutCheckResult{{Name: "Pods", Message: "one is ill"}}
	}
	green := func(s *State, _ *quoinv1.RolloutPolicySpec) {
		another := s.Pools[0]
		another.Name = "green"
		s.Pools = append(s.Pools, another)
	}
	for name, c := range map[string]struct {
		change func(*State, *quoinv1.RolloutPolicySpec)
		// of is the pool that is looked at, after so long; again is when it is to be decided anew.
		of           string
		after, again time.Duration
		known        int
	}{
		"in ten seconds":                      {func(*State, *quoinv1.RolloutPolicySpec) {}, "blue", 7 * time.Second, 7 * time.Second, 1},
		"in thirty where something was found": {fails, "blue", 27 * time.Second, 27 * time.Second, 1},
		"as the policy says": {func(s *State, policy *quoinv1.RolloutPolicySpec) {
			policy.Validation.IntervalSeconds = ptr.To[int32](20)
			s.Validation.Digest = validationDigest(policy)
		}, "blue", 17 * time.Second, 17 * time.Second, 1},
		"as the policy says where something was found": {func(s *State, policy *quoinv1.RolloutPolicySpec) {
			fails(s, policy)
			policy.Validation.FailureIntervalSeconds = ptr.To[int32](4)
			s.Validation.Digest = validationDigest(policy)
		}, "blue", time.Second, time.Second, 1},
		"now": {func(s *State, _ *quoinv1.RolloutPolicySpec) {
			s.Validation.LastLookTime = metav1.NewTime(eight.Add(-10 * time.Second))
		}, "blue", 0, 14 * time.Minute, 1},
		"now, since nothing is known": {func(s *State, _ *quoinv1.RolloutPolicySpec) { s.Validation = nil }, "blue", 0, 0, 0},
		"now, since it is long ago": {func(s *State, _ *quoinv1.RolloutPolicySpec) {
			long := metav1.NewTime(eight.Add(-time.Minute))
			s.Validation.Since, s.Validation.LastLookTime, s.Validation.Machines[0].LastLookTime = metav1.Time{}, long, long
		}, "blue", 0, 0, 0},
		"soon, since it is not long ago": {func(s *State, _ *quoinv1.RolloutPolicySpec) { s.Validation.Since = metav1.Time{} },
			"blue", 7 * time.Second, 7 * time.Second, 1},
		"the first pool comes first": {func(s *State, policy *quoinv1.RolloutPolicySpec) {
			green(s, policy)
			s.Validation = nil
		}, "blue", 0, 0, 0},
		"that which is looked at comes first": {func(s *State, policy *quoinv1.RolloutPolicySpec) {
			green(s, policy)
			s.Validation.MachineDeployment = "green"
		}, "green", 7 * time.Second, 7 * time.Second, 1},
		"that which was looked at does not": {func(s *State, policy *quoinv1.RolloutPolicySpec) {
			green(s, policy)
			s.Validation.MachineDeployment, s.Validation.Since = "green", metav1.Time{}
		}, "blue", 0, 0, 1},
		"now, since the clock was set back": {func(s *State, _ *quoinv1.RolloutPolicySpec) {
			ahead := metav1.NewTime(eight.Add(time.Hour))
			s.Validation.Since, s.Validation.LastLookTime, s.Validation.Machines[0].LastLookTime = ahead, ahead, ahead
		}, "blue", 0, 15 * time.Minute, 0},
		"never": {func(_ *State, policy *quoinv1.RolloutPolicySpec) {
			policy.Validation.SuccessThreshold = ptr.To[int32](0)
		}, "", 0, 0, 0},
		"never, since it is validated": {func(s *State, _ *quoinv1.RolloutPolicySpec) {
			s.Validation.Machines[0].Successes = 2
		}, "", 0, 14 * time.Minute, 1},
		"never, since it was validated and nothing may leave for it": {func(s *State, policy *quoinv1.RolloutPolicySpec) {
			s.Validation.Machines[0].Successes = 2
			s.Validation.Machines[0].LastLookTime = metav1.NewTime(eight.Add(-time.Hour))
			policy.Strategy = &quoinv1.RolloutStrategy{DrainAndTerminate: ptr.To(false)}
		}, "", 0, 14 * time.Minute, 1},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			s, policy := lookedAt()
			c.change(&s, policy)
			result := Plan(s, policy, eight)
			g.Expect(result.Again).To(Equal(c.again))
			if result.Validation != nil {
				g.Expect(result.Validation.Machines).To(HaveLen(c.known))
				g.Expect(result.Validation.Since.IsZero()).To(Equal(c.of == ""))
			}
			if c.of == "" {
				g.Expect(result.Look).To(BeNil())
				return
			}
			g.Expect(result.Look.Pool).To(Equal(c.of))
			g.Expect(result.Validation.MachineDeployment).To(Equal(c.of))
			g.Expect(result.Look.Machines).To(Equal([]Subject{{Name: "new", Since: eight.Add(-time.Hour)}}))
			if c.after == 0 {
				g.Expect(result.Look.Due.After(eight)).To(BeFalse())
			} else {
				g.Expect(result.Look.Due).To(BeTemporally("==", eight.Add(c.after)))
			}
		})
	}
}

// How far validation is said to be, of a Machine that is in flight.
func TestHowFarValidationIsSaidToBe(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*quoinv1.RolloutValidationStatus)
		want   string
	}{
		"half of it": {func(*quoinv1.RolloutValidationStatus) {},
			"the Cluster is validated: 1 of 2 looks in a row found nothing"},
		"all of it, but long ago": {func(r *quoinv1.RolloutValidationStatus) {
			r.Machines[0].Successes, r.Machines[0].LastLookTime = 2, metav1.NewTime(eight.Add(-time.Hour))
		}, "the Cluster is validated: 1 of 2 looks in a row found nothing"},
		"another pool comes first": {func(r *quoinv1.RolloutValidationStatus) { r.MachineDeployment = "green" },
			"it is validated after MachineDeployment green"},
	} {
		s, policy := lookedAt()
		c.change(s.Validation)
		d := Plan(s, policy, eight).Decisions[0]
		NewWithT(t).Expect(d.Machine+" "+string(d.Reason)).To(Equal("new Validating"), name)
		NewWithT(t).Expect(d.Message).To(Equal(c.want), name)
	}
}

// The Cluster is looked at before a Machine is admitted with no other one on its way.
func TestWhatIsLookedAtFirst(t *testing.T) {
	for name, c := range map[string]struct {
		change   func(*State)
		inFlight int
		want     string
	}{
		"nothing counts, and one look found nothing": {func(*State) {}, 0, ""},
		"one counts, and one look found nothing": {func(s *State) { s.Pools[0].Machines[1].Gated = false }, 0,
			"the Cluster is validated: 1 of 2 looks in a row found nothing"},
		"one counts, and another is on its way": {func(s *State) { s.Pools[0].Machines[1].Gated = false }, 1, ""},
		"one counts, and it is not known what looks found": {func(s *State) {
			s.Pools[0].Machines[1].Gated, s.Validation.Successes = false, nil
		}, 0, "the Cluster is validated: 0 of 2 looks in a row found nothing"},
		"one counts, and a look found nothing after a pause": {func(s *State) {
			s.Pools[0].Machines[1].Gated, s.Resumed = false, eight.Add(-3*time.Second)
		}, 0, "the Cluster is validated: 1 of 2 looks in a row found nothing"},
		"one counts, and a look found nothing before a pause": {func(s *State) {
			s.Pools[0].Machines[1].Gated, s.Resumed = false, eight.Add(-2*time.Second)
		}, 0, "the Cluster is validated: 0 of 2 looks in a row found nothing"},
	} {
		g := NewWithT(t)
		s, policy := lookedAt()
		c.change(&s)
		p := &planner{State: s, policy: policy, now: eight}
		pools, err := arrange(s.Pools, policy)
		g.Expect(err).NotTo(HaveOccurred())
		p.recall(pools)
		_, why := p.validatesFirst(&pools[0], &room{inFlight: c.inFlight})
		g.Expect(why).To(Equal(c.want), name)
	}
}

// Of looks that nobody acted on for long nothing is kept but what was proved of other pools.
func TestLooksOfLongAgoAreForgotten(t *testing.T) {
	for ago, kept := range map[time.Duration]bool{59 * time.Second: true, time.Minute: false} {
		g := NewWithT(t)
		s, policy := lookedAt()
		at := metav1.NewTime(eight.Add(-ago))
		s.Validation.Since, s.Validation.LastLookTime, s.Validation.Machines[0].LastLookTime = metav1.Time{}, at, at
		s.Validation.Results = []quoinv1.RolloutCheckResult{{Name: "Pods", Status: quoinv1.RolloutCheckPassed}}
		record := Plan(s, policy, eight).Validation
		g.Expect(record.Successes != nil).To(Equal(kept), "%s", ago)
		g.Expect(len(record.Results) > 0).To(Equal(kept), "%s", ago)
		g.Expect(!record.LastLookTime.IsZero()).To(Equal(kept), "%s", ago)
		g.Expect(len(record.Machines) > 0).To(Equal(kept), "%s", ago)
	}
}

// Validation fails when it takes too long, of the pool that is looked at and may be replaced.
func TestWhenValidationFails(t *testing.T) {
	since := func(ago time.Duration) func(*State, *quoinv1.RolloutPolicySpec) {
		return func(s *State, _ *quoinv1.RolloutPolicySpec) { s.Validation.Since = metav1.NewTime(eight.Add(-ago)) }
	}
	const failed = "MachineDeployment blue was not validated within 15m0s: looks that found nothing were too few. Mend that, " +
		"or take the template before, or suspend its group; a successThreshold of 0 goes on without validation"
	for name, c := range map[string]struct {
		change func(*State, *quoinv1.RolloutPolicySpec)
		want   string
		again  time.Duration
	}{
		"it takes too long":     {since(15 * time.Minute), failed, 7 * time.Second},
		"it does not take long": {since(15*time.Minute - time.Second), "", time.Second},
		"it was not looked at":  {func(s *State, _ *quoinv1.RolloutPolicySpec) { s.Validation.Since = metav1.Time{} }, "", 7 * time.Second},
		"its pool is left alone": {func(s *State, policy *quoinv1.RolloutPolicySpec) {
			since(15*time.Minute)(s, policy)
			s.Pools[0].Paused = true
		}, "", 0},
		"it is of another pool": {func(s *State, policy *quoinv1.RolloutPolicySpec) {
			since(15*time.Minute)(s, policy)
			s.Validation.MachineDeployment = "green"
		}, "", 0},
	} {
		g := NewWithT(t)
		s, policy := lookedAt()
		c.change(&s, policy)
		result := Plan(s, policy, eight)
		g.Expect(result.Stalled).To(Equal(c.want), name)
		g.Expect(result.Cause).To(Equal(map[bool]Reason{true: ValidationFailed}[c.want != ""]), name)
		g.Expect(result.Again).To(Equal(c.again), name)
	}
}

// What is known of a Machine is kept while that is as it was, and what is known of others is of no use.
func TestWhatIsKeptOfLooks(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*State)
		keeps  bool
	}{
		"it is as it was":          {func(*State) {}, true},
		"it counts":                {func(s *State) { s.Pools[0].Machines[1].Gated = false }, false},
		"it is deleted":            {func(s *State) { s.Pools[0].Machines[1].Deleting = true }, false},
		"it is ill":                {func(s *State) { s.Pools[0].Machines[1].Unhealthy = "ill" }, false},
		"it was ill":               {func(s *State) { s.Pools[0].Machines[1].Since = eight }, false},
		"it is of another name":    {func(s *State) { s.Pools[0].Machines[1].Name = "newer" }, false},
		"it is of another pool":    {func(s *State) { s.Validation.Machines[0].MachineDeployment = "green" }, false},
		"there was a pause before": {func(s *State) { s.Resumed = eight }, true},
		"there was a pause since":  {func(s *State) { s.Resumed = eight.Add(time.Second) }, false},
	} {
		s, policy := lookedAt()
		c.change(&s)
		p := &planner{State: s, policy: policy, now: eight}
		pools, err := arrange(s.Pools, policy)
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
		p.recall(pools)
		NewWithT(t).Expect(len(p.validation.record.Machines) == 1).To(Equal(c.keeps), name)
	}
}
