// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package ssh

import (
	"context"
	"errors"
	"fmt"
	"slices"
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
	// Through is the bastion that carried the attempt, and did its part; "" without one.
	Through string
	Err     error
}

func (e *UnreachableError) Error() string {
	if e.Through != "" {
		return fmt.Sprintf("cannot reach %s over SSH through bastion %s: %v; check that the host is up and that sshd "+
			"answers there", e.Endpoint, e.Through, e.Err)
	}
	return fmt.Sprintf("cannot reach %s over SSH: %v; check that the host is up and that sshd answers there", e.Endpoint,
		e.Err)
}

func (e *UnreachableError) Unwrap() error { return e.Err }

// ShellError says that the user's login shell did something else than to start our script. It comes in an
// *UnreachableError.
type ShellError struct {
	User string
	// Said is what came in place of the script's output.
	Said string
}

func (e *ShellError) Error() string {
	return fmt.Sprintf("the login shell of user %q did not start /bin/sh: %s", e.User, e.Said)
}

// RefusedError says that PoolOptions.Control refused the address: nothing was dialed, and nothing is known about the
// host. It is no *UnreachableError, for the same reason as a *BastionError.
type RefusedError struct {
	Endpoint string
	// Bastion says that Endpoint is a jump host, not the host itself.
	Bastion bool
	Err     error
}

func (e *RefusedError) Error() string {
	who := e.Endpoint
	if e.Bastion {
		who = "bastion " + who
	}
	return fmt.Sprintf("%s is not connected to: %v", who, e.Err)
}

func (e *RefusedError) Unwrap() error { return e.Err }

// BastionError says that the jump host failed, so that nothing is known about the host behind it: the script never ran.
// It is never an *UnreachableError, not even by errors.As: whoever counts how long a host has been silent must not
// count the silence of its bastion. An *AuthError, *HostKeyChangedError or *ForwardingError of the bastion is found by
// errors.As.
type BastionError struct {
	// Bastion is its endpoint.
	Bastion string
	Err     error
}

func (e *BastionError) Error() string {
	return fmt.Sprintf("the bastion %s failed, so that the host behind it cannot be asked: %v", e.Bastion, e.Err)
}

func (e *BastionError) Unwrap() error {
	if unreachable, ok := e.Err.(*UnreachableError); ok { //nolint:errorlint // only the outermost one hides here
		return unreachable.Err
	}
	return e.Err
}

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

// OutputError says that a command printed more than PoolOptions.Output has room for, and was ended for it: it may have
// run, in part or in whole. The host answers.
type OutputError struct {
	Endpoint string
	Err      error
}

func (e *OutputError) Error() string {
	return fmt.Sprintf("a command on %s was ended for what it prints: %v", e.Endpoint, e.Err)
}

func (e *OutputError) Unwrap() error { return e.Err }

// HostKeyChangedError says that the host presented a key that is not pinned, or a certificate that is not accepted.
// Nothing was sent, not even our identity.
type HostKeyChangedError struct {
	Endpoint string
	// Bastion says that Endpoint is a jump host, not the host itself.
	Bastion bool
	// Want and Got are SHA256 fingerprints.
	Want []string
	Got  string
	// Authorities are the fingerprints of the authorities whose host certificates would be accepted.
	Authorities []string
	// Certificate is why the certificate of the presented key is not accepted; "" when there was none.
	Certificate string
	// Key is the presented key, so that a person's consent to its fingerprint can pin it; nil when the host has no key of
	// a pinned type any more, and for a bastion.
	Key PublicKey
}

// Expected says what would have been accepted.
func (e *HostKeyChangedError) Expected() string {
	var parts []string
	if len(e.Want) > 0 {
		parts = append(parts, strings.Join(e.Want, " or "))
	}
	if len(e.Authorities) > 0 {
		parts = append(parts, "a key certified by "+strings.Join(e.Authorities, " or "))
	}
	return strings.Join(parts, " or ")
}

// Seen says what was presented instead.
func (e *HostKeyChangedError) Seen() string {
	if e.Certificate != "" {
		return fmt.Sprintf("%s with a certificate that is not accepted: %s", e.Got, e.Certificate)
	}
	return e.Got
}

func (e *HostKeyChangedError) Error() string {
	who, way := e.Endpoint, "if the host was reinstalled on purpose, replace the pinned key"
	if e.Bastion {
		who, way = "bastion "+who, "if the bastion was reinstalled on purpose, replace its key in bastion.hostKeys"
	}
	if e.Certificate != "" {
		way = "if that is right, have the host's key signed anew"
	}
	rule := e.Expected() + " is pinned"
	if len(e.Want) == 0 {
		rule = e.Expected() + " is asked for"
	}
	return fmt.Sprintf("%s presented host key %s, but %s; %s, else somebody answers in its place", who, e.Seen(), rule,
		way)
}

// AuthError says that the host refused our user or key: the script never ran.
type AuthError struct {
	Endpoint, User string
	// Bastion says that Endpoint is a jump host, not the host itself.
	Bastion bool
	// Fingerprints of the public keys that were offered.
	Fingerprints []string
}

func (e *AuthError) Error() string {
	who := e.Endpoint
	if e.Bastion {
		who = "bastion " + who
	}
	return fmt.Sprintf("%s refused user %q with key %s; add that public key to the user's authorized_keys, or correct "+
		"the credentials Secret",
		who, e.User, strings.Join(e.Fingerprints, ", "))
}

// AlgorithmsError says that the host answers, but agrees to no algorithm of a kind that is still known to be strong:
// the script never ran.
type AlgorithmsError struct {
	Endpoint string
	// Bastion says that Endpoint is a jump host, not the host itself.
	Bastion bool
	// Kind is what there is no agreement about, such as "key exchange".
	Kind string
	// Accepted would have been agreed to; Offered is what the host does, as it says itself.
	Accepted, Offered []string
}

func (e *AlgorithmsError) Error() string {
	who := e.Endpoint
	if e.Bastion {
		who = "bastion " + who
	}
	// Whoever answers there may say anything, and much of it.
	return fmt.Sprintf("sshd at %s agrees to no %s that is accepted (it offers %.200q); have its sshd_config offer one "+
		"of %s", who, e.Kind, strings.Join(e.Offered, ","), strings.Join(e.Accepted, ","))
}

// SudoError says that the user may log in but not become root without a password: the script never ran.
type SudoError struct {
	Endpoint, User string
	// Command is the only program that the user may run with sudo; "" when it is any.
	Command string
	// Detail is what sudo said.
	Detail string
}

func (e *SudoError) Error() string {
	if e.wantsTerminal() {
		return fmt.Sprintf("sudo on %s wants a terminal (%s), and the one that sshd gave did not do; add \"Defaults:%s "+
			"!requiretty\" to its sudoers",
			e.Endpoint, e.Detail, e.User)
	}
	if e.Command != "" {
		return fmt.Sprintf("user %q on %s cannot run %s as root (%s); install it there, owned by root and writable by "+
			"nobody else, and add \"%s ALL=(root) NOPASSWD: %s\" to the sudoers",
			e.User, e.Endpoint, e.Command, e.Detail, e.User, e.Command)
	}
	return fmt.Sprintf("user %q on %s cannot become root (%s); install sudo there and add \"%s ALL=(ALL) NOPASSWD:ALL\" "+
		"to its sudoers, or log in as root",
		e.User, e.Endpoint, e.Detail, e.User)
}

// wantsTerminal knows sudo's requiretty by the one word that every translation of its message has.
func (e *SudoError) wantsTerminal() bool {
	return slices.Contains(strings.FieldsFunc(strings.ToLower(e.Detail), func(r rune) bool {
		return r < 'a' || r > 'z'
	}), "tty")
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
		return fmt.Sprintf("sshd on %s does not allow TCP forwarding to %s; set \"AllowTcpForwarding local\" (or yes) in "+
			"its sshd_config", e.Endpoint, e.Addr)
	}
	return fmt.Sprintf("no connection from %s to %s: %v", e.Endpoint, e.Addr, e.Err)
}

func (e *ForwardingError) Unwrap() error { return e.Err }

// IsTransient says whether trying again later, with nothing changed by a person, may succeed.
func IsTransient(err error) bool {
	var unreachable *UnreachableError
	var interrupted *InterruptedError
	var output *OutputError
	var forwarding *ForwardingError
	var bastion *BastionError
	if errors.As(err, &bastion) {
		// Its own Unwrap hides what this asks for.
		err = bastion.Err
	}
	switch {
	case errors.As(err, &forwarding):
		return !forwarding.Prohibited
	case errors.As(err, &unreachable), errors.As(err, &interrupted), errors.As(err, &output):
		return true
	}
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// NeverRan says whether the script certainly did not start, so that it may be repeated whatever it does.
func NeverRan(err error) bool {
	var unreachable *UnreachableError
	var hostKey *HostKeyChangedError
	var auth *AuthError
	var algorithms *AlgorithmsError
	var refused *RefusedError
	var sudo *SudoError
	var bastion *BastionError
	return errors.As(err, &bastion) || errors.As(err, &algorithms) || errors.As(err, &refused) ||
		errors.As(err, &unreachable) || errors.As(err, &hostKey) || errors.As(err, &auth) || errors.As(err, &sudo)
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	if len(lines) > n {
		lines = lines[len(lines)-n:]
	}
	return strings.Join(lines, "\n")
}
