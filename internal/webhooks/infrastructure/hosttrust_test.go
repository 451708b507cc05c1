// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package infrastructure

import (
	"context"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	hostssh "github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sshtest"
)

func TestWhatAHostIsKnownAndReachedBy(t *testing.T) {
	strict := func(s *infrav1.QuoinHostSpec) { s.HostKeyPolicy = infrav1.HostKeyPolicyStrict }
	bastion := func(address, key string) func(*infrav1.QuoinHostSpec) {
		return func(s *infrav1.QuoinHostSpec) {
			s.Bastion = &infrav1.Bastion{Address: address, User: "jump", HostKeys: []string{key}}
		}
	}
	disks := func(ids ...string) func(*infrav1.QuoinHostSpec) {
		return func(s *infrav1.QuoinHostSpec) {
			for _, id := range ids {
				s.Disks = append(s.Disks, infrav1.DiskRole{ID: id, Role: infrav1.DiskRoleWipe})
			}
		}
	}
	bmc := func(address string) func(*infrav1.QuoinHostSpec) {
		return func(s *infrav1.QuoinHostSpec) { s.BMC = &infrav1.BMC{Address: address} }
	}
	for name, c := range map[string]struct {
		change  func(*infrav1.QuoinHostSpec)
		refusal string
	}{
		"Strict without anything": {strict, "hostKeyPolicy is Strict"},
		"Strict with a key":       {func(s *infrav1.QuoinHostSpec) { strict(s); s.HostKeys = []string{ed25519Key} }, ""},
		"Strict with an authority": {func(s *infrav1.QuoinHostSpec) {
			strict(s)
			s.HostCertificateAuthorities = []string{
				ed25519Key}
		}, ""},
		"a broken authority": {func(s *infrav1.QuoinHostSpec) {
			s.HostCertificateAuthorities = []string{brokenKey}
		}, "spec.hostCertificateAuthorities[0]"},
		"a certificate for a key": {func(s *infrav1.QuoinHostSpec) {
			s.HostKeys = []string{hostCertificate()}
		}, "is a certificate"},
		"a bastion":                 {bastion("192.0.2.1", ed25519Key), ""},
		"a bastion's broken key":    {bastion("192.0.2.1", brokenKey), "spec.bastion.hostKeys[0]"},
		"a bastion with a port":     {bastion("192.0.2.1:22", ed25519Key), "spec.bastion.address"},
		"disks by WWN and serial":   {disks("wwn-0x5000c500a1b2c3d4", "S4EWNX0M", "eui.0025385b71b0a1c2"), ""},
		"a SCSI name":               {disks("sdb"), "spec.disks[0].id"},
		"a partition":               {disks("sda1"), "spec.disks[0].id"},
		"an NVMe name":              {disks("nvme0n1"), "spec.disks[0].id"},
		"a virtual disk's name":     {disks("wwn-0x5000c500a1b2c3d4", "vdc"), "spec.disks[1].id"},
		"one disk twice":            {disks("S4EWNX0M", "S4EWNX0M"), "Duplicate"},
		"a BMC":                     {bmc("https://192.0.2.107"), ""},
		"a BMC with a port":         {bmc("https://bmc-07.example.com:8443/"), ""},
		"a BMC over IPv6":           {bmc("https://[2001:db8::7]"), ""},
		"a BMC without TLS":         {bmc("http://192.0.2.107"), "spec.bmc.address"},
		"a BMC with a password":     {bmc("https://root:calvin@192.0.2.107"), "spec.bmc.address"},
		"a BMC with a path":         {bmc("https://192.0.2.107/redfish/v1/Systems/1"), "spec.bmc.address"},
		"a BMC at a broken address": {bmc("https://192.0.2.700"), "spec.bmc.address"},
	} {
		t.Run(name, func(t *testing.T) {
			h := host("h1")
			c.change(&h.Spec)
			_, err := (&HostWebhook{Client: reader(t), Live: reader(t), Reviews: rights(true)}).
				ValidateCreate(by("operator"), h)
			expectRefusal(t, err, c.refusal)
		})
	}
}

func TestTrustOnFirstUseIsWarnedAbout(t *testing.T) {
	g := NewWithT(t)
	w := &HostWebhook{Client: reader(t), Live: reader(t)}
	warnings, err := w.ValidateCreate(context.Background(), host("h1"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(warnings).To(ConsistOf(And(ContainSubstring("Compare the fingerprint"), ContainSubstring("192.0.2.7"))))
	warnings, err = w.ValidateCreate(context.Background(), host("h1", func(h *infrav1.QuoinHost) {
		h.Spec.HostKeys = []string{ed25519Key}
	}))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(warnings).To(BeEmpty())
}

// What was let pass while a host was its owner's alone is in its baseline, and no release finds it for the next tenant.
func TestAHostThatBecomesSharedIsWarnedAboutForWhatItHad(t *testing.T) {
	private := func(h *infrav1.QuoinHost) { h.Spec.ClaimGeneration = 3 }
	shared := func(h *infrav1.QuoinHost) { private(h); h.Spec.ConsumerNamespaces = []string{"team"} }
	compared := func(h *infrav1.QuoinHost) { private(h); h.Spec.Cleaning.IgnoreChanges = ptr.To(false) }
	passes := func(h *infrav1.QuoinHost) { shared(h); h.Spec.Cleaning.IgnoreChanges = ptr.To(true) }
	never := func(h *infrav1.QuoinHost) { h.Spec.ClaimGeneration = 0 }
	for name, c := range map[string]struct {
		before, after func(*infrav1.QuoinHost)
		warned        bool
	}{
		"it becomes shared":              {private, shared, true},
		"it is to be compared":           {private, compared, true},
		"the word for changes is taken":  {passes, shared, true},
		"it was compared before":         {compared, shared, false},
		"it was shared before":           {shared, func(h *infrav1.QuoinHost) { shared(h); h.Spec.User = "admin" }, false},
		"it is shared, and changes pass": {private, passes, false},
		"nobody ever had it":             {never, func(h *infrav1.QuoinHost) { shared(h); never(h) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			w := &HostWebhook{Client: reader(t), Live: reader(t)}
			warnings, err := w.ValidateUpdate(context.Background(), host("h1", c.before), host("h1", c.after))
			g.Expect(err).NotTo(HaveOccurred())
			if !c.warned {
				g.Expect(warnings).To(BeEmpty())
				return
			}
			g.Expect(warnings).To(ConsistOf(And(ContainSubstring("no release finds it"), ContainSubstring("register it again"))))
		})
	}
}

func TestTrustMayMoveFromKeysToAnAuthorityButNotGo(t *testing.T) {
	w := &HostWebhook{Client: reader(t), Live: reader(t)}
	pinned := host("h1", func(h *infrav1.QuoinHost) { h.Spec.HostKeys = []string{ed25519Key} })
	certified := host("h1", func(h *infrav1.QuoinHost) { h.Spec.HostCertificateAuthorities = []string{ed25519Key} })
	_, err := w.ValidateUpdate(context.Background(), pinned, certified)
	expectRefusal(t, err, "")
	for _, before := range []*infrav1.QuoinHost{pinned, certified} {
		_, err = w.ValidateUpdate(context.Background(), before, host("h1"))
		expectRefusal(t, err, "would be trusted")
	}
}

// hostCertificate is what some host's ssh_host_ed25519_key-cert.pub says.
func hostCertificate() string {
	return hostssh.FormatHostKey(sshtest.HostCertificate(sshtest.NewKey(), sshtest.NewKey(), nil).PublicKey())
}
