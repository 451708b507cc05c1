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
	"sync"

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
	session, err := c.session(ctx)
	if err != nil {
		return Result{}, err
	}
	defer func() {
		_ = session.Close()
		<-c.sessions
	}()

	stdout, stderr := &headBuffer{limit: MaxStdout}, &startedBuffer{tail: tailBuffer{limit: MaxStderr}}
	session.Stdout, session.Stderr = stdout, stderr
	stdin, err := session.StdinPipe()
	if err != nil {
		return Result{}, c.unreachable(err)
	}
	sudo := command.Sudo && c.user != "root"
	done := make(chan error, 1)
	go func() {
		if err := session.Start(wrapper(len(command.Script), sudo)); err != nil {
			done <- err
			return
		}
		go feed(stdin, command)
		done <- session.Wait()
	}()
	select {
	case err = <-done:
	case <-ctx.Done():
		go func() {
			_ = session.Signal(ssh.SIGKILL)
			_ = session.Close()
		}()
		// Even when the script has not begun yet, it still may: we cannot claim that it never ran.
		return Result{}, &InterruptedError{Endpoint: c.endpoint, Err: ctx.Err()}
	}
	result := Result{Stdout: stdout.String(), Stderr: stderr.String(), Truncated: stdout.truncated()}
	return result, c.exitError(err, sudo, result.Stdout, stderr)
}

var errClosed = errors.New("the connection is closed")

func feed(stdin io.WriteCloser, command Command) {
	// Errors mean that the script ended without reading everything: its exit code says what there is to say.
	defer stdin.Close()
	if _, err := io.WriteString(stdin, command.Script+end); err != nil || command.Stdin == nil {
		return
	}
	_, _ = io.Copy(stdin, command.Stdin)
}

// exitError takes nothing but the mark as proof that the script began: a ForceCommand or an odd login shell ends with
// code 0 as well.
func (c *Conn) exitError(err error, sudo bool, stdout string, stderr *startedBuffer) error {
	if err == nil && stderr.begun() {
		return nil
	}
	if err == nil {
		return c.noShell(stderr.String() + stdout)
	}
	var exit *ssh.ExitError
	if !errors.As(err, &exit) {
		c.look()
		return &InterruptedError{Endpoint: c.endpoint, Err: err}
	}
	code := exit.ExitStatus()
	switch {
	case exit.Signal() != "" && code == 0:
		code = 128
	case stderr.begun():
	case sudo:
		return &SudoError{Endpoint: c.endpoint, User: c.user, Detail: lastLines(stderr.String(), 2)}
	default:
		return c.noShell(stderr.String())
	}
	return &ExitError{Code: code, Stderr: stderr.String()}
}

func (c *Conn) noShell(said string) error {
	said = lastLines(said, 2)
	if said == "" {
		said = "it said nothing; look for a ForceCommand in sshd_config, a command in authorized_keys, or another login shell than sh"
	}
	return c.unreachable(fmt.Errorf("the login shell of user %q did not start /bin/sh: %s", c.user, said))
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

// headBuffer keeps the beginning of what is written.
type headBuffer struct {
	mu    sync.Mutex
	limit int
	cut   bool
	buf   bytes.Buffer
}

func (b *headBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	room := b.limit - b.buf.Len()
	if len(p) > room {
		b.cut = true
		b.buf.Write(p[:room])
		return len(p), nil
	}
	return b.buf.Write(p)
}

func (b *headBuffer) String() string  { b.mu.Lock(); defer b.mu.Unlock(); return b.buf.String() }
func (b *headBuffer) truncated() bool { b.mu.Lock(); defer b.mu.Unlock(); return b.cut }

// tailBuffer keeps the end of what is written.
type tailBuffer struct {
	limit int
	buf   []byte
}

func (b *tailBuffer) write(p []byte) {
	b.buf = append(b.buf, p...)
	if over := len(b.buf) - b.limit; over > 0 {
		b.buf = append(b.buf[:0], b.buf[over:]...)
	}
}

// startedBuffer keeps the end of the standard error, and takes the started mark out of it.
type startedBuffer struct {
	mu   sync.Mutex
	seen bool
	tail tailBuffer
}

func (b *startedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tail.write(p)
	if !b.seen {
		if i := bytes.Index(b.tail.buf, []byte(started)); i >= 0 {
			b.seen = true
			b.tail.buf = append(b.tail.buf[:i], b.tail.buf[i+len(started):]...)
		}
	}
	return len(p), nil
}

func (b *startedBuffer) String() string { b.mu.Lock(); defer b.mu.Unlock(); return string(b.tail.buf) }
func (b *startedBuffer) begun() bool    { b.mu.Lock(); defer b.mu.Unlock(); return b.seen }
