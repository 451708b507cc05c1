// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// ClusterFinalizer keeps a QuoinCluster until its QuoinMachines are gone.
const ClusterFinalizer = "quoincluster.infrastructure.cluster.x-k8s.io"

// Condition types and reasons of a QuoinCluster.
const (
	// ClusterReadyCondition mirrors what the Cluster shows as InfrastructureReady.
	ClusterReadyCondition = clusterv1.ReadyCondition
	// ClusterEndpointReadyCondition is True when the control-plane endpoint is known and free for this cluster.
	ClusterEndpointReadyCondition = "EndpointReady"
	// ClusterHostsAvailableCondition counts the hosts that can be claimed.
	ClusterHostsAvailableCondition = "HostsAvailable"
	// ClusterDomainsReachableCondition is False while many hosts of a failure domain are silent that fell silent together.
	ClusterDomainsReachableCondition = "FailureDomainsReachable"

	// ClusterMovableCondition is True when clusterctl move would take the Cluster with everything that belongs to it, and,
	// while the Cluster is paused, when everything of it is quiet. Its message has the command, or what is in the way and
	// what to do.
	ClusterMovableCondition = "Movable"

	// ClusterMovableReason: a move would go well now.
	ClusterMovableReason = "Movable"
	// ClusterQuietReason: everything of the paused Cluster is quiet, and the free hosts of its namespace are held.
	ClusterQuietReason = "Quiet"
	// ClusterNotQuietReason: the annotation clusterctl.cluster.x-k8s.io/block-move stays on the paused Cluster's
	// QuoinCluster.
	ClusterNotQuietReason = "NotQuiet"

	// ClusterEndpointMissingReason: spec.controlPlaneEndpoint has no host.
	ClusterEndpointMissingReason = "EndpointMissing"
	// ClusterEndpointConflictReason: another QuoinCluster has the same address or virtual router id.
	ClusterEndpointConflictReason = "EndpointConflict"
	// ClusterEndpointConfiguredReason: the endpoint is set.
	ClusterEndpointConfiguredReason = "Configured"
	// ClusterNoHostsReason: no host can be claimed from this namespace.
	ClusterNoHostsReason = "NoHosts"
)

// LoadBalancerType says what makes the control-plane endpoint answer.
// +kubebuilder:validation:Enum=External;Keepalived
type LoadBalancerType string

const (
	// LoadBalancerExternal means: somebody else's load balancer or DNS name.
	LoadBalancerExternal LoadBalancerType = "External"
	// LoadBalancerKeepalived means: a virtual address held by one of the control-plane hosts (VRRP).
	LoadBalancerKeepalived LoadBalancerType = "Keepalived"
)

// QuoinClusterSpec is the desired state of a QuoinCluster.
// +kubebuilder:validation:XValidation:rule="!has(self.loadBalancer) || self.loadBalancer.type != 'Keepalived' || !has(self.controlPlaneEndpoint) || !has(self.controlPlaneEndpoint.host) || isIP(self.controlPlaneEndpoint.host)",message="with loadBalancer.type Keepalived, controlPlaneEndpoint.host must be an IP address: it becomes the virtual address"
type QuoinClusterSpec struct {
	// controlPlaneEndpoint is where the API server is reached. With a Keepalived load balancer its host is the virtual
	// address.
	// +optional
	ControlPlaneEndpoint APIEndpoint `json:"controlPlaneEndpoint,omitempty,omitzero"`

	// loadBalancer says what makes the endpoint answer. External when unset.
	// +optional
	LoadBalancer LoadBalancer `json:"loadBalancer,omitempty,omitzero"`

	// version of Kubernetes that a ClusterUpgrade is bringing the Cluster to, or has brought it to. It is a record that
	// nothing else writes: what runs is decided by the control plane's version, or by the topology's. A
	// QuoinClusterTemplate has none.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:Pattern=`^v(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)([-+].*)?$`
	Version string `json:"version,omitempty"`
}

// APIEndpoint is where an API server is reached.
// +kubebuilder:validation:MinProperties=1
type APIEndpoint struct {
	// host is an IP address or DNS name.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	Host string `json:"host,omitempty"`

	// port of the API server; 6443 when the host is set and the port is not.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port,omitempty"`
}

// DefaultAPIServerPort is the port of an API server whose endpoint or kubeadm configuration names none.
const DefaultAPIServerPort = 6443

// LoadBalancer says what makes the control-plane endpoint answer.
// +kubebuilder:validation:XValidation:rule="self.type == 'Keepalived' ? has(self.keepalived) : !has(self.keepalived)",message="keepalived must be set when type is Keepalived, and only then"
type LoadBalancer struct {
	// type of the load balancer.
	// +required
	Type LoadBalancerType `json:"type,omitempty"`

	// keepalived configures the virtual address.
	// +optional
	Keepalived *Keepalived `json:"keepalived,omitempty"`
}

// Keepalived configures a virtual address that the control-plane hosts share by VRRP.
type Keepalived struct {
	// interface of the hosts that carries the virtual address; that of the default route when unset.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=15
	Interface string `json:"interface,omitempty"`

	// virtualRouterID tells this group of hosts from others on the same network segment; it must be unique there.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=255
	VirtualRouterID int32 `json:"virtualRouterID,omitempty"`
}

// QuoinClusterStatus is the observed state of a QuoinCluster.
// +kubebuilder:validation:MinProperties=1
type QuoinClusterStatus struct {
	// conditions of the cluster: Ready, EndpointReady, HostsAvailable, FailureDomainsReachable, Movable, Paused.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// initialization of the infrastructure; part of the Cluster API contract.
	// +optional
	Initialization QuoinClusterInitializationStatus `json:"initialization,omitempty,omitzero"`

	// failureDomains of the hosts that this cluster may claim.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=100
	FailureDomains []clusterv1.FailureDomain `json:"failureDomains,omitempty"`

	// hosts that may be claimed from this namespace: how many there are, and how many are free.
	// +optional
	Hosts *HostCounts `json:"hosts,omitempty"`

	// version of Kubernetes that the last ClusterUpgrade ended at; it is that of the spec once all is done.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Version string `json:"version,omitempty"`

	// managersVersion is the version of Quoin whose managers run in this very Cluster, and upgrade their own Nodes. It is
	// empty of a Cluster that is managed from another one.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	ManagersVersion string `json:"managersVersion,omitempty"`
}

// HostCounts counts hosts.
type HostCounts struct {
	// total number of hosts.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Total *int32 `json:"total,omitempty"`
	// available hosts.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Available *int32 `json:"available,omitempty"`

	// domains counts the hosts of each failure domain. Hosts without one are counted under no domain.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=100
	Domains []DomainHostCounts `json:"domains,omitempty"`
}

// DomainHostCounts counts the hosts of one failure domain.
type DomainHostCounts struct {
	// name of the failure domain.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Name string `json:"name,omitempty"`
	// total number of hosts.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Total *int32 `json:"total,omitempty"`
	// available hosts.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Available *int32 `json:"available,omitempty"`
	// unreachable hosts.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Unreachable *int32 `json:"unreachable,omitempty"`
}

// QuoinClusterInitializationStatus is part of the Cluster API contract.
// +kubebuilder:validation:MinProperties=1
type QuoinClusterInitializationStatus struct {
	// provisioned is true when the endpoint is known, so that Machines can be made.
	// +optional
	Provisioned *bool `json:"provisioned,omitempty"`
}

// QuoinCluster is the infrastructure of a Cluster: its endpoint and its failure domains.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=quoinclusters,shortName=qc,scope=Namespaced,categories=cluster-api
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Cluster",type="string",JSONPath=".metadata.labels['cluster\\.x-k8s\\.io/cluster-name']",description="Cluster"
// +kubebuilder:printcolumn:name="Ready",type="string",JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="The infrastructure is ready"
// +kubebuilder:printcolumn:name="Endpoint",type="string",JSONPath=".spec.controlPlaneEndpoint.host",description="Control-plane endpoint"
// +kubebuilder:printcolumn:name="Port",type="integer",JSONPath=".spec.controlPlaneEndpoint.port",description="Port of the endpoint"
// +kubebuilder:printcolumn:name="Hosts",type="integer",JSONPath=".status.hosts.total",description="Hosts that may be claimed"
// +kubebuilder:printcolumn:name="Free",type="integer",JSONPath=".status.hosts.available",description="Hosts that are free"
// +kubebuilder:printcolumn:name="Waiting for",type="string",JSONPath=`.status.conditions[?(@.type=="Ready")].message`,description="What the cluster waits for"
// +kubebuilder:printcolumn:name="Managers",type="string",JSONPath=".status.managersVersion",description="Version of Quoin that runs in this Cluster, if it manages itself",priority=10
// +kubebuilder:printcolumn:name="Movable",type="string",JSONPath=`.status.conditions[?(@.type=="Movable")].status`,description="clusterctl move would go well",priority=10
// +kubebuilder:printcolumn:name="Paused",type="string",JSONPath=`.status.conditions[?(@.type=="Paused")].status`,description="Reconciliation paused",priority=10
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description="Time since creation"
type QuoinCluster struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the desired state of the cluster.
	// +optional
	Spec QuoinClusterSpec `json:"spec,omitempty,omitzero"`
	// status is the observed state of the cluster.
	// +optional
	Status QuoinClusterStatus `json:"status,omitempty,omitzero"`
}

// GetConditions returns the conditions of the cluster.
func (c *QuoinCluster) GetConditions() []metav1.Condition { return c.Status.Conditions }

// SetConditions sets the conditions of the cluster.
func (c *QuoinCluster) SetConditions(conditions []metav1.Condition) { c.Status.Conditions = conditions }

// QuoinClusterList is a list of QuoinClusters.
//
// +kubebuilder:object:root=true
type QuoinClusterList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []QuoinCluster `json:"items"`
}

// QuoinClusterTemplateSpec is the desired state of a QuoinClusterTemplate.
type QuoinClusterTemplateSpec struct {
	// template of QuoinClusters.
	// +required
	Template QuoinClusterTemplateResource `json:"template,omitempty,omitzero"`
}

// QuoinClusterTemplateResource is what a QuoinCluster is made from.
// +kubebuilder:validation:MinProperties=1
type QuoinClusterTemplateResource struct {
	// metadata that QuoinClusters get.
	// +optional
	ObjectMeta clusterv1.ObjectMeta `json:"metadata,omitempty,omitzero"`
	// spec that QuoinClusters get.
	// +optional
	Spec QuoinClusterSpec `json:"spec,omitempty,omitzero"`
}

// QuoinClusterTemplate is used by ClusterClasses.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=quoinclustertemplates,shortName=qct,scope=Namespaced,categories=cluster-api
// +kubebuilder:storageversion
// +kubebuilder:printcolumn:name="ClusterClass",type="string",JSONPath=`.metadata.ownerReferences[?(@.kind=="ClusterClass")].name`,description="ClusterClass that owns the template"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description="Time since creation"
type QuoinClusterTemplate struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the desired state of the template.
	// +optional
	Spec QuoinClusterTemplateSpec `json:"spec,omitempty,omitzero"`
}

// QuoinClusterTemplateList is a list of QuoinClusterTemplates.
//
// +kubebuilder:object:root=true
type QuoinClusterTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []QuoinClusterTemplate `json:"items"`
}

func init() {
	objectTypes = append(objectTypes, &QuoinCluster{}, &QuoinClusterList{}, &QuoinClusterTemplate{},
		&QuoinClusterTemplateList{})
}
