// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package ssh

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"

	"golang.org/x/crypto/ssh"
)

// DefaultPort is used when Target.Port is 0.
const DefaultPort = 22

// PublicKey is a host's public key.
type PublicKey = ssh.PublicKey

// Signer is a private key that proves who we are.
type Signer = ssh.Signer

// Target says how to reach one host.
type Target struct {
	// Address is an IP address or a DNS name, without a port.
	Address string
	// Port is the SSH port; 0 means DefaultPort.
	Port int
	// User logs in.
	User string
	// Signers prove who we are, tried in order.
	Signers []ssh.Signer
	// HostKeys are the pinned keys of the host. Empty means first contact: any key is taken and Conn.HostKey
	// returns it, so that the caller can record and pin it. Nothing secret should be sent before that.
	HostKeys []ssh.PublicKey
}

// Endpoint is host:port as dialed.
func (t Target) Endpoint() string {
	port := t.Port
	if port == 0 {
		port = DefaultPort
	}
	return net.JoinHostPort(t.Address, strconv.Itoa(port))
}

// ParseSigner reads an unencrypted private key in PEM or OpenSSH form. The error never quotes the key.
func ParseSigner(privateKey []byte) (ssh.Signer, error) {
	signer, err := ssh.ParsePrivateKey(privateKey)
	var encrypted *ssh.PassphraseMissingError
	if errors.As(err, &encrypted) {
		return nil, errors.New("the SSH private key is protected by a passphrase; store it without one")
	}
	if err != nil {
		return nil, errors.New("the SSH private key cannot be parsed; expected PEM or OpenSSH format, for example made by ssh-keygen -t ed25519")
	}
	return signer, nil
}

// ParseHostKeys reads pinned keys, one per line, in authorized_keys form ("ssh-ed25519 AAAA...") or as printed by
// ssh-keyscan ("host ssh-ed25519 AAAA..."). Empty lines and comments are skipped.
func ParseHostKeys(text string) ([]ssh.PublicKey, error) {
	var keys []ssh.PublicKey
	for n, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		key, _, _, _, err := ssh.ParseAuthorizedKey([]byte(line))
		if err != nil {
			_, _, key, _, _, err = ssh.ParseKnownHosts([]byte(line))
		}
		if err != nil {
			return nil, fmt.Errorf("line %d of the host keys is not an SSH public key; expected \"ssh-ed25519 AAAA...\" as in /etc/ssh/ssh_host_ed25519_key.pub", n+1)
		}
		keys = append(keys, key)
	}
	return keys, nil
}

// FormatHostKey is the inverse of ParseHostKeys for one key, without a newline.
func FormatHostKey(key ssh.PublicKey) string {
	return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key)))
}

// Fingerprint is the SHA256 fingerprint as ssh-keygen -l prints it.
func Fingerprint(key ssh.PublicKey) string { return ssh.FingerprintSHA256(key) }

// identity changes whenever a pooled connection made for the old target must not serve the new one.
func (t Target) identity() string {
	h := sha256.New()
	fmt.Fprintf(h, "%q %q\n", t.Endpoint(), t.User)
	for _, s := range t.Signers {
		h.Write(s.PublicKey().Marshal())
	}
	h.Write([]byte{'\n'})
	// Pinning the key that was just seen at first contact must not tear down the connection; Pool checks
	// the presented key against the new pins instead, so pins are not a part of the identity.
	return hex.EncodeToString(h.Sum(nil))
}

// accepts says whether key is among the pinned ones, or whether this is a first contact.
func (t Target) accepts(key ssh.PublicKey) bool {
	if len(t.HostKeys) == 0 {
		return true
	}
	for _, pinned := range t.HostKeys {
		if bytes.Equal(pinned.Marshal(), key.Marshal()) {
			return true
		}
	}
	return false
}
