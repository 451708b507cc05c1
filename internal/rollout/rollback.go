// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
)

// Trial is since when a revision is tried: since a Machine of it had a host. It ends when one of it counts or is
// proved.
type Trial struct {
	Revision string
	// Since is zero while the first host fails, which says nothing about the revision.
	Since time.Time
	// Host that failed first, as namespace/name, or its Machine where that is not known; empty when none did.
	Host string
	// Failed is the Machine that failed on it last; empty once another host was tried.
	Failed string
}

// on reports whether the Machine has the host that failed first.
func (t Trial) on(m Machine) bool {
	return t.Host != "" && (t.Host == cmp.Or(m.Host, m.Name) || t.Failed == m.Name)
}

// excuses reports whether the Machine fails with the host that failed first.
func (t Trial) excuses(m Machine) bool { return m.HostFailed != "" && t.on(m) }

// hosted are the Machines of the present revision that have a host and do not count yet.
func (p Pool) hosted() (all []Machine) {
	for _, m := range p.Machines {
		if m.stage() == inFlight && m.Hosted {
			all = append(all, m)
		}
	}
	return all
}

// Failure is a pool whose template is to be set back: no Machine of it counted, or was validated, in time.
type Failure struct {
	Pool, Machine string
	// To is the revision that was completed last; empty when none was.
	To string
	// Why the Machine does not count.
	Why string
}

// Proof is that a Machine worked and does not count only because of something else, such as a person who is waited for.
type Proof struct {
	Machine string
	// Since it was proved first.
	Since time.Time
	// Lost is when it ceased to be healthy, and its deadline began anew; zero while it is proved.
	Lost time.Time
}

// proofs of the pool's new Machines as of now. One that was lost is had again with a whole soak, and not before.
func (p *planner) proofs(pool *rules) []Proof {
	var all []Proof
	for _, m := range pool.Machines {
		if s := m.stage(); s != inFlight && (s != outdated || !m.Gated) {
			continue
		}
		proof, now := pool.proof(m), p.now.Truncate(time.Second)
		switch {
		case p.proves(pool, m):
			proof = Proof{Machine: m.Name, Since: proof.Since}
			if proof.Since.IsZero() {
				proof.Since = now
			}
		case proof.Since.IsZero():
			continue
		case m.Unhealthy != "" && proof.Lost.IsZero():
			proof.Lost = now
		}
		all = append(all, proof)
	}
	return all[:min(len(all), mostSubjects)]
}

// proof of one Machine; zero when there is none.
func (p Pool) proof(m Machine) Proof {
	for _, proof := range p.Proofs {
		if proof.Machine == m.Name {
			return proof
		}
	}
	return Proof{}
}

// remember what is known of a Machine that does not count yet.
func (p Pool) remember(proofs []Proof, m Machine) []Proof {
	if proof := p.proof(m); proof.Machine != "" {
		return append(proofs, proof)
	}
	return proofs
}

// proves reports whether a Machine was healthy for its soak, and looks hold nothing against it: the last one found
// nothing, or something that is not its fault, or looks are of another pool or not made because something stops the
// pool. A Machine that was not looked at yet is not proved: it may be one that is healthy for a moment only.
func (p *planner) proves(pool *rules, m Machine) bool {
	end := m.Since.Add(pool.soak)
	if !m.Joined || m.Unhealthy != "" || p.now.Before(end) {
		return false
	}
	stop, _ := p.stops(pool)
	enough, known, record := threshold(pool.validation), p.validated(m).Successes, p.validation.record
	switch {
	case stop != "" || enough == 0 || known > 0:
		return true
	case record == nil:
		return false
	case !p.looksAt(pool):
		return !record.Since.IsZero()
	}
	return failures(record) != "" && !record.LastLookTime.Time.Before(end) && !blames(record, m)
}

// trial of the present revision as of now: kept while none of its Machines counts, whatever takes their place. What
// fails beside a control plane that is not healthy, or while somebody suspended it, says nothing: it begins anew then.
// So it does after one of them was proved, since a template that worked is not judged by a moment in which its Machine
// is not Ready, however long that waited for a person or a window before.
// A drain that fails ends nothing: it may wait for the room that just these Machines do not give.
// Once a Machine of it counted it works, and is tried no more, whatever becomes of that Machine: only the revision is
// remembered then.
// The first host that fails says nothing either, nor does it with the next Machine, until another one was tried.
func (p *planner) trial(pool *rules) Trial {
	worked := Trial{Revision: pool.Revision}
	switch {
	case pool.Revision == "" || !pool.rolling():
		return Trial{}
	case pool.Trial == worked || pool.onFailure == quoinv1.RolloutFailureRollback && pool.in(counts) > 0:
		return worked
	case pool.suspended != "" || p.Unhealthy != "" || pool.in(counts) > 0:
		return Trial{}
	}
	for _, m := range pool.Machines {
		if m.stage() == inFlight && p.proves(pool, m) {
			return Trial{}
		}
	}
	trial := Trial{Revision: pool.Revision}
	if pool.Trial.Revision == pool.Revision {
		trial = pool.Trial
	}
	hosted, others := pool.hosted(), false
	for _, m := range hosted {
		if m.HostFailed != "" && trial.Host == "" {
			trial = Trial{Revision: pool.Revision, Host: cmp.Or(m.Host, m.Name), Failed: m.Name}
		}
	}
	for _, m := range hosted {
		if trial.Host != "" && !trial.on(m) {
			trial.Failed, others = "", true // what runs from now on is never dropped
		}
	}
	for _, m := range hosted {
		switch {
		case trial.excuses(m) && trial.Failed != "" && trial.Failed != m.Name:
			trial.Since, trial.Failed = time.Time{}, m.Name // the same host again, and no other one was tried
		case trial.Since.IsZero() && (others || m.HostFailed == ""):
			trial.Since = p.now.Truncate(time.Second)
		}
	}
	if trial.Since.IsZero() && trial.Host == "" {
		return Trial{}
	}
	return trial
}

// fails notes a revision that did not work in time. A Machine without a host says nothing about it.
func (p *planner) fails(pool *rules, m Machine, why string) {
	deadline, trial := seconds(p.policy.DeadlineSeconds), p.trial(pool)
	if pool.onFailure != quoinv1.RolloutFailureRollback || deadline == 0 || trial.Since.IsZero() || !m.Hosted ||
		m.Outdated || trial.excuses(m) && slices.ContainsFunc(pool.hosted(), func(m Machine) bool { return !trial.on(m) }) {
		return // where others are tried, they say it
	}
	if m.Joined {
		deadline += pool.soak // it may have been healthy for most of it
	}
	if late := trial.Since.Add(deadline); p.now.Before(late) {
		p.again(late.Sub(p.now))
		return
	}
	p.fail(pool, m, why)
}

// invalidates notes a revision with whose first Machine the Cluster did not validate in time.
//
// That is held against the revision only where looks hold it against this Machine, which the record of them says: what
// they find on the control plane or on other Nodes, and what nobody answers, stops the rollout and says nothing about a
// template (K-8). The time counts from when the Machine had soaked, and anew after looks held nothing against it,
// however long they found something else; what was there before the first Machine of a pool is found by the look before
// its admission, which is about none. And it takes a look that was made when the time was over: what was found before a
// manager was away may be mended. When a Machine of the revision counts there is no trial, and nothing is set back.
func (p *planner) invalidates(pool *rules, m Machine) {
	record, trial := p.validation.record, p.trial(pool)
	if pool.onFailure != quoinv1.RolloutFailureRollback || trial.Since.IsZero() || m.Outdated || !p.looksAt(pool) ||
		record.Since.IsZero() || !blames(record, m) {
		return
	}
	since, timeout := record.Since.Time, orSeconds(pool.validation.TimeoutSeconds, 900)
	for _, later := range []time.Time{m.Since.Add(pool.soak), trial.Since} {
		if later.After(since) {
			since = later
		}
	}
	if !record.LastLookTime.Time.Before(since.Add(timeout)) {
		p.fail(pool, m, fmt.Sprintf("the Cluster was not validated within %s: %s", timeout, failures(record)))
	}
}

// fail notes the first failure of a pool.
func (p *planner) fail(pool *rules, m Machine, why string) {
	for _, failure := range p.result.Failures {
		if failure.Pool == pool.Name {
			return
		}
	}
	p.result.Failures = append(p.result.Failures, Failure{Pool: pool.Name, Machine: m.Name, To: pool.Completed,
		Why: fmt.Sprintf("Machine %s does not count: %s", m.Name, why)})
}

// Attempt is what is remembered at a MachineDeployment of a template that failed. It ends when the MachineDeployment
// completes another one than that which was restored.
type Attempt struct {
	At time.Time
	// Failed and Restored are digests of templates.
	Failed, Restored string
	// Why it failed.
	Why string
}

// String is the value of the annotation.
func (m Attempt) String() string {
	return fmt.Sprintf("%s %s %s %s", m.At.UTC().Format(time.RFC3339), m.Failed, m.Restored, m.Why)
}

// ParseAttempt reads the annotation; what is none is zero.
func ParseAttempt(value string) Attempt {
	parts := strings.SplitN(value, " ", 4)
	if len(parts) < 4 {
		return Attempt{}
	}
	at, err := time.Parse(time.RFC3339, parts[0])
	if err != nil {
		return Attempt{}
	}
	return Attempt{At: at, Failed: parts[1], Restored: parts[2], Why: parts[3]}
}

// Way is what has to be known to set a template back.
type Way struct {
	// Cluster of the MachineDeployment.
	Cluster string
	// Topology: the MachineDeployment is made from the Cluster's topology.
	Topology bool
	// Present and Recorded are digests of templates; Recorded is empty when none was recorded.
	Present, Recorded string
	// Missing names an object that the recorded template needs and that is not there; empty when all are.
	Missing string
	// Owner applies a field that would be changed, which Field names; empty when nobody does.
	Owner, Field string
	// Attempt of the last time.
	Attempt Attempt
}

// Refuse says why the template is not set back, and what a person can do; it is empty when nothing speaks against it.
func (f Failure) Refuse(way Way) string {
	of := "MachineDeployment " + f.Pool
	switch {
	case way.Topology:
		return fmt.Sprintf("%s is made from the topology of Cluster %s, which would take it back: change there what was "+
			"changed last, its spec.topology.version, its variables, or the templates of its ClusterClass", of, way.Cluster)
	case way.Recorded == "":
		return fmt.Sprintf("no template of %s is recorded: it was not completed under a policy that rolls back. Set its "+
			"spec.template to one that works", of)
	case way.Recorded == way.Present:
		return fmt.Sprintf("%s has the template that was completed last, and that does not work any more: see what Machine "+
			"%s lacks", of, f.Machine)
	case way.Attempt.Failed == way.Present && way.Attempt.Restored == way.Recorded:
		return fmt.Sprintf("the template of %s was set back at %s already and is there again: give it one that works", of,
			way.Attempt.At.UTC().Format(time.RFC3339)) + writes(way)
	case way.Owner != "":
		return fmt.Sprintf("%s of %s is written by %s, which would take it back: have that write what was there before",
			way.Field, of, way.Owner)
	case way.Missing != "":
		return fmt.Sprintf("the former template of %s needs %s, which is not there any more: make it, or set spec.template "+
			"to one that works", of, way.Missing)
	}
	return ""
}

func writes(way Way) string {
	if way.Owner == "" {
		return ""
	}
	return fmt.Sprintf(". %s writes its %s", way.Owner, way.Field)
}
