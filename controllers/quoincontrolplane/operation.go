// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoincontrolplane

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/text"
)

// defaultProgressDeadline is how long a step may take when the spec does not say.
const defaultProgressDeadline = 30 * time.Minute

// mostOperationText is what the API takes of a message, and mostWaitingOn of what is awaited.
const (
	mostOperationText = 10240
	mostWaitingOn     = 512
)

// setOperation shows what is being done and what that waits for. The time stays while both stay, so that it shows for
// how long.
func (s *summary) setOperation(failure error, now time.Time) {
	before := s.controlPlane.Status.Operation
	if failure == nil && s.outcome.Kind == controlplane.Done {
		s.controlPlane.Status.Operation = nil
		return
	}
	next := &controlplanev1.ControlPlaneOperation{
		Type: controlplanev1.OperationType(s.outcome.Operation), Machine: s.outcome.Machine,
		WaitingOn: text.Shorten(s.outcome.WaitingOn(), mostWaitingOn),
		Message:   text.Shorten(sentence(s.outcome.Message), mostOperationText),
	}
	if failure != nil {
		// What failed before anything was decided belongs to what was going on.
		if next.Type == "" && before != nil {
			next.Type, next.Machine = before.Type, before.Machine
		}
		next.WaitingOn, next.Message = "Retry", text.Shorten(sentence(failure.Error()), mostOperationText)
	}
	if next.Type == "" {
		next.Type = s.earlyOperation()
	}
	next.Since = metav1.NewTime(now.Truncate(time.Second))
	if before != nil && before.Type == next.Type && before.Machine == next.Machine && before.WaitingOn == next.WaitingOn &&
		!before.Since.IsZero() {
		next.Since = before.Since
	}
	s.controlPlane.Status.Operation = next
}

// earlyOperation is what goes on while the Cluster's own parts are awaited.
func (s *summary) earlyOperation() controlplanev1.OperationType {
	switch {
	case s.Deleting():
		return controlplanev1.OperationDelete
	case s.Initialized():
		return controlplanev1.OperationRepair
	}
	return controlplanev1.OperationInitialize
}

// setProgressing reports whether the operation in flight moves.
func (s *summary) setProgressing(now time.Time) {
	const condition = controlplanev1.ControlPlaneProgressingCondition
	operation := s.controlPlane.Status.Operation
	if operation == nil {
		s.set(condition, metav1.ConditionTrue, "Complete", "")
		return
	}
	if s.outcome.Kind == controlplane.Refuse {
		// It does not move until the spec is another.
		s.set(condition, metav1.ConditionFalse, s.outcome.Reason, operation.Message)
		return
	}
	deadline := defaultProgressDeadline
	if seconds := s.controlPlane.Spec.Rollout.ProgressDeadlineSeconds; seconds != nil {
		deadline = time.Duration(*seconds) * time.Second
	}
	if now.Sub(operation.Since.Time) >= deadline && s.outcome.Reason != controlplane.ReasonWindowClosed {
		s.set(condition, metav1.ConditionFalse, controlplanev1.ProgressDeadlineExceededReason, fmt.Sprintf(
			"%s since %s, for longer than %s: %s", operation.Type, operation.Since.UTC().Format(time.RFC3339), deadline,
			operation.Message))
		return
	}
	s.set(condition, metav1.ConditionTrue, string(operation.Type), operation.Message)
}

// revisions counts the Machines by revision: the one that the spec asks for first, then by version, newest first.
func (s *summary) revisions() []controlplanev1.ControlPlaneRevision {
	current := s.controlPlane.Spec.Version + "/" + s.controlPlane.Spec.MachineTemplate.Spec.InfrastructureRef.Name
	byName := map[string]*controlplanev1.ControlPlaneRevision{}
	entry := func(name string) *controlplanev1.ControlPlaneRevision {
		if byName[name] == nil {
			byName[name] = &controlplanev1.ControlPlaneRevision{Name: text.Shorten(name, mostWaitingOn),
				Replicas: ptr.To[int32](0), ReadyReplicas: ptr.To[int32](0)}
		}
		return byName[name]
	}
	for name, machine := range s.parts() {
		template := ""
		if infra := s.QuoinMachines[name]; infra != nil {
			template = infra.Annotations[clusterv1.TemplateClonedFromNameAnnotation]
		}
		revision := machine.Spec.Version + "/" + template
		if len(s.Outdated[name]) > 0 && revision == current {
			// The same version and template, and another configuration of kubeadm.
			revision += "/outdated"
		}
		counted := entry(revision)
		*counted.Replicas++
		if conditions.IsTrue(machine, clusterv1.MachineReadyCondition) {
			*counted.ReadyReplicas++
		}
	}
	if len(byName) > 0 || s.Replicas() > 0 {
		entry(current).Current = ptr.To(true)
	}
	result := make([]controlplanev1.ControlPlaneRevision, 0, len(byName))
	for _, revision := range byName {
		result = append(result, *revision)
	}
	slices.SortFunc(result, func(a, b controlplanev1.ControlPlaneRevision) int {
		aVersion, _, _ := strings.Cut(a.Name, "/")
		bVersion, _, _ := strings.Cut(b.Name, "/")
		return cmp.Or(
			-cmp.Compare(boolRank(ptr.Deref(a.Current, false)), boolRank(ptr.Deref(b.Current, false))),
			boolRank(skew.Older(aVersion, bVersion))-boolRank(skew.Older(bVersion, aVersion)),
			cmp.Compare(a.Name, b.Name))
	})
	return result
}

// operationEvents records what is not a change and still a part of the story: that something waits for a person, that
// less can fail meanwhile, and that an operation is over.
func (r *Reconciler) operationEvents(s *summary, before *controlplanev1.ControlPlaneOperation) {
	switch {
	case s.outcome.Kind == controlplane.Refuse,
		s.outcome.Kind == controlplane.Wait && (s.outcome.Reason == controlplane.ReasonNoSpareHost ||
			s.outcome.Reason == controlplane.ReasonQuorum):
		if before == nil || before.WaitingOn != s.outcome.WaitingOn() {
			r.event(s.controlPlane, "Warning", s.outcome.Reason, sentence(s.outcome.Message))
		}
	case s.outcome.Kind == controlplane.Done && before != nil:
		r.event(s.controlPlane, "Normal", "OperationComplete", fmt.Sprintf("%s is complete at %s; Machines: %d",
			before.Type, s.controlPlane.Spec.Version, len(s.parts())))
	}
}
