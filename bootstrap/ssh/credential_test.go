// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package ssh_test

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	xssh "golang.org/x/crypto/ssh"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sshtest"
)

// trusting is a host whose authorized_keys can be changed.
func trusting(t *testing.T, keys ...xssh.PublicKey) (*sshtest.Server, ssh.Target, func(...xssh.PublicKey)) {
	t.Helper()
	var accepted atomic.Pointer[[]xssh.PublicKey]
	accepted.Store(&keys)
	server, target := serve(t, sshtest.ServerOptions{Authorize: func(_ string, key xssh.PublicKey) bool {
		for _, k := range *accepted.Load() {
			if string(k.Marshal()) == string(key.Marshal()) {
				return true
			}
		}
		return false
	}})
	return server, target, func(keys ...xssh.PublicKey) { accepted.Store(&keys) }
}

func TestTheAcceptedKeyIsNamed(t *testing.T) {
	g := NewWithT(t)
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	g.Expect(err).NotTo(HaveOccurred())
	rsaKey, err := xssh.NewSignerFromKey(private)
	g.Expect(err).NotTo(HaveOccurred())
	a, b := sshtest.NewKey(), sshtest.NewKey()
	certified := sshtest.UserCertificate(sshtest.NewKey(), b, "root", nil)
	certifiedRSA := sshtest.UserCertificate(sshtest.NewKey(), rsaKey, "root", nil)
	for name, c := range map[string]struct {
		offered []xssh.Signer
		host    xssh.Signer
		want    xssh.PublicKey
	}{
		"the first":                     {[]xssh.Signer{a, b}, a, a.PublicKey()},
		"the second":                    {[]xssh.Signer{a, b}, b, b.PublicKey()},
		"an RSA key":                    {[]xssh.Signer{a, rsaKey}, rsaKey, rsaKey.PublicKey()},
		"a certificate":                 {[]xssh.Signer{a, certified, b}, certified, b.PublicKey()},
		"the key beside a certificate":  {[]xssh.Signer{certified, b}, b, b.PublicKey()},
		"a certificate with an RSA key": {[]xssh.Signer{certifiedRSA, rsaKey}, certifiedRSA, rsaKey.PublicKey()},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			_, target, _ := trusting(t, c.host.PublicKey())
			target.Signers = c.offered
			conn := dial(t, target)
			g.Expect(conn.Credential()).To(Equal(ssh.Fingerprint(c.want)))
		})
	}
	_, target, _ := trusting(t)
	target.Signers = []xssh.Signer{a, certified}
	_, err = ssh.Dial(context.Background(), target, ssh.PoolOptions{})
	var auth *ssh.AuthError
	g.Expect(errors.As(err, &auth)).To(BeTrue(), "%v", err)
	g.Expect(err).To(MatchError(And(ContainSubstring(ssh.Fingerprint(a.PublicKey())),
		ContainSubstring(ssh.Fingerprint(b.PublicKey())+` (certificate "test" for root)`))))
}

// A fleet changes its key: old; new and old in the Secret; the new one reaches the host; the old one is taken away.
func TestRotationThroughAPool(t *testing.T) {
	g := NewWithT(t)
	older, newer := sshtest.NewKey(), sshtest.NewKey()
	server, target, authorize := trusting(t, older.PublicKey())
	pool := ssh.NewPool(ssh.PoolOptions{})
	defer pool.Close()
	ctx := context.Background()
	get := func(signers ...xssh.Signer) (*ssh.Conn, error) {
		target.Signers = signers
		return pool.Get(ctx, "k", target)
	}
	must := func(conn *ssh.Conn, err error) *ssh.Conn {
		g.Expect(err).NotTo(HaveOccurred())
		return conn
	}
	first := must(get(older))
	g.Expect(first.Credential()).To(Equal(ssh.Fingerprint(older.PublicKey())))

	// What runs over the old connection is not cut by a login with the new keys.
	running := make(chan error, 1)
	release := t.TempDir() + "/release"
	go func() {
		_, err := first.Run(ctx, ssh.Command{Script: "while ! [ -e " + release + " ]; do sleep 0.1; done"})
		running <- err
	}()
	second := must(get(newer, older))
	g.Expect(second.Credential()).To(Equal(ssh.Fingerprint(older.PublicKey())), "the host does not know the new key yet")
	g.Expect(must(get(newer, older))).To(BeIdenticalTo(second), "and is not asked again at each turn")
	_, err := second.Run(ctx, ssh.Command{Script: "touch " + release})
	g.Expect(err).NotTo(HaveOccurred())
	g.Eventually(running, "1m").Should(Receive(Not(HaveOccurred())))
	g.Eventually(func() error { _, err := first.Run(ctx, ssh.Command{Script: "true"}); return err }).
		Should(HaveOccurred(), "then it is closed")

	authorize(newer.PublicKey(), older.PublicKey())
	before := server.Accepted()
	third := must(get(newer))
	g.Expect(third.Credential()).To(Equal(ssh.Fingerprint(newer.PublicKey())))
	g.Expect(server.Accepted()).To(Equal(before + 1))
	g.Eventually(func() error { _, err := second.Run(ctx, ssh.Command{Script: "true"}); return err }).
		Should(HaveOccurred())

	// A key that was taken away does not stay in use, even if no other one works.
	stranger := sshtest.NewKey()
	_, err = get(stranger)
	var auth *ssh.AuthError
	g.Expect(errors.As(err, &auth)).To(BeTrue(), "%v", err)
	_, err = third.Run(ctx, ssh.Command{Script: "true"})
	g.Expect(err).To(HaveOccurred())

	// A host that does not answer a new login keeps the connection that it has.
	fourth := must(get(newer))
	server.Refuse()
	g.Expect(must(get(stranger, newer))).To(BeIdenticalTo(fourth))
	_, err = fourth.Run(ctx, ssh.Command{Script: "true"})
	g.Expect(err).NotTo(HaveOccurred())
	_, err = get(stranger)
	g.Expect(ssh.IsTransient(err)).To(BeTrue(), "%v", err)
	_, err = fourth.Run(ctx, ssh.Command{Script: "true"})
	g.Expect(err).To(HaveOccurred())
}

// The new key comes to the host after it came to the Secret: the connection made with the old one is used all the time,
// and would never end by itself.
func TestAHostThatTookTheOldKeyIsAskedAgain(t *testing.T) {
	g := NewWithT(t)
	older, newer := sshtest.NewKey(), sshtest.NewKey()
	server, target, authorize := trusting(t, older.PublicKey())
	target.Signers = []xssh.Signer{newer, older}
	ctx := context.Background()
	patient := ssh.NewPool(ssh.PoolOptions{})
	defer patient.Close()
	pool := ssh.NewPool(ssh.PoolOptions{PreferredKey: time.Nanosecond})
	defer pool.Close()
	accepted := func(p *ssh.Pool) string {
		conn, err := p.Get(ctx, "k", target)
		g.Expect(err).NotTo(HaveOccurred())
		return conn.Credential()
	}
	for range 2 {
		g.Expect(accepted(patient)).To(Equal(ssh.Fingerprint(older.PublicKey())))
		g.Expect(accepted(pool)).To(Equal(ssh.Fingerprint(older.PublicKey())))
	}
	g.Expect(server.Accepted()).To(Equal(3), "patience asks once")
	authorize(newer.PublicKey())
	g.Expect(accepted(pool)).To(Equal(ssh.Fingerprint(newer.PublicKey())))
	before := server.Accepted()
	g.Expect(accepted(pool)).To(Equal(ssh.Fingerprint(newer.PublicKey())))
	g.Expect(server.Accepted()).To(Equal(before), "what is preferred is kept")
	g.Expect(accepted(patient)).To(Equal(ssh.Fingerprint(older.PublicKey())))
}

func TestUserCertificatesThatAreOfNoUseAreSaidToBe(t *testing.T) {
	g := NewWithT(t)
	key := sshtest.NewKey()
	at := time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)
	certificate := func(change func(*xssh.Certificate)) *xssh.Certificate {
		return sshtest.UserCertificate(sshtest.NewKey(), key, "quoin", func(c *xssh.Certificate) {
			c.ValidAfter, c.ValidBefore = uint64(at.Add(-time.Hour).Unix()), uint64(at.Add(time.Hour).Unix())
			if change != nil {
				change(c)
			}
		}).PublicKey().(*xssh.Certificate)
	}
	g.Expect(ssh.CertificateFault(certificate(nil), at)).To(BeEmpty())
	g.Expect(ssh.CertificateFault(certificate(func(c *xssh.Certificate) {
		c.ValidBefore = xssh.CertTimeInfinity
	}), at)).To(BeEmpty())
	g.Expect(ssh.CertificateFault(certificate(nil), at.Add(time.Hour))).To(Equal("expired at 2026-05-01T01:00:00Z"))
	g.Expect(ssh.CertificateFault(certificate(nil), at.Add(-2*time.Hour))).To(ContainSubstring("not valid before"))
	g.Expect(ssh.CertificateFault(certificate(func(c *xssh.Certificate) {
		c.CriticalOptions = map[string]string{"force-command": "/bin/backup"}
	}), at)).To(ContainSubstring("/bin/backup"))

	parsed, err := ssh.ParseCertificate(xssh.MarshalAuthorizedKey(certificate(nil)))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(ssh.Certify(parsed, []ssh.Signer{sshtest.NewKey()})).To(BeNil())
	g.Expect(ssh.Certify(parsed, []ssh.Signer{sshtest.NewKey(), key}).PublicKey()).To(Equal(parsed))
	for text, says := range map[string]string{
		"garbage": "cannot be parsed",
		string(xssh.MarshalAuthorizedKey(key.PublicKey())):                                    "is a plain public key",
		string(xssh.MarshalAuthorizedKey(sshtest.HostCertificate(key, key, nil).PublicKey())): "is a host certificate",
	} {
		_, err := ssh.ParseCertificate([]byte(text))
		g.Expect(err).To(MatchError(ContainSubstring(says)))
	}
}
