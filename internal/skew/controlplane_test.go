// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package skew

import (
	"errors"
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
)

// Each step is allowed, or refused by its rule with the way out.
func TestControlPlaneStep(t *testing.T) {
	var steps []struct{ Row, From, To, Names, Says string }
	read(t, "steps", &steps)
	for i, step := range steps {
		t.Run(fmt.Sprintf("%d %s", i, step.Row), func(t *testing.T) {
			g := NewWithT(t)
			err := ControlPlaneStep(step.From, step.To)
			if step.Names == "" {
				if err != nil { // nor an interface that holds a nil pointer, which gomega takes for none
					t.Fatal(err)
				}
				return
			}
			var violation *ViolationError
			g.Expect(errors.As(err, &violation)).To(BeTrue())
			g.Expect(violation.Rule).To(Equal(Rule(step.Names)))
			g.Expect(violation.Error()).To(ContainSubstring(step.Says))
		})
	}
}

func TestOlder(t *testing.T) {
	g := NewWithT(t)
	g.Expect(Older("v1.35.4", "v1.36.0")).To(BeTrue())
	g.Expect(Older("v1.36.0", "v1.35.4")).To(BeFalse())
	g.Expect(Older("v1.36.0", "v1.36.0")).To(BeFalse())
	g.Expect(Older("v1.9.0", "v1.10.0")).To(BeTrue())
	for _, none := range []string{"latest", "what"} {
		g.Expect(Older(none, "v1.10.0")).To(BeTrue())
		g.Expect(Older("v1.10.0", none)).To(BeFalse())
		g.Expect(Older(none, none)).To(BeFalse())
	}
	g.Expect(Older("a", "b")).To(BeTrue())
	g.Expect(Older("b", "a")).To(BeFalse())
}

// What is no version is of no minor, so of no other one.
func TestOtherMinor(t *testing.T) {
	for _, c := range []struct {
		a, b  string
		other bool
	}{
		{"v1.36.3", "v1.35.4", true},
		{"v1.36.3", "1.36.0", false},
		{"v1.36.3", "v2.36.3", true},
		{"v1.36.3", "latest", false},
		{"latest", "v1.36.3", false},
	} {
		NewWithT(t).Expect(OtherMinor(c.a, c.b)).To(Equal(c.other), "%v", c)
	}
}

// A refusal has the numbers of all policies that say the same, the default one's first.
//
// Proves: S1-14, S0-15, S0-19
func TestARefusedStepHasTheNumbersOfAllPolicies(t *testing.T) {
	g := NewWithT(t)
	both, err := Policies("Kubernetes-1.24, Distribution")
	g.Expect(err).NotTo(HaveOccurred())
	of := func(policies []Policy, target string) string {
		return ControlPlaneSteps(policies, World{APIServers: []string{"v1.28.3", "v1.29.5"}}, target).Numbered()
	}
	g.Expect(of(both, "v1.30.1")).To(HaveSuffix("go to v1.29 first (R8, S1-14, S0-19)"))
	g.Expect(of(both, "v1.29.4")).To(MatchRegexp(`older than v1\.29\.5, .* \(R21, .*S0-15\)$`))
	g.Expect(of(DefaultPolicies(), "v1.30.1")).To(HaveSuffix(" (R8)"))
	g.Expect(ControlPlaneSteps(both, World{APIServers: []string{"v1.29.5"}}, "v1.30.1")).To(BeNil())
	g.Expect(ControlPlaneSteps(both, World{}, "v1.40.0")).To(BeNil(), "nothing runs")
	g.Expect(ControlPlaneSteps(both, World{APIServers: []string{"v1.29.5"}}, "newest")).To(BeNil(), "it is no version")

	skips := World{APIServers: []string{"v1.16.6"}, Estate: &Estate{Catalog: Catalog{Releases: []Release{
		{Version: "v1.16.6"}, {Version: "v1.28.0"}}}}}
	g.Expect(ControlPlaneSteps(both, skips, "v1.28.0").Numbered()).To(HaveSuffix("(R8, S1-14)"),
		"of which the distribution has no minors between")
}
