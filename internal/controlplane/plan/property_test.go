// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"flag"
	"fmt"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"pgregory.net/rapid"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/quorum"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew"
)

// Proves: K-10, S2-30, S2-33, S1-14, S1-26, R6, R8, R9, R21
//
// Whatever users edit and delete, and in whatever order Machines come up and go, no order breaks a promise (world.apply
// checks each), and once everybody leaves it alone the control plane becomes what was asked for.
func TestPromisesHoldAlways(t *testing.T) {
	// Histories are cheap: enough of them that every broken rule was met when it was tried.
	if checks := flag.Lookup("rapid.checks"); checks.Value.String() == checks.DefValue {
		NewWithT(t).Expect(checks.Value.Set("2000")).To(Succeed())
	}
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(rapid.SampledFrom([]int{1, 3, 5}).Draw(t, "replicas"), "v1.30.0")
		w.Strategy = rapid.SampledFrom([]controlplane.Strategy{"", controlplane.Auto, controlplane.Surge,
			controlplane.RemoveFirst}).Draw(t, "strategy")
		w.stays = rapid.Bool().Draw(t, "API servers stay")
		if rapid.Bool().Draw(t, "patient") {
			w.DeadMemberTimeout = 3 * time.Minute
		}
		w.free = w.Replicas + rapid.IntRange(0, 2).Draw(t, "spares")
		minor := 30
		if rapid.Bool().Draw(t, "running") {
			w.bringUp(t)
		}
		turns := rapid.IntRange(10, 150).Draw(t, "turns")
		for range turns {
			switch rapid.IntRange(0, 31).Draw(t, "event") {
			case 0:
				minor += rapid.IntRange(-1, 2).Draw(t, "minors")
				w.change(fmt.Sprintf("v1.%d.0", minor))
			case 1:
				w.want(rapid.IntRange(0, 5).Draw(t, "replicas"))
			case 2:
				w.outdate()
			case 3:
				if names := w.names(); len(names) > 0 {
					name := rapid.SampledFrom(names).Draw(t, "deleted")
					if !w.machine(name).Deleting {
						w.deleteByUser(name)
					}
				}
			case 4:
				w.sicken(t)
			case 20:
				w.take(rapid.IntRange(-1, 1).Draw(t, "taken"))
			case 21:
				w.Strategy = rapid.SampledFrom([]controlplane.Strategy{controlplane.Auto, controlplane.Surge,
					controlplane.RemoveFirst}).Draw(t, "strategy")
			case 22:
				if names := w.names(); len(names) > 0 {
					machine := w.machine(rapid.SampledFrom(names).Draw(t, "marked"))
					machine.Preferred = !machine.Preferred
				}
			case 23:
				// A health check gives the one that was made ahead up, or somebody deletes it.
				if len(w.PreCreated) > 0 && rapid.Bool().Draw(t, "given up") {
					w.PreCreated[0].Unfit = "its health check gave it up"
				} else if len(w.PreCreated) > 0 {
					w.discard(w.withoutPreCreated(w.PreCreated[0].Name).Name)
				}
			case 24:
				if names := w.names(); len(names) > 0 {
					w.forget(rapid.SampledFrom(names).Draw(t, "forgotten Machine"))
				}
			case 25:
				w.LeftBehind = rapid.SampledFrom([]string{"", "a kubelet is too old"}).Draw(t, "left behind")
			case 26:
				// Several at once.
				for _, name := range w.names() {
					if !w.machine(name).Deleting && rapid.Bool().Draw(t, "deleted with others") {
						w.deleteByUser(name)
					}
				}
			case 27, 28:
				w.loseOne(t)
			case 29:
				w.unread = rapid.SampledFrom([]string{"", "unknown", "unconfirmed"}).Draw(t, "etcd")
			case 30:
				w.mark(t)
			case 31:
				w.loseJoining(t)
			case 5, 6:
				w.fetch()
				w.cleaned()
			case 7, 8, 9, 10, 11, 12:
				if names := w.names(); len(names) > 0 {
					w.advance(rapid.SampledFrom(names).Draw(t, "machine"))
				}
			default:
				w.order(t)
			}
		}
		w.leaveAlone(rapid.Bool().Draw(t, "no host to spare"))
		w.bringUp(t)
	})
}

// want has so many replicas be asked for. Where they are fewer, so are those that a Machine that was deleted before had to
// leave behind.
func (w *world) want(replicas int) {
	w.Replicas = replicas
	for name, others := range w.wanted {
		w.wanted[name] = min(others, max(replicas, 1))
	}
}

// bringUp lets controller and world take turns, undisturbed, until everything is as it was asked for.
func (w *world) bringUp(t *rapid.T) {
	for range 600 {
		if w.order(t).Kind == controlplane.Done && w.finished() {
			return
		}
		w.fetch()
		w.cleaned()
		for _, name := range w.names() {
			w.advance(name)
		}
	}
	t.Fatalf("it never ends: %s, want %d of %s; last step: %s", census(w), w.Replicas, w.Version,
		tell(Assess(w.observe()).Step))
}

func (w *world) order(t *rapid.T) controlplane.Step {
	step := Assess(w.look()).Step
	t.Logf("%s; %s", tell(step), census(w))
	if w.unread != "" && w.needsEtcd(step) {
		t.Fatalf("%s\nbroken promise: etcd is %s", tell(step), w.unread)
	}
	if err := w.apply(step); err != nil {
		t.Fatalf("%s\nbroken promise: %v", tell(step), err)
	}
	if len(w.Machines)-w.released() > w.Replicas+1 && (step.Joins() || step.Kind == controlplane.CreateFirstMachine) {
		t.Fatalf("%d Machines for %d replicas", len(w.Machines), w.Replicas)
	}
	return step
}

// look is an observation a minute after the one before: for so long a member has been silent that was missed by both.
func (w *world) look() controlplane.State {
	s := w.observe()
	switch w.unread {
	case "unknown":
		s.Etcd = quorum.Membership{Problem: "no member answered"}
	case "unconfirmed":
		s.Etcd.Agreed = false
	}
	for i, member := range s.Etcd.Members {
		if member.Healthy || !s.Etcd.Agreed {
			delete(w.missed, member.ID)
			continue
		}
		s.Etcd.Members[i].Silent = time.Duration(w.missed[member.ID]) * time.Minute
		w.missed[member.ID]++
	}
	return s
}

// needsEtcd reports whether the step makes or takes what a member may be of. Leadership is moved by the leader alone.
func (w *world) needsEtcd(step controlplane.Step) bool {
	switch step.Kind {
	case controlplane.CreateMachine, controlplane.AllowHostClaim, controlplane.RemoveEtcdMember:
		return true
	case controlplane.DeleteMachine, controlplane.ReleaseDrainHook, controlplane.ReleaseTerminateHook:
		return w.member(step.Machine) != nil
	}
	return false
}

// mark has a health check or a person say that a Machine is to be replaced, whatever it does, or take it back.
func (w *world) mark(t *rapid.T) {
	names := slices.DeleteFunc(w.names(), func(name string) bool { return w.lost[name] })
	if len(names) == 0 {
		return
	}
	health := &w.machine(rapid.SampledFrom(names).Draw(t, "called ill")).Health
	if health.Marked != "" || rapid.Bool().Draw(t, "by hand") {
		health.Marked, health.ByHand = "", health.Marked == ""
		return
	}
	health.Marked = "its Node lacks a condition"
}

// loseJoining has the join of a Machine fail or hang for good, or its host be lost in the middle of it, with the member
// that it may have added.
func (w *world) loseJoining(t *rapid.T) {
	names := slices.DeleteFunc(w.names(), func(name string) bool {
		machine, member := w.machine(name), w.member(name)
		return !machine.HostClaimed || machine.Bootstrapped || machine.Deleting || w.lost[name] ||
			member != nil && !member.Learner || w.Initialized && w.votersWithout(name) == 0
	})
	if len(names) == 0 {
		return
	}
	machine := w.machine(rapid.SampledFrom(names).Draw(t, "joins in vain"))
	w.lost[machine.Name], machine.Healthy, machine.Serving = true, false, false
	member := w.member(machine.Name)
	switch rapid.SampledFrom([]string{"fails", "hangs", "lost"}).Draw(t, "how") {
	case "hangs":
		machine.Problem, machine.Health.Marked = "its bootstrap runs", "it has no Node for long"
		return
	case "fails":
		machine.Problem = "kubeadm join failed"
	case "lost":
		machine.Problem = "its host was given up"
		if member != nil {
			member.Healthy, member.Problem = false, "it does not answer"
		}
	}
	machine.Joining, machine.Health.Final = false, machine.Problem
}

// sicken makes one Machine or member fail, or all well again; never so many that the quorum is lost, because nothing
// could be promised then.
func (w *world) sicken(t *rapid.T) {
	names := slices.DeleteFunc(w.names(), func(name string) bool { return w.lost[name] })
	if len(names) == 0 {
		return
	}
	machine := w.machine(rapid.SampledFrom(names).Draw(t, "sick"))
	if rapid.Bool().Draw(t, "pods") && machine.Node != "" {
		machine.Healthy, machine.Problem = !machine.Healthy, "its pods are not ready"
		machine.Serving = machine.Healthy || rapid.Bool().Draw(t, "serving")
	}
	if member := w.member(machine.Name); member != nil && rapid.Bool().Draw(t, "member") {
		member.Healthy = !member.Healthy
		if !w.hasQuorum() {
			member.Healthy = true
		}
		if !member.Healthy {
			member.Leader = false
		}
		w.elect()
	}
}

// loseOne loses the host of a Machine that is a node for good, as long as a quorum is left; or its API server alone, as
// long as another one serves.
func (w *world) loseOne(t *rapid.T) {
	host := rapid.Bool().Draw(t, "lost with its member")
	names := slices.DeleteFunc(w.names(), func(name string) bool {
		machine, member := w.machine(name), w.member(name)
		voters, _ := w.voters()
		others := slices.ContainsFunc(w.Machines, func(other controlplane.Machine) bool {
			return other.Name != name && other.Node != "" && !w.lost[other.Name] && (!other.Deleting || other.DrainHook)
		})
		return machine.Node == "" || machine.Deleting || member == nil || member.Learner || w.lost[name] ||
			host && w.votersWithout(name) < voters/2+1 || !others
	})
	if len(names) > 0 {
		w.lose(rapid.SampledFrom(names).Draw(t, "lost"), host)
	}
}

// repairTheLast has a person repair what serves no API, if nothing else would serve: who stays must be reached.
func (w *world) repairTheLast() {
	if slices.ContainsFunc(w.Machines, func(machine controlplane.Machine) bool {
		return machine.Node != "" && !machine.Deleting && !w.lost[machine.Name]
	}) {
		return
	}
	for i := range w.Machines {
		if machine, member := &w.Machines[i], w.member(w.Machines[i].Name); member != nil && member.Healthy {
			w.lost[machine.Name], machine.Health.Marked, machine.Health.Final = false, "", ""
		}
	}
}

// leaveAlone makes everything well that is not lost, and the spec legal, and gives up the members whose Machines are not
// known. Where a Machine may be removed first there may be just as many hosts as Machines are wanted; else there is one
// more.
func (w *world) leaveAlone(scarce bool) {
	w.unread = ""
	w.repairTheLast()
	for i := range w.Machines {
		if w.Machines[i].Node != "" && !w.lost[w.Machines[i].Name] {
			w.Machines[i].Healthy, w.Machines[i].Serving, w.Machines[i].Health.Marked = true, true, ""
		}
	}
	for i := range w.Etcd.Members {
		if member := &w.Etcd.Members[i]; member.Machine != "" {
			member.Healthy = member.Healthy || !w.lost[member.Machine]
		} else {
			w.RemoveMembers = append(w.RemoveMembers, member.ID)
		}
	}
	if w.Replicas%2 == 0 {
		w.Replicas++
	}
	w.LeftBehind = ""
	if w.Strategy == controlplane.RemoveFirst && w.Replicas < 3 {
		w.Strategy = controlplane.Auto
	}
	w.cleaned()
	if scarce && w.Replicas >= 3 && w.Strategy != controlplane.Surge {
		w.free = max(0, w.Replicas-w.taken())
	} else {
		w.free = max(w.free, w.Replicas+1-w.taken(), 1)
	}
	newest := ""
	for _, machine := range w.Machines {
		// One that was made ahead and dropped never ran anything.
		if dropped := machine.Deleting && !machine.HostClaimed; !dropped &&
			(newest == "" || skew.Older(newest, machine.Version)) {
			newest = machine.Version
		}
	}
	if newest != "" {
		w.change(newest)
	}
}

func (w *world) finished() bool {
	if len(w.Machines) != w.Replicas || len(w.PreCreated) > 0 || w.addons != w.Version {
		return false
	}
	for _, machine := range w.Machines {
		if !machine.UpToDate || !machine.Healthy || machine.Deleting {
			return false
		}
	}
	voters, healthy := w.voters()
	return voters == w.Replicas && healthy == voters && len(w.Etcd.Members) == voters
}
