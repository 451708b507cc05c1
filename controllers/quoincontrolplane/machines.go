// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoincontrolplane

import (
	"context"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kerrors "k8s.io/apimachinery/pkg/util/errors"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/cluster-api/util/patch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/controllers/quoincontrolplane/desired"
	"github.com/quoin-dev/cluster-api-provider-quoin/controllers/quoincontrolplane/observe"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/apierr"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
)

const (
	reasonHealthy    = "Healthy"
	reasonNotHealthy = "NotHealthy"
	// reasonHealthUnknown: nothing is known of a part that may be ill.
	reasonHealthUnknown = "HealthUnknown"
	// failedProbes is how often connecting must have failed, right after a start, before that is believed.
	failedProbes = 5
)

// reportMachines sets the control plane's conditions on its Machines. They are readiness gates there.
func (r *Reconciler) reportMachines(ctx context.Context, s *summary) error {
	var failures []error
	keep := r.withinGrace(ctx, s.Observation)
	for name, machine := range s.machines {
		helper, err := patch.NewHelper(machine, r.Client)
		if err != nil {
			failures = append(failures, err)
			continue
		}
		s.setUpToDate(machine)
		if s.controlPlane.DeletionTimestamp.IsZero() && (machine.Status.NodeRef.IsDefined() || s.joined(name) ||
			!s.hasConditions(machine)) {
			s.setPodConditions(machine, keep)
			s.setMemberCondition(machine, keep)
		}
		owned := append(desired.MachineConditions(s.controlPlane), clusterv1.MachineUpToDateCondition)
		if err := apierr.IgnoreGone(helper.Patch(ctx, machine, patch.WithOwnedConditions{Conditions: owned})); err != nil {
			failures = append(failures, fmt.Errorf("setting conditions of Machine %s: %w", name, err))
		}
	}
	return kerrors.NewAggregate(failures)
}

// joined reports whether the Machine's bootstrap data ran to its end: from there on its member may be ill.
func (s *summary) joined(name string) bool {
	return slices.ContainsFunc(s.State.Machines, func(machine controlplane.Machine) bool {
		return machine.Name == name && machine.Joined
	})
}

// hasConditions reports whether the conditions of a Machine's readiness were set. While it joins they do not change:
// each change of a Machine makes Cluster API reconcile it, at most once a second, and the reconcile that it needs would
// come later.
func (s *summary) hasConditions(machine *clusterv1.Machine) bool {
	for _, condition := range desired.MachineConditions(s.controlPlane) {
		if !conditions.Has(machine, condition) {
			return false
		}
	}
	return true
}

// withinGrace reports whether a silence of the workload cluster is still too short to forget what was seen before it.
func (r *Reconciler) withinGrace(ctx context.Context, o *observe.Observation) bool {
	if o.Workload.Err == nil {
		return false
	}
	state := r.ClusterCache.GetHealthCheckingState(ctx, client.ObjectKeyFromObject(o.Cluster))
	if state.LastProbeSuccessTime.IsZero() {
		return state.ConsecutiveFailures < failedProbes
	}
	return r.Clock.Since(state.LastProbeSuccessTime) < connectionGrace
}

func (s *summary) setUpToDate(machine *clusterv1.Machine) {
	if reasons := s.Outdated[machine.Name]; len(reasons) > 0 {
		conditions.Set(machine, metav1.Condition{Type: clusterv1.MachineUpToDateCondition, Status: metav1.ConditionFalse,
			Reason: clusterv1.MachineNotUpToDateReason, Message: "* " + strings.Join(reasons, "\n* ")})
		return
	}
	if kubelet := observe.KubeletVersion(machine, s.Workload.Health[machine.Name]); kubelet != "" &&
		kubelet != machine.Spec.Version {
		conditions.Set(machine, metav1.Condition{Type: clusterv1.MachineUpToDateCondition, Status: metav1.ConditionFalse,
			Reason:  clusterv1.MachineUpToDateUpdatingReason,
			Message: fmt.Sprintf("* The kubelet runs %s, %s required", kubelet, machine.Spec.Version)})
		return
	}
	conditions.Set(machine, metav1.Condition{Type: clusterv1.MachineUpToDateCondition, Status: metav1.ConditionTrue,
		Reason: clusterv1.MachineUpToDateReason})
}

func (s *summary) setPodConditions(machine *clusterv1.Machine, keep bool) {
	health, read := s.Workload.Health[machine.Name]
	for _, pod := range desired.StaticPods {
		if pod.Etcd && !desired.StackedEtcd(s.controlPlane) {
			continue
		}
		if read {
			conditions.Set(machine, health.Conditions[pod.Condition])
			continue
		}
		s.setUnknown(machine, pod.Condition, keep, s.unreadable(machine, s.Workload.Err))
	}
}

// unreadable says why nothing is known about a Machine.
func (s *summary) unreadable(machine *clusterv1.Machine, err error) string {
	switch {
	case !s.Initialized():
		return "Waiting for kubeadm init to end"
	case !machine.Status.NodeRef.IsDefined():
		return "Waiting for the Machine's Node"
	case err != nil:
		return err.Error()
	}
	return "Not read yet"
}

func (s *summary) setUnknown(machine *clusterv1.Machine, condition string, keep bool, message string) {
	if keep && conditions.Has(machine, condition) {
		return
	}
	reason := clusterv1.InspectionFailedReason
	if s.Workload.Err != nil && s.Initialized() {
		reason = controlplanev1.ConnectionDownReason
	}
	conditions.Set(machine, metav1.Condition{Type: condition, Status: metav1.ConditionUnknown, Reason: reason,
		Message: message})
}

func (s *summary) setMemberCondition(machine *clusterv1.Machine, keep bool) {
	if !desired.StackedEtcd(s.controlPlane) {
		return
	}
	const condition = controlplanev1.MachineEtcdMemberHealthyCondition
	if !s.State.Etcd.Known {
		s.setUnknown(machine, condition, keep, s.unreadable(machine, s.Etcd.Err))
		return
	}
	set := func(status metav1.ConditionStatus, reason, message string) {
		conditions.Set(machine, metav1.Condition{Type: condition, Status: status, Reason: reason, Message: message})
	}
	for _, member := range s.State.Etcd.Members {
		switch {
		case member.Machine != machine.Name:
			continue
		case member.Shortcoming() != "":
			set(metav1.ConditionFalse, reasonNotHealthy, "The member "+member.Shortcoming())
		default:
			set(metav1.ConditionTrue, reasonHealthy, "")
		}
		return
	}
	if !machine.DeletionTimestamp.IsZero() {
		set(metav1.ConditionFalse, clusterv1.DeletingReason, "The member was removed, because the Machine is being deleted")
		return
	}
	if !machine.Status.NodeRef.IsDefined() {
		set(metav1.ConditionUnknown, clusterv1.InspectionFailedReason, "Waiting for the Machine's Node")
		return
	}
	set(metav1.ConditionFalse, reasonNotHealthy, "No etcd member runs on the Machine")
}
