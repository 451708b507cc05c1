// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package ssh

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/crypto/ssh"
)

// Run implements Host. When ctx ends first, the session is closed and the script is killed as far as sshd can.
func (c *Conn) Run(ctx context.Context, command Command) (Result, error) {
	if strings.IndexByte(command.Script, 0) >= 0 {
		return Result{}, errors.New("a script must not contain NUL bytes")
	}
	if strings.Contains(command.Script, end) {
		return Result{}, errors.New("a script must not contain the line that ends it")
	}
	if c.broken() {
		return Result{}, c.unreachable(errClosed)
	}
	c.begin()
	defer c.end()
	sudo := command.Sudo && c.user != "root"
	if !sudo || !c.needsTerminal.Load() {
		result, err := c.execute(ctx, command, &pipes{conn: c, sudo: sudo})
		var refused *SudoError
		if !errors.As(err, &refused) || !refused.wantsTerminal() {
			return result, err
		}
		// Nothing of the standard input was taken: it is handed over when the script has begun.
		c.needsTerminal.Store(true)
	}
	return c.execute(ctx, command, &terminal{conn: c})
}

// manner is how a script and its streams travel.
type manner interface {
	// start begins the command on a fresh session, and has its standard output kept.
	start(ctx context.Context, session *ssh.Session, command Command, stdout *headBuffer) error
	// finish turns the end of the session into a result.
	finish(err error) (Result, error)
}

func (c *Conn) execute(ctx context.Context, command Command, m manner) (Result, error) {
	session, err := c.session(ctx)
	if err != nil {
		return Result{}, err
	}
	defer func() {
		_ = session.Close()
		<-c.sessions
	}()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stdout := c.stdout(cancel)
	defer stdout.release()
	done := make(chan error, 1)
	go func() {
		if err := m.start(ctx, session, command, stdout); err != nil {
			done <- err
			return
		}
		done <- session.Wait()
	}()
	ended := false
	select {
	case err = <-done:
		ended = true
	case <-ctx.Done():
		go func() {
			_ = session.Signal(ssh.SIGKILL)
			_ = session.Close()
		}()
	}
	// What had no room is missing, also where the script has ended.
	if full, ok := errors.AsType[*OutputError](context.Cause(ctx)); ok {
		return Result{}, full
	}
	if ended {
		return m.finish(err)
	}
	// Even when the script has not begun yet, it still may: we cannot claim that it never ran.
	return Result{}, &InterruptedError{Endpoint: c.endpoint, Err: ctx.Err()}
}

// stdout keeps the standard output of one command, as long as there is room: else it cancels the command.
func (c *Conn) stdout(cancel context.CancelCauseFunc) *headBuffer {
	b := &headBuffer{limit: MaxStdout}
	if c.output != nil {
		b.take, b.give = func() error { return c.output.Take(c.owner) }, func() { c.output.Give(c.owner) }
		b.full = func(err error) { cancel(&OutputError{Endpoint: c.endpoint, Err: err}) }
	}
	return b
}

// pipes is the usual manner: three streams.
type pipes struct {
	conn   *Conn
	sudo   bool
	stdout *headBuffer
	stderr *startedBuffer
	ended  chan struct{}
}

func (p *pipes) start(ctx context.Context, session *ssh.Session, command Command, stdout *headBuffer) error {
	p.stdout, p.stderr, p.ended = stdout, newStartedBuffer(), make(chan struct{})
	session.Stdout, session.Stderr = p.stdout, p.stderr
	stdin, err := session.StdinPipe()
	if err != nil {
		return err
	}
	if err := session.Start(p.conn.wrapper(len(command.Script), p.sudo)); err != nil {
		return err
	}
	go p.feed(ctx, stdin, command)
	return nil
}

// feed hands the script over, and the standard input when the script has begun.
func (p *pipes) feed(ctx context.Context, stdin io.WriteCloser, command Command) {
	// Errors mean that the script ended without reading everything: its exit code says what there is to say.
	defer func() { _ = stdin.Close() }()
	if _, err := io.WriteString(stdin, command.Script+end); err != nil || command.Stdin == nil {
		return
	}
	select {
	case <-p.stderr.began:
		_, _ = io.Copy(stdin, command.Stdin)
	case <-p.ended:
	case <-ctx.Done():
	case <-p.conn.closed:
	}
}

func (p *pipes) finish(err error) (Result, error) {
	if p.ended == nil {
		return Result{}, p.conn.unreachable(err)
	}
	close(p.ended)
	result := Result{Stdout: p.stdout.String(), Stderr: p.stderr.String(), Truncated: p.stdout.truncated()}
	var exit *ssh.ExitError
	code := 0
	if errors.As(err, &exit) {
		if code = exit.ExitStatus(); exit.Signal() != "" && code == 0 {
			code = 128
		}
	} else if err != nil {
		p.conn.look()
		return result, &InterruptedError{Endpoint: p.conn.endpoint, Err: err}
	}
	return result, p.conn.exitError(code, p.sudo, result, p.stderr.begun())
}

var errClosed = errors.New("the connection is closed")

// exitError takes nothing but the mark as proof that the script began: a ForceCommand or an odd login shell ends with
// code 0 as well.
func (c *Conn) exitError(code int, sudo bool, result Result, begun bool) error {
	switch {
	case begun && code == 0:
		return nil
	case begun:
		return &ExitError{Code: code, Stderr: result.Stderr}
	case sudo && code != 0:
		return &SudoError{Endpoint: c.endpoint, User: c.user, Command: c.sudoCommand, Detail: lastLines(result.Stderr, 2)}
	case code != 0:
		return c.noShell(result.Stderr)
	}
	return c.noShell(result.Stderr + result.Stdout)
}

func (c *Conn) noShell(said string) error {
	said = lastLines(said, 2)
	if said == "" {
		said = "it said nothing; look for a ForceCommand in sshd_config, a command in authorized_keys, or another login " +
			"shell than sh"
	}
	return c.unreachable(&ShellError{User: c.user, Said: said})
}

// Upload implements Host.
func (c *Conn) Upload(ctx context.Context, path string, mode os.FileMode, content []byte) error {
	_, err := c.Run(ctx, UploadCommand(path, mode, content))
	if err != nil {
		return fmt.Errorf("uploading %s: %w", path, err)
	}
	return nil
}

// UploadCommand writes content to path through standard input: it needs no SFTP subsystem and works with sudo.
// The length is checked, so that a broken connection never leaves half a file.
func UploadCommand(path string, mode os.FileMode, content []byte) Command {
	script := fmt.Sprintf(`set -eu
umask 077
to=%s
tmp=$(mktemp "$to.XXXXXX")
trap 'rm -f "$tmp"' EXIT
cat >"$tmp"
[ "$(wc -c <"$tmp")" -eq %d ] || { echo "the content arrived in part only" >&2; exit 1; }
chmod %04o "$tmp"
sync "$tmp"
mv -fT "$tmp" "$to"
trap - EXIT
`, Quote(path), len(content), mode.Perm())
	return Command{Script: script, Stdin: bytes.NewReader(content), Sudo: true}
}

// Quote makes text one word of sh.
func Quote(text string) string {
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}
