// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/conditions"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/controllers/quoincontrolplane/history"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/fieldindex"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/lifecycle"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/outage"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/placement"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/quorum"
)

// fillHealth adds to the state what Machines are replaced for, and what speaks against it.
func (o *Observation) fillHealth() {
	wanted := o.ControlPlane.Spec.Remediation
	terms := controlplane.Remediation{Now: o.At.UTC().Truncate(time.Second), Deferred: o.awaitedVersion(),
		RetryPeriod:      seconds(wanted.RetryPeriodSeconds),
		MinHealthyPeriod: seconds(wanted.MinHealthyPeriodSeconds)}
	if wanted.MaxRetry != nil {
		terms.MaxRetry = ptr.To(int(*wanted.MaxRetry))
	}
	lost := lostDomains(o.fleet)
	for i := range o.State.Machines {
		machine := &o.State.Machines[i]
		machine.Health = o.healthOf(o.Machines[machine.Name], lost)
	}
	terms.Pending = o.pendingAttempt()
	o.State.Remediation = terms
}

// healthOf is what is known of one Machine. Since when it is away, or back as a Node, is compared with the other
// Machines, so that stays as it was written down, also where the clock was set back: if it began now everywhere it
// would look as if it had happened to all of them together.
func (o *Observation) healthOf(machine *clusterv1.Machine, lost map[string]string) controlplane.Health {
	health := controlplane.Health{
		ByHand:         annotations.HasRemediateMachine(machine),
		Spared:         Spared(machine),
		Born:           machine.CreationTimestamp.Time,
		Replaces:       AttemptFrom(machine.Annotations[controlplanev1.RemediationForAnnotation]),
		NodeLostSince:  o.steps.Shift(o.Workload.Health[machine.Name].lostSince),
		NodeReadySince: o.steps.Shift(o.Workload.Health[machine.Name].readySince),
		MemberIllSince: o.began(o.memberIllSince(machine)),
	}
	if health.Replaces != nil {
		health.Replaces.Time = o.began(health.Replaces.Time)
	}
	check := conditions.Get(machine, clusterv1.MachineHealthCheckSucceededCondition)
	if check != nil && check.Status == metav1.ConditionFalse &&
		conditions.IsFalse(machine, clusterv1.MachineOwnerRemediatedCondition) {
		health.Marked = cmp.Or(check.Message, check.Reason)
	}
	infra := o.QuoinMachines[machine.Name]
	switch {
	case infra != nil:
		health.InfrastructureGone = !infra.DeletionTimestamp.IsZero()
		health.Final = FinalProblem(infra)
	case conditions.GetReason(machine,
		clusterv1.MachineInfrastructureReadyCondition) == clusterv1.MachineInfrastructureDeletedReason:
		health.InfrastructureGone = true
	}
	if host := o.Hosts[machine.Name]; host != nil {
		health.DomainLost = lost[fieldindex.DomainOf(host)]
		if since := host.Status.UnreachableSince; since != nil {
			health.SilentSince = o.steps.Shift(since.Time)
		} else if reachable := conditions.Get(host, infrav1.HostReachableCondition); isTrue(reachable) {
			health.AnswersSince = o.began(reachable.LastTransitionTime.Time)
		}
	}
	return health
}

// memberIllSince is since when the Machine's condition says that it has no healthy voter. A database that is full would
// be as full in a new member.
func (o *Observation) memberIllSince(machine *clusterv1.Machine) time.Time {
	condition := conditions.Get(machine, controlplanev1.MachineEtcdMemberHealthyCondition)
	if condition == nil || condition.Status != metav1.ConditionFalse {
		return time.Time{}
	}
	for _, member := range o.State.Etcd.Members {
		if member.Full && member.Machine == machine.Name {
			return time.Time{}
		}
	}
	return condition.LastTransitionTime.Time
}

// pendingAttempt is the attempt whose replacement was not made yet. Once a Machine carries it, it is over; but not by
// one that is deleted before it had a host, and made again.
func (o *Observation) pendingAttempt() *controlplane.Attempt {
	attempt := AttemptFrom(o.ControlPlane.Annotations[controlplanev1.RemediationInProgressAnnotation])
	if attempt == nil {
		return nil
	}
	for _, machine := range o.State.Machines {
		// As it is written there: two that lie ahead of the clock both began when they were first seen.
		made := AttemptFrom(o.Machines[machine.Name].Annotations[controlplanev1.RemediationForAnnotation])
		if made != nil && made.Machine == attempt.Machine && made.Time.Equal(attempt.Time) &&
			(machine.HostClaimed || !machine.Deleting) {
			return nil
		}
	}
	return attempt
}

func seconds(value *int32) *time.Duration {
	if value == nil {
		return nil
	}
	return ptr.To(time.Duration(*value) * time.Second)
}

// awaitedVersion says that the Cluster's topology is about to hand down another version: Machines that are made now
// would be replaced again at once.
func (inv *Inventory) awaitedVersion() string {
	if !inv.Cluster.Spec.Topology.IsDefined() {
		return ""
	}
	awaited := TopologyVersion(inv.Cluster)
	if awaited == inv.ControlPlane.Spec.Version {
		return ""
	}
	return fmt.Sprintf("version %s has yet to come from the Cluster's topology", awaited)
}

// TopologyVersion is what the topology of a Cluster hands down next: in an upgrade over several minors, its next step.
func TopologyVersion(cluster *clusterv1.Cluster) string {
	return cmp.Or(cluster.Annotations[clusterv1.ClusterTopologyUpgradeStepAnnotation], cluster.Spec.Topology.Version)
}

// lostDomains are the failure domains that are lost, by the hosts of one namespace in them: who writes those of another
// must not suspend remediation here. Hosts that nobody tries to reach prove nothing.
func lostDomains(fleet []infrav1.QuoinHost) map[string]string {
	byDomain := map[string][]outage.Host{}
	for i := range fleet {
		host := &fleet[i]
		state, domain := host.Status.State, host.Spec.FailureDomain
		if domain == "" || state == "" || state == infrav1.HostStateRegistering || state == infrav1.HostStateQuarantined ||
			placement.HostOf(host).Detached {
			continue
		}
		one := outage.Host{Domain: domain}
		if host.Status.UnreachableSince != nil {
			one.SilentSince = host.Status.UnreachableSince.Time
		}
		byDomain[fieldindex.DomainOf(host)] = append(byDomain[fieldindex.DomainOf(host)], one)
	}
	lost := map[string]string{}
	for key, hosts := range byDomain {
		domain := hosts[0].Domain
		if verdict := outage.Judge(domain, hosts); verdict.Lost {
			lost[key] = fmt.Sprintf("failure domain %s is %s. Look at the network and the power there", domain, verdict)
		}
	}
	return lost
}

// Spared says why a Machine is left alone whatever its health, and what ends it.
func Spared(machine *clusterv1.Machine) string {
	switch {
	case annotations.HasSkipRemediation(machine) && !lifecycle.Spared(machine):
		return fmt.Sprintf("it has the annotation %s. Take the annotation off to have it replaced",
			clusterv1.MachineSkipRemediationAnnotation)
	case annotations.HasPaused(machine):
		return fmt.Sprintf("it is paused. Take the annotation %s off to have it replaced", clusterv1.PausedAnnotation)
	case conditions.IsFalse(machine, clusterv1.MachineExternallyRemediatedCondition):
		return "its health check asked something else to remedy it. Delete the Machine to have it replaced all the same"
	}
	return ""
}

// FinalProblem says why the QuoinMachine's host will not become its node, or is none any more.
func FinalProblem(infra *infrav1.QuoinMachine) string {
	provisioned := conditions.Get(infra, infrav1.MachineHostProvisionedCondition)
	if provisioned == nil || provisioned.Status == metav1.ConditionTrue {
		return ""
	}
	switch provisioned.Reason {
	case infrav1.HostStepFailedReason, infrav1.HostBootstrapInterruptedReason, infrav1.HostAbandonedReason,
		infrav1.HostDeadReason:
		return provisioned.Message
	}
	return ""
}

// AttemptFrom reads an attempt from an annotation; nil when there is none, or none that can be read: then the count
// begins anew.
func AttemptFrom(value string) *controlplane.Attempt {
	attempt := &controlplane.Attempt{}
	if value == "" || json.Unmarshal([]byte(value), attempt) != nil || attempt.Machine == "" {
		return nil
	}
	return attempt
}

// noteUnhealthy adds to the members of a control plane how long they have not been healthy, by what is known of that
// from before, and returns what is known of it now. A reading that failed proves nothing about the members, so silence
// before it still counts; a member that was seen healthy begins anew, and so does one that hangs and has come further,
// for its disk is slow and no more, and one whose database is full, which votes all the same. One that nobody could ask
// is silent for no time, because it may vote; once it is asked again in time its silence goes on, because it was not
// seen healthy either. While no voter agrees to anything each of them may be the one that is well, so nobody's silence
// counts. How far one has come it says itself, and not always: until it does it has come no further, and no less.
func noteUnhealthy(
	past history.Since[history.Standstill], m *quorum.Membership, now time.Time,
) history.Since[history.Standstill] {
	if !m.Known {
		return past
	}
	came := map[uint64]uint64{}
	for _, last := range past.Parts() {
		came[last.Member] = last.Progress
	}
	standstill := func(member quorum.Member) history.Standstill {
		return history.Standstill{Member: member.ID, Progress: cmp.Or(member.Progress, came[member.ID])}
	}
	var unhealthy, unasked []history.Standstill
	for _, member := range m.Members {
		switch {
		case !m.Agreed:
		case member.Failing():
			unhealthy = append(unhealthy, standstill(member))
		case member.Unasked && !member.Healthy && !member.Full:
			unasked = append(unasked, standstill(member))
		}
	}
	since := past.Note(now, unhealthy, unasked...)
	for i := range m.Members {
		member := &m.Members[i]
		if first, noted := since.Of(standstill(*member)); noted && member.Failing() {
			member.Silent, member.Progress = now.Sub(first), standstill(*member).Progress
		}
	}
	return since
}

// severalLooks find a voter silent until it is dead. Two may be minutes apart, with the member late in both and well
// between.
const severalLooks = 3

// leaveOutRecalled counts of the silence of members only what this process has seen in several looks, until that alone
// makes a voter dead: another process may have been late in one reading as well, with the member well between. Fewer
// looks count for half of that at most, however far apart they are.
func leaveOutRecalled(
	since history.Since[history.Standstill], m *quorum.Membership, now time.Time, deadAfter time.Duration,
) {
	for i := range m.Members {
		member := &m.Members[i]
		seen, looks := since.Seen(history.Standstill{Member: member.ID, Progress: member.Progress})
		itself := now.Sub(seen)
		if looks < severalLooks {
			itself = min(itself, deadAfter/2)
		}
		if member.Silent > itself && itself < deadAfter {
			member.Silent, member.Recalled = itself, member.Silent-itself
		}
	}
}

// recallUnhealthy is what the process before has written down for noteUnhealthy. It goes on from the reading that this
// was of, and so not when nobody looked for long.
func (o *Observation) recallUnhealthy() (since history.Since[history.Standstill]) {
	status := o.ControlPlane.Status.Etcd
	if status == nil {
		return since
	}
	for _, member := range status.Members {
		id, err := strconv.ParseUint(member.ID, 16, 64)
		if err != nil || member.SilentSince.IsZero() {
			continue
		}
		syncs := uint64(max(ptr.Deref(member.Syncs, 0), 0)) //nolint:gosec // just bounded
		since = since.Recall(history.Standstill{Member: id, Progress: syncs}, member.SilentSince.Time,
			status.ObservedTime.Time)
	}
	return since
}

// noteNoQuorum returns since when no voter agrees to anything, and for how long by now. So it is for a moment whenever
// etcd elects a leader. That voters look healthy meanwhile proves nothing, because one whose disk hangs names its old
// leader for ever. A reading that failed proves nothing either, so what was seen before it still counts.
func noteNoQuorum(
	past history.Since[struct{}], m quorum.Membership, now time.Time,
) (since history.Since[struct{}], lasts time.Duration) {
	if !m.Known {
		return past, 0
	}
	return noteWhile(past, !m.Agreed, now)
}

// noteWhile returns since when something is so, and for how long by now.
func noteWhile(
	past history.Since[struct{}], so bool, now time.Time,
) (since history.Since[struct{}], lasts time.Duration) {
	var parts []struct{}
	if so {
		parts = append(parts, struct{}{})
	}
	since = past.Note(now, parts)
	if first, noted := since.Of(struct{}{}); noted {
		lasts = now.Sub(first)
	}
	return since, lasts
}

// lossGrace is how long a quorum may be away, as while etcd elects, until it is said to be lost. It is counted from the
// reading that missed it first: the condition may have been False for days beside one dead member.
const lossGrace = time.Minute

// awaitQuorum says for how long a quorum that is away is waited for, by since when readings have shown that there is
// none, and since when none has shown one, and returns both as they are now. By the second a recovery begins where no
// member answers at all. It does not say that a quorum is lost: a manager that reaches etcd again may meet an election.
func (o *Observation) awaitQuorum(
	lost, noneSeen history.Since[struct{}],
) (lostSince, noneSeenSince history.Since[struct{}]) {
	etcd, at := o.State.Etcd, o.Etcd.ReadAt
	if at.IsZero() {
		at = o.At
	}
	lost, away := noteNoQuorum(lost, etcd, at)
	noneSeen, unseen := noteWhile(noneSeen, o.State.StackedEtcd && !etcd.Agreed, at)
	if !etcd.Known {
		away = unseen
	}
	o.State.ElectionGrace = o.electionGrace(away)
	return lost, noneSeen
}

// electionGrace is how long a quorum that is away for so long by now is waited for until it is said to be lost; zero
// when it is. What is said already stays, also after a restart, which forgets since when it has been so.
func (o *Observation) electionGrace(away time.Duration) time.Duration {
	if away >= lossGrace || conditions.GetReason(o.ControlPlane,
		controlplanev1.ControlPlaneEtcdClusterHealthyCondition) == controlplanev1.QuorumLostReason {
		return 0
	}
	return lossGrace
}

// debounceDrains makes Machines of which a skipped drain is not to be believed yet such that are drained, and returns
// since when drains look skipped, and whether there is any that is not believed.
func debounceDrains(
	past history.Since[string], machines []controlplane.Machine, now time.Time, grace time.Duration,
) (since history.Since[string], inGrace bool) {
	var undrained []string
	for _, machine := range machines {
		if machine.Undrained {
			undrained = append(undrained, machine.Name)
		}
	}
	since = past.Note(now, undrained)
	for i := range machines {
		machine := &machines[i]
		if first, noted := since.Of(machine.Name); noted && now.Sub(first) < grace {
			machine.Undrained, machine.AtTermination, inGrace = false, false, true
		}
	}
	return since, inGrace
}
