// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// MachineFinalizer keeps a QuoinMachine until its host was released.
const MachineFinalizer = "quoinmachine.infrastructure.cluster.x-k8s.io"

// LifecycleHooksAnnotation of a Machine lists the annotations that spec.lifecycleHooks of its QuoinMachine made there,
// with their values as JSON. Only those are changed or taken away with their entries.
const LifecycleHooksAnnotation = "quoin.cluster.x-k8s.io/lifecycle-hooks"

// HoldClaimAnnotation on a Machine keeps its QuoinMachine from claiming a host for as long as it is there, whatever its
// value: a control plane makes Machines ahead, and takes it off when one may join. A host that is claimed already stays
// so.
const HoldClaimAnnotation = "quoin.cluster.x-k8s.io/hold-claim"

// SparedAnnotation on a Machine says that its annotation cluster.x-k8s.io/skip-remediation is ours, as long as it has
// the value that we gave it: the Machine waits, and both go when its infrastructure is ready or a new Machine would
// help. One that a user set is never taken away.
const SparedAnnotation = "quoin.cluster.x-k8s.io/spared"

// StopAPIServerAnnotation on the QuoinMachine of a control-plane Machine that is being deleted has its host end the API
// server. The control plane sets it when the node was drained and before it removes the etcd member; the value is when,
// in RFC 3339. The host says what became of it in its condition APIServerStopped.
const StopAPIServerAnnotation = "quoin.cluster.x-k8s.io/stop-api-server"

// Condition types and reasons of a QuoinMachine.
const (
	// MachineReadyCondition mirrors what the Machine shows as InfrastructureReady.
	MachineReadyCondition = clusterv1.ReadyCondition
	// MachineHostClaimedCondition is True while a host belongs to the QuoinMachine.
	MachineHostClaimedCondition = "HostClaimed"
	// MachineHostProvisionedCondition mirrors the Provisioned condition of the host.
	MachineHostProvisionedCondition = "HostProvisioned"
	// MachineBootstrapDataRanCondition is False when the bootstrap data failed on a host of another namespace, and has
	// what they printed: the host's status does not tell it there. It is absent otherwise.
	MachineBootstrapDataRanCondition = "BootstrapDataRan"
	// MachineAddonImagesCondition is True when the host holds the images of every version in spec.addonVersions.
	MachineAddonImagesCondition = "AddonImagesPresent"
	// MachineDrainableCondition is True when no pre-drain hook is left; else it names them, their owners and their age.
	MachineDrainableCondition = "Drainable"
	// MachineDrainedCondition is True when the node of a Machine in deletion was drained or needs no drain.
	MachineDrainedCondition = "Drained"
	// MachineTerminableCondition is True when no pre-terminate hook is left; else it names them, their owners and their
	// age.
	MachineTerminableCondition = "Terminable"

	// MachineHooksHoldReason: lifecycle hooks hold the Machine.
	MachineHooksHoldReason = "WaitingForHooks"
	// MachineNoHooksReason: no lifecycle hook is left.
	MachineNoHooksReason = "NoHooks"
	// MachineInUseReason: the QuoinMachine is being deleted while its Machine is not, so nothing is touched.
	MachineInUseReason = "MachineInUse"
	// MachineNotDeletingReason: the Machine is not being deleted, so its node need not be drained.
	MachineNotDeletingReason = "NotDeleting"
	// MachineNoNodeReason: there is no node to drain.
	MachineNoNodeReason = "NoNode"
	// MachineDrainingReason: the node is being drained, or is about to be.
	MachineDrainingReason = "Draining"
	// MachineDrainedReason: the node was drained.
	MachineDrainedReason = "Drained"
	// MachineDrainExcludedReason: an annotation of the Machine says that its node is not drained.
	MachineDrainExcludedReason = "DrainExcluded"
	// MachineDrainSkippedReason: Cluster API went past the drain without ending it, and does not come back to it.
	MachineDrainSkippedReason = "DrainSkipped"
	// MachineDrainTimedOutReason: the drain was given up when its time was over.
	MachineDrainTimedOutReason = "DrainTimedOut"

	// MachineNoMatchingHostReason: no free host matches; the message counts why the others did not.
	MachineNoMatchingHostReason = "NoMatchingHost"
	// MachineHostClaimedReason: a host was claimed.
	MachineHostClaimedReason = "HostClaimed"
	// MachineHostLostReason: the claimed host is gone or belongs to another.
	MachineHostLostReason = "HostLost"
	// MachineWaitingForClusterReason: the Cluster's infrastructure is not ready.
	MachineWaitingForClusterReason = "WaitingForClusterInfrastructure"
	// MachineHeldReason: the Machine carries HoldClaimAnnotation.
	MachineHeldReason = "Held"
	// MachineWaitingForControlPlaneReason: the API servers that run are too old, or too new, for a kubelet of the
	// Machine's version.
	MachineWaitingForControlPlaneReason = "WaitingForControlPlane"
	// MachineWaitingForRolloutReason: the RolloutPolicy that the Machine's MachineDeployment is under has not admitted it.
	MachineWaitingForRolloutReason = "WaitingForRollout"
	// MachineWaitingForBootstrapDataReason: the Machine has no bootstrap data.
	MachineWaitingForBootstrapDataReason = "WaitingForBootstrapData"
	// MachineWaitingForOwnerReason: no Machine owns the QuoinMachine.
	MachineWaitingForOwnerReason = "WaitingForMachine"
	// MachineReleasingReason: the host is being reset.
	MachineReleasingReason = "ReleasingHost"
	// MachineSelectorInvalidReason: spec.hostSelector cannot be read.
	MachineSelectorInvalidReason = "HostSelectorInvalid"
	// MachineWaitingForHostReason: no host was claimed yet.
	MachineWaitingForHostReason = "WaitingForHost"
	// MachineWaitingForImagesReason: the host does not hold every image yet.
	MachineWaitingForImagesReason = "WaitingForImages"
	// MachineImagesPresentReason: the host holds the images of every wanted version.
	MachineImagesPresentReason = "ImagesPresent"
)

// QuoinMachineSpec is the desired state of a QuoinMachine.
type QuoinMachineSpec struct {
	// providerID of the node: quoin://<namespace>/<host>/<prefix of the Machine's UID>. Set when a host is claimed.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	ProviderID string `json:"providerID,omitempty"`

	// hostSelector selects the hosts that may be claimed, by their labels. Every host when unset.
	// +optional
	HostSelector *metav1.LabelSelector `json:"hostSelector,omitempty"`

	// hostNamespaces are the namespaces whose hosts may be claimed; "*" stands for every namespace. The Machine's own
	// namespace when empty. A host gets the bootstrap data of its Machine, and that of a control plane has the keys of the
	// cluster's certificate authorities: whoever may register hosts in one of these namespaces may get them. A host must
	// be offered to the namespace of the Machine as well, by its spec.consumerNamespaces. In a QuoinMachine it can be
	// changed; a host that runs its bootstrap data is kept.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	HostNamespaces []string `json:"hostNamespaces,omitempty"`

	// hostPreference says which of several fitting hosts is taken. Any takes the one of the emptiest failure domain;
	// Former prefers, within that, a host that had a Machine of the same pool before, whose caches are warm.
	// +optional
	HostPreference HostPreference `json:"hostPreference,omitempty"`

	// unreachable says what becomes of this Machine when it must go while its host does not answer; what is set here
	// counts instead of spec.unreachable of the host. A pool whose Machines keep nothing may choose release AfterTimeout,
	// so that a dead host without a BMC holds up no replacement: the host is quarantined, and no volume is freed.
	// +optional
	Unreachable UnreachablePolicy `json:"unreachable,omitempty,omitzero"`

	// artifacts says where Kubernetes comes from.
	// +required
	Artifacts Artifacts `json:"artifacts,omitempty,omitzero"`

	// addonVersions are further Kubernetes versions whose kube-proxy and CoreDNS images the host must hold,
	// because these add-ons run on every node and follow the control plane's version. Set by the control-plane provider.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=256
	AddonVersions []string `json:"addonVersions,omitempty"`

	// etcdRecovery is the host's part in restoring an etcd that has lost its quorum. Set by the control-plane provider, at
	// a person's word.
	// +optional
	EtcdRecovery *EtcdRecoveryOrder `json:"etcdRecovery,omitempty"`

	// lifecycleHooks hold the deletion of the Machine at two points, until their owners take them away. They become
	// annotations of the Machine, and are honored by this provider also where Cluster API would skip them: the host is not
	// touched while any of them is left. No hook can be added once the deletion has begun.
	// +optional
	LifecycleHooks LifecycleHooks `json:"lifecycleHooks,omitempty,omitzero"`
}

// LifecycleHooks hold the deletion of a Machine at two points.
type LifecycleHooks struct {
	// preDrain hooks hold it before the drain of its node.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	PreDrain []LifecycleHook `json:"preDrain,omitempty"`

	// preTerminate hooks hold it after the drain, before its host is released.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	PreTerminate []LifecycleHook `json:"preTerminate,omitempty"`
}

// LifecycleHook is one reason to hold the deletion of a Machine.
type LifecycleHook struct {
	// name of the hook, unique at its point, such as MigrateImportantApp. It is the name part of the Machine's annotation.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$`
	Name string `json:"name,omitempty"`

	// owner is who takes the hook away, and whom to ask when it stays: a controller such as clusteroperator/etcd.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	Owner string `json:"owner,omitempty"`
}

// HostPreference says which of several fitting hosts is taken.
// +kubebuilder:validation:Enum=Any;Former
type HostPreference string

const (
	// HostPreferenceAny takes the host of the emptiest failure domain.
	HostPreferenceAny HostPreference = "Any"
	// HostPreferenceFormer prefers a host that had a Machine of the same pool before.
	HostPreferenceFormer HostPreference = "Former"
)

// QuoinMachineStatus is the observed state of a QuoinMachine.
// +kubebuilder:validation:MinProperties=1
type QuoinMachineStatus struct {
	// conditions of the machine: Ready, HostClaimed, HostProvisioned, AddonImagesPresent, Drainable, Drained, Terminable,
	// Paused, and BootstrapDataRan where the bootstrap data failed on a host of another namespace.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// initialization of the infrastructure; part of the Cluster API contract.
	// +optional
	Initialization QuoinMachineInitializationStatus `json:"initialization,omitempty,omitzero"`

	// hostRef names the host that was claimed.
	// +optional
	HostRef *HostReference `json:"hostRef,omitempty"`

	// addresses of the node.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Addresses []clusterv1.MachineAddress `json:"addresses,omitempty"`

	// failureDomain of the host.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	FailureDomain string `json:"failureDomain,omitempty"`

	// addonVersions are the Kubernetes versions whose kube-proxy and CoreDNS images the host holds.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=256
	AddonVersions []string `json:"addonVersions,omitempty"`

	// candidates says why no host was claimed, by reason; unset once one was.
	// +optional
	// +listType=map
	// +listMapKey=reason
	// +kubebuilder:validation:MaxItems=32
	Candidates []HostCandidates `json:"candidates,omitempty"`
}

// HostCandidates counts hosts that were not chosen for one reason.
type HostCandidates struct {
	// reason in a few words ("in use", "does not match the selector").
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	Reason string `json:"reason,omitempty"`
	// hosts with that reason.
	// +required
	// +kubebuilder:validation:Minimum=1
	Hosts int32 `json:"hosts,omitempty"`
}

// HostReference names a QuoinHost, which may live in another namespace.
type HostReference struct {
	// namespace of the host.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`
	// name of the host.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
}

// QuoinMachineInitializationStatus is part of the Cluster API contract.
// +kubebuilder:validation:MinProperties=1
type QuoinMachineInitializationStatus struct {
	// provisioned is true when the bootstrap data ran on the host.
	// +optional
	Provisioned *bool `json:"provisioned,omitempty"`
}

// QuoinMachine is the infrastructure of a Machine: the host it has.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=quoinmachines,shortName=qm,scope=Namespaced,categories=cluster-api
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Cluster",type="string",JSONPath=".metadata.labels['cluster\\.x-k8s\\.io/cluster-name']",description="Cluster"
// +kubebuilder:printcolumn:name="Machine",type="string",JSONPath=`.metadata.ownerReferences[?(@.kind=="Machine")].name`,description="Machine that owns it"
// +kubebuilder:printcolumn:name="Host",type="string",JSONPath=".status.hostRef.name",description="Host it has"
// +kubebuilder:printcolumn:name="Ready",type="string",JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="The bootstrap data ran on the host"
// +kubebuilder:printcolumn:name="Waiting for",type="string",JSONPath=`.status.conditions[?(@.type=="Ready")].message`,description="What the machine waits for"
// +kubebuilder:printcolumn:name="Domain",type="string",JSONPath=".status.failureDomain",description="Failure domain",priority=10
// +kubebuilder:printcolumn:name="ProviderID",type="string",JSONPath=".spec.providerID",description="Provider ID",priority=10
// +kubebuilder:printcolumn:name="Paused",type="string",JSONPath=`.status.conditions[?(@.type=="Paused")].status`,description="Reconciliation paused",priority=10
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description="Time since creation"
type QuoinMachine struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the desired state of the machine.
	// +optional
	Spec QuoinMachineSpec `json:"spec,omitempty,omitzero"`
	// status is the observed state of the machine.
	// +optional
	Status QuoinMachineStatus `json:"status,omitempty,omitzero"`
}

// GetConditions returns the conditions of the machine.
func (m *QuoinMachine) GetConditions() []metav1.Condition { return m.Status.Conditions }

// SetConditions sets the conditions of the machine.
func (m *QuoinMachine) SetConditions(conditions []metav1.Condition) { m.Status.Conditions = conditions }

// QuoinMachineList is a list of QuoinMachines.
//
// +kubebuilder:object:root=true
type QuoinMachineList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []QuoinMachine `json:"items"`
}

func init() { objectTypes = append(objectTypes, &QuoinMachine{}, &QuoinMachineList{}) }
