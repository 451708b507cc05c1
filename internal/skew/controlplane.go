// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package skew holds the version rules of Kubernetes that Quoin keeps. It is pure: admission, the control plane's
// controller and plans ask the same functions and so give the same answer.
package skew

import (
	"fmt"
	"slices"
	"strings"

	"github.com/Masterminds/semver/v3"
)

// Rule names the rule that a refusal rests on.
type Rule string

// RuleInvalid means: the string is no version.
const RuleInvalid Rule = "InvalidVersion"

// ViolationError is a refused version change. Its message says what to do instead.
type ViolationError struct {
	Rule Rule
	// also are the rules of further policies that say the same.
	also    []Rule
	message string
}

// Error tells the rule and the way out.
func (v *ViolationError) Error() string { return v.message }

// Parse reads a Kubernetes version, with or without a leading v. All three numbers are required: "1.36" names no
// release whose artifacts could be installed.
func Parse(version string) (*semver.Version, error) {
	parsed, err := semver.StrictNewVersion(strings.TrimPrefix(version, "v"))
	if err != nil {
		return nil, &ViolationError{Rule: RuleInvalid,
			message: fmt.Sprintf("version %q is not a semantic version: use the form v1.36.3", version)}
	}
	return parsed, nil
}

// ControlPlaneStep says whether a control plane of version from may be given version to under the default policy: the
// same version, a later patch of the same minor, or any patch of the next minor (R8, R21). A nil error allows it; a
// *ViolationError refuses it.
func ControlPlaneStep(from, to string) error {
	if _, err := Parse(to); err != nil {
		return err
	}
	if _, err := Parse(from); err != nil {
		return err
	}
	if refused := ControlPlaneSteps(DefaultPolicies(), World{APIServers: []string{from}}, to); refused != nil {
		return refused // and no interface that holds a nil pointer
	}
	return nil
}

// ControlPlaneSteps says why API servers that run may not be given the target version, for the first of the policies
// that refuses it, with the rules of those after it that do so as well; nil when none does, and for what is no version.
// Components are not asked.
func ControlPlaneSteps(policies []Policy, world World, target string) (refused *ViolationError) {
	wanted := parsed([]string{target})
	if len(wanted) == 0 {
		return nil
	}
	for _, policy := range policies {
		next := policy.APIServers.step(parsed(world.APIServers), wanted[0], policy.scale(world))
		switch {
		case next == nil:
		case refused == nil:
			refused = next
		default:
			refused.also = append(refused.also, next.Rule)
		}
	}
	return refused
}

// step says why API servers, which are sorted, may not be given the target version; nil when they may. Etcd's data and
// stored objects migrate in one direction only, and each API server can read what the minor before it has stored.
func (a APIServers) step(servers []*semver.Version, target *semver.Version, minors scale) *ViolationError {
	if len(servers) == 0 {
		return nil
	}
	oldest, newest := servers[0], last(servers)
	switch {
	case Compare(target, newest) < 0:
		return &ViolationError{Rule: a.Back, message: fmt.Sprintf("version %s is older than %s, which already runs: "+
			"a control plane never goes back; set %s or later", text(target), text(newest), text(newest))}
	case minors.distance(target, oldest) > a.Apart.Minors:
		return &ViolationError{Rule: a.Apart.Step, message: fmt.Sprintf("version %s skips a minor after %s: a control plane "+
			"moves one minor at a time; go to %s first", text(target), text(oldest), minors.next(oldest))}
	}
	return nil
}

// Numbered is the text of the refusal with the numbers of its rules, for people who read it alone.
func (v *ViolationError) Numbered() string {
	return fmt.Sprintf("%s (%s)", v.message, Numbers(append([]Rule{v.Rule}, v.also...)))
}

// Numbers of rules as messages have them: each once, in their order.
func Numbers(rules []Rule) string {
	var numbers []string
	for _, rule := range rules {
		if !slices.Contains(numbers, string(rule)) {
			numbers = append(numbers, string(rule))
		}
	}
	return strings.Join(numbers, ", ")
}

// Older reports whether version a comes before version b. Strings that are no versions sort first, by their text.
func Older(a, b string) bool {
	left, leftErr := Parse(a)
	right, rightErr := Parse(b)
	switch {
	case leftErr != nil && rightErr != nil:
		return a < b
	case leftErr != nil || rightErr != nil:
		return leftErr != nil
	}
	return Compare(left, right) < 0
}

// OtherMinor reports whether two versions are of different minors; what is no version is of none.
func OtherMinor(a, b string) bool {
	left, leftErr := Parse(a)
	right, rightErr := Parse(b)
	return leftErr == nil && rightErr == nil && distance(left, right) != 0
}
