// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/quorum"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/rapidtest"
)

// recoveryWorld is a control plane of which one Machine is cut off from all others, whose members go on, and a person
// who takes that for a loss.
type recoveryWorld struct {
	*world
	recovery controlplane.Recovery
	// running are the members that vote somewhere, besides the one that is to survive.
	running map[uint64]bool
	// silent hosts do not answer, unbound ones have no object. Neither does its part, nor one whose bootstrap failed.
	silent, unbound map[string]bool
	// alone are Machines that were ordered to survive and neither stopped since nor off, which the hosts in off are.
	alone, off map[string]bool
	unread     bool
}

// Whatever objects, hosts and persons are like when a person asks for a recovery: no member survives alone while a
// quorum of the others is neither stopped by its host nor off by a person's word, nor beside another that was ordered
// to survive before. And once that person does what the messages say, the recovery comes to its end.
func TestNobodySurvivesBesideAQuorum(t *testing.T) {
	drawn := map[string]int{}
	rapidtest.CheckAll(t, 2000, func(t *rapid.T) {
		w := cutOffSurvivor(t)
		for range rapid.IntRange(0, 30).Draw(t, "turns") {
			switch rapid.IntRange(0, 4).Draw(t, "event") {
			case 0:
				w.ask(t, func(string) bool { return rapid.Bool().Draw(t, "named") })
			case 1:
				w.act(func(string) bool { return rapid.Bool().Draw(t, "does its part") })
			case 2:
				w.abandon(func(string) bool { return rapid.Bool().Draw(t, "switched off") })
			default:
				if w.follow(t) {
					drawn["survived in disorder"]++
					if !w.choose(t) {
						return
					}
				}
			}
		}
		w.ask(t, func(string) bool { return true })
		again := false
		for range 80 {
			if w.follow(t) {
				drawn["survived"]++
				if again || !w.choose(t) {
					return
				}
				again = true
				drawn["another one was asked for"]++
			}
			w.act(func(string) bool { return true })
			w.abandon(func(machine string) bool { return !w.acts(machine) })
		}
		t.Fatalf("it never ends: %s", tell(Assess(w.view()).Step))
	})
	t.Logf("%v", drawn)
}

// cutOffSurvivor is a control plane of which the first Machine is alone. Some objects of others are lost, some
// bootstraps failed after kubeadm join, and some hosts are silent or have no object.
func cutOffSurvivor(t *rapid.T) *recoveryWorld {
	w := &recoveryWorld{world: newWorld(rapid.SampledFrom([]int{1, 3, 5}).Draw(t, "replicas"), "v1.30.0"),
		running: map[uint64]bool{}, silent: map[string]bool{}, unbound: map[string]bool{},
		alone: map[string]bool{}, off: map[string]bool{}}
	w.bringUp(t)
	names := w.names()
	for _, name := range names {
		for w.advance(name) { // its bootstrap data run to their end
		}
	}
	w.recovery = controlplane.Recovery{Machine: names[0]}
	for _, name := range names[1:] {
		w.running[w.member(name).ID] = true
		machine := w.machine(name)
		switch rapid.SampledFrom([]string{"well", "well", "forgotten", "failed", "silent", "unbound"}).Draw(t, name) {
		case "forgotten":
			w.forget(name)
		case "failed":
			machine.Bootstrapped, machine.Joined, machine.Health.Final = false, false, "a command failed"
			if rapid.Bool().Draw(t, "its Node was never seen") {
				machine.Node = ""
			}
		case "silent":
			w.silent[name] = true
		case "unbound":
			w.unbound[name] = true
		}
	}
	if rapid.Bool().Draw(t, "from a snapshot") {
		w.recovery.Snapshot, w.recovery.Delivered = "monday.db", true
	}
	if rapid.Bool().Draw(t, "ordered out before") {
		for _, member := range w.Etcd.Members {
			w.RemoveMembers = append(w.RemoveMembers, member.ID)
		}
	}
	w.unread = rapid.Bool().Draw(t, "nobody reads etcd")
	w.ask(t, func(string) bool { return rapid.Bool().Draw(t, "named") })
	return w
}

// ask has a person ask anew, who names some of the others. Members without a Machine are off from then on.
func (w *recoveryWorld) ask(t *rapid.T, names func(string) bool) {
	lost := w.names()
	for _, member := range w.Etcd.Members {
		if member.Machine == "" {
			lost = append(lost, fmt.Sprintf("%x", member.ID))
		}
	}
	w.recovery.ID, w.recovery.State, w.recovery.GiveUp = w.recovery.ID+"x", controlplane.RecoveryAsked, nil
	w.recovery.Hosts = map[string]controlplane.RecoveryHost{}
	for _, name := range lost {
		if name != w.recovery.Machine && names(name) {
			w.recovery.GiveUp = append(w.recovery.GiveUp, name)
		}
	}
	t.Logf("asked: give up %v", w.recovery.GiveUp)
}

// choose has a person, who sees the first survivor come no further, ask for another one.
func (w *recoveryWorld) choose(t *rapid.T) bool {
	others := slices.DeleteFunc(w.names(), func(name string) bool {
		return name == w.recovery.Machine || w.off[name] || !w.acts(name)
	})
	if len(others) == 0 || rapid.Bool().Draw(t, "the first one does") {
		return false
	}
	w.recovery.Machine = rapid.SampledFrom(others).Draw(t, "another one survives")
	w.ask(t, func(string) bool { return true })
	return true
}

// acts reports whether the host of a Machine does what it is ordered.
func (w *recoveryWorld) acts(name string) bool {
	return w.machine(name).Bootstrapped && !w.silent[name] && !w.unbound[name]
}

// act has hosts do the parts that they have.
func (w *recoveryWorld) act(does func(string) bool) {
	for _, name := range w.names() {
		host := w.recovery.Hosts[name]
		if !host.Ordered || host.Succeeded || !w.acts(name) || !does(name) {
			continue
		}
		host.Began, host.Succeeded = true, true
		w.recovery.Hosts[name] = host
		delete(w.running, w.member(name).ID)
		delete(w.alone, name)
	}
}

// abandon has a person switch hosts off, and say so.
func (w *recoveryWorld) abandon(does func(string) bool) {
	for _, name := range w.names() {
		if name == w.recovery.Machine || !does(name) {
			continue
		}
		host := w.recovery.Hosts[name]
		host.Gone = true
		w.recovery.Hosts[name] = host
		delete(w.running, w.member(name).ID)
		delete(w.alone, name)
		w.off[name] = true
	}
}

// view is what is seen through the one that is cut off, or through nobody.
func (w *recoveryWorld) view() controlplane.State {
	s := w.look()
	s.Etcd.Agreed = false
	r := w.recovery
	r.Hosts = map[string]controlplane.RecoveryHost{}
	for i := range s.Etcd.Members {
		member := &s.Etcd.Members[i]
		member.Healthy, member.Leader, member.Problem = false, false, "it was not reached"
		if member.Machine == "" {
			r.Unclaimed = append(r.Unclaimed, fmt.Sprintf("%x", member.ID))
		}
	}
	for _, machine := range s.Machines {
		host := w.recovery.Hosts[machine.Name]
		host.Name, host.Silent, host.Unbound = "host-"+machine.Name, w.silent[machine.Name], w.unbound[machine.Name]
		r.Hosts[machine.Name] = host
	}
	if w.unread {
		s.Etcd = quorum.Membership{Problem: "no member answered"}
	}
	s.Recovery = &r
	return s
}

// follow carries one step out, and reports whether it was the last one: the survivor makes itself a cluster of one.
func (w *recoveryWorld) follow(t *rapid.T) bool {
	step := Assess(w.view()).Step
	t.Logf("%s", tell(step))
	switch step.Kind {
	case controlplane.BeginRecovery:
		w.recovery.State = controlplane.RecoveryBegun
	case controlplane.FetchSnapshot:
		w.recovery.State = controlplane.RecoveryFetching
	case controlplane.OrderRecovery:
		if step.Order == controlplane.OrderSurvive {
			w.surviveAlone(t, step)
			return true
		}
		host := w.recovery.Hosts[step.Machine]
		host.Ordered = true
		w.recovery.Hosts[step.Machine] = host
	case controlplane.Wait, controlplane.Refuse:
	default:
		t.Fatalf("a quorum is lost, and then: %s", tell(step))
	}
	return false
}

// surviveAlone counts who is left. A person's word for a member without a Machine is that it is off.
func (w *recoveryWorld) surviveAlone(t *rapid.T, step controlplane.Step) {
	voters, left := 0, 0
	for _, member := range w.Etcd.Members {
		voters++
		word := member.Machine == "" && slices.Contains(w.recovery.GiveUp, fmt.Sprintf("%x", member.ID))
		if w.running[member.ID] && !word && member.Machine != step.Machine {
			left++
		}
	}
	if left >= quorum.Majority(voters) {
		t.Fatalf("%s\nbroken promise: %d of %d others run, and are a quorum", tell(step), left, voters-1)
	}
	if w.alone[step.Machine] = true; len(w.alone) > 1 {
		t.Fatalf("%s\nbroken promise: two survive, of %v", tell(step), w.alone)
	}
}
