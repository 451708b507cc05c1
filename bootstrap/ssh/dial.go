// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package ssh

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/crypto/ssh"
	"k8s.io/utils/clock"
)

// Dial connects once, outside of any pool; through the target's bastion, if it has one. Close the Conn when done.
func Dial(ctx context.Context, target Target, o PoolOptions) (*Conn, error) {
	if target.Bastion == nil {
		return dialDirect(ctx, target, o)
	}
	via, err := Dial(ctx, target.bastion(), o)
	if err != nil {
		return nil, bastionError(target, err)
	}
	conn, err := dialThrough(ctx, target, via, o)
	if err != nil {
		_ = via.Close()
		return nil, err
	}
	go func() {
		<-conn.closed
		_ = via.Close()
	}()
	return conn, nil
}

func dialDirect(ctx context.Context, target Target, o PoolOptions) (*Conn, error) {
	o = o.withDefaults()
	ctx, cancel := context.WithTimeout(ctx, o.DialTimeout)
	defer cancel()
	if err := target.check(); err != nil {
		return nil, err
	}
	raw, err := connect(ctx, target, o)
	if err != nil {
		return nil, err
	}
	return login(ctx, raw, target, o)
}

func connect(ctx context.Context, target Target, o PoolOptions) (net.Conn, error) {
	asked := &judgement{of: o.Control}
	raw, err := (&net.Dialer{ControlContext: asked.control}).DialContext(ctx, "tcp", target.Endpoint())
	if err != nil {
		if refused := asked.all(); refused != nil {
			return nil, &RefusedError{Endpoint: target.Endpoint(), Bastion: target.isBastion, Err: refused}
		}
		return nil, unreachable(ctx, target, err)
	}
	return raw, nil
}

// Recognize exchanges keys with the target itself, past any bastion, and goes before anybody logs in: who has no key to
// log in with finds out whether the host is reached, and whether it is the host. Errors are those of Dial.
func Recognize(ctx context.Context, target Target, o PoolOptions) error {
	o = o.withDefaults()
	ctx, cancel := context.WithTimeout(ctx, o.DialTimeout)
	defer cancel()
	raw, err := connect(ctx, target, o)
	if err != nil {
		return err
	}
	defer func() { _ = raw.Close() }()
	defer context.AfterFunc(ctx, func() { _ = raw.Close() })()
	h := &handshake{target: target, goes: true}
	if _, err = h.shake(raw); h.presented != nil && h.refused == nil {
		return nil // It has proved by its signature that the key is its own.
	}
	return h.explain(ctx, err)
}

// judgement is what Control said of the addresses of one name. A dialer tries several at once.
type judgement struct {
	of func(ctx context.Context, network, address string, c syscall.RawConn) error

	mu      sync.Mutex
	allowed bool
	refused error
}

func (j *judgement) control(ctx context.Context, network, address string, c syscall.RawConn) error {
	var err error
	if j.of != nil {
		err = j.of(ctx, network, address, c)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if err == nil {
		j.allowed = true
	} else {
		j.refused = err
	}
	return err
}

// all is why none was connected to; nil when one was, whose silence is the host's.
func (j *judgement) all() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.allowed {
		return nil
	}
	return j.refused
}

// check refuses what cannot work before anything is dialed.
func (t Target) check() error {
	if len(t.Signers) == 0 {
		return fmt.Errorf("no SSH key to log in to %s with: the credentials Secret must carry one", t.Endpoint())
	}
	if t.isBastion && t.firstContact() {
		return fmt.Errorf(
			"no host key is pinned for the bastion %s; give its public key: nobody makes a first contact with a bastion",
			t.Endpoint())
	}
	return nil
}

// login makes the handshake on raw, which belongs to the Conn from then on, or is closed.
func login(ctx context.Context, raw net.Conn, target Target, o PoolOptions) (*Conn, error) {
	// A host that accepts the connection and then says nothing would hold the handshake for ever.
	stop := context.AfterFunc(ctx, func() { _ = raw.Close() })
	h := &handshake{target: target}
	client, err := h.shake(raw)
	if !stop() && err == nil {
		err = ctx.Err()
		_ = client.Close()
	}
	if err != nil {
		_ = raw.Close()
		return nil, h.explain(ctx, err)
	}
	return newConn(client, h, o), nil
}

// handshake is one attempt, and what came to light in it.
type handshake struct {
	target    Target
	presented ssh.PublicKey
	// goes says that nobody logs in.
	goes bool
	// refused is why the presented key is not accepted.
	refused error
	proof   proof
}

func (h *handshake) shake(raw net.Conn) (*ssh.Client, error) {
	algorithms := ssh.SupportedAlgorithms()
	config := &ssh.ClientConfig{
		// What the library offers unless told otherwise has algorithms with known weaknesses among it.
		Config: ssh.Config{
			KeyExchanges: algorithms.KeyExchanges, Ciphers: algorithms.Ciphers, MACs: algorithms.MACs,
		},
		User:              h.target.User,
		Auth:              []ssh.AuthMethod{ssh.PublicKeys(h.proof.watch(h.target.Signers)...)},
		HostKeyAlgorithms: h.target.hostKeyAlgorithms(),
		// An error ends the handshake before anybody learns who we are.
		HostKeyCallback: func(_ string, _ net.Addr, key ssh.PublicKey) error {
			if h.presented != nil {
				// Keys are exchanged anew after a while, on the connection that is already in use.
				if !sameKey(h.presented, key) {
					return errors.New("the host key changed within the connection")
				}
				return nil
			}
			h.presented = key
			if h.refused = h.target.judge(key, time.Now()); h.refused == nil && h.goes {
				return errors.New("nobody logs in")
			}
			return h.refused
		},
	}
	conn, channels, requests, err := ssh.NewClientConn(raw, h.target.Endpoint(), config)
	if err != nil {
		return nil, err
	}
	return ssh.NewClient(conn, channels, requests), nil
}

func (h *handshake) explain(ctx context.Context, err error) error {
	var negotiation *ssh.AlgorithmNegotiationError
	switch t := h.target; {
	case ctx.Err() != nil:
		return unreachable(ctx, t, err)
	case h.refused != nil:
		return h.refused
	case errors.As(err, &negotiation) && !t.firstContact() && strings.Contains(err.Error(), "host key"):
		got := "of another type"
		if len(t.HostKeys) == 0 {
			got = "without a certificate"
		}
		return &HostKeyChangedError{
			Endpoint: t.Endpoint(), Bastion: t.isBastion,
			Want: fingerprints(t.HostKeys), Authorities: fingerprints(t.HostAuthorities), Got: got,
		}
	case negotiation != nil && !strings.Contains(negotiation.What, "host key"):
		return &AlgorithmsError{
			Endpoint: t.Endpoint(), Bastion: t.isBastion, Kind: negotiation.What,
			Accepted: negotiation.SupportedAlgorithms, Offered: negotiation.RequestedAlgorithms,
		}
	case h.presented != nil && refusedLogin(err):
		return &AuthError{Endpoint: t.Endpoint(), Bastion: t.isBastion, User: t.User, Fingerprints: describeKeys(t.Signers)}
	}
	return unreachable(ctx, h.target, err)
}

// refusedLogin knows the errors of a login by their texts: x/crypto has no types for them. sshd ends the connection
// when too many keys were tried, and a host that does not know a kind of key has nothing in common with us.
func refusedLogin(err error) bool {
	text := err.Error()
	for _, part := range []string{"unable to authenticate", "Too many authentication failures",
		"no common public key signature algorithm"} {
		if strings.Contains(text, part) {
			return true
		}
	}
	return false
}

func unreachable(ctx context.Context, target Target, err error) error {
	if ctx.Err() != nil {
		// The closed socket's own error says nothing; what matters is that time ran out or the caller gave up.
		err = ctx.Err()
	}
	e := &UnreachableError{Endpoint: target.Endpoint(), Err: err}
	if target.Bastion != nil {
		e.Through = target.Bastion.Endpoint()
	}
	return e
}

// PoolOptions tune connections; zero values mean the defaults named at each field.
type PoolOptions struct {
	// DialTimeout bounds TCP connect, handshake and authentication together, for a bastion and for the host behind it
	// each. 15 s.
	DialTimeout time.Duration
	// KeepAlive is the interval of keep-alive requests; a connection that does not answer one within the same time is
	// closed. 15 s.
	KeepAlive time.Duration
	// IdleTimeout closes a pooled connection that nobody used for so long. 1 min, which is less than hosts are left alone
	// when nothing happens to them: thousands of connections that are used for a moment each now and then would all stay
	// open, here and at an sshd of each host.
	IdleTimeout time.Duration
	// PreferredKey is how long a connection made with another key than the first is kept before the first is tried again.
	// 5 min.
	PreferredKey time.Duration
	// Control is that of net.Dialer: what it refuses is not connected to, which a *RefusedError says. It is asked for the
	// addresses that this process itself connects to, so for a bastion and not for the hosts behind it. Nothing is refused
	// when nil.
	Control func(ctx context.Context, network, address string, c syscall.RawConn) error
	// Output bounds the standard output that is kept at once: a command that prints more than there is room for ends with
	// an *OutputError. Nothing is bounded but by MaxStdout when nil.
	Output OutputRoom
	// Clock tells how long a pooled connection was idle; the real one when nil.
	Clock clock.WithTicker
}

func (o PoolOptions) withDefaults() PoolOptions {
	if o.DialTimeout == 0 {
		o.DialTimeout = 15 * time.Second
	}
	if o.KeepAlive == 0 {
		o.KeepAlive = 15 * time.Second
	}
	if o.IdleTimeout == 0 {
		o.IdleTimeout = time.Minute
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.PreferredKey == 0 {
		o.PreferredKey = 5 * time.Minute
	}
	return o
}
