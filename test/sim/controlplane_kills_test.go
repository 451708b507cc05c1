// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
)

// always is the seed of what is drawn in `make test`.
const always uint64 = 23870

// seed of what is drawn: the same in each `make test`, another one in each longer run. QUOIN_SEED repeats a run.
func seed(t testing.TB) uint64 {
	drawn := always
	if nightly() || long() {
		drawn = rand.Uint64()
	}
	if said, err := strconv.ParseUint(os.Getenv("QUOIN_SEED"), 10, 64); err == nil {
		drawn = said
	}
	t.Logf("QUOIN_SEED=%d", drawn)
	return drawn
}

// assassin kills our manager at events, and starts the next one.
type assassin struct {
	court *court
	// lives is after how many events the manager that runs dies; it lives on when 0. Asked once for each.
	lives func() int
	// spares says that an event at which the manager would die is none; nil when all count.
	spares func(event) bool

	mu    sync.Mutex
	begun bool
	next  int
	kills []kill
	busy  sync.WaitGroup
}

// kill is the end of a manager.
type kill struct {
	event event
	at    time.Time
	// again is how long it took until the next manager did something.
	again time.Duration
}

// hear is told of every event.
func (a *assassin) hear(e event) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.begun {
		a.begun, a.next = true, a.lives()
	}
	if n := len(a.kills); n > 0 && a.kills[n-1].again == 0 && e.manager != nil && e.manager == a.court.site.Manager() {
		a.kills[n-1].again = time.Since(a.kills[n-1].at)
	}
	if a.next <= 0 {
		return
	}
	victim := e.manager
	if victim == nil {
		victim = a.court.site.Manager()
	}
	if a.next--; a.next > 0 {
		return
	}
	if a.next = 1; a.court.site.Manager() != victim || a.spares != nil && a.spares(e) || !a.court.site.KillIf(victim) {
		return
	}
	a.kills = append(a.kills, kill{event: e, at: time.Now()})
	a.next = a.lives()
	a.busy.Add(1)
	go func() {
		defer a.busy.Done()
		if err := a.court.site.Start(); err != nil {
			a.court.t.Errorf("starting a manager: %v", err)
		}
	}()
}

// end lets the managers live from now on, waits until one runs, and tells of what was done.
func (a *assassin) end() []kill {
	a.mu.Lock()
	a.begun, a.next = true, 0
	a.mu.Unlock()
	a.busy.Wait()
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.kills
}

// The controllers die again and again, each after one to forty events: changes that it made, lines of a host's journal,
// commands that came to a host.
func TestAControlPlaneRollsWhileItsControllersDie(t *testing.T) {
	needsTime(t)
	for name, strategy := range map[string]controlplanev1.RolloutStrategyType{"kills-surge": surge, "kills-remove": removeFirst} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(seed(t), 1))
			spare, below := 1, 0
			if strategy == removeFirst {
				spare, below = 0, 1
			}
			court := newCourt(t, courtOptions{name: name, replicas: 3, hosts: 3 + spare, domains: 3, strategy: strategy, admission: true})
			court.untilWhole("coming up")
			judge, writer := court.watchMembers(3-below), court.write()
			killer := &assassin{court: court, lives: func() int { return 1 + random.IntN(40) }}
			court.listen(killer.hear)
			court.roll("a rollout whose controllers die")
			court.listen(nil)
			kills := killer.end()
			where := map[string]int{}
			for _, k := range kills {
				where[k.event.where]++
			}
			t.Logf("%d kills: %v", len(kills), where)
			if len(kills) < 5 {
				t.Error("nearly nobody was killed")
			}
			court.untilWhole("afterwards")
			writer.end()
			judge.end()
		})
	}
}
