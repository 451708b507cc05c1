// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package repository

// provider is one clusterctl provider and where its parts come from.
type provider struct {
	// label is the folder name clusterctl insists on: the type's prefix and the name.
	label string
	name  string
	// kind is clusterctl's provider type.
	kind string
	// components is the file name of the components.
	components string
	// own is true for the providers of this repository, false for those of Cluster API's modules.
	own bool
	// peer is true for what we are only measured against: it is written when asked for by its label.
	peer bool
	// tests is true for what is in Cluster API's module of tests.
	tests bool
	// overlay is the kustomization, relative to the checkout or to the module.
	overlay string
	// templates says whether cluster templates and classes are found beside this provider.
	templates bool
}

// Labels of the providers that this package can write.
const (
	CoreLabel           = "cluster-api"
	BootstrapLabel      = "bootstrap-kubeadm"
	InfrastructureLabel = "infrastructure-quoin"
	ControlPlaneLabel   = "control-plane-quoin"

	// Only for those who ask: Cluster API's control plane and its infrastructure for development.
	PeerControlPlaneLabel   = "control-plane-kubeadm"
	PeerInfrastructureLabel = "infrastructure-docker"
)

// providers in the order clusterctl installs them.
var providers = []provider{
	{
		label: CoreLabel, name: "cluster-api", kind: "CoreProvider",
		components: "core-components.yaml", overlay: "core/config/default",
	},
	{
		label: BootstrapLabel, name: "kubeadm", kind: "BootstrapProvider",
		components: "bootstrap-components.yaml", overlay: "bootstrap/kubeadm/config/default",
	},
	{
		label: ControlPlaneLabel, name: "quoin", kind: "ControlPlaneProvider", own: true,
		components: "control-plane-components.yaml", overlay: "config/control-plane-quoin",
	},
	{
		label: InfrastructureLabel, name: "quoin", kind: "InfrastructureProvider", own: true, templates: true,
		components: "infrastructure-components.yaml", overlay: "config/infrastructure-quoin",
	},
	{
		label: PeerControlPlaneLabel, name: "kubeadm", kind: "ControlPlaneProvider", peer: true,
		components: "control-plane-components.yaml", overlay: "controlplane/kubeadm/config/default",
	},
	{
		label: PeerInfrastructureLabel, name: "docker", kind: "InfrastructureProvider", peer: true, tests: true,
		components: "infrastructure-components.yaml", overlay: "infrastructure/docker/config/default",
	},
}

// Labels of the providers that a Quoin cluster needs, in the order clusterctl installs them.
func Labels() []string { return labels(func(p provider) bool { return !p.peer }) }

// OwnLabels are the labels of the providers that this project releases.
func OwnLabels() []string { return labels(func(p provider) bool { return p.own }) }

// NameAndType are what clusterctl.yaml calls the provider of a label, empty when there is none.
func NameAndType(label string) (name, kind string) {
	for _, p := range providers {
		if p.label == label {
			return p.name, p.kind
		}
	}
	return "", ""
}

func labels(wanted func(provider) bool) []string {
	var found []string
	for _, p := range providers {
		if wanted(p) {
			found = append(found, p.label)
		}
	}
	return found
}
