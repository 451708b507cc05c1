// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/programtest"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sshtest"
)

// stocked is a rack whose control plane has this bundle, and whose hosts run the real scripts on this machine, but for
// those that are silent.
func stocked(t *testing.T, bundle infrav1.Bundle) (*rack, Subject, map[string]*sshtest.Local) {
	programtest.Need(t, "curl")
	r := newRack(t)
	template := &infrav1.QuoinMachineTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "of"}}
	template.Spec.Template.Spec.Artifacts.Bundle = &bundle
	r.management = append(r.management, template)
	s := r.subject()
	s.ControlPlane = plane(func(p *controlplanev1.QuoinControlPlane) {
		p.Spec.MachineTemplate.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{
			APIGroup: infrav1.GroupVersion.Group, Kind: "QuoinMachineTemplate", Name: "of"}
	})
	hosts := map[string]*sshtest.Local{"cp-1": {}, "cp-2": {}, "w": {}, "free": {}}
	s.Connect = func(_ context.Context, host *infrav1.QuoinHost) (ssh.Host, error) {
		if err := r.silent[host.Name]; err != nil {
			return nil, err
		}
		return hosts[host.Name], nil
	}
	return r, s, hosts
}

// Each host that needs the bundle reads it itself, and says itself what is wrong.
func TestArtifactsAreAskedOfHosts(t *testing.T) {
	g := NewWithT(t)
	r, s, hosts := stocked(t, infrav1.Bundle{Location: bundles(t, "v1.36.3")})
	expect(t, lookAtArtifacts, s)
	g.Expect(hosts["cp-1"].Runs()).NotTo(BeEmpty())
	g.Expect(hosts["free"].Runs()).NotTo(BeEmpty())
	g.Expect(hosts["w"].Runs()).To(BeEmpty(), "its pool has no bundle")

	// A server that some hosts do not reach.
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	hosts["cp-2"].Env = []string{"http_proxy=" + closed.URL, "HTTP_PROXY=" + closed.URL, "no_proxy="}
	hosts["free"].Env = hosts["cp-2"].Env
	r.silent["cp-1"] = errors.New("no way there")
	found := expect(t, lookAtArtifacts, s, "Block QuoinHost prod/cp-1 Silent", "Block QuoinHost prod/cp-2 NoBundle",
		"Warn QuoinHost prod/free NoBundle")
	for _, finding := range found[1:] {
		g.Expect(finding.Message).To(ContainSubstring("curl: (7)"))
	}
}

// A path on the hosts is one that they alone see.
func TestArtifactsThatLieOnHosts(t *testing.T) {
	_, s, _ := stocked(t, infrav1.Bundle{Location: t.TempDir() + "/{{version}}"})
	expect(t, lookAtArtifacts, s, "Block QuoinHost prod/cp-1 NoBundle", "Block QuoinHost prod/cp-2 NoBundle",
		"Warn QuoinHost prod/free NoBundle")
}

// Of a bundle that is larger than the disk of a host no byte is fetched.
func TestArtifactsNeedRoom(t *testing.T) {
	g := NewWithT(t)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"kubernetesVersion":"v1.36.3","os":"linux","architecture":"amd64","files":[` +
			`{"path":"proxy.tar","sha256":"` + strings.Repeat("1", 64) + `","size":1000000000000000,"kind":"image",` +
			`"images":["x/kube-proxy:v1.36.3"],"roles":["addon"]},` +
			`{"path":"kubelet","sha256":"` + strings.Repeat("0", 64) + `","size":1,"kind":"binary",` +
			`"install":"/usr/bin/kubelet","roles":["control-plane","worker"]}]}`))
	}))
	t.Cleanup(server.Close)
	for _, delivery := range []infrav1.BundleDelivery{"", infrav1.BundleDeliveryPush} {
		_, s, _ := stocked(t, infrav1.Bundle{Location: server.URL + "/{{version}}", Delivery: delivery})
		found := expect(t, lookAtArtifacts, s, "Block QuoinHost prod/cp-1 NoRoom", "Block QuoinHost prod/cp-2 NoRoom")
		g.Expect(found[0].Message).To(
			MatchRegexp(`^v1.36.3 as addon: Kubernetes needs \d+ KiB on the file system of .*make room`))
	}
}
