// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package docstest holds what the documentation shows against what happens.
package docstest

import (
	"os"
	"regexp"
	"testing"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/yaml"
)

var (
	block  = regexp.MustCompile("(?s)\n```(\\w*)\n(.*?\n)```")
	indent = regexp.MustCompile(`(?m)^ +`)
)

// Happens expects that each block of a page without a language is in the script of a test, however it is indented
// there, and that what is yaml is such an object. It returns how many there are of both.
func Happens(t *testing.T, page, script string, object any) (shown int) {
	t.Helper()
	g := NewWithT(t)
	docs, err := os.ReadFile(page) //nolint:gosec // of the repository
	g.Expect(err).NotTo(HaveOccurred())
	happens, err := os.ReadFile(script) //nolint:gosec // of the repository
	g.Expect(err).NotTo(HaveOccurred())
	for _, found := range block.FindAllStringSubmatch(string(docs), -1) {
		switch found[1] {
		case "":
			g.Expect(indent.ReplaceAllString(string(happens), "")).To(ContainSubstring(indent.ReplaceAllString(found[2], "")))
			shown++
		case "yaml":
			g.Expect(yaml.UnmarshalStrict([]byte(found[2]), object)).To(Succeed())
			shown++
		}
	}
	return shown
}
