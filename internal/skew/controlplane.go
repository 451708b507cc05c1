// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package skew holds the version rules of Kubernetes that Quoin keeps. It is pure: admission, the control plane's
// controller and plans ask the same functions and so give the same answer.
package skew

import (
	"fmt"

	"github.com/Masterminds/semver/v3"
)

// Rule names the rule that a refusal rests on.
type Rule string

const (
	// RuleInvalid means: the string is no version.
	RuleInvalid Rule = "InvalidVersion"
	// RuleDowngrade means: a control plane never goes back (R21, S0-15): etcd's data and stored objects only migrate forward.
	RuleDowngrade Rule = "Downgrade"
	// RuleMinorSkip means: a control plane moves one minor at a time (R8, S1-14).
	RuleMinorSkip Rule = "MinorSkip"
)

// ViolationError is a refused version change. Its message says what to do instead.
type ViolationError struct {
	Rule     Rule
	From, To string
	message  string
}

// Error tells the rule and the way out.
func (v *ViolationError) Error() string { return v.message }

// Parse reads a Kubernetes version, with or without a leading v. All three numbers are required: "1.36" names no
// release whose artifacts could be installed.
func Parse(version string) (*semver.Version, error) {
	trimmed := version
	if len(trimmed) > 0 && trimmed[0] == 'v' {
		trimmed = trimmed[1:]
	}
	parsed, err := semver.StrictNewVersion(trimmed)
	if err != nil {
		return nil, &ViolationError{Rule: RuleInvalid, To: version,
			message: fmt.Sprintf("version %q is not a semantic version: use the form v1.36.3", version)}
	}
	return parsed, nil
}

// ControlPlaneStep says whether a control plane of version from may be given version to: the same version, a later
// patch of the same minor, or any patch of the next minor. A nil error allows it; a *ViolationError refuses it.
func ControlPlaneStep(from, to string) error {
	target, err := Parse(to)
	if err != nil {
		return err
	}
	current, err := Parse(from)
	if err != nil {
		return err
	}
	switch {
	case Compare(target, current) < 0:
		return &ViolationError{Rule: RuleDowngrade, From: from, To: to,
			message: fmt.Sprintf("version %s is older than %s, which already runs: a control plane never goes back; "+
				"set %s or later", to, from, from)}
	case target.Major() != current.Major() || target.Minor() > current.Minor()+1:
		return &ViolationError{Rule: RuleMinorSkip, From: from, To: to,
			message: fmt.Sprintf("version %s skips a minor after %s: a control plane moves one minor at a time; "+
				"go to v%d.%d first", to, from, current.Major(), current.Minor()+1)}
	}
	return nil
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
