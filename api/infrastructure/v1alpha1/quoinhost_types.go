// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// HostFinalizer keeps a QuoinHost until nothing consumes it.
const HostFinalizer = "quoinhost.infrastructure.cluster.x-k8s.io"

// HostSecretFinalizer keeps a Secret until no QuoinHost refers to it.
const HostSecretFinalizer = "quoinhost.infrastructure.cluster.x-k8s.io/secret-protection"

// HostState is the place of a host in its life.
// +kubebuilder:validation:Enum=Registering;Inspecting;Available;Claimed;Provisioning;Provisioned;Cleaning;Quarantined
type HostState string

const (
	// HostStateRegistering means: no authenticated SSH connection was made yet.
	HostStateRegistering HostState = "Registering"
	// HostStateInspecting means: its facts are being read.
	HostStateInspecting HostState = "Inspecting"
	// HostStateAvailable means: verified clean and free to be claimed.
	HostStateAvailable HostState = "Available"
	// HostStateClaimed means: it belongs to a QuoinMachine, and the installation of its node has not begun.
	HostStateClaimed HostState = "Claimed"
	// HostStateProvisioning means: a version is being installed and the bootstrap data runs.
	HostStateProvisioning HostState = "Provisioning"
	// HostStateProvisioned means: the bootstrap data ran to its end.
	HostStateProvisioned HostState = "Provisioned"
	// HostStateCleaning means: it is being reset, or the reset is being verified.
	HostStateCleaning HostState = "Cleaning"
	// HostStateQuarantined means: it is not known to be clean; nobody can claim it until a person has looked.
	HostStateQuarantined HostState = "Quarantined"
)

// QuoinHostSpec says how a host is reached, what it is for, and who has it.
type QuoinHostSpec struct {
	// address is the management address: the IP address or DNS name at which sshd answers.
	// It may differ from the addresses that the node uses (nodeNetwork).
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Address string `json:"address,omitempty"`

	// port of sshd.
	// +optional
	// +default=22
	// +kubebuilder:default=22
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port,omitempty"`

	// user to log in as: root, or a user who may run any command with sudo without a password.
	// +optional
	// +default="root"
	// +kubebuilder:default=root
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^[a-z_][a-z0-9_-]*$`
	User string `json:"user,omitempty"`

	// sudoCommand is the only program that the user may run with sudo, when its rights are limited to one: the absolute
	// path of Quoin's runner (hack/quoin-run), owned by root. When unset, the user may run any command.
	// +optional
	// +kubebuilder:validation:MinLength=2
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:Pattern=`^/[A-Za-z0-9._/-]+$`
	SudoCommand string `json:"sudoCommand,omitempty"`

	// credentialsRef names the Secret (type kubernetes.io/ssh-auth, key ssh-privatekey) in the host's own namespace.
	// Further keys whose names begin with ssh-privatekey are tried in order of their names, so that a new key can be
	// rolled out beside the old one; ssh-certificate (and ssh-certificate-...) hold user certificates for them.
	// +required
	CredentialsRef SecretReference `json:"credentialsRef,omitempty,omitzero"`

	// bastion is a jump host through which the host is reached.
	// +optional
	Bastion *Bastion `json:"bastion,omitempty"`

	// hostKeyPolicy says what happens at the first contact. TrustOnFirstUse records the key that the host presents;
	// Strict wants hostKeys or hostCertificateAuthorities to be given, and connects to nothing else.
	// +optional
	// +default="TrustOnFirstUse"
	// +kubebuilder:default=TrustOnFirstUse
	HostKeyPolicy HostKeyPolicy `json:"hostKeyPolicy,omitempty"`

	// hostCertificateAuthorities are public keys of certificate authorities that sign host keys. A host certificate of
	// one of them, valid now and made out to spec.address (or to the QuoinHost's name), is accepted like a pinned key.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=2048
	// +kubebuilder:validation:items:Pattern=`^(ssh|ecdsa|sk)-[a-z0-9@.-]+ [A-Za-z0-9+/=]+( .*)?$`
	HostCertificateAuthorities []string `json:"hostCertificateAuthorities,omitempty"`

	// hostKeys are the public keys that the host may present, each as in a known_hosts file ("ssh-ed25519 AAAA...").
	// When empty, the key of the first contact is recorded here; from then on any other key stops all work on the host.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=2048
	// +kubebuilder:validation:items:Pattern=`^(ssh|ecdsa|sk)-[a-z0-9@.-]+ [A-Za-z0-9+/=]+( .*)?$`
	HostKeys []string `json:"hostKeys,omitempty"`

	// nodeNetwork says which of the host's addresses its node uses. The interface of the default route when unset.
	// +optional
	NodeNetwork NodeNetwork `json:"nodeNetwork,omitempty,omitzero"`

	// failureDomain is the rack, row or room that the host shares its fate with.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	FailureDomain string `json:"failureDomain,omitempty"`

	// maintenance, while set, keeps anything new from being started on the host. What runs is seen to its end; the host is
	// not claimed by anybody.
	// +optional
	Maintenance *Maintenance `json:"maintenance,omitempty"`

	// disks says what becomes of the host's disks. A disk that is not listed is a system disk: never partitioned or
	// formatted by us, and not wiped.
	// +optional
	// +listType=map
	// +listMapKey=id
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	Disks []DiskRole `json:"disks,omitempty"`

	// cleaning tunes the release of the host.
	// +optional
	Cleaning Cleaning `json:"cleaning,omitempty,omitzero"`

	// unreachable says what becomes of a claim that must end while the host does not answer.
	// +optional
	Unreachable UnreachablePolicy `json:"unreachable,omitempty,omitzero"`

	// bmc is the host's baseboard management controller, which speaks Redfish. Optional: it fences and reboots a host that
	// does not answer over SSH.
	// +optional
	BMC *BMC `json:"bmc,omitempty"`

	// consumerNamespaces are the namespaces whose QuoinMachines may claim the host; "*" stands for every namespace.
	// The host's own namespace when empty. A QuoinMachine of another namespace must accept the host as well, by its
	// spec.hostNamespaces.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	ConsumerNamespaces []string `json:"consumerNamespaces,omitempty"`

	// claimGeneration counts the claims of the host, and its changes of management plane. The host keeps the highest one
	// that it has seen; a controller that knows a lower one may read and nothing more. Never decreased.
	// +optional
	// +kubebuilder:validation:Minimum=1
	ClaimGeneration int64 `json:"claimGeneration,omitempty"`

	// managedBy is the UID of the QuoinHost object that raised claimGeneration last. An object that was moved or restored
	// has another UID, and raises the generation before it touches the host.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	ManagedBy string `json:"managedBy,omitempty"`

	// order is what the host was last told to do. It tells a management cluster that was cloned, or restored from a
	// snapshot of its etcd, from the one that the host obeys: the host shows an order that the copy did not give. Set by
	// the controller.
	// +optional
	Order *HostOrder `json:"order,omitempty"`

	// baseline is what was on the host when it was last inspected as a free one: the kinds that were read, and a hash of
	// each user, key, job, unit and others. What is there after a reset and not here came with the claim, and what is
	// here and not there went. Set by the controller; without it nothing is compared, and a host that other namespaces
	// may claim is not clean.
	// +optional
	// +kubebuilder:validation:MaxLength=65000
	// +kubebuilder:validation:Pattern=`^([a-z,-]*:[0-9a-f]*|2:([a-z]+=[0-9a-f]*,?)+)$`
	Baseline string `json:"baseline,omitempty"`

	// stage is what the host is asked to have while nobody has it, so that a Machine which claims it then comes up sooner.
	// Set by the executor of ClusterUpgrades. Nothing waits for it, and a claim ends it.
	// +optional
	Stage *HostStage `json:"stage,omitempty"`

	// heldFor, while set, keeps a host that nobody has from being claimed or changed. Set on the free hosts of a namespace
	// when all its Clusters are paused, as clusterctl move does before it moves them; in spec, so that it arrives with the
	// host. Set it yourself, with a reason, before you move hosts of a namespace without Clusters.
	// +optional
	HeldFor *HostHold `json:"heldFor,omitempty"`

	// consumerRef is the claim: the QuoinMachine that has this host. Set by the controller with optimistic concurrency;
	// in spec, because status does not survive clusterctl move. Removed only after a verified reset.
	// +optional
	ConsumerRef *ConsumerReference `json:"consumerRef,omitempty"`

	// quarantine, while set, keeps everybody away from the host: Quarantined for its reason wherever the object goes. Set
	// by the controller; it ends with a reset and its verification, which the quoin.cluster.x-k8s.io/retry annotation asks
	// for, or with the verification alone (quoin.cluster.x-k8s.io/verify-only).
	// +optional
	Quarantine *HostQuarantine `json:"quarantine,omitempty"`

	// poweredOff says that we turned the host's power off. Set by the controller, and removed when the host runs again.
	// +optional
	PoweredOff *HostPoweredOff `json:"poweredOff,omitempty"`
}

// NodeNetwork picks the addresses of a node.
// +kubebuilder:validation:MinProperties=1
type NodeNetwork struct {
	// interface whose first global address of each family is used.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=15
	Interface string `json:"interface,omitempty"`

	// addresses of the node: one IPv4, one IPv6, or one of each; the first family is the primary one.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=2
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=45
	// +kubebuilder:validation:XValidation:rule="self.all(a, isIP(a))",message="each address must be an IPv4 or IPv6 address"
	// +kubebuilder:validation:XValidation:rule="self.size() < 2 || ip(self[0]).family() != ip(self[1]).family()",message="two addresses must be of different families"
	Addresses []string `json:"addresses,omitempty"`
}

// Fields by which the API server selects hosts.
const (
	// HostConsumerNameField is the name of the QuoinMachine that has the host.
	HostConsumerNameField = "spec.consumerRef.name"
	// HostConsumerNamespaceField is the namespace of the QuoinMachine that has the host.
	HostConsumerNamespaceField = "spec.consumerRef.namespace"
)

// ConsumerReference is a claim on a host.
type ConsumerReference struct {
	// namespace of the QuoinMachine.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`

	// name of the QuoinMachine.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`

	// machine is the name of the owning Machine, in the same namespace. A clean host is released when it is gone,
	// because its Node goes with it.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Machine string `json:"machine,omitempty"`

	// claim tells one Machine of a name from the next: the prefix of the Machine's UID when it claimed the host,
	// the last element of the provider ID.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=36
	Claim string `json:"claim,omitempty"`
}

// QuoinHostStatus is what was observed of a host.
// +kubebuilder:validation:MinProperties=1
type QuoinHostStatus struct {
	// conditions of the host: Ready, Reachable, HostKeyVerified, Inspected, Provisioned, AddonImagesPresent, Clean,
	// Unique, Paused, while the host is paused or held Quiet, and while a free host is asked for something Staged.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// state of the host.
	// +optional
	State HostState `json:"state,omitempty"`

	// facts are what the last inspection read.
	// +optional
	Facts *HostFacts `json:"facts,omitempty"`

	// version of Kubernetes that is installed on the host for its Machine.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Version string `json:"version,omitempty"`

	// addonVersions are the Kubernetes versions whose kube-proxy and CoreDNS images the host holds.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=256
	AddonVersions []string `json:"addonVersions,omitempty"`

	// staged is what was brought to the host ahead since it is free. It is verified again when it is used.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	Staged []StagedArtifacts `json:"staged,omitempty"`

	// operation is what runs on the host, or ran last.
	// +optional
	Operation *HostOperation `json:"operation,omitempty"`

	// credentials that the host accepted last.
	// +optional
	Credentials *HostCredentials `json:"credentials,omitempty"`

	// unreachableSince is when the host stopped to answer; unset while it answers.
	// +optional
	UnreachableSince *metav1.Time `json:"unreachableSince,omitempty"`

	// cleaningFailsSince is since when the cleaning of the host cannot be carried out; unset while it goes on.
	// +optional
	CleaningFailsSince *metav1.Time `json:"cleaningFailsSince,omitempty"`

	// power is what the BMC says.
	// +optional
	Power *HostPower `json:"power,omitempty"`

	// lastFailure is the last claim that ended in failure on this host; others are preferred for a while.
	// +optional
	LastFailure *HostFailure `json:"lastFailure,omitempty"`

	// nextAttempt is when a failed exchange is tried again; the quoin.cluster.x-k8s.io/retry annotation does it now.
	// +optional
	NextAttempt *metav1.Time `json:"nextAttempt,omitempty"`

	// failures in a row of the exchange that is being retried.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Failures *int32 `json:"failures,omitempty"`

	// observedGeneration of the spec.
	// +optional
	// +kubebuilder:validation:Minimum=1
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}

// HostCredentials says which key a host accepted.
type HostCredentials struct {
	// fingerprint of the public key, as ssh-keygen -l prints it.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Fingerprint string `json:"fingerprint,omitempty"`

	// secretVersion is the resourceVersion of the Secret that held the key.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	SecretVersion string `json:"secretVersion,omitempty"`

	// since is when the host first accepted this key of this Secret.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`
}

// HostPower is what a BMC says.
type HostPower struct {
	// state is On, Off, PoweringOn or PoweringOff, as it was when it mattered; empty while it does not.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	State string `json:"state,omitempty"`

	// readAt is when it was read.
	// +optional
	ReadAt *metav1.Time `json:"readAt,omitempty"`

	// readOf stands for the computer that spec.bmc meant then. What was read counts for no other.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	ReadOf string `json:"readOf,omitempty"`

	// cycledAt is when the host was last power-cycled by us.
	// +optional
	CycledAt *metav1.Time `json:"cycledAt,omitempty"`

	// askedAt is when the BMC was last asked whether it would do: condition BMCVerified.
	// +optional
	AskedAt *metav1.Time `json:"askedAt,omitempty"`

	// askedOf stands for spec.bmc as it was then.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	AskedOf string `json:"askedOf,omitempty"`
}

// HostFailure is a claim that ended in failure.
type HostFailure struct {
	// time of the failure.
	// +required
	Time metav1.Time `json:"time,omitempty,omitzero"`

	// pool of the Machine that failed, "namespace/name" of its MachineDeployment or control plane.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Pool string `json:"pool,omitempty"`

	// reason of the failure.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Reason string `json:"reason,omitempty"`
}

// QuoinHost is a machine with an OS and SSH. It belongs to nobody or to exactly one QuoinMachine.
//
// +kubebuilder:object:root=true
// +kubebuilder:metadata:labels="clusterctl.cluster.x-k8s.io/move="
// +kubebuilder:resource:path=quoinhosts,shortName=qh,scope=Namespaced,categories=cluster-api
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:selectablefield:JSONPath=".spec.consumerRef.name"
// +kubebuilder:selectablefield:JSONPath=".spec.consumerRef.namespace"
// +kubebuilder:printcolumn:name="State",type="string",JSONPath=".status.state",description="Place in the host's life"
// +kubebuilder:printcolumn:name="Ready",type="string",JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="Reachable, trusted and in the state its claim asks for"
// +kubebuilder:printcolumn:name="Version",type="string",JSONPath=".status.version",description="Installed Kubernetes version"
// +kubebuilder:printcolumn:name="Consumer",type="string",JSONPath=".spec.consumerRef.name",description="QuoinMachine that has the host"
// +kubebuilder:printcolumn:name="Address",type="string",JSONPath=".spec.address",description="Management address"
// +kubebuilder:printcolumn:name="Domain",type="string",JSONPath=".spec.failureDomain",description="Failure domain"
// +kubebuilder:printcolumn:name="Waiting for",type="string",JSONPath=`.status.conditions[?(@.type=="Ready")].message`,description="What the host waits for"
// +kubebuilder:printcolumn:name="OS",type="string",JSONPath=".status.facts.osImage",description="Operating system",priority=10
// +kubebuilder:printcolumn:name="CPU",type="integer",JSONPath=".status.facts.cpus",description="Logical processors",priority=10
// +kubebuilder:printcolumn:name="Memory",type="string",JSONPath=".status.facts.memory",description="Memory",priority=10
// +kubebuilder:printcolumn:name="Step",type="string",JSONPath=".status.operation.step",description="Step that runs or failed",priority=10
// +kubebuilder:printcolumn:name="Staged",type="string",JSONPath=".status.staged[*].version",description="Versions that were brought to the host ahead",priority=10
// +kubebuilder:printcolumn:name="Paused",type="string",JSONPath=`.status.conditions[?(@.type=="Paused")].status`,description="Reconciliation paused",priority=10
// +kubebuilder:printcolumn:name="Held for",type="string",JSONPath=".spec.heldFor.clusters",description="Clusters whose move the host is held for",priority=10
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description="Time since creation"
type QuoinHost struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the desired state of the host.
	// +required
	Spec QuoinHostSpec `json:"spec,omitempty,omitzero"`
	// status is the observed state of the host.
	// +optional
	Status QuoinHostStatus `json:"status,omitempty,omitzero"`
}

// GetConditions returns the conditions of the host.
func (h *QuoinHost) GetConditions() []metav1.Condition { return h.Status.Conditions }

// SetConditions sets the conditions of the host.
func (h *QuoinHost) SetConditions(conditions []metav1.Condition) { h.Status.Conditions = conditions }

// Shared reports whether Machines of other namespaces may have the host.
func (h *QuoinHost) Shared() bool {
	return slices.ContainsFunc(h.Spec.ConsumerNamespaces, func(namespace string) bool { return namespace != h.Namespace })
}

// SecretNames are the Secrets of its namespace that the host needs: its own credentials, those of its bastion and of
// its BMC. Sorted, each once.
func (h *QuoinHost) SecretNames() []string {
	names := []string{h.Spec.CredentialsRef.Name}
	if bastion := h.Spec.Bastion; bastion != nil && bastion.CredentialsRef != nil {
		names = append(names, bastion.CredentialsRef.Name)
	}
	if bmc := h.Spec.BMC; bmc != nil {
		names = append(names, bmc.CredentialsRef.Name)
	}
	names = slices.DeleteFunc(names, func(name string) bool { return name == "" })
	slices.Sort(names)
	return slices.Compact(names)
}

// QuoinHostList is a list of QuoinHosts.
//
// +kubebuilder:object:root=true
type QuoinHostList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []QuoinHost `json:"items"`
}

func init() { objectTypes = append(objectTypes, &QuoinHost{}, &QuoinHostList{}) }
