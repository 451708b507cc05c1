// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
)

// rollout of one control plane, of its oldest Machines or of all.
type rollout struct {
	strategy controlplanev1.RolloutStrategyType
	machines int
	// spare hosts that there are; hosts are added, and never taken away.
	spare int
	blows []blow
}

// floor is how many voters the strategy leaves at least. Auto may remove first while the spare host is being cleaned.
func (r rollout) floor(replicas int32) int {
	if r.strategy == surge || replicas < 3 {
		return int(replicas)
	}
	return int(replicas) - 1
}

// troubled are the rollouts through trouble, by the replicas of their control plane. A loss for good needs members to spare throughout
// the rollout: one that came when three are two would be the end.
func troubled(passing []blow) map[int32][]rollout {
	all := append(slices.Clone(passing), lasting...)
	return map[int32][]rollout{
		1: {
			{surge, 1, 1, passing}, {auto, 1, 1, passing}, {surge, 1, 1, passing}, {auto, 1, 1, passing},
			{surge, 1, 1, passing}, {auto, 1, 1, passing}, {surge, 1, 1, passing}, {auto, 1, 1, passing},
		},
		3: {
			{removeFirst, 1, 0, passing}, {auto, 1, 0, passing}, {removeFirst, 3, 0, passing}, {auto, 1, 0, passing}, {surge, 1, 1, lasting},
			{surge, 1, 1, passing}, {auto, 1, 1, passing}, {removeFirst, 1, 1, passing}, {surge, 1, 1, all}, {surge, 1, 1, lasting},
		},
		5: {
			{auto, 1, 0, passing}, {removeFirst, 1, 0, lasting}, {removeFirst, 2, 1, passing}, {surge, 1, 1, passing}, {surge, 1, 1, all}, {auto, 1, 1, lasting},
		},
	}
}

// soon is how many of them are in `make test`, each of one Machine: more take their time.
var soon = map[int32]int{1: 3, 3: 5, 5: 2}

// troubleOf is what goes wrong in the n-th rollout of a control plane.
func troubleOf(seed uint64, replicas int32, n int, r rollout) trouble {
	return drawTrouble(rand.New(rand.NewPCG(seed+uint64(replicas), uint64(n))), r.blows, r.machines) //nolint:gosec // small numbers
}

// Each blow that passes falls in `make test`, and where it can be felt: with one member there is nobody to be cut off from, and a
// domain is its host.
func TestEachBlowThatPassesFallsInMakeTest(t *testing.T) {
	fall := map[blow]bool{}
	for replicas, rollouts := range troubled(passing) {
		for i, r := range rollouts[:soon[replicas]] {
			r.machines = 1
			what := troubleOf(always, replicas, i, r).blow
			fall[what] = fall[what] || replicas > 1 || !slices.Contains([]blow{etcdAlone, etcdParted, domainOff}, what)
		}
	}
	for _, what := range passing {
		if !fall[what] {
			t.Errorf("nowhere: %s", what)
		}
	}
}

// Control planes of one, three and five roll with each strategy, while the controllers die after drawn events and something
// is taken away at a drawn event: a member, a host, a failure domain, for a while or for good. What must hold is looked at
// all the time, somebody writes all the time, and at the end of each rollout everything is as the spec says.
//
// It is not parallel itself: what it draws takes longest, and beside everything else longer than anybody waits.
//
// Proves: S2-30, S2-33, C6
func TestAControlPlaneRollsThroughTrouble(t *testing.T) {
	passing := passing
	if long() || nightly() {
		// etcd has to sync its files for it, which is slow itself.
		passing = append(slices.Clone(passing), diskSlow)
	}
	for replicas, rollouts := range troubled(passing) {
		name := fmt.Sprintf("trouble-%d", replicas)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			drawn := seed(t)
			court := newCourt(t, courtOptions{name: name, replicas: replicas, hosts: int(replicas) + rollouts[0].spare, domains: 3, strategy: rollouts[0].strategy, admission: true,
				syncs: long() || nightly()})
			court.untilWhole("coming up")
			for round := range rounds() {
				for i, r := range rollouts {
					if !long() && !nightly() {
						if i == soon[replicas] {
							break
						}
						r.machines = 1
					}
					court.suffer(r, troubleOf(drawn, replicas, round*len(rollouts)+i, r))
				}
			}
		})
	}
}

// rounds is how often everything is done.
func rounds() int {
	if nightly() {
		return 30
	}
	return 1
}

// suffer rolls once, and lets go wrong what was drawn.
func (c *court) suffer(r rollout, what trouble) {
	c.t.Helper()
	replicas := c.options.replicas
	for len(c.hosts)-len(c.burnt) < int(replicas)+r.spare {
		c.addHost()
	}
	judge, writer := c.watchMembers(r.floor(replicas)), c.write()
	judge.quiet = true
	avenger := &avenger{court: c, judge: judge, trouble: what}
	lives := what.lives
	killer := &assassin{court: c, lives: func() int {
		if len(lives) == 0 {
			return 0
		}
		next := lives[0]
		lives = lives[1:]
		return next
	}}
	c.change(func(spec *controlplanev1.QuoinControlPlaneSpec) { spec.Rollout.Strategy = r.strategy })
	c.listen(func(e event) {
		avenger.hear(e)
		killer.hear(e)
	})
	joins := avenger.joins
	c.joins.Store(&joins)
	old := c.outdateOldest(r.machines)
	c.until(fmt.Sprintf("%s of %d, %s", r.strategy, r.machines, what), func() string {
		if left := avenger.mend(); left != "" {
			return left
		}
		if left := c.lacksReplacements(old); left != "" {
			return left
		}
		return c.lacks()
	})
	c.listen(nil)
	c.joins.Store(nil)
	kills := killer.end()
	avenger.busy.Wait()
	c.until("  end of it", func() string {
		if left := avenger.mend(); left != "" {
			return left
		}
		return c.lacks()
	})
	c.t.Logf("  %d events, %d kills, %s", avenger.events.Load(), len(kills), avenger.told)
	writer.end()
	judge.end()
}
