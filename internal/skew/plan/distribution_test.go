// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew"
)

// published is a release of a distribution, as its documents tell of it. Nothing of it is shared with what judges.
type published struct {
	minor, patch, place, day int
	pools                    []string
}

func (p published) version() string { return fmt.Sprintf("v1.%d.%d", p.minor, p.patch) }

func (p published) after(q published) bool {
	return p.minor > q.minor || p.minor == q.minor && p.patch > q.patch
}

// estate is a cluster of a distribution among others, with the version that it is to get.
type estate struct {
	releases               map[string]published
	at, to, tool           published
	managing               *published
	self                   bool
	managed                []published
	poolsGate, managedGate bool
	cluster                cluster
}

// forbidsPool reports whether the documents forbid a pool of that version beside these API servers.
func (e estate) forbidsPool(pool, oldest, newest published) bool {
	behind := 1
	if newest.minor >= 29 || newest.minor == 28 && e.poolsGate {
		behind = 2
	}
	return pool.after(oldest) || newest.place-pool.place > behind ||
		len(newest.pools) > 0 && !slices.Contains(newest.pools, pool.version()) ||
		newest.minor <= 29 && pool.day > newest.day
}

// forbids says which pool is forbidden by what runs.
func (e estate) forbids(c cluster) string {
	oldest, newest := e.releases[c.control[0].kubelet], e.releases[c.control[0].kubelet]
	for _, n := range c.control {
		switch release := e.releases[n.kubelet]; {
		case release.after(newest):
			newest = release
		case oldest.after(release):
			oldest = release
		}
	}
	for _, n := range slices.Concat(c.pools...) {
		if e.forbidsPool(e.releases[n.kubelet], oldest, newest) {
			return fmt.Sprintf("%s beside %s to %s", n.kubelet, oldest.version(), newest.version())
		}
	}
	return ""
}

// forbidsTarget reports whether the documents forbid to begin with the target.
func (e estate) forbidsTarget() bool {
	if e.at.version() == e.to.version() {
		return e.forbidsManaged()
	}
	if e.to.version() != e.tool.version() || e.at.after(e.to) || e.to.place-e.at.place > 1 || e.to.minor-e.at.minor > 1 {
		return true
	}
	for _, n := range slices.Concat(e.cluster.pools...) {
		if e.forbidsPool(e.releases[n.kubelet], e.at, e.to) {
			return true
		}
		tooOld := e.to.minor-e.releases[n.kubelet].minor > 3 // of Kubernetes, where the list leaves minors out
		if tooOld && e.forbidsPool(e.at, e.at, e.to) {       // what it has to be raised to
			return true
		}
	}
	return e.forbidsManaged()
}

// forbidsManaged is for the rules between a managing cluster and those that it manages.
func (e estate) forbidsManaged() bool {
	switch {
	case !e.self:
		return e.managing != nil && e.to.after(*e.managing)
	case e.to.minor == e.at.minor:
		return false
	}
	behind, alike := 1, true
	if e.to.minor >= 30 || e.to.minor == 29 && e.managedGate {
		behind, alike = 2, false
	}
	return slices.ContainsFunc(e.managed, func(uc published) bool {
		return e.to.place-uc.place > behind || alike && uc.minor != e.managed[0].minor
	})
}

// drawnEstate is of a distribution that leaves minors out, in the versions around which its rules change.
func drawnEstate(t *rapid.T) estate {
	e := estate{releases: map[string]published{}, poolsGate: rapid.Bool().Draw(t, "gate of pools"),
		managedGate: rapid.Bool().Draw(t, "gate of clusters"), self: rapid.Bool().Draw(t, "self")}
	var all []published
	for minor, place := 26, 0; minor <= 32; minor++ {
		if rapid.IntRange(0, 5).Draw(t, "left out") == 0 && (minor < 32 || place > 0) {
			continue
		}
		for patch := range rapid.IntRange(1, 2).Draw(t, "patches") {
			release := published{minor: minor, patch: patch, place: place, day: rapid.IntRange(1, 9).Draw(t, "day") + 3*place}
			for _, earlier := range all {
				if rapid.IntRange(0, 3).Draw(t, "lists") > 0 {
					release.pools = append(release.pools, earlier.version())
				}
			}
			release.pools = append(release.pools, release.version())
			if rapid.Bool().Draw(t, "lists none") {
				release.pools = nil
			}
			all = append(all, release)
			e.releases[release.version()] = release
		}
		place++
	}
	place := rapid.IntRange(0, len(all)-1).Draw(t, "at")
	some := func(from, to int, name string) published {
		return all[rapid.IntRange(max(0, place+from), min(len(all)-1, place+to)).Draw(t, name)]
	}
	e.at, e.to = all[place], some(-1, 3, "to")
	e.tool = e.to
	if rapid.IntRange(0, 5).Draw(t, "another tool") == 0 {
		e.tool = some(-1, 3, "tool")
	}
	if managing := some(0, 4, "managing"); !e.self && rapid.Bool().Draw(t, "managed") {
		e.managing = &managing
	}
	for range rapid.IntRange(0, 2).Draw(t, "clusters") {
		e.managed = append(e.managed, some(-4, 0, "cluster"))
	}
	for range rapid.IntRange(1, 3).Draw(t, "members") {
		e.cluster.control = append(e.cluster.control, node{kubelet: e.at.version()})
	}
	for range rapid.IntRange(0, 2).Draw(t, "pools") {
		pool := some(-4, 0, "pool")
		if e.forbidsPool(pool, e.at, e.at) {
			pool = e.at
		}
		e.cluster.pools = append(e.cluster.pools, []node{{kubelet: pool.version()}, {kubelet: pool.version()}})
		e.cluster.stays = append(e.cluster.stays, rapid.Bool().Draw(t, "stays"))
	}
	e.cluster.forbids = e.forbids
	return e
}

// world is what judges see of it.
func (e estate) world() skew.World {
	catalog := skew.Catalog{Tool: e.tool.version()}
	for version, release := range e.releases {
		catalog.Releases = append(catalog.Releases, skew.Release{Version: version, Pools: release.pools,
			Released: fmt.Sprintf("2024-01-%02d", release.day)})
	}
	if e.poolsGate {
		catalog.Gates = append(catalog.Gates, "PoolsTwoMinorsBehind")
	}
	if e.managedGate {
		catalog.Gates = append(catalog.Gates, "ManagedClustersTwoMinorsBehind")
	}
	world := skew.World{APIServers: e.cluster.state().APIServers, Estate: &skew.Estate{Catalog: catalog, Self: e.self}}
	if e.managing != nil {
		world.Estate.Managing = e.managing.version()
	}
	for _, managed := range e.managed {
		world.Estate.Managed = append(world.Estate.Managed, skew.Managed{Object: "Cluster uc", Version: managed.version()})
	}
	for _, n := range slices.Concat(e.cluster.pools...) {
		world.Components = append(world.Components, skew.Running{Component: skew.Kubelet, Version: n.kubelet, Object: "w"})
	}
	return world
}

// What a distribution allows is what its documents do, in one hop, with nothing forbidden on the way, and no pool raised
// twice.
func TestPlansOfADistributionAreLegalEndAndAreShortest(t *testing.T) {
	policies, err := skew.Policies("Distribution")
	if err != nil {
		t.Fatal(err)
	}
	ordinary, distributions := skew.Split(policies)
	planned, refused := 0, 0
	check := func(t *rapid.T) {
		e := drawnEstate(t)
		if e.cluster.illegal(ordinary) != "" {
			t.Skip("Kubernetes forbids it to begin with")
		}
		world, to := e.world(), e.to.version()
		why, _ := skew.Distributed(policies, world, to)
		if why == "" {
			why, _ = skew.LeftBehind(distributions, world, to)
		}
		state := e.cluster.state()
		state.Estate = world.Estate
		p, err := For(Request{State: state, Target: to, Policies: policies})
		if why == "" && err != nil {
			why = err.Error()
		}
		if forbidden := e.forbidsTarget(); forbidden != (why != "") {
			t.Fatalf("from %s to %s: forbidden is %t, and what is said %q", e.at.version(), to, forbidden, why)
		}
		if why != "" {
			refused++
			return
		}
		planned++
		q := question{cluster: e.cluster, policies: ordinary, target: to}
		if end := q.follow(t, p); !end.there(to) {
			t.Fatalf("the plan ends at %v:\n%s", end, p)
		}
		least, length := 0, 0
		if e.at.version() != to {
			least++
		}
		for i, pool := range e.cluster.pools {
			if e.to.minor-e.releases[pool[0].kubelet].minor > 3 { // of Kubernetes, where the list leaves minors out
				least++
			}
			if !e.cluster.stays[i] && pool[0].kubelet != to {
				least++
			}
		}
		for _, step := range p.Steps {
			if step.Raises != Addons {
				length++
			}
		}
		if length != least {
			t.Fatalf("%d steps, where %d would do:\n%s", length, least, p)
		}
	}
	for range 30 { // few draws meet a gate, a date or a list that decides
		rapid.Check(t, check)
	}
	if planned == 0 || refused == 0 {
		t.Fatalf("%d planned and %d refused: the one or the other was not tried", planned, refused)
	}
}

// A pool that Kubernetes forces up, and that the next release does not list where it is then, is refused before
// anything is raised (S0-30).
func TestNoPlanRaisesAPoolOffTheListOfTheNextRelease(t *testing.T) {
	policies, err := skew.Policies("Distribution")
	if err != nil {
		t.Fatal(err)
	}
	for _, listed := range []bool{true, false} {
		catalog := skew.Catalog{Tool: "v1.30.1", Releases: []skew.Release{
			{Version: "v1.26.0", Released: "2024-01-01"},
			{Version: "v1.29.0", Released: "2024-01-04"}, // v1.27 and v1.28 are left out
			{Version: "v1.30.1", Released: "2024-01-07", Pools: []string{"v1.26.0", "v1.30.1"}},
		}}
		if listed {
			catalog.Releases[2].Pools = append(catalog.Releases[2].Pools, "v1.29.0")
		}
		state := State{APIServers: []string{"v1.29.0"}, Estate: &skew.Estate{Catalog: catalog},
			Pools: []Pool{{Object: "MachineDeployment blue", Versions: []string{"v1.26.0"}},
				{Object: "MachineDeployment off the list", Versions: []string{"v1.28.9"}}}} // which nobody raises
		request := Request{State: state, Target: "v1.30.1", Known: []string{"v1.30.1"}, Policies: policies}
		for name, plan := range map[string]func(Request) (Plan, error){"For": For, "OfTopology": OfTopology} {
			_, err := plan(request)
			if refused := err != nil && strings.Contains(err.Error(), "(S0-30)"); refused == listed || listed && err != nil {
				t.Errorf("%s: listed is %t, and what is said %v", name, listed, err)
			}
		}
		request.State.Estate = nil // it is not asked for where a plan is only drawn
		if _, err := For(request); err != nil {
			t.Errorf("without a catalog: %v", err)
		}
	}
}
