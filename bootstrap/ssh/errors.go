// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package ssh

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// ExitError says that the script ran and ended with a code other than 0.
type ExitError struct {
	// Code is the exit code; 128+n after signal n.
	Code int
	// Stderr is the end of what the script printed to its standard error.
	Stderr string
}

func (e *ExitError) Error() string {
	if tail := lastLines(e.Stderr, 5); tail != "" {
		return fmt.Sprintf("the command ended with code %d: %s", e.Code, tail)
	}
	return fmt.Sprintf("the command ended with code %d", e.Code)
}

// UnreachableError says that no usable connection came about: the script never ran.
type UnreachableError struct {
	Endpoint string
	Err      error
}

func (e *UnreachableError) Error() string {
	return fmt.Sprintf("cannot reach %s over SSH: %v; check that the host is up and that sshd answers there", e.Endpoint, e.Err)
}

func (e *UnreachableError) Unwrap() error { return e.Err }

// InterruptedError says that the connection was lost after the script was handed over: it may have run, in part or in
// whole. Only a script that can run twice may be repeated.
type InterruptedError struct {
	Endpoint string
	Err      error
}

func (e *InterruptedError) Error() string {
	return fmt.Sprintf("the connection to %s was lost while a command ran: %v", e.Endpoint, e.Err)
}

func (e *InterruptedError) Unwrap() error { return e.Err }

// HostKeyChangedError says that the host presented a key that is not pinned. Nothing was sent, not even our identity.
type HostKeyChangedError struct {
	Endpoint string
	// Want and Got are SHA256 fingerprints.
	Want []string
	Got  string
	// Key is the presented key, so that a person's consent to its fingerprint can pin it; nil when the host has no key of
	// a pinned type any more.
	Key PublicKey
}

func (e *HostKeyChangedError) Error() string {
	return fmt.Sprintf("%s presented host key %s, but %s is pinned; if the host was reinstalled on purpose, replace the pinned key, else somebody answers in its place",
		e.Endpoint, e.Got, strings.Join(e.Want, " or "))
}

// AuthError says that the host refused our user or key: the script never ran.
type AuthError struct {
	Endpoint, User string
	// Fingerprints of the public keys that were offered.
	Fingerprints []string
}

func (e *AuthError) Error() string {
	return fmt.Sprintf("%s refused user %q with key %s; add that public key to the user's authorized_keys, or correct the credentials Secret",
		e.Endpoint, e.User, strings.Join(e.Fingerprints, ", "))
}

// SudoError says that the user may log in but not become root without a password: the script never ran.
type SudoError struct {
	Endpoint, User string
	// Detail is what sudo said.
	Detail string
}

func (e *SudoError) Error() string {
	return fmt.Sprintf("user %q on %s cannot become root (%s); install sudo there and add \"%s ALL=(ALL) NOPASSWD:ALL\" to its sudoers, or log in as root",
		e.User, e.Endpoint, e.Detail, e.User)
}

// ForwardingError says that the host refused to open a connection for us.
type ForwardingError struct {
	Endpoint, Addr string
	// Prohibited is true when sshd's configuration forbids forwarding; false when nothing answered at Addr.
	Prohibited bool
	Err        error
}

func (e *ForwardingError) Error() string {
	if e.Prohibited {
		return fmt.Sprintf("sshd on %s does not allow TCP forwarding to %s; set \"AllowTcpForwarding local\" (or yes) in its sshd_config", e.Endpoint, e.Addr)
	}
	return fmt.Sprintf("no connection from %s to %s: %v", e.Endpoint, e.Addr, e.Err)
}

func (e *ForwardingError) Unwrap() error { return e.Err }

// IsTransient says whether trying again later, with nothing changed by a person, may succeed.
func IsTransient(err error) bool {
	var unreachable *UnreachableError
	var interrupted *InterruptedError
	var forwarding *ForwardingError
	switch {
	case errors.As(err, &forwarding):
		return !forwarding.Prohibited
	case errors.As(err, &unreachable), errors.As(err, &interrupted):
		return true
	}
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// NeverRan says whether the script certainly did not start, so that it may be repeated whatever it does.
func NeverRan(err error) bool {
	var unreachable *UnreachableError
	var hostKey *HostKeyChangedError
	var auth *AuthError
	var sudo *SudoError
	return errors.As(err, &unreachable) || errors.As(err, &hostKey) || errors.As(err, &auth) || errors.As(err, &sudo)
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	if len(lines) > n {
		lines = lines[len(lines)-n:]
	}
	return strings.Join(lines, "\n")
}
