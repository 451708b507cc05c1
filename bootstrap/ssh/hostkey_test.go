// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package ssh_test

import (
	"context"
	"errors"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	xssh "golang.org/x/crypto/ssh"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sshtest"
)

func TestAHostCertificateIsAcceptedForThatHostAndThatTimeOnly(t *testing.T) {
	authority, other := sshtest.NewKey(), sshtest.NewKey()
	for name, c := range map[string]struct {
		signedBy xssh.Signer
		change   func(*xssh.Certificate)
		names    []string
		fault    string
	}{
		"made out to the address": {},
		"made out to the host's name": {change: func(c *xssh.Certificate) {
			c.ValidPrincipals = []string{"h1"}
		}, names: []string{"h1"}},
		"one that never expires":      {change: func(c *xssh.Certificate) { c.ValidBefore = xssh.CertTimeInfinity }},
		"signed by another authority": {signedBy: other, fault: "it is signed by " + ssh.Fingerprint(other.PublicKey())},
		"made out to another host": {change: func(c *xssh.Certificate) {
			c.ValidPrincipals = []string{"h2"}
		}, names: []string{"h1"}, fault: `it is made out to "h2", not to "127.0.0.1", "h1"`},
		"made out to nobody": {change: func(c *xssh.Certificate) {
			c.ValidPrincipals = nil
		}, fault: "it is made out to nobody"},
		"expired": {change: func(c *xssh.Certificate) {
			c.ValidBefore = 1700000000
		}, fault: "it expired at 2023-11-14T22:13:20Z"},
		"not valid yet": {change: func(c *xssh.Certificate) {
			c.ValidAfter = c.ValidBefore
		}, fault: "it is not valid before"},
		"from before the calendar": {change: func(c *xssh.Certificate) {
			c.ValidAfter = 1 << 63
		}, fault: "beyond all calendars"},
		"with an unknown option": {change: func(c *xssh.Certificate) {
			c.CriticalOptions = map[string]string{"only-on": "sunday"}
		}, fault: `"only-on"`},
		"of a user": {change: func(c *xssh.Certificate) {
			c.CertType = xssh.UserCert
		}, fault: "not a host certificate"},
		"of ours, for a name we forgot": {change: func(c *xssh.Certificate) {
			c.ValidPrincipals = []string{"h1"}
		}, fault: "not to"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			key := sshtest.NewKey()
			signedBy := c.signedBy
			if signedBy == nil {
				signedBy = authority
			}
			_, target := serve(t, sshtest.ServerOptions{HostKey: key, HostCertificate: sshtest.HostCertificate(signedBy, key,
				c.change)})
			target.HostAuthorities, target.Names = []xssh.PublicKey{authority.PublicKey()}, c.names
			conn, err := ssh.Dial(context.Background(), target, ssh.PoolOptions{})
			if c.fault == "" {
				g.Expect(err).NotTo(HaveOccurred())
				defer conn.Close()
				g.Expect(conn.HostKey().Marshal()).To(Equal(key.PublicKey().Marshal()), "the key itself, not its certificate")
				return
			}
			var changed *ssh.HostKeyChangedError
			g.Expect(errors.As(err, &changed)).To(BeTrue(), "%v", err)
			g.Expect(changed.Certificate).To(ContainSubstring(c.fault))
			g.Expect(err).To(MatchError(And(
				ContainSubstring(ssh.Fingerprint(key.PublicKey())), ContainSubstring(c.fault),
				ContainSubstring("a key certified by "+ssh.Fingerprint(authority.PublicKey())))))
			g.Expect(ssh.NeverRan(err)).To(BeTrue())
			g.Expect(ssh.IsTransient(err)).To(BeFalse())

			// A key that is pinned needs no certificate, and a bad one does it no harm.
			target.HostKeys = []xssh.PublicKey{key.PublicKey()}
			dial(t, target)
		})
	}
}

// A signature that does not belong to the certificate: somebody wrote himself one with our authority's public key in
// it.
func TestAForgedHostCertificateIsRefused(t *testing.T) {
	g := NewWithT(t)
	authority, key := sshtest.NewKey(), sshtest.NewKey()
	forged := sshtest.HostCertificate(sshtest.NewKey(), key, nil)
	forged.PublicKey().(*xssh.Certificate).SignatureKey = authority.PublicKey()
	_, target := serve(t, sshtest.ServerOptions{HostKey: key, HostCertificate: forged})
	target.HostAuthorities = []xssh.PublicKey{authority.PublicKey()}
	_, err := ssh.Dial(context.Background(), target, ssh.PoolOptions{})
	var changed *ssh.HostKeyChangedError
	g.Expect(errors.As(err, &changed)).To(BeTrue(), "%v", err)
	g.Expect(changed.Certificate).To(ContainSubstring("signature"))
}

func TestWithAuthoritiesAloneAPlainKeyIsRefused(t *testing.T) {
	g := NewWithT(t)
	server, target := serve(t, sshtest.ServerOptions{})
	target.HostAuthorities = []xssh.PublicKey{sshtest.NewKey().PublicKey()}
	_, err := ssh.Dial(context.Background(), target, ssh.PoolOptions{})
	var changed *ssh.HostKeyChangedError
	g.Expect(errors.As(err, &changed)).To(BeTrue(), "%v", err)
	g.Expect(err).To(MatchError(ContainSubstring("without a certificate")))

	target.HostKeys = []xssh.PublicKey{server.HostKey()}
	dial(t, target)
}

// A pooled connection does not outlive what its host key was accepted for.
func TestAPooledConnectionIsJudgedAnew(t *testing.T) {
	g := NewWithT(t)
	authority, key := sshtest.NewKey(), sshtest.NewKey()
	certificate := sshtest.HostCertificate(authority, key, func(c *xssh.Certificate) {
		c.ValidBefore = uint64(time.Now().Add(6 * time.Second).Unix())
	})
	server, target := serve(t, sshtest.ServerOptions{HostKey: key, HostCertificate: certificate})
	target.HostAuthorities = []xssh.PublicKey{authority.PublicKey()}
	pool := ssh.NewPool(ssh.PoolOptions{})
	defer pool.Close()
	ctx := context.Background()
	_, err := pool.Get(ctx, "k", target)
	g.Expect(err).NotTo(HaveOccurred())
	g.Eventually(func() error { _, err := pool.Get(ctx, "k", target); return err }, "1m", "100ms").
		Should(MatchError(ContainSubstring("expired")))

	target.HostKeys, target.HostAuthorities = []xssh.PublicKey{key.PublicKey()}, nil
	first, err := pool.Get(ctx, "k", target)
	g.Expect(err).NotTo(HaveOccurred())
	before := server.Accepted()
	target.HostAuthorities = []xssh.PublicKey{authority.PublicKey()}
	second, err := pool.Get(ctx, "k", target)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(second).To(BeIdenticalTo(first), "more trust breaks nothing")
	g.Expect(server.Accepted()).To(Equal(before))
}

func TestACertificateIsNoHostKeyToPin(t *testing.T) {
	g := NewWithT(t)
	certificate := sshtest.HostCertificate(sshtest.NewKey(), sshtest.NewKey(), nil).PublicKey()
	_, err := ssh.ParseHostKeys(ssh.FormatHostKey(certificate))
	g.Expect(err).To(MatchError(ContainSubstring("is a certificate")))
}

// A key that its known_hosts file calls revoked must not come to be trusted by being read.
func TestALineWithAMarkerIsNoHostKeyToPin(t *testing.T) {
	g := NewWithT(t)
	key := ssh.FormatHostKey(sshtest.NewKey().PublicKey())
	for _, marker := range []string{"@revoked", "@cert-authority"} {
		_, err := ssh.ParseHostKeys("h1 " + key + "\n" + marker + " * " + key)
		g.Expect(err).To(MatchError(And(ContainSubstring("line 2"), ContainSubstring(marker))))
	}
}
