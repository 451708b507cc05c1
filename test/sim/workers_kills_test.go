// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
	"time"
)

// workerName is that of any Machine of the pool amber.
var workerName = regexp.MustCompile(`\bamber-[a-z0-9-]+\b`)

// byRollouts reports whether a write is one of those that lead a rollout: of Machines, of the policy, of Nodes.
func byRollouts(e event) bool {
	return e.where == "management" && (strings.Contains(e.what, " machines/amber-") || strings.Contains(e.what, " rolloutpolicies/")) ||
		e.where == "workload" && strings.Contains(e.what, " *v1.Node ")
}

// killWorkers rolls the pool amber, which surges by its spare hosts, while our managers die at writes, and looks from outside.
func (c *court) killWorkers(replicas, spare int, lives func() int, spares func(event) bool) []kill {
	c.t.Helper()
	edit := c.rollOut("amber")
	judge := c.judgePool("amber", replicas, replicas+spare)
	killer := &assassin{court: c, lives: lives, spares: spares}
	c.listen(func(e event) {
		if e.manager != nil {
			killer.hear(e)
		}
	})
	c.until("amber", func() string { return c.lacksPool("amber", edit, replicas) })
	c.listen(nil)
	kills := killer.end()
	c.untilOver("amber", edit, replicas, true)
	judge.end()
	return kills
}

// Our manager dies at every write with which it leads the rollout of a pool: an admission, a condition, a gate, a hook, a
// taint, the policy's status. Each manager lives for one of them.
//
// Proves: S3-26, S3-35
func TestAWorkerIsReplacedWhileItsControllersDie(t *testing.T) {
	t.Parallel()
	court := newPool(t, "kills-worker", 1, 1, nil)
	// A status may be written again after each start; whatever else there is comes once for each Machine.
	kinds := map[string]int{}
	kills := court.killWorkers(1, 1, func() int { return 1 }, func(e event) bool {
		if !byRollouts(e) {
			return true
		}
		kind := workerName.ReplaceAllString(e.String(), "amber-*")
		kinds[kind]++
		return kinds[kind] > 6
	})
	t.Log("\n" + drawKills(kills))
	if len(kills) < 10 {
		t.Errorf("only %d kills", len(kills))
	}
	court.withoutPolicy()
}

// Our manager dies after every single change that it makes while a pool of three is replaced: each one lives for one. A
// Machine whose host is prepared is written often, so after the first changes each kind kills a few times and no more.
func TestEveryWriteOfAWorkerRolloutSurvivesAKill(t *testing.T) {
	needsTime(t)
	court := newPool(t, "kills-workers", 3, 1, nil)
	court.patience = time.Hour
	changes, kinds := 0, map[string]int{}
	kills := court.killWorkers(3, 1, func() int { return 1 }, func(e event) bool {
		kind := workerName.ReplaceAllString(e.String(), "amber-*")
		if kinds[kind]++; changes >= everyKill && kinds[kind] > 9 {
			return true
		}
		changes++
		return false
	})
	artifact(t, "kills-workers.txt", drawKills(kills))
	if changes < everyKill {
		t.Errorf("only %d kills", changes)
	}
	court.withoutPolicy()
}

// Our manager dies once in each rollout, after a drawn number of its writes.
func TestAWorkerRolloutSurvivesOneKill(t *testing.T) {
	needsTime(t)
	random := rand.New(rand.NewPCG(seed(t), 3))
	court := newPool(t, "kill-workers", 3, 1, nil)
	for round := range 8 * rounds() {
		after := 1 + round%8*25 + random.IntN(25)
		once := false
		kills := court.killWorkers(3, 1, func() int {
			if once {
				return 0
			}
			once = true
			return after
		}, nil)
		if len(kills) > 0 {
			t.Logf("after write %d: %s", after, kills[0].event)
		}
	}
	court.withoutPolicy()
}
