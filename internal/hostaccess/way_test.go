// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package hostaccess

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	gossh "golang.org/x/crypto/ssh"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sshtest"
)

func certificateText(signer gossh.Signer) []byte {
	return gossh.MarshalAuthorizedKey(signer.PublicKey())
}

func fingerprintsOf(signers []gossh.Signer) []string {
	var out []string
	for _, s := range signers {
		out = append(out, gossh.FingerprintSHA256(s.PublicKey()))
	}
	return out
}

func TestKeysAndCertificatesOfASecretAreTriedInAStableOrder(t *testing.T) {
	g := NewWithT(t)
	first, firstPEM := sshtest.NewKeyPair()
	old, oldPEM := sshtest.NewKeyPair()
	authority := sshtest.NewKey()
	certified := sshtest.UserCertificate(authority, old, "root", nil)
	expired := sshtest.UserCertificate(authority, first, "root", func(c *gossh.Certificate) { c.ValidBefore = 1700000000 })
	data := map[string][]byte{
		"ssh-privatekey-old": oldPEM, "ssh-privatekey": firstPEM, "ssh-privatekey-same": firstPEM, "ssh-privatekey-empty": {},
		"ssh-certificate": certificateText(certified), "ssh-certificate-late": certificateText(expired),
		"known_hosts": []byte("not ours"),
	}
	for range 20 {
		found, err := parse(secret(corev1.SecretTypeSSHAuth, data), time.Now())
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(fingerprintsOf(found.signers)).To(Equal(fingerprintsOf([]gossh.Signer{first, certified, old})))
		g.Expect(found.notes).To(ConsistOf(ContainSubstring(
			`"ssh-certificate-late" in Secret hosts/ssh, which expired at 2023-11-14T22:13:20Z`)))
	}
	stranger := sshtest.UserCertificate(authority, sshtest.NewKey(), "root", nil)
	for says, spoil := range map[string]func(map[string][]byte){
		`a certificate in "ssh-certificate" for a key that it does not hold`: func(d map[string][]byte) {
			d["ssh-certificate"] = certificateText(stranger)
		},
		`no usable certificate in "ssh-certificate"`: func(d map[string][]byte) {
			d["ssh-certificate"] = []byte("hunter2")
		},
		`no usable key in "ssh-privatekey-old"`: func(d map[string][]byte) {
			d["ssh-privatekey-old"] = []byte("hunter2")
		},
		"holds 6 keys and certificates": func(d map[string][]byte) {
			for _, name := range []string{"a", "b", "c"} {
				_, text := sshtest.NewKeyPair()
				d["ssh-privatekey-"+name] = text
			}
		},
	} {
		changed := map[string][]byte{}
		for k, v := range data {
			changed[k] = v
		}
		spoil(changed)
		_, err := parse(secret(corev1.SecretTypeSSHAuth, changed), time.Now())
		var credentials *CredentialsError
		g.Expect(errors.As(err, &credentials)).To(BeTrue(), "%v", err)
		g.Expect(err).To(MatchError(And(ContainSubstring(says), Not(ContainSubstring("hunter2")))))
	}
}

// fleet is one host that trusts some keys, and the Secret with ours.
type fleet struct {
	*WithT
	server    *sshtest.Server
	host      *infrav1.QuoinHost
	connector *Connector
	client    client.Client

	mu      sync.Mutex
	trusted []gossh.PublicKey
}

func newFleet(t *testing.T, o sshtest.ServerOptions, data map[string][]byte) *fleet {
	f := &fleet{WithT: NewWithT(t)}
	o.Authorize = func(_ string, key gossh.PublicKey) bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, k := range f.trusted {
			if bytes.Equal(k.Marshal(), key.Marshal()) {
				return true
			}
		}
		return false
	}
	server, err := sshtest.NewServer(o)
	f.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(server.Close)
	target := server.Target(nil)
	f.server = server
	f.host = &infrav1.QuoinHost{
		ObjectMeta: metav1.ObjectMeta{Namespace: "hosts", Name: "h1", UID: "1"},
		Spec: infrav1.QuoinHostSpec{
			Address: target.Address, Port: int32(target.Port), CredentialsRef: infrav1.SecretReference{Name: "ssh"}, //nolint:gosec // a port
			HostKeys: []string{ssh.FormatHostKey(server.HostKey())},
		},
	}
	f.client = fake.NewClientBuilder().WithObjects(secret(corev1.SecretTypeSSHAuth, data)).Build()
	f.connector = New(f.client, ssh.PoolOptions{DialTimeout: 5 * time.Second})
	t.Cleanup(f.connector.Close)
	return f
}

func (f *fleet) trust(keys ...gossh.PublicKey) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.trusted = keys
}

func (f *fleet) store(data map[string][]byte) string {
	s := &corev1.Secret{}
	f.Expect(f.client.Get(context.Background(), client.ObjectKey{Namespace: "hosts", Name: "ssh"}, s)).To(Succeed())
	s.Data = data
	f.Expect(f.client.Update(context.Background(), s)).To(Succeed())
	return s.ResourceVersion
}

func TestEachHostSaysWhichKeyOfWhichSecretItUsedLast(t *testing.T) {
	old, oldPEM := sshtest.NewKeyPair()
	newer, newerPEM := sshtest.NewKeyPair()
	f := newFleet(t, sshtest.ServerOptions{}, map[string][]byte{"ssh-privatekey": oldPEM})
	ctx := context.Background()
	connect := func(want gossh.Signer, version string) {
		t.Helper()
		_, err := f.connector.Connect(ctx, f.host)
		f.Expect(err).NotTo(HaveOccurred())
		fingerprint, secretVersion, ok := f.connector.Used(f.host)
		f.Expect(ok).To(BeTrue())
		f.Expect(fingerprint).To(Equal(gossh.FingerprintSHA256(want.PublicKey())))
		if version != "" {
			f.Expect(secretVersion).To(Equal(version))
		}
	}
	_, _, ok := f.connector.Used(f.host)
	f.Expect(ok).To(BeFalse())
	f.trust(old.PublicKey())
	connect(old, "")
	version := f.store(map[string][]byte{"ssh-privatekey": newerPEM, "ssh-privatekey-old": oldPEM})
	connect(old, version)
	f.trust(old.PublicKey(), newer.PublicKey())
	version = f.store(map[string][]byte{"ssh-privatekey": newerPEM})
	connect(newer, version)

	f.connector.Forget(f.host)
	_, _, ok = f.connector.Used(f.host)
	f.Expect(ok).To(BeFalse())

	// A call that ends after that was canceled, and is not remembered.
	canceled, cancel := context.WithCancel(ctx)
	cancel()
	f.connector.note(canceled, f.host, use{"late", "1"})
	_, _, ok = f.connector.Used(f.host)
	f.Expect(ok).To(BeFalse())
}

func TestARefusedLoginNamesTheCertificateThatExpired(t *testing.T) {
	key, text := sshtest.NewKeyPair()
	expired := sshtest.UserCertificate(sshtest.NewKey(), key, "root", func(c *gossh.Certificate) {
		c.ValidBefore = 1700000000
	})
	f := newFleet(t, sshtest.ServerOptions{}, map[string][]byte{"ssh-privatekey": text,
		"ssh-certificate": certificateText(expired)})
	_, err := f.connector.Connect(context.Background(), f.host)
	var auth *ssh.AuthError
	f.Expect(errors.As(err, &auth)).To(BeTrue(), "%v", err)
	f.Expect(err).To(MatchError(ContainSubstring(
		`not tried: the certificate "ssh-certificate" in Secret hosts/ssh, which expired at 2023-11-14T22:13:20Z`)))
}

func TestAHostWithAnAuthorityNeedsNoFirstContact(t *testing.T) {
	key, text := sshtest.NewKeyPair()
	authority, hostKey := sshtest.NewKey(), sshtest.NewKey()
	certificate := sshtest.HostCertificate(authority, hostKey, func(c *gossh.Certificate) {
		c.ValidPrincipals = []string{"h1"}
	})
	f := newFleet(t, sshtest.ServerOptions{HostKey: hostKey, HostCertificate: certificate},
		map[string][]byte{"ssh-privatekey": text})
	f.trust(key.PublicKey())
	f.host.Spec.HostKeys, f.host.Spec.HostCertificateAuthorities = nil, []string{ssh.FormatHostKey(authority.PublicKey()) +
		" our authority"}
	f.host.Spec.HostKeyPolicy = infrav1.HostKeyPolicyStrict
	f.Expect(FirstContact(f.host)).To(BeFalse())
	_, err := f.connector.Connect(context.Background(), f.host)
	f.Expect(err).NotTo(HaveOccurred())

	// The name of another QuoinHost does not do, and a person may accept the key itself by its fingerprint.
	f.host.Name = "h2"
	_, err = f.connector.Connect(context.Background(), f.host)
	var changed *ssh.HostKeyChangedError
	f.Expect(errors.As(err, &changed)).To(BeTrue(), "%v", err)
	f.Expect(err).To(MatchError(ContainSubstring(`made out to "h1"`)))
	f.Expect(changed.Key.Marshal()).To(Equal(hostKey.PublicKey().Marshal()))

	// An authority, but a host without a certificate: its plain key is shown, to be accepted or not.
	plain := newFleet(t, sshtest.ServerOptions{}, map[string][]byte{"ssh-privatekey": text})
	plain.host.Spec.HostKeys, plain.host.Spec.HostCertificateAuthorities = nil, f.host.Spec.HostCertificateAuthorities
	_, err = plain.connector.Connect(context.Background(), plain.host)
	plain.Expect(errors.As(err, &changed)).To(BeTrue(), "%v", err)
	plain.Expect(changed.Got).To(Equal(ssh.Fingerprint(plain.server.HostKey())))
}

func TestStrictConnectsToNothingThatIsNotGiven(t *testing.T) {
	key, text := sshtest.NewKeyPair()
	f := newFleet(t, sshtest.ServerOptions{}, map[string][]byte{"ssh-privatekey": text})
	f.trust(key.PublicKey())
	f.host.Spec.HostKeys, f.host.Spec.HostKeyPolicy = nil, infrav1.HostKeyPolicyStrict
	f.Expect(FirstContact(f.host)).To(BeFalse())
	_, connectErr := f.connector.Connect(context.Background(), f.host)
	_, identifyErr := f.connector.Identify(context.Background(), f.host)
	for _, err := range []error{connectErr, identifyErr} {
		var missing *HostKeyMissingError
		f.Expect(errors.As(err, &missing)).To(BeTrue(), "%v", err)
		f.Expect(err).To(MatchError(And(ContainSubstring("hosts/h1"), ContainSubstring("ssh_host_ed25519_key.pub"))))
	}
	f.Expect(f.server.Accepted()).To(BeZero())
	f.host.Spec.HostKeyPolicy = infrav1.HostKeyPolicyTrustOnFirstUse
	f.Expect(FirstContact(f.host)).To(BeTrue())
	_, err := f.connector.Identify(context.Background(), f.host)
	f.Expect(err).NotTo(HaveOccurred())

	// A key that is given must be presented, also when somebody only asks who the host is.
	f.host.Spec.HostKeys = []string{ssh.FormatHostKey(sshtest.NewKey().PublicKey())}
	_, err = f.connector.Identify(context.Background(), f.host)
	var changed *ssh.HostKeyChangedError
	f.Expect(errors.As(err, &changed)).To(BeTrue(), "%v", err)
}

func TestTheBastionOfTheSpecIsGoneThrough(t *testing.T) {
	g := NewWithT(t)
	key, text := sshtest.NewKeyPair()
	jump, jumpText := sshtest.NewKeyPair()
	f := newFleet(t, sshtest.ServerOptions{}, map[string][]byte{"ssh-privatekey": text})
	f.trust(key.PublicKey())
	bastion, err := sshtest.NewServer(sshtest.ServerOptions{User: "jump", Authorized: jump.PublicKey()})
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(bastion.Close)
	target := bastion.Target(nil)
	f.host.Spec.Bastion = &infrav1.Bastion{
		Address: target.Address, Port: int32(target.Port), User: "jump", //nolint:gosec // a port
		HostKeys: []string{ssh.FormatHostKey(bastion.HostKey())},
	}
	ctx := context.Background()
	_, err = f.connector.Connect(ctx, f.host)
	var auth *ssh.AuthError
	g.Expect(errors.As(err, &auth)).To(BeTrue(), "%v", err)
	g.Expect(auth.Bastion).To(BeTrue(), "the bastion does not know the host's own key")

	f.host.Spec.Bastion.CredentialsRef = &infrav1.SecretReference{Name: "jump"}
	_, err = f.connector.Connect(ctx, f.host)
	g.Expect(err).To(MatchError(ContainSubstring("Secret hosts/jump does not exist")))
	s := secret(corev1.SecretTypeSSHAuth, map[string][]byte{"ssh-privatekey": jumpText})
	s.Name = "jump"
	g.Expect(f.client.Create(ctx, s)).To(Succeed())
	conn, err := f.connector.Connect(ctx, f.host)
	g.Expect(err).NotTo(HaveOccurred())
	_, err = conn.Run(ctx, ssh.Command{Script: "true"})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(bastion.Accepted()).To(Equal(2))
	fingerprint, _, _ := f.connector.Used(f.host)
	g.Expect(fingerprint).To(Equal(gossh.FingerprintSHA256(key.PublicKey())), "that of the host, not of the bastion")

	// A changed key of the bastion is nobody's to accept as the host's.
	f.host.Spec.Bastion.HostKeys = []string{ssh.FormatHostKey(sshtest.NewKey().PublicKey())}
	_, err = f.connector.Connect(ctx, f.host)
	var changed *ssh.HostKeyChangedError
	g.Expect(errors.As(err, &changed)).To(BeTrue(), "%v", err)
	g.Expect(changed.Bastion).To(BeTrue())
	g.Expect(changed.Key).To(BeNil())
}

// Keys that are none are no permission to take any key.
func TestAListWithoutAKeyIsNoFirstContact(t *testing.T) {
	for name, change := range map[string]func(*infrav1.QuoinHostSpec){
		"a comment for a key": func(s *infrav1.QuoinHostSpec) { s.HostKeys = []string{"# to be filled in"} },
		"nothing for a key":   func(s *infrav1.QuoinHostSpec) { s.HostKeys = []string{""} },
		"a comment for an authority": func(s *infrav1.QuoinHostSpec) {
			s.HostKeys, s.HostCertificateAuthorities = nil, []string{"# ours"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			key, text := sshtest.NewKeyPair()
			f := newFleet(t, sshtest.ServerOptions{}, map[string][]byte{"ssh-privatekey": text})
			f.trust(key.PublicKey())
			change(&f.host.Spec)
			f.Expect(FirstContact(f.host)).To(BeFalse())
			_, connectErr := f.connector.Connect(context.Background(), f.host)
			_, identifyErr := f.connector.Identify(context.Background(), f.host)
			for _, err := range []error{connectErr, identifyErr} {
				f.Expect(err).To(MatchError(ContainSubstring("holds no key")))
			}
			f.Expect(f.server.Accepted()).To(BeZero())
		})
	}
}
