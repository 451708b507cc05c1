// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package skew

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/Masterminds/semver/v3"
	. "github.com/onsi/gomega"
)

// releaseVector is a line of testdata/distribution.yaml.
type releaseVector struct {
	Row, Names, At, To, Tool, Pool, MC string
	// Says is a part of what a refusal says.
	Says string
	// Warns is the rule that a warning names, of what is allowed.
	Warns     string
	Self      bool
	UC, Gates []string
}

func (v releaseVector) world(catalog Catalog) World {
	catalog.Gates, catalog.Tool = v.Gates, v.Tool
	if v.Tool == "" {
		catalog.Tool = v.To
	}
	world := World{Estate: &Estate{Catalog: catalog, Managing: v.MC, Self: v.Self}}
	world.APIServers = strings.Fields(v.At)
	for i, version := range v.UC {
		world.Estate.Managed = append(world.Estate.Managed, Managed{Object: fmt.Sprintf("Cluster uc-%d", i),
			Version: version})
	}
	for i, version := range strings.Fields(v.Pool) {
		world.Components = append(world.Components, Running{Component: Kubelet, Version: version,
			Object: fmt.Sprintf("Machine w%d", i+1)})
	}
	return world
}

func catalog(t testing.TB) Catalog {
	t.Helper()
	content, err := os.ReadFile("testdata/catalog.yaml")
	if err != nil {
		t.Fatal(err)
	}
	catalog, err := ReadCatalog(string(content))
	if err != nil {
		t.Fatal(err)
	}
	return catalog
}

// Each rule allows something and refuses something, and a refusal says what to do.
func TestVectorsOfTheDistribution(t *testing.T) {
	var vectors []releaseVector
	read(t, "distribution", &vectors)
	releases, allowed, refused := catalog(t), map[string]bool{}, map[string]bool{}
	for i, v := range vectors {
		t.Run(fmt.Sprintf("%d %s", i, v.Row), func(t *testing.T) {
			g := NewWithT(t)
			policy, world := policies["Distribution"], v.world(releases)
			world.Components = append(world.Components, Running{Component: KubeProxy, Version: "1.2.3", Object: "no kubelet"})
			violations := policy.Check(world)
			if v.To != "" {
				violations = policy.CheckStep(world, v.To)
			}
			_, warning := Distributed([]Policy{policy}, world, v.To)
			switch {
			case v.Warns != "":
				g.Expect(violations).To(BeEmpty(), Summary(violations))
				g.Expect(warning).To(HaveSuffix("(" + v.Warns + ")"))
				refused[v.Row] = true
				return
			case v.Names == "":
				g.Expect(violations).To(BeEmpty(), Summary(violations))
				allowed[v.Row] = true
				return
			}
			g.Expect(rules(violations)).To(Equal(v.Names), Summary(violations))
			g.Expect(violations).To(HaveEach(HaveField("Message()", MatchRegexp(`(bring|go to|set).*\(S0-\d+\)`))))
			g.Expect(Summary(violations)).To(ContainSubstring(v.Says))
			refused[v.Row] = true
		})
	}
	g := NewWithT(t)
	for _, v := range vectors {
		g.Expect(allowed).To(HaveKey(v.Row))
		g.Expect(refused).To(HaveKey(v.Row))
	}
}

func TestWhatADistributionSays(t *testing.T) {
	g := NewWithT(t)
	policy, releases := policies["Distribution"], catalog(t)
	for want, v := range map[string]releaseVector{
		"version v1.30.100-gke.95 is not the tool's: set v1.30.100-gke.96, or install the tool of that version first " +
			"(S0-16)": {
			At: "1.30.0-gke.1930", To: "1.30.100-gke.95", Tool: "1.30.100-gke.96"},
		"version v1.31.0-gke.889 is newer than managing cluster v1.28.500-gke.120: bring that to it first (S0-4)": {
			MC: "1.28.500-gke.120", At: "1.31.0-gke.889"},
		"version v1.16.6 of Cluster uc-0 is 3 minors behind managing cluster v1.30.100-gke.96 on the list of releases, " +
			"of which at most 2 are supported: bring it to v1.28 or later first (S0-7)": {
			Self: true, At: "1.29.500-gke.163", To: "1.30.100-gke.96", UC: []string{"1.16.6"}},
		"Cluster uc-0 is at 1.28.0-gke.425 and this one at v1.16.6, while managing cluster v1.28.500-gke.120 supports one " +
			"minor " +
			"for all that it manages: bring them to one (S0-11)": {MC: "1.28.500-gke.120", At: "1.16.6",
			UC: []string{"1.28.0-gke.425"}},
		"kubelet v1.16.6 of Machine w1 was released on 2024-02-20, after its cluster's v1.28.100-gke.146 on 2024-01-31: " +
			"bring the cluster to a release of that day or later first (S0-26)": {At: "1.28.100-gke.146", Pool: "1.16.6"},
		"kubelet v1.29.0-gke.1449 of Machine w1 is none of the versions that release v1.29.300-gke.185 lists for pools: " +
			"bring it to one of 1.29.300-gke.185, 1.29.100-gke.251, 1.28.500-gke.120 first (S0-30)": {
			At: "1.29.300-gke.185", Pool: "1.29.0-gke.1449"},
		"version v1.30.0-gke.1930 skips a minor after v1.28.0-gke.425: a control plane moves one minor at a time; go to " +
			"v1.29 first (S0-19)": {
			At: "1.28.0-gke.425", To: "1.30.0-gke.1930"},
	} {
		violations := policy.Check(v.world(releases))
		if v.To != "" {
			violations = policy.CheckStep(v.world(releases), v.To)
		}
		g.Expect(Summary(violations)).To(Equal(want))
	}
}

// A cluster that nobody knows the managing cluster of, as in a bootstrap cluster, is bound by its own rules alone.
func TestABootstrapClusterBindsNobody(t *testing.T) {
	g := NewWithT(t)
	v := releaseVector{At: "1.15.9", UC: []string{"1.29.0-gke.1449"}}
	g.Expect(policies["Distribution"].Check(v.world(catalog(t)))).To(BeEmpty())
}

// What is wrong already is no reason to keep a cluster from what makes nothing worse.
func TestAnIllegalEstateCanBeRepaired(t *testing.T) {
	g := NewWithT(t)
	chosen, err := Policies("Distribution")
	g.Expect(err).NotTo(HaveOccurred())
	for name, v := range map[string]releaseVector{
		"a managed cluster that is too old comes nearer": {MC: "1.30.100-gke.96", At: "1.15.4", To: "1.15.9"},
		"a managing cluster gets a patch": {Self: true, At: "1.30.0-gke.1930", To: "1.30.100-gke.96",
			UC: []string{"1.15.9"}},
		"a pool that is too new for its cluster's day stays so": {At: "1.29.0-gke.1449", To: "1.29.100-gke.251",
			Pool: "1.28.900-gke.112"},
	} {
		refusal, _ := Target(chosen, v.world(catalog(t)), v.To)
		g.Expect(refusal).To(BeEmpty(), name)
	}
}

// A pool that is ahead waits for the tool's version, and for no other.
func TestAPoolWaitsForTheToolsVersion(t *testing.T) {
	chosen, err := Policies("Distribution")
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	for _, c := range []struct{ at, tool, pool, refused, waits string }{
		{"1.29.0-gke.1449", "1.29.300-gke.185", "1.29.100-gke.251", "", "S0-23"},
		{"1.29.0-gke.1449", "1.29.0-gke.1449", "1.29.100-gke.251", "S0-23", ""},
		{"1.29.500-gke.163", "1.30.0-gke.1930", "1.30.100-gke.96", "S0-23", "R2"},
		{"1.30.0-gke.1930", "1.30.0-gke.1930", "1.29.500-gke.163", "", ""},
	} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			g := NewWithT(t)
			world := releaseVector{At: c.at, Tool: c.tool}.world(catalog(t))
			refused, waits := Pool{Object: "MachineDeployment blue", Version: c.pool}.Judge(chosen, world)
			g.Expect(rules(refused)).To(Equal(c.refused))
			g.Expect(rules(waits)).To(Equal(c.waits))
		})
	}
}

// The tool may have been taken back in the middle of a rollout.
func TestAPoolWaitsForTheRestOfItsControlPlane(t *testing.T) {
	g := NewWithT(t)
	chosen, err := Policies("Distribution")
	g.Expect(err).NotTo(HaveOccurred())
	world := releaseVector{At: "1.29.0-gke.1449", Tool: "1.29.0-gke.1449"}.world(catalog(t))
	world.APIServers = append(world.APIServers, "1.29.300-gke.185")
	refused, waits := Pool{Version: "1.29.300-gke.185"}.Judge(chosen, world)
	g.Expect(rules(refused)).To(BeEmpty())
	g.Expect(rules(waits)).To(Equal("S0-23"))
}

// What runs already asks for nothing new.
func TestAWorldThatRunsOnlyOneVersion(t *testing.T) {
	for _, c := range []struct {
		servers, version string
		only             bool
	}{
		{"v1.36.3", "v1.36.3", true},
		{"v1.36.3 1.36.3", "1.36.3", true},
		{"v1.36.3 v1.36.2", "v1.36.3", false},
		{"v1.36.3 v1.36.4", "v1.36.3", false},
		{"v1.36.3", "v1.36.4", false},
		{"v1.36.3", "latest", false},
		{"", "v1.36.3", false},
	} {
		NewWithT(t).Expect(World{APIServers: strings.Fields(c.servers)}.RunsOnly(c.version)).To(Equal(c.only), "%v", c)
	}
}

// Minors are what the list of releases says they are.
func TestVectorsOfMinors(t *testing.T) {
	var vectors []struct {
		Row, Of, To, Next, Back string
		List                    []string
		Apart                   uint64
	}
	read(t, "minors", &vectors)
	for _, v := range vectors {
		t.Run(fmt.Sprint(v.List, v.Of), func(t *testing.T) {
			g := NewWithT(t)
			releases := Catalog{}
			for _, version := range v.List {
				releases.Releases = append(releases.Releases, Release{Version: version})
			}
			minors, of := releases.minors(), semver.MustParse(v.Of)
			g.Expect(minors.distance(of, semver.MustParse(v.To))).To(Equal(v.Apart))
			g.Expect(minors.distance(semver.MustParse(v.To), of)).To(Equal(v.Apart))
			g.Expect(minors.next(of)).To(Equal(v.Next))
			g.Expect(minors.back(of, 2)).To(Equal(v.Back))
		})
	}
}

// Advice names a minor that there is.
func TestMinorsAreNamedAlongTheList(t *testing.T) {
	releases := Catalog{Tool: "v1.37.0", Releases: []Release{{Version: "v1.33.0"}, {Version: "v1.35.0"}}}
	world := World{APIServers: []string{"v1.33.2"}, Estate: &Estate{Catalog: releases}}
	NewWithT(t).Expect(Summary(policies["Distribution"].CheckStep(world, "v1.37.0"))).
		To(ContainSubstring("go to v1.35 first (S0-19)"))
}

func rules(violations []Violation) string {
	var all []string
	for _, violation := range violations {
		all = append(all, string(violation.Rule))
	}
	return strings.Join(all, " ")
}

// What nobody knows the releases of is held.
func TestACatalogThatNobodyKnows(t *testing.T) {
	g := NewWithT(t)
	chosen, err := Policies("Distribution")
	g.Expect(err).NotTo(HaveOccurred())
	world := World{APIServers: []string{"v1.30.0"}, Estate: &Estate{Problem: "make the ConfigMap"}}
	refusal, _ := Target(chosen, world, "v1.30.1")
	g.Expect(refusal).To(Equal("make the ConfigMap"))
	refused, _ := Pool{Version: "v1.30.0"}.Judge(chosen, world)
	g.Expect(rules(refused)).To(Equal(string(RuleCatalog)))
	world.Estate = nil
	refusal, _ = Target(chosen, world, "v1.30.1")
	g.Expect(refusal).To(ContainSubstring("no catalog"))
	refused, _ = Pool{Version: "v1.30.0"}.Judge(chosen, world)
	g.Expect(Summary(refused)).To(ContainSubstring("no catalog"))
	ordinary, _ := Policies("")
	refusal, _ = Target(ordinary, World{APIServers: []string{"v1.30.0"}}, "v1.30.1")
	g.Expect(refusal).To(BeEmpty())
}

func TestACatalogThatCannotBeRead(t *testing.T) {
	for text, says := range map[string]string{
		"tool: latest": "is not a semantic version",
		"{tool: v1.30.1, releases: [{version: v1.30.1, released: soon}]}": "release v1.30.1",
		"{tool: v1.30.1, releases: [{version: v1.30.1, pools: [v1.29]}]}": "v1.29",
		"{tool: v1.30.1, release: []}":                                    "release",
		"":                                                                "is not a semantic version",
	} {
		_, err := ReadCatalog(text)
		NewWithT(t).Expect(err).To(MatchError(ContainSubstring(says)), text)
	}
}
