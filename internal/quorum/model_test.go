// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quorum

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// strategy of a rollout in the model.
type strategy string

const (
	surge       strategy = "Surge"
	removeFirst strategy = "RemoveFirst"
	auto        strategy = "Auto"
)

// modelRuns is how many seeds each size and strategy gets; QUOIN_NIGHTLY asks for many more.
func modelRuns() uint64 {
	if os.Getenv("QUOIN_NIGHTLY") != "" {
		return 125_000
	}
	return 250
}

// Proves: S2-30, S2-33
//
// A model of etcd on hosts, with an operator that does whatever Judge allows and remembers nothing between two steps,
// so each step is also one after it was killed. Against it: members that fail and come back or do not, learners that
// never catch up, readings that miss a member, people who delete any number of Machines. At most as many members are
// down or missing at a time as the wanted number tolerates. At every step the voters that are up are a quorum, one of
// them has everything that was acknowledged, there is at most one voter more than wanted, and no step that takes a
// healthy voter leaves fewer than the strategy says. When the hosts behave it always ends with the wanted, renewed
// members.
//
// Every other world is harsh: more members fail than the wanted number tolerates, what is down looks healthy, nobody can
// be asked, the database is full, Machines are lost whose members vote, and the world goes on between the look and the
// deed. Then a quorum may be lost, but not by a deed: none takes a quorum that was there unless more that was read is
// wrong than the strategy leaves room for, and all that was acknowledged stays with a member that can come back. Each
// of these is drawn: one that no world meets any more is an error.
func TestModel(t *testing.T) {
	for _, test := range []struct {
		desired  int
		strategy strategy
	}{{1, surge}, {3, surge}, {5, surge}, {3, removeFirst}, {5, removeFirst}, {1, auto}, {3, auto}, {5, auto}} {
		t.Run(fmt.Sprintf("%d/%s", test.desired, test.strategy), func(t *testing.T) {
			t.Parallel()
			done, drawn, fooled := map[Kind]int{}, map[string]int{}, 0
			for seed := range modelRuns() {
				w := newWorld(test.desired, test.strategy, seed)
				if problem := w.run(); problem != "" {
					t.Fatalf("seed %d: %s\n%s", seed, problem, strings.Join(w.story, "\n"))
				}
				for kind, n := range w.done {
					done[kind] += n
				}
				for draw, n := range w.drawn {
					drawn[draw] += n
				}
				if w.fooled {
					fooled++
				}
			}
			t.Logf("%d worlds, of which %d were fooled; steps %v, draws %v", modelRuns(), fooled, done, drawn)
			for _, draw := range draws {
				// Beside a single one there is another voter for a moment only.
				if drawn[draw] == 0 && (draw != drawStray || test.desired > 1) {
					t.Errorf("no world drew %q", draw)
				}
			}
			if fooled > int(modelRuns())/5 { //nolint:gosec // some thousands
				t.Errorf("%d worlds ended because too much was misread: what remains shows little", fooled)
			}
			for _, kind := range []Kind{AddLearner, promoted, Remove, Depart} {
				if done[kind] < int(modelRuns())*test.desired { //nolint:gosec // some thousands
					t.Errorf("%s happened %d times: the model does not do what it should", kind, done[kind])
				}
			}
		})
	}
}

// Draws of a harsh world.
const (
	drawAgreement = "agreement without a healthy quorum"
	drawSilence   = "a voter silent for long enough to be dead"
	drawBriefly   = "a voter silent for a moment"
	drawFull      = "a full disk"
	drawUnasked   = "a voter that nobody could ask"
	drawStray     = "a voter without a Machine"
	drawLie       = "a voter that is down and looks healthy"
	drawMissed    = "a voter that is up and looks ill"
	drawUnread    = "no reading"
	drawApart     = "a voter that fails between the look and the deed"
	drawTooMany   = "more voters down than tolerated"
)

// promoted is what kubeadm does by itself.
const promoted Kind = "Promote"

var draws = []string{drawAgreement, drawSilence, drawBriefly, drawFull, drawUnasked, drawStray, drawLie, drawMissed,
	drawUnread, drawApart, drawTooMany}

// quorate reports whether so many of all can agree, in etcd's words and not in those of what is tested.
func quorate(up, all int) bool { return 2*up > all }

// bears is how many of so many may fail, so that the others can agree.
func bears(all int) int { return (all - 1) / 2 }

// modelMember is a member and what its host does.
type modelMember struct {
	Member
	// up: it runs. lost: it will not again, and its data is gone.
	up, lost bool
	// index of the last entry that it has.
	index int
	// renewed: made after the rollout began.
	renewed bool
	// silent is for how many readings in a row it was not healthy.
	silent int
	// lies: it is down, and looked healthy in the last reading.
	lies bool
}

type world struct {
	rng      *rand.Rand
	desired  int
	strategy strategy
	// spare hosts.
	spare   int
	members []*modelMember
	// acknowledged is the last entry that a writer was told is safe.
	acknowledged int
	calm         bool
	// harsh: more happens than is planned for. full: the database is. fooled: more was misread at a deed than anybody
	// could know, and that cost the quorum.
	harsh, full, fooled bool
	// all: kubeadm join asks each member.
	all       bool
	deletions int
	done      map[Kind]int
	drawn     map[string]int
	story     []string
}

func newWorld(desired int, strategy strategy, seed uint64) *world {
	w := &world{rng: rand.New(rand.NewPCG(seed, uint64(desired))), desired: desired, strategy: strategy, done: map[Kind]int{}, //nolint:gosec // reproducible
		drawn: map[string]int{}, spare: 1, deletions: 2, acknowledged: 1000}
	w.harsh = seed%2 == 1
	w.all = w.harsh && w.rng.IntN(2) == 0
	if strategy != surge {
		w.spare = w.rng.IntN(2)
	}
	for range desired {
		w.join().Learner = false
		w.members[len(w.members)-1].index = w.acknowledged
	}
	return w
}

func (w *world) chance(percent int) bool { return !w.calm && w.rng.IntN(100) < percent }

// harshly is a chance that only a harsh world has.
func (w *world) harshly(percent int) bool { return w.harsh && w.chance(percent) }

func (w *world) say(format string, args ...any) {
	var drawn []string
	for _, m := range w.members {
		mark := ""
		if !m.up {
			mark = "x "
		}
		if m.Departing {
			mark += map[bool]string{true: "!", false: ">"}[m.Held]
		}
		drawn = append(drawn, map[bool]string{true: "(" + mark + m.Machine + ")", false: "[" + mark + m.Machine +
			"]"}[m.Learner])
	}
	w.story = append(w.story, fmt.Sprintf("%-40s %s", strings.Join(drawn, " "), fmt.Sprintf(format, args...)))
}

func (w *world) join() *modelMember {
	id := uint64(1)
	for _, m := range w.members {
		id = max(id, m.ID+1)
	}
	name := fmt.Sprintf("m%d", id)
	m := &modelMember{Member: Member{ID: id, Name: name, Machine: name, Learner: true}, up: true}
	w.members = append(w.members, m)
	return m
}

func (w *world) voters() (all, up int) {
	for _, m := range w.members {
		if !m.Learner {
			all++
			if m.up {
				up++
			}
		}
	}
	return all, up
}

// commit appends an entry and has it acknowledged by some majority.
func (w *world) commit() {
	all, up := w.voters()
	if !quorate(up, all) || w.full {
		return
	}
	w.append()
}

// append has some majority agree to an entry of the log.
func (w *world) append() {
	all, _ := w.voters()
	w.acknowledged++
	have := 0
	for _, i := range w.rng.Perm(len(w.members)) {
		if m := w.members[i]; m.up && !m.Learner && !quorate(have, all) {
			m.index = w.acknowledged
			have++
		}
	}
}

// run lets the world rage for a while and then be calm until nothing is left to do.
func (w *world) run() string {
	for range 60 + w.rng.IntN(120) {
		w.rage()
		if problem := w.check(); problem != "" {
			return problem
		}
		if problem := w.operate(); problem != "" {
			return problem
		}
		if problem := w.check(); problem != "" || w.fooled {
			return problem
		}
	}
	w.calm, w.full = true, false
	w.say("the hosts behave from here on")
	alive := 0
	for _, m := range w.members {
		if !m.lost {
			alive++
		}
	}
	w.spare = max(w.spare, w.desired+1-alive)
	for range 400 {
		for _, m := range w.members {
			m.up = !m.lost
		}
		w.rage()
		if problem := w.operate() + w.check(); problem != "" || w.fooled {
			return problem
		}
		if w.converged() {
			return ""
		}
	}
	return "it never ends"
}

func (w *world) converged() bool {
	for _, m := range w.members {
		if m.Learner || !m.up || m.Departing || !m.renewed || m.Machine == "" {
			return false
		}
	}
	return len(w.members) == w.desired
}

// rage is what happens without the operator: writes, learners that copy and get their vote from kubeadm, failures
// within what the wanted number tolerates, people.
func (w *world) rage() {
	w.commit()
	all, up := w.voters()
	for _, m := range w.members {
		if m.up && (w.calm || w.rng.IntN(3) == 0) {
			m.index = w.acknowledged
		}
		// kubeadm asks for this, and etcd checks that the learner is alive and has nearly everything.
		if m.Learner && m.up && m.index > w.acknowledged*9/10 && quorate(up, all) && (w.calm || w.rng.IntN(3) == 0) {
			m.Learner = false
			w.done[promoted]++
			w.say("%s votes", m.Machine)
			w.commit()
		}
	}
	for _, m := range w.members {
		all, up := w.voters()
		down := all - up + max(0, w.desired-all)
		switch {
		case m.up && (m.Learner || down+1 <= bears(w.desired) || w.harshly(20)) && w.chance(4):
			m.up = false
			if w.chance(50) && w.bearable(m) {
				m.lost, m.index = true, 0
			}
			w.note(drawTooMany, !m.Learner && down+1 > bears(w.desired))
			w.say("%s is down, for good: %t", m.Machine, m.lost)
		case !m.up && !m.lost && w.chance(20):
			m.up = true
			w.say("%s is back", m.Machine)
		}
	}
	if w.chance(1) {
		w.spare++
	}
	w.full = w.harshly(map[bool]int{true: 80, false: 1}[w.full])
	if w.harshly(1) {
		w.forget(w.members[w.rng.IntN(len(w.members))])
	}
	if w.deletions > 0 && w.chance(3) {
		w.deletions--
		some := w.rng.IntN(101)
		for _, m := range w.members {
			if !m.Departing && w.rng.IntN(100) < some {
				m.Departing, m.Held = true, true
			}
		}
		w.say("somebody deletes Machines")
	}
}

// bearable reports whether the member may be lost for good: those that are left can be a quorum again, one of them has
// what was acknowledged, and one a Machine through which etcd can be reached. In a world that is not harsh that follows from how few fail.
func (w *world) bearable(lost *modelMember) bool {
	all, left, kept, reached := 0, 0, false, false
	for _, m := range w.members {
		if m.Learner {
			continue
		}
		all++
		if m != lost && !m.lost {
			left++
			kept, reached = kept || m.index >= w.acknowledged, reached || m.Machine != ""
		}
	}
	return !w.harsh || lost.Learner || quorate(left, all) && kept && reached
}

// forget loses the Machine of a voter that works, while another one has its own.
func (w *world) forget(m *modelMember) {
	if m.up && !m.Learner && !m.Departing && slices.ContainsFunc(w.members, func(other *modelMember) bool {
		return other != m && !other.Learner && !other.lost && !other.Departing && other.Machine != ""
	}) {
		w.say("the Machine of %s is lost", m.Machine)
		m.Machine = ""
		w.drawn[drawStray]++
	}
}

func (w *world) check() string {
	all, up := w.voters()
	switch {
	case !quorate(up, all) && !w.harsh:
		return fmt.Sprintf("%d of %d voters are up", up, all)
	case all > w.desired+1:
		return fmt.Sprintf("there are %d voters", all)
	}
	for _, m := range w.members {
		if (m.up || w.harsh && !m.lost) && !m.Learner && m.index >= w.acknowledged || w.fooled {
			return ""
		}
	}
	return "nobody has what was acknowledged"
}

// readingInterval is the time between two steps of the operator.
const readingInterval = 10 * time.Second

// observe reads what the operator sees: now and then a member that is up is not reached, or none is.
func (w *world) observe() Membership {
	if w.chance(3) {
		w.drawn[drawUnread]++
		return Membership{Problem: "not this time"}
	}
	all, up := w.voters()
	result := Membership{Known: true, Agreed: quorate(up, all)}
	for _, m := range w.members {
		seen := m.Member
		m.lies = !m.up && w.harshly(map[bool]int{true: 70, false: 2}[m.lies])
		seen.Healthy = m.up && !w.chance(3) && !w.full || m.lies
		seen.Full = m.up && w.full
		seen.Unasked = !seen.Healthy && !seen.Full && w.harshly(5)
		if m.silent++; seen.Healthy || seen.Full || seen.Unasked {
			m.silent = 0
		}
		seen.Silent = time.Duration(m.silent) * readingInterval
		if !m.lies {
			seen.Lag = uint64(w.acknowledged - m.index) //nolint:gosec // never negative
		}
		result.Members = append(result.Members, seen)
		w.noteReading(m, seen)
	}
	healthy := 0
	for _, seen := range result.Members {
		if !seen.Learner && seen.Healthy {
			healthy++
		}
	}
	w.note(drawAgreement, result.Agreed && !quorate(healthy, all))
	return result
}

// noteReading counts what a reading says of a voter, beside what is so.
func (w *world) noteReading(m *modelMember, seen Member) {
	if seen.Learner {
		return
	}
	w.note(drawFull, seen.Full)
	w.note(drawUnasked, seen.Unasked)
	w.note(drawLie, m.lies)
	w.note(drawMissed, m.up && !seen.Healthy && !seen.Full)
	w.note(drawSilence, m.silent >= 3)
	w.note(drawBriefly, m.silent == 1)
}

func (w *world) note(draw string, drawn bool) {
	if drawn {
		w.drawn[draw]++
	}
}

// operate does one thing, if Judge allows it.
func (w *world) operate() string {
	seen := w.observe()
	terms := Terms{Desired: w.desired, Spare: w.spare > 0, Lowered: w.strategy == removeFirst, All: w.all,
		DeadMemberTimeout: 3 * readingInterval}
	if w.harshly(20) {
		_, before := w.voters()
		w.rage()
		_, after := w.voters()
		w.note(drawApart, after < before)
	}
	if w.strategy == auto {
		terms.Lowered = w.spare == 0 && w.desired >= 3
	}
	may := func(kind Kind, ids ...uint64) bool {
		return Judge(seen, Operation{Kind: kind, Members: ids}, terms).Allowed
	}
	dead := func(m *modelMember) bool {
		read, _ := seen.Member(m.ID)
		return read.Learner || !read.Healthy && !read.Full && !read.Unasked && read.Silent >= terms.DeadMemberTimeout
	}
	// reached: another voter works whose Machine stays, so that etcd can be asked without this one. Once all others were
	// given up nobody waits for that.
	reached := func(m *modelMember) bool {
		return w.calm || slices.ContainsFunc(w.members, func(other *modelMember) bool {
			read, _ := seen.Member(other.ID)
			return other != m && other.Machine != "" && !read.Learner && read.Healthy && (!other.Departing || other.Held)
		})
	}
	// Of those that no Machine runs the dead go, and a person gives the others up at some time. Until then nobody else goes
	// whose vote counts, and nobody joins.
	stray := slices.IndexFunc(w.members, func(m *modelMember) bool { return m.Machine == "" })
	if byQuorum := (Terms{Lowered: true, DeadMemberTimeout: terms.DeadMemberTimeout}); stray >= 0 {
		m := w.members[stray]
		if (dead(m) || w.calm || w.rng.IntN(10) == 0) &&
			Judge(seen, Operation{Kind: Remove, Members: []uint64{m.ID}}, byQuorum).Allowed {
			return w.remove(stray, seen, byQuorum)
		}
	}
	// What was begun is ended first. Nothing but the verdict keeps several from going at once.
	for i, m := range w.members {
		if m.Departing && !m.Held && (stray < 0 || dead(m) && reached(m)) && may(Remove, m.ID) {
			return w.remove(i, seen, terms)
		}
	}
	active, outdated := 0, false
	for _, m := range w.members {
		// A MachineHealthCheck notices in the end.
		if m.lost && !m.Departing && w.rng.IntN(3) == 0 {
			m.Departing, m.Held = true, true
		}
		if m.Held && (stray < 0 || dead(m) && reached(m)) && may(Depart, m.ID) {
			m.Held = false
			w.done[Depart]++
			w.say("%s may go", m.Machine)
			return ""
		}
		if !m.Departing {
			active++
			outdated = outdated || !m.renewed
		}
	}
	if stray >= 0 {
		return ""
	}
	replacing := outdated && !terms.Lowered && active <= w.desired
	if (active < w.desired || replacing) && w.spare > 0 && may(AddLearner) {
		if !w.agree() {
			return ""
		}
		w.spare--
		w.join().renewed = true
		w.done[AddLearner]++
		w.say("a learner joins")
		return ""
	}
	all, _ := w.voters()
	if outdated && active == len(w.members) && (all > w.desired || terms.Lowered && all == w.desired) {
		for _, m := range w.members {
			if !m.renewed {
				m.Departing, m.Held = true, true
				w.say("%s is to be replaced", m.Machine)
				return ""
			}
		}
	}
	return ""
}

// agree has the members agree to a change of their list, and reports whether they could.
func (w *world) agree() bool {
	all, up := w.voters()
	if !quorate(up, all) {
		return false
	}
	w.append()
	return true
}

func (w *world) remove(i int, seen Membership, terms Terms) string {
	if !w.agree() {
		return ""
	}
	gone := w.members[i]
	w.members = slices.Delete(w.members, i, i+1)
	w.done[Remove]++
	if !gone.lost || w.calm {
		w.spare++
	}
	w.say("%s is removed", gone.Machine)
	all, up := w.voters()
	if !quorate(up, all) && w.harsh {
		w.fooled = w.misread(gone, seen, terms)
		if !w.fooled {
			return fmt.Sprintf("%d of %d voters are up without %s, and enough of what was read was right", up, all, gone)
		}
	}
	least := w.desired
	if terms.Lowered {
		least--
	}
	if terms.Desired == 0 {
		return ""
	}
	// One that got its vote since the look leaves those behind that were there at the look.
	if observed, _ := seen.Member(gone.ID); observed.Healthy && !observed.Learner && all < least {
		return fmt.Sprintf("%d voters are left, and %s leaves at least %d", all, w.strategy, least)
	}
	return ""
}

// misread reports whether more of what a removal rests on was wrong than it leaves room for. One that is down takes no
// quorum along, whoever is misread.
func (w *world) misread(gone *modelMember, seen Membership, terms Terms) bool {
	wrong, room := 0, bears(w.desired)
	for _, m := range w.members {
		if read, _ := seen.Member(m.ID); read.Healthy && !m.up {
			wrong++
		}
	}
	if terms.Lowered {
		room = max(0, room-1)
	}
	if read, _ := seen.Member(gone.ID); !read.Healthy || read.Learner || terms.Desired == 0 {
		room = 0
	}
	return gone.up && !gone.Learner && wrong > room
}
