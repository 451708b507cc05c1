// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim/machine"
)

// moment is where in a host's life a fault strikes.
type moment struct {
	// plan is "provision" or "reset"; step is one of its steps.
	plan, step string
	// at is "begins" (before the journal says so), "works" (its first program starts) or "ends" (it is done, and the
	// journal does not know it yet).
	at string
}

func (m moment) String() string { return fmt.Sprintf("%s %s %s", m.plan, m.step, m.at) }

// watcher sees what the machine does, whatever the controllers and the journal say about it.
type watcher struct {
	mu sync.Mutex
	// steps in the order in which they first began, by plan.
	steps []moment
	// now is the step that the runner is in.
	now moment
	// done are the steps that the machine has once said to be finished.
	done map[string]bool
	// twice are the steps that began although they were done.
	twice []string
	// struck is the moment of the fault; strike is called once when it has come.
	struck moment
	strike func()
}

func watch(host *sim.Host) *watcher {
	w := &watcher{done: map[string]bool{}}
	host.Machine.OnJournal(func(m *machine.Machine, plan, step, word string) {
		w.remember(m, plan)
		if word == "start" {
			w.enter(plan, step)
		}
		switch word {
		case "start":
			w.reach(moment{kind(plan), step, "begins"})
		case "done":
			w.reach(moment{kind(plan), step, "ends"})
		}
	})
	host.Machine.OnProcess(func(e machine.Event) {
		plan, step := stepOf(e.Args)
		if step != "" {
			w.remember(e.Machine, plan)
			w.began(plan, step)
			w.reach(moment{kind(plan), step, "works"})
		}
	})
	return w
}

// kind of a plan: its ID without the claim.
func kind(plan string) string {
	word, _, _ := strings.Cut(plan, "-")
	return word
}

// stepOf says which step a program carries out: the runner starts each one under timeout, with the step's script.
func stepOf(args []string) (plan, step string) {
	if len(args) == 0 || args[0] != "timeout" {
		return "", ""
	}
	for _, arg := range args {
		if rest, ok := strings.CutPrefix(arg, "/var/lib/quoin/runs/"); ok {
			if plan, step, ok := strings.Cut(rest, "/scripts/"); ok {
				return plan, step
			}
		}
	}
	return "", ""
}

// remember takes in which steps the journal says are done, for good: also when the journal is lost later.
func (w *watcher) remember(m *machine.Machine, plan string) {
	journal := m.FS().Text("/var/lib/quoin/runs/" + plan + "/journal")
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, line := range strings.Split(journal, "\n") {
		if words := strings.Fields(line); len(words) > 3 && words[3] == "done" {
			w.done[plan+" "+words[2]] = true
		}
	}
}

func (w *watcher) enter(plan, step string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = moment{plan: kind(plan), step: step}
	if !slices.Contains(w.steps, w.now) {
		w.steps = append(w.steps, w.now)
	}
}

// began counts by the program that starts, not by the journal.
func (w *watcher) began(plan, step string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.done[plan+" "+step] {
		w.twice = append(w.twice, plan+" "+step)
	}
}

func (w *watcher) reach(at moment) {
	w.mu.Lock()
	strike := w.strike
	if at != w.struck || strike == nil {
		w.mu.Unlock()
		return
	}
	w.strike = nil
	w.mu.Unlock()
	strike()
}

// at arms the watcher: fault strikes once, when the moment comes.
func (w *watcher) at(when moment, fault func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.struck, w.strike = when, fault
}

// happened says whether the fault struck.
func (w *watcher) happened() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.strike == nil
}

func (w *watcher) ranTwice() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.twice)
}

func (w *watcher) plan(name string) []moment {
	w.mu.Lock()
	defer w.mu.Unlock()
	var steps []moment
	for _, step := range w.steps {
		if step.plan == name {
			steps = append(steps, step)
		}
	}
	return steps
}
