// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package sshd

import (
	"context"
	"errors"
	"io"

	"github.com/pkg/sftp"
	"golang.org/x/crypto/ssh"
)

// session serves exec and the SFTP subsystem. There are no terminals here, as on a host with requiretty they would not help.
func (s *Server) session(ctx context.Context, user string, incoming ssh.NewChannel) {
	channel, requests, err := incoming.Accept()
	if err != nil {
		return
	}
	defer func() { _ = channel.Close() }()
	for request := range requests {
		var payload struct{ Text string }
		known := request.Type == "exec" || request.Type == "subsystem"
		if !known || ssh.Unmarshal(request.Payload, &payload) != nil {
			_ = request.Reply(false, nil)
			continue
		}
		if request.Type == "subsystem" {
			if payload.Text != "sftp" || s.options.Files == nil {
				_ = request.Reply(false, nil)
				continue
			}
			_ = request.Reply(true, nil)
			go ssh.DiscardRequests(requests)
			s.sftp(user, channel)
			return
		}
		_ = request.Reply(true, nil)
		code, err := s.exec(ctx, user, payload.Text, channel, requests)
		if err != nil {
			// The machine went away under the command: there is no exit status, as there is none from a host that lost its power.
			return
		}
		_, _ = channel.SendRequest("exit-status", false, ssh.Marshal(struct{ Code uint32 }{uint32(code)})) //nolint:gosec // an exit code
		return
	}
}

// exec runs one command. As with a real sshd, a session that ends leaves its command running: only a signal kills it.
func (s *Server) exec(ctx context.Context, user, line string, channel ssh.Channel, requests <-chan *ssh.Request) (int, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	command, err := s.options.Start(Session{User: user, Command: line, Stdin: channel, Stdout: channel, Stderr: channel.Stderr()})
	if err != nil {
		return 0, err
	}
	defer command.Cut()
	go func() {
		defer cancel()
		for request := range requests {
			var signal struct{ Name string }
			if request.Type == "signal" && ssh.Unmarshal(request.Payload, &signal) == nil {
				command.Signal(signal.Name)
			}
			_ = request.Reply(false, nil)
		}
	}()
	return command.Wait(ctx)
}

func (s *Server) sftp(user string, channel io.ReadWriteCloser) {
	server := sftp.NewRequestServer(channel, s.options.Files(user))
	if err := server.Serve(); err != nil && !errors.Is(err, io.EOF) {
		_ = server.Close()
	}
}
