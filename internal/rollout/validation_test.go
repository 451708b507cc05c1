// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
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
)

// looks is what looks find in the model of a Cluster.
type looks struct {
	record *quoinv1.RolloutValidationStatus
	// finding of every look; empty when looks find nothing. Where it is of one pool, others do not see it.
	finding, pool string
	// flapping: every other look fails.
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
	if f.looks.finding != "" && (f.looks.pool == "" || f.looks.pool == look.Pool) ||
		f.looks.flapping && f.looks.made%2 == 0 {
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
	rapid.Check(t, func(t *rapid.T) {
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
			f.heal()
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
		flying[d.name] = flying[d.name] || d.begun()
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
	for i := range 100 {
		look.Machines = append(look.Machines, Subject{Name: strings.Repeat("m", i+1), Since: at})
	}
	record = Looked(record, look, passed, at)
	g.Expect(record.Machines).To(HaveLen(64))
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
