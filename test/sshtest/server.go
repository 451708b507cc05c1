// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package sshtest

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"sync"
	"syscall"

	"github.com/pkg/sftp"
	"golang.org/x/crypto/ssh"

	quoin "github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
)

// ServerOptions describe a simulated host.
type ServerOptions struct {
	// User may log in with Authorized; "root" when empty.
	User string
	// Authorized is the public key that may log in.
	Authorized ssh.PublicKey
	// Authorize, when set, decides in the place of User and Authorized.
	Authorize func(user string, key ssh.PublicKey) bool
	// HostKey is presented; a fresh one when nil.
	HostKey ssh.Signer
	// Algorithms are all that the server agrees to, field by field; those of the library where a field is empty.
	Algorithms ssh.Algorithms
	// HostCertificate is presented to clients that ask for certificates; made by Certify.
	HostCertificate ssh.Signer
	// Env is the environment of the commands, PATH included. A directory with a stub named sudo comes first there.
	Env []string
	// RefuseForwarding refuses direct-tcpip as AllowTcpForwarding no does.
	RefuseForwarding bool
	// RefuseTerminal gives no terminal, as PermitTTY no does.
	RefuseTerminal bool
	// HangForwarding answers no request for direct-tcpip, as a bastion does whose own attempt to connect hangs.
	HangForwarding bool
	// SFTP offers the subsystem, on the files of this machine.
	SFTP bool
	// Exec, when set, runs a command in place of /bin/sh. It returns the exit code.
	Exec func(command string, stdin io.Reader, stdout, stderr io.Writer) int
}

// Server is an SSH server on 127.0.0.1 that runs each command by /bin/sh on this machine.
type Server struct {
	options  ServerOptions
	listener net.Listener
	config   *ssh.ServerConfig

	mu       sync.Mutex
	conns    map[net.Conn]bool
	accepted int
	// transfers counts SFTP sessions.
	transfers int
}

// NewServer starts a server. Close it.
func NewServer(o ServerOptions) (*Server, error) {
	if o.User == "" {
		o.User = "root"
	}
	if o.HostKey == nil {
		o.HostKey = NewKey()
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &Server{options: o, listener: listener, conns: map[net.Conn]bool{}}
	s.config = &ssh.ServerConfig{
		Config: ssh.Config{
			KeyExchanges: o.Algorithms.KeyExchanges, Ciphers: o.Algorithms.Ciphers, MACs: o.Algorithms.MACs,
		},
		PublicKeyAuthAlgorithms: o.Algorithms.PublicKeyAuths,
		PublicKeyCallback: func(meta ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
			if o.Authorize != nil {
				if o.Authorize(meta.User(), key) {
					return nil, nil
				}
				return nil, fmt.Errorf("not authorized")
			}
			if meta.User() == o.User && o.Authorized != nil && bytes.Equal(key.Marshal(), o.Authorized.Marshal()) {
				return nil, nil
			}
			return nil, fmt.Errorf("not authorized")
		},
	}
	s.config.AddHostKey(o.HostKey)
	if o.HostCertificate != nil {
		s.config.AddHostKey(o.HostCertificate)
	}
	go s.serve()
	return s, nil
}

// HostKey is the public key that the server presents.
func (s *Server) HostKey() ssh.PublicKey { return s.options.HostKey.PublicKey() }

// Target reaches the server.
func (s *Server) Target(signer ssh.Signer) quoin.Target {
	addr := s.listener.Addr().(*net.TCPAddr)
	return quoin.Target{Address: addr.IP.String(), Port: addr.Port, User: s.options.User, Signers: []ssh.Signer{signer}}
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

// DropConnections cuts every open connection.
func (s *Server) DropConnections() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for conn := range s.conns {
		_ = conn.Close()
	}
}

// Refuse takes no connection any more; those that are open go on.
func (s *Server) Refuse() { _ = s.listener.Close() }

// Close stops the server and cuts its connections.
func (s *Server) Close() {
	_ = s.listener.Close()
	s.DropConnections()
}

func (s *Server) serve() {
	for {
		raw, err := s.listener.Accept()
		if err != nil {
			return
		}
		s.mu.Lock()
		s.accepted++
		s.conns[raw] = true
		s.mu.Unlock()
		go func() {
			defer func() {
				_ = raw.Close()
				s.mu.Lock()
				delete(s.conns, raw)
				s.mu.Unlock()
			}()
			s.handle(raw)
		}()
	}
}

func (s *Server) handle(raw net.Conn) {
	conn, channels, requests, err := ssh.NewServerConn(raw, s.config)
	if err != nil {
		return
	}
	defer conn.Close()
	go ssh.DiscardRequests(requests)
	for channel := range channels {
		switch channel.ChannelType() {
		case "session":
			go s.session(channel)
		case "direct-tcpip":
			if s.options.HangForwarding {
				continue
			}
			if s.options.RefuseForwarding {
				_ = channel.Reject(ssh.Prohibited, "open failed")
				continue
			}
			go Forward(channel, func(host string, port int) (net.Conn, error) {
				return net.Dial("tcp", net.JoinHostPort(host, fmt.Sprint(port)))
			})
		default:
			_ = channel.Reject(ssh.UnknownChannelType, "unknown")
		}
	}
}

// Forward joins a direct-tcpip channel with what dial reaches, until one of them ends.
func Forward(incoming ssh.NewChannel, dial func(host string, port int) (net.Conn, error)) {
	var request struct {
		Host       string
		Port       uint32
		OriginHost string
		OriginPort uint32
	}
	if err := ssh.Unmarshal(incoming.ExtraData(), &request); err != nil {
		_ = incoming.Reject(ssh.ConnectionFailed, "malformed")
		return
	}
	far, err := dial(request.Host, int(request.Port))
	if err != nil {
		_ = incoming.Reject(ssh.ConnectionFailed, "connect failed: "+err.Error())
		return
	}
	channel, requests, err := incoming.Accept()
	if err != nil {
		_ = far.Close()
		return
	}
	go ssh.DiscardRequests(requests)
	go func() { _, _ = io.Copy(channel, far); _ = channel.Close() }()
	_, _ = io.Copy(far, channel)
	_ = far.Close()
}

func (s *Server) session(incoming ssh.NewChannel) {
	channel, requests, err := incoming.Accept()
	if err != nil {
		return
	}
	defer channel.Close()
	var tty *pty
	defer func() { tty.close() }()
	for request := range requests {
		if request.Type == "pty-req" && tty == nil && !s.options.RefuseTerminal {
			tty, err = newPTY()
			_ = request.Reply(err == nil, nil)
			continue
		}
		if s.options.SFTP && request.Type == "subsystem" {
			_ = request.Reply(true, nil)
			go ssh.DiscardRequests(requests)
			s.sftp(channel)
			return
		}
		if request.Type != "exec" {
			_ = request.Reply(false, nil)
			continue
		}
		var payload struct{ Command string }
		if err := ssh.Unmarshal(request.Payload, &payload); err != nil {
			_ = request.Reply(false, nil)
			return
		}
		_ = request.Reply(true, nil)
		code := s.run(payload.Command, channel, requests, tty)
		_, _ = channel.SendRequest("exit-status", false, ssh.Marshal(struct{ Code uint32 }{uint32(code)}))
		return
	}
}

func (s *Server) sftp(channel ssh.Channel) {
	server, err := sftp.NewServer(channel)
	if err != nil {
		return
	}
	s.mu.Lock()
	s.transfers++
	s.mu.Unlock()
	_ = server.Serve()
}

// Transfers counts the SFTP sessions so far.
func (s *Server) Transfers() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.transfers
}

// run executes one command; a closed channel or a signal request kills it with its children, as sshd does.
func (s *Server) run(command string, channel ssh.Channel, requests <-chan *ssh.Request, tty *pty) int {
	if s.options.Exec != nil {
		go ssh.DiscardRequests(requests)
		return s.options.Exec(command, channel, channel, channel.Stderr())
	}
	cmd := exec.Command("/bin/sh", "-c", command)
	cmd.Env = append(os.Environ(), s.options.Env...)
	cmd.Stdout, cmd.Stderr = channel, channel.Stderr()
	var stdin io.WriteCloser
	var err error
	if tty != nil {
		cmd.Stdin, cmd.Stdout, cmd.Stderr = tty.slave, tty.slave, tty.slave
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
		stdin = tty.master
	} else {
		// A session of its own has no terminal, wherever the tests run.
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if stdin, err = cmd.StdinPipe(); err != nil {
			return 255
		}
	}
	if err := cmd.Start(); err != nil {
		return 255
	}
	shown := tty.show(channel)
	go func() {
		_, _ = io.Copy(stdin, channel)
		if tty == nil {
			_ = stdin.Close()
		}
	}()
	ended := make(chan struct{})
	go func() {
		for {
			select {
			case <-ended:
				return
			case request, open := <-requests:
				if !open || request.Type == "signal" {
					_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
					return
				}
				_ = request.Reply(false, nil)
			}
		}
	}()
	err = cmd.Wait()
	close(ended)
	<-shown
	if err == nil {
		return 0
	}
	if code := cmd.ProcessState.ExitCode(); code >= 0 {
		return code
	}
	return 137
}
