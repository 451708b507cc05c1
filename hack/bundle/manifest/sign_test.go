// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/artifacts"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/programtest"
)

// TestSigning shows that what sign.sh makes is what the manager asks for.
func TestSigning(t *testing.T) {
	programtest.Need(t, "ssh-keygen")
	g := NewWithT(t)
	dir := t.TempDir()
	run := func(name string, args ...string) {
		output, err := exec.Command(name, args...).CombinedOutput()
		g.Expect(err).NotTo(HaveOccurred(), string(output))
	}
	read := func(name string) []byte {
		text, err := os.ReadFile(filepath.Join(dir, name))
		g.Expect(err).NotTo(HaveOccurred())
		return text
	}
	g.Expect(exec.Command("../sign.sh", dir, filepath.Join(dir, "key")).Run()).NotTo(Succeed(), "nothing to sign")
	run("ssh-keygen", "-q", "-t", "ecdsa", "-N", "", "-f", filepath.Join(dir, "key"))
	keys, err := artifacts.ParsePublicKeys([]string{string(read("key.pub"))})
	g.Expect(err).NotTo(HaveOccurred())

	for _, manifest := range []string{"one", "another"} {
		g.Expect(os.WriteFile(filepath.Join(dir, "manifest.json"), []byte(manifest), 0o600)).To(Succeed())
		run("../sign.sh", dir, filepath.Join(dir, "key"))
		signature := read("manifest.json.sig")
		g.Expect(artifacts.VerifySignature([]byte(manifest), signature, keys)).To(Succeed())
		// ECDSA signs differently each time, so the same text is the same signature.
		run("../sign.sh", dir, filepath.Join(dir, "key"))
		g.Expect(read("manifest.json.sig")).To(Equal(signature))
	}
}
