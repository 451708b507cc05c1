// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinhost

import (
	"math"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// milestone is what a process remembers the last time of, for each host. A call is one as well: that it succeeded.
type milestone struct {
	what string
	// of is the plan, the claim, the order or the reason that it is about; empty where there is only one.
	of string
}

// String names a call. Its first word is the operation that is counted.
func (m milestone) String() string { return strings.TrimSuffix(m.what+" "+m.of, " ") }

var (
	callIdentify   = milestone{what: "identify"}
	callProbe      = milestone{what: "probe"}
	callInspect    = milestone{what: "inspect"}
	callReturn     = milestone{what: "return"}
	callServes     = milestone{what: "whom it serves"}
	callHeard      = milestone{what: "what it heard"}
	callGeneration = milestone{what: "raise generation"}

	// lastAnswer of the host, to whatever call.
	lastAnswer = milestone{what: "answer"}
	// adopted: the host has not heard yet of the generation that adopt raised.
	adopted = milestone{what: "adopted"}
	// confirmed: the host showed exactly our owner record.
	confirmed = milestone{what: "confirmed"}
	// awaitsSlot: its call waits for a slot.
	awaitsSlot = milestone{what: "awaits a slot"}
	// powerFailed: its BMC did not do what it was told.
	powerFailed = milestone{what: "power failed"}
	// askingBMC: the BMC is asked whether it would be of use, and the answer was not taken yet.
	askingBMC = milestone{what: "asking the BMC"}
	// askedWhilePaused: the host said, since it was paused or held, that its plan does not run.
	askedWhilePaused = milestone{what: "asked while paused"}
)

func callFollow(plan string) milestone   { return milestone{"follow", plan} }
func callStart(plan string) milestone    { return milestone{"start", plan} }
func callStop(plan string) milestone     { return milestone{"stop", plan} }
func callPush(plan string) milestone     { return milestone{"push", plan} }
func callVerify(plan string) milestone   { return milestone{"verify", plan} }
func callReboot(boot string) milestone   { return milestone{"reboot", boot} }
func callIsolate(why string) milestone   { return milestone{"isolate", why} }
func callAcquire(token string) milestone { return milestone{"take-over", token} }

func callStage(plan string) milestone { return milestone{stageCall, plan} }

func callVerifyOnly(word string) milestone { return milestone{"verify only", word} }

// stagingFailed: it was found that the plan cannot be carried out, or it failed.
func stagingFailed(plan string) milestone { return milestone{"staging failed", plan} }

// progressNoted: the progress of the plan was recorded.
func progressNoted(plan string) milestone { return milestone{"progress", plan} }

// heard: the host has shown the order, or taken it.
func heard(order string) milestone { return milestone{"heard", order} }

// pace remembers milestones while the process lives, so that the many events of a host do not each start a call. What
// must outlive the process is in the status. The zero value is ready.
type pace struct {
	mu   sync.Mutex
	done map[types.NamespacedName]map[milestone]time.Time
}

// pacing is the pace of one host, as it is now.
type pacing struct {
	pace *pace
	key  types.NamespacedName
	now  time.Time
}

// of is the pace of one host.
func (p *pace) of(key types.NamespacedName, now time.Time) pacing { return pacing{p, key, now} }

// mark notes that it is now.
func (p pacing) mark(m milestone) {
	p.pace.mu.Lock()
	defer p.pace.mu.Unlock()
	if p.pace.done == nil {
		p.pace.done = map[types.NamespacedName]map[milestone]time.Time{}
	}
	if p.pace.done[p.key] == nil {
		p.pace.done[p.key] = map[milestone]time.Time{}
	}
	p.pace.done[p.key][m] = p.now
}

// last is when it was; not ok when this process does not know.
func (p pacing) last(m milestone) (at time.Time, ok bool) {
	p.pace.mu.Lock()
	defer p.pace.mu.Unlock()
	at, ok = p.pace.done[p.key][m]
	return at, ok
}

// marked reports whether it ever was in this process.
func (p pacing) marked(m milestone) bool {
	_, ok := p.last(m)
	return ok
}

// since is how long ago it was; longer than any wait when this process does not know.
func (p pacing) since(m milestone) time.Duration {
	if at, ok := p.last(m); ok {
		return p.now.Sub(at)
	}
	return math.MaxInt64
}

// remaining is the time until it is due again, when it is once in every.
func (p pacing) remaining(m milestone, every time.Duration) time.Duration {
	if at, ok := p.last(m); ok {
		return max(0, at.Add(every).Sub(p.now))
	}
	return 0
}

// unmark makes it due.
func (p pacing) unmark(m milestone) {
	p.pace.mu.Lock()
	defer p.pace.mu.Unlock()
	delete(p.pace.done[p.key], m)
}

// forget drops everything about a host.
func (p *pace) forget(key types.NamespacedName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.done, key)
}
