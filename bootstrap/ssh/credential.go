// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package ssh

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"
)

// Certificate is a user certificate: a public key with the signature of an authority that hosts trust.
type Certificate = ssh.Certificate

// ParseSigner reads an unencrypted private key in PEM or OpenSSH form. The error never quotes the key.
func ParseSigner(privateKey []byte) (ssh.Signer, error) {
	signer, err := ssh.ParsePrivateKey(privateKey)
	var encrypted *ssh.PassphraseMissingError
	if errors.As(err, &encrypted) {
		return nil, errors.New("the SSH private key is protected by a passphrase; store it without one")
	}
	if err != nil {
		return nil, errors.New("the SSH private key cannot be parsed; expected PEM or OpenSSH format, for example made by " +
			"ssh-keygen -t ed25519")
	}
	switch signer.PublicKey().Type() {
	case ssh.InsecureKeyAlgoDSA: //nolint:staticcheck // Named to refuse it.
		return nil, errors.New("the SSH private key is a DSA key, which is too weak to be used; make another one, for " +
			"example by ssh-keygen -t ed25519")
	case ssh.KeyAlgoRSA:
		// Unless told otherwise it would sign with SHA-1 too, where a host asks for no other.
		return ssh.NewSignerWithAlgorithms(signer.(ssh.AlgorithmSigner), []string{ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256})
	}
	return signer, nil
}

// ParseCertificate reads a user certificate in the form that ssh-keygen -s writes (id_ed25519-cert.pub).
func ParseCertificate(text []byte) (*Certificate, error) {
	key, _, _, _, err := ssh.ParseAuthorizedKey(text)
	if err != nil {
		return nil, errors.New("the user certificate cannot be parsed; expected what ssh-keygen -s writes to a file that " +
			"ends in -cert.pub")
	}
	certificate, ok := key.(*ssh.Certificate)
	switch {
	case !ok:
		return nil, errors.New("the user certificate is a plain public key; expected what ssh-keygen -s writes to a file " +
			"that ends in -cert.pub")
	case certificate.CertType != ssh.UserCert:
		return nil, errors.New("the user certificate is a host certificate; sign the key without ssh-keygen's option -h")
	}
	return certificate, nil
}

// CertificateFault says why no host would accept a user certificate now, or why it would be of no use; "" when there is
// no reason that we could see. Whether hosts trust its authority, and its principals, is theirs to say.
func CertificateFault(certificate *Certificate, now time.Time) string {
	switch {
	case certificate.ValidBefore != ssh.CertTimeInfinity && uint64(max(now.Unix(), 0)) >= certificate.ValidBefore:
		return "expired at " + moment(certificate.ValidBefore)
	case uint64(max(now.Unix(), 0)) < certificate.ValidAfter:
		return "is not valid before " + moment(certificate.ValidAfter)
	}
	if forced, ok := certificate.CriticalOptions["force-command"]; ok {
		return fmt.Sprintf("forces the command %.64q, so that no other can be run", forced)
	}
	return ""
}

// Certify joins a certificate with the private key it is made for; nil when none of the signers is that key.
func Certify(certificate *Certificate, signers []Signer) Signer {
	for _, signer := range signers {
		if certified, err := ssh.NewCertSigner(certificate, signer); err == nil {
			return certified
		}
	}
	return nil
}

// proof notes which key signed last: when a login has succeeded, that is the one which the host accepted. A key is
// asked for first and signs only when the host would take it.
type proof struct {
	mu   sync.Mutex
	last ssh.PublicKey
}

func (p *proof) note(key ssh.PublicKey) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last = key
}

func (p *proof) key() ssh.PublicKey {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last
}

// watch wraps signers. A wrapper must offer the interfaces of what it wraps: they decide which algorithms are
// negotiated.
func (p *proof) watch(signers []ssh.Signer) []ssh.Signer {
	watched := make([]ssh.Signer, 0, len(signers))
	for _, signer := range signers {
		one := watchedSigner{Signer: signer, proof: p}
		switch s := signer.(type) {
		case ssh.MultiAlgorithmSigner:
			watched = append(watched, &watchedMulti{watchedAlgorithm{one, s}, s})
		case ssh.AlgorithmSigner:
			watched = append(watched, &watchedAlgorithm{one, s})
		default:
			watched = append(watched, &one)
		}
	}
	return watched
}

type watchedSigner struct {
	ssh.Signer
	proof *proof
}

// Sign implements ssh.Signer.
func (w *watchedSigner) Sign(rand io.Reader, data []byte) (*ssh.Signature, error) {
	w.proof.note(w.PublicKey())
	return w.Signer.Sign(rand, data)
}

type watchedAlgorithm struct {
	watchedSigner
	algorithms ssh.AlgorithmSigner
}

// SignWithAlgorithm implements ssh.AlgorithmSigner.
func (w *watchedAlgorithm) SignWithAlgorithm(rand io.Reader, data []byte, algorithm string) (*ssh.Signature, error) {
	w.proof.note(w.PublicKey())
	return w.algorithms.SignWithAlgorithm(rand, data, algorithm)
}

type watchedMulti struct {
	watchedAlgorithm
	multi ssh.MultiAlgorithmSigner
}

// Algorithms implements ssh.MultiAlgorithmSigner.
func (w *watchedMulti) Algorithms() []string { return w.multi.Algorithms() }

// describeKeys describes the keys that were tried, for a person who compares them with ssh-keygen -l.
func describeKeys(signers []ssh.Signer) []string {
	var keys []string
	for _, s := range signers {
		name := Fingerprint(s.PublicKey())
		if certificate, ok := s.PublicKey().(*ssh.Certificate); ok {
			name += fmt.Sprintf(" (certificate %q for %s)", certificate.KeyId, strings.Join(certificate.ValidPrincipals, ", "))
		}
		keys = append(keys, name)
	}
	return keys
}
