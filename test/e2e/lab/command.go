// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// command is a program to run. It ends with its context, together with everything that it started.
type command struct {
	name string
	args []string
	// env is added to our own.
	env   []string
	dir   string
	stdin io.Reader
	// line gets each line of standard error as it comes.
	line func(string)
	// quiet keeps the output out of the log, because it is long or secret.
	quiet bool
}

// run runs c and returns its standard output. The error carries the end of what it printed. Everything is appended to
// commands.log in the state folder.
func (l *Lab) run(ctx context.Context, c command) (string, error) {
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, c.name, c.args...)
	cmd.Dir, cmd.Stdin = c.dir, c.stdin
	if cmd.Dir == "" {
		cmd.Dir = l.Root
	}
	cmd.Env = append(os.Environ(), "QUOIN_CACHE="+l.Cache)
	cmd.Env = append(cmd.Env, c.env...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if c.line != nil {
		cmd.Stderr = io.MultiWriter(&stderr, &lines{each: c.line})
	}
	// A group of its own, because scripts start compilers: ending only the script would leave those.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second

	began := time.Now()
	err := cmd.Run()
	if cmd.Process != nil && ctx.Err() != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	}
	l.logCommand(c, began, stdout.String(), stderr.String(), err)
	if err != nil {
		if ctx.Err() != nil {
			err = fmt.Errorf("%w (%w)", ctx.Err(), err)
		}
		return stdout.String(), fmt.Errorf("%s: %w%s", c.title(), err, indent(tail(stderr.String()+stdout.String(), 15)))
	}
	return stdout.String(), nil
}

// title is the command as a person recognizes it.
func (c command) title() string {
	text := strings.Join(append([]string{filepath.Base(c.name)}, c.args...), " ")
	if len(text) > 160 {
		text = text[:160] + "..."
	}
	return text
}

func (l *Lab) logCommand(c command, began time.Time, stdout, stderr string, err error) {
	l.logging.Lock()
	defer l.logging.Unlock()
	file, openErr := os.OpenFile(l.Path("commands.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if openErr != nil {
		return
	}
	defer func() { _ = file.Close() }()
	_, _ = fmt.Fprintf(file, "%s (%s) %s: %v\n", began.Format(time.TimeOnly), time.Since(began).Round(time.Millisecond), c.title(), err)
	if !c.quiet {
		_, _ = fmt.Fprintf(file, "%s%s\n", indent(tail(stdout, 200)), indent(tail(stderr, 200)))
	}
}

// tail is the last n lines.
func tail(text string, n int) string {
	all := strings.Split(strings.TrimRight(text, "\n"), "\n")
	if len(all) > n {
		all = all[len(all)-n:]
	}
	return strings.Join(all, "\n")
}

func indent(text string) string {
	if strings.TrimSpace(text) == "" {
		return ""
	}
	return "\n    " + strings.ReplaceAll(text, "\n", "\n    ")
}

// lines cuts a stream into lines.
type lines struct {
	each func(string)
	rest []byte
}

func (w *lines) Write(p []byte) (int, error) {
	w.rest = append(w.rest, p...)
	for {
		at := bytes.IndexByte(w.rest, '\n')
		if at < 0 {
			return len(p), nil
		}
		if line := strings.TrimSpace(string(w.rest[:at])); line != "" {
			w.each(line)
		}
		w.rest = w.rest[at+1:]
	}
}
