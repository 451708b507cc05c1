// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package artifacts_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/artifacts"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/programtest"
)

// newKey makes a key pair as a person would, and returns its public half.
func (l *lab) newKey(name string, options ...string) string {
	l.t.Helper()
	l.keygen(append([]string{"-q", "-N", "", "-C", name, "-f", filepath.Join(l.dir, name)}, options...)...)
	return strings.TrimSpace(l.read(name + ".pub"))
}

// sign signs the manifest with the command that the documentation gives.
func (l *lab) sign(key, namespace string) {
	l.t.Helper()
	manifest := filepath.Join(l.bundles, version, "manifest.json")
	_ = os.Remove(manifest + ".sig")
	l.keygen("-q", "-Y", "sign", "-n", namespace, "-f", filepath.Join(l.dir, key), manifest)
}

func (l *lab) keygen(args ...string) {
	l.t.Helper()
	programtest.Need(l.t, "ssh-keygen")
	output, err := exec.Command("ssh-keygen", args...).CombinedOutput()
	l.g.Expect(err).NotTo(HaveOccurred(), string(output))
}

func TestASignedBundleIsInstalled(t *testing.T) {
	for name, options := range map[string][]string{
		"ed25519": {"-t", "ed25519"}, "ecdsa": {"-t", "ecdsa"}, "rsa": {"-t", "rsa", "-b", "2048"},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			l.bundle(version, nil)
			wanted := l.bundleAt(l.bundles)
			wanted.Bundle.PublicKeys = []string{l.newKey("old"), l.newKey("new", options...)}
			l.sign("new", artifacts.SignatureNamespace)
			supply, err := l.find(wanted)
			l.g.Expect(err).NotTo(HaveOccurred())
			l.g.Expect(supply).NotTo(BeNil())
		})
	}
}

func TestWhatNobodySignedIsRefusedBeforeAStepIsMade(t *testing.T) {
	for name, c := range map[string]struct {
		harm func(*lab)
		want []string
	}{
		"no signature":      {func(*lab) {}, []string{"not signed", "manifest.json.sig"}},
		"another namespace": {func(l *lab) { l.sign("mine", "file") }, []string{`namespace "file"`}},
		"another key": {func(l *lab) { l.newKey("other"); l.sign("other", "quoin-bundle") },
			[]string{"was signed by the key SHA256:", "trusted are SHA256:"}},
		"a changed manifest": {func(l *lab) {
			l.sign("mine", "quoin-bundle")
			l.bundle(version, func(m *artifacts.Manifest) { m.Files[0].SHA256 = strings.Repeat("0", 64) })
		}, []string{"not what was signed"}},
		"no manifest at all": {func(l *lab) {
			l.sign("mine", "quoin-bundle")
			l.write("bundles/"+version+"/manifest.json", "{", 0o644)
		}, []string{"not what was signed"}},
		"the signature of another file": {func(l *lab) {
			l.write("bundles/"+version+"/manifest.json", "x", 0o644)
			l.sign("mine", "quoin-bundle")
			l.bundle(version, nil)
		}, []string{"not what was signed"}},
		"no signature in the file": {func(l *lab) {
			l.write("bundles/"+version+"/manifest.json.sig", "x", 0o644)
		}, []string{"cannot be read as an SSH signature"}},
		"an endless file": {func(l *lab) {
			l.write("bundles/"+version+"/manifest.json.sig", strings.Repeat("x", 20<<10), 0o644)
		}, []string{"20480 bytes"}},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			l.bundle(version, nil)
			wanted := l.bundleAt(l.bundles)
			wanted.Bundle.PublicKeys = []string{l.newKey("mine")}
			c.harm(l)
			_, err := l.find(wanted)
			for _, want := range append(c.want, "ssh-keygen -Y sign -n quoin-bundle") {
				l.g.Expect(err).To(MatchError(ContainSubstring(want)))
			}
		})
	}
}

// Who names a bundle names the keys that signed it too. Those of whoever runs the manager count beside them.
func TestTheOperatorsKeysCountWhateverTheSourceSays(t *testing.T) {
	l := newLab(t)
	tenants, operators := l.newKey("tenant"), l.newKey("operator")
	for name, c := range map[string]struct {
		source, operator []string
		signs            string
		want             string
	}{
		"the operator's alone":          {operator: []string{operators}, signs: "operator"},
		"both":                          {source: []string{tenants, operators}, operator: []string{operators}, signs: "operator"},
		"not signed":                    {operator: []string{operators}, want: "which the manager's --bundle-keys asks for"},
		"by the tenant":                 {source: []string{tenants}, operator: []string{operators}, signs: "tenant", want: "--bundle-keys: manifest.json was signed by the key"},
		"by whom the source trusts not": {source: []string{tenants}, operator: []string{operators}, signs: "operator", want: "publicKeys: manifest.json was signed by the key"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			l.bundle(version, nil)
			_ = os.Remove(filepath.Join(l.bundles, version, "manifest.json.sig"))
			if c.signs != "" {
				l.sign(c.signs, artifacts.SignatureNamespace)
			}
			wanted := l.bundleAt(l.bundles)
			wanted.Bundle.PublicKeys, wanted.OperatorKeys = c.source, c.operator
			_, err := l.find(wanted)
			if c.want == "" {
				g.Expect(err).NotTo(HaveOccurred())
				return
			}
			g.Expect(err).To(MatchError(ContainSubstring(c.want)))
		})
	}
}

func TestPublicKeysAreLinesOfOneKeyEach(t *testing.T) {
	g := NewWithT(t)
	const key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGpU1pHV1IS7Ffg0Zf5kCRpWTiPZZBqKZlPJQ/vbNGPZ"
	keys, err := artifacts.ParsePublicKeys([]string{key, key + " somebody"})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(keys).To(HaveLen(2))
	for _, bad := range []string{"", "ssh-ed25519", "ssh-ed25519 AAAA", "no-pty " + key, key + "\n" + key, "SHA256:abc"} {
		_, err := artifacts.ParsePublicKeys([]string{key, bad})
		g.Expect(err).To(MatchError(ContainSubstring("public key 2")), bad)
	}
}
