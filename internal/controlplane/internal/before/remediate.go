// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package before

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/quorum"
)

const (
	// memberDeadline is how long a Machine may be without a healthy voter, while its host answers, until it is replaced.
	// It is longer than a large database takes to be copied, and than a host takes from its first answer to its last pod.
	memberDeadline = 10 * time.Minute
	// firstBackOff and longestBackOff lie between two attempts where nobody but us says that a Machine is ill, and the spec
	// sets no retry period: a mistake in the spec would else reset every free host, one after the other, without a pause.
	firstBackOff   = time.Minute
	longestBackOff = time.Hour
	// usualHealthyPeriod is what KubeadmControlPlane takes for minHealthyPeriodSeconds.
	usualHealthyPeriod = time.Hour
)

// Remediation is what the replacement of unhealthy Machines depends on besides the Machines.
type Remediation struct {
	// Now is when everything was read.
	Now time.Time
	// MaxRetry is how often a replacement may be replaced; nil without limit.
	MaxRetry *int
	// RetryPeriod lies between two attempts; nil when the spec leaves it open.
	RetryPeriod *time.Duration
	// MinHealthyPeriod after an attempt a failure is a new one; nil when the spec leaves it open.
	MinHealthyPeriod *time.Duration
	// Deferred says why nothing is replaced for its health now; empty when nothing speaks against it.
	Deferred string
	// Pending is the attempt whose Machine left first, until the one is made that takes its place.
	Pending *Attempt
}

// Attempt is one replacement of an unhealthy Machine. Its JSON is the value of an annotation.
type Attempt struct {
	// Machine that is replaced.
	Machine string `json:"machine"`
	// Time at which that began.
	Time time.Time `json:"timestamp"`
	// RetryCount is how many attempts before this one ended in an unhealthy Machine.
	RetryCount int `json:"retryCount"`
}

// Health is what tells that a Machine has to be replaced, and what speaks against it. Times are zero when they do not apply.
type Health struct {
	// Marked is what a MachineHealthCheck that leaves the remedy to us says; empty when none does.
	Marked string
	// ByHand: a person asked for the replacement with an annotation.
	ByHand bool
	// Spared says why it is not to be replaced for its health, such as an annotation; empty when it may.
	Spared string
	// Final says why it will never become a node: its bootstrap data failed, or its host was given up.
	Final string
	// InfrastructureGone: somebody deleted what holds its host.
	InfrastructureGone bool
	// MemberIllSince is since when it has no healthy voter, for a reason that a new one would not have.
	MemberIllSince time.Time
	// SilentSince is since when its host does not answer, AnswersSince since when it does.
	SilentSince, AnswersSince time.Time
	// NodeLostSince is since when its kubelet does not report, NodeReadySince since when its Node is Ready.
	NodeLostSince, NodeReadySince time.Time
	// DomainLost says that its failure domain is taken for lost, by the hosts of everybody in it.
	DomainLost string
	// Born is when the Machine was made.
	Born time.Time
	// Replaces is the attempt that it was made by; nil when it replaces no unhealthy Machine.
	Replaces *Attempt
}

// Words for what ails a Machine.
const (
	AilmentByHand             = "RemediateMachineAnnotation"
	AilmentInfrastructureGone = "InfrastructureDeleted"
	AilmentNeverStarted       = "NeverStarted"
	AilmentHostLost           = "HostLost"
	AilmentHealthCheck        = "HealthCheckFailed"
	AilmentMemberMissing      = "MemberMissing"
	AilmentMemberNeverStarted = "MemberNeverStarted"
	AilmentLearnerStuck       = "LearnerStuck"
	AilmentMemberDead         = "MemberDead"
)

// Ailment is why a Machine has to be replaced.
type Ailment struct {
	Machine Machine
	// Reason is a word, Message a sentence without the Machine's name.
	Reason, Message string
}

// certain tells that somebody else than us says so.
func (a Ailment) certain() bool { return a.Reason == AilmentByHand || a.Reason == AilmentHealthCheck }

// Ailing are the Machines that have to be replaced for their health, and may be, the one that goes first in front: what never
// became a node costs nothing, and what has no healthy voter costs no fault tolerance; then what a person asked for, then what
// serves nothing. Machines that are being deleted are not among them.
func (s Snapshot) Ailing() []Ailment {
	var ailing []Ailment
	for _, machine := range s.active() {
		if ailment := s.ailment(machine); ailment != nil && machine.Health.Spared == "" {
			ailing = append(ailing, *ailment)
		}
	}
	rank := func(a Ailment) int {
		member := s.memberOf(a.Machine)
		switch {
		case a.Machine.Node == "" && member == nil:
			return 0
		case s.StackedEtcd && s.Etcd.Known && (member == nil || member.Learner || !member.Healthy):
			return 1
		case a.Reason == AilmentByHand:
			return 2
		case !a.Machine.Serving:
			return 3
		}
		return 4
	}
	slices.SortStableFunc(ailing, func(a, b Ailment) int {
		if order := rank(a) - rank(b); order != 0 {
			return order
		}
		if a.Machine.Created != b.Machine.Created {
			return int(a.Machine.Created - b.Machine.Created)
		}
		return strings.Compare(a.Machine.Name, b.Machine.Name)
	})
	return ailing
}

// ailment says why the Machine has to be replaced for its health; nil when it has not.
func (s Snapshot) ailment(machine Machine) *Ailment {
	health := machine.Health
	switch {
	case health.ByHand:
		return &Ailment{machine, AilmentByHand, "an annotation asks for its replacement"}
	case health.InfrastructureGone:
		return &Ailment{machine, AilmentInfrastructureGone, "its infrastructure machine was deleted"}
	case health.Final != "" && !machine.Bootstrapped:
		return &Ailment{machine, AilmentNeverStarted, health.Final}
	case health.Final != "":
		return &Ailment{machine, AilmentHostLost, health.Final}
	case health.Marked != "":
		return &Ailment{machine, AilmentHealthCheck, health.Marked}
	}
	return s.memberAilment(machine)
}

// memberAilment finds what no health check sees: a node that is well beside a member that is not. From 1.31 on the kubelet
// speaks with its own API server, which dies with its etcd member, so a Node that does not report proves nothing about its
// host; that the host itself answers does. A host that is silent is not judged here: it may be back any moment.
func (s Snapshot) memberAilment(machine Machine) *Ailment {
	health := machine.Health
	if !s.StackedEtcd || !s.Initialized || !s.Etcd.Known || !s.Etcd.Agreed || machine.Joining || !machine.Joined && machine.Node == "" ||
		health.MemberIllSince.IsZero() || health.AnswersSince.IsZero() {
		return nil
	}
	since := health.MemberIllSince
	if health.AnswersSince.After(since) {
		since = health.AnswersSince
	}
	if s.Remediation.Now.Sub(since) < memberDeadline {
		return nil
	}
	stamp := since.UTC().Format(time.RFC3339)
	switch member := s.memberOf(machine); {
	case member == nil && len(s.orphanedMembers()) > 0:
		// One of them may be its own.
		return nil
	case member == nil:
		return &Ailment{machine, AilmentMemberMissing, fmt.Sprintf("it has had no etcd member since %s, though its host answers", stamp)}
	case member.Name == "":
		return &Ailment{machine, AilmentMemberNeverStarted, fmt.Sprintf("its etcd member %x has not started since %s, though its host answers", member.ID, stamp)}
	case member.Learner:
		return &Ailment{machine, AilmentLearnerStuck, fmt.Sprintf("its etcd member %s has been a learner that does not catch up since %s", member.Name, stamp)}
	case !member.Healthy:
		return &Ailment{machine, AilmentMemberDead, fmt.Sprintf("its etcd member %s has not been healthy since %s, though its host answers: %s", member.Name, stamp, member.Problem)}
	}
	return nil
}

// retryInit replaces the first Machine when kubeadm init failed for good. There is no cluster yet that could be lost.
func retryInit(s Snapshot) *Step {
	if s.Initialized {
		return nil
	}
	ailing := s.Ailing()
	for _, ailment := range ailing {
		machine := ailment.Machine
		// A Machine that ran kubeadm to its end may have a cluster, though nobody has seen its API yet; only a person knows.
		if (machine.Bootstrapped || machine.Joined || machine.Node != "") && !machine.Health.ByHand {
			continue
		}
		attempt, held := s.attempt(ailment, ailing)
		if held != nil {
			return held
		}
		return discard(ailment, attempt)
	}
	return nil
}

// sayLoss waits for a quorum that is lost: nothing that could be done here would bring it back, and much would destroy what
// is left of it.
func sayLoss(s Snapshot) *Step {
	if loss := s.QuorumLoss(); loss != nil {
		return wait(ReasonQuorumLost, "%s", loss.Message+". "+loss.WayOut)
	}
	return nil
}

// remediate replaces one Machine that is ill.
//
//   - One that never became a node holds nothing and goes at once.
//   - One whose member is dead goes before its replacement comes: without it etcd tolerates as much as with it, and etcd
//     adds no member while too few of three answer (mayAddMember in server/etcdserver/server.go).
//   - One whose member is well gets its replacement first when a host is free: etcd needs it until then.
//
// The departure itself has the verdict of remove, like any other.
func remediate(s Snapshot) *Step {
	ailing := s.Ailing()
	if len(ailing) == 0 || s.Remediation.Deferred != "" {
		return nil
	}
	// A member that nobody runs counts in every verdict below, and its learner would block every join.
	if step := dropOrphanedMembers(s); step != nil && !step.Waiting() {
		return step
	}
	why := s.Suspended()
	var first *Step
	for _, ailment := range ailing {
		var attempt *Attempt
		var held *Step
		if why != "" && !ailment.Machine.Health.ByHand {
			held = about(ailment, wait(ReasonRemediationSuspended, "Machine %s is not replaced now: %s", ailment.Machine.Name, why))
		} else if attempt, held = s.attempt(ailment, ailing); held == nil {
			return s.remedy(ailment, ailing, attempt)
		}
		if first == nil {
			first = held
		}
	}
	return first
}

// remedy is the next step of the replacement of a Machine. attempt is nil when its place is taken already.
func (s Snapshot) remedy(ailment Ailment, ailing []Ailment, attempt *Attempt) *Step {
	machine, member := ailment.Machine, s.memberOf(ailment.Machine)
	if machine.Node == "" && member == nil {
		return discard(ailment, attempt)
	}
	if why := s.keptByUnclaimed(machine); why != "" {
		return about(ailment, wait(ReasonMemberWithoutMachine, "Machine %s is ill: %s. It is not replaced now: %s", machine.Name, ailment.Message, why))
	}
	if full := s.full(); full != nil {
		return about(ailment, wait(ReasonQuorum, "Machine %s is ill: %s. Nothing can take its place while the database of etcd member %s is full: %s",
			machine.Name, ailment.Message, full.Name, quorum.MakeRoom).about(machine))
	}
	if step := s.othersCarry(ailment, ailing); step != nil {
		return step
	}
	if s.StackedEtcd && s.wavering(member) {
		// Whether its replacement comes first depends on whether it is dead.
		return about(ailment, wait(ReasonQuorum, "Machine %s is ill: %s. Its etcd member was healthy less than %s ago and may be back: %s",
			machine.Name, ailment.Message, s.Patience, member.Problem).about(machine))
	}
	surplus := len(s.placed()) > s.Replicas
	well := !s.StackedEtcd || member != nil && member.Healthy && !member.Learner
	switch {
	case !surplus && well && s.Spare.Free > 0:
		if step := s.othersJoinable(ailment); step != nil {
			return step
		}
		if s.Remediation.Pending != nil {
			// The replacement that was made first was ill itself.
			attempt = s.Remediation.Pending
		}
		step := join(s, ReasonReplacementFirst, fmt.Sprintf("Machine %s is ill: %s; making a replacement first", machine.Name, ailment.Message))
		if step.joins() {
			step.Attempt = attempt
		}
		return about(ailment, step)
	case !surplus && well && s.Spare.Coming > 0:
		return about(ailment, wait(ReasonNoSpareHost, "Machine %s is ill: %s; %s, so that a replacement comes first",
			machine.Name, ailment.Message, s.coming()).about(machine))
	case surplus && machine.Serving:
		if step := holdAddons(s, machine); step != nil {
			return about(ailment, step)
		}
	}
	step := remove(s, machine, ReasonRemediated, quorum.Terms{Desired: s.Replicas, Lowered: !surplus || !well, DeadMemberTimeout: s.Patience})
	if step.Kind == DeleteMachine {
		step.Message = fmt.Sprintf("replacing Machine %s: %s", machine.Name, ailment.Message)
		step.Attempt = attempt
	}
	return about(ailment, step)
}

// othersCarry makes sure that the Machines that stay are a control plane without this one: at least one of them serves, and
// none is on its way in. Those that are ill themselves are not waited for; their turn comes.
func (s Snapshot) othersCarry(ailment Ailment, ailing []Ailment) *Step {
	carried := false
	for _, machine := range s.placed() {
		if machine.Name == ailment.Machine.Name {
			continue
		}
		problem := s.outage(machine)
		carried = carried || problem == ""
		ill := slices.ContainsFunc(ailing, func(a Ailment) bool { return a.Machine.Name == machine.Name })
		member := s.memberOf(machine)
		arriving := machine.Node == "" || machine.Joining || s.StackedEtcd && (member == nil || member.Learner)
		if problem != "" && arriving && !ill {
			return about(ailment, wait(ReasonMachineNotReady, "Machine %s is ill and waits for Machine %s: %s", ailment.Machine.Name, machine.Name, problem))
		}
	}
	if !carried && len(s.active()) > 1 {
		return about(ailment, wait(ReasonQuorum, "Machine %s is ill but stays: no other Machine serves the cluster's API", ailment.Machine.Name))
	}
	return nil
}

// othersJoinable makes sure that a join can succeed: etcd adds no member while another does not answer, and one Machine that
// joins is enough.
func (s Snapshot) othersJoinable(ailment Ailment) *Step {
	for _, machine := range s.active() {
		if problem := s.outage(machine); problem != "" && machine.Name != ailment.Machine.Name {
			return about(ailment, wait(ReasonMachineNotReady,
				"Machine %s is ill: %s. No replacement can join before Machine %s works or is replaced itself: %s",
				ailment.Machine.Name, ailment.Message, machine.Name, problem))
		}
	}
	return nil
}

// discard deletes a Machine that holds nothing of the cluster.
func discard(ailment Ailment, attempt *Attempt) *Step {
	return about(ailment, &Step{Kind: DeleteMachine, Machine: ailment.Machine.Name, Reason: ReasonRemediated, Attempt: attempt,
		Message: fmt.Sprintf("replacing Machine %s: %s", ailment.Machine.Name, ailment.Message)})
}

// about notes whose replacement the step is part of.
func about(ailment Ailment, step *Step) *Step {
	step.Remediates = ailment.Machine.Name
	return step
}

// attempt counts: a replacement that turns out ill within the healthy period is one more try for the same ill. What a
// person asked for by hand begins a new count, and so does a Machine of an earlier spec, for the spec may have been the ill.
// No attempt begins, and none is counted, where nothing will be made in the Machine's place.
func (s Snapshot) attempt(ailment Ailment, ailing []Ailment) (*Attempt, *Step) {
	machine, terms := ailment.Machine, s.Remediation
	if !s.madeAgain(machine, ailing) {
		return nil, nil
	}
	next := &Attempt{Machine: machine.Name, Time: terms.Now}
	hold := func(reason, format string, args ...any) (*Attempt, *Step) {
		return nil, about(ailment, wait(reason, "Machine %s is ill: %s. %s", machine.Name, ailment.Message, fmt.Sprintf(format, args...)))
	}
	last := machine.Health.Replaces
	if last == nil || machine.Health.ByHand || !machine.UpToDate {
		return next, nil
	}
	healthy := usualHealthyPeriod
	if terms.MinHealthyPeriod != nil {
		healthy = *terms.MinHealthyPeriod
	}
	if !last.Time.Add(healthy).After(terms.Now) {
		return next, nil
	}
	next.RetryCount = last.RetryCount + 1
	if terms.MaxRetry != nil && last.RetryCount >= *terms.MaxRetry {
		return hold(ReasonRetriesExhausted, "It replaced Machine %s, and that was attempt %d of %d (spec.remediation.maxRetry). "+
			"Mend the cause, then annotate the Machine with cluster.x-k8s.io/remediate-machine to begin a new count",
			last.Machine, last.RetryCount, *terms.MaxRetry)
	}
	period := time.Duration(0)
	switch {
	case terms.RetryPeriod != nil:
		period = *terms.RetryPeriod
	case !ailment.certain():
		period = backOff(last.RetryCount)
	}
	if again := last.Time.Add(period); again.After(terms.Now) {
		return hold(ReasonRetryLater, "It replaced Machine %s; the next attempt begins at %s", last.Machine, again.UTC().Format(time.RFC3339))
	}
	return next, nil
}

// madeAgain tells that another Machine will be made once this one is gone.
func (s Snapshot) madeAgain(machine Machine, ailing []Ailment) bool {
	active := s.active()
	if len(active) <= s.Replicas {
		return true
	}
	for _, other := range active {
		ill := slices.ContainsFunc(ailing, func(a Ailment) bool { return a.Machine.Name == other.Name })
		if other.Name != machine.Name && machine.UpToDate && (!other.UpToDate || ill) {
			return true
		}
	}
	return false
}

// backOff doubles with each attempt.
func backOff(retries int) time.Duration {
	period := firstBackOff
	for range retries {
		if period *= 2; period >= longestBackOff {
			return longestBackOff
		}
	}
	return period
}
