// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"strconv"
	"testing"
	"time"

	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/rapidtest"
)

// interruption is a pool whose rollout is interrupted.
type interruption struct {
	*fleet
	d *deployment
	// most Machines with a host that there may be, and least that have to serve.
	most, least int
	// made before the last edit.
	made int
	// waited counts looks at which a Machine in deletion waited for its drain.
	waited int
}

func drawnInterruption(t *rapid.T) *interruption {
	d := &deployment{name: "blue", template: 1, replicas: rapid.IntRange(1, 6).Draw(t, "replicas"),
		surge: rapid.IntRange(1, 3).Draw(t, "surge"), unavailable: rapid.IntRange(0, 3).Draw(t, "unavailable")}
	surge, unavailable := rapid.IntRange(0, 3).Draw(t, "maxSurge"), rapid.IntRange(0, 1).Draw(t, "maxUnavailable")
	missing := 1 - min(surge, 1) // where none is made beforehand one has to be missing
	d.unavailable = max(d.unavailable, missing)
	i := &interruption{fleet: newFleet(), d: d, most: d.replicas + min(d.surge, surge),
		least: d.replicas - max(min(d.unavailable, unavailable), missing)}
	d.whole(i.now)
	i.pools = []*deployment{d}
	i.policy.SoakSeconds = ptr.To(rapid.Int32Range(0, 60).Draw(t, "soak"))
	i.policy.Strategy = ptr.To(strategy(strconv.Itoa(surge), strconv.Itoa(unavailable)))
	i.policy.Drain = &quoinv1.RolloutDrain{IntervalSeconds: ptr.To(rapid.Int32Range(0, 120).Draw(t, "interval"))}
	i.step(t) // what is deleted before it has its hooks is nobody's to keep
	i.edit()
	return i
}

func (i *interruption) edit() {
	i.made = i.d.made
	i.d.template++
}

// leavers serve until their drain, for which they wait. One that never counted is no loss.
func (i *interruption) leavers() (leavers map[*node]bool, serve int) {
	leavers = map[*node]bool{}
	for _, n := range i.d.machines {
		if !n.deleted.IsZero() && n.preDrain && n.joined && !n.gated {
			leavers[n] = true
		}
		if leavers[n] || n.available() {
			serve++
		}
	}
	return leavers, serve
}

// look once and hold what becomes of leavers against what there was before.
func (i *interruption) look(t *rapid.T) {
	leavers, serve := i.leavers()
	// While Machines that count and those of earlier templates take all places nothing new comes before one of them goes.
	comes := i.d.of(i.d.template, func(n *node) bool { return n.deleted.IsZero() && !n.available() })
	taken := comes == 0 && len(i.d.machines) >= i.d.replicas+i.d.surge
	i.waited += len(leavers)
	i.step(t)
	drained, hosts := 0, 0
	for _, n := range i.d.machines {
		switch {
		case leavers[n] && !n.preDrain:
			drained++
		case n.replaces != nil:
			t.Fatalf("%s takes the place of %s: %s", n.name, n.replaces.name, i.draw())
		}
		if n.occupies() {
			hosts++
		}
	}
	switch {
	case hosts > i.most:
		t.Fatalf("%d Machines, of at most %d: %s", hosts, i.most, i.draw())
	case drained > 0 && serve-drained < i.least && !taken:
		t.Fatalf("%d are drained of %d that serve, and %d have to: %s", drained, serve, i.least, i.draw())
	case i.d.made-i.made > i.d.replicas:
		t.Fatalf("%d are made for %d replicas: %s", i.d.made-i.made, i.d.replicas, i.draw())
	}
}

// happens for a while: a rollout is stopped, nobody decides, or another template follows.
func (i *interruption) happens(t *rapid.T) {
	what := rapid.SampledFrom([]string{"unhealthy", "paused", "away", "edit"}).Draw(t, "happens")
	switch what {
	case "unhealthy":
		i.unhealthy = "etcd has no leader"
	case "paused":
		i.d.paused = true
	case "edit":
		i.edit()
	}
	for range rapid.IntRange(1, 30).Draw(t, "for") {
		if what == "away" {
			i.moves()
			i.now = i.now.Add(tick)
			continue
		}
		i.look(t)
	}
	i.unhealthy, i.d.paused = "", false
}

// An interrupted rollout leaves Machines that Cluster API deletes already, which nobody can take back. Until they are
// gone they are surge: none is made beside it. They are drained last, when as many others serve as have to or none can
// come before one of them is gone, and nothing takes their place but what the present template has made anyway.
//
// Proves: S3-29
func TestWhatIsBeingDeletedAlreadyIsSurgeAndGoesLast(t *testing.T) {
	waited := 0
	rapidtest.CheckAll(t, 100, func(t *rapid.T) {
		i := drawnInterruption(t)
		for range rapid.IntRange(1, 3).Draw(t, "interruptions") {
			for begin := i.now; i.now.Sub(begin) < 10*time.Minute; i.look(t) {
				if leavers, _ := i.leavers(); len(leavers) > 0 && rapid.Bool().Draw(t, "interrupted") {
					break
				}
			}
			i.happens(t)
		}
		for range 2000 {
			i.look(t)
			if i.settled() {
				if made := i.d.made - i.made; made != i.d.replicas {
					t.Fatalf("%d were made for %d replicas", made, i.d.replicas)
				}
				waited += i.waited
				return
			}
		}
		t.Fatalf("it does not end: %s\n%s", i.draw(), i.says())
	})
	if waited == 0 {
		t.Fatal("nothing waited for its drain")
	}
}
