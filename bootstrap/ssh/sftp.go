// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package ssh

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/pkg/sftp"
	"golang.org/x/crypto/ssh"
	"golang.org/x/time/rate"
)

// sftpPacket is the most that travels in one write. Each write waits for its answer, so that the file never has holes
// and its length says how much of it is right; large packets make up for that. sshd takes 256 KiB at most, headers
// included.
const sftpPacket = 128 << 10

// pushSFTP writes content through the SFTP subsystem. x/crypto and sftp know no contexts: each of the two halves runs
// in a goroutine of its own, which the end of the session ends.
func (c *Conn) pushSFTP(
	ctx context.Context, path string, content io.ReadSeeker, size int64, limiter *rate.Limiter,
) error {
	if c.broken() {
		return c.unreachable(errClosed)
	}
	c.begin()
	defer c.end()
	session, err := c.session(ctx)
	if err != nil {
		return err
	}
	defer func() {
		// The goodbye to a host that fell silent would take as long as its silence.
		go func() { _ = session.Close() }()
		<-c.sessions
	}()
	var file *sftp.File
	var there int64
	err = c.within(ctx, func() error {
		var err error
		file, there, err = openRemote(session, path, size)
		return err
	})
	if err != nil || there == size && size > 0 {
		return err
	}
	rest, err := newPaced(ctx, content, there, size, limiter)
	if err != nil {
		return err
	}
	err = c.within(ctx, func() error { return appendRemote(file, rest, there, size) })
	if readErr := rest.stop(); readErr != nil {
		return readErr
	}
	return err
}

// within runs one half of a conversation. Its error says whether the connection or the file system failed.
func (c *Conn) within(ctx context.Context, half func() error) error {
	done := make(chan error, 1)
	go func() { done <- half() }()
	var err error
	select {
	case err = <-done:
	case <-ctx.Done():
		return &InterruptedError{Endpoint: c.endpoint, Err: ctx.Err()}
	}
	var status *sftp.StatusError
	if err == nil || errors.As(err, &status) || errors.Is(err, os.ErrNotExist) || errors.Is(err, os.ErrPermission) {
		return err
	}
	if c.look(); c.broken() {
		return &InterruptedError{Endpoint: c.endpoint, Err: err}
	}
	return err
}

func openRemote(session *ssh.Session, path string, size int64) (*sftp.File, int64, error) {
	stdin, err := session.StdinPipe()
	if err != nil {
		return nil, 0, err
	}
	stdout, err := session.StdoutPipe()
	if err != nil {
		return nil, 0, err
	}
	if err := session.RequestSubsystem("sftp"); err != nil {
		return nil, 0, fmt.Errorf("asking sshd for SFTP: %w", err)
	}
	client, err := sftp.NewClientPipe(stdout, stdin, sftp.MaxPacketUnchecked(sftpPacket))
	if err != nil {
		return nil, 0, fmt.Errorf("starting SFTP: %w", err)
	}
	file, err := client.OpenFile(path, os.O_WRONLY|os.O_CREATE)
	if err != nil {
		return nil, 0, err
	}
	info, err := file.Stat()
	if err != nil {
		return nil, 0, err
	}
	there := info.Size()
	if there > size {
		there = 0
		err = file.Truncate(0)
	}
	if err == nil && there == 0 {
		err = file.Chmod(0o600)
	}
	return file, there, err
}

func appendRemote(file *sftp.File, rest io.Reader, there, size int64) error {
	if _, err := file.Seek(there, io.SeekStart); err != nil {
		return err
	}
	written, err := file.ReadFrom(rest)
	if err != nil {
		return err
	}
	if there+written != size {
		return fmt.Errorf("the content arrived in part only: %w", io.ErrShortWrite)
	}
	// Not every server can; what is lost to a power failure is found when the checksum is verified.
	_ = file.Sync()
	return file.Close()
}
