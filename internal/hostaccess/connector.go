// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package hostaccess connects to the machine behind a QuoinHost: credentials from its Secret, keys pinned in its spec
// or certified by its authorities, through its bastion, one pooled connection per host.
package hostaccess

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
)

// ErrNotPinned says that the host's key was not recorded yet: only Identify may talk to such a host.
var ErrNotPinned = errors.New("the host's key is not recorded yet; it is recorded when the host is registered")

// HostKeyMissingError says that the host's policy is Strict, and that nothing says how to know the host. Nothing was
// dialed.
type HostKeyMissingError struct {
	// Host is namespace/name.
	Host string
}

func (e *HostKeyMissingError) Error() string {
	return fmt.Sprintf("QuoinHost %s has spec.hostKeyPolicy Strict, but neither spec.hostKeys nor "+
		"spec.hostCertificateAuthorities; "+
		"read the key at the host's console (cat /etc/ssh/ssh_host_ed25519_key.pub) and write it to spec.hostKeys", e.Host)
}

// FirstContact says whether the host must be identified before it is connected to: nothing is known of its key, and its
// policy allows to record the one that it presents.
func FirstContact(host *infrav1.QuoinHost) bool {
	return len(host.Spec.HostKeys) == 0 && len(host.Spec.HostCertificateAuthorities) == 0 &&
		host.Spec.HostKeyPolicy != infrav1.HostKeyPolicyStrict
}

// trusts says whether there is anything to know the host by.
func trusts(host *infrav1.QuoinHost) error {
	switch {
	case len(host.Spec.HostKeys) > 0 || len(host.Spec.HostCertificateAuthorities) > 0:
		return nil
	case host.Spec.HostKeyPolicy == infrav1.HostKeyPolicyStrict:
		return &HostKeyMissingError{Host: host.Namespace + "/" + host.Name}
	}
	return ErrNotPinned
}

// Connector makes connections. It is safe for concurrent use.
type Connector struct {
	reader  client.Reader
	recent  *recentSecrets
	pool    *ssh.Pool
	options ssh.PoolOptions

	mu   sync.Mutex
	used map[string]use
}

// use is what a host accepted last.
type use struct{ fingerprint, secretVersion string }

// New makes a Connector. The reader should be uncached: a cache of every Secret in the cluster is neither needed nor
// allowed.
func New(reader client.Reader, options ssh.PoolOptions) *Connector {
	return &Connector{reader: reader, recent: recently(reader), pool: ssh.NewPool(options), options: options,
		used: map[string]use{}}
}

// Output is what bounds the output of all hosts, for other answers that are to share it; nil when nothing does.
func (c *Connector) Output() ssh.OutputRoom {
	if c == nil {
		return nil
	}
	return c.options.Output
}

// Connect returns the connection to host, whose key must be pinned or certified. The Secret is read each time, so that
// a change of it is noticed at the next call. Errors are *CredentialsError, *HostKeyMissingError, ErrNotPinned, or
// those of package bootstrap/ssh; a *ssh.BastionError tells nothing about the host.
func (c *Connector) Connect(ctx context.Context, host *infrav1.QuoinHost) (ssh.Host, error) {
	connection, used, err := c.connect(ctx, c.recent.anew(), host)
	if err != nil {
		return nil, err
	}
	c.note(ctx, host, used)
	return connection, nil
}

// ConnectOnce is Connect for who does not hear when a host is deleted, and so never forgets it: Used does not tell of
// it.
func (c *Connector) ConnectOnce(ctx context.Context, host *infrav1.QuoinHost) (ssh.Host, error) {
	connection, _, err := c.connect(ctx, c.recent.anew(), host)
	return connection, err
}

// ConnectAgain is Connect for who asks the same host every few moments: a Secret that was read within the last seconds
// is not read again, unless it led nowhere.
func (c *Connector) ConnectAgain(ctx context.Context, host *infrav1.QuoinHost) (ssh.Host, error) {
	connection, used, err := c.connectAgain(ctx, host)
	if err != nil {
		return nil, err
	}
	c.note(ctx, host, used)
	return connection, nil
}

func (c *Connector) connectAgain(ctx context.Context, host *infrav1.QuoinHost) (ssh.Host, use, error) {
	secrets := &noted{Reader: c.recent}
	connection, used, err := c.connect(ctx, secrets, host)
	if err != nil {
		c.recent.forget(secrets.keys...)
	}
	return connection, used, err
}

func (c *Connector) connect(
	ctx context.Context, secrets client.Reader, host *infrav1.QuoinHost,
) (ssh.Host, use, error) {
	way, err := readWay(ctx, secrets, host)
	if err != nil {
		return nil, use{}, err
	}
	if err := trusts(host); err != nil {
		return nil, use{}, err
	}
	conn, err := c.pool.Get(ctx, key(host), way.target)
	if err != nil {
		return nil, use{}, way.annotate(c.withPresentedKey(ctx, way.target, err))
	}
	return conn, use{conn.Credential(), way.secretVersion}, nil
}

// note keeps what the host accepted for Used, until it is forgotten. Whoever forgets it cancels the calls before, so
// that none which ends afterwards has it remembered for good.
func (c *Connector) note(ctx context.Context, host *infrav1.QuoinHost, u use) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if ctx.Err() == nil {
		c.used[key(host)] = u
	}
}

// Used says which key the host accepted, by its fingerprint as ssh-keygen -l prints it, and the resourceVersion of the
// Secret that held it at the last Connect that succeeded; not ok before the first one.
func (c *Connector) Used(host *infrav1.QuoinHost) (fingerprint, secretVersion string, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	u, ok := c.used[key(host)]
	return u.fingerprint, u.secretVersion, ok
}

// DialHost opens a connection from the host itself, for example to what listens on its loopback address. Its sshd must
// allow TCP forwarding.
//
// etcd is asked so on every look at a control plane, over all of its hosts, so this is ConnectAgain. Used does not
// tell of it: who only dials through hosts does not hear when one is deleted.
func (c *Connector) DialHost(ctx context.Context, host *infrav1.QuoinHost, network, address string) (net.Conn, error) {
	connection, _, err := c.connectAgain(ctx, host)
	if err != nil {
		return nil, err
	}
	return connection.DialContext(ctx, network, address)
}

// Identify makes the first contact (see FirstContact): it logs in whatever key the host presents, and returns that key
// in known_hosts form. It sends nothing else. A host of which something is known must present what is known.
func (c *Connector) Identify(ctx context.Context, host *infrav1.QuoinHost) (string, error) {
	if err := trusts(host); err != nil && !errors.Is(err, ErrNotPinned) {
		return "", err
	}
	way, err := readWay(ctx, c.reader, host)
	if err != nil {
		return "", err
	}
	conn, err := ssh.Dial(ctx, way.target, c.options)
	if err != nil {
		return "", way.annotate(err)
	}
	defer func() { _ = conn.Close() }()
	return ssh.FormatHostKey(conn.HostKey()), nil
}

// Forget closes the connection to host, if there is one.
func (c *Connector) Forget(host *infrav1.QuoinHost) {
	c.pool.Forget(key(host))
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.used, key(host))
}

// Close closes every connection.
func (c *Connector) Close() { c.pool.Close() }

// key carries the UID, so that a host that was deleted and registered again does not inherit a connection.
func key(host *infrav1.QuoinHost) string {
	return fmt.Sprintf("%s/%s/%s", host.Namespace, host.Name, host.UID)
}
