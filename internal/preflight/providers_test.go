// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"testing"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func TestProviders(t *testing.T) {
	const core, kubeadm, ours = "Provider cluster-api ", "Provider bootstrap-kubeadm ", "Provider control-plane-quoin "
	for name, c := range map[string]struct {
		// versions of Cluster API, of its kubeadm provider and of ours.
		core, kubeadm, infrastructure, plane string
		target                               string
		self                                 bool
		want                                 []string
		says                                 string
	}{
		"all well":                      {core: "v1.14.2", kubeadm: "v1.14.2", infrastructure: "v0.1.0", plane: "v0.1.0"},
		"the newest of a patch":         {core: "v1.14.1", target: "v1.37.0"},
		"too new for the release":       {core: "v1.14.0", target: "v1.37.0", want: []string{"Warn " + core + "NotSupported"}, says: "v1.14.0 supports v1.31 to v1.36 of clusters, and not v1.37.0"},
		"too new for all that is known": {core: "v1.14.2", target: "v1.38.0", want: []string{"Warn " + core + "NotSupported"}},
		"too old":                       {core: "v1.14.2", target: "v1.30.9", want: []string{"Warn " + core + "NotSupported"}},
		"of a cluster, and old":         {core: "v1.14.2", target: "v1.31.9"},
		"too old for the one that it runs in": {core: "v1.14.2", target: "v1.32.9", self: true, want: []string{"Warn " + core + "NotSupported"},
			says: "v1.14.2 supports v1.33 to v1.37 of the cluster that it runs in, and not v1.32.9"},
		"a series of tomorrow": {core: "v1.15.0", want: []string{"Warn " + core + "SupportUnknown"}},
		"no version":           {core: "main", want: []string{"Warn " + core + "SupportUnknown"}},
		"a candidate of the first release of its series": {core: "v1.14.0-rc.0", want: []string{"Warn " + core + "SupportUnknown"}},
		"an old kubeadm provider": {core: "v1.14.2", kubeadm: "v1.12.7", target: "v1.36.3", want: []string{
			"Warn " + kubeadm + "NotSupported"}},
		"two of ours": {core: "v1.14.2", infrastructure: "v0.1.0", plane: "v0.2.0", want: []string{"Warn " + ours + "OtherVersion"}},
		"one of ours": {core: "v1.14.2", plane: "v0.2.0"},
		"nobody":      {want: []string{"Warn  ProvidersUnknown"}},
	} {
		t.Run(name, func(t *testing.T) {
			var management []client.Object
			for _, of := range []struct{ label, name, kind, version string }{
				{"cluster-api", "cluster-api", "CoreProvider", c.core},
				{"bootstrap-kubeadm", "kubeadm", "BootstrapProvider", c.kubeadm},
				{"infrastructure-quoin", "quoin", "InfrastructureProvider", c.infrastructure},
				{"control-plane-quoin", "quoin", "ControlPlaneProvider", c.plane},
			} {
				if of.version != "" {
					management = append(management, &clusterctlv1.Provider{ObjectMeta: metav1.ObjectMeta{Namespace: "system",
						Name: of.label}, ProviderName: of.name, Type: of.kind, Version: of.version})
				}
			}
			s := subject(t, management, nil)
			if c.target != "" {
				s.Version = c.target
			}
			findings, err := lookAtProviders(t.Context(), s, c.self)
			g := NewWithT(t)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(says(findings)).To(ConsistOf(c.want))
			if c.says != "" {
				g.Expect(findings[0].Message).To(Equal(c.says))
			}
		})
	}
}

func TestProvidersThatNobodyWroteDown(t *testing.T) {
	kind := clusterctlv1.GroupVersion.WithKind("Provider")
	for name, err := range map[string]error{
		"no such kind": &meta.NoKindMatchError{GroupKind: kind.GroupKind()},
		"not found":    apierrors.NewNotFound(schema.GroupResource{}, ""),
		"forbidden":    apierrors.NewForbidden(schema.GroupResource{}, "", nil),
	} {
		s := subject(t, nil, nil)
		s.Management = refusing{err}
		findings, err := lookAtProviders(t.Context(), s, false)
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
		NewWithT(t).Expect(says(findings)).To(Equal([]string{"Warn  ProvidersUnknown"}), name)
	}
}
