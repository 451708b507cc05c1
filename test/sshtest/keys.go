// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package sshtest

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"time"

	"golang.org/x/crypto/ssh"
)

// NewKey makes an ed25519 key.
func NewKey() ssh.Signer {
	signer, _ := NewKeyPair()
	return signer
}

// NewKeyPair makes an ed25519 key, and returns it also as a file or a Secret holds it.
func NewKeyPair() (ssh.Signer, []byte) {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		panic(err) // the system's source of randomness is gone
	}
	block, err := ssh.MarshalPrivateKey(private, "test")
	if err != nil {
		panic(err)
	}
	signer, err := ssh.NewSignerFromKey(private)
	if err != nil {
		panic(err)
	}
	return signer, pem.EncodeToMemory(block)
}

// HostCertificate is a valid certificate for the server's address, which change may spoil before authority signs it.
func HostCertificate(authority, key ssh.Signer, change func(*ssh.Certificate)) ssh.Signer {
	return certify(authority, key, &ssh.Certificate{CertType: ssh.HostCert, ValidPrincipals: []string{"127.0.0.1"}},
		change)
}

// UserCertificate is a valid certificate for a user, which change may spoil before authority signs it.
func UserCertificate(authority, key ssh.Signer, user string, change func(*ssh.Certificate)) ssh.Signer {
	return certify(authority, key, &ssh.Certificate{CertType: ssh.UserCert, ValidPrincipals: []string{user}}, change)
}

func certify(authority, key ssh.Signer, certificate *ssh.Certificate, change func(*ssh.Certificate)) ssh.Signer {
	certificate.Key, certificate.KeyId = key.PublicKey(), "test"
	certificate.ValidAfter = uint64(time.Now().Add(-time.Hour).Unix())
	certificate.ValidBefore = uint64(time.Now().Add(time.Hour).Unix())
	if change != nil {
		change(certificate)
	}
	if err := certificate.SignCert(rand.Reader, authority); err != nil {
		panic(err)
	}
	signer, err := ssh.NewCertSigner(certificate, key)
	if err != nil {
		panic(err)
	}
	return signer
}
