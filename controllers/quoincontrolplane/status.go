// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoincontrolplane

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/collections"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/controllers/quoincontrolplane/desired"
	"github.com/quoin-dev/cluster-api-provider-quoin/controllers/quoincontrolplane/observe"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/quorum"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/text"
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

// summary is what status is made of.
type summary struct {
	*observe.Observation
	// controlPlane is what the status is written to, and machines are as they are by now.
	controlPlane *controlplanev1.QuoinControlPlane
	machines     collections.Machines
	assessment   controlplane.Assessment
	outcome      controlplane.Outcome
	// dnsProblem is why CoreDNS does not follow the version by itself.
	dnsProblem string
	now        time.Time
}

func (r *Reconciler) summaryOf(p *reconciliation) *summary {
	s := &summary{Observation: p.observation, controlPlane: p.controlPlane, machines: p.machines,
		assessment: p.assessment, outcome: p.outcome, now: r.Clock.Now()}
	if s.Observation == nil {
		s.Observation = observe.Nothing(p.subject)
	}
	s.dnsProblem = cmp.Or(p.dnsProblem, s.Workload.DNSProblem)
	return s
}

// parts are the Machines that the control plane consists of: all but those that were pre-created.
func (s *summary) parts() collections.Machines {
	return s.machines.Filter(func(machine *clusterv1.Machine) bool { return !s.PreCreated(machine) })
}

// summarize writes status from what was seen. failure is the error that ended the reconcile, if one did.
func (r *Reconciler) summarize(ctx context.Context, p *reconciliation, failure error) {
	if p.machines == nil {
		var err error
		if p.machines, err = r.readMachines(ctx, &p.subject, p.cached); err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "Status could not be brought up to date")
			r.summaryOf(p).set(controlplanev1.ControlPlaneRollingOutCondition, metav1.ConditionUnknown,
				clusterv1.InternalErrorReason, sentence(err.Error()))
			return
		}
	}
	s := r.summaryOf(p)
	machines := s.parts()
	status := &s.controlPlane.Status
	status.Selector = collections.ControlPlaneSelectorForCluster(s.Cluster.Name).String()
	status.Replicas = ptr.To(int32(len(machines)))
	status.ReadyReplicas = count(machines, clusterv1.MachineReadyCondition)
	status.AvailableReplicas = count(machines, clusterv1.MachineAvailableCondition)
	status.UpToDateReplicas = count(machines, clusterv1.MachineUpToDateCondition)
	status.Versions = observe.RunningVersions(s.machines, s.Workload.Health)
	if s.Observed() {
		status.Revisions = s.revisions()
	}
	if s.State.Etcd.Known {
		status.Etcd = s.etcdStatus(status.Etcd)
	}
	// What was not looked at is not forgotten either.
	keep := !s.Observed() || s.Deleting() || r.withinGrace(ctx, s.Observation)
	lost := s.lostQuorum()
	s.setInitialized()
	s.setCertificates()
	s.setComponents(keep)
	s.setEtcd(keep)
	s.setAvailable(keep)
	if lost != "" && !s.Deleting() {
		s.set(controlplanev1.ControlPlaneEtcdClusterHealthyCondition, metav1.ConditionFalse, controlplanev1.QuorumLostReason,
			lost)
		s.set(controlplanev1.ControlPlaneAvailableCondition, metav1.ConditionFalse, controlplanev1.QuorumLostReason, lost)
	}
	s.setRemediating()
	s.setRecovering()
	s.setAddons(failure)
	s.setProgress(failure)
	before := status.Operation
	s.setOperation(failure, s.now)
	s.setProgressing(s.now)
	if failure == nil {
		r.operationEvents(s, before)
	}
	s.setDeleting()
	s.setAggregates(ctx)
}

func count(machines collections.Machines, condition string) *int32 {
	return ptr.To(int32(len(machines.Filter(func(m *clusterv1.Machine) bool { return conditions.IsTrue(m, condition) }))))
}

func (s *summary) set(condition string, status metav1.ConditionStatus, reason, message string) {
	conditions.Set(s.controlPlane, metav1.Condition{Type: condition, Status: status, Reason: reason, Message: message})
}

func (s *summary) setInitialized() {
	if s.Answered() {
		s.set(controlplanev1.ControlPlaneInitializedCondition, metav1.ConditionTrue, "Initialized", "")
		return
	}
	s.set(controlplanev1.ControlPlaneInitializedCondition, metav1.ConditionFalse, "NotInitialized", s.outcome.Message)
}

func (s *summary) setCertificates() {
	switch {
	case s.Certificates != nil:
		conditions.Set(s.controlPlane, *s.Certificates)
	case !conditions.Has(s.controlPlane, controlplanev1.ControlPlaneCertificatesAvailableCondition):
		s.set(controlplanev1.ControlPlaneCertificatesAvailableCondition, metav1.ConditionFalse, clusterv1.NotAvailableReason,
			s.outcome.Message)
	}
}

// setUnknownOnce says that something is not known, unless what was known before is recent enough.
func (s *summary) setUnknownOnce(condition string, keep bool, message string) {
	if keep && conditions.Has(s.controlPlane, condition) {
		return
	}
	if !s.Initialized() {
		s.set(condition, metav1.ConditionUnknown, clusterv1.InspectionFailedReason, "Waiting for kubeadm init to end")
		return
	}
	reason := controlplanev1.ConnectionDownReason
	if s.State.Reachable {
		reason = clusterv1.InspectionFailedReason
	}
	s.set(condition, metav1.ConditionUnknown, reason, message)
}

// setComponents judges as KubeadmControlPlane does: False once a static pod is known to be ill, Unknown while nothing
// is known of a Machine whose host has run its bootstrap data. Of one before that nothing is expected.
func (s *summary) setComponents(keep bool) {
	const condition = controlplanev1.ControlPlaneComponentsHealthyCondition
	if !s.Observed() || !s.State.Reachable {
		s.setUnknownOnce(condition, keep, message(s.Workload.Err, "The workload cluster was not read"))
		return
	}
	var failing, unknown []string
	reported := false
	for _, machine := range s.State.Machines {
		failure, id := s.Workload.Health[machine.Name].PodProblem, s.Machines[machine.Name].Spec.ProviderID
		switch {
		case machine.Serving:
			reported = true
		case machine.Deleting || machine.Node == "" && id == "":
		case failure != "":
			failing = append(failing, fmt.Sprintf("* Machine %s: %s", machine.Name, failure))
		case machine.Node == "":
			unknown = append(unknown, fmt.Sprintf("* Machine %s: waiting for a Node with spec.providerID %s", machine.Name, id))
		default:
			unknown = append(unknown, fmt.Sprintf("* Machine %s: %s", machine.Name, machine.Problem))
		}
	}
	problems := strings.Join(append(failing, unknown...), "\n")
	switch {
	case len(failing) > 0:
		s.set(condition, metav1.ConditionFalse, reasonNotHealthy, problems)
	case len(unknown) > 0:
		s.set(condition, metav1.ConditionUnknown, reasonHealthUnknown, problems)
	case !reported:
		s.set(condition, metav1.ConditionUnknown, reasonHealthUnknown, "No Machine reports its control plane components")
	default:
		s.set(condition, metav1.ConditionTrue, reasonHealthy, "")
	}
}

func (s *summary) setEtcd(keep bool) {
	const condition = controlplanev1.ControlPlaneEtcdClusterHealthyCondition
	if !desired.StackedEtcd(s.controlPlane) {
		s.set(condition, metav1.ConditionTrue, "External", "etcd is external and not looked at")
		return
	}
	if !s.State.Etcd.Known {
		s.setUnknownOnce(condition, keep, "etcd cannot be read: "+cmp.Or(s.State.Etcd.Problem, "it was not read"))
		return
	}
	var problems []string
	reason := controlplanev1.EtcdMemberUnhealthyReason
	unclaimed := s.assessment.Unclaimed
	for _, member := range unclaimed {
		reason = controlplanev1.MemberWithoutMachineReason
		problems = append(problems, "* "+sentence(member.Message))
	}
	if !s.State.Etcd.Agreed {
		problems = append(problems, "* There is no quorum")
	}
	if alarm := s.State.Etcd.Alarm; alarm != "" {
		problems = append(problems, "* "+sentence(alarm)+": "+quorum.CheckData)
	}
	for _, member := range s.State.Etcd.Members {
		name := cmp.Or(member.Name, fmt.Sprintf("%x", member.ID))
		switch {
		case slices.ContainsFunc(unclaimed, func(kept controlplane.UnclaimedMember) bool { return kept.ID == member.ID }):
		case member.Machine == "":
			problems = append(problems, fmt.Sprintf("* Member %s has no Machine", name))
		case member.Shortcoming() != "":
			problems = append(problems, fmt.Sprintf("* Member %s %s", name, member.Shortcoming()))
		}
	}
	for _, machine := range s.State.Machines {
		has := false
		for _, member := range s.State.Etcd.Members {
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
func (s *summary) setAvailable(keep bool) {
	const condition = controlplanev1.ControlPlaneAvailableCondition
	switch {
	case s.Deleting():
		s.set(condition, metav1.ConditionFalse, clusterv1.NotAvailableReason, "The control plane is being deleted")
		return
	case !s.Answered():
		s.set(condition, metav1.ConditionFalse, clusterv1.NotAvailableReason,
			cmp.Or(s.outcome.Message, "Waiting for kubeadm init to end"))
		return
	case !s.Observed() || !s.State.Reachable:
		s.setUnknownOnce(condition, keep, message(s.Workload.Err, "The workload cluster was not read"))
		return
	case desired.StackedEtcd(s.controlPlane) && !s.State.Etcd.Known:
		s.setUnknownOnce(condition, true, "etcd cannot be read: "+s.State.Etcd.Problem)
		return
	}
	working := 0
	for _, machine := range s.State.Machines {
		if machine.Serving {
			working++
		}
	}
	etcd := s.State.Etcd.Count()
	switch {
	case working == 0:
		s.set(condition, metav1.ConditionFalse, clusterv1.NotAvailableReason,
			"No Machine has all components of a control plane ready")
	case desired.StackedEtcd(s.controlPlane) && !etcd.Quorate():
		s.set(condition, metav1.ConditionFalse, clusterv1.NotAvailableReason,
			fmt.Sprintf("%d of %d etcd members are healthy, %d are needed", etcd.Healthy, etcd.Voters,
				quorum.Majority(etcd.Voters)))
	case s.Certificates != nil && s.Certificates.Status == metav1.ConditionFalse:
		s.set(condition, metav1.ConditionFalse, clusterv1.NotAvailableReason, "The cluster's certificates are not available")
	default:
		s.set(condition, metav1.ConditionTrue, clusterv1.AvailableReason, s.partlyAvailable(working))
	}
}

// partlyAvailable says what an available control plane lacks, once it has lacked it for longer than a flicker.
func (s *summary) partlyAvailable(working int) string {
	var lacking []string
	lasting := func(machine string, types ...string) bool {
		return s.machines[machine] != nil && slices.ContainsFunc(types, func(of string) bool {
			condition := conditions.Get(s.machines[machine], of)
			return condition != nil && condition.Status != metav1.ConditionTrue &&
				s.now.Sub(condition.LastTransitionTime.Time) > flickerTime
		})
	}
	if etcd := s.State.Etcd.Count(); desired.StackedEtcd(s.controlPlane) &&
		slices.ContainsFunc(s.State.Etcd.Members, func(member quorum.Member) bool {
			return !member.Learner && !member.Healthy &&
				(member.Machine == "" || lasting(member.Machine, controlplanev1.MachineEtcdMemberHealthyCondition))
		}) {
		lacking = append(lacking, fmt.Sprintf("* %d of %d etcd members are healthy, %d are needed", etcd.Healthy, etcd.Voters,
			quorum.Majority(etcd.Voters)))
	}
	if slices.ContainsFunc(s.State.Machines, func(machine controlplane.Machine) bool {
		return !machine.Serving && s.Machines[machine.Name].Spec.ProviderID != "" &&
			lasting(machine.Name, desired.MachineConditions(s.controlPlane)...)
	}) {
		lacking = append(lacking, fmt.Sprintf("* %d of %d Machines have all components of a control plane ready, 1 is needed",
			working, len(s.State.Machines)))
	}
	return strings.Join(lacking, "\n")
}

func (s *summary) setAddons(failure error) {
	const condition = controlplanev1.ControlPlaneAddonsUpToDateCondition
	lacking := s.lackImages()
	switch {
	case s.outcome.Reason == controlplane.ReasonAddonImages:
		s.set(condition, metav1.ConditionFalse, controlplanev1.WaitingForAddonImagesReason,
			sentence(s.outcome.Message)+lacking)
	case !s.Initialized():
		s.set(condition, metav1.ConditionFalse, "NotInitialized", "Waiting for kubeadm init to end")
	case s.Deleting():
		s.set(condition, metav1.ConditionFalse, clusterv1.DeletingReason, "The control plane is being deleted")
	case !s.Observed() || !s.State.Reachable:
		s.setUnknownOnce(condition, true, message(s.Workload.Err, "The workload cluster was not read"))
	case failure != nil && s.outcome.Kind == controlplane.UpdateAddons:
		s.set(condition, metav1.ConditionFalse, clusterv1.NotUpToDateReason, sentence(failure.Error()))
	case s.Workload.AddonsErr != nil:
		s.set(condition, metav1.ConditionUnknown, clusterv1.InspectionFailedReason, sentence(s.Workload.AddonsErr.Error()))
	case s.Workload.ProxyHeld != "":
		s.set(condition, metav1.ConditionFalse, controlplanev1.VersionSkewReason,
			strings.TrimSpace(s.Workload.ProxyHeld+"\n"+s.dnsProblem)+lacking)
	case s.dnsProblem != "":
		s.set(condition, metav1.ConditionFalse, clusterv1.NotUpToDateReason, s.dnsProblem)
	case s.State.AddonsCurrent || s.outcome.Kind == controlplane.UpdateAddons:
		s.set(condition, metav1.ConditionTrue, clusterv1.UpToDateReason, strings.TrimPrefix(lacking, "\n"))
	default:
		s.set(condition, metav1.ConditionFalse, clusterv1.NotUpToDateReason, fmt.Sprintf(
			"CoreDNS and kube-proxy get the images of %s when all control-plane Machines run it%s", s.controlPlane.Spec.Version,
			lacking))
	}
}

func message(err error, fallback string) string {
	if err != nil {
		return err.Error()
	}
	return fallback
}

// sentence makes a step's message stand alone.
func sentence(message string) string { return text.Sentence(message) }

// lackImages lists the hosts that are not waited for, and says what to do about them.
func (s *summary) lackImages() string {
	var names []string
	for _, host := range s.State.Hosts {
		if host.Unfit != "" && host.Provisioned && !host.Present && host.Version != s.State.Version {
			names = append(names, fmt.Sprintf("%s (%s)", host.Name, host.Unfit))
		}
	}
	if len(names) == 0 {
		return ""
	}
	slices.Sort(names)
	return fmt.Sprintf("\n* Not waited for: the hosts of %s, which cannot take the add-on images of %s now. They get "+
		"them first of all when they are back, and until then kube-proxy may not start there: end the maintenance, "+
		"repair them or delete their Machines", strings.Join(names, ", "), s.State.Version)
}
