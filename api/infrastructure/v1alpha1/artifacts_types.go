// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import "k8s.io/apimachinery/pkg/api/resource"

// Artifacts says where the binaries and images of a Kubernetes version come from: exactly one of its sources.
// +kubebuilder:validation:XValidation:rule="(has(self.bundle) ? 1 : 0) + (has(self.packages) ? 1 : 0) + (has(self.preinstalled) ? 1 : 0) == 1",message="set exactly one of bundle, packages and preinstalled"
type Artifacts struct {
	// bundle is a directory of binaries, images and a manifest with their checksums, for each version.
	// +optional
	Bundle *Bundle `json:"bundle,omitempty"`

	// packages come from a repository of the host's package manager.
	// +optional
	Packages *Packages `json:"packages,omitempty"`

	// preinstalled says that the hosts carry the version already; it is verified, and nothing is installed.
	// +optional
	Preinstalled *Preinstalled `json:"preinstalled,omitempty"`
}

// BundleDelivery says how a bundle comes to a host.
// +kubebuilder:validation:Enum=Fetch;Push
type BundleDelivery string

const (
	// BundleDeliveryFetch means: the host reads the location itself.
	BundleDeliveryFetch BundleDelivery = "Fetch"
	// BundleDeliveryPush means: the manager reads the location and sends what the host lacks over SFTP.
	BundleDeliveryPush BundleDelivery = "Push"
)

// Bundle locates bundles.
type Bundle struct {
	// location of the bundle: an absolute path on the host, or an HTTP(S) URL that the host can fetch from. With delivery
	// Push: a path in the manager's container, or a URL that the manager can fetch from.
	// {{version}} stands for the Kubernetes version ("v1.36.3").
	// +required
	// +kubebuilder:validation:MinLength=2
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="self.startsWith('/') || self.startsWith('http://') || self.startsWith('https://')",message="must be an absolute path on the host or an http(s) URL"
	// +kubebuilder:validation:XValidation:rule="self.contains('{{version}}')",message="must contain {{version}}, because the version of a Machine changes and its template does not"
	// +kubebuilder:validation:XValidation:rule="self.matches('^[][A-Za-z0-9._@+:/{}%~-]+$')",message="may contain letters, digits and ._@+:/[]{}%~- only, so neither spaces nor a query"
	Location string `json:"location,omitempty"`

	// delivery says how the bundle comes to a host; Fetch when unset.
	// +optional
	Delivery BundleDelivery `json:"delivery,omitempty"`

	// publicKeys verify the manifest's signature (manifest.json.sig, made by: ssh-keygen -Y sign -n quoin-bundle), each as
	// in an authorized_keys file. When set, a bundle that none of them signed is refused; when unset, only checksums
	// count.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=2048
	// +kubebuilder:validation:items:Pattern=`^(ssh|ecdsa|sk)-[a-z0-9@.-]+ [A-Za-z0-9+/=]+( .*)?$`
	PublicKeys []string `json:"publicKeys,omitempty"`

	// proxy through which an HTTP(S) location is fetched: http://<host>:<port>.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:Pattern=`^https?://[A-Za-z0-9._:\[\]-]+/?$`
	Proxy string `json:"proxy,omitempty"`

	// certificateAuthorities in PEM form that an HTTPS location is verified with, instead of those of the host.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=65536
	CertificateAuthorities string `json:"certificateAuthorities,omitempty"`

	// bytesPerSecond bounds what one host fetches, or what is sent to it.
	// +optional
	BytesPerSecond *resource.Quantity `json:"bytesPerSecond,omitempty"`
}

// Packages come from an apt or dnf repository.
type Packages struct {
	// repository is a line for the host's package manager in which {{version}} ("v1.36.3"), {{minor}} ("v1.36") and
	// {{arch}} are replaced: a one-line deb entry ("deb [signed-by=...] https://... /"), or the base URL of a dnf
	// repository. When unset, the repositories that the host knows already are used.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	Repository string `json:"repository,omitempty"`

	// signingKey of the repository, in ASCII armor.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=65536
	SigningKey string `json:"signingKey,omitempty"`
}

// Preinstalled says that hosts carry their version already.
type Preinstalled struct {
	// images says whether the images must be there as well: Required (nothing can be pulled) or Pullable; Pullable when
	// unset.
	// +optional
	// +kubebuilder:validation:Enum=Required;Pullable
	Images string `json:"images,omitempty"`
}
