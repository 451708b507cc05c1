// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
)

// Host is a machine as package ssh shows it, without any SSH: scripts run as they would behind sshd, and errors are the
// same types.
type Host struct {
	Machine *Machine
	// User of the sessions; empty means root.
	User string
}

var _ ssh.Host = (*Host)(nil)

// Run implements ssh.Host.
func (h *Host) Run(ctx context.Context, command ssh.Command) (ssh.Result, error) {
	if err := ctx.Err(); err != nil {
		return ssh.Result{}, &ssh.UnreachableError{Endpoint: h.endpoint(), Err: err}
	}
	prefix := ""
	if command.Sudo && h.User != "" && h.User != "root" {
		prefix = "sudo -n -- "
	}
	// The same way in as over SSH: the script by its length, closed by a mark, then the standard input.
	const end = "\n#end-of-script"
	script := command.Script + end
	line := fmt.Sprintf(`exec %s/bin/sh -c 'LC_ALL=C PATH=$PATH:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin; export LC_ALL PATH; q=$(head -c %d); case $q in *"#end-of-script") ;; *) exit 75;; esac; eval "${q%%?#end-of-script}"'`,
		prefix, len(script))
	stdin := io.Reader(strings.NewReader(script))
	if command.Stdin != nil {
		stdin = io.MultiReader(stdin, command.Stdin)
	}
	var stdout, stderr bytes.Buffer
	e, err := h.Machine.Start(Session{Command: line, Stdin: stdin, Stdout: &stdout, Stderr: &stderr, User: h.User})
	if err != nil {
		return ssh.Result{}, &ssh.UnreachableError{Endpoint: h.endpoint(), Err: err}
	}
	code, err := e.Wait(ctx)
	if err != nil {
		if !errors.Is(err, ErrDown) {
			e.Signal("KILL")
		}
		e.Cut()
		return ssh.Result{}, &ssh.InterruptedError{Endpoint: h.endpoint(), Err: err}
	}
	e.Cut()
	result := ssh.Result{Stdout: stdout.String(), Stderr: stderr.String()}
	if len(result.Stdout) > ssh.MaxStdout {
		result.Stdout, result.Truncated = result.Stdout[:ssh.MaxStdout], true
	}
	if over := len(result.Stderr) - ssh.MaxStderr; over > 0 {
		result.Stderr = result.Stderr[over:]
	}
	if code != 0 {
		return result, &ssh.ExitError{Code: code, Stderr: result.Stderr}
	}
	return result, nil
}

func (h *Host) endpoint() string { return h.Machine.Hostname() + ":22" }

// Upload implements ssh.Host.
func (h *Host) Upload(ctx context.Context, path string, mode os.FileMode, content []byte) error {
	if _, err := h.Run(ctx, ssh.UploadCommand(path, mode, content)); err != nil {
		return fmt.Errorf("uploading %s: %w", path, err)
	}
	return nil
}

// DialContext implements ssh.Host.
func (h *Host) DialContext(_ context.Context, _, addr string) (net.Conn, error) {
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		return nil, err
	}
	conn, err := h.Machine.Dial(number)
	if err != nil {
		return nil, &ssh.ForwardingError{Endpoint: h.endpoint(), Addr: addr, Err: err}
	}
	return conn, nil
}
