// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package hostaccess

import (
	"context"
	"errors"

	gossh "golang.org/x/crypto/ssh"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
)

// withPresentedKey completes the error of a host that no longer has a key of a pinned type: the handshake then ended
// before any key was seen, and a person could not tell which fingerprint to accept.
func (c *Connector) withPresentedKey(ctx context.Context, target ssh.Target, err error) error {
	var changed *ssh.HostKeyChangedError
	if !errors.As(err, &changed) || changed.Key != nil || changed.Bastion {
		return err
	}
	target.HostKeys, target.HostAuthorities = nobodysKeys(), nil
	conn, dialErr := ssh.Dial(ctx, target, c.options)
	if dialErr == nil {
		_ = conn.Close()
		return err
	}
	var presented *ssh.HostKeyChangedError
	if !errors.As(dialErr, &presented) || presented.Key == nil {
		return err
	}
	// A copy: the error may be shared with others who waited for the same attempt.
	complete := *changed
	complete.Key, complete.Got = presented.Key, presented.Got
	return &complete
}

// nobodysKey stands for a pinned key of a type, and equals no key: a host that is asked for keys of the type shows its
// own one, and the connection ends there, before a login tells it anything about us.
type nobodysKey struct{ kind string }

func nobodysKeys() []ssh.PublicKey {
	var keys []ssh.PublicKey
	for _, kind := range []string{
		gossh.KeyAlgoED25519, gossh.KeyAlgoECDSA256, gossh.KeyAlgoECDSA384, gossh.KeyAlgoECDSA521, gossh.KeyAlgoRSA,
	} {
		keys = append(keys, nobodysKey{kind})
	}
	return keys
}

// Type is the type that the host is asked for.
func (k nobodysKey) Type() string { return k.kind }

// Marshal returns what no key is equal to.
func (k nobodysKey) Marshal() []byte { return nil }

// Verify accepts nothing.
func (k nobodysKey) Verify([]byte, *gossh.Signature) error {
	return errors.New("nobody's key signs nothing")
}
