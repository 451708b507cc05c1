// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package infrastructure

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/resource"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
)

// authority is some certificate.
func authority(t *testing.T) string {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	template := &x509.Certificate{SerialNumber: big.NewInt(1)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, public, private)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

func bundled(b infrav1.Bundle) machineChange {
	return func(s *infrav1.QuoinMachineSpec) { s.Artifacts = infrav1.Artifacts{Bundle: &b} }
}

func packaged(repository, key string) machineChange {
	return func(s *infrav1.QuoinMachineSpec) {
		s.Artifacts = infrav1.Artifacts{Packages: &infrav1.Packages{Repository: repository, SigningKey: key}}
	}
}

func perSecond(text string) *resource.Quantity {
	q := resource.MustParse(text)
	return &q
}

func TestArtifacts(t *testing.T) {
	const (
		path, plain, secure = "/bundles/{{version}}", "http://10.1.2.3/{{version}}", "https://10.1.2.3/{{version}}"
		key                 = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGpU1pHV1IS7Ffg0Zf5kCRpWTiPZZBqKZlPJQ/vbNGPZ me"
		armored             = "-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nx\n-----END PGP PUBLIC KEY BLOCK-----\n"
		push                = infrav1.BundleDeliveryPush
	)
	ca := authority(t)
	for name, c := range map[string]struct {
		change  machineChange
		refusal string
	}{
		"all of a bundle": {bundled(infrav1.Bundle{Location: secure, Delivery: push, PublicKeys: []string{key},
			Proxy:                  "http://proxy:3128",
			CertificateAuthorities: ca + ca, BytesPerSecond: perSecond("10M")}), ""},
		"a key that is none": {bundled(infrav1.Bundle{Location: path,
			PublicKeys: []string{key, "ssh-ed25519 AAAA"}}), "bundle.publicKeys[1]"},
		"a key with options": {bundled(infrav1.Bundle{Location: path, PublicKeys: []string{"no-pty " + key}}),
			"bundle.publicKeys[0]"},
		"a proxy with a password": {bundled(infrav1.Bundle{Location: secure, Proxy: "http://me:secret@proxy:3128"}),
			"bundle.proxy"},
		"a proxy for a path": {bundled(infrav1.Bundle{Location: path, Proxy: "http://proxy:3128"}),
			"no proxy is needed"},
		"authorities that are none": {bundled(infrav1.Bundle{Location: secure, CertificateAuthorities: "x"}),
			"bundle.certificateAuthorities"},
		"a key instead of a CA": {bundled(infrav1.Bundle{Location: secure,
			CertificateAuthorities: "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"}), "certificates only"},
		"authorities without TLS": {bundled(infrav1.Bundle{Location: plain, CertificateAuthorities: ca}), "not https://"},
		"a rate of nothing": {bundled(infrav1.Bundle{Location: secure, BytesPerSecond: perSecond("0")}),
			"bundle.bytesPerSecond"},
		"a rate below nothing": {bundled(infrav1.Bundle{Location: secure, BytesPerSecond: perSecond("-1")}),
			"bundle.bytesPerSecond"},
		"a rate that never ends": {bundled(infrav1.Bundle{Location: secure, BytesPerSecond: perSecond("1000")}),
			"at least 1Ki"},
		"a broken rate": {bundled(infrav1.Bundle{Location: secure, BytesPerSecond: perSecond("1000000500m")}),
			"bundle.bytesPerSecond"},
		"a rate for the host's path": {bundled(infrav1.Bundle{Location: path, BytesPerSecond: perSecond("1M")}),
			"nothing is fetched"},
		"a rate for what is pushed": {bundled(infrav1.Bundle{Location: path, Delivery: push,
			BytesPerSecond: perSecond("1M")}), ""},
		"a deb line":                  {packaged("deb https://p.example.com/{{minor}}/deb/ /", armored), ""},
		"a dnf repository":            {packaged("https://p.example.com/{{minor}}/rpm/", armored), ""},
		"a placeholder nobody knows":  {packaged("deb https://p.example.com/{{patch}}/ /", armored), "artifacts.packages"},
		"a key that is not in armor":  {packaged("https://p.example.com/", "xx"), "ASCII armor"},
		"a key of no repository":      {packaged("", armored), "artifacts.packages"},
		"what the host knows already": {packaged("", ""), ""},
		"what somebody else installed": {func(s *infrav1.QuoinMachineSpec) {
			s.Artifacts = infrav1.Artifacts{Preinstalled: &infrav1.Preinstalled{}}
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			_, err := (&MachineWebhook{}).ValidateCreate(t.Context(), machine(c.change))
			expectRefusal(t, err, c.refusal)
			if err != nil {
				g.Expect(err.Error()).NotTo(ContainSubstring("secret"))
			}
			template := &infrav1.QuoinMachineTemplate{}
			template.Spec.Template.Spec = machine(c.change).Spec
			_, err = machineTemplates.ValidateCreate(t.Context(), template)
			expectRefusal(t, err, c.refusal)
		})
	}
}

func TestArtifactsOfNobodyKnowsWhomAreWarnedOf(t *testing.T) {
	for name, c := range map[string]struct {
		change machineChange
		warned bool
	}{
		"plain HTTP": {from("http://10.1.2.3/{{version}}"), true},
		"HTTPS":      {from("https://10.1.2.3/{{version}}"), false},
		"a path":     {from("/bundles/{{version}}"), false},
		"signed, over HTTP": {bundled(infrav1.Bundle{Location: "http://10.1.2.3/{{version}}",
			PublicKeys: []string{"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGpU1pHV1IS7Ffg0Zf5kCRpWTiPZZBqKZlPJQ/vbNGPZ"}}), false},
		"packages without a key": {packaged("deb https://p.example.com/ /", ""), true},
		"packages with a key":    {packaged("deb [signed-by=/etc/apt/keyrings/k.asc] https://p.example.com/ /", ""), false},
		"the host's repository":  {packaged("", ""), false},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			warnings, err := (&MachineWebhook{}).ValidateCreate(t.Context(), machine(c.change))
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(warnings).To(HaveLen(map[bool]int{true: 1}[c.warned]))
			template := &infrav1.QuoinMachineTemplate{}
			template.Spec.Template.Spec = machine(c.change).Spec
			fromTemplate, err := machineTemplates.ValidateCreate(t.Context(), template)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(fromTemplate).To(Equal(warnings))
		})
	}
}
