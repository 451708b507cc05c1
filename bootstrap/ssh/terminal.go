// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package ssh

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"io"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/crypto/ssh"
)

// terminalHead and terminalTail enclose sudo where its requiretty asks for a terminal. The session gets one, and sudo
// finds it as its controlling terminal; but what goes through a terminal is neither kept as it is nor kept apart. So
// the user's shell takes lines of base64 from it, up to a line with a dot, and gives lines of base64 back, each with a
// mark: R it is ready, O standard output, E standard error, X the exit code. sudo itself has pipes.
const (
	terminalHead = `stty raw -echo
p=$(printf "\001")
back() { base64 | sed "s/^/$p$1/"; }
exec 3>&1
echo "${p}R"
code=$({ { sed -n "/^[.]\$/q;p" | base64 -d | { `
	terminalTail = ` 3>&- 5>&-; echo $? >&5; } 2>&1 >&4 | back E >&3; } 4>&1 | back O >&3; } 5>&1)
echo "${p}X$code"
`
)

// terminal is the manner for a sudo that wants one. Output comes when the script has ended.
type terminal struct {
	conn   *Conn
	output *terminalOutput
	// refused says that sshd gives no terminals.
	refused bool
}

func (t *terminal) start(ctx context.Context, session *ssh.Session, command Command, stdout *headBuffer) error {
	t.output = newTerminalOutput(stdout)
	session.Stdout = t.output
	stdin, err := session.StdinPipe()
	if err != nil {
		return err
	}
	// No line discipline, as far as sshd grants it; stty asks once more, and nothing is sent before it has.
	modes := ssh.TerminalModes{ssh.ECHO: 0, ssh.ICANON: 0, ssh.ISIG: 0, ssh.IEXTEN: 0, ssh.IXON: 0, ssh.ICRNL: 0,
		ssh.OPOST: 0}
	if err := session.RequestPty("dumb", 24, 80, modes); err != nil {
		t.refused = strings.Contains(err.Error(), "pty-req failed")
		return err
	}
	script := terminalHead + t.conn.shell(len(command.Script), true) + terminalTail
	if err := session.Start("exec /bin/sh -c " + Quote(script)); err != nil {
		return err
	}
	go func() {
		select {
		case <-t.output.ready:
			sendLines(stdin, command)
		case <-ctx.Done():
		case <-t.conn.closed:
		}
	}()
	return nil
}

// sendLines sends the script and the standard input as base64. A terminal has no end of its own, hence the dot.
func sendLines(to io.Writer, command Command) {
	input := io.Reader(strings.NewReader(command.Script + end))
	if command.Stdin != nil {
		input = io.MultiReader(input, command.Stdin)
	}
	chunk := make([]byte, 48<<10)
	line := make([]byte, 0, 66<<10)
	for {
		n, err := io.ReadFull(input, chunk)
		line = line[:0]
		for at := 0; at < n; at += 57 {
			line = base64.StdEncoding.AppendEncode(line, chunk[at:min(at+57, n)])
			line = append(line, '\n')
		}
		if err != nil {
			line = append(line, ".\n"...)
		}
		if _, writeErr := to.Write(line); err != nil || writeErr != nil {
			return
		}
	}
}

func (t *terminal) finish(err error) (Result, error) {
	c, o := t.conn, t.output
	code, ended := o.exit()
	if t.refused {
		return Result{}, &SudoError{Endpoint: c.endpoint, User: c.user, Command: c.sudoCommand,
			Detail: "sudo needs a tty, but sshd gives none: PermitTTY no"}
	}
	if !ended {
		var exit *ssh.ExitError
		if errors.As(err, &exit) || err == nil {
			return Result{}, c.noShell(o.said())
		}
		c.look()
		return Result{}, &InterruptedError{Endpoint: c.endpoint, Err: err}
	}
	result := Result{Stdout: o.stdout.String(), Stderr: o.stderr.String(), Truncated: o.stdout.truncated()}
	return result, c.exitError(code, true, result, o.stderr.begun())
}

// terminalOutput takes the lines apart again. A line is no longer than base64 makes it; what is longer is none of ours.
type terminalOutput struct {
	ready  chan struct{}
	stdout *headBuffer
	stderr *startedBuffer

	mu    sync.Mutex
	line  []byte
	other tailBuffer
	first bool
	code  int
	ended bool
}

func newTerminalOutput(stdout *headBuffer) *terminalOutput {
	return &terminalOutput{
		ready: make(chan struct{}), stdout: stdout, stderr: newStartedBuffer(),
		other: tailBuffer{limit: 4096},
	}
}

const maxTerminalLine = 1024

// Write implements io.Writer.
func (o *terminalOutput) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for rest := p; len(rest) > 0; {
		at := bytes.IndexByte(rest, '\n')
		part := rest
		if at >= 0 {
			part = rest[:at]
		}
		o.line = append(o.line, part[:min(len(part), maxTerminalLine-len(o.line))]...)
		if at < 0 {
			break
		}
		o.take(strings.TrimRight(string(o.line), "\r"))
		o.line, rest = o.line[:0], rest[at+1:]
	}
	return len(p), nil
}

func (o *terminalOutput) take(line string) {
	if len(line) < 2 || line[0] != '\x01' {
		o.other.write([]byte(line + "\n"))
		return
	}
	kind, text := line[1], line[2:]
	switch kind {
	case 'R':
		if !o.first {
			o.first = true
			close(o.ready)
		}
	case 'X':
		if code, err := strconv.Atoi(text); err == nil {
			o.code, o.ended = code, true
		}
	case 'O', 'E':
		data, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			return
		}
		if kind == 'O' {
			_, _ = o.stdout.Write(data)
		} else {
			_, _ = o.stderr.Write(data)
		}
	}
}

func (o *terminalOutput) exit() (int, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.code, o.ended
}

func (o *terminalOutput) said() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return string(o.other.buf)
}
