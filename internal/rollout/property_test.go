// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/rapidtest"
)

// drawn are pools that are whole, and a policy without groups.
func drawn(t *rapid.T) *fleet {
	f := newFleet()
	for i := range rapid.IntRange(1, 3).Draw(t, "pools") {
		d := &deployment{name: fmt.Sprintf("pool-%d", i), template: 1 + 100*i,
			replicas: rapid.IntRange(0, 6).Draw(t, "replicas"), surge: rapid.IntRange(0, 3).Draw(t, "surge")}
		d.unavailable = rapid.IntRange(0, 2).Draw(t, "unavailable")
		if d.surge == 0 {
			d.unavailable = max(1, d.unavailable) // Cluster API's admission refuses it
		}
		d.whole(f.now)
		f.pools = append(f.pools, d)
	}
	f.policy.Concurrency = ptr.To(int32(rapid.IntRange(1, 3).Draw(t, "concurrency")))
	f.policy.SoakSeconds = ptr.To(int32(rapid.IntRange(0, 120).Draw(t, "soak")))
	f.policy.DeadlineSeconds = ptr.To(int32(600))
	if rapid.Bool().Draw(t, "windows") {
		start := time.Time{}.Add(time.Duration(rapid.IntRange(0, 24*60-1).Draw(t, "opens")) * time.Minute)
		f.policy.Windows = []quoinv1.RolloutWindow{{Start: start.Format("15:04"),
			DurationMinutes: ptr.To(int32(rapid.IntRange(30, 240).Draw(t, "minutes")))}}
		if rapid.Bool().Draw(t, "early") {
			f.policy.Windows[0].Start = "06:31" // it closes while Machines are on their way
			f.policy.Windows[0].DurationMinutes = ptr.To(int32(rapid.IntRange(90, 95).Draw(t, "closes")))
		}
	}
	if rapid.Bool().Draw(t, "strategy") {
		surge := rapid.IntRange(0, 3).Draw(t, "maxSurge")
		f.policy.Strategy = ptr.To(strategy(fmt.Sprint(surge), ""))
		if rapid.Bool().Draw(t, "percent") {
			f.policy.Strategy = ptr.To(strategy(fmt.Sprintf("%d%%", 20*surge), ""))
		}
		for _, d := range f.pools {
			d.unavailable = max(d.unavailable, 1-min(surge, 1)) // or nothing could ever be replaced
		}
	}
	f.drawLeaving(t)
	f.policy.PauseAfter = rapid.SampledFrom([]quoinv1.RolloutPause{quoinv1.RolloutPauseNone, quoinv1.RolloutPauseCanary,
		quoinv1.RolloutPauseEachMachine}).Draw(t, "pauseAfter")
	f.widen(t)
	return f
}

// drawGroups puts every pool into a group, in any order. Some are of two or three, with a number of their own.
func (f *fleet) drawGroups(t *rapid.T) {
	if !rapid.Bool().Draw(t, "groups") {
		return
	}
	for _, d := range rapid.Permutation(f.pools).Draw(t, "order") {
		if last := len(f.policy.Groups) - 1; last >= 0 && rapid.Bool().Draw(t, "shared") {
			names := &f.policy.Groups[last].MachineDeployments.Names
			*names = append(*names, d.name)
			continue
		}
		group := quoinv1.RolloutGroup{Name: d.name,
			MachineDeployments: quoinv1.RolloutSelector{Names: []string{d.name}}, Suspend: ptr.To(false)}
		if most := rapid.IntRange(0, 2).Draw(t, "ofGroup"); most > 0 {
			group.Concurrency = ptr.To(int32(most))
		}
		f.policy.Groups = append(f.policy.Groups, group)
	}
}

// group of the pool, and the place of that among all; nil and the place among the pools where there are none.
func (f *fleet) group(d *deployment) (group *quoinv1.RolloutGroup, place int) {
	place = slices.Index(f.pools, d)
	for i := range f.policy.Groups {
		if slices.Contains(f.policy.Groups[i].MachineDeployments.Names, d.name) {
			return &f.policy.Groups[i], i*len(f.pools) + place
		}
	}
	return nil, place
}

func (f *fleet) suspends(d *deployment) bool {
	group, _ := f.group(d)
	return group != nil && *group.Suspend
}

// disturb does what may happen at any time.
func (f *fleet) disturb(t *rapid.T) {
	d := rapid.SampledFrom(f.pools).Draw(t, "pool")
	if f.policy.Drain != nil && rapid.IntRange(0, 5).Draw(t, "leaving") == 0 {
		f.disturbLeaving(t, d)
		return
	}
	switch rapid.SampledFrom([]string{"", "", "", "", "edit", "edit", "revert", "scale", "delete", "forget", "suspend",
		"plane", "ill", "mark", "select", "pause"}).Draw(t, "happens") {
	case "edit":
		d.template++
	case "revert":
		d.template = max(d.template-1, d.template/100*100+1)
	case "scale":
		d.replicas = rapid.IntRange(0, 6).Draw(t, "to")
		d.touched = true
	case "delete":
		if len(d.machines) > 0 {
			n := rapid.SampledFrom(d.machines).Draw(t, "machine")
			if n.deleted.IsZero() {
				n.deleted = f.now
			}
		}
		d.touched = true
	case "mark":
		f.marks(d, rapid.IntRange(0, 9).Draw(t, "marked"))
	case "select":
		if len(d.machines) > 0 {
			rapid.SampledFrom(d.machines).Draw(t, "selected").needsUpdate = "needs-update on its Node"
		}
		// What takes its place does not count yet when an edit has Cluster API delete another one, and it knows no waves.
		d.touched = true
	case "suspend":
		if group, _ := f.group(d); group != nil {
			group.Suspend = ptr.To(!*group.Suspend)
		}
	case "pause":
		f.idle, f.resumed = !f.idle, f.now
	case "forget":
		d.completed, d.selected, d.doneOf, d.owes = "", "", 0, 0
	case "plane":
		f.unhealthy = map[bool]string{true: "etcd has no leader"}[f.unhealthy == ""]
	case "ill":
		for _, n := range d.machines {
			if n.joined && n.ill == "" {
				n.ill = "NodeHealthy: gone"
				break
			}
		}
		d.touched = true
	}
}

// heal what fell ill, which a person does; a health check has Cluster API replace nothing that is outdated
// (reconcileUnhealthyMachines in core/reconcilers/machineset/machineset_controller.go).
func (f *fleet) heal(outdated bool) {
	if f.idle {
		f.idle, f.resumed = false, f.now
	}
	f.unhealthy = ""
	f.permit()
	for i := range f.policy.Groups {
		f.policy.Groups[i].Suspend = ptr.To(false)
	}
	for _, d := range f.pools {
		for _, n := range d.machines {
			if n.ill != "" && (outdated || n.template == d.template) {
				n.ill, n.healthy = "", f.now
			}
			n.protected, n.hanging, n.unreachable = false, false, false
		}
	}
}

// advised is the Machine that Stalled says to delete.
var advised = regexp.MustCompile(`^Machine (\S+) .*delete the Machine|kubectl -n team delete machine ([^ ,]+)`)

// obey has a person delete an outdated Machine that Stalled says to delete.
func (f *fleet) obey() {
	name := ""
	if says := advised.FindStringSubmatch(f.result.Stalled); len(says) == 3 {
		name = says[1] + says[2]
	}
	for _, d := range f.pools {
		for _, n := range d.machines {
			if n.name == name && n.template != d.template && n.deleted.IsZero() {
				n.deleted, d.touched = f.now, true
			}
		}
	}
}

// replaces reports whether Machines of the pool are to be replaced.
func (d *deployment) replaces() bool {
	for _, n := range d.machines {
		if n.template != d.template {
			return true
		}
	}
	return false
}

// empties reports whether no Machine of the pool is asked for, and all that are there leave: nothing takes their place.
func (d *deployment) empties() bool {
	return d.replicas == 0 && !slices.ContainsFunc(d.machines, func(n *node) bool { return n.deleted.IsZero() })
}

// owing finds out whether a Machine was deleted that was selected, and not as many count yet as before. What comes and
// goes while the policy is paused nobody sees.
func (f *fleet) owing(d *deployment) {
	if f.idle {
		return
	}
	if d.replaces() {
		d.owes = 0
		return
	}
	count, leave := 0, 0
	for _, n := range d.machines {
		switch {
		case n.template != d.template || n.hosted.IsZero():
		case !n.deleted.IsZero() && n.needsUpdate != "":
			leave++
		case n.deleted.IsZero() && n.joined && !n.gated:
			count++
		}
	}
	switch {
	case leave > 0 && d.owes == 0:
		d.owes = min(count+leave, d.replicas) // what a scale-down took beside it is nobody's to bring back
	case leave == 0 && count >= min(d.owes, d.replicas):
		d.owes = 0
	}
}

// opened reports whether the window is open, which is in UTC here.
func (f *fleet) opened() bool {
	return len(f.policy.Windows) == 0 || f.since() < time.Duration(*f.policy.Windows[0].DurationMinutes)*time.Minute
}

// since is how long ago the window opened.
func (f *fleet) since() time.Duration {
	hour, minute := 0, 0
	if _, err := fmt.Sscanf(f.policy.Windows[0].Start, "%d:%d", &hour, &minute); err != nil {
		panic(err)
	}
	day := 24 * time.Hour
	return (f.now.Sub(f.now.Truncate(day)) - time.Duration(hour*60+minute)*time.Minute + day) % day
}

// judge one admission or count by what there was before it, without anything of the planner.
func (f *fleet) judge(t *rapid.T, d Decision, before map[string]*node) {
	pool := f.pool(d.Pool)
	present, flying, known := 0, 0, 0
	for _, n := range pool.machines {
		was := before[n.name]
		switch {
		case was == nil || !was.occupies(): // nil is what was made just now in the place of another one
		case n.name == d.Machine:
		default:
			present++
			if n.template == pool.template && n.deleted.IsZero() {
				if was.gated {
					flying++
				} else if was.joined {
					known++
				}
			}
		}
	}
	rolls := (pool.replaces() || pool.owes > 0) && pool.node(d.Machine).template == pool.template
	marks := d.Action == Mark || d.Action == Unmark
	works := known > 0 || pool.completed == fmt.Sprint(pool.template)
	missing := d.Action == Admit && works && present < pool.replicas
	if (rolls && !marks && !missing || d.Action == Delete) && !f.opened() {
		t.Fatalf("%s %s at %s outside of %+v", d.Action, d.Machine, f.now, f.policy.Windows)
	}
	if (d.Action == Count || d.Action == Delete || d.Action == Admit && rolls) && f.suspends(pool) {
		t.Fatalf("%s %s of a group that is suspended", d.Action, d.Machine)
	}
	if d.Action == Count {
		if n := before[d.Machine]; n.ill != "" || !n.joined || f.unhealthy != "" ||
			f.now.Sub(n.healthy) < time.Duration(*f.policy.SoakSeconds)*time.Second {
			t.Fatalf("%s counts and should not: %+v", d.Machine, n)
		}
		return
	}
	if d.Action != Admit {
		f.judgeLeaving(t, d, before)
		return
	}
	if !rolls {
		return
	}
	surge := pool.surge
	if f.policy.Strategy != nil {
		asked, err := intstr.GetScaledValueFromIntOrPercent(f.policy.Strategy.MaxSurge, pool.replicas, true)
		if err != nil {
			t.Fatal(err)
		}
		surge = min(surge, asked)
	}
	switch {
	case present+1 > pool.replicas+surge && present+1 > pool.replicas:
		t.Fatalf("%s: %d Machines beside it for %d replicas and a surge of %d", d.Machine, present, pool.replicas, surge)
	case !pool.node(d.Machine).gated:
		t.Fatalf("%s has no gate in a rollout", d.Machine)
	case known == 0 && flying > 0:
		t.Fatalf("%s beside a canary", d.Machine)
	case f.policy.PauseAfter == quoinv1.RolloutPauseEachMachine && flying > 0:
		t.Fatalf("%s beside another one", d.Machine)
	case f.unhealthy != "":
		t.Fatalf("%s while the control plane is ill", d.Machine)
	}
	f.judgeOrder(t, pool, d, flying > 0, known > 0 || f.begun(pool) || pool.owes > 0)
}

// judgeOrder holds one admission against those of other pools. A pool of which Machines were replaced already is begun,
// and is finished first.
func (f *fleet) judgeOrder(t *rapid.T, pool *deployment, d Decision, flying, begun bool) {
	flies := func(p *deployment) bool {
		for _, n := range p.machines {
			if n.gated && n.deleted.IsZero() && n.template == p.template && n.name != d.Machine {
				return true
			}
		}
		return false
	}
	group, own := f.group(pool)
	all := int(ptr.Deref(f.policy.Concurrency, 1))
	most := func(of *quoinv1.RolloutGroup) int { // at once, of a group
		if of == nil || of.Concurrency == nil {
			return all
		}
		return min(all, int(*of.Concurrency))
	}
	onTheirWay, earlier := map[*quoinv1.RolloutGroup]int{}, map[*quoinv1.RolloutGroup]int{}
	for _, other := range f.pools {
		if other == pool || f.drainFailed(other) || f.suspends(other) || !other.replaces() || other.empties() {
			continue
		}
		of, place := f.group(other)
		if flies(other) {
			onTheirWay[of]++
		}
		if place < own && !f.refuses(other) {
			earlier[of] = min(earlier[of]+1, most(of))
		}
	}
	sum := func(ofGroups map[*quoinv1.RolloutGroup]int) (n int) {
		for _, count := range ofGroups {
			n += count
		}
		return n
	}
	switch {
	case flying || flies(pool):
	case sum(onTheirWay) >= all || onTheirWay[group] >= most(group):
		t.Fatalf("%s while Machines of %d other pools are on their way: %+v", d.Machine, sum(onTheirWay), f.policy.Groups)
	case (sum(earlier) >= all || earlier[group] >= most(group)) && !begun:
		t.Fatalf("%s before %d pools that come first: %+v", d.Machine, sum(earlier), f.policy.Groups)
	}
}

// step has everybody look once, and holds what is decided against the promises.
func (f *fleet) step(t *rapid.T) {
	before, completed := map[string]*node{}, map[*deployment]string{}
	for _, d := range f.pools {
		f.owing(d)
		d.touched = d.touched || f.outbids(d)
		completed[d] = d.completed
		for _, n := range d.machines {
			before[n.name] = ptr.To(*n)
		}
	}
	decided := f.decide()
	for d, was := range completed {
		if is := fmt.Sprint(d.template); d.completed == is && was != is {
			d.judgeCompleted(t, before)
		}
	}
	for _, d := range decided {
		if !slices.Contains([]Action{Admit, Count, Delete, Mark, Unmark}, d.Action) {
			f.judgeDrains(t, d, before)
			continue
		}
		f.judge(t, d, before)
		// What was decided together was: the next one is judged beside it.
		before[d.Machine] = ptr.To(*f.pool(d.Pool).node(d.Machine))
	}
	f.witness()
	for _, d := range f.pools {
		f.owing(d)
	}
	f.moves()
	f.now = f.now.Add(tick)
	f.judgeHosts(t)
	f.sleep()
}

// judgeCompleted holds a template that is said to be done now against the Machines that there were: none is of another
// one or on its way to a host, and as many count as were at work and are asked for, or all where hosts are free.
func (d *deployment) judgeCompleted(t *rapid.T, before map[string]*node) {
	count, least := 0, d.replicas
	if !d.spare() {
		least = min(least, d.atWork)
	}
	for _, n := range d.machines {
		switch was := before[n.name]; {
		case was == nil: // made just now in the place of another one
		case was.template != d.template:
			t.Fatalf("%s is done and %s is outdated", d.name, n.name)
		case !was.deleted.IsZero():
		case was.joined && !was.gated:
			count++
		case !was.hosted.IsZero() || d.spare():
			t.Fatalf("%s is done and %s is on its way", d.name, n.name)
		}
	}
	if count < least {
		t.Fatalf("%s is done and %d of %d count", d.name, count, least)
	}
}

// working is how many Machines have a host and stay.
func (d *deployment) working() (n int) {
	for _, m := range d.machines {
		if !m.hosted.IsZero() && m.deleted.IsZero() {
			n++
		}
	}
	return n
}

// sleep until shortly before the window opens, when nothing is on its way.
func (f *fleet) sleep() {
	if f.opened() {
		return
	}
	for _, d := range f.pools {
		for _, n := range d.machines {
			if !n.deleted.IsZero() && !n.preDrain || n.deleted.IsZero() && n.joined == n.hosted.IsZero() {
				return
			}
		}
	}
	f.now = f.now.Add(max(0, (24*time.Hour-f.since()).Truncate(tick)-2*tick))
}

// available says which pool has fewer Machines than its MachineDeployment allows; empty when none has.
func (f *fleet) lacking() string {
	for _, d := range f.pools {
		if d.touched {
			continue
		}
		have := 0
		for _, n := range d.machines {
			if n.available() {
				have++
			}
		}
		if least := f.least(d); have < least {
			return fmt.Sprintf("%s has %d available of at least %d", d.name, have, least)
		}
	}
	return ""
}

// settled reports whether every pool is as it is to be, and is said to be.
func (f *fleet) settled() bool {
	return !slices.ContainsFunc(f.pools, func(d *deployment) bool { return !d.settled() })
}

func (d *deployment) settled() bool {
	return len(d.machines) == d.replicas && (d.completed == fmt.Sprint(d.template) || d.replicas == 0) &&
		!slices.ContainsFunc(d.machines, func(n *node) bool {
			return n.template != d.template || !n.available() || n.mark == byUs
		})
}

// calm reports whether nothing is missing any more through what happened, or will be.
func (d *deployment) calm() bool {
	return d.settled() && !slices.ContainsFunc(d.machines, func(n *node) bool { return n.needsUpdate != "" || n.unreachable })
}

// Whatever happens, a rollout keeps its limits and its order, tries one Machine first, lets nothing count that is not
// healthy, never has fewer Machines available than the MachineDeployment allows, and ends when hosts behave. What happens
// to one MachineDeployment costs no other one a Machine.
func TestRolloutsEndWhateverHappens(t *testing.T) {
	rapidtest.CheckAll(t, 100, func(t *rapid.T) {
		f := drawn(t)
		f.drawGroups(t)
		f.step(t) // what is deleted before it has its hooks is nobody's to keep
		step := func() {
			f.step(t)
			if why := cmp.Or(f.lacking(), f.scattered()); why != "" {
				t.Fatalf("%s: %s", why, f.draw())
			}
			for _, d := range f.pools {
				d.touched = d.touched && !d.calm()
			}
		}
		for range rapid.IntRange(0, 80).Draw(t, "steps") {
			f.disturb(t)
			step()
			if f.result.PausedAfter != "" && rapid.Bool().Draw(t, "continues") {
				f.policy.ContinueAfter = f.result.PausedAfter
			}
		}
		outdated := rapid.Bool().Draw(t, "healsOutdated")
		for range 2000 {
			f.heal(outdated)
			f.obey()
			f.policy.ContinueAfter = f.result.PausedAfter
			step()
			if f.settled() {
				return
			}
		}
		t.Fatalf("it does not end: %s\n%s\n%+v", f.draw(), f.says(), strings.Join(f.lines(), "\n"))
	})
}

func (f *fleet) lines() []string {
	var lines []string
	for _, d := range f.result.Decisions {
		lines = append(lines, fmt.Sprintf("%s %s (%s): %s", d.Action, d.Machine, d.Reason, d.Message))
	}
	return lines
}

// A template that makes no healthy Node touches one host, and costs no Machine where maxUnavailable is 0.
func TestABrokenTemplateStopsAfterOneMachine(t *testing.T) {
	rapidtest.CheckAll(t, 100, func(t *rapid.T) {
		f := drawn(t)
		d := f.pools[0]
		d.replicas, d.surge, d.unavailable, f.policy.Strategy = max(1, d.replicas), max(1, d.surge), 0, nil
		f.policy.Windows = nil
		d.onDelete = false
		for range 20 {
			f.step(t)
		}
		d.template++
		f.broken[d.template] = true
		made := d.made
		for range 200 {
			f.step(t)
			hosted, old := 0, 0
			for _, n := range d.machines {
				if n.template == d.template && n.occupies() {
					hosted++
				} else if n.template != d.template && n.deleted.IsZero() {
					old++
				}
			}
			if hosted > 1 || old < d.replicas {
				t.Fatalf("%d tried and %d of %d left: %s", hosted, old, d.replicas, f.draw())
			}
		}
		if d.made == made {
			t.Fatal("nothing was tried")
		}
		if f.result.Stalled == "" {
			t.Fatalf("nobody learns of it: %s", strings.Join(f.lines(), "\n"))
		}
	})
}

// A template is done when it is, whatever happens to a pool that has few hosts, and it is done once there are enough.
func TestARolloutIsCompletedWhenItIs(t *testing.T) {
	rapidtest.CheckAll(t, 100, func(t *rapid.T) {
		f := without(t)
		f.policy.WhenNoSpare = quoinv1.RolloutWithoutSpareRemoveFirst
		f.step(t)
		for _, d := range f.pools {
			d.atWork = d.replicas
			d.template++
		}
		for range rapid.IntRange(0, 120).Draw(t, "steps") {
			d := rapid.SampledFrom(f.pools).Draw(t, "pool")
			switch rapid.SampledFrom([]string{"", "", "", "", "", "scale", "host", "lost", "forget"}).Draw(t, "happens") {
			case "scale":
				d.replicas += rapid.IntRange(0, 2).Draw(t, "more")
			case "host":
				d.capacity++
			case "lost":
				d.capacity = max(1, d.capacity-1) // with whoever leaves it next
			case "forget":
				// Where no new Machine has a host yet nobody knows of more than are at work now.
				d.doneOf, d.atWork = 0, min(d.atWork, d.working())
			}
			f.policy.ContinueAfter = f.result.PausedAfter
			f.step(t)
		}
		for _, d := range f.pools {
			d.capacity = 0
		}
		for range 2000 {
			f.policy.ContinueAfter = f.result.PausedAfter
			f.step(t)
			if f.settled() {
				return
			}
		}
		t.Fatalf("it does not end: %s\n%s\n%v", f.draw(), f.says(), f.lines())
	})
}
