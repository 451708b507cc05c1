// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/rapidtest"
)

const byUs, byThem = "ours", "theirs"

// emptiest is the failure domain with the fewest Machines that do not leave, which placement takes a host of.
func (d *deployment) emptiest() string {
	if len(d.domains) == 0 {
		return ""
	}
	has := map[string]int{}
	for _, n := range d.machines {
		if n.deleted.IsZero() {
			has[n.domain]++
		}
	}
	return slices.MinFunc(d.domains, func(a, b string) int { return has[a] - has[b] })
}

// scaleDownOnDelete takes what is above the replicas from the old MachineSets, the oldest first.
func (d *deployment) scaleDownOnDelete(current *set) {
	down := -d.replicas
	for _, s := range d.sets {
		down += s.replicas
	}
	for _, s := range d.sets {
		if s != current {
			by := max(0, min(s.replicas, down))
			s.replicas -= by
			down -= by
		}
	}
}

func (d *deployment) departure(n *node) Departure {
	made := slices.IndexFunc(d.sets, func(s *set) bool { return s.template == n.template })
	return Departure{Domain: n.domain, Last: n.last, Set: fmt.Sprint(n.template),
		SetMade: time.Unix(int64(made), 0), Marked: n.mark != "", MarkedByUs: n.mark == byUs,
		Condemned: n.condemned}
}

// leaves does what was decided about a Machine that is to leave, or is not.
func (n *node) leaves(d Decision, now time.Time) {
	switch d.Action {
	case Delete:
		n.condemned = true
		if !n.undeletable {
			n.deleted = now
		}
	case Mark:
		n.mark = byUs
	case Unmark:
		n.mark = ""
	}
}

// leaving is a command of a script: "last <machine>", "mark <machine>", which a person does, and "domains <pool>", which
// names the failure domain of each Machine and who is marked.
func (f *fleet) leaving(t *testing.T, d *datadriven.TestData) string {
	for _, p := range f.pools {
		switch n := p.node(d.CmdArgs[0].Key); {
		case n != nil && d.Cmd == "last":
			n.last = true
		case n != nil && d.Cmd == "mark":
			n.mark = byThem
		case d.Cmd == "domains" && p.name == d.CmdArgs[0].Key:
			var text strings.Builder
			for _, n := range p.machines {
				fmt.Fprintf(&text, "%s\n", strings.TrimSpace(strings.Join([]string{n.name, n.domain, n.mark}, " ")))
			}
			return text.String()
		default:
			continue
		}
		return ""
	}
	t.Fatalf("%s: no such thing", d.CmdArgs[0].Key)
	return ""
}

// widen what is drawn with all that has a say in who leaves.
func (f *fleet) widen(t *rapid.T) {
	for _, d := range f.pools {
		if d.onDelete = rapid.Bool().Draw(t, "onDelete"); d.onDelete {
			d.surge, d.unavailable = 0, 0
		}
		d.newest = rapid.Bool().Draw(t, "newest")
		d.domains = []string{"a", "b", "c"}[:rapid.IntRange(0, 3).Draw(t, "domains")]
		for _, n := range d.machines {
			n.last = rapid.IntRange(0, 4).Draw(t, "last") == 0
			if len(d.domains) > 0 {
				n.domain = rapid.SampledFrom(d.domains).Draw(t, "domain")
			}
		}
	}
	if !rapid.Bool().Draw(t, "waves") {
		return
	}
	if f.policy.Strategy == nil {
		f.policy.Strategy = ptr.To(strategy("3", ""))
	}
	f.policy.Strategy.Waves = quoinv1.RolloutWavesFailureDomain
	f.policy.Strategy.MaxUnavailable = ptr.To(intstr.FromInt32(int32(rapid.IntRange(1, 3).Draw(t, "maxUnavailable"))))
	if rapid.Bool().Draw(t, "minimum") {
		f.policy.Strategy.MinAvailable = ptr.To(intstr.FromString("60%"))
	}
}

// permit has nothing be impossible any more.
func (f *fleet) permit() {
	if f.policy.Strategy != nil {
		f.policy.Strategy.MinAvailable = nil
	}
}

// marks has a person mark a Machine.
func (f *fleet) marks(d *deployment, which int) {
	if which < len(d.machines) && d.machines[which].mark == "" {
		d.machines[which].mark = byThem
	}
}

// outbids reports whether a mark has a Machine that works go before one that does not. Where nothing else moves a
// MachineDeployment gives up one that never became available (machinedeployment_rollout_rollingupdate.go,
// reconcileDeadlockBreaker), and its MachineSet takes the marked one for it. A rollout that looks moves its own mark in
// time (first); a person's stays, and nobody moves any while the policy is paused.
func (f *fleet) outbids(d *deployment) bool {
	marked := func(n *node) bool { return n.deleted.IsZero() && (n.mark == byThem || f.idle && n.mark == byUs) }
	lacks := func(n *node) bool { return n.deleted.IsZero() && !n.available() }
	return slices.ContainsFunc(d.machines, marked) && slices.ContainsFunc(d.machines, lacks)
}

// begun reports whether a Machine of the deployment is missing that was deleted for the rollout. One that Cluster API
// deleted is so once it is drained.
func (f *fleet) begun(d *deployment) bool {
	there := 0
	for _, n := range d.machines {
		if (n.deleted.IsZero() || n.preDrain && !d.onDelete) && n.occupies() && !n.gated {
			there++
		}
	}
	return (d.onDelete || f.policy.Drain != nil) && there < d.replicas
}

// may is how many of the deployment may be missing.
func (f *fleet) may(d *deployment) int {
	if !d.onDelete {
		return max(d.unavailable, 1-min(d.surge, 1))
	}
	if f.policy.Strategy == nil || f.policy.Strategy.MaxUnavailable == nil {
		return 1
	}
	return f.policy.Strategy.MaxUnavailable.IntValue()
}

// least is how many have to be available.
func (f *fleet) least(d *deployment) int {
	least := d.replicas - f.may(d)
	if d.onDelete {
		least = max(least, f.minimum(d))
	}
	return least
}

// minimum is how many of the deployment the policy asks for.
func (f *fleet) minimum(d *deployment) int {
	if f.policy.Strategy == nil || f.policy.Strategy.MinAvailable == nil {
		return 0
	}
	return (d.replicas*60 + 99) / 100
}

// refuses reports whether the policy asks for more of the deployment than its replacement leaves.
func (f *fleet) refuses(d *deployment) bool {
	missing := d.unavailable
	if d.onDelete {
		missing = 1
	}
	return d.replicas-missing < f.minimum(d)
}

// judgeLeaving holds a deletion against the promises, by what there was before it, and has ours never touch another's
// mark.
func (f *fleet) judgeLeaving(t *rapid.T, d Decision, before map[string]*node) {
	pool, was := f.pool(d.Pool), before[d.Machine]
	if d.Action != Delete {
		if was.mark == byThem {
			t.Fatalf("%s %s, which a person marked", d.Action, d.Machine)
		}
		return
	}
	if d.Reason == Selected || d.Reason == NoSpare {
		return // see selection_test.go and nospare_test.go
	}
	if d.Reason == Outdated {
		pool.judgeWay(t, d.Machine)
		return
	}
	there, known, available := 0, 0, 0
	for _, n := range pool.machines {
		b := before[n.name]
		switch {
		case !b.deleted.IsZero() || !b.occupies():
		case b.template != pool.template:
			there++
		case !b.gated && b.joined:
			there++
			known++
		}
		if b.available() {
			available++
		}
	}
	switch {
	case !pool.onDelete || was.template == pool.template || !was.deleted.IsZero():
		t.Fatalf("%s is deleted: %+v", d.Machine, was)
	case f.unhealthy != "" || f.outdated != "" || pool.node(f.result.PausedAfter) != nil:
		t.Fatalf("%s is deleted while something speaks against it", d.Machine)
	case known == 0 && there < pool.replicas:
		t.Fatalf("%s is deleted beside a canary", d.Machine)
	case was.available() && available <= f.least(pool):
		t.Fatalf("%s is deleted with %d available of at least %d", d.Machine, available, f.least(pool))
	case there <= pool.replicas-f.may(pool):
		t.Fatalf("%s is deleted with %d there of %d", d.Machine, there, pool.replicas)
	}
}

// witness who is available before others move.
func (f *fleet) witness() {
	if f.seen == nil {
		f.seen = map[*node]bool{}
	}
	for _, d := range f.pools {
		for _, n := range d.machines {
			if n.deleted.IsZero() {
				f.seen[n] = n.available()
			}
		}
	}
}

// scattered says which pool loses Machines of two failure domains although waves are asked for, or has more new ones
// than it replaces (S3-30); empty when none does. What was not available is no loss, a person's mark is their own
// choice, what may be missing Cluster API takes at every edit without asking, and the oldest of several templates first.
func (f *fleet) scattered() string {
	for _, d := range f.pools {
		if d.touched {
			continue
		}
		if young := d.of(d.template, func(n *node) bool { return n.deleted.IsZero() && n.occupies() }); young > d.replicas {
			return fmt.Sprintf("%s has %d new Machines for %d", d.name, young, d.replicas)
		}
		domain, leaves, template := "", "", 0
		for _, n := range d.machines {
			if n.deleted.IsZero() || n.preDrain || !f.seen[n] || n.mark == byThem || d.unavailable > 0 || f.policy.Strategy == nil ||
				f.policy.Strategy.Waves == "" {
				continue
			}
			if leaves != "" && n.domain != domain && n.template == template {
				return fmt.Sprintf("%s of %s leaves beside %s of %s", n.name, n.domain, leaves, domain)
			}
			domain, leaves, template = n.domain, n.name, n.template
		}
	}
	return ""
}

// Proves: S3-13, S3-30
//
// However many may leave at once, they are of one failure domain, whoever deletes them, and a second template in the
// middle changes nothing about it.
func TestOneFailureDomainAtATime(t *testing.T) {
	rapidtest.CheckAll(t, 100, func(t *rapid.T) {
		f := newFleet()
		d := &deployment{name: "blue", template: 1, replicas: rapid.IntRange(2, 8).Draw(t, "replicas"),
			surge:  rapid.IntRange(1, 3).Draw(t, "surge"),
			newest: rapid.Bool().Draw(t, "newest"), domains: []string{"a", "b", "c"}}
		if d.onDelete = rapid.Bool().Draw(t, "onDelete"); d.onDelete {
			d.surge = 0
		}
		d.whole(f.now)
		for _, n := range d.machines {
			n.last = rapid.IntRange(0, 4).Draw(t, "last") == 0
			n.domain = rapid.SampledFrom(d.domains).Draw(t, "domain")
		}
		f.pools = []*deployment{d}
		f.policy.SoakSeconds = ptr.To(int32(rapid.IntRange(0, 60).Draw(t, "soak")))
		f.policy.Strategy = ptr.To(strategy("3", fmt.Sprint(rapid.IntRange(1, 3).Draw(t, "maxUnavailable"))))
		f.policy.Strategy.Waves = quoinv1.RolloutWavesFailureDomain
		if rapid.Bool().Draw(t, "drains") {
			f.policy.Drain = &quoinv1.RolloutDrain{IntervalSeconds: ptr.To(rapid.Int32Range(0, 300).Draw(t, "interval"))}
			for _, n := range d.machines {
				n.pods = rapid.IntRange(0, 1).Draw(t, "pods")
			}
		}
		again := rapid.IntRange(2, 100).Draw(t, "again")
		for i := range 1000 {
			if i == 1 || i == again {
				d.template++
			}
			f.step(t)
			if why := cmp.Or(f.lacking(), f.scattered()); why != "" {
				t.Fatalf("%s: %s", why, f.draw())
			}
			if i > again && f.settled() {
				return
			}
		}
		t.Fatalf("it does not end: %s\n%s", f.draw(), strings.Join(f.lines(), "\n"))
	})
}

// Fewer Machines would be available than the policy asks for where each replacement leaves too many missing.
func TestTooFewWouldBeAvailable(t *testing.T) {
	const asks = "minAvailable asks for %d Machines of MachineDeployment blue, which has %d replicas"
	for name, c := range map[string]struct {
		onDelete                     bool
		replicas, least, unavailable int
		want                         string
	}{
		"nothing is asked for, and nothing is there": {true, 0, 0, 0, ""},
		"one may be missing":                         {true, 2, 1, 0, ""},
		"one is missing of one": {true, 1, 1, 0,
			". Each replacement leaves one missing, since its strategy is OnDelete: lower minAvailable"},
		"one is missing of two": {true, 2, 2, 0,
			". Each replacement leaves one missing, since its strategy is OnDelete: lower minAvailable"},
		"none is missing":        {false, 3, 3, 0, ""},
		"as many may be missing": {false, 3, 1, 2, ""},
		"too many may be missing": {false, 4, 3, 3,
			". Cluster API lets 3 be missing: set maxUnavailable of MachineDeployment blue to 1, or lower minAvailable"},
		"one may be missing of all that are asked for": {false, 1, 1, 1,
			". Cluster API lets 1 be missing: set maxUnavailable of MachineDeployment blue to 0, or lower minAvailable"},
		"more are asked for than there are": {false, 3, 4, 0, ": lower it, or give a percentage"},
		"more than a rollout deletes of":    {true, 3, 4, 0, ": lower it, or give a percentage"},
	} {
		r := &rules{Pool: Pool{Name: "blue", Replicas: c.replicas, OnDelete: c.onDelete,
			Stock: Limits{Unavailable: c.unavailable}}, leaving: leaving{least: c.least}}
		if c.want != "" {
			c.want = fmt.Sprintf(asks, c.least, c.replicas) + c.want
		}
		NewWithT(t).Expect(r.tooFew()).To(Equal(c.want), name)
		if c.onDelete {
			r.limits.Unavailable = 1
		} else {
			r.limits.Surge = 1
		}
		NewWithT(t).Expect(r.contradiction()).To(Equal(c.want), name)
	}
}

// Where nothing may be missing and nothing is made beforehand nothing is replaced.
func TestLimitsThatContradictEachOther(t *testing.T) {
	for _, c := range []struct {
		onDelete      bool
		limits, stock Limits
		want          string
	}{
		{true, Limits{Unavailable: 1}, Limits{}, ""},
		{true, Limits{}, Limits{Unavailable: 1},
			"the policy lets no Machine be missing, and MachineDeployment blue makes " +
				"none beforehand, since its strategy is OnDelete: set the policy's maxUnavailable to 1 or more for it"},
		{false, Limits{Surge: 1}, Limits{Surge: 1}, ""},
		{false, Limits{}, Limits{Unavailable: 1}, ""},
		{false, Limits{}, Limits{Surge: 1}, "the policy allows no surge, and MachineDeployment blue lets no Machine be " +
			"missing: set maxUnavailable of MachineDeployment blue to 1 or more, or the policy's maxSurge"},
	} {
		r := &rules{Pool: Pool{Name: "blue", Replicas: 3, OnDelete: c.onDelete, Stock: c.stock}, limits: c.limits}
		NewWithT(t).Expect(r.contradiction()).To(Equal(c.want), "%+v", c)
	}
}

// A pool is begun whose Machines a rollout deletes, or drains, and of which one is missing or on its way.
func TestWhichPoolIsBegun(t *testing.T) {
	counting, held := Machine{Hosted: true, Joined: true}, serving("b")
	held.Deleting = true
	drained := held
	drained.Leave.PreDrain = false
	said := func(reason Reason) func(*rules) {
		return func(r *rules) { r.drain, r.Said, r.Revision, r.Completed = &drainRules{}, reason, "2", "1" }
	}
	drains := said(RollingOut)
	for name, c := range map[string]struct {
		change   func(*rules)
		replicas int
		machines []Machine
		way      int
		begun    bool
	}{
		"one is missing":           {nil, 3, []Machine{old("a", ""), counting}, 1, true},
		"none is":                  {nil, 2, []Machine{old("a", ""), counting}, 0, false},
		"there are more":           {nil, 1, []Machine{old("a", ""), counting}, 0, false},
		"Cluster API deletes them": {func(*rules) {}, 3, []Machine{old("a", ""), counting}, 1, false},
		"nothing is replaced":      {nil, 3, []Machine{counting}, 2, false},
		"one is drained":           {drains, 2, []Machine{old("a", ""), drained}, 1, true},
		"one waits for its drain":  {drains, 2, []Machine{old("a", ""), held}, 1, false},
		"one was drained":          {drains, 2, []Machine{old("a", ""), {Name: "new"}}, 1, true},
		"the only one was drained": {drains, 1, nil, 1, true},
		"more are asked for": {func(r *rules) {
			drains(r)
			r.DoneOf = 2
		}, 3, []Machine{old("a", ""), old("b", ""), {Name: "new"}}, 1, false},
		"one that a person selected is gone": {func(r *rules) {
			drains(r)
			r.Completed = "2"
		}, 2, []Machine{counting}, 1, false},
		"nobody knows of it":                 {said(""), 2, []Machine{old("a", "")}, 1, false},
		"one was missing before":             {said(UpToDate), 2, []Machine{old("a", "")}, 1, false},
		"it waited for another one":          {said(Previous), 2, []Machine{old("a", "")}, 1, false},
		"it waited for the control plane":    {said(ControlPlane), 2, []Machine{old("a", "")}, 1, false},
		"it waited for another one's looks":  {said(ValidationFailed), 2, []Machine{old("a", "")}, 1, false},
		"it was suspended":                   {said(Suspended), 2, []Machine{old("a", "")}, 1, false},
		"what it has begun waits for a look": {said(Validating), 2, []Machine{old("a", "")}, 1, true},
	} {
		r := &rules{Pool: Pool{Replicas: c.replicas, OnDelete: c.change == nil, Machines: c.machines}}
		if c.change != nil {
			c.change(r)
		}
		NewWithT(t).Expect(r.onTheirWay()).To(Equal(c.way), name)
		NewWithT(t).Expect(r.begun()).To(Equal(c.begun), name)
	}
}

// Cluster API takes a Machine for Available that it knows as such, and that nothing speaks against.
func TestWhichMachineIsInService(t *testing.T) {
	pool := Pool{Machines: []Machine{old("a", "")}}
	for _, change := range []func(*Machine){func(m *Machine) { m.Deleting = true },
		func(m *Machine) { m.Gated = true },
		func(m *Machine) { m.Joined = false }, func(m *Machine) { m.Unhealthy = "ill" },
		func(m *Machine) { m.Available = false }} {
		m := old("b", "")
		change(&m)
		NewWithT(t).Expect(m.inService()).To(BeFalse(), "%+v", m)
		pool.Machines = append(pool.Machines, m)
	}
	NewWithT(t).Expect(pool.inService()).To(Equal(1))
}

// Nobody is marked before it is known where the first new Machine is, where Cluster API deletes none before that.
func TestWhoIsMarkedTooEarly(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*rules, *Machine)
		early  bool
	}{
		"nothing is there but outdated ones": {func(*rules, *Machine) {}, true},
		"Cluster API may delete one":         {func(r *rules, _ *Machine) { r.Stock.Unavailable = 1 }, false},
		"one is marked already":              {func(_ *rules, m *Machine) { m.MarkedByUs = true }, false},
		"a mark is left over": {func(_ *rules, m *Machine) {
			m.MarkedByUs, m.Outdated, m.Hosted = true,
				false, false
		}, true},
		"one leaves":           {func(_ *rules, m *Machine) { m.Deleting = true }, false},
		"a new one has a host": {func(_ *rules, m *Machine) { m.Outdated = false }, false},
		"a new one has none":   {func(_ *rules, m *Machine) { m.Outdated, m.Hosted = false, false }, true},
	} {
		m, r := old("b", "x"), &rules{}
		c.change(r, &m)
		r.Machines = []Machine{old("a", "x"), m}
		NewWithT(t).Expect(r.early()).To(Equal(c.early), name)
	}
}

// Why a Machine is among the first is said.
func TestWhyAMachineLeavesFirst(t *testing.T) {
	for want, change := range map[string]func(*rules, *Machine){
		"it is not available: nothing is lost with it": func(r *rules, m *Machine) { r.waves, m.Unhealthy = true, "ill" },
		"failure domain x is replaced":                 func(r *rules, m *Machine) { r.waves, m.Last = true, true },
		"failure domain (none) is replaced":            func(r *rules, m *Machine) { r.waves, m.Domain = true, "" },
		"only those that go last are left":             func(_ *rules, m *Machine) { m.Last = true },
		"it leaves before those that go last":          func(*rules, *Machine) {},
	} {
		m, r := old("a", "x"), &rules{}
		change(r, &m)
		NewWithT(t).Expect(r.says(&m)).To(Equal(want))
	}
}

// Those leave first that are in the failure domain of the wave and do not go last, and of a MachineSet that has some
// that are not available those alone.
func TestWhoLeavesFirst(t *testing.T) {
	last := func(m *Machine) { m.Last = true }
	ill := func(m *Machine) { m.Unhealthy = "ill" }
	newer := func(m *Machine) { m.Set, m.SetMade = "2", time.Unix(1, 0) }
	for name, c := range map[string]struct {
		waves, onDelete bool
		a, b, c         []func(*Machine)
		first, next     string
	}{
		"nobody is asked to":        {first: "all", next: "a"},
		"a failure domain":          {waves: true, first: "bc", next: "b"},
		"those that do not go last": {a: []func(*Machine){last}, first: "bc", next: "b"},
		"of a failure domain":       {waves: true, b: []func(*Machine){last}, first: "c", next: "c"},
		"all go last": {a: []func(*Machine){last}, b: []func(*Machine){last},
			c: []func(*Machine){last}, first: "abc", next: "a"},
		"one is not available":                {waves: true, a: []func(*Machine){ill}, first: "a", next: "a"},
		"one that goes last is not available": {a: []func(*Machine){ill, last}, first: "a", next: "a"},
		"one of another MachineSet is not": {waves: true, c: []func(*Machine){ill, newer}, first: "bc",
			next: "c"},
		"one alone of its MachineSet goes last": {a: []func(*Machine){last}, c: []func(*Machine){last, newer},
			first: "bc", next: "b"},
		"a rollout deletes of all MachineSets": {onDelete: true, a: []func(*Machine){last},
			c: []func(*Machine){last, newer}, first: "b", next: "b"},
		"one of another failure domain is not new": {waves: true, onDelete: true, a: []func(*Machine){newer},
			first: "bc", next: "b"},
	} {
		g := NewWithT(t)
		r := &rules{Pool: Pool{OnDelete: c.onDelete}, leaving: leaving{waves: c.waves}}
		for i, changes := range [][]func(*Machine){c.a, c.b, c.c} {
			m := old("abc"[i:i+1], []string{"x", "y", "y"}[i])
			m.Returns = true
			for _, change := range changes {
				change(&m)
			}
			r.Machines = append(r.Machines, m)
		}
		first := r.first(r.old())
		names := ""
		for _, m := range first {
			names += m.Name
		}
		if first == nil {
			names = "all"
		}
		g.Expect(names).To(Equal(c.first), name)
		g.Expect(r.next(nil).Name).To(Equal(c.next), name)
		g.Expect(r.makesRoom(func(*Machine) bool { return true }).Name).To(Equal(c.next), name)
	}
}

// When those of the first failure domain are on their way the others follow, and room is made by those alone whose
// host a new Machine can have.
func TestWhoFollows(t *testing.T) {
	g := NewWithT(t)
	r := &rules{Pool: Pool{OnDelete: true}, leaving: leaving{waves: true}}
	r.Machines = []Machine{old("a", "x"), old("b", "y"), old("c", "x"), old("d", "z")}
	gone := map[*Machine]bool{}
	for _, want := range []int{0, 2, 1, 3} {
		victim := r.next(gone)
		g.Expect(victim).To(BeIdenticalTo(&r.Machines[want]))
		gone[victim] = true
	}
	g.Expect(r.next(gone)).To(BeNil())
	g.Expect(r.makesRoom(func(*Machine) bool { return true })).To(BeNil(), "none of their hosts comes back")
	r.Machines[1].Returns = true
	g.Expect(r.makesRoom(func(*Machine) bool { return true })).To(BeIdenticalTo(&r.Machines[1]))
	r.Machines[1].Hosted = false
	g.Expect(r.makesRoom(func(*Machine) bool { return true })).To(BeNil(), "it waits for a host itself")
	g.Expect(r.leaver()).To(BeNil())
	g.Expect(r.awaits()).To(Equal("Machines that leave first are marked before Cluster API may delete any"))
	r.Machines[2].Deleting = true
	g.Expect(r.leaver()).To(BeIdenticalTo(&r.Machines[2]))
	g.Expect(r.awaits()).To(Equal("Machine c leaves, and has to be gone before those begin that come after it: see its " +
		"condition Deleting"))
}

// Cluster API learns who leaves first when it is known where the first new Machine is.
func TestWhoIsMarked(t *testing.T) {
	asked := quoinv1.RolloutStrategy{}
	asked.Waves = quoinv1.RolloutWavesFailureDomain
	fresh := Machine{Name: "new", Hosted: true, Gated: true, Departure: Departure{Domain: "x"}}
	marked := old("a", "x")
	marked.Marked, marked.MarkedByUs = true, true
	for name, c := range map[string]struct {
		onDelete bool
		machines []Machine
		want     []string
	}{
		"nothing new has a host": {false, []Machine{old("a", "x"), old("b", "y")}, nil},
		"one has": {false, []Machine{old("a", "x"), old("b", "y"), fresh},
			[]string{"Mark a NextToLeave: failure domain x is replaced"}},
		"it is marked already":     {false, []Machine{marked, old("b", "y"), fresh}, nil},
		"a rollout deletes itself": {true, []Machine{old("a", "x"), old("b", "y"), fresh}, nil},
	} {
		pool := Pool{Name: "blue", Replicas: 2, OnDelete: c.onDelete, Revision: "2", Completed: "1", Stock: Limits{Surge: 1},
			Machines: c.machines}
		policy, did := &quoinv1.RolloutPolicySpec{Strategy: &asked}, []string(nil)
		for _, d := range Plan(State{Pools: []Pool{pool}}, policy, time.Now()).Decisions {
			if d.Action == Mark {
				did = append(did, fmt.Sprintf("%s %s %s: %s", d.Action, d.Machine, d.Reason, d.Message))
			}
		}
		NewWithT(t).Expect(did).To(Equal(c.want), name)
	}
}
