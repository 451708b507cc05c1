// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package sshd is the SSH server of one simulated host: real SSH on a loopback address, with commands that run
// on the host's machine, forwarding to the host's own services, SFTP on its files, and a line that misbehaves on demand.
package sshd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"

	"github.com/pkg/sftp"
	"golang.org/x/crypto/ssh"

	"github.com/quoin-dev/cluster-api-provider-quoin/test/sshtest"
)

// Session is one command of a user.
type Session struct {
	User, Command  string
	Stdin          io.Reader
	Stdout, Stderr io.Writer
}

// Command is a command that was started.
type Command interface {
	// Wait returns the exit code, or an error when there is none: the host went down, or ctx ended.
	Wait(ctx context.Context) (int, error)
	// Cut ends the session's streams, not the command.
	Cut()
	// Signal sends a signal (KILL, TERM) to the command.
	Signal(name string)
}

// Options of a server.
type Options struct {
	// Address to listen on, without a port; 127.0.0.1 when empty.
	Address string
	// Users may log in, each with the keys given.
	Users map[string][]ssh.PublicKey
	// HostKey is presented; a fresh ed25519 key when nil.
	HostKey ssh.Signer
	// Start starts the command of a session.
	Start func(Session) (Command, error)
	// Dial connects to a port of the host, as direct-tcpip asks. Forwarding is refused when nil.
	Dial func(address string, port int) (net.Conn, error)
	// Files serves the SFTP subsystem; refused when nil.
	Files func(user string) sftp.Handlers
}

// Server is the sshd of one host. It survives reboots of its host: Stop and Start are what a reboot does to it.
type Server struct {
	options Options
	address string

	mu       sync.Mutex
	hostKey  ssh.Signer
	line     Line
	listener net.Listener
	conns    map[*wire]bool
	accepted int
	closed   bool
}

// New starts a server on a port of its own, which it keeps. Close it.
func New(o Options) (*Server, error) {
	if o.Address == "" {
		o.Address = "127.0.0.1"
	}
	if o.HostKey == nil {
		o.HostKey = sshtest.NewKey()
	}
	s := &Server{options: o, hostKey: o.HostKey, address: net.JoinHostPort(o.Address, "0"), conns: map[*wire]bool{}}
	if err := s.Start(); err != nil {
		return nil, err
	}
	s.address = s.listener.Addr().String()
	return s, nil
}

// Addr is where the server listens, also while it is stopped.
func (s *Server) Addr() *net.TCPAddr {
	addr, _ := net.ResolveTCPAddr("tcp", s.address)
	return addr
}

// HostKey is the key that the server presents now.
func (s *Server) HostKey() ssh.PublicKey {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hostKey.PublicKey()
}

// ChangeHostKey presents another key from the next connection on, as a host does that was installed anew.
func (s *Server) ChangeHostKey(key ssh.Signer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hostKey = key
}

// Accepted counts the connections so far.
func (s *Server) Accepted() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.accepted
}

// Open counts the connections that are open.
func (s *Server) Open() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}

// Start listens again after Stop.
func (s *Server) Start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listener != nil || s.closed {
		return nil
	}
	listener, err := net.Listen("tcp", s.address)
	if err != nil {
		return fmt.Errorf("sshd of a simulated host: %w", err)
	}
	s.listener = listener
	go s.serve(listener)
	return nil
}

// Stop refuses connections from now on and cuts those that are open.
func (s *Server) Stop() {
	s.mu.Lock()
	if s.listener != nil {
		_ = s.listener.Close()
		s.listener = nil
	}
	s.mu.Unlock()
	s.Cut()
}

// Close stops the server for good.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.Stop()
}

// Cut breaks every open connection, as a network does: nobody says goodbye.
func (s *Server) Cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		_ = c.Close()
	}
}

func (s *Server) serve(listener net.Listener) {
	for {
		raw, err := listener.Accept()
		if err != nil {
			return
		}
		s.mu.Lock()
		s.accepted++
		c := newWire(raw, &s.line)
		s.conns[c] = true
		key := s.hostKey
		s.mu.Unlock()
		go func() {
			defer func() {
				_ = c.Close()
				s.mu.Lock()
				delete(s.conns, c)
				s.mu.Unlock()
			}()
			s.handle(c, key)
		}()
	}
}

var errNotAuthorized = errors.New("not authorized")

func (s *Server) config(key ssh.Signer) *ssh.ServerConfig {
	config := &ssh.ServerConfig{
		ServerVersion: "SSH-2.0-simulated",
		PublicKeyCallback: func(meta ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
			for _, allowed := range s.options.Users[meta.User()] {
				if bytes.Equal(key.Marshal(), allowed.Marshal()) {
					return nil, nil
				}
			}
			return nil, errNotAuthorized
		},
	}
	config.AddHostKey(key)
	return config
}

func (s *Server) handle(c *wire, key ssh.Signer) {
	conn, channels, requests, err := ssh.NewServerConn(c, s.config(key))
	if err != nil {
		return
	}
	defer func() { _ = conn.Close() }()
	// Keep-alives want an answer, whatever it is.
	go ssh.DiscardRequests(requests)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for channel := range channels {
		switch channel.ChannelType() {
		case "session":
			go s.session(ctx, conn.User(), channel)
		case "direct-tcpip":
			if s.options.Dial == nil {
				_ = channel.Reject(ssh.Prohibited, "open failed")
				continue
			}
			go sshtest.Forward(channel, s.options.Dial)
		default:
			_ = channel.Reject(ssh.UnknownChannelType, "unknown")
		}
	}
}
