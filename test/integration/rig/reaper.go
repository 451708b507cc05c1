// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// markVariable marks every process of a rig in its environment, so that the reaper kills those and no others, even
// when process ids have been used again.
const markVariable = "QUOIN_RIG"

// reaperScript waits for the end of its standard input, whose other end only the test process holds, and then ends
// every process that carries the mark. A parent-death signal would not do: it fires when the *thread* that started the
// child ends, and Go's threads come and go; and the grandchildren that envtest starts would not have it.
const reaperScript = `
trap '' INT TERM HUP
cat >/dev/null
for signal in TERM KILL; do
  for file in $(grep -lzxF "$1" /proc/[0-9]*/environ 2>/dev/null); do
    pid=${file#/proc/}
    kill -s $signal "${pid%/environ}" 2>/dev/null
  done
  [ $signal = KILL ] && break
  for second in 1 2 3; do
    grep -qzxF "$1" /proc/[0-9]*/environ 2>/dev/null || break
    sleep 1
  done
done
rm -rf "$2"
`

// Reaper is the last line: it survives the test process and cleans up after it, however that ended.
type Reaper struct {
	mark    string
	scratch string
	input   *os.File
	command *exec.Cmd
}

func (r *Rig) startReaper(context.Context) error {
	var err error
	r.reaper, err = NewReaper()
	return err
}

// NewReaper starts a reaper for processes that somebody else than a Rig starts: they need Mark in their environment.
func NewReaper() (*Reaper, error) {
	scratch, err := os.MkdirTemp("", "quoin-rig-")
	if err != nil {
		return nil, fmt.Errorf("starting the reaper: %w", err)
	}
	read, write, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("starting the reaper: %w", err)
	}
	mark := markVariable + "=" + scratch
	command := exec.Command("/bin/sh", "-c", reaperScript, "reaper", mark, scratch)
	command.Stdin = read
	// A session of its own keeps it alive when a terminal interrupts the test's whole process group.
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := command.Start(); err != nil {
		return nil, fmt.Errorf("starting the reaper: %w", err)
	}
	_ = read.Close()
	return &Reaper{mark: mark, scratch: scratch, input: write, command: command}, nil
}

// Mark is the variable, as name=value, by which the reaper knows its processes.
func (p *Reaper) Mark() string { return p.mark }

// Scratch is a folder that goes with the reaper.
func (p *Reaper) Scratch() string { return p.scratch }

// Finish lets the reaper do its work and waits for it.
func (p *Reaper) Finish() error {
	_ = p.input.Close()
	done := make(chan error, 1)
	go func() { done <- p.command.Wait() }()
	select {
	case err := <-done:
		return err
	case <-time.After(15 * time.Second):
		return fmt.Errorf("the reaper of %s does not end", p.mark)
	}
}

// wrap writes a program that runs another one under the reaper's mark, for programs that somebody else starts. The
// process id stays the same.
func (p *Reaper) wrap(program string) (string, error) {
	path := filepath.Join(p.scratch, filepath.Base(program))
	script := fmt.Sprintf("#!/bin/sh\nexec env '%s' '%s' \"$@\"\n", p.mark, program)
	if err := os.WriteFile(path, []byte(script), 0o755); err != nil {
		return "", fmt.Errorf("wrapping %s: %w", program, err)
	}
	return path, nil
}
