// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package sshtest

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// pty is a terminal of this machine's kernel.
type pty struct{ master, slave *os.File }

func newPTY() (*pty, error) {
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0)
	}
	var slave *os.File
	if err == nil {
		slave, err = os.OpenFile(fmt.Sprint("/dev/pts/", number), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		_ = master.Close()
		return nil, err
	}
	return &pty{master: master, slave: slave}, nil
}

// show copies what appears on the terminal. The channel that it returns is closed when nobody has the terminal open any
// more.
func (p *pty) show(to io.Writer) <-chan struct{} {
	done := make(chan struct{})
	if p == nil {
		close(done)
		return done
	}
	_ = p.slave.Close()
	go func() {
		defer close(done)
		_, _ = io.Copy(to, p.master)
	}()
	return done
}

func (p *pty) close() {
	if p != nil {
		_ = p.slave.Close()
		_ = p.master.Close()
	}
}
