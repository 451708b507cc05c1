// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoincontrolplane

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/cluster-api/util/patch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/controllers/quoincontrolplane/observe"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/apierr"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
)

// forgetAttempt takes the annotation off whose attempt a Machine carries by now.
func forgetAttempt(controlPlane *controlplanev1.QuoinControlPlane, pending *controlplane.Attempt) {
	noted := observe.AttemptFrom(controlPlane.Annotations[controlplanev1.RemediationInProgressAnnotation])
	if noted != nil && pending == nil {
		delete(controlPlane.Annotations, controlplanev1.RemediationInProgressAnnotation)
	}
}

// recordAttempt notes an attempt on the control plane before its Machine is deleted, so that neither a kill nor a move
// of the objects in between loses the count.
func (r *Reconciler) recordAttempt(
	ctx context.Context, controlPlane *controlplanev1.QuoinControlPlane, attempt *controlplane.Attempt,
) error {
	if attempt == nil {
		return nil
	}
	if err := r.record(ctx, controlPlane, controlplanev1.RemediationInProgressAnnotation, attempt); err != nil {
		return fmt.Errorf("recording the replacement of Machine %s: %w", attempt.Machine, err)
	}
	setLastRemediation(controlPlane, attempt)
	return nil
}

// record writes an annotation of the control plane at once.
func (r *Reconciler) record(
	ctx context.Context, controlPlane *controlplanev1.QuoinControlPlane, annotation string, value any,
	options ...client.MergeFromOption,
) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	changed, noted := controlPlane.DeepCopy(), map[string]string{annotation: string(text)}
	annotations.AddAnnotations(changed, noted)
	if err := r.Client.Patch(ctx, changed, client.MergeFromWithOptions(controlPlane, options...)); err != nil {
		return err
	}
	annotations.AddAnnotations(controlPlane, noted)
	return nil
}

func setLastRemediation(controlPlane *controlplanev1.QuoinControlPlane, attempt *controlplane.Attempt) {
	controlPlane.Status.LastRemediation = &controlplanev1.LastRemediation{Machine: attempt.Machine,
		Time: metav1.NewTime(attempt.Time), RetryCount: ptr.To(int32(attempt.RetryCount))}
}

// restoreLastRemediation reads it from the Machines, after a move of the objects took the status away.
func (s *summary) restoreLastRemediation() {
	if s.controlPlane.Status.LastRemediation != nil {
		return
	}
	latest := s.State.Remediation.Pending
	for _, machine := range s.State.Machines {
		if made := machine.Health.Replaces; made != nil && (latest == nil || made.Time.After(latest.Time)) {
			latest = made
		}
	}
	if latest != nil {
		setLastRemediation(s.controlPlane, latest)
	}
}

// Reasons of the condition OwnerRemediated of a Machine; the words are those of KubeadmControlPlane.
const (
	reasonRemediationDeferred   = "RemediationDeferred"
	reasonCannotBeRemediated    = "CannotBeRemediated"
	reasonMachineDeleting       = "MachineDeleting"
	reasonRemediationInProgress = "RemediationInProgress"
)

// announce says on each unhealthy Machine what its replacement waits for, before the step.
func (r *Reconciler) announce(ctx context.Context, s *summary, step controlplane.Step) error {
	if s.Deleting() {
		return nil
	}
	const condition = clusterv1.MachineOwnerRemediatedCondition
	var failures []error
	for _, machine := range s.machines {
		said := conditions.Get(machine, condition)
		wanted := s.remediationOf(machine, step)
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
func (s *summary) remediationOf(machine *clusterv1.Machine, step controlplane.Step) *metav1.Condition {
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
	if why := observe.Spared(machine); why != "" {
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
	case s.State.Remediation.Deferred != "":
		return say(reasonRemediationDeferred, because+sentence(s.State.Remediation.Deferred))
	case step.Remediates == machine.Name && step.Reason == controlplane.ReasonRetriesExhausted,
		step.Remediates == machine.Name && step.Reason == controlplane.ReasonQuorum:
		return say(reasonCannotBeRemediated, step.Message)
	case step.Remediates == machine.Name && step.Waiting():
		return say(reasonRemediationDeferred, step.Message)
	case step.Remediates == machine.Name:
		return say(reasonRemediationInProgress, step.Message)
	case step.Remediates != "" && step.Reason != controlplane.ReasonRemediationSuspended:
		return say(reasonRemediationDeferred, because+"The replacement of Machine "+step.Remediates+" comes first")
	}
	return say(reasonRemediationDeferred, because+sentence(step.Message))
}

// setRemediating says on the control plane whether an unhealthy Machine is being replaced, and what that waits for.
func (s *summary) setRemediating() {
	const condition = controlplanev1.ControlPlaneRemediatingCondition
	if !s.Observed() {
		return
	}
	s.restoreLastRemediation()
	var lines []string
	for _, unhealthy := range s.assessment.Unhealthy {
		lines = append(lines, fmt.Sprintf("* Machine %s: %s", unhealthy.Machine.Name, unhealthy.Message))
	}
	text := strings.Join(lines, "\n")
	switch {
	case s.Deleting() || len(lines) == 0:
		s.set(condition, metav1.ConditionFalse, clusterv1.NotRemediatingReason, "")
	case s.outcome.Reason == controlplane.ReasonRemediationSuspended, s.outcome.Reason == controlplane.ReasonQuorumLost:
		s.set(condition, metav1.ConditionTrue, controlplanev1.RemediationSuspendedReason,
			sentence(s.outcome.Message)+"\n"+text)
	case s.outcome.Reason == controlplane.ReasonRetriesExhausted:
		s.set(condition, metav1.ConditionTrue, controlplanev1.RemediationRetriesExhaustedReason,
			sentence(s.outcome.Message)+"\n"+text)
	default:
		if s.State.Remediation.Deferred != "" {
			text += "\n* " + sentence(s.State.Remediation.Deferred)
		} else if s.outcome.Message != "" {
			text += "\n* " + sentence(s.outcome.Message)
		}
		s.set(condition, metav1.ConditionTrue, clusterv1.RemediatingReason, text)
	}
}

// lostQuorum says in words that the quorum is lost; empty while it is there, or was a moment ago.
func (s *summary) lostQuorum() string {
	loss := s.assessment.QuorumLoss
	if loss == nil || !loss.ForGood && s.State.ElectionGrace > 0 {
		return ""
	}
	return sentence(loss.Message) + ". " + loss.WayOut
}
