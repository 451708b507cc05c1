// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	cryptossh "golang.org/x/crypto/ssh"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
)

// hostUser logs in to the hosts and may sudo.
const hostUser = "quoin"

// keys is how the hosts are logged in to.
type keys struct {
	private    []byte
	authorized []byte
	signer     cryptossh.Signer
}

func (l *Lab) privateKeyFile() string { return l.Path("id_ed25519") }

// makeKeys makes a key pair of this lab alone.
func (l *Lab) makeKeys() error {
	private, err := newPrivateKey()
	if err != nil {
		return err
	}
	if err := os.WriteFile(l.privateKeyFile(), private, 0o600); err != nil {
		return fmt.Errorf("SSH key: %w", err)
	}
	return l.loadKeys()
}

// newPrivateKey is an ed25519 key in OpenSSH's format.
func newPrivateKey() ([]byte, error) {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("SSH key: %w", err)
	}
	block, err := cryptossh.MarshalPrivateKey(private, Name)
	if err != nil {
		return nil, fmt.Errorf("SSH key: %w", err)
	}
	return pem.EncodeToMemory(block), nil
}

func (l *Lab) loadKeys() error {
	private, err := os.ReadFile(l.privateKeyFile())
	if err != nil {
		return fmt.Errorf("SSH key: %w", err)
	}
	signer, err := ssh.ParseSigner(private)
	if err != nil {
		return err
	}
	l.keys = keys{private: private, signer: signer, authorized: cryptossh.MarshalAuthorizedKey(signer.PublicKey())}
	return nil
}

// OnHost runs a script as root on a host, over SSH, and returns what it printed.
func (l *Lab) OnHost(ctx context.Context, host *Host, script string) (string, error) {
	result, err := l.SSH(host).Run(ctx, ssh.Command{Script: script, Sudo: true})
	return result.Stdout, err
}

// SSH is a host as the packages below bootstrap see it. Each call makes its own connection, so that a host that rebooted,
// or that has another key now, is no special case.
func (l *Lab) SSH(host *Host) ssh.Host { return &access{lab: l, host: host} }

type access struct {
	lab  *Lab
	host *Host
}

func (a *access) dial(ctx context.Context) (*ssh.Conn, error) {
	target := ssh.Target{Address: a.host.Address, User: hostUser, Signers: []cryptossh.Signer{a.lab.keys.signer}}
	conn, err := ssh.Dial(ctx, target, ssh.PoolOptions{})
	if err != nil {
		return nil, fmt.Errorf("host %s: %w", a.host.Name, err)
	}
	return conn, nil
}

// Run implements ssh.Host.
func (a *access) Run(ctx context.Context, command ssh.Command) (ssh.Result, error) {
	conn, err := a.dial(ctx)
	if err != nil {
		return ssh.Result{}, err
	}
	defer func() { _ = conn.Close() }()
	result, err := conn.Run(ctx, command)
	if err != nil {
		return result, fmt.Errorf("host %s: %w", a.host.Name, err)
	}
	return result, nil
}

// Upload implements ssh.Host.
func (a *access) Upload(ctx context.Context, path string, mode os.FileMode, content []byte) error {
	_, err := a.Run(ctx, ssh.UploadCommand(path, mode, content))
	return err
}

// DialContext implements ssh.Host, and is not needed here.
func (a *access) DialContext(context.Context, string, string) (net.Conn, error) {
	return nil, errors.New("the lab opens no connections through its hosts")
}

// hostKey reads the public key of a host's sshd at its console, not over the network: that is what pinning is about.
func (l *Lab) hostKey(ctx context.Context, host *Host) (string, error) {
	out, err := l.Console(ctx, host.Container(), "cat /etc/ssh/ssh_host_ed25519_key.pub")
	if err != nil {
		return "", err
	}
	fields := strings.Fields(out)
	if len(fields) < 2 {
		return "", fmt.Errorf("host %s has no ed25519 host key", host.Name)
	}
	return fields[0] + " " + fields[1], nil
}

// NewHostKeys gives a host other SSH host keys, as a reinstallation would.
func (l *Lab) NewHostKeys(ctx context.Context, host *Host) error {
	_, err := l.Console(ctx, host.Container(), "rm -f /etc/ssh/ssh_host_* && ssh-keygen -A && systemctl restart ssh")
	return err
}

// HostKeyFingerprint of a host's ed25519 key, as ssh-keygen -l prints it.
func (l *Lab) HostKeyFingerprint(ctx context.Context, host *Host) (string, error) {
	text, err := l.hostKey(ctx, host)
	if err != nil {
		return "", err
	}
	parsed, err := ssh.ParseHostKeys(text)
	if err != nil {
		return "", err
	}
	return ssh.Fingerprint(parsed[0]), nil
}
