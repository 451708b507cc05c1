// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// ControlPlaneFinalizer keeps a QuoinControlPlane until its Machines are gone.
const ControlPlaneFinalizer = "quoincontrolplane.controlplane.cluster.x-k8s.io"

// BackupSecretFinalizer keeps a Secret until no QuoinControlPlane refers to it, and a QuoinControlPlane until it has
// released the Secrets of its backups.
const BackupSecretFinalizer = "quoincontrolplane.controlplane.cluster.x-k8s.io/secret-protection"

// PreTerminateHookAnnotation holds a control-plane Machine between its drain and the release of its host, until its
// etcd member was removed. Set on the Machine, never in a template.
const PreTerminateHookAnnotation = clusterv1.PreTerminateDeleteHookAnnotationPrefix + "/quoin"

// PreDrainHookAnnotation holds a control-plane Machine before its drain, until its departure was found safe for etcd.
// Set on the Machine, never in a template.
const PreDrainHookAnnotation = clusterv1.PreDrainDeleteHookAnnotationPrefix + "/quoin"

// EvictionStartedAnnotation of a Machine says when the control plane began to evict the pods of its node, in RFC 3339:
// Cluster API had gone past the drain. EvictionEndedAnnotation says when none was left.
const (
	EvictionStartedAnnotation = "controlplane.cluster.x-k8s.io/quoin-eviction-started"
	EvictionEndedAnnotation   = "controlplane.cluster.x-k8s.io/quoin-eviction-ended"
)

// HookName is the name of our own hooks, in annotations of a Machine and in lifecycleHooks of its QuoinMachine.
const HookName = "quoin"

// AllowQuorumLossAnnotation on a control-plane Machine lets it be deleted although the verdict on etcd's quorum says
// no. Its value is the reason, for the record.
const AllowQuorumLossAnnotation = "quoin.cluster.x-k8s.io/allow-quorum-loss"

// ProtectAnnotation on a Cluster makes its deletion ask for ceremony: the Cluster can be deleted only when
// ConfirmDeletionAnnotation carries its name.
const ProtectAnnotation = "quoin.cluster.x-k8s.io/protect"

// ConfirmDeletionAnnotation with the name of a protected Cluster lets it be deleted.
const ConfirmDeletionAnnotation = "quoin.cluster.x-k8s.io/confirm-deletion"

// RemediationForAnnotation on a Machine that was made to replace an unhealthy one holds, as JSON, which one and how
// many retries there were, so that a move of the objects loses no count.
const RemediationForAnnotation = "controlplane.cluster.x-k8s.io/quoin-remediation-for"

// RemediationInProgressAnnotation on a QuoinControlPlane holds the same while the unhealthy Machine leaves and its
// replacement is not made yet.
const RemediationInProgressAnnotation = "controlplane.cluster.x-k8s.io/quoin-remediation-in-progress"

// RemoveEtcdMemberAnnotation on a QuoinControlPlane has etcd members removed that work although no Machine runs them.
// Its value is their ids, as etcdctl and status.etcd.members show them, separated by commas. Ids that are gone are
// taken off it again.
const RemoveEtcdMemberAnnotation = "quoin.cluster.x-k8s.io/remove-etcd-member"

// Condition types and reasons of a QuoinControlPlane.
const (
	// ControlPlaneAvailableCondition is True while the API answers and etcd has a healthy quorum.
	ControlPlaneAvailableCondition = clusterv1.AvailableCondition
	// ControlPlaneInitializedCondition is True once kubeadm init succeeded.
	ControlPlaneInitializedCondition = "Initialized"
	// ControlPlaneCertificatesAvailableCondition is True when the cluster's certificates exist.
	ControlPlaneCertificatesAvailableCondition = "CertificatesAvailable"
	// ControlPlaneEtcdClusterHealthyCondition is True when every etcd member is a healthy voter with a Machine.
	ControlPlaneEtcdClusterHealthyCondition = "EtcdClusterHealthy"
	// ControlPlaneComponentsHealthyCondition is True when the static pods of every Machine are ready.
	ControlPlaneComponentsHealthyCondition = "ControlPlaneComponentsHealthy"
	// ControlPlaneMachinesReadyCondition summarizes the Ready conditions of the Machines.
	ControlPlaneMachinesReadyCondition = clusterv1.MachinesReadyCondition
	// ControlPlaneMachinesUpToDateCondition summarizes the UpToDate conditions of the Machines.
	ControlPlaneMachinesUpToDateCondition = clusterv1.MachinesUpToDateCondition
	// ControlPlaneRollingOutCondition is True while Machines are outdated, also while their replacement waits.
	ControlPlaneRollingOutCondition = clusterv1.RollingOutCondition
	// ControlPlaneScalingUpCondition is True while Machines are missing.
	ControlPlaneScalingUpCondition = clusterv1.ScalingUpCondition
	// ControlPlaneScalingDownCondition is True while there are more Machines than wanted.
	ControlPlaneScalingDownCondition = clusterv1.ScalingDownCondition
	// ControlPlaneProgressingCondition is True while the operation in flight moves or nothing is to be done, and False
	// once a step takes longer than its deadline.
	ControlPlaneProgressingCondition = "Progressing"
	// ControlPlaneRemediatingCondition is True while Machines are unhealthy that are to be replaced, with what that waits
	// for.
	ControlPlaneRemediatingCondition = clusterv1.RemediatingCondition
	// ControlPlaneBackupHealthyCondition is True while the last snapshot that was due was taken and verified, and the
	// store shows the last good one when it is looked into.
	ControlPlaneBackupHealthyCondition = "BackupHealthy"
	// ControlPlaneBackupQuietCondition is True when no snapshot of a paused control plane is on its way any more. Absent
	// while it is not paused, or has no backup.
	ControlPlaneBackupQuietCondition = "BackupQuiet"
	// ControlPlaneDeletingCondition tells how far the deletion came.
	ControlPlaneDeletingCondition = clusterv1.DeletingCondition
	// ControlPlaneAddonsUpToDateCondition is True when CoreDNS and kube-proxy follow the version.
	ControlPlaneAddonsUpToDateCondition = "AddonsUpToDate"

	// WaitingForClusterInfrastructureReason: the Cluster's infrastructure is not ready.
	WaitingForClusterInfrastructureReason = "WaitingForClusterInfrastructure"
	// WaitingForControlPlaneEndpointReason: the Cluster has no endpoint yet.
	WaitingForControlPlaneEndpointReason = "WaitingForControlPlaneEndpoint"
	// WaitingForAddonImagesReason: not every host that stays holds the images of the wanted version's add-ons.
	WaitingForAddonImagesReason = "WaitingForAddonImages"
	// WaitingForWorkersDeletionReason: the control plane goes after the workers.
	WaitingForWorkersDeletionReason = "WaitingForWorkersDeletion"
	// WaitingForMachineDeletionReason: Machines are being deleted.
	WaitingForMachineDeletionReason = "WaitingForMachineDeletion"
	// VersionSkewReason: the wanted version cannot follow the running one.
	VersionSkewReason = "VersionSkew"
	// WindowClosedReason: no window of the Cluster's RolloutPolicy is open; the message says when the next one opens.
	WindowClosedReason = "WindowClosed"
	// EtcdMemberUnhealthyReason: an etcd member is missing, unhealthy, or without a Machine.
	EtcdMemberUnhealthyReason = "EtcdMemberUnhealthy"
	// MemberWithoutMachineReason: an etcd member votes, and no Machine runs it; the message says what a person can do.
	MemberWithoutMachineReason = "MemberWithoutMachine"
	// QuorumLostReason: fewer etcd members are healthy than a quorum needs, or they agree on nothing; the message says
	// whether it can come back by itself.
	QuorumLostReason = "QuorumLost"
	// QuorumLossAllowedReason of an Event: a Machine's annotation let it be deleted although etcd does not survive that.
	QuorumLossAllowedReason = "QuorumLossAllowed"
	// RemediationSuspendedReason: hosts went away together, or come back just now, or the quorum is lost, so no Machine is
	// replaced for its health.
	RemediationSuspendedReason = "RemediationSuspended"
	// RemediationRetriesExhaustedReason: replacements turned out unhealthy too often in a row.
	RemediationRetriesExhaustedReason = "RemediationRetriesExhausted"
	// ProgressDeadlineExceededReason: a step takes longer than spec.rollout.progressDeadlineSeconds.
	ProgressDeadlineExceededReason = "ProgressDeadlineExceeded"
	// ConnectionDownReason: neither the API server nor etcd could be asked.
	ConnectionDownReason = clusterv1.ConnectionDownReason
)

// Condition types that the control plane sets on its Machines and lists in their readiness gates.
const (
	// MachineAPIServerPodHealthyCondition reports whether the kube-apiserver static pod is ready.
	MachineAPIServerPodHealthyCondition = "APIServerPodHealthy"
	// MachineControllerManagerPodHealthyCondition reports whether the kube-controller-manager static pod is ready.
	MachineControllerManagerPodHealthyCondition = "ControllerManagerPodHealthy"
	// MachineSchedulerPodHealthyCondition reports whether the kube-scheduler static pod is ready.
	MachineSchedulerPodHealthyCondition = "SchedulerPodHealthy"
	// MachineEtcdPodHealthyCondition reports whether the etcd static pod is ready.
	MachineEtcdPodHealthyCondition = "EtcdPodHealthy"
	// MachineEtcdMemberHealthyCondition reports whether the member votes, answers and has no alarm.
	MachineEtcdMemberHealthyCondition = "EtcdMemberHealthy"
)

// QuoinControlPlaneSpec is the desired state of a control plane.
type QuoinControlPlaneSpec struct {
	// replicas is the number of control-plane Machines; odd with stacked etcd. 1 when unset.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Replicas *int32 `json:"replicas,omitempty"`

	// version of Kubernetes, with a leading v.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Version string `json:"version,omitempty"`

	// machineTemplate says how Machines are shaped.
	// +required
	MachineTemplate QuoinControlPlaneMachineTemplate `json:"machineTemplate,omitempty,omitzero"`

	// kubeadmConfigSpec is given to Cluster API's kubeadm bootstrap provider, which makes the bootstrap data.
	// +optional
	KubeadmConfigSpec bootstrapv1.KubeadmConfigSpec `json:"kubeadmConfigSpec,omitempty,omitzero"`

	QuoinControlPlaneCare `json:",inline"`

	// recovery restores an etcd that has lost its quorum for good. Leave it unset, or as it is, at all other times.
	// +optional
	Recovery *EtcdRecovery `json:"recovery,omitempty"`
}

// QuoinControlPlaneCare is the part of the spec that says how a control plane is looked after; control planes and their
// templates share it.
type QuoinControlPlaneCare struct {
	// rollout says how Machines are replaced when the spec changes.
	// +optional
	Rollout QuoinControlPlaneRollout `json:"rollout,omitempty,omitzero"`

	// remediation says how often unhealthy Machines are replaced.
	// +optional
	Remediation QuoinControlPlaneRemediation `json:"remediation,omitempty,omitzero"`

	// backup says when snapshots of etcd are taken, where they go, and how long they stay. None are taken when unset.
	// +optional
	Backup *EtcdBackup `json:"backup,omitempty"`
}

// QuoinControlPlaneMachineTemplate says how Machines are shaped.
type QuoinControlPlaneMachineTemplate struct {
	// metadata that Machines get; changes are propagated without a rollout.
	// +optional
	ObjectMeta clusterv1.ObjectMeta `json:"metadata,omitempty,omitzero"`

	// spec of the Machines.
	// +required
	Spec QuoinControlPlaneMachineTemplateSpec `json:"spec,omitempty,omitzero"`
}

// QuoinControlPlaneMachineTemplateSpec is the spec of the Machines. Everything but infrastructureRef is propagated
// to existing Machines without a rollout.
type QuoinControlPlaneMachineTemplateSpec struct {
	// infrastructureRef names the infrastructure machine template.
	// +required
	InfrastructureRef clusterv1.ContractVersionedObjectReference `json:"infrastructureRef,omitempty,omitzero"`

	MachinePropagatedSpec `json:",inline"`

	// readinessGates are further conditions that count for a Machine's Ready condition.
	// +optional
	// +listType=map
	// +listMapKey=conditionType
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	ReadinessGates []clusterv1.MachineReadinessGate `json:"readinessGates,omitempty"`
}

// MachinePropagatedSpec is the part of a Machine's spec that control planes and their templates share.
type MachinePropagatedSpec struct {
	// minReadySeconds for which a Machine must be Ready before it counts as Available.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MinReadySeconds *int32 `json:"minReadySeconds,omitempty"`

	// deletion says how long the steps of a Machine's deletion may take.
	// +optional
	Deletion MachineDeletionSpec `json:"deletion,omitempty,omitzero"`

	// taints that Cluster API keeps on the nodes.
	// +optional
	// +listType=map
	// +listMapKey=key
	// +listMapKey=effect
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	Taints []clusterv1.MachineTaint `json:"taints,omitempty"`
}

// MachineDeletionSpec says how long the steps of a Machine's deletion may take.
// +kubebuilder:validation:MinProperties=1
type MachineDeletionSpec struct {
	// nodeDrainTimeoutSeconds is the time a drain may take; 0 or unset is without limit.
	// +optional
	// +kubebuilder:validation:Minimum=0
	NodeDrainTimeoutSeconds *int32 `json:"nodeDrainTimeoutSeconds,omitempty"`

	// nodeVolumeDetachTimeoutSeconds is the time volumes may take to detach; 0 or unset is without limit.
	// +optional
	// +kubebuilder:validation:Minimum=0
	NodeVolumeDetachTimeoutSeconds *int32 `json:"nodeVolumeDetachTimeoutSeconds,omitempty"`

	// nodeDeletionTimeoutSeconds is the time for which the deletion of the Node is retried; 0 is without limit.
	// +optional
	// +kubebuilder:validation:Minimum=0
	NodeDeletionTimeoutSeconds *int32 `json:"nodeDeletionTimeoutSeconds,omitempty"`
}

// QuoinControlPlaneStatus is the observed state of a control plane.
// +kubebuilder:validation:MinProperties=1
type QuoinControlPlaneStatus struct {
	// conditions of the control plane.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// initialization of the control plane; part of the Cluster API contract.
	// +optional
	Initialization QuoinControlPlaneInitializationStatus `json:"initialization,omitempty,omitzero"`

	// selector of the Machines, as a string; used by the scale subresource.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	Selector string `json:"selector,omitempty"`

	// replicas is the number of Machines.
	// +optional
	Replicas *int32 `json:"replicas,omitempty"`

	// readyReplicas is the number of Machines whose Ready condition is True.
	// +optional
	ReadyReplicas *int32 `json:"readyReplicas,omitempty"`

	// availableReplicas is the number of Machines whose Available condition is True.
	// +optional
	AvailableReplicas *int32 `json:"availableReplicas,omitempty"`

	// upToDateReplicas is the number of Machines whose UpToDate condition is True.
	// +optional
	UpToDateReplicas *int32 `json:"upToDateReplicas,omitempty"`

	// versions that the kubelets of the control plane run, oldest first.
	// +optional
	// +listType=map
	// +listMapKey=version
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=100
	Versions []clusterv1.StatusVersion `json:"versions,omitempty"`

	// etcd is the membership as last read.
	// +optional
	Etcd *EtcdStatus `json:"etcd,omitempty"`

	// revisions counts the Machines by revision, the current one first.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=100
	Revisions []ControlPlaneRevision `json:"revisions,omitempty"`

	// operation is what the control plane is doing and what that waits for; unset when nothing is left to do.
	// +optional
	Operation *ControlPlaneOperation `json:"operation,omitempty"`

	// lastRemediation is the latest replacement of an unhealthy Machine.
	// +optional
	LastRemediation *LastRemediation `json:"lastRemediation,omitempty"`

	// backup is what is known of the snapshots.
	// +optional
	Backup *EtcdBackupStatus `json:"backup,omitempty"`

	// observedGeneration of the spec.
	// +optional
	// +kubebuilder:validation:Minimum=1
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}

// QuoinControlPlaneInitializationStatus is part of the Cluster API contract.
// +kubebuilder:validation:MinProperties=1
type QuoinControlPlaneInitializationStatus struct {
	// controlPlaneInitialized is true once the API server accepts requests.
	// +optional
	ControlPlaneInitialized *bool `json:"controlPlaneInitialized,omitempty"`
}

// QuoinControlPlane runs a Kubernetes control plane with stacked etcd on Machines.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=quoincontrolplanes,shortName=qcp,scope=Namespaced,categories=cluster-api
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.replicas,statuspath=.status.replicas,selectorpath=.status.selector
// +kubebuilder:printcolumn:name="Cluster",type="string",JSONPath=".metadata.labels['cluster\\.x-k8s\\.io/cluster-name']",description="Cluster"
// +kubebuilder:printcolumn:name="Available",type="string",JSONPath=`.status.conditions[?(@.type=="Available")].status`,description="The API answers and etcd has a healthy quorum"
// +kubebuilder:printcolumn:name="Desired",type="integer",JSONPath=".spec.replicas",description="Wanted Machines"
// +kubebuilder:printcolumn:name="Current",type="integer",JSONPath=".status.replicas",description="Machines"
// +kubebuilder:printcolumn:name="Ready",type="integer",JSONPath=".status.readyReplicas",description="Machines that are Ready"
// +kubebuilder:printcolumn:name="Up-to-date",type="integer",JSONPath=".status.upToDateReplicas",description="Machines that are up to date"
// +kubebuilder:printcolumn:name="Voters",type="integer",JSONPath=".status.etcd.voters",description="etcd members that vote"
// +kubebuilder:printcolumn:name="Tolerates",type="integer",JSONPath=".status.etcd.tolerates",description="Voters that may fail now"
// +kubebuilder:printcolumn:name="Leader",type="string",JSONPath=".status.etcd.leader",description="Node of etcd's leader",priority=10
// +kubebuilder:printcolumn:name="Version",type="string",JSONPath=".spec.version",description="Wanted version"
// +kubebuilder:printcolumn:name="Running",type="string",JSONPath=".status.versions[*].version",description="Versions that run"
// +kubebuilder:printcolumn:name="Backup",type="date",JSONPath=".status.backup.lastGood.time",description="Age of the last good snapshot"
// +kubebuilder:printcolumn:name="Waiting on",type="string",JSONPath=".status.operation.waitingOn",description="What the operation in flight waits for"
// +kubebuilder:printcolumn:name="Doing",type="string",JSONPath=".status.operation.message",description="The operation in flight",priority=10
// +kubebuilder:printcolumn:name="Initialized",type="boolean",JSONPath=".status.initialization.controlPlaneInitialized",description="The API server accepts requests",priority=10
// +kubebuilder:printcolumn:name="Paused",type="string",JSONPath=`.status.conditions[?(@.type=="Paused")].status`,description="Reconciliation paused",priority=10
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description="Time since creation"
type QuoinControlPlane struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the desired state of the control plane.
	// +required
	Spec QuoinControlPlaneSpec `json:"spec,omitempty,omitzero"`
	// status is the observed state of the control plane.
	// +optional
	Status QuoinControlPlaneStatus `json:"status,omitempty,omitzero"`
}

// GetConditions returns the conditions of the control plane.
func (c *QuoinControlPlane) GetConditions() []metav1.Condition { return c.Status.Conditions }

// SetConditions sets the conditions of the control plane.
func (c *QuoinControlPlane) SetConditions(conditions []metav1.Condition) {
	c.Status.Conditions = conditions
}

// QuoinControlPlaneList is a list of QuoinControlPlanes.
//
// +kubebuilder:object:root=true
type QuoinControlPlaneList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []QuoinControlPlane `json:"items"`
}

func init() { objectTypes = append(objectTypes, &QuoinControlPlane{}, &QuoinControlPlaneList{}) }

// MembersToRemove are the ids in the value of RemoveEtcdMemberAnnotation, and what of it is no id.
func MembersToRemove(value string) (ids []uint64, wrong []string) {
	for _, word := range strings.Split(value, ",") {
		word = strings.TrimSpace(word)
		if word == "" {
			continue
		}
		if id, err := strconv.ParseUint(word, 16, 64); err == nil {
			ids = append(ids, id)
		} else {
			wrong = append(wrong, word)
		}
	}
	return ids, wrong
}
