// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoincontrolplane

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/cluster-api/util/patch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/apierr"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/lifecycle"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/outage"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/placement"
)

// lossGrace is how long a quorum may be away, as while etcd elects, until it is said to be lost.
const lossGrace = time.Minute

// fillHealth adds to the snapshot what tells whether Machines have to be replaced for their health.
func (s *scope) fillHealth() {
	now := s.clock.Now().UTC().Truncate(time.Second)
	wanted := s.plane.Spec.Remediation
	terms := controlplane.Remediation{Now: now, RetryPeriod: seconds(wanted.RetryPeriodSeconds),
		MinHealthyPeriod: seconds(wanted.MinHealthyPeriodSeconds), Deferred: s.awaitedVersion()}
	if wanted.MaxRetry != nil {
		terms.MaxRetry = ptr.To(int(*wanted.MaxRetry))
	}
	lost := lostDomains(s.fleet)
	for i := range s.snapshot.Machines {
		machine := &s.snapshot.Machines[i]
		machine.Health = s.healthOf(s.machines[machine.Name], lost)
	}
	terms.Pending = s.pendingAttempt()
	s.snapshot.Remediation = terms
}

func seconds(value *int32) *time.Duration {
	if value == nil {
		return nil
	}
	return ptr.To(time.Duration(*value) * time.Second)
}

// awaitedVersion says that the Cluster's topology is about to hand down another version: Machines that are made now
// would be replaced again at once.
func (s *scope) awaitedVersion() string {
	if !s.cluster.Spec.Topology.IsDefined() {
		return ""
	}
	awaited := s.cluster.Spec.Topology.Version
	if step := s.cluster.Annotations[clusterv1.ClusterTopologyUpgradeStepAnnotation]; step != "" {
		awaited = step
	}
	if awaited == s.plane.Spec.Version {
		return ""
	}
	return fmt.Sprintf("version %s has yet to come from the Cluster's topology", awaited)
}

// lostDomains are the failure domains that are lost, by the hosts of everybody in them. Hosts that nobody tries to
// reach tell nothing.
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
		byDomain[domain] = append(byDomain[domain], one)
	}
	lost := map[string]string{}
	for domain, hosts := range byDomain {
		if verdict := outage.Judge(domain, hosts); verdict.Lost {
			lost[domain] = fmt.Sprintf("failure domain %s is %s. Look at the network and the power there", domain, verdict)
		}
	}
	return lost
}

// healthOf is what is known of one Machine.
func (s *scope) healthOf(machine *clusterv1.Machine, lost map[string]string) controlplane.Health {
	health := controlplane.Health{
		ByHand:         annotations.HasRemediateMachine(machine),
		Spared:         spared(machine),
		Born:           machine.CreationTimestamp.Time,
		Replaces:       attemptFrom(machine.Annotations[controlplanev1.RemediationForAnnotation]),
		NodeLostSince:  s.workload.health[machine.Name].lostSince,
		NodeReadySince: s.workload.health[machine.Name].readySince,
		MemberIllSince: s.memberIllSince(machine),
	}
	check := conditions.Get(machine, clusterv1.MachineHealthCheckSucceededCondition)
	if check != nil && check.Status == metav1.ConditionFalse &&
		conditions.IsFalse(machine, clusterv1.MachineOwnerRemediatedCondition) {
		health.Marked = orElse(check.Message, check.Reason)
	}
	infra := s.infra[machine.Name]
	switch {
	case infra != nil:
		health.InfrastructureGone = !infra.DeletionTimestamp.IsZero()
		health.Final = finalProblem(infra)
	case conditions.GetReason(machine,
		clusterv1.MachineInfrastructureReadyCondition) == clusterv1.MachineInfrastructureDeletedReason:
		health.InfrastructureGone = true
	}
	if host := s.hosts[machine.Name]; host != nil {
		health.DomainLost = lost[host.Spec.FailureDomain]
		if since := host.Status.UnreachableSince; since != nil {
			health.SilentSince = since.Time
		} else if reachable := conditions.Get(host, infrav1.HostReachableCondition); conditionTrue(reachable) {
			health.AnswersSince = reachable.LastTransitionTime.Time
		}
	}
	return health
}

// spared says why a Machine is left alone whatever its health.
func spared(machine *clusterv1.Machine) string {
	switch {
	case annotations.HasSkipRemediation(machine) && !lifecycle.Spared(machine):
		return "it has the annotation " + clusterv1.MachineSkipRemediationAnnotation
	case annotations.HasPaused(machine):
		return "it is paused"
	case conditions.IsFalse(machine, clusterv1.MachineExternallyRemediatedCondition):
		return "something else was asked by its health check to remedy it"
	}
	return ""
}

// finalProblem says why the QuoinMachine's host will not become its node, or is none any more.
func finalProblem(infra *infrav1.QuoinMachine) string {
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

// memberIllSince is since when the Machine's condition says that it has no healthy voter. A database that is full would
// be as full in a new member.
func (s *scope) memberIllSince(machine *clusterv1.Machine) time.Time {
	condition := conditions.Get(machine, controlplanev1.MachineEtcdMemberHealthyCondition)
	if condition == nil || condition.Status != metav1.ConditionFalse {
		return time.Time{}
	}
	for _, member := range s.members.cluster.Members {
		if slices.Contains(member.Alarms, "NOSPACE") && member.Name == machine.Status.NodeRef.Name {
			return time.Time{}
		}
	}
	return condition.LastTransitionTime.Time
}

// attemptFrom reads an attempt from an annotation; nil when there is none, or none that can be read: then the count
// begins anew.
func attemptFrom(value string) *controlplane.Attempt {
	attempt := &controlplane.Attempt{}
	if value == "" || json.Unmarshal([]byte(value), attempt) != nil || attempt.Machine == "" {
		return nil
	}
	return attempt
}

func attemptText(attempt *controlplane.Attempt) (string, error) {
	text, err := json.Marshal(attempt)
	return string(text), err
}

// pendingAttempt is the attempt whose replacement was not made yet. Once a Machine carries it, it is forgotten here.
func (s *scope) pendingAttempt() *controlplane.Attempt {
	attempt := attemptFrom(s.plane.Annotations[controlplanev1.RemediationInProgressAnnotation])
	if attempt == nil {
		return nil
	}
	for _, machine := range s.snapshot.Machines {
		if made := machine.Health.Replaces; made != nil && made.Machine == attempt.Machine && made.Time.Equal(attempt.Time) {
			delete(s.plane.Annotations, controlplanev1.RemediationInProgressAnnotation)
			return nil
		}
	}
	return attempt
}

// recordAttempt notes an attempt on the control plane before its Machine is deleted, so that neither a kill nor a move
// of the objects in between loses the count.
func (r *Reconciler) recordAttempt(ctx context.Context, s *scope) error {
	if s.step.Attempt == nil {
		return nil
	}
	text, err := attemptText(s.step.Attempt)
	if err != nil {
		return err
	}
	changed := s.plane.DeepCopy()
	annotations.AddAnnotations(changed, map[string]string{controlplanev1.RemediationInProgressAnnotation: text})
	if err := r.Client.Patch(ctx, changed, client.MergeFrom(s.plane)); err != nil {
		return fmt.Errorf("recording the replacement of Machine %s: %w", s.step.Attempt.Machine, err)
	}
	annotations.AddAnnotations(s.plane, map[string]string{controlplanev1.RemediationInProgressAnnotation: text})
	s.setLastRemediation(s.step.Attempt)
	return nil
}

// madeFor is the annotation value of a Machine that is made now; empty when it replaces no unhealthy one.
func (s *scope) madeFor() (string, error) {
	attempt := s.step.Attempt
	if attempt == nil {
		attempt = s.snapshot.Remediation.Pending
	}
	if attempt == nil {
		return "", nil
	}
	s.setLastRemediation(attempt)
	return attemptText(attempt)
}

func (s *scope) setLastRemediation(attempt *controlplane.Attempt) {
	s.plane.Status.LastRemediation = &controlplanev1.LastRemediation{Machine: attempt.Machine,
		Time: metav1.NewTime(attempt.Time), RetryCount: ptr.To(int32(attempt.RetryCount))}
}

// restoreLastRemediation reads it from the Machines, after a move of the objects took the status away.
func (s *scope) restoreLastRemediation() {
	if s.plane.Status.LastRemediation != nil {
		return
	}
	latest := s.snapshot.Remediation.Pending
	for _, machine := range s.snapshot.Machines {
		if made := machine.Health.Replaces; made != nil && (latest == nil || made.Time.After(latest.Time)) {
			latest = made
		}
	}
	if latest != nil {
		s.setLastRemediation(latest)
	}
}

// Reasons of the condition OwnerRemediated of a Machine; the words are those of KubeadmControlPlane.
const (
	reasonRemediationDeferred   = "RemediationDeferred"
	reasonCannotBeRemediated    = "CannotBeRemediated"
	reasonMachineDeleting       = "MachineDeleting"
	reasonRemediationInProgress = "RemediationInProgress"
)

// reportRemediation says on each unhealthy Machine what its replacement waits for.
func (r *Reconciler) reportRemediation(ctx context.Context, s *scope) error {
	if s.deleting() {
		return nil
	}
	const condition = clusterv1.MachineOwnerRemediatedCondition
	var failures []error
	for _, machine := range s.machines {
		said := conditions.Get(machine, condition)
		wanted := s.remediationOf(machine)
		switch {
		case wanted == nil && (said == nil || said.Status != metav1.ConditionFalse ||
			conditions.IsFalse(machine, clusterv1.MachineHealthCheckSucceededCondition)):
			continue
		case wanted != nil && said != nil && said.Status == wanted.Status && said.Reason == wanted.Reason &&
			said.Message == wanted.Message:
			continue
		}
		helper, err := patch.NewHelper(machine, r.Client)
		if err != nil {
			failures = append(failures, err)
			continue
		}
		if wanted == nil {
			// It is well again.
			conditions.Delete(machine, condition)
		} else {
			conditions.Set(machine, *wanted)
		}
		if err := apierr.IgnoreGone(helper.Patch(ctx, machine,
			patch.WithOwnedConditions{Conditions: []string{condition}})); err != nil {
			failures = append(failures, fmt.Errorf("setting condition %s of Machine %s: %w", condition, machine.Name, err))
		}
	}
	return kerrors.NewAggregate(failures)
}

// remediationOf is the condition that a Machine should have; nil when nothing is to be said.
func (s *scope) remediationOf(machine *clusterv1.Machine) *metav1.Condition {
	say := func(reason, message string) *metav1.Condition {
		return &metav1.Condition{Type: clusterv1.MachineOwnerRemediatedCondition, Status: metav1.ConditionFalse,
			Reason: reason, Message: sentence(message)}
	}
	if !machine.DeletionTimestamp.IsZero() {
		if conditions.IsFalse(machine, clusterv1.MachineOwnerRemediatedCondition) {
			return say(reasonMachineDeleting, "Machine is deleting")
		}
		return nil
	}
	if why := spared(machine); why != "" {
		if conditions.IsFalse(machine, clusterv1.MachineOwnerRemediatedCondition) {
			return say(reasonRemediationDeferred, "Machine is not replaced, because "+why)
		}
		return nil
	}
	unhealthy := s.assessment.Unhealthy
	index := slices.IndexFunc(unhealthy, func(u controlplane.UnhealthyMachine) bool {
		return u.Machine.Name == machine.Name
	})
	if index < 0 {
		return nil
	}
	because := unhealthy[index].Message + ". "
	switch {
	case s.snapshot.Remediation.Deferred != "":
		return say(reasonRemediationDeferred, because+sentence(s.snapshot.Remediation.Deferred))
	case s.step.Remediates == machine.Name && s.step.Reason == controlplane.ReasonRetriesExhausted,
		s.step.Remediates == machine.Name && s.step.Reason == controlplane.ReasonQuorum:
		return say(reasonCannotBeRemediated, s.step.Message)
	case s.step.Remediates == machine.Name && s.step.Waiting():
		return say(reasonRemediationDeferred, s.step.Message)
	case s.step.Remediates == machine.Name:
		return say(reasonRemediationInProgress, s.step.Message)
	case s.step.Remediates != "" && s.step.Reason != controlplane.ReasonRemediationSuspended:
		return say(reasonRemediationDeferred, because+"The replacement of Machine "+s.step.Remediates+" comes first")
	}
	return say(reasonRemediationDeferred, because+sentence(s.step.Message))
}

// setRemediating says on the control plane whether an unhealthy Machine is being replaced, and what that waits for.
func (s *scope) setRemediating() {
	const condition = controlplanev1.ControlPlaneRemediatingCondition
	if !s.observed {
		return
	}
	s.restoreLastRemediation()
	var lines []string
	for _, unhealthy := range s.assessment.Unhealthy {
		lines = append(lines, fmt.Sprintf("* Machine %s: %s", unhealthy.Machine.Name, unhealthy.Message))
	}
	text := strings.Join(lines, "\n")
	switch {
	case s.deleting() || len(lines) == 0:
		s.set(condition, metav1.ConditionFalse, clusterv1.NotRemediatingReason, "")
	case s.outcome.Reason == controlplane.ReasonRemediationSuspended, s.outcome.Reason == controlplane.ReasonQuorumLost:
		s.set(condition, metav1.ConditionFalse, controlplanev1.RemediationSuspendedReason,
			sentence(s.outcome.Message)+"\n"+text)
	case s.outcome.Reason == controlplane.ReasonRetriesExhausted:
		s.set(condition, metav1.ConditionFalse, controlplanev1.RemediationRetriesExhaustedReason,
			sentence(s.outcome.Message)+"\n"+text)
	default:
		if s.snapshot.Remediation.Deferred != "" {
			text += "\n* " + sentence(s.snapshot.Remediation.Deferred)
		} else if s.outcome.Message != "" {
			text += "\n* " + sentence(s.outcome.Message)
		}
		s.set(condition, metav1.ConditionTrue, clusterv1.RemediatingReason, text)
	}
}

// lostQuorum says in words that the quorum is lost; empty while it is there, or was a moment ago.
func (s *scope) lostQuorum() string {
	loss := s.assessment.QuorumLoss
	if loss == nil {
		return ""
	}
	before := conditions.Get(s.plane, controlplanev1.ControlPlaneEtcdClusterHealthyCondition)
	if !loss.ForGood && (before == nil || before.Status == metav1.ConditionTrue ||
		s.clock.Since(before.LastTransitionTime.Time) < lossGrace) {
		return ""
	}
	return sentence(loss.Message) + ". " + loss.WayOut
}
