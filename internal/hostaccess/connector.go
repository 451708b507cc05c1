// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package hostaccess connects to the machine behind a QuoinHost: credentials from its Secret, keys pinned in its spec,
// one pooled connection per host.
package hostaccess

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	gossh "golang.org/x/crypto/ssh"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
)

// ErrNotPinned says that the host's key was not recorded yet: only Identify may talk to such a host.
var ErrNotPinned = errors.New("the host's key is not recorded yet; it is recorded when the host is registered")

// CredentialsError says that the credentials Secret is missing or unusable. Its text never holds anything of the Secret.
type CredentialsError struct {
	// Secret is namespace/name.
	Secret string
	// Problem is what is wrong, and Fix what to do.
	Problem, Fix string
}

func (e *CredentialsError) Error() string {
	return fmt.Sprintf("credentials Secret %s %s; %s", e.Secret, e.Problem, e.Fix)
}

// Connector makes connections. It is safe for concurrent use.
type Connector struct {
	reader  client.Reader
	pool    *ssh.Pool
	options ssh.PoolOptions
}

// New makes a Connector. The reader should be uncached: a cache of every Secret in the cluster is neither needed nor allowed.
func New(reader client.Reader, options ssh.PoolOptions) *Connector {
	return &Connector{reader: reader, pool: ssh.NewPool(options), options: options}
}

// Connect returns the connection to host, whose key must be pinned. Errors are *CredentialsError, ErrNotPinned, or those of
// package bootstrap/ssh.
func (c *Connector) Connect(ctx context.Context, host *infrav1.QuoinHost) (ssh.Host, error) {
	target, err := c.target(ctx, host)
	if err != nil {
		return nil, err
	}
	if len(target.HostKeys) == 0 {
		return nil, ErrNotPinned
	}
	conn, err := c.pool.Get(ctx, key(host), target)
	if err != nil {
		return nil, c.withPresentedKey(ctx, target, err)
	}
	return conn, nil
}

// DialHost opens a connection from the host itself, for example to what listens on its loopback address. Its sshd must
// allow TCP forwarding.
func (c *Connector) DialHost(ctx context.Context, host *infrav1.QuoinHost, network, address string) (net.Conn, error) {
	connection, err := c.Connect(ctx, host)
	if err != nil {
		return nil, err
	}
	return connection.DialContext(ctx, network, address)
}

// Identify makes the first contact: it logs in whatever key the host presents, and returns that key in known_hosts form. It
// sends nothing else.
func (c *Connector) Identify(ctx context.Context, host *infrav1.QuoinHost) (string, error) {
	target, err := c.target(ctx, host)
	if err != nil {
		return "", err
	}
	target.HostKeys = nil
	conn, err := ssh.Dial(ctx, target, c.options)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	return ssh.FormatHostKey(conn.HostKey()), nil
}

// Forget closes the connection to host, if there is one.
func (c *Connector) Forget(host *infrav1.QuoinHost) { c.pool.Forget(key(host)) }

// Close closes every connection.
func (c *Connector) Close() { c.pool.Close() }

// withPresentedKey completes the error of a host that no longer has a key of a pinned type: the handshake then ended
// before any key was seen, and a person could not tell which fingerprint to accept.
func (c *Connector) withPresentedKey(ctx context.Context, target ssh.Target, err error) error {
	var changed *ssh.HostKeyChangedError
	if !errors.As(err, &changed) || changed.Key != nil {
		return err
	}
	target.HostKeys = nobodysKeys()
	conn, dialErr := ssh.Dial(ctx, target, c.options)
	if dialErr == nil {
		_ = conn.Close()
		return err
	}
	var presented *ssh.HostKeyChangedError
	if !errors.As(dialErr, &presented) || presented.Key == nil {
		return err
	}
	changed.Key, changed.Got = presented.Key, presented.Got
	return changed
}

// nobodysKey stands for a pinned key of a type, and equals no key: a host that is asked for keys of the type shows its own
// one, and the connection ends there, before a login tells it anything about us.
type nobodysKey struct{ kind string }

func nobodysKeys() []ssh.PublicKey {
	var keys []ssh.PublicKey
	for _, kind := range []string{
		gossh.KeyAlgoED25519, gossh.KeyAlgoECDSA256, gossh.KeyAlgoECDSA384, gossh.KeyAlgoECDSA521, gossh.KeyAlgoRSA,
	} {
		keys = append(keys, nobodysKey{kind})
	}
	return keys
}

// Type is the type that the host is asked for.
func (k nobodysKey) Type() string { return k.kind }

// Marshal returns what no key is equal to.
func (k nobodysKey) Marshal() []byte { return nil }

// Verify accepts nothing.
func (k nobodysKey) Verify([]byte, *gossh.Signature) error {
	return errors.New("nobody's key signs nothing")
}

func (c *Connector) target(ctx context.Context, host *infrav1.QuoinHost) (ssh.Target, error) {
	signer, err := c.signer(ctx, host)
	if err != nil {
		return ssh.Target{}, err
	}
	keys, err := ssh.ParseHostKeys(strings.Join(host.Spec.HostKeys, "\n"))
	if err != nil {
		return ssh.Target{}, fmt.Errorf("spec.hostKeys of QuoinHost %s/%s: %w", host.Namespace, host.Name, err)
	}
	user := host.Spec.User
	if user == "" {
		user = "root"
	}
	return ssh.Target{
		Address: host.Spec.Address, Port: int(host.Spec.Port), User: user,
		Signers: []ssh.Signer{signer}, HostKeys: keys,
	}, nil
}

func (c *Connector) signer(ctx context.Context, host *infrav1.QuoinHost) (ssh.Signer, error) {
	name := client.ObjectKey{Namespace: host.Namespace, Name: host.Spec.CredentialsRef.Name}
	refuse := func(problem, fix string) error {
		return &CredentialsError{Secret: name.String(), Problem: problem, Fix: fix}
	}
	secret := &corev1.Secret{}
	if err := c.reader.Get(ctx, name, secret); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, refuse("does not exist", fmt.Sprintf("create it with: kubectl -n %s create secret generic %s --type=%s --from-file=%s=<private key file>",
				name.Namespace, name.Name, corev1.SecretTypeSSHAuth, corev1.SSHAuthPrivateKey))
		}
		return nil, fmt.Errorf("reading credentials Secret %s: %w", name, err)
	}
	if secret.Type != corev1.SecretTypeSSHAuth {
		return nil, refuse(fmt.Sprintf("has type %q", secret.Type), fmt.Sprintf("delete it and create it again with type %s", corev1.SecretTypeSSHAuth))
	}
	data := secret.Data[corev1.SSHAuthPrivateKey]
	if len(data) == 0 {
		return nil, refuse(fmt.Sprintf("has no key %q", corev1.SSHAuthPrivateKey), "store an SSH private key under that key")
	}
	signer, err := ssh.ParseSigner(data)
	if err != nil {
		return nil, refuse("holds no usable key", err.Error())
	}
	return signer, nil
}

// key carries the UID, so that a host that was deleted and registered again does not inherit a connection.
func key(host *infrav1.QuoinHost) string {
	return fmt.Sprintf("%s/%s/%s", host.Namespace, host.Name, host.UID)
}
