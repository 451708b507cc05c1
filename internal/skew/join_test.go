// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package skew

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

// Proves: C17
func TestJoiningKubeadm(t *testing.T) {
	for name, c := range map[string]struct {
		node         string
		controlPlane []string
		want         string
	}{
		"a minor older":            {"v1.35.4", []string{"v1.36.3"}, "v1.36.3"},
		"three minors older":       {"v1.33.9", []string{"v1.36.3"}, "v1.36.3"},
		"of a later major":         {"v2.0.1", []string{"v1.36.3"}, "v2.0.1"},
		"a patch older":            {"v1.36.1", []string{"v1.36.3"}, "v1.36.1"},
		"the same":                 {"v1.36.3", []string{"v1.36.3"}, "v1.36.3"},
		"newer":                    {"v1.36.3", []string{"v1.35.4"}, "v1.36.3"},
		"during an upgrade":        {"v1.35.4", []string{"v1.36.3", "v1.35.4"}, "v1.35.4"},
		"two minors, during one":   {"v1.34.1", []string{"v1.36.3", "v1.35.4"}, "v1.35.4"},
		"nothing known":            {"v1.35.4", nil, "v1.35.4"},
		"nothing that can be read": {"v1.35.4", []string{"", "latest"}, "v1.35.4"},
		"a node that cannot":       {"latest", []string{"v1.36.3"}, "latest"},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(JoiningKubeadm(c.node, c.controlPlane...)).To(Equal(c.want))
		})
	}
}

func TestTheNewestAndTheOldest(t *testing.T) {
	for _, c := range []struct{ versions, oldest, newest string }{
		{"", "", ""},
		{"latest what", "", ""},
		{"v1.36.3", "v1.36.3", "v1.36.3"},
		{"v1.36.3 v1.37.0 v1.35.4 v1.36.0", "v1.35.4", "v1.37.0"},
		{"latest v1.36.3 what v1.37.0 latest", "v1.36.3", "v1.37.0"},
		{"what v1.37.0 latest v1.36.3 what", "v1.36.3", "v1.37.0"},
	} {
		g := NewWithT(t)
		g.Expect(Oldest(strings.Fields(c.versions)...)).To(Equal(c.oldest), c.versions)
		g.Expect(Newest(strings.Fields(c.versions)...)).To(Equal(c.newest), c.versions)
	}
}

// Proves: R14, R15
//
// Whatever pool may make Machines, they join with a kubeadm that fits their kubelet and their cluster.
func TestTheKubeadmThatJoinsIsSupported(t *testing.T) {
	joined := 0
	for _, servers := range [][]int{{37}, {37, 36}, {36}} {
		for pool := 30; pool < 40; pool++ {
			world := vector{API: servers}.world()
			policy := policies[DefaultPolicy]
			refused, waits := Pool{Version: of(pool)}.Judge([]Policy{policy}, world)
			if len(refused)+len(waits) > 0 {
				continue
			}
			joined++
			violations := policy.CheckInstaller(Installer{Object: "Machine w1", Kubelet: of(pool),
				Version: JoiningKubeadm(of(pool), world.APIServers...), Cluster: Oldest(world.APIServers...)})
			NewWithT(t).Expect(rules(violations)).To(BeEmpty(), Summary(violations))
		}
	}
	g := NewWithT(t)
	g.Expect(joined).To(BeNumerically(">", 6))
	g.Expect(policies[DefaultPolicy].CheckInstaller(Installer{Version: "latest", Kubelet: "v1.36.3"})).To(BeEmpty())
	g.Expect(policies["Kubernetes-1.24"].CheckInstaller(Installer{Version: "v1.37.3", Kubelet: "v1.20.3"})).To(BeEmpty(),
		"it bounds none")
	own := policies[DefaultPolicy].CheckInstaller(Installer{Object: "Machine w1", Version: "v1.34.2", Kubelet: "v1.34.2",
		Cluster: "v1.36.3"})
	g.Expect(Summary(own)).To(Equal("kubeadm v1.34.2 of Machine w1 is 2 minors from a cluster of kubeadm v1.36.3 (R15): " +
		"bring it to v1.36 first"))
}
