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
	// own is true for the providers of this repository, false for those of Cluster API's module.
	own bool
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
}

// Labels of all providers, in the order clusterctl installs them.
func Labels() []string {
	labels := make([]string, 0, len(providers))
	for _, p := range providers {
		labels = append(labels, p.label)
	}
	return labels
}

// OwnLabels are the labels of the providers that this project releases.
func OwnLabels() []string {
	var labels []string
	for _, p := range providers {
		if p.own {
			labels = append(labels, p.label)
		}
	}
	return labels
}
