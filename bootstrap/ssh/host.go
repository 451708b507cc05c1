// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ssh talks to bare hosts: pinned host keys, one pooled connection per host, every call bound by
// its context, and errors that tell "the command failed" from "it never ran".
package ssh

import (
	"context"
	"io"
	"net"
	"os"
)

// Host is what the rest of Quoin needs of a host. *Conn implements it over SSH; tests implement it locally.
type Host interface {
	// Run executes one POSIX sh script and waits for it. A nil error means exit code 0.
	Run(ctx context.Context, command Command) (Result, error)
	// Upload writes content to path as root, atomically: a reader sees the old file or the new one. The directory must
	// exist.
	Upload(ctx context.Context, path string, mode os.FileMode, content []byte) error
	// DialContext opens a connection from the host to addr (for example 127.0.0.1:2379). Only "tcp" networks.
	DialContext(ctx context.Context, network, addr string) (net.Conn, error)
}

// Guarded is a host that runs scripts only while nothing speaks against it.
type Guarded interface {
	Host
	// Unguarded is the host itself, for what is no script.
	Unguarded() Host
}

// Command is one script to run. The script travels over standard input, so it never shows up in the host's process
// list.
type Command struct {
	// Script is POSIX sh. It must not contain NUL bytes.
	Script string
	// Stdin is what the script finds on its standard input; nil is an empty input.
	Stdin io.Reader
	// Sudo runs the script as root: directly when the connection's user is root, else by `sudo -n`.
	Sudo bool
}

// Result is what a finished script printed.
type Result struct {
	// Stdout is the beginning of the standard output, at most MaxStdout bytes.
	Stdout string
	// Stderr is the end of the standard error, at most MaxStderr bytes.
	Stderr string
	// Truncated says that the script printed more to its standard output than Stdout holds.
	Truncated bool
}

const (
	// MaxStdout bounds Result.Stdout in bytes.
	MaxStdout = 4 << 20
	// MaxStderr bounds Result.Stderr in bytes.
	MaxStderr = 64 << 10
	// OutputPiece is in how many bytes room for standard output is taken from an OutputRoom.
	OutputPiece = 64 << 10
)

// OutputRoom bounds what is kept at once of the standard output of all commands, and of what else shares it. The first
// OutputPiece of each command needs no room in it, so what prints little never waits for what prints much.
type OutputRoom interface {
	// Take takes room for one more piece, for a host of the owner. Its error says why there is none and what to do.
	Take(owner string) error
	// Give gives the room for a piece back.
	Give(owner string)
}
