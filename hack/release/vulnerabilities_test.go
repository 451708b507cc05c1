// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
)

// vulnerability names a function of a module that the program of the tests calls, in every version.
const vulnerability = `{"schema_version": "1.3.1", "id": "GO-2999-0001", "modified": "2999-01-01T00:00:00Z",
"published": "2999-01-01T00:00:00Z", "summary": "made up", "details": "made up",
"database_specific": {"url": "https://vulnerabilities.example.com/GO-2999-0001"},
"affected": [{"package": {"ecosystem": "Go", "name": "github.com/spf13/pflag"},
"ranges": [{"type": "SEMVER", "events": [{"introduced": "0"}]}],
"ecosystem_specific": {"imports": [{"path": "github.com/spf13/pflag", "symbols": ["Parse"]}]}}]}`

func TestWhatADatabaseOfVulnerabilitiesNamesIsFound(t *testing.T) {
	g := NewWithT(t)
	look := func(database string) (string, error) {
		command := exec.CommandContext(t.Context(), filepath.Join(checkoutRoot, "hack/ci/vulnerabilities.sh"),
			"./hack/release/testdata/program")
		command.Env = append(os.Environ(), "VULNDB="+database)
		output, err := command.CombinedOutput()
		return string(output), err
	}
	folder := t.TempDir()
	put := func(name, content string) {
		path := filepath.Join(folder, name)
		g.Expect(os.MkdirAll(filepath.Dir(path), 0o755)).To(Succeed())
		g.Expect(os.WriteFile(path, []byte(content), 0o644)).To(Succeed())
	}
	output, err := look("")
	g.Expect(err).To(HaveOccurred())
	g.Expect(output).To(ContainSubstring("VULNDB is missing"))
	output, err = look(folder)
	g.Expect(err).To(HaveOccurred())
	g.Expect(output).To(ContainSubstring("is no database"))

	put("index/db.json", `{"modified": "2999-01-01T00:00:00Z"}`)
	put("index/vulns.json", `[]`)
	put("index/modules.json", `[]`)
	output, err = look(folder)
	g.Expect(err).NotTo(HaveOccurred(), output)

	put("index/modules.json", `[{"path": "github.com/spf13/pflag", "vulns": [{"id": "GO-2999-0001", "modified": "2999-01-01T00:00:00Z"}]}]`)
	put("ID/GO-2999-0001.json", vulnerability)
	output, err = look(folder)
	g.Expect(err).To(HaveOccurred())
	g.Expect(output).To(And(ContainSubstring("GO-2999-0001"), ContainSubstring("pflag.Parse")))
}
