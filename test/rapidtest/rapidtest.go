// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rapidtest checks properties for as long as it takes.
package rapidtest

import (
	"flag"
	"strconv"
	"testing"

	. "github.com/onsi/gomega"
	"pgregory.net/rapid"
)

// CheckAll checks as much as -rapid.checks asks for; enough where it says nothing. Near the end of a test's time rapid
// ends early, and is content: here that is an error.
func CheckAll(t *testing.T, enough int, property func(*rapid.T)) {
	t.Helper()
	checks := flag.Lookup("rapid.checks")
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == checks.Name })
	if !given {
		NewWithT(t).Expect(checks.Value.Set(strconv.Itoa(enough))).To(Succeed())
		defer func() { _ = checks.Value.Set(checks.DefValue) }()
	}
	asked, err := strconv.Atoi(checks.Value.String())
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	checked := 0
	rapid.Check(t, func(t *rapid.T) {
		property(t)
		checked++
	})
	if checked < asked {
		t.Errorf("only %d of %d were checked before the time was over", checked, asked)
	}
}
