// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package sshtest offers hosts for tests: Local runs scripts on this machine, Server speaks real SSH in this process.
package sshtest

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"sync"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
)

// Local implements ssh.Host with this machine's /bin/sh. Sudo is ignored: scripts under test must point below a
// temporary root.
type Local struct {
	// Env is added to the environment of the scripts.
	Env []string
	// Fail, when set, may answer a command with an error before it runs.
	Fail func(ssh.Command) error

	mu   sync.Mutex
	runs []string
}

var _ ssh.Host = (*Local)(nil)

// Runs returns the scripts that ran so far.
func (l *Local) Runs() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string(nil), l.runs...)
}

// Run implements ssh.Host.
func (l *Local) Run(ctx context.Context, command ssh.Command) (ssh.Result, error) {
	if l.Fail != nil {
		if err := l.Fail(command); err != nil {
			return ssh.Result{}, err
		}
	}
	l.mu.Lock()
	l.runs = append(l.runs, command.Script)
	l.mu.Unlock()
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", command.Script)
	cmd.Env = append(os.Environ(), l.Env...)
	cmd.Stdin = command.Stdin
	if cmd.Stdin == nil {
		cmd.Stdin = bytes.NewReader(nil)
	}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) && ctx.Err() == nil {
		err = &ssh.ExitError{Code: exit.ExitCode(), Stderr: stderr.String()}
	}
	return ssh.Result{Stdout: stdout.String(), Stderr: stderr.String()}, err
}

// Upload implements ssh.Host.
func (l *Local) Upload(ctx context.Context, path string, mode os.FileMode, content []byte) error {
	_, err := l.Run(ctx, ssh.UploadCommand(path, mode, content))
	return err
}

// DialContext implements ssh.Host.
func (l *Local) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, network, addr)
}
