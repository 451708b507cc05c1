// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package docstest holds what the documentation shows against what happens.
package docstest

import (
	"os"
	"regexp"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/yaml"
)

var (
	block  = regexp.MustCompile("(?s)\n```(\\w*)\n(.*?\n)```")
	indent = regexp.MustCompile(`(?m)^ +`)
)

// Commands are the blocks of shell commands of a page that contain a text.
func Commands(t *testing.T, page, text string) (found []string) {
	t.Helper()
	docs, err := os.ReadFile(page) //nolint:gosec // of the repository
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	for _, of := range block.FindAllStringSubmatch(string(docs), -1) {
		if (of[1] == "sh" || of[1] == "console") && strings.Contains(of[2], text) {
			found = append(found, of[2])
		}
	}
	return found
}

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
