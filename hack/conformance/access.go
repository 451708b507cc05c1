// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"sync"

	cryptossh "golang.org/x/crypto/ssh"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
)

// bastion makes the first contact with the jump host, which has to be pinned before anything goes through it.
func bastion(ctx context.Context, s *session) (string, error) {
	if s.target.Bastion == nil {
		return "", &skipped{"no jump host was given"}
	}
	conn, err := ssh.Dial(ctx, *s.target.Bastion, ssh.PoolOptions{})
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	if len(s.target.Bastion.HostKeys) > 0 {
		return ssh.Fingerprint(conn.HostKey()) + ", as given", nil
	}
	pinned := *s.target.Bastion
	pinned.HostKeys = []ssh.PublicKey{conn.HostKey()}
	s.target.Bastion = &pinned
	return ssh.Fingerprint(conn.HostKey()) + ", pinned for this run", nil
}

// hostKey is the first contact. From here on the key is pinned, as registration does it.
func hostKey(ctx context.Context, s *session) (string, error) {
	conn, err := s.conn(ctx)
	if err != nil {
		return "", err
	}
	key := conn.HostKey()
	s.report.fact("host key", key.Type())
	if s.strict {
		return fmt.Sprintf("%s, as given", ssh.Fingerprint(key)), nil
	}
	s.target.HostKeys = []ssh.PublicKey{key}
	return fmt.Sprintf("%s; compare it on the host: ssh-keygen -lf /etc/ssh/ssh_host_%s_key.pub", ssh.Fingerprint(key), shortType(key)), nil
}

func shortType(key ssh.PublicKey) string {
	for _, name := range []string{"ed25519", "ecdsa", "rsa"} {
		if strings.Contains(key.Type(), name) {
			return name
		}
	}
	return key.Type()
}

// otherHostKey pins a key that the host does not have: it must not be talked to.
func otherHostKey(ctx context.Context, s *session) (string, error) {
	public, _, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return "", err
	}
	other, err := cryptossh.NewPublicKey(public)
	if err != nil {
		return "", err
	}
	target := s.target
	target.HostKeys = []ssh.PublicKey{other}
	conn, err := ssh.Dial(ctx, target, ssh.PoolOptions{})
	if err == nil {
		_ = conn.Close()
		return "", errors.New("the host was taken for one with another key")
	}
	var changed *ssh.HostKeyChangedError
	if !errors.As(err, &changed) {
		return "", fmt.Errorf("the refusal of another host key was not told from other failures: %w", err)
	}
	return "a host with another key than the pinned one is refused", nil
}

// becomeRoot runs a first script, which also shows that the login shell hands over to /bin/sh.
func becomeRoot(ctx context.Context, s *session) (string, error) {
	id, err := s.run(ctx, "id -u")
	if err != nil {
		return "", err
	}
	if id != "0" {
		return "", fmt.Errorf("the script ran as user ID %s, not as root", id)
	}
	return "as " + s.report.Access, nil
}

func exitCode(ctx context.Context, s *session) (string, error) {
	_, err := s.run(ctx, "echo the reason >&2; exit 42")
	var exit *ssh.ExitError
	switch {
	case !errors.As(err, &exit):
		return "", fmt.Errorf("a script that ended with code 42 was reported as: %w", err)
	case exit.Code != 42:
		return "", fmt.Errorf("a script that ended with code 42 was reported to have ended with %d", exit.Code)
	case !strings.Contains(exit.Stderr, "the reason"):
		return "", fmt.Errorf("what the script said on standard error is lost: %q", exit.Stderr)
	}
	return "", nil
}

// upload sends more than any plan is, with every byte value in it.
func upload(ctx context.Context, s *session) (string, error) {
	const size = 2 << 20
	content := make([]byte, size)
	if _, err := rand.Read(content); err != nil {
		return "", err
	}
	for i := range 256 {
		content[i] = byte(i)
	}
	root := ssh.Quote(s.runner.Root)
	s.dirty = true
	if _, err := s.run(ctx, "umask 077 && mkdir -p "+root); err != nil {
		return "", err
	}
	conn, err := s.conn(ctx)
	if err != nil {
		return "", err
	}
	path := s.runner.Root + "/upload"
	if err := conn.Upload(ctx, path, 0o640, content); err != nil {
		return "", err
	}
	out, err := s.run(ctx, fmt.Sprintf("sha256sum <%[1]s && stat -c %%a %[1]s && rm %[1]s", ssh.Quote(path)))
	if err != nil {
		return "", err
	}
	if want := fmt.Sprintf("%x", sha256.Sum256(content)); !strings.HasPrefix(out, want) || !strings.HasSuffix(out, "640") {
		return "", fmt.Errorf("%d bytes arrived damaged or with another mode: %s", size, out)
	}
	return fmt.Sprintf("%d MiB, unchanged", size>>20), nil
}

// parallel is how many commands a manager may have under way on one host.
const parallel = 8

// sessions of one connection, at the same time.
func sessions(ctx context.Context, s *session) (string, error) {
	conn, err := s.conn(ctx)
	if err != nil {
		return "", err
	}
	errs := make([]error, parallel)
	var group sync.WaitGroup
	for i := range parallel {
		group.Go(func() {
			_, errs[i] = conn.Run(ctx, ssh.Command{Script: "cat >/dev/null", Sudo: true, Stdin: bytes.NewReader(make([]byte, 64<<10))})
		})
	}
	group.Wait()
	if err := errors.Join(errs...); err != nil {
		return "", fmt.Errorf("%d commands at once over one connection; is MaxSessions in sshd_config less than 10? %w", parallel, err)
	}
	return fmt.Sprintf("%d commands at once over one connection", parallel), nil
}

// forwarding matters for control planes: etcd of a host is reached through its sshd.
func forwarding(ctx context.Context, s *session) (string, error) {
	conn, err := s.conn(ctx)
	if err != nil {
		return "", err
	}
	// Nothing need listen there: a refused connection proves as well that sshd tried.
	far, err := conn.DialContext(ctx, "tcp", "127.0.0.1:2379")
	var refused *ssh.ForwardingError
	switch {
	case err == nil:
		_ = far.Close()
	case !errors.As(err, &refused) || refused.Prohibited:
		return "", err
	}
	return "sshd forwards connections, as etcd needs it", nil
}

func noexecTmp(ctx context.Context, s *session) (string, error) {
	out, err := s.run(ctx, `awk '$2 == "/tmp" && $4 ~ /(^|,)noexec(,|$)/ { print "noexec" }' /proc/self/mounts`)
	if err != nil {
		return "", err
	}
	if out == "" {
		return "", &skipped{"/tmp of this machine is not mounted noexec"}
	}
	return "/tmp is mounted noexec, and the checks before this one did not mind", nil
}
