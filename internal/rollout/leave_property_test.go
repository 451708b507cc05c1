// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/rapidtest"
)

// drawLeaving says how Machines leave, in two of three fleets.
func (f *fleet) drawLeaving(t *rapid.T) {
	if rapid.IntRange(0, 2).Draw(t, "drains") == 0 {
		return
	}
	f.policy.Drain = &quoinv1.RolloutDrain{
		OnTimeout: rapid.SampledFrom([]quoinv1.RolloutDrainTimeout{quoinv1.RolloutDrainFail, quoinv1.RolloutDrainProceed,
			quoinv1.RolloutDrainForce}).Draw(t, "onTimeout"),
		TimeoutSeconds:        ptr.To(int32(rapid.IntRange(30, 300).Draw(t, "timeout"))),
		PostDrainDelaySeconds: ptr.To(int32(rapid.IntRange(0, 30).Draw(t, "delay"))),
		IntervalSeconds:       ptr.To(int32(rapid.IntRange(0, 60).Draw(t, "interval"))),
	}
	for _, d := range f.pools {
		for _, n := range d.machines {
			n.pods = rapid.IntRange(0, 3).Draw(t, "pods")
			n.nodeDrainTimeout = time.Duration(rapid.IntRange(0, 2).Draw(t, "drainTimeout")) * time.Minute
		}
	}
}

// disturbLeaving does what keeps a drain up.
func (f *fleet) disturbLeaving(t *rapid.T, d *deployment) {
	if len(d.machines) == 0 {
		return
	}
	n := rapid.SampledFrom(d.machines).Draw(t, "machine")
	switch rapid.SampledFrom([]string{"protect", "protect", "hang", "cordon", "unreachable", "pods"}).Draw(t, "leaving") {
	case "protect":
		n.protected = !n.protected
	case "hang":
		n.hanging = true
	case "cordon":
		n.cordoned = true
	case "unreachable":
		if n.joined {
			n.is("unreachable")
			d.touched = true
		}
	case "pods":
		if n.joined && n.deleted.IsZero() {
			n.pods = 2
		}
	}
}

// judgeDrains holds what is done to a Machine that leaves against what there was before it.
func (f *fleet) judgeDrains(t *rapid.T, d Decision, before map[string]*node) {
	pool, was := f.pool(d.Pool), before[d.Machine]
	switch d.Action {
	case Replace:
		counted := 0
		for _, n := range pool.machines {
			if n.replaces == nil || !slices.Contains(pool.machines, n.replaces) {
				counted++
			}
		}
		if pool.replaces() || was.condemned || was.ill != "" || counted > pool.replicas || f.unhealthy != "" {
			t.Fatalf("one is made in the place of %s, of %d Machines: %+v", d.Machine, counted, was)
		}
	case Taint:
		if was.tainted || was.cordoned || was.template == pool.template && was.needsUpdate == "" {
			t.Fatalf("%s is tainted: %+v", d.Machine, was)
		}
	case Drain:
		if !was.joined || was.unreachable {
			return
		}
		if since := f.now.Sub(pool.terminatedBefore); !pool.terminatedBefore.IsZero() &&
			since < seconds(f.policy.Drain.IntervalSeconds) {
			t.Fatalf("%s is drained %s after another was terminated", d.Machine, since)
		}
		stock := was.template != pool.template && !pool.onDelete && !was.condemned
		serves := was.joined && !was.gated && was.ill == ""
		switch {
		case !stock:
		case !f.opened():
			t.Fatalf("%s is drained at %s outside of %+v", d.Machine, f.now, f.policy.Windows)
		case f.minimum(pool) > 0 && f.refuses(pool):
			t.Fatalf("%s is drained against minAvailable", d.Machine)
		case serves && !f.fits(pool, before):
			t.Fatalf("%s is drained, and what takes its place is not done before the window closes", d.Machine)
		case serves && f.unseen(pool, before):
			t.Fatalf("%s is drained without a look", d.Machine)
		}
		if why := f.crowds(pool, was, before); why != "" {
			t.Fatalf("%s is drained %s: %s", d.Machine, why, f.draw())
		}
		was.preDrain = false // the next one that is drained now is judged beside it
		for _, n := range pool.machines {
			other := before[n.name]
			selected := func(n *node) bool { return n.template != pool.template || n.needsUpdate != "" }
			if !f.suspends(pool) && // nothing is begun, and no taint is set
				selected(was) && selected(other) && other.joined && other.deleted.IsZero() && !other.tainted && !other.cordoned {
				t.Fatalf("%s is drained before %s is tainted", d.Machine, n.name)
			}
		}
	case Skip, DeletePods:
		if f.policy.Drain.OnTimeout == quoinv1.RolloutDrainFail && !was.unreachable {
			t.Fatalf("%s %s: %+v", d.Action, d.Machine, was)
		}
	case Terminate:
		if was.joined {
			pool.terminatedBefore = f.now
		}
	}
}

// fits reports whether what takes the place of a Machine that is drained is done before the window closes, or nothing
// does, or it is not known how long it takes.
func (f *fleet) fits(pool *deployment, before map[string]*node) bool {
	if len(f.policy.Windows) == 0 || pool.stay(before) >= pool.replicas || len(pool.pace) == 0 {
		return true
	}
	takes := slices.Sorted(slices.Values(pool.pace))[len(pool.pace)/2] + seconds(f.policy.SoakSeconds)
	lasts := time.Duration(*f.policy.Windows[0].DurationMinutes) * time.Minute
	return f.since()+takes <= lasts || takes > lasts // no later window would be long enough
}

// stay counts the Machines with hosts that were not being deleted.
func (d *deployment) stay(before map[string]*node) int {
	stay := 0
	for _, n := range d.machines {
		if is := before[n.name]; is != nil && is.deleted.IsZero() && !is.hosted.IsZero() {
			stay++
		}
	}
	return stay
}

// unseen reports whether a place would be empty while nothing of the present template is there, and no look found
// nothing within a minute.
func (f *fleet) unseen(pool *deployment, before map[string]*node) bool {
	for _, n := range pool.machines {
		if is := before[n.name]; is != nil && is.template == pool.template && is.deleted.IsZero() && is.occupies() {
			return false
		}
	}
	last := lookMade{}
	for _, look := range f.looks.seen {
		if look.pool == pool.name {
			last = look
		}
	}
	return f.policy.Validation != nil && pool.stay(before) < pool.replicas && (!last.passed || f.now.Sub(last.at) >= time.Minute)
}

// crowds says beside what a Machine is drained that Cluster API deleted, of which one at a time is: before any of the
// present template counts, and where a person looks at each. What neither leaves nor comes is not waited for.
func (f *fleet) crowds(pool *deployment, was *node, before map[string]*node) string {
	serve, counted, beside := 0, false, ""
	for _, n := range pool.machines {
		is := before[n.name]
		if is == nil {
			continue // made just now
		}
		current := is.template == pool.template && is.deleted.IsZero()
		counted = counted || current && is.joined && !is.gated
		drained := !is.deleted.IsZero() && !is.preDrain
		switch {
		case is.joined && !is.gated && is.ill == "" && !is.unreachable && !drained:
			serve++
		case drained, current && !is.hosted.IsZero() && (is.gated || !is.joined):
			beside = n.name
		}
	}
	if was.template == pool.template || pool.onDelete || was.condemned || was.ill != "" || was.gated || serve >= pool.replicas-1 ||
		counted && f.policy.PauseAfter != quoinv1.RolloutPauseEachMachine || beside == "" {
		return ""
	}
	return fmt.Sprintf("beside %s, and %d of %d serve", beside, serve, pool.replicas)
}

// judgeHosts holds that no host is given up with pods on it under Fail, unless its kubelet does not answer.
func (f *fleet) judgeHosts(t *rapid.T) {
	if f.policy.Drain == nil || f.policy.Drain.OnTimeout != quoinv1.RolloutDrainFail {
		return
	}
	for _, d := range f.pools {
		if n := d.endangered(); n != nil {
			t.Fatalf("%s is terminated with %d pods: %s\n%+v", n.name, n.lost, f.draw(), n)
		}
	}
}

// drainFailed reports whether a drain of the pool failed, for which no other pool waits.
func (f *fleet) drainFailed(d *deployment) bool {
	if f.policy.Drain == nil || f.policy.Drain.OnTimeout != quoinv1.RolloutDrainFail {
		return false
	}
	for _, n := range d.machines {
		if n.joined && n.preTerminate && !n.unreachable && !n.began.IsZero() && n.pods > 0 &&
			f.now.Sub(n.began) >= seconds(f.policy.Drain.TimeoutSeconds) {
			return true
		}
	}
	return false
}

// A Machine that waits for its drain keeps a host that a new one may wait for. Where Cluster API may delete beforehand a
// rollout ends without a spare host all the same, whatever held its drains.
//
// Proves: S3-13
func TestDrainsThatAreHeldKeepNoHostForEver(t *testing.T) {
	rapidtest.CheckAll(t, 100, func(t *rapid.T) {
		f := drawn(t)
		f.policy.WhenNoSpare = rapid.SampledFrom([]quoinv1.RolloutWithoutSpare{quoinv1.RolloutWithoutSpareWait,
			quoinv1.RolloutWithoutSpareRemoveFirst}).Draw(t, "whenNoSpare")
		if f.policy.Drain == nil {
			f.policy.Drain = &quoinv1.RolloutDrain{}
		}
		if rapid.Bool().Draw(t, "validates") {
			f.policy.Validation = &quoinv1.RolloutValidation{SuccessThreshold: ptr.To[int32](1),
				TimeoutSeconds: ptr.To[int32](60)}
		}
		for _, d := range f.pools {
			if !d.onDelete {
				d.unavailable = max(1, d.unavailable)
			}
			d.capacity = max(1, d.replicas)
		}
		for range rapid.IntRange(1, 120).Draw(t, "steps") {
			f.disturb(t)
			f.looks.finding = rapid.SampledFrom([]string{f.looks.finding, f.looks.finding, "", "a pod is not ready"}).
				Draw(t, "finding")
			f.step(t)
		}
		f.looks.finding = ""
		for range 3000 {
			for _, d := range f.pools {
				d.capacity = max(d.capacity, d.replicas)
			}
			f.heal(true)
			f.policy.ContinueAfter = f.result.PausedAfter
			f.step(t)
			if f.settled() {
				return
			}
		}
		t.Fatalf("it does not end: %s\n%s\n%s", f.draw(), f.says(), strings.Join(f.lines(), "\n"))
	})
}
