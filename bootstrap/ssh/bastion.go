// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package ssh

import (
	"context"
	"errors"
	"net"
	"sync"

	"golang.org/x/crypto/ssh"
)

// dialThrough reaches a host by a direct-tcpip channel of its bastion, and makes the handshake with the host itself
// inside: the bastion carries bytes that it can neither read nor change.
func dialThrough(ctx context.Context, target Target, via *Conn, o PoolOptions) (*Conn, error) {
	o = o.withDefaults()
	if err := target.check(); err != nil {
		return nil, err
	}
	within, cancel := context.WithTimeout(ctx, o.DialTimeout)
	defer cancel()
	via.begin()
	far, err := via.client.DialContext(within, "tcp", target.Endpoint())
	if err != nil {
		via.end()
		return nil, via.refusedTunnel(ctx, within, target, err)
	}
	return login(within, &tunnel{Conn: far, via: via}, target, o)
}

// tunnel keeps its bastion's connection in use for as long as it is open.
type tunnel struct {
	net.Conn
	via  *Conn
	once sync.Once
}

// Close implements net.Conn.
func (t *tunnel) Close() error {
	err := t.Conn.Close()
	t.once.Do(t.via.end)
	return err
}

// refusedTunnel tells whose fault it is that no tunnel came about: a bastion that fails says nothing about the host.
func (c *Conn) refusedTunnel(ctx, within context.Context, target Target, err error) error {
	var refused *ssh.OpenChannelError
	switch {
	case errors.As(err, &refused) && refused.Reason == ssh.ConnectionFailed:
		return unreachable(ctx, target, err)
	case errors.As(err, &refused):
		return &BastionError{Bastion: c.endpoint, Err: &ForwardingError{
			Endpoint: c.endpoint, Addr: target.Endpoint(), Prohibited: refused.Reason == ssh.Prohibited, Err: err,
		}}
	case ctx.Err() != nil:
		return unreachable(ctx, target, err)
	case within.Err() != nil:
		// The bastion's own attempt to connect may still go on, or the bastion itself hangs.
		if c.answers() {
			return unreachable(within, target, err)
		}
		err = within.Err()
	default:
		_ = c.Close()
	}
	return &BastionError{Bastion: c.endpoint, Err: c.unreachable(err)}
}

// bastionError says that it was the bastion of target that failed.
func bastionError(target Target, err error) error {
	var already *BastionError
	if errors.As(err, &already) {
		return err
	}
	return &BastionError{Bastion: target.Bastion.Endpoint(), Err: err}
}
