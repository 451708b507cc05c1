// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package ssh

import (
	"context"
	"net"
	"os"
	"time"

	"golang.org/x/crypto/ssh"
)

// PoolOptions tune a Pool; zero values mean the defaults named at each field.
type PoolOptions struct {
	// DialTimeout bounds TCP connect, handshake and authentication together. 15 s.
	DialTimeout time.Duration
	// KeepAlive is the interval of keep-alive requests; a connection that does not answer one within the same time is closed. 15 s.
	KeepAlive time.Duration
	// IdleTimeout closes a connection that nobody used for so long. 5 min.
	IdleTimeout time.Duration
}

// Pool keeps one connection per host. It is safe for concurrent use.
type Pool struct{}

// NewPool makes an empty pool.
func NewPool(o PoolOptions) *Pool { panic("not yet") }

// Get returns the connection for key (for example the host's UID). It dials when there is none, when the old one broke,
// or when the target changed since.
func (p *Pool) Get(ctx context.Context, key string, target Target) (*Conn, error) { panic("not yet") }

// Forget closes the connection for key, if any.
func (p *Pool) Forget(key string) { panic("not yet") }

// Close closes every connection; Get fails from then on.
func (p *Pool) Close() { panic("not yet") }

// Conn is a connection to one host. It implements Host and is safe for concurrent use.
type Conn struct{}

var _ Host = (*Conn)(nil)

// Dial connects once, outside of any pool. Close the Conn when done.
func Dial(ctx context.Context, target Target, o PoolOptions) (*Conn, error) { panic("not yet") }

// HostKey is the key that the host presented. At first contact the caller records and pins it.
func (c *Conn) HostKey() ssh.PublicKey { panic("not yet") }

// Run implements Host.
func (c *Conn) Run(ctx context.Context, command Command) (Result, error) { panic("not yet") }

// Upload implements Host.
func (c *Conn) Upload(ctx context.Context, path string, mode os.FileMode, content []byte) error {
	panic("not yet")
}

// DialContext implements Host by a direct-tcpip channel.
func (c *Conn) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	panic("not yet")
}

// Close closes the connection.
func (c *Conn) Close() error { panic("not yet") }
