// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package ssh

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/crypto/ssh"
	"k8s.io/utils/clock"
)

// maxSessions stays below OpenSSH's default MaxSessions of 10: beyond it sshd refuses channels.
const maxSessions = 8

// Conn is a connection to one host. It implements Host and is safe for concurrent use.
type Conn struct {
	client *ssh.Client
	// hostKey is as presented: perhaps a certificate.
	hostKey ssh.PublicKey
	// credential is the key of ours that the host accepted, perhaps a certificate; nil when it asked for none.
	credential  ssh.PublicKey
	endpoint    string
	user        string
	sudoCommand string
	// place and credentials are those of the target that the connection was made for.
	place, credentials string
	made               time.Time
	// via is the pooled connection to the bastion, or nil.
	via      *Conn
	sessions chan struct{}
	closed   chan struct{}
	// output has room for what the commands of owner's host print; nil bounds nothing.
	output OutputRoom
	owner  string
	// needsTerminal is learnt from sudo's first refusal.
	needsTerminal atomic.Bool
	clock         clock.PassiveClock

	mu       sync.Mutex
	once     sync.Once
	inUse    int
	retired  bool
	lastUsed time.Time
}

var _ Host = (*Conn)(nil)

func newConn(client *ssh.Client, h *handshake, o PoolOptions) *Conn {
	c := &Conn{
		client: client, hostKey: h.presented, credential: h.proof.key(),
		endpoint: h.target.Endpoint(), user: h.target.User, sudoCommand: h.target.SudoCommand,
		place: h.target.place(), credentials: h.target.credentials(), made: time.Now(),
		sessions: make(chan struct{}, maxSessions), closed: make(chan struct{}), clock: o.Clock, lastUsed: o.Clock.Now(),
		output: o.Output, owner: h.target.Owner,
	}
	go func() {
		_ = client.Wait()
		_ = c.Close()
	}()
	go c.keepAlive(o.KeepAlive)
	return c
}

// HostKey is the key that the host presented, without the certificate that it may have come in. At first contact the
// caller records and pins it.
func (c *Conn) HostKey() ssh.PublicKey { return plain(c.hostKey) }

// Credential is the fingerprint of the key that the host accepted, as ssh-keygen -l prints it, for a certificate too;
// "" when the host asked for no key.
func (c *Conn) Credential() string {
	if c.credential == nil {
		return ""
	}
	return Fingerprint(c.credential)
}

// mayGoOn says whether the keys that the connection was made with are still among those of the target.
func (c *Conn) mayGoOn(target Target) bool {
	return target.offers(c.credential) && (c.via == nil || target.Bastion == nil || c.via.mayGoOn(*target.Bastion))
}

// fellBack says that the host took another key than the one that is preferred, and that this is so long ago that it may
// be worth another try.
func (c *Conn) fellBack(target Target, since time.Duration) bool {
	return c.credential != nil && !sameKey(c.credential, target.Signers[0].PublicKey()) && time.Since(c.made) >= since
}

// Close closes the connection; what runs over it ends with an error.
func (c *Conn) Close() error {
	var err error
	c.once.Do(func() {
		close(c.closed)
		err = c.client.Close()
	})
	return err
}

func (c *Conn) broken() bool {
	select {
	case <-c.closed:
		return true
	default:
		return false
	}
}

// keepAlive closes a connection whose host vanished without a word (power loss, cut cable): TCP would take
// a quarter of an hour to notice.
func (c *Conn) keepAlive(interval time.Duration) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-c.closed:
			return
		case <-ticker.C:
		}
		answered := make(chan error, 1)
		go func() {
			_, _, err := c.client.SendRequest("keepalive@openssh.com", true, nil)
			answered <- err
		}()
		select {
		case err := <-answered:
			if err == nil {
				continue
			}
		case <-time.After(interval):
		case <-c.closed:
			return
		}
		_ = c.Close()
		return
	}
}

// look closes the connection when it is gone. A session learns that before the connection itself does, and whoever
// tries again at once would get it from the pool.
func (c *Conn) look() { c.answers() }

// answers says whether the other side answers within a second, and closes a connection that is gone. Silence is for
// keepAlive to judge.
func (c *Conn) answers() bool {
	answered := make(chan error, 1)
	go func() {
		_, _, err := c.client.SendRequest("keepalive@openssh.com", true, nil)
		answered <- err
	}()
	select {
	case err := <-answered:
		if err != nil {
			_ = c.Close()
		}
		return err == nil
	case <-c.closed:
	case <-time.After(time.Second):
	}
	return false
}

func (c *Conn) begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.inUse++
}

func (c *Conn) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.inUse--
	c.lastUsed = c.clock.Now()
	if c.retired && c.inUse == 0 {
		go func() { _ = c.Close() }()
	}
}

// retire closes the connection as soon as nothing runs over it any more.
func (c *Conn) retire() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.retired = true
	if c.inUse == 0 {
		go func() { _ = c.Close() }()
	}
}

func (c *Conn) idleSince() (time.Time, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lastUsed, c.inUse == 0
}

func (c *Conn) unreachable(err error) error {
	return &UnreachableError{Endpoint: c.endpoint, Err: err}
}

// session opens a channel within ctx; x/crypto's NewSession itself knows no context.
func (c *Conn) session(ctx context.Context) (*ssh.Session, error) {
	select {
	case c.sessions <- struct{}{}:
	case <-ctx.Done():
		return nil, c.unreachable(ctx.Err())
	}
	type opened struct {
		session *ssh.Session
		err     error
	}
	done := make(chan opened, 1)
	go func() {
		s, err := c.client.NewSession()
		done <- opened{s, err}
	}()
	select {
	case o := <-done:
		if o.err == nil {
			return o.session, nil
		}
		<-c.sessions
		var refused *ssh.OpenChannelError
		if !errors.As(o.err, &refused) {
			_ = c.Close()
		}
		return nil, c.unreachable(o.err)
	case <-ctx.Done():
		go func() {
			if o := <-done; o.session != nil {
				_ = o.session.Close()
			}
			<-c.sessions
		}()
		return nil, c.unreachable(ctx.Err())
	}
}

// DialContext implements Host by a direct-tcpip channel. The connection supports deadlines.
func (c *Conn) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	if !strings.HasPrefix(network, "tcp") {
		return nil, fmt.Errorf("network %q cannot be forwarded over SSH, only tcp", network)
	}
	c.begin()
	far, err := c.client.DialContext(ctx, network, addr)
	if err != nil {
		c.end()
		return nil, c.forwardError(ctx, addr, err)
	}
	// An SSH channel knows no deadlines, but the clients on top of it (TLS, gRPC) set them: a pipe does.
	near, inner := net.Pipe()
	var once sync.Once
	closeAll := func() {
		once.Do(func() {
			_ = far.Close()
			_ = inner.Close()
			c.end()
		})
	}
	go func() { defer closeAll(); _, _ = io.Copy(far, inner) }()
	go func() { defer closeAll(); _, _ = io.Copy(inner, far) }()
	return near, nil
}

func (c *Conn) forwardError(ctx context.Context, addr string, err error) error {
	var refused *ssh.OpenChannelError
	switch {
	case errors.As(err, &refused):
		return &ForwardingError{Endpoint: c.endpoint, Addr: addr, Prohibited: refused.Reason == ssh.Prohibited, Err: err}
	case ctx.Err() != nil:
		return c.unreachable(ctx.Err())
	}
	_ = c.Close()
	return c.unreachable(err)
}

// touch keeps the idle sweep away from a connection that is being handed out.
func (c *Conn) touch() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lastUsed = c.clock.Now()
}
