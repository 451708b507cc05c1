// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// HostKeyPolicy says what happens at the first contact with a host.
// +kubebuilder:validation:Enum=Strict;TrustOnFirstUse
type HostKeyPolicy string

const (
	// HostKeyPolicyStrict connects only to a host whose key or certificate authority is given.
	HostKeyPolicyStrict HostKeyPolicy = "Strict"
	// HostKeyPolicyTrustOnFirstUse records the key of the first contact.
	HostKeyPolicyTrustOnFirstUse HostKeyPolicy = "TrustOnFirstUse"
)

// Bastion is a jump host: sshd there must allow TCP forwarding to the hosts.
type Bastion struct {
	// address at which the bastion's sshd answers.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Address string `json:"address,omitempty"`

	// port of its sshd.
	// +optional
	// +default=22
	// +kubebuilder:default=22
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port,omitempty"`

	// user to log in as; needs no rights there but forwarding.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^[a-z_][a-z0-9_-]*$`
	User string `json:"user,omitempty"`

	// credentialsRef names a Secret like that of the host; the host's own one when unset.
	// +optional
	CredentialsRef *SecretReference `json:"credentialsRef,omitempty"`

	// hostKeys are the public keys that the bastion may present; never recorded by us.
	// +required
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=2048
	// +kubebuilder:validation:items:Pattern=`^(ssh|ecdsa|sk)-[a-z0-9@.-]+ [A-Za-z0-9+/=]+( .*)?$`
	HostKeys []string `json:"hostKeys,omitempty"`
}

// BMC is a baseboard management controller that speaks Redfish.
type BMC struct {
	// address of the Redfish service: https://<host>[:<port>].
	// +required
	// +kubebuilder:validation:MinLength=9
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:Pattern=`^https://[^/?#@]+/?$`
	Address string `json:"address,omitempty"`

	// system is the @odata.id of the ComputerSystem; the only one there is when unset.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:Pattern=`^/redfish/v1/Systems/[^?#]+$`
	System string `json:"system,omitempty"`

	// systemID is what the BMC says of the host's ComputerSystem: its UUID, or its SerialNumber or SKU where it says no
	// UUID, or one that another host has too. When unset, the product UUID or the serial number of status.facts must be
	// the computer's: no power is switched at a BMC that may be another machine's.
	// +optional
	// +kubebuilder:validation:MinLength=4
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:Pattern=`^\S(.*\S)?$`
	SystemID string `json:"systemID,omitempty"`

	// credentialsRef names a Secret of type kubernetes.io/basic-auth in the host's own namespace.
	// +required
	CredentialsRef SecretReference `json:"credentialsRef,omitempty,omitzero"`

	// certificateFingerprint pins the certificate of the service: the SHA-256 of its DER form in hexadecimal digits. When
	// unset, the certificate must be valid for the address and signed by an authority that the manager trusts.
	// +optional
	// +kubebuilder:validation:MinLength=64
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{64}$`
	CertificateFingerprint string `json:"certificateFingerprint,omitempty"`
}

// SecretReference names a Secret in the namespace of the referring object.
type SecretReference struct {
	// name of the Secret.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
}
