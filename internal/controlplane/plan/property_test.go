// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"regexp"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/quorum"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/rapidtest"
)

// What histories draw besides orders, users and the pace of Machines.
const (
	drawPatience    = "a member that was not healthy for a moment"
	drawUnknown     = "an unknown etcd"
	drawUnconfirmed = "an etcd whose list nobody confirmed"
	drawFull        = "a full database"
	drawUnasked     = "a member that nobody could ask"
	drawSlow        = "a member that is slow"
	drawStray       = "a member without a Machine"
	drawNameless    = "a member of which nobody says whose it is"
	drawMark        = "a health mark"
	drawByHand      = "an order to replace a Machine"
	drawJoinFails   = "a join that fails"
	drawJoinHangs   = "a join that hangs"
	drawJoinLost    = "a host that is lost in mid-join"
	drawStuck       = "a learner that never votes"
	drawHostLost    = "a host that is lost for good"
	drawServerLost  = "an API server that is lost for good"
	drawMemberLost  = "a member that is lost for good"
	drawOutage      = "hosts that are away together"
	drawRetry       = "a replacement that is replaced"
	drawClock       = "a step of the manager's clock"
	drawUnreleased  = "a host that is not released"
	drawBeside      = "a dead member that is dealt with beside such a host"
)

var draws = []string{drawPatience, drawUnknown, drawUnconfirmed, drawFull, drawUnasked, drawSlow, drawStray,
	drawNameless, drawMark, drawByHand, drawJoinFails, drawJoinHangs, drawJoinLost, drawStuck, drawHostLost,
	drawServerLost, drawMemberLost, drawOutage, drawRetry, drawClock, drawUnreleased, drawBeside}

// sparedMachine is how a message names a Machine whose replacement only a person can ask for.
var sparedMachine = regexp.MustCompile(`Machine (\S+) is not replaced now: .* annotate it with ` +
	`cluster\.x-k8s\.io/remediate-machine`)

// Proves: K-10, S2-30, S2-33, S1-14, S1-26, R6, R8, R9, R21
//
// Whatever users edit and delete, and in whatever order Machines come up and go, no order breaks a promise (world.apply
// checks each), and once everybody leaves it alone the control plane becomes what was asked for. Each of the troubles
// is drawn: one that no history meets any more is an error.
func TestPromisesHoldAlways(t *testing.T) {
	const enough = 2000
	drawn, histories := map[string]int{}, 0
	defer func() {
		t.Logf("%d histories: %v", histories, drawn)
		for _, draw := range draws {
			least := enough
			if draw == drawRetry { // few histories come so far: one of seven times none of 2,000
				least *= 10
			}
			if histories >= least && drawn[draw] == 0 && !t.Failed() {
				t.Errorf("no history drew %q", draw)
			}
		}
	}()
	// Histories are cheap: enough of them that every broken rule was met when it was tried.
	rapidtest.CheckAll(t, enough, func(t *rapid.T) {
		w := newWorld(rapid.SampledFrom([]int{1, 3, 5}).Draw(t, "replicas"), "v1.30.0")
		w.drawn = drawn
		histories++
		w.Strategy = rapid.SampledFrom([]controlplane.Strategy{"", controlplane.Auto, controlplane.Surge,
			controlplane.RemoveFirst}).Draw(t, "strategy")
		w.stays = rapid.Bool().Draw(t, "API servers stay")
		if rapid.Bool().Draw(t, "patient") {
			w.DeadMemberTimeout = 3 * time.Minute
			w.OrphanedMemberTimeout = rapid.SampledFrom([]time.Duration{0, 8 * time.Minute}).Draw(t, "without a Machine")
		}
		w.free = w.Replicas + rapid.IntRange(0, 2).Draw(t, "spares")
		minor := 30
		if rapid.Bool().Draw(t, "running") {
			w.bringUp(t)
		}
		turns := rapid.IntRange(10, 150).Draw(t, "turns")
		for range turns {
			switch rapid.IntRange(0, 41).Draw(t, "event") {
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
			case 31, 35, 36:
				w.loseJoining(t)
			case 32:
				w.misread(t)
			case 33:
				w.cutOff(t)
			case 34:
				w.loseMember(t)
			case 37:
				if names := w.names(); len(names) > 0 {
					w.unname(rapid.SampledFrom(names).Draw(t, "nobody says whose"))
				}
			case 38:
				w.stepClock(time.Duration(rapid.SampledFrom([]int{1, -1, 24, -24}).Draw(t, "clock set by")) * time.Hour)
			case 39, 40:
				if names := w.names(); len(names) > 0 {
					w.unreleased[rapid.SampledFrom(names).Draw(t, "not released")] = true
				}
			case 5, 6:
				w.fetch()
				w.cleaned()
			case 7, 8, 9, 10, 11, 12:
				if names := w.names(); len(names) > 0 {
					w.advance(rapid.SampledFrom(names).Draw(t, "machine"))
				}
			case 13:
				for _, name := range w.names() {
					w.advance(name)
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

// bringUp lets controller and world take turns, undisturbed, until everything is as it was asked for. A person says of
// what is lost that it will not be back, but only once a message says that it has to be said; and gives up a host that
// is not released only once nothing has happened for a while, so that nobody who can be helped waits for that.
func (w *world) bringUp(t *rapid.T) {
	const quietTime = 30
	quiet := 0
	for range 900 {
		step := w.order(t)
		if step.Kind == controlplane.Done && w.finished() {
			return
		}
		if spared := sparedMachine.FindStringSubmatch(step.Message); len(spared) > 1 && w.lost[spared[1]] {
			w.machine(spared[1]).Health.ByHand = true
		}
		fetched, cleaned := w.fetch(), w.cleaned()
		moved := fetched || cleaned || !step.Waiting()
		for _, name := range w.names() {
			moved = w.advance(name) || moved
		}
		if quiet++; moved {
			quiet = 0
		}
		if quiet >= quietTime && w.unreleased[step.Machine] && step.Reason == controlplane.ReasonTerminating {
			w.nobodyWaitsFor(t, step)
			delete(w.unreleased, step.Machine)
		}
	}
	t.Fatalf("it never ends: %s, want %d of %s; last step: %s", census(w), w.Replicas, w.Version,
		tell(Assess(w.observe()).Step))
}

// nobodyWaitsFor makes sure that no dead member is left which somebody says is to be replaced, when nothing happens any
// more but that a host is not released: its Machine would have to wait as long as the host likes.
func (w *world) nobodyWaitsFor(t *rapid.T, step controlplane.Step) {
	for _, machine := range w.Machines {
		member := w.member(machine.Name)
		if called := machine.Health.Marked != "" || machine.Health.ByHand || machine.Health.Final != ""; called &&
			!machine.Deleting && member != nil && !member.Healthy {
			t.Fatalf("%s\nbroken promise: the dead member of %s waits for that", tell(step), machine.Name)
		}
	}
}

func (w *world) order(t *rapid.T) controlplane.Step {
	s := w.look()
	assessment := Assess(s)
	step := assessment.Step
	t.Logf("%s; %s", tell(step), census(w))
	if rash := calledDeadEarly(s, assessment.Unhealthy); rash != "" {
		t.Fatalf("broken promise: %s", rash)
	}
	if together := awayTogether(s); together != "" && w.Initialized && step.Kind == controlplane.DeleteMachine &&
		step.Remediates != "" && mayBeBack(s, step.Remediates) {
		t.Fatalf("%s\nbroken promise: replaced although %s", tell(step), together)
	}
	if w.unread != "" && w.needsEtcd(step) {
		t.Fatalf("%s\nbroken promise: etcd is %s", tell(step), w.unread)
	}
	if slices.ContainsFunc(w.Machines, func(machine controlplane.Machine) bool {
		return machine.Deleting && !machine.Hooked() && machine.HostClaimed
	}) && (step.Kind == controlplane.DeleteMachine || step.Kind == controlplane.RemoveEtcdMember) {
		switch member := w.member(step.Machine); {
		case step.Machine == "" || member == nil:
		case member.Healthy && !member.Learner:
			t.Fatalf("%s\nbroken promise: a vote is given away while another host is released", tell(step))
		case step.Kind == controlplane.RemoveEtcdMember:
			w.note(drawBeside)
		}
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
	w.minutes++
	s := w.observe()
	switch w.unread {
	case "unknown":
		s.Etcd = quorum.Membership{Problem: "no member answered"}
		w.note(drawUnknown)
	case "unconfirmed":
		s.Etcd.Agreed = false
		w.note(drawUnconfirmed)
	}
	for i := range s.Etcd.Members {
		member := &s.Etcd.Members[i]
		if odd := w.odd[member.ID]; odd != "" && member.Healthy {
			member.Healthy, member.Problem = false, odd
			member.Full, member.Unasked, member.Progress = odd == drawFull, odd == drawUnasked, uint64(w.minutes)
			w.note(odd)
		} else if !member.Healthy && s.Etcd.Agreed {
			member.Silent = time.Duration(w.missed[member.ID]) * time.Minute
			w.missed[member.ID]++
			if member.Silent < s.DeadMemberTimeout {
				w.note(drawPatience)
			}
			continue
		}
		delete(w.missed, member.ID)
	}
	for i := range s.Machines {
		w.lookAt(&s, &s.Machines[i])
	}
	if awayTogether(s) != "" {
		w.note(drawOutage)
	}
	return s
}

// lookAt adds what is known of a Machine by the time.
func (w *world) lookAt(s *controlplane.State, machine *controlplane.Machine) {
	name := machine.Name
	voter := slices.ContainsFunc(s.Etcd.Members, func(member quorum.Member) bool {
		return member.Machine == name && !member.Learner && (member.Healthy || member.Full)
	})
	if _, noted := w.ill[name]; voter || machine.Node == "" || !s.Etcd.Known {
		delete(w.ill, name)
	} else if !noted {
		w.ill[name] = w.now()
	}
	machine.Health.MemberIllSince = w.ill[name]
	if machine.Health.SilentSince.IsZero() && machine.HostClaimed && machine.Health.AnswersSince.IsZero() {
		machine.Health.AnswersSince = machine.Health.Born
		if machine.Health.Born.After(w.now()) {
			// The clock was set back since.
			w.machine(name).Health.AnswersSince = w.now()
			machine.Health.AnswersSince = w.now()
		}
	}
	if last := machine.Health.Replaces; last != nil && last.RetryCount > 0 {
		w.note(drawRetry)
	}
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
		w.note(drawByHand)
		return
	}
	health.Marked = "its Node lacks a condition"
	w.note(drawMark)
}

// stepClock sets the manager's clock. What it wrote down is by the clock before: of attempts and births always; of what
// it observes only where the clock was set back, because of a step forward the observation takes the step out. What is
// waited from and would lie ahead of the clock began now.
func (w *world) stepClock(by time.Duration) {
	move := func(at *time.Time) {
		if !at.IsZero() {
			*at = at.Add(-by)
		}
	}
	began := func(at *time.Time) {
		if move(at); at.After(w.now()) {
			*at = w.now()
		}
	}
	for i := range w.Machines {
		health := &w.Machines[i].Health
		move(&health.Born)
		if last := health.Replaces; last != nil {
			moved := *last
			began(&moved.Time)
			health.Replaces = &moved
		}
		if by < 0 {
			for _, at := range []*time.Time{&health.SilentSince, &health.NodeLostSince, &health.NodeReadySince} {
				move(at)
			}
			began(&health.AnswersSince)
		}
	}
	if pending := w.Remediation.Pending; pending != nil {
		moved := *pending
		began(&moved.Time)
		w.Remediation.Pending = &moved
	}
	if by < 0 {
		for name, since := range w.ill {
			began(&since)
			w.ill[name] = since
		}
	}
	w.note(drawClock)
}

// misread has a member that works look as if it did not, or again as it is.
func (w *world) misread(t *rapid.T) {
	if len(w.Etcd.Members) == 0 {
		return
	}
	looks := []string{"", drawFull, drawUnasked}
	if w.DeadMemberTimeout > 0 {
		// Without patience everybody is dead at once.
		looks = append(looks, drawSlow)
	}
	w.odd[rapid.SampledFrom(w.Etcd.Members).Draw(t, "misread").ID] = rapid.SampledFrom(looks).Draw(t, "as")
}

// cutOff has hosts be silent, several at once, while what runs there goes on; or they are back.
func (w *world) cutOff(t *rapid.T) {
	silent := rapid.Bool().Draw(t, "silent")
	for i := range w.Machines {
		if machine := &w.Machines[i]; machine.HostClaimed && !w.lost[machine.Name] && rapid.Bool().Draw(t, "cut off") {
			w.hear(machine, !silent)
		}
	}
}

// hear notes that the host of a Machine answers, or does not, from now on.
func (w *world) hear(machine *controlplane.Machine, answers bool) {
	switch health := &machine.Health; {
	case answers && !health.SilentSince.IsZero():
		health.SilentSince, health.AnswersSince = time.Time{}, w.now()
	case !answers && health.SilentSince.IsZero():
		health.SilentSince, health.AnswersSince = w.now(), time.Time{}
	}
}

// loseMember has the member of a Machine die for good whose host answers, and no health check says so.
func (w *world) loseMember(t *rapid.T) {
	// What still runs its bootstrap data ends that before anybody judges its member.
	names := slices.DeleteFunc(w.expendable(true), func(name string) bool { return !w.machine(name).Bootstrapped })
	if len(names) == 0 {
		return
	}
	machine := w.machine(rapid.SampledFrom(names).Draw(t, "its member died"))
	w.die(machine.Name)
	w.lost[machine.Name] = true
	w.hear(machine, true)
	w.note(drawMemberLost)
}

// loseJoining has the join of a Machine fail or hang for good, or its host be lost in the middle of it, with the member
// that it may have added.
func (w *world) loseJoining(t *rapid.T) {
	names := slices.DeleteFunc(w.names(), func(name string) bool {
		machine := w.machine(name)
		return machine.Bootstrapped || machine.Deleting || w.lost[name]
	})
	if len(names) == 0 {
		return
	}
	name := rapid.SampledFrom(names).Draw(t, "joins in vain")
	for range rapid.IntRange(0, 5).Draw(t, "after so many steps") {
		w.advance(name)
	}
	machine, member := w.machine(name), w.member(name)
	if !machine.HostClaimed || machine.Bootstrapped || member != nil && !member.Learner ||
		w.Initialized && w.votersWithout(name) == 0 {
		return
	}
	w.lost[name], machine.Healthy, machine.Serving = true, false, false
	ways := []string{"fails", "hangs", "lost"}
	if member != nil && machine.Node != "" {
		ways = append(ways, "learns", "learns")
	}
	switch rapid.SampledFrom(ways).Draw(t, "how") {
	case "learns":
		// For ever, and the time alone says so.
		machine.Joining, machine.Problem = false, "its member is a learner"
		w.hear(machine, true)
		w.note(drawStuck)
		return
	case "hangs":
		machine.Problem, machine.Health.Marked = "its bootstrap runs", "it has no Node for long"
		w.note(drawJoinHangs)
		return
	case "fails":
		machine.Problem = "kubeadm join failed"
		w.note(drawJoinFails)
	case "lost":
		machine.Problem = "its host was given up"
		w.hear(machine, false)
		w.note(drawJoinLost)
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
	if member := w.member(machine.Name); member != nil && rapid.Bool().Draw(t, "member") && !w.nameless[member.ID] {
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
	names := w.expendable(host)
	if len(names) == 0 {
		return
	}
	name := rapid.SampledFrom(names).Draw(t, "lost")
	w.lose(name, host)
	if host {
		w.hear(w.machine(name), false)
		w.note(drawHostLost)
	} else {
		w.note(drawServerLost)
	}
}

// expendable are the Machines that are a node and may be lost for good, with their member or without.
func (w *world) expendable(host bool) []string {
	return slices.DeleteFunc(w.names(), func(name string) bool {
		machine, member := w.machine(name), w.member(name)
		voters, _ := w.voters()
		others := slices.ContainsFunc(w.Machines, func(other controlplane.Machine) bool {
			voter := w.member(other.Name)
			return other.Name != name && other.Node != "" && !w.lost[other.Name] && (!other.Deleting || other.DrainHook) &&
				voter != nil && !voter.Learner && voter.Healthy
		})
		return machine.Node == "" || machine.Deleting || member == nil || member.Learner || w.lost[name] ||
			w.nameless[member.ID] ||
			host && w.votersWithout(name) < voters/2+1 || !others
	})
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
			w.hear(machine, true)
		}
	}
}

// leaveAlone makes everything well that is not lost, and the spec legal, and gives up the members whose Machines are not
// known. Where a Machine may be removed first there may be just as many hosts as Machines are wanted; else there is one
// more.
func (w *world) leaveAlone(scarce bool) {
	w.unread = ""
	clear(w.odd)
	clear(w.nameless)
	w.repairTheLast()
	for i := range w.Machines {
		machine := &w.Machines[i]
		if w.lost[machine.Name] {
			continue
		}
		w.hear(machine, true)
		if machine.Node != "" {
			machine.Healthy, machine.Serving, machine.Health.Marked = true, true, ""
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
