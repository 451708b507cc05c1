// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package skew

import "fmt"

// Maintained are the minors that their makers give patches.
type Maintained struct {
	// Newest is the newest minor that is known here. A later one only ends the maintenance of more.
	Newest uint64 `json:"newest"`
	// Minors is how many of the newest get patches.
	Minors uint64 `json:"minors"`
	Rule   Rule   `json:"rule"`
}

// Unmaintained says of a version of Kubernetes that its minor gets no patches any more; empty when it may get some, and
// when the version is none.
func Unmaintained(version string) string {
	of := policies[DefaultPolicy].Maintained
	parsed, err := Parse(version)
	if err != nil || parsed.Minor()+of.Minors > of.Newest {
		return ""
	}
	return fmt.Sprintf("v%d.%d gets no patches any more, which v%d.%d and later do (%s)", parsed.Major(), parsed.Minor(),
		parsed.Major(), of.Newest-of.Minors+1, of.Rule)
}
