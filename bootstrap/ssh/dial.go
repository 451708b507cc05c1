// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package ssh

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"
)

// errHostKey stops the handshake inside the host key callback, before we authenticate.
var errHostKey = errors.New("host key is not pinned")

// Dial connects once, outside of any pool. Close the Conn when done.
func Dial(ctx context.Context, target Target, o PoolOptions) (*Conn, error) {
	o = o.withDefaults()
	if len(target.Signers) == 0 {
		return nil, fmt.Errorf("no SSH key to log in to %s with: the credentials Secret must carry one", target.Endpoint())
	}
	ctx, cancel := context.WithTimeout(ctx, o.DialTimeout)
	defer cancel()

	raw, err := (&net.Dialer{}).DialContext(ctx, "tcp", target.Endpoint())
	if err != nil {
		return nil, unreachable(ctx, target, err)
	}
	// A host that accepts the connection and then says nothing would hold the handshake for ever.
	stop := context.AfterFunc(ctx, func() { _ = raw.Close() })
	client, key, err := handshake(raw, target)
	if !stop() && err == nil {
		err = ctx.Err()
		_ = client.Close()
	}
	if err != nil {
		_ = raw.Close()
		return nil, handshakeError(ctx, target, key, err)
	}
	return newConn(client, key, target, o), nil
}

func handshake(raw net.Conn, target Target) (*ssh.Client, ssh.PublicKey, error) {
	var presented ssh.PublicKey
	config := &ssh.ClientConfig{
		User:              target.User,
		Auth:              []ssh.AuthMethod{ssh.PublicKeys(target.Signers...)},
		HostKeyAlgorithms: hostKeyAlgorithms(target.HostKeys),
		HostKeyCallback: func(_ string, _ net.Addr, key ssh.PublicKey) error {
			presented = key
			if !target.accepts(key) {
				return errHostKey
			}
			return nil
		},
	}
	conn, channels, requests, err := ssh.NewClientConn(raw, target.Endpoint(), config)
	if err != nil {
		return nil, presented, err
	}
	return ssh.NewClient(conn, channels, requests), presented, nil
}

// hostKeyAlgorithms asks for the types of the pinned keys only: a host has several keys, and offering another of them
// is not a change. At first contact ed25519 is asked for first, as OpenSSH does: it is the fingerprint that people compare.
func hostKeyAlgorithms(pinned []ssh.PublicKey) []string {
	if len(pinned) == 0 {
		return []string{
			ssh.KeyAlgoED25519, ssh.KeyAlgoECDSA256, ssh.KeyAlgoECDSA384, ssh.KeyAlgoECDSA521,
			ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256,
		}
	}
	var algorithms []string
	for _, key := range pinned {
		if key.Type() == ssh.KeyAlgoRSA {
			algorithms = append(algorithms, ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256)
			continue
		}
		algorithms = append(algorithms, key.Type())
	}
	return algorithms
}

func handshakeError(ctx context.Context, target Target, presented ssh.PublicKey, err error) error {
	var negotiation *ssh.AlgorithmNegotiationError
	switch {
	case ctx.Err() != nil:
		return unreachable(ctx, target, err)
	case presented != nil && !target.accepts(presented):
		return &HostKeyChangedError{Endpoint: target.Endpoint(), Want: fingerprints(target.HostKeys), Got: Fingerprint(presented), Key: presented}
	case errors.As(err, &negotiation) && len(target.HostKeys) > 0 && strings.Contains(err.Error(), "host key"):
		return &HostKeyChangedError{Endpoint: target.Endpoint(), Want: fingerprints(target.HostKeys), Got: "of another type"}
	case presented != nil && strings.Contains(err.Error(), "unable to authenticate"):
		keys := make([]ssh.PublicKey, 0, len(target.Signers))
		for _, s := range target.Signers {
			keys = append(keys, s.PublicKey())
		}
		return &AuthError{Endpoint: target.Endpoint(), User: target.User, Fingerprints: fingerprints(keys)}
	}
	return unreachable(ctx, target, err)
}

func unreachable(ctx context.Context, target Target, err error) error {
	if ctx.Err() != nil {
		// The closed socket's own error says nothing; what matters is that time ran out or the caller gave up.
		err = ctx.Err()
	}
	return &UnreachableError{Endpoint: target.Endpoint(), Err: err}
}

func fingerprints(keys []ssh.PublicKey) []string {
	out := make([]string, 0, len(keys))
	for _, key := range keys {
		out = append(out, Fingerprint(key))
	}
	return out
}

// PoolOptions tune connections; zero values mean the defaults named at each field.
type PoolOptions struct {
	// DialTimeout bounds TCP connect, handshake and authentication together. 15 s.
	DialTimeout time.Duration
	// KeepAlive is the interval of keep-alive requests; a connection that does not answer one within the same time is closed. 15 s.
	KeepAlive time.Duration
	// IdleTimeout closes a pooled connection that nobody used for so long. 5 min.
	IdleTimeout time.Duration
}

func (o PoolOptions) withDefaults() PoolOptions {
	if o.DialTimeout == 0 {
		o.DialTimeout = 15 * time.Second
	}
	if o.KeepAlive == 0 {
		o.KeepAlive = 15 * time.Second
	}
	if o.IdleTimeout == 0 {
		o.IdleTimeout = 5 * time.Minute
	}
	return o
}
