// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"cmp"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew"
)

// bundles serves the manifests of the versions.
func bundles(t *testing.T, versions ...string) string {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, version := range versions {
			if r.URL.Path == "/"+version+"/manifest.json" {
				fmt.Fprintf(w, `{"kubernetesVersion":%q,"os":"linux","architecture":"amd64","files":[{"path":"kubelet",`+
					`"sha256":%q,"size":1,"kind":"binary","install":"/usr/bin/kubelet","roles":["control-plane","worker"]}]}`,
					version, strings.Repeat("0", 64))
				return
			}
		}
		http.NotFound(w, r)
	}))
	t.Cleanup(server.Close)
	return server.URL + "/{{version}}"
}

func TestArtifactsOfEachHop(t *testing.T) {
	const control, workers = " QuoinControlPlane cp ", " MachineDeployment blue "
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	bundle := func(location string, delivery infrav1.BundleDelivery) infrav1.Artifacts {
		return infrav1.Artifacts{Bundle: &infrav1.Bundle{Location: location, Delivery: delivery}}
	}
	packages := func(repository string) infrav1.Artifacts {
		return infrav1.Artifacts{Packages: &infrav1.Packages{Repository: repository}}
	}
	all, last := bundles(t, "v1.36.3", "v1.37.0"), bundles(t, "v1.37.0")
	const push = infrav1.BundleDeliveryPush
	for name, c := range map[string]struct {
		control, worker infrav1.Artifacts
		version         string
		known, via      []string
		keys            []string
		want            []string
	}{
		"all there": {control: bundle(all, ""), worker: bundle(all, push)},
		"no bundle of the version": {control: bundle(last, ""), worker: bundle(last, push), version: "v1.36.3",
			want: []string{"Block" + control + "NoBundle", "Block" + workers + "NoBundle"}},
		"no bundle of the first of two hops": {control: bundle(last, ""), worker: bundle(last, ""),
			want: []string{"Block" + control + "NoBundle"}},
		"any patch of the first hop": {control: bundle(last, ""), worker: bundle(last, ""), known: []string{}},
		"the first hop by a patch that was named": {control: bundle(last, ""), worker: bundle(last, ""), known: []string{},
			via: []string{"v1.36.3"}, want: []string{"Block" + control + "NoBundle"}},
		"a server that is away": {control: bundle(closed.URL+"/{{version}}", ""), worker: bundle(closed.URL+"/{{version}}", push),
			version: "v1.36.3", want: []string{"Warn" + control + "BundleNotSeen", "Block" + workers + "BadBundle"}},
		"a bundle that nobody signed": {control: infrav1.Artifacts{Bundle: &infrav1.Bundle{Location: all, PublicKeys: []string{
			"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ1Uq0tSYnUBGTsKBnBqKMZFGNkpzDnQb/hZ1UHrmzrk"}}}, worker: bundle(all, ""),
			version: "v1.36.3", want: []string{"Block" + control + "BadBundle"}},
		"bundles that the operator did not sign": {control: bundle(all, ""), worker: bundle(all, push), version: "v1.36.3",
			keys: []string{"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ1Uq0tSYnUBGTsKBnBqKMZFGNkpzDnQb/hZ1UHrmzrk"},
			want: []string{"Block" + control + "BadBundle", "Block" + workers + "BadBundle"}},
		"bundles on hosts": {control: bundle("/srv/{{version}}", ""), worker: bundle("/srv/{{version}}", push),
			want: []string{"Warn" + control + "NotLookedAt", "Warn" + workers + "NotLookedAt"}},
		"what hosts carry": {control: infrav1.Artifacts{Preinstalled: &infrav1.Preinstalled{}}, worker: bundle(all, ""),
			want: []string{"Warn" + control + "NotLookedAt"}},
		"packages of each minor": {control: packages("deb https://packages.test/core:/stable:/{{minor}}/deb/ /"),
			worker: packages(""), want: []string{"Warn" + control + "NotLookedAt", "Warn" + workers + "NotLookedAt"}},
		"packages of one minor": {control: packages("deb https://packages.test/core:/stable:/v1.36/deb/ /"),
			worker: packages("https://packages.test/core:/stable:/v1.37/rpm/"),
			want:   []string{"Block" + control + "OtherMinor", "Warn" + workers + "NotLookedAt"}},
	} {
		t.Run(name, func(t *testing.T) {
			template := func(name string, from infrav1.Artifacts) client.Object {
				of := &infrav1.QuoinMachineTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: name}}
				of.Spec.Template.Spec.Artifacts = from
				return of
			}
			ref := func(name string) clusterv1.ContractVersionedObjectReference {
				return clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group,
					Kind: "QuoinMachineTemplate", Name: name}
			}
			pool := &clusterv1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "blue",
				Labels: map[string]string{clusterv1.ClusterNameLabel: "c1"}}}
			pool.Spec.Template.Spec.InfrastructureRef = ref("worker")
			class := &clusterv1.ClusterClass{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "quoin"}}
			class.Spec.KubernetesVersions = []string{"v1.35.4", "v1.36.3", "v1.37.0"}
			s := subject(t, []client.Object{machine("cp", "v1.35.4", true), machine("w", "v1.35.4", false), class, pool,
				template("control-plane", c.control), template("worker", c.worker)}, nil)
			s.Version, s.Via, s.BundleKeys = cmp.Or(c.version, "v1.37.0"), c.via, c.keys
			if c.known == nil {
				s.Cluster.Spec.Topology = clusterv1.Topology{ClassRef: clusterv1.ClusterClassRef{Name: "quoin"}, Version: "v1.35.4"}
			}
			s.ControlPlane = plane(func(p *controlplanev1.QuoinControlPlane) {
				p.Spec.MachineTemplate.Spec.InfrastructureRef = ref("control-plane")
			})
			for _, finding := range expect(t, lookAtArtifacts, s, c.want...) {
				if finding.Reason == "OtherMinor" {
					NewWithT(t).Expect(finding.Message).To(HaveSuffix("is that of v1.36, which has no v1.37.0"))
				}
			}
		})
	}
}

// A policy that nobody knows VersionPath tells of; the artifacts of the target are looked at all the same.
func TestArtifactsWithoutAPolicy(t *testing.T) {
	template := &infrav1.QuoinMachineTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "of"}}
	template.Spec.Template.Spec.Artifacts.Bundle = &infrav1.Bundle{Location: bundles(t)}
	s := subject(t, []client.Object{machine("cp", "v1.35.4", true), template}, nil)
	s.Cluster.Annotations = map[string]string{skew.PolicyAnnotation: "ours"}
	s.ControlPlane = plane(func(p *controlplanev1.QuoinControlPlane) {
		p.Spec.MachineTemplate.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{
			APIGroup: infrav1.GroupVersion.Group, Kind: "QuoinMachineTemplate", Name: "of"}
	})
	expect(t, lookAtArtifacts, s, "Block QuoinControlPlane cp NoBundle")
}

// A bundle for other processors than those of the template's hosts is none.
func TestArtifactsOfTheArchitecture(t *testing.T) {
	template := &infrav1.QuoinMachineTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "arm"}}
	template.Spec.Template.Spec.Artifacts.Bundle = &infrav1.Bundle{Location: bundles(t, "v1.36.3")}
	template.Status.NodeInfo.Architecture = "arm64"
	s := subject(t, []client.Object{machine("cp", "v1.35.4", true), template}, nil)
	s.ControlPlane = plane(func(p *controlplanev1.QuoinControlPlane) {
		p.Spec.MachineTemplate.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{
			APIGroup: infrav1.GroupVersion.Group, Kind: "QuoinMachineTemplate", Name: "arm"}
	})
	expect(t, lookAtArtifacts, s, "Block QuoinControlPlane cp BadBundle")
}
