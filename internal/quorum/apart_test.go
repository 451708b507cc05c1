// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quorum

import (
	"go/parser"
	"go/token"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

// What provisions, drains and releases hosts knows nothing of etcd: it sees hooks, and whose they are.
//
// Proves: S2-29
func TestMachinesAndHostsKnowNothingOfEtcd(t *testing.T) {
	g := NewWithT(t)
	for _, dir := range []string{"controllers/quoinmachine", "controllers/quoinhost", "internal/lifecycle",
		"internal/placement"} {
		files, err := filepath.Glob(filepath.Join("../..", dir, "*.go"))
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(files).NotTo(BeEmpty(), dir)
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
			g.Expect(err).NotTo(HaveOccurred())
			for _, imported := range parsed.Imports {
				path, err := strconv.Unquote(imported.Path.Value)
				g.Expect(err).NotTo(HaveOccurred())
				for _, forbidden := range []string{"etcd", "/internal/quorum", "/internal/controlplane"} {
					g.Expect(path).NotTo(ContainSubstring(forbidden), file)
				}
			}
		}
	}
}
