// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package hostaccess

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	gossh "golang.org/x/crypto/ssh"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sshtest"
)

func secret(kind corev1.SecretType, data map[string][]byte) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "hosts", Name: "ssh"}, Type: kind, Data: data}
}

func setup(t *testing.T) (*WithT, *sshtest.Server, *infrav1.QuoinHost, *Connector) {
	g := NewWithT(t)
	key, private := sshtest.NewKeyPair()
	server, err := sshtest.NewServer(sshtest.ServerOptions{Authorized: key.PublicKey()})
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(server.Close)
	target := server.Target(nil)
	host := &infrav1.QuoinHost{
		ObjectMeta: metav1.ObjectMeta{Namespace: "hosts", Name: "h1", UID: "1"},
		Spec: infrav1.QuoinHostSpec{
			Address: target.Address, Port: int32(target.Port), CredentialsRef: infrav1.SecretReference{Name: "ssh"}, //nolint:gosec // a port
		},
	}
	reader := fake.NewClientBuilder().WithObjects(secret(corev1.SecretTypeSSHAuth,
		map[string][]byte{corev1.SSHAuthPrivateKey: private})).Build()
	connector := New(reader, ssh.PoolOptions{DialTimeout: 5 * time.Second})
	t.Cleanup(connector.Close)
	return g, server, host, connector
}

func TestTheFirstContactReturnsTheKeyAndOnlyAPinnedHostIsConnectedTo(t *testing.T) {
	g, server, host, connector := setup(t)
	ctx := context.Background()
	_, err := connector.Connect(ctx, host)
	g.Expect(err).To(MatchError(ErrNotPinned))
	g.Expect(server.Accepted()).To(BeZero())

	key, err := connector.Identify(ctx, host)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(key).To(Equal(ssh.FormatHostKey(server.HostKey())))
	host.Spec.HostKeys = []string{key}
	conn, err := connector.Connect(ctx, host)
	g.Expect(err).NotTo(HaveOccurred())
	again, err := connector.Connect(ctx, host)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(again).To(BeIdenticalTo(conn), "one connection per host")
	host.UID = "2"
	other, err := connector.Connect(ctx, host)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(other).NotTo(BeIdenticalTo(conn), "a host that was registered anew does not inherit it")
}

func TestAChangedKeyIsHandedOverForAPersonToAccept(t *testing.T) {
	elliptic, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	other, err := gossh.NewPublicKey(&elliptic.PublicKey)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	for name, pinned := range map[string]string{
		"of the same type": ssh.FormatHostKey(sshtest.NewKey().PublicKey()),
		"of another type":  ssh.FormatHostKey(other),
	} {
		t.Run(name, func(t *testing.T) {
			g, server, host, connector := setup(t)
			host.Spec.HostKeys = []string{pinned}
			_, err := connector.Connect(context.Background(), host)
			var changed *ssh.HostKeyChangedError
			g.Expect(errors.As(err, &changed)).To(BeTrue(), "%v", err)
			g.Expect(changed.Got).To(Equal(ssh.Fingerprint(server.HostKey())))
			g.Expect(changed.Key.Marshal()).To(Equal(server.HostKey().Marshal()))
		})
	}
}

// Another key may mean another machine: it must not learn our identity before a person has accepted it.
func TestNobodyLogsInToAHostWhoseKeyIsNotPinned(t *testing.T) {
	g := NewWithT(t)
	curve, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	g.Expect(err).NotTo(HaveOccurred())
	pinned, err := gossh.NewPublicKey(&curve.PublicKey)
	g.Expect(err).NotTo(HaveOccurred())
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	g.Expect(err).NotTo(HaveOccurred())
	defer func() { _ = listener.Close() }()
	var logins atomic.Int32
	presented := sshtest.NewKey()
	go func() {
		for {
			raw, err := listener.Accept()
			if err != nil {
				return
			}
			config := &gossh.ServerConfig{PublicKeyCallback: func(gossh.ConnMetadata, gossh.PublicKey) (*gossh.Permissions,
				error) {
				logins.Add(1)
				return &gossh.Permissions{}, nil
			}}
			config.AddHostKey(presented)
			_, _, _, _ = gossh.NewServerConn(raw, config)
			_ = raw.Close()
		}
	}()
	_, _, host, connector := setup(t)
	host.Spec.Port = int32(listener.Addr().(*net.TCPAddr).Port) //nolint:gosec // a port
	host.Spec.HostKeys = []string{ssh.FormatHostKey(pinned)}
	_, err = connector.Connect(context.Background(), host)
	var changed *ssh.HostKeyChangedError
	g.Expect(errors.As(err, &changed)).To(BeTrue(), "%v", err)
	g.Expect(changed.Got).To(Equal(ssh.Fingerprint(presented.PublicKey())))
	g.Expect(changed.Want).To(Equal([]string{ssh.Fingerprint(pinned)}))
	g.Expect(logins.Load()).To(BeZero())
}

func TestUnusableCredentialsSayWhatToDoAndShowNothing(t *testing.T) {
	const leak = "hunter2-do-not-show"
	for name, c := range map[string]struct {
		secret *corev1.Secret
		says   []string
	}{
		"missing": {nil, []string{"does not exist",
			"kubectl -n hosts create secret generic ssh --type=kubernetes.io/ssh-auth --from-file=ssh-privatekey="}},
		"wrong type": {secret(corev1.SecretTypeOpaque, map[string][]byte{"ssh-privatekey": []byte(leak)}),
			[]string{`has type "Opaque"`, "kubernetes.io/ssh-auth"}},
		"no key": {secret(corev1.SecretTypeSSHAuth, map[string][]byte{"key": []byte(leak)}),
			[]string{`has no key "ssh-privatekey"`}},
		"garbage": {secret(corev1.SecretTypeSSHAuth, map[string][]byte{"ssh-privatekey": []byte(leak)}),
			[]string{"holds no usable key", "ssh-keygen"}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			builder := fake.NewClientBuilder()
			if c.secret != nil {
				builder = builder.WithObjects(c.secret)
			}
			connector := New(builder.Build(), ssh.PoolOptions{})
			defer connector.Close()
			host := &infrav1.QuoinHost{ObjectMeta: metav1.ObjectMeta{Namespace: "hosts", Name: "h1"},
				Spec: infrav1.QuoinHostSpec{
					Address: "127.0.0.1", CredentialsRef: infrav1.SecretReference{Name: "ssh"},
				}}
			_, err := connector.Connect(context.Background(), host)
			var credentials *CredentialsError
			g.Expect(errors.As(err, &credentials)).To(BeTrue(), "%v", err)
			for _, text := range c.says {
				g.Expect(err.Error()).To(ContainSubstring(text))
			}
			g.Expect(err.Error()).NotTo(ContainSubstring(leak))
		})
	}
}

// fullRoom has none, and keeps who asked.
type fullRoom struct{ asked atomic.Pointer[string] }

func (r *fullRoom) Take(owner string) error { r.asked.Store(&owner); return errors.New("full") }
func (r *fullRoom) Give(string)             {}

func TestWhatAHostPrintsIsOfItsNamespace(t *testing.T) {
	g, server, host, pinning := setup(t)
	host.Spec.HostKeys = []string{ssh.FormatHostKey(server.HostKey())}
	room := &fullRoom{}
	connector := New(pinning.reader, ssh.PoolOptions{Output: room})
	t.Cleanup(connector.Close)
	conn, err := connector.Connect(t.Context(), host)
	g.Expect(err).NotTo(HaveOccurred())
	_, err = conn.Run(t.Context(), ssh.Command{Script: "head -c 100000 /dev/zero"})
	g.Expect(err).To(MatchError(ContainSubstring("full")))
	g.Expect(room.asked.Load()).To(HaveValue(Equal(host.Namespace)))
}
