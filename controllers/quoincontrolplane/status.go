// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoincontrolplane

import (
	"context"
	"fmt"
	"slices"
	"sort"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/collections"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/controllers/quoincontrolplane/desired"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/quorum"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew"
)

// ownedConditions are set here and by nobody else.
var ownedConditions = []string{
	clusterv1.PausedCondition,
	controlplanev1.ControlPlaneAvailableCondition,
	controlplanev1.ControlPlaneInitializedCondition,
	controlplanev1.ControlPlaneCertificatesAvailableCondition,
	controlplanev1.ControlPlaneEtcdClusterHealthyCondition,
	controlplanev1.ControlPlaneComponentsHealthyCondition,
	controlplanev1.ControlPlaneMachinesReadyCondition,
	controlplanev1.ControlPlaneMachinesUpToDateCondition,
	controlplanev1.ControlPlaneRollingOutCondition,
	controlplanev1.ControlPlaneScalingUpCondition,
	controlplanev1.ControlPlaneScalingDownCondition,
	controlplanev1.ControlPlaneProgressingCondition,
	controlplanev1.ControlPlaneDeletingCondition,
	controlplanev1.ControlPlaneRemediatingCondition,
	controlplanev1.ControlPlaneRecoveringCondition,
	controlplanev1.ControlPlaneAddonsUpToDateCondition,
}

// summarize writes status from what was seen. failure is the error that ended the reconcile, if one did.
func (r *Reconciler) summarize(ctx context.Context, s *scope, failure error) {
	machines, err := r.readMachines(ctx, s)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Status could not be brought up to date")
		s.set(controlplanev1.ControlPlaneRollingOutCondition, metav1.ConditionUnknown, clusterv1.InternalErrorReason,
			sentence(err.Error()))
		return
	}
	machines = machines.Filter(func(machine *clusterv1.Machine) bool { return !s.isPrepared(machine) })
	status := &s.plane.Status
	status.Selector = collections.ControlPlaneSelectorForCluster(s.cluster.Name).String()
	status.Replicas = ptr.To(int32(len(machines)))
	status.ReadyReplicas = count(machines, clusterv1.MachineReadyCondition)
	status.AvailableReplicas = count(machines, clusterv1.MachineAvailableCondition)
	status.UpToDateReplicas = count(machines, clusterv1.MachineUpToDateCondition)
	status.Versions = s.runningVersions()
	if s.observed {
		status.Revisions = s.revisions()
	}
	if s.snapshot.Etcd.Known {
		status.Etcd = s.etcdStatus(status.Etcd)
	}
	// What was not looked at is not forgotten either.
	keep := !s.observed || s.deleting() || r.withinGrace(ctx, s)
	// Before setEtcd, which overwrites how long that has been so.
	lost := s.lostQuorum()
	s.setInitialized()
	s.setCertificates()
	s.setComponents(keep)
	s.setEtcd(keep)
	s.setAvailable(keep)
	if lost != "" && !s.deleting() {
		s.set(controlplanev1.ControlPlaneEtcdClusterHealthyCondition, metav1.ConditionFalse, controlplanev1.QuorumLostReason,
			lost)
		s.set(controlplanev1.ControlPlaneAvailableCondition, metav1.ConditionFalse, controlplanev1.QuorumLostReason, lost)
	}
	s.setRemediating()
	s.setRecovering()
	s.setAddons(failure)
	s.setProgress(failure)
	now := s.clock.Now()
	before := status.Operation
	s.setOperation(failure, now)
	s.setProgressing(now)
	if failure == nil {
		r.tellOperation(s, before)
	}
	s.setDeleting()
	s.setAggregates(ctx)
}

func count(machines collections.Machines, condition string) *int32 {
	return ptr.To(int32(len(machines.Filter(func(m *clusterv1.Machine) bool { return conditions.IsTrue(m, condition) }))))
}

// runningVersions are those of the kubelets, oldest first. A Machine that runs nothing yet has none.
func (s *scope) runningVersions() []clusterv1.StatusVersion {
	counts := map[string]int32{}
	for name, machine := range s.machines {
		if version := kubeletVersion(machine, s.workload.health[name]); version != "" {
			counts[version]++
		}
	}
	var result []clusterv1.StatusVersion
	for version, replicas := range counts {
		result = append(result, clusterv1.StatusVersion{Version: version, Replicas: replicas})
	}
	sort.Slice(result, func(i, j int) bool { return skew.Older(result[i].Version, result[j].Version) })
	return result
}

func (s *scope) set(condition string, status metav1.ConditionStatus, reason, message string) {
	conditions.Set(s.plane, metav1.Condition{Type: condition, Status: status, Reason: reason, Message: message})
}

func (s *scope) setInitialized() {
	if s.initialized() {
		s.set(controlplanev1.ControlPlaneInitializedCondition, metav1.ConditionTrue, "Initialized", "")
		return
	}
	s.set(controlplanev1.ControlPlaneInitializedCondition, metav1.ConditionFalse, "NotInitialized", s.outcome.Message)
}

func (s *scope) setCertificates() {
	switch {
	case s.certificates != nil:
		conditions.Set(s.plane, *s.certificates)
	case !conditions.Has(s.plane, controlplanev1.ControlPlaneCertificatesAvailableCondition):
		s.set(controlplanev1.ControlPlaneCertificatesAvailableCondition, metav1.ConditionFalse, clusterv1.NotAvailableReason,
			s.outcome.Message)
	}
}

// setUnknownOnce says that something cannot be told, unless what was told before is recent enough.
func (s *scope) setUnknownOnce(condition string, keep bool, message string) {
	if keep && conditions.Has(s.plane, condition) {
		return
	}
	if !s.initialized() {
		// Before kubeadm init nothing runs that could be healthy: that is known.
		s.set(condition, metav1.ConditionFalse, clusterv1.NotAvailableReason, "Waiting for kubeadm init to end")
		return
	}
	s.set(condition, metav1.ConditionUnknown, controlplanev1.ConnectionDownReason, message)
}

func (s *scope) setComponents(keep bool) {
	const condition = controlplanev1.ControlPlaneComponentsHealthyCondition
	if !s.observed || !s.snapshot.Reachable {
		s.setUnknownOnce(condition, keep, message(s.workload.err, "The workload cluster was not read"))
		return
	}
	var problems []string
	for _, machine := range s.snapshot.Machines {
		if !machine.Deleting && !machine.Serving {
			problems = append(problems, fmt.Sprintf("* Machine %s: %s", machine.Name,
				orElse(orElse(s.workload.health[machine.Name].podProblem, machine.Problem), "waiting for its Node")))
		}
	}
	if len(problems) > 0 {
		s.set(condition, metav1.ConditionFalse, reasonNotHealthy, strings.Join(problems, "\n"))
		return
	}
	s.set(condition, metav1.ConditionTrue, reasonHealthy, "")
}

func (s *scope) setEtcd(keep bool) {
	const condition = controlplanev1.ControlPlaneEtcdClusterHealthyCondition
	if !desired.StackedEtcd(s.plane) {
		s.set(condition, metav1.ConditionTrue, "External", "etcd is external and not looked at")
		return
	}
	if !s.snapshot.Etcd.Known {
		s.setUnknownOnce(condition, keep, "etcd cannot be read: "+orElse(s.snapshot.Etcd.Problem, "it was not read"))
		return
	}
	var problems []string
	reason := controlplanev1.EtcdMemberUnhealthyReason
	unclaimed := s.assessment.Unclaimed
	for _, member := range unclaimed {
		reason = controlplanev1.MemberWithoutMachineReason
		problems = append(problems, "* "+sentence(member.Message))
	}
	if !s.snapshot.Etcd.Agreed {
		problems = append(problems, "* There is no quorum")
	}
	for _, member := range s.snapshot.Etcd.Members {
		name := orElse(member.Name, fmt.Sprintf("%x", member.ID))
		switch {
		case slices.ContainsFunc(unclaimed, func(kept controlplane.UnclaimedMember) bool { return kept.ID == member.ID }):
		case member.Machine == "":
			problems = append(problems, fmt.Sprintf("* Member %s has no Machine", name))
		case member.Learner:
			problems = append(problems, fmt.Sprintf("* Member %s is a learner that still copies the data", name))
		case !member.Healthy:
			problems = append(problems, fmt.Sprintf("* Member %s is not healthy: %s", name, member.Problem))
		}
	}
	for _, machine := range s.snapshot.Machines {
		has := false
		for _, member := range s.snapshot.Etcd.Members {
			has = has || member.Machine == machine.Name
		}
		if !has && !machine.Deleting && machine.Node != "" {
			problems = append(problems, fmt.Sprintf("* Machine %s has no member", machine.Name))
		}
	}
	if len(problems) > 0 {
		s.set(condition, metav1.ConditionFalse, reason, strings.Join(problems, "\n"))
		return
	}
	s.set(condition, metav1.ConditionTrue, reasonHealthy, "")
}

// setAvailable: the API answers, a Machine works whole, and etcd has a quorum of healthy voters.
func (s *scope) setAvailable(keep bool) {
	const condition = controlplanev1.ControlPlaneAvailableCondition
	switch {
	case s.deleting():
		s.set(condition, metav1.ConditionFalse, clusterv1.NotAvailableReason, "The control plane is being deleted")
		return
	case !s.initialized():
		s.set(condition, metav1.ConditionFalse, clusterv1.NotAvailableReason,
			orElse(s.outcome.Message, "Waiting for kubeadm init to end"))
		return
	case !s.observed || !s.snapshot.Reachable:
		s.setUnknownOnce(condition, keep, message(s.workload.err, "The workload cluster was not read"))
		return
	case desired.StackedEtcd(s.plane) && !s.snapshot.Etcd.Known:
		s.setUnknownOnce(condition, true, "etcd cannot be read: "+s.snapshot.Etcd.Problem)
		return
	}
	working := 0
	for _, machine := range s.snapshot.Machines {
		if machine.Serving {
			working++
		}
	}
	etcd := s.snapshot.Etcd.Count()
	switch {
	case working == 0:
		s.set(condition, metav1.ConditionFalse, clusterv1.NotAvailableReason,
			"No Machine has all components of a control plane ready")
	case desired.StackedEtcd(s.plane) && !etcd.Quorate():
		s.set(condition, metav1.ConditionFalse, clusterv1.NotAvailableReason,
			fmt.Sprintf("%d of %d etcd members are healthy, %d are needed", etcd.Healthy, etcd.Voters,
				quorum.Majority(etcd.Voters)))
	case s.certificates != nil && s.certificates.Status == metav1.ConditionFalse:
		s.set(condition, metav1.ConditionFalse, clusterv1.NotAvailableReason, "The cluster's certificates are not available")
	default:
		s.set(condition, metav1.ConditionTrue, clusterv1.AvailableReason, "")
	}
}

func (s *scope) setAddons(failure error) {
	const condition = controlplanev1.ControlPlaneAddonsUpToDateCondition
	lacking := s.lackImages()
	switch {
	case s.outcome.Reason == controlplane.ReasonAddonImages:
		s.set(condition, metav1.ConditionFalse, controlplanev1.WaitingForAddonImagesReason,
			sentence(s.outcome.Message)+lacking)
	case !s.initialized():
		s.set(condition, metav1.ConditionFalse, "NotInitialized", "Waiting for kubeadm init to end")
	case s.deleting():
		s.set(condition, metav1.ConditionFalse, clusterv1.DeletingReason, "The control plane is being deleted")
	case !s.observed || !s.snapshot.Reachable:
		s.setUnknownOnce(condition, true, message(s.workload.err, "The workload cluster was not read"))
	case failure != nil && s.outcome.Kind == controlplane.UpdateAddons:
		s.set(condition, metav1.ConditionFalse, clusterv1.NotUpToDateReason, sentence(failure.Error()))
	case s.workload.addonsErr != nil:
		s.set(condition, metav1.ConditionUnknown, clusterv1.InspectionFailedReason, sentence(s.workload.addonsErr.Error()))
	case s.workload.dnsProblem != "":
		s.set(condition, metav1.ConditionFalse, clusterv1.NotUpToDateReason, s.workload.dnsProblem)
	case s.snapshot.AddonsCurrent || s.outcome.Kind == controlplane.UpdateAddons:
		s.set(condition, metav1.ConditionTrue, clusterv1.UpToDateReason, strings.TrimPrefix(lacking, "\n"))
	default:
		s.set(condition, metav1.ConditionFalse, clusterv1.NotUpToDateReason, fmt.Sprintf(
			"CoreDNS and kube-proxy get the images of %s when all control-plane Machines run it%s", s.plane.Spec.Version,
			lacking))
	}
}

func message(err error, otherwise string) string {
	if err != nil {
		return err.Error()
	}
	return otherwise
}

func orElse(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}

// sentence makes a step's message stand alone.
func sentence(text string) string {
	if text == "" {
		return ""
	}
	return strings.ToUpper(text[:1]) + text[1:]
}
