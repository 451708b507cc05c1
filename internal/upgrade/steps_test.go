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

// A version that runs is a step's end once what runs it has settled, unless a later one was set since.
func TestAStepEndsOnceItsObjectHasSettled(t *testing.T) {
	const settling = "a Machine leaves"
	for name, c := range map[string]struct {
		of            quoinv1.UpgradeStepType
		runs, set     string
		saysOfPlane   string
		addons, pools string
		want          bool
	}{
		"a control plane has settled":     {quoinv1.UpgradeStepControlPlane, "v1.36.3", "v1.36.3", "", settling, settling, true},
		"it settles":                      {quoinv1.UpgradeStepControlPlane, "v1.36.3", "v1.36.3", settling, "", "", false},
		"it settles at a later one":       {quoinv1.UpgradeStepControlPlane, "v1.36.3", "v1.36.4", settling, "", "", true},
		"it runs an older one":            {quoinv1.UpgradeStepControlPlane, "v1.35.4", "v1.36.3", "", "", "", false},
		"add-ons have settled":            {quoinv1.UpgradeStepAddons, "v1.36.3", "v1.36.3", settling, "", settling, true},
		"they settle":                     {quoinv1.UpgradeStepAddons, "v1.36.3", "v1.36.3", "", settling, "", false},
		"they settle at a later one":      {quoinv1.UpgradeStepAddons, "v1.36.3", "v1.36.4", "", settling, "", true},
		"a pool has settled":              {quoinv1.UpgradeStepWorkers, "v1.36.3", "v1.36.3", settling, settling, "", true},
		"it has not":                      {quoinv1.UpgradeStepWorkers, "v1.36.3", "v1.36.3", "", "", settling, false},
		"it has a later one, and settles": {quoinv1.UpgradeStepWorkers, "v1.36.3", "v1.36.4", "", "", settling, true},
	} {
		w := World{ControlPlane: ControlPlane{Field: Field{Value: c.set}, Runs: []string{c.runs}, Unsettled: c.saysOfPlane,
			Addons: c.addons}, Pools: []Pool{{Field: Field{Object: blue, Value: c.set}, Runs: []string{c.runs},
			Unsettled: c.pools}}}
		w.index()
		step := quoinv1.UpgradeStep{Type: c.of, Object: blue, To: "v1.36.3"}
		NewWithT(t).Expect(w.satisfied(step)).To(Equal(c.want), name)
	}
}
