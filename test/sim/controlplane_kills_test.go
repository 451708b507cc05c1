// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim/machine"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim/plane"
)

// seed of what is drawn; QUOIN_SEED repeats a run.
func seed(t testing.TB) uint64 {
	drawn := rand.Uint64()
	if said, err := strconv.ParseUint(os.Getenv("QUOIN_SEED"), 10, 64); err == nil {
		drawn = said
	}
	t.Logf("QUOIN_SEED=%d", drawn)
	return drawn
}

// assassin kills our manager after writes and at lines of journals, and starts the next one.
type assassin struct {
	t       testing.TB
	mu      sync.Mutex
	site    *plane.Site
	random  *rand.Rand
	stride  int
	next    int
	armed   bool
	kills   int
	moments map[string]int
	busy    sync.WaitGroup
}

// arm begins to kill, each time after one to stride moments.
func (a *assassin) arm(site *plane.Site, stride int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.site, a.stride, a.armed, a.moments = site, stride, true, map[string]int{}
	a.next = 1 + a.random.IntN(a.stride)
}

// disarm ends it, and waits until a manager runs.
func (a *assassin) disarm() {
	a.mu.Lock()
	a.armed = false
	a.mu.Unlock()
	a.busy.Wait()
}

// moment is one at which the manager m may die; any when nil.
func (a *assassin) moment(m *plane.Manager, what string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.armed {
		return
	}
	if m == nil {
		m = a.site.Manager()
	}
	if a.next--; a.next > 0 || !a.site.KillIf(m) {
		return
	}
	a.next = 1 + a.random.IntN(a.stride)
	a.kills++
	a.moments[what]++
	a.busy.Add(1)
	go func() {
		defer a.busy.Done()
		if err := a.site.Start(); err != nil {
			a.t.Errorf("starting a manager: %v", err)
		}
	}()
}

// The controllers die again and again, after a write or a line in a host's journal: in `make test` after one to forty of
// them, every night after each.
func TestAControlPlaneRollsWhileItsControllersDie(t *testing.T) {
	needsTime(t)
	for _, strategy := range []controlplanev1.RolloutStrategyType{controlplanev1.RolloutStrategySurge, controlplanev1.RolloutStrategyRemoveFirst} {
		name := map[controlplanev1.RolloutStrategyType]string{controlplanev1.RolloutStrategySurge: "kills-surge", controlplanev1.RolloutStrategyRemoveFirst: "kills-remove"}[strategy]
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := NewWithT(t)
			killer := &assassin{t: t, random: rand.New(rand.NewPCG(seed(t), 1))}
			spare, below := 1, 0
			if strategy == controlplanev1.RolloutStrategyRemoveFirst {
				spare, below = 0, 1
			}
			court := newCourt(t, courtOptions{
				name: name, replicas: 3, hosts: 3 + spare, domains: 3, strategy: strategy, admission: true,
				written: func(m *plane.Manager, w plane.Write) { killer.moment(m, w.Where) },
			})
			t.Cleanup(killer.disarm)
			for _, host := range court.hosts {
				host.Machine.OnJournal(func(_ *machine.Machine, plan, step, word string) { killer.moment(nil, "host") })
			}
			court.untilWhole("coming up")
			judge, writer := court.watchMembers(3-below), court.write()
			stride := 40
			if nightly() {
				stride = 1
			}
			killer.arm(court.site, stride)
			court.roll("a rollout whose controllers die")
			killer.disarm()
			t.Logf("%d kills: %v", killer.kills, killer.moments)
			g.Expect(killer.kills).To(BeNumerically(">", 5))
			court.untilWhole("afterwards")
			writer.end()
			judge.end(outage)
		})
	}
}

// Members, hosts and failure domains go for a while in the middle of rollouts, as a seed draws it: at most one at a time,
// which is what three members tolerate.
func TestAControlPlaneRollsThroughLosses(t *testing.T) {
	needsTime(t)
	const name = "losses"
	random := rand.New(rand.NewPCG(seed(t), 2))
	court := newCourt(t, courtOptions{name: name, replicas: 3, hosts: 4, domains: 3, strategy: controlplanev1.RolloutStrategySurge})
	court.untilWhole("coming up")
	rollouts := 2
	if nightly() {
		rollouts = 500
	}
	for i := range rollouts {
		judge, writer := court.watchMembers(3), court.write()
		stop, done := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(done)
			for {
				select {
				case <-stop:
					return
				case <-time.After(time.Duration(random.Int64N(int64(8 * time.Second)))):
				}
				court.strike(random, judge)
			}
		}()
		old := court.outdate()
		court.untilRolled(old)
		close(stop)
		<-done
		court.untilWhole(fmt.Sprintf("rollout %d through losses", i+1))
		writer.end()
		judge.end(2 * outage)
	}
}

// strike takes something away for some seconds, and gives it back.
func (c *court) strike(random *rand.Rand, judge *judge) {
	victim := c.hosts[random.IntN(len(c.hosts))]
	length := time.Duration(random.Int64N(int64(4 * time.Second)))
	judge.lose(1)
	defer judge.lose(-1)
	member := c.cluster.Etcd(victim.Machine)
	kind := random.IntN(5)
	if member == nil && kind < 3 {
		kind = 3
	}
	c.t.Logf("%s: %s for %s", victim.Name, []string{"etcd killed", "etcd stopped", "etcd alone", "reboot", "no power in its rack"}[kind], length.Round(10*time.Millisecond))
	switch kind {
	case 0:
		member.Kill()
		time.Sleep(length)
	case 1:
		member.Pause()
		time.Sleep(length)
		member.Resume()
	case 2:
		member.Isolate(true)
		time.Sleep(length)
		member.Isolate(false)
	case 3:
		victim.Reboot()
		time.Sleep(length)
	case 4:
		// The domain of the victim, as addHost deals them.
		var rack []*sim.Host
		for i, host := range c.hosts {
			if host == victim {
				for j := i % 3; j < len(c.hosts); j += 3 {
					rack = append(rack, c.hosts[j])
				}
			}
		}
		for _, host := range rack {
			host.PowerOff()
		}
		time.Sleep(length)
		for _, host := range rack {
			host.PowerOn()
		}
	}
	time.Sleep(3 * time.Second)
}
