// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"testing"

	. "github.com/onsi/gomega"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew"
)

// Why there is no plan is said with what to do.
func TestWhyThereIsNoPlan(t *testing.T) {
	topology := &Topology{Known: []string{"v1.35.4", "v1.36.3"}}
	for name, c := range map[string]struct {
		cluster Cluster
		runs    string
		via     []string
		reason  string
		says    string
	}{
		"there is one": {runs: "v1.35.4"},
		"policies are not known": {Cluster{Problem: "no policy is called odd"}, "v1.35.4", nil, quoinv1.NoPlanReason,
			"no policy is called odd"},
		"a topology heeds no via": {Cluster{Topology: topology}, "v1.35.4", []string{"v1.36.1"}, quoinv1.NoPlanReason,
			"remove it"},
		"an extension plans": {Cluster{Topology: &Topology{Extension: "way"}}, "v1.35.4", nil, quoinv1.NoPlanReason,
			"runtime extension way plans"},
		"a topology that lists it":     {cluster: Cluster{Topology: topology}, runs: "v1.35.4"},
		"a topology that lists no hop": {Cluster{Topology: topology}, "v1.33.4", nil, quoinv1.NoPlanReason, "v1.33.4"},
		"nobody names the hop":         {Cluster{}, "v1.34.4", nil, quoinv1.HopsUnknownReason, "name in spec.via"},
		"the hop is named":             {runs: "v1.34.4", via: []string{"v1.35.4"}},
		"it would go back":             {Cluster{}, "v1.37.0", nil, quoinv1.NoPlanReason, "v1.37.0"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			c.cluster.Policies, _ = skew.Policies("")
			w := World{Cluster: &c.cluster, ControlPlane: ControlPlane{Runs: []string{c.runs}}}
			found, unplanned := w.plan(quoinv1.ClusterUpgradeSpec{Version: "v1.36.3", Via: c.via})
			if c.reason == "" {
				g.Expect(unplanned).To(BeNil())
				g.Expect(found.Hops[len(found.Hops)-1]).To(Equal("v1.36.3"))
				return
			}
			g.Expect(unplanned).NotTo(BeNil())
			g.Expect(unplanned.reason).To(Equal(c.reason))
			g.Expect(unplanned.Error()).To(ContainSubstring(c.says))
			g.Expect(found.Steps).To(BeEmpty())
		})
	}
}
