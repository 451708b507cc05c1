// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package ssh

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"slices"
	"strconv"

	"golang.org/x/crypto/ssh"
)

// DefaultPort is used when Target.Port is 0.
const DefaultPort = 22

// PublicKey is a host's public key.
type PublicKey = ssh.PublicKey

// Signer is a private key that proves who we are, alone or with a user certificate.
type Signer = ssh.Signer

// Target says how to reach one host.
type Target struct {
	// Address is an IP address or a DNS name, without a port.
	Address string
	// Port is the SSH port; 0 means DefaultPort.
	Port int
	// User logs in.
	User string
	// Signers prove who we are, tried in order. sshd counts each key that it refuses, and ends the connection at the
	// sixth.
	Signers []ssh.Signer
	// HostKeys are the pinned keys of the host. When HostAuthorities is empty as well, this is a first contact: any key is
	// taken and Conn.HostKey returns it, so that the caller can record and pin it. Nothing secret should be sent before
	// that.
	HostKeys []ssh.PublicKey
	// HostAuthorities sign host certificates: one that is valid now and made out to Address or to one of Names is accepted
	// like a pinned key.
	HostAuthorities []ssh.PublicKey
	// Names are further names of the host that its certificate may be made out to.
	Names []string
	// Bastion is the jump host through which the host is reached. It has pinned keys or authorities: there is no first
	// contact with a bastion.
	Bastion *Target
	// Owner is whose host it is, to share PoolOptions.Output by: its namespace.
	Owner string
	// SudoCommand is the only program that the user may run with sudo: the path of quoin-run. When empty, any program.
	SudoCommand string

	// isBastion makes errors say so.
	isBastion bool
}

// Endpoint is host:port as dialed.
func (t Target) Endpoint() string {
	port := t.Port
	if port == 0 {
		port = DefaultPort
	}
	return net.JoinHostPort(t.Address, strconv.Itoa(port))
}

// place changes whenever a pooled connection made for the old target must not serve the new one. Pinning the key that
// was just seen at first contact must not tear down the connection; Pool judges the presented key anew instead, so pins
// are no part of it.
func (t Target) place() string {
	h := sha256.New()
	fmt.Fprintf(h, "%q %q %q\n", t.Endpoint(), t.User, t.SudoCommand)
	if t.Bastion != nil {
		fmt.Fprintf(h, "through %s\n", t.Bastion.gate())
	}
	return hex.EncodeToString(h.Sum(nil))
}

// gate is the place of a bastion together with its pins: hosts whose specs agree in it go through the same door.
func (t Target) gate() string {
	return fmt.Sprintf("%s %q %q", t.place(), fingerprints(t.HostKeys), fingerprints(t.HostAuthorities))
}

// bastionKey is the pool's key of the bastion's connection. It is shared by those only who would log in with the same
// keys and expect the same ones: nobody can break another's connections, or use them.
func (t Target) bastionKey() string {
	return "bastion " + t.Bastion.gate() + " " + t.Bastion.credentials()
}

// credentials changes with the keys that may be used on the whole way.
func (t Target) credentials() string {
	h := sha256.New()
	for _, s := range t.Signers {
		fmt.Fprintf(h, "%x\n", s.PublicKey().Marshal())
	}
	if t.Bastion != nil {
		fmt.Fprintf(h, "bastion %s\n", t.Bastion.credentials())
	}
	return hex.EncodeToString(h.Sum(nil))
}

// offers says whether key is still among those that may be used. A connection that used none needs none.
func (t Target) offers(key ssh.PublicKey) bool {
	return key == nil || slices.ContainsFunc(t.Signers, func(s ssh.Signer) bool { return sameKey(s.PublicKey(), key) })
}

// bastion is the target of the jump host.
func (t Target) bastion() Target {
	b := *t.Bastion
	b.isBastion = true
	return b
}
