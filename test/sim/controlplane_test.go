// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/cluster-api/util/conditions"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim/kube"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim/plane"
)

// All controllers together bring the first host to its kubeadm init, with webhooks, although ours are killed on the way.
func TestASiteComesToItsFirstHost(t *testing.T) {
	g := NewWithT(t)
	p := needsPlane(t)
	fleet := newFleet(t, kube.Options{}, nil)
	site, err := p.NewSite(t.Context(), plane.SiteOptions{Namespace: "site", Haste: hurry, Admission: true, Connections: hasty})
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { g.Expect(site.Stop()).To(Succeed()) })
	host, err := fleet.Add("h1")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(p.Client.Create(t.Context(), credentials(fleet, "site"))).To(Succeed())
	g.Expect(p.Client.Create(t.Context(), quoinHost(host, "site"))).To(Succeed())
	key, err := site.AddCluster(t.Context(), plane.ClusterOptions{
		Name: "c", Host: "127.0.0.1", Port: 6443, Replicas: 1, Version: version,
		Artifacts: infrav1.Artifacts{Bundle: &infrav1.Bundle{Location: kube.BundleLocation}},
	})
	g.Expect(err).NotTo(HaveOccurred())

	g.Eventually(site.Manager().Writes).WithTimeout(patience).Should(BeNumerically(">", 5))
	dead := site.Manager()
	g.Expect(site.Restart()).To(Succeed())
	time.Sleep(time.Second)
	written := dead.Writes()

	g.Eventually(func(g Gomega) {
		controlPlane := &controlplanev1.QuoinControlPlane{}
		g.Expect(p.Client.Get(t.Context(), key, controlPlane)).To(Succeed())
		g.Expect(conditions.GetMessage(controlPlane, controlplanev1.ControlPlaneInitializedCondition)).To(ContainSubstring("kubeadm-init"))
	}).WithTimeout(patience).WithPolling(100 * time.Millisecond).Should(Succeed())
	g.Expect(dead.Writes()).To(Equal(written))
	g.Expect(host.Machine.Unknown()).To(BeEmpty())
}
