// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package skew

import (
	"errors"
	"testing"

	. "github.com/onsi/gomega"
)

// Proves: R8, R21, S0-15, S0-17, S0-18, S0-19, S1-1, S1-14
func TestControlPlaneStep(t *testing.T) {
	for _, step := range []struct {
		from, to string
		rule     Rule // "" is allowed
		message  string
	}{
		{"v1.35.4", "v1.35.4", "", ""},
		{"v1.35.0", "v1.35.4", "", ""},
		{"v1.35.4", "v1.36.0", "", ""},
		{"v1.35.4", "v1.36.3", "", ""},
		{"1.35.4", "v1.36.3", "", ""},
		{"v1.36.0-rc.1", "v1.36.0", "", ""},
		{"v1.35.4", "v1.37.0", "R8", "go to v1.36 first"},
		{"v1.35.4", "v1.38.1", "R8", "go to v1.36 first"},
		{"v1.36.3", "v2.0.0", "R8", ""},
		{"v1.35.4", "v1.35.3", "R21", "set v1.35.4 or later"},
		{"v1.36.0", "v1.35.4", "R21", "never goes back"},
		{"v1.36.0", "v1.36.0-rc.1", "R21", ""},
		{"v1.36.3", "latest", RuleInvalid, "v1.36.3"},
		{"v1.36.3", "v1.37", RuleInvalid, ""},
		{"1.36", "v1.36.3", RuleInvalid, ""},
		{"v1.36.3", "", RuleInvalid, ""},
	} {
		t.Run(step.from+" to "+step.to, func(t *testing.T) {
			g := NewWithT(t)
			err := ControlPlaneStep(step.from, step.to)
			if step.rule == "" {
				if err != nil { // nor an interface that holds a nil pointer, which gomega takes for none
					t.Fatal(err)
				}
				return
			}
			var violation *ViolationError
			g.Expect(errors.As(err, &violation)).To(BeTrue())
			g.Expect(violation.Rule).To(Equal(step.rule))
			g.Expect(violation.Error()).To(ContainSubstring(step.message))
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
