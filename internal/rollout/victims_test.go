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

// begun reports whether a Machine of the deployment is missing that was deleted for the rollout.
func (d *deployment) begun() bool {
	there := 0
	for _, n := range d.machines {
		if n.deleted.IsZero() && n.occupies() && !n.gated {
			there++
		}
	}
	return d.onDelete && there < d.replicas
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
