// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/quorum"
)

const (
	// memberDeadline is how long a Machine may be without a healthy voter, while its host answers, until it is replaced;
	// a voter that is dead, without a word from it. It is longer than a large database takes to be copied, and than a
	// host takes from its first answer to its last pod.
	memberDeadline = 10 * time.Minute
	// firstBackOff and longestBackOff lie between two attempts where nobody but us says that a Machine is ill, and the
	// spec sets no retry period: a mistake in the spec would else reset every free host, one after the other, without a
	// pause.
	firstBackOff   = time.Minute
	longestBackOff = time.Hour
	// usualHealthyPeriod is what KubeadmControlPlane takes for minHealthyPeriodSeconds.
	usualHealthyPeriod = time.Hour
)

// unhealthy are the Machines that have to be replaced for their health, and may be, the one that goes first in front:
// what never became a node costs nothing, and what has no healthy voter costs no fault tolerance; then what a person
// asked for, then what serves nothing; last the only one that serves, which waits for the others. Machines that are
// being deleted are not among them.
func (s facts) unhealthy() []controlplane.UnhealthyMachine {
	var unhealthy []controlplane.UnhealthyMachine
	for _, machine := range s.active() {
		if reason, message := s.unhealthyReason(machine); reason != "" && machine.Health.Spared == "" {
			unhealthy = append(unhealthy, controlplane.UnhealthyMachine{Machine: machine, Reason: reason, Message: message})
		}
	}
	rank := func(a controlplane.UnhealthyMachine) int {
		served := s.servedWithout(a.Machine)
		return place(a.Machine.Node == "" && s.memberOf(a.Machine) == nil,
			s.StackedEtcd && s.Etcd.Known && s.memberState(a.Machine) != quorum.MemberHealthy,
			served && a.Reason == controlplane.UnhealthyByHand, served && !a.Machine.Serving)
	}
	slices.SortFunc(unhealthy, func(a, b controlplane.UnhealthyMachine) int {
		return cmp.Or(rank(a)-rank(b), cmp.Compare(a.Machine.Created, b.Machine.Created),
			cmp.Compare(a.Machine.Name, b.Machine.Name))
	})
	return unhealthy
}

// unhealthyReason says why the Machine has to be replaced for its health, in a word and in a sentence without its name;
// empty when it has not.
func (s facts) unhealthyReason(machine controlplane.Machine) (reason, message string) {
	health := machine.Health
	switch {
	case health.ByHand:
		return controlplane.UnhealthyByHand, "an annotation asks for its replacement"
	case health.InfrastructureGone:
		return controlplane.UnhealthyInfrastructureGone, "its infrastructure machine was deleted"
	case health.Final != "" && !machine.Bootstrapped:
		return controlplane.UnhealthyNeverStarted, health.Final
	case health.Final != "":
		return controlplane.UnhealthyHostLost, health.Final
	case health.Marked != "":
		return controlplane.UnhealthyHealthCheck, health.Marked
	}
	return s.memberUnhealthyReason(machine)
}

// memberUnhealthyReason says what no health check sees: a node that is well beside a member that is not. From 1.31 on
// the kubelet speaks with its own API server, which dies with its etcd member, so a Node that does not report proves
// nothing about its host; that the host itself answers does. A host that is silent is not judged here: it may be back
// any moment.
func (s facts) memberUnhealthyReason(machine controlplane.Machine) (reason, message string) {
	health := machine.Health
	if !s.StackedEtcd || !s.Initialized || !s.Etcd.Known || !s.Etcd.Agreed || machine.Joining || !machine.Joined &&
		machine.Node == "" ||
		health.MemberIllSince.IsZero() || health.AnswersSince.IsZero() {
		return "", ""
	}
	since := health.MemberIllSince
	if health.AnswersSince.After(since) {
		since = health.AnswersSince
	}
	ill, member, state := s.Remediation.Now.Sub(since), s.memberOf(machine), s.memberState(machine)
	if state == quorum.MemberDead {
		// It may have been slow or full for hours before it fell silent, and voted all the while.
		ill = min(ill, member.Silent)
	}
	if ill < memberDeadline {
		return "", ""
	}
	stamp := since.UTC().Format(time.RFC3339)
	switch {
	case state == quorum.MemberNone:
		return controlplane.UnhealthyMemberMissing,
			fmt.Sprintf("it has had no etcd member since %s, though its host answers", stamp)
	case member == nil:
		return "", ""
	case !member.Started():
		return controlplane.UnhealthyMemberNeverStarted,
			fmt.Sprintf("its etcd member %x has not started since %s, though its host answers", member.ID, stamp)
	case state == quorum.MemberLearner:
		return controlplane.UnhealthyLearnerStuck,
			fmt.Sprintf("its etcd member %s has been a learner that does not catch up since %s", member.Name, stamp)
	case state == quorum.MemberDead:
		return controlplane.UnhealthyMemberDead, fmt.Sprintf("its etcd member %s has not been healthy since %s, though "+
			"its host answers: %s", member.Name, stamp, member.Problem)
	}
	return "", ""
}

// retryInit replaces the first Machine when kubeadm init failed for good. There is no cluster yet that could be lost.
func retryInit(s facts) *controlplane.Step {
	if s.Initialized {
		return nil
	}
	unhealthy := s.unhealthy()
	for _, target := range unhealthy {
		machine := target.Machine
		// A Machine that ran kubeadm to its end may have a cluster, though nobody has seen its API yet; only a person knows.
		if (machine.Bootstrapped || machine.Joined || machine.Node != "") && !machine.Health.ByHand {
			continue
		}
		attempt, held := s.attempt(target, unhealthy)
		if held != nil {
			return held
		}
		return discard(target, attempt)
	}
	return nil
}

// remediate replaces one Machine that is ill.
//
//   - One that never became a node holds nothing and goes at once.
//   - One whose member is dead goes before its replacement comes: without it etcd tolerates as much as with it, and
//     etcd adds no member while too few of three answer (mayAddMember in server/etcdserver/server.go).
//   - One whose member is well gets its replacement first when a host is free: etcd needs it until then. When none is,
//     it goes first only if its own host can be claimed again.
//
// The departure itself has the verdict of remove, like any other. Where it waits beside a member that no Machine runs,
// both are said: etcd's verdict asks to repair that one or to have it replaced, which nobody can. A Machine that goes
// by itself is waited for by nobody, unless hosts may come back.
func remediate(s facts) *controlplane.Step {
	step := s.remediateBy(anyStep)
	if step == nil || !step.Waiting() {
		return step
	}
	if s.suspended() == "" {
		if goes := dropIdle(s); goes != nil {
			return goes
		}
	}
	if orphaned := dropOrphanedMembers(s); orphaned != nil && orphaned.Machine == "" &&
		!strings.Contains(step.Message, orphaned.Message) {
		step.Message += ". " + orphaned.Message
	}
	return step
}

func anyStep(*controlplane.Step) bool { return true }

// remediateBy is remediate by steps that may be. A Machine whose replacement has another one next is passed over.
func (s facts) remediateBy(may func(*controlplane.Step) bool) *controlplane.Step {
	unhealthy := s.unhealthy()
	if len(unhealthy) == 0 || s.Remediation.Deferred != "" {
		return nil
	}
	// A member that nobody runs counts in every verdict below, and its learner would block every join.
	if step := dropOrphanedMembers(s); step != nil && !step.Waiting() {
		return step
	}
	why := s.suspended()
	var suspended, waits, held *controlplane.Step
	for _, target := range unhealthy {
		if why != "" && !target.Machine.Health.ByHand && !s.illApart(target.Machine) {
			suspended = cmp.Or(suspended, remediating(target, s.wait(controlplane.Remediate,
				controlplane.ReasonRemediationSuspended, "Machine %s is not replaced now: %s. If it will not be back, annotate it "+
					"with cluster.x-k8s.io/remediate-machine", target.Machine.Name, why)))
			continue
		}
		attempt, step := s.attempt(target, unhealthy)
		if step != nil {
			held = cmp.Or(held, step)
			continue
		}
		// One that waits may wait for one that is ill itself.
		step = s.remedy(target, unhealthy, attempt)
		switch {
		case step.Waiting():
			waits = cmp.Or(waits, step)
		case may(step):
			step.MayProceed = s.castsNoVote(step)
			return step
		}
	}
	step := cmp.Or(waits, held)
	if step != nil && suspended != nil {
		// It may wait for that one, and only a person ends that.
		step.Message += ". " + suspended.Message
	}
	return cmp.Or(step, suspended)
}

// illApart reports whether the Machine is ill for a reason of its own, whatever hosts went away together: it holds
// nothing that could come back, never was a node beside them, and its host is not silent. What was lost together may
// itself wait for it to go, because an orphaned member may be its own.
func (s facts) illApart(machine controlplane.Machine) bool {
	return machine.Node == "" && !machine.Joined && s.memberOf(machine) == nil && away(machine).IsZero()
}

// remedy is the next step of the replacement of a Machine. attempt is nil when its place is taken already.
func (s facts) remedy(target controlplane.UnhealthyMachine, unhealthy []controlplane.UnhealthyMachine,
	attempt *controlplane.Attempt) *controlplane.Step {
	machine := target.Machine
	if machine.Node == "" && s.memberOf(machine) == nil && s.keptByUnclaimed(machine) == "" && s.mayWaver(machine) == nil {
		return discard(target, attempt)
	}
	if blocked := s.remedyBlocked(target, unhealthy); blocked != nil {
		return blocked
	}
	surplus := len(s.scheduled()) > s.Replicas
	well := !s.StackedEtcd || s.memberState(machine) == quorum.MemberHealthy
	if !surplus && well {
		// Without a replacement etcd would lose a voter for as long as none may be made.
		if step := leaveNobodyBehind(s, controlplane.Remediate, fmt.Sprintf("Machine %s is ill: %s", machine.Name,
			target.Message)); step != nil {
			return remediating(target, step.WithMachine(machine.Name))
		}
	}
	switch {
	case !surplus && well && s.Spare.Free > 0:
		if step := s.othersJoinable(target, unhealthy); step != nil {
			return step
		}
		if s.Remediation.Pending != nil {
			// The replacement that was made first was ill itself.
			attempt = s.Remediation.Pending
		}
		step := join(s, controlplane.ReasonReplacementFirst, fmt.Sprintf("Machine %s is ill: %s; making a replacement first",
			machine.Name, target.Message))
		if step.Joins() {
			step.Attempt = attempt
		}
		return remediating(target, step)
	case !surplus && well && s.Spare.Pending > 0:
		return remediating(target, s.wait(controlplane.Remediate, controlplane.ReasonNoSpareHost,
			"Machine %s is ill: %s; %s, so that a replacement comes first",
			machine.Name, target.Message, s.pendingHost()).WithMachine(machine.Name))
	case !surplus && well && s.StackedEtcd:
		// What votes is not given away for a place that stays empty.
		if step := s.keepWhoseHostIsLost(machine, fmt.Sprintf("Machine %s is ill: %s", machine.Name,
			target.Message)); step != nil {
			return remediating(target, step)
		}
	case !surplus && !s.StackedEtcd && !s.servedWithout(machine):
		// The data are elsewhere, and nobody could join without an API server.
		return remediating(target, s.wait(controlplane.Remediate, controlplane.ReasonNoSpareHost,
			"Machine %s is ill: %s; it stays until another one serves the cluster's API: %s", machine.Name, target.Message,
			s.missingHost(machine)).WithMachine(machine.Name))
	case surplus && machine.Serving:
		if step := holdAddons(s, machine); step != nil {
			return remediating(target, step)
		}
	}
	terms := s.removedFirst()
	if surplus && well {
		terms = quorum.ToLeave(s.Replicas, false, s.DeadMemberTimeout)
	}
	step := remove(s, machine, controlplane.Remediate, controlplane.ReasonRemediated, terms)
	if step.Kind == controlplane.DeleteMachine {
		step.Message = fmt.Sprintf("replacing Machine %s: %s", machine.Name, target.Message)
		step.Attempt = attempt
	}
	return remediating(target, step)
}

// remedyBlocked is what the replacement of a Machine waits for before its first step; nil when nothing blocks it.
func (s facts) remedyBlocked(target controlplane.UnhealthyMachine,
	unhealthy []controlplane.UnhealthyMachine) *controlplane.Step {
	machine := target.Machine
	if why := s.keptByUnclaimed(machine); why != "" {
		return remediating(target, s.wait(controlplane.Remediate, controlplane.ReasonMemberWithoutMachine,
			"Machine %s is ill: %s. It is not replaced now: %s", machine.Name, target.Message, why))
	}
	if orphan := s.mayWaver(machine); orphan != nil {
		step := s.dropOrphanedMember(*orphan)
		step.Message = fmt.Sprintf("Machine %s is ill: %s. It may run a member that nobody names: %s", machine.Name,
			target.Message, step.Message)
		return remediating(target, step.WithMachine(machine.Name))
	}
	if vain := s.joinsInVain(); vain != "" {
		return remediating(target, s.wait(controlplane.Remediate, controlplane.ReasonQuorum, "Machine %s is ill: %s. %s",
			machine.Name, target.Message, vain).WithMachine(machine.Name))
	}
	if step := s.othersCarry(target, unhealthy); step != nil {
		return step
	}
	if s.memberState(machine) == quorum.MemberWavering {
		// Whether its replacement comes first depends on whether it is dead.
		return remediating(target, s.wait(controlplane.Remediate, controlplane.ReasonQuorum,
			"Machine %s is ill: %s. Its etcd member was healthy less than %s ago and may be back: %s",
			machine.Name, target.Message, s.DeadMemberTimeout, s.memberOf(machine).Problem).WithMachine(machine.Name))
	}
	return nil
}

// othersCarry makes sure that the others are a control plane without this one: at least one of them serves, and none is
// on its way in. Those that are ill themselves are not waited for; their turn comes. One that is being deleted and kept
// serves as long as it is kept, and is kept at least as long as this one is missing in etcd. What casts no vote waits
// for no host that another Machine has yet to leave, which may never be released: it leaves one itself.
func (s facts) othersCarry(target controlplane.UnhealthyMachine,
	unhealthy []controlplane.UnhealthyMachine) *controlplane.Step {
	hosts := s.Spare.Free > 0 || s.Spare.Pending > 0 || s.hostsLeft() && s.mayVote(target.Machine)
	for _, machine := range s.scheduled() {
		problem := s.outage(machine)
		// One whose host is gone since, and for which none is left, comes when this one has left its own.
		arriving := (machine.HostClaimed || hosts) && (machine.Joining || s.joins(machine))
		if problem != "" && arriving && !ill(machine, unhealthy) {
			return remediating(target, s.wait(controlplane.Remediate, controlplane.ReasonMachineNotReady,
				"Machine %s is ill and waits for Machine %s: %s; if it will not come, have that one replaced first: annotate it "+
					"with cluster.x-k8s.io/remediate-machine", target.Machine.Name, machine.Name, problem))
		}
	}
	if !s.servedWithout(target.Machine) && len(s.active()) > 1 {
		return remediating(target, s.wait(controlplane.Remediate, controlplane.ReasonQuorum,
			"Machine %s is ill but stays until another one serves the cluster's API: none does now. Repair another one first",
			target.Machine.Name))
	}
	return nil
}

// servedWithout reports whether another Machine serves the cluster's API that stays, or is kept.
func (s facts) servedWithout(machine controlplane.Machine) bool {
	return slices.ContainsFunc(s.Machines, func(other controlplane.Machine) bool {
		return other.Name != machine.Name && (!other.Deleting || other.DrainHook) && s.outage(other) == ""
	})
}

// othersJoinable makes sure that a join can succeed: etcd adds no member while another does not answer, and one Machine
// that joins is enough. Of one that is ill itself only the member is asked: two that serve nothing would else wait for
// each other.
func (s facts) othersJoinable(target controlplane.UnhealthyMachine,
	unhealthy []controlplane.UnhealthyMachine) *controlplane.Step {
	for _, machine := range s.active() {
		if !s.joins(machine) && s.memberShortcoming(machine) == "" && ill(machine, unhealthy) {
			continue
		}
		if problem := s.outage(machine); problem != "" && machine.Name != target.Machine.Name {
			return remediating(target, s.wait(controlplane.Remediate, controlplane.ReasonMachineNotReady,
				"Machine %s is ill: %s. No replacement can join before Machine %s works or is replaced itself: %s",
				target.Machine.Name, target.Message, machine.Name, s.explained(machine, problem)))
		}
	}
	return nil
}

// discard deletes a Machine that holds nothing of the cluster.
func discard(target controlplane.UnhealthyMachine, attempt *controlplane.Attempt) *controlplane.Step {
	step := change(controlplane.DeleteMachine, controlplane.Remediate, controlplane.ReasonRemediated,
		"replacing Machine %s: %s", target.Machine.Name, target.Message)
	step.Attempt = attempt
	return remediating(target, step.WithMachine(target.Machine.Name))
}

// remediating notes whose replacement the step is part of.
func remediating(target controlplane.UnhealthyMachine, step *controlplane.Step) *controlplane.Step {
	step.Operation, step.Remediates = controlplane.Remediate, target.Machine.Name
	return step
}

// ill reports whether the Machine is one of those.
func ill(machine controlplane.Machine, unhealthy []controlplane.UnhealthyMachine) bool {
	return slices.ContainsFunc(unhealthy,
		func(a controlplane.UnhealthyMachine) bool { return a.Machine.Name == machine.Name })
}

// certain reports whether somebody else than us says so.
func certain(a controlplane.UnhealthyMachine) bool {
	return a.Reason == controlplane.UnhealthyByHand || a.Reason == controlplane.UnhealthyHealthCheck
}

// attempt counts: a replacement that turns out ill within the healthy period is one more try for the same ill. What a
// person asked for by hand begins a new count, and so does a Machine of an earlier spec, for the spec may have been the
// ill. No attempt begins, and none is counted, where nothing will be made in the Machine's place.
func (s facts) attempt(target controlplane.UnhealthyMachine,
	unhealthy []controlplane.UnhealthyMachine) (*controlplane.Attempt, *controlplane.Step) {
	machine, terms := target.Machine, s.Remediation
	if !s.madeAgain(machine, unhealthy) {
		return nil, nil
	}
	next := &controlplane.Attempt{Machine: machine.Name, Time: terms.Now}
	hold := func(reason, format string, args ...any) (*controlplane.Attempt, *controlplane.Step) {
		return nil, remediating(target, s.wait(controlplane.Remediate, reason, "Machine %s is ill: %s. %s", machine.Name,
			target.Message, fmt.Sprintf(format, args...)))
	}
	last := machine.Health.Replaces
	if last == nil || machine.Health.ByHand || !machine.UpToDate {
		return next, nil
	}
	healthy := usualHealthyPeriod
	if terms.MinHealthyPeriod != nil {
		healthy = *terms.MinHealthyPeriod
	}
	ago := terms.Now.Sub(last.Time)
	if ago >= healthy {
		return next, nil
	}
	next.RetryCount = last.RetryCount + 1
	if terms.MaxRetry != nil && last.RetryCount >= *terms.MaxRetry {
		return hold(controlplane.ReasonRetriesExhausted, "It replaced Machine %s, and that was attempt %d of %d "+
			"(spec.remediation.maxRetry). Mend the cause, then annotate the Machine with "+
			"cluster.x-k8s.io/remediate-machine to begin a new count",
			last.Machine, last.RetryCount, *terms.MaxRetry)
	}
	var period time.Duration
	switch {
	case terms.RetryPeriod != nil:
		period = *terms.RetryPeriod
	case !certain(target):
		period = backOff(last.RetryCount)
	}
	if ago < period {
		return hold(controlplane.ReasonRetryLater, "It replaced Machine %s; the next attempt begins at %s", last.Machine,
			last.Time.Add(period).UTC().Format(time.RFC3339))
	}
	return next, nil
}

// madeAgain reports whether another Machine will be made once this one is gone.
func (s facts) madeAgain(machine controlplane.Machine, unhealthy []controlplane.UnhealthyMachine) bool {
	active := s.active()
	if len(active) <= s.Replicas {
		return true
	}
	for _, other := range active {
		if other.Name != machine.Name && machine.UpToDate && (!other.UpToDate || ill(other, unhealthy)) {
			return true
		}
	}
	return false
}

// backOff doubles with each attempt.
func backOff(retries int) time.Duration {
	period := firstBackOff
	for range retries {
		period = min(period*2, longestBackOff)
	}
	return period
}
