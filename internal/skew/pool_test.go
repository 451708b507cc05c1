// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package skew

import (
	"testing"

	. "github.com/onsi/gomega"
)

// Proves: S0-23, S0-31, S1-4, S1-5, S1-21, S1-25, R2, R3
func TestAPool(t *testing.T) {
	proxy := func(version string) Running { return Running{Component: KubeProxy, Version: version} }
	for name, c := range map[string]struct {
		pool           Pool
		servers        []string
		policies       string
		proxy          Running
		refused, waits Rule
		says           string
	}{
		"follows its control plane":                  {pool: Pool{Version: "v1.36.3"}, servers: []string{"v1.36.3"}},
		"follows a patch that the control plane has": {pool: Pool{Version: "v1.36.9"}, servers: []string{"v1.36.3"}},
		"stays three minors behind":                  {pool: Pool{Version: "v1.33.1"}, servers: []string{"v1.36.3"}},
		"is too far behind": {pool: Pool{Version: "v1.32.1"}, servers: []string{"v1.36.3"},
			refused: "R2", says: "bring it to v1.33 or later"},
		"is too far behind for what is to come": {pool: Pool{Version: "v1.33.1", ControlPlane: "v1.37.0"},
			servers: []string{"v1.36.3"}, refused: "R3"},
		"is too far behind for its Cluster's policy": {pool: Pool{Version: "v1.33.1"}, servers: []string{"v1.36.3"},
			policies: "Kubernetes-1.24", refused: "S1-5"},
		"comes in one commit with its control plane": {pool: Pool{Version: "v1.36.3", ControlPlane: "v1.36.3"},
			servers: []string{"v1.35.4"}, waits: "R3"},
		"comes before its control plane": {pool: Pool{Version: "v1.36.3", ControlPlane: "v1.35.4"},
			servers: []string{"v1.35.4"}, waits: "R2"},
		"comes in the middle of a rollout": {pool: Pool{Version: "v1.36.3"},
			servers: []string{"v1.36.3", "v1.35.4"}, waits: "R3", says: "bring the API servers to v1.36"},
		"is two minors ahead": {pool: Pool{Version: "v1.37.0"}, servers: []string{"v1.35.4"},
			refused: "R2", says: "bring the API servers to v1.37"},
		"is new, and nothing runs yet": {pool: Pool{Version: "v1.36.3", ControlPlane: "v1.36.3"}},
		"is new, and nothing is known": {pool: Pool{Version: "v1.40.0"}},
		"goes back":                    {pool: Pool{Version: "v1.35.2"}, servers: []string{"v1.36.3"}},
		"goes back too far": {pool: Pool{Version: "v1.32.4"}, servers: []string{"v1.36.3"},
			refused: "R2"},
		"is three behind in a chain of upgrades": {pool: Pool{Version: "v1.36.3", ControlPlane: "v1.37.0"},
			servers: []string{"v1.36.3"}},
		"is both too old and too new": {pool: Pool{Version: "v1.36.3", ControlPlane: "v1.40.0"},
			servers: []string{"v1.35.3"}, refused: "R3", waits: "R3"},
		"is of another major": {pool: Pool{Version: "v2.0.0"}, servers: []string{"v1.36.3"},
			refused: "R2", says: "by a major"},
		"is older than kube-proxy": {pool: Pool{Version: "v1.23.4"}, servers: []string{"v1.24.3"}, proxy: proxy("v1.24.3"),
			policies: "Kubernetes-1.24", refused: "S1-25", says: "kube-proxy v1.24.3 of DaemonSet kube-proxy beside " +
				"MachineDeployment blue is 1 minor from kubelet v1.23.4"},
		"is older than kube-proxy, and may be": {pool: Pool{Version: "v1.23.4"}, servers: []string{"v1.24.3"},
			proxy: proxy("v1.24.3")},
		"is of the minor of kube-proxy": {pool: Pool{Version: "v1.24.0"}, servers: []string{"v1.24.3"},
			proxy: proxy("v1.24.3"), policies: "Kubernetes-1.24"},
		"is newer than kube-proxy, which follows": {pool: Pool{Version: "v1.24.0"}, servers: []string{"v1.24.3"},
			proxy: proxy("v1.23.4"), policies: "Kubernetes-1.24"},
		"is older than a kube-proxy that is left alone": {pool: Pool{Version: "v1.23.4"}, servers: []string{"v1.24.3"},
			proxy: Running{Component: KubeProxy, Version: "v1.24.3", Kept: true}, policies: "Kubernetes-1.24"},
		"is older than something else": {pool: Pool{Version: "v1.23.4"}, servers: []string{"v1.24.3"},
			proxy: Running{Component: Scheduler, Version: "v1.24.3"}, policies: "Kubernetes-1.24"},
		"is older than a kube-proxy of no version": {pool: Pool{Version: "v1.23.4"}, servers: []string{"v1.24.3"},
			proxy: proxy("latest"), policies: "Kubernetes-1.24"},
		"has no version": {pool: Pool{Version: "latest"}, servers: []string{"v1.36.3"},
			refused: RuleInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			chosen, err := Policies(c.policies)
			g.Expect(err).NotTo(HaveOccurred())
			c.pool.Object = "MachineDeployment blue"
			refused, waits := c.pool.Judge(chosen, World{APIServers: c.servers, Components: []Running{c.proxy}})
			for rule, violations := range map[*Rule][]Violation{&c.refused: refused, &c.waits: waits} {
				if *rule == "" {
					g.Expect(violations).To(BeEmpty())
				} else {
					g.Expect(violations).To(ConsistOf(HaveField("Rule", *rule)))
				}
			}
			g.Expect(Summary(append(refused, waits...))).To(ContainSubstring(c.says))
		})
	}
}

// Proves: S1-25
func TestKubeProxyIsAskedForWhereAPolicyBindsItToItsKubelet(t *testing.T) {
	g := NewWithT(t)
	for names, asked := range map[string]bool{
		"": false, "Kubernetes-1.24": true, "Distribution": false, "Distribution,Kubernetes-1.24": true,
	} {
		chosen, err := Policies(names)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(AskForProxy(chosen)).To(Equal(asked), names)
	}
}
