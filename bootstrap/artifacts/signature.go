// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package artifacts

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/hiddeco/sshsig"
	"golang.org/x/crypto/ssh"
)

// SignatureNamespace is what a manifest is signed for, so that no signature made for another purpose counts:
// ssh-keygen -Y sign -n quoin-bundle -f <key> manifest.json.
const SignatureNamespace = "quoin-bundle"

// maxSignature bounds what is parsed: the signature of the largest RSA key in use is a tenth of it.
const maxSignature = 16 << 10

// signHint is the way out of every refusal.
const signHint = "sign it with one of spec.artifacts.bundle.publicKeys: ssh-keygen -Y sign -n " + SignatureNamespace +
	" -f <key> manifest.json"

// SignatureError says why a manifest is not trusted.
type SignatureError struct{ text string }

func (e *SignatureError) Error() string { return e.text + "; " + signHint }

func untrusted(format string, args ...any) error {
	return &SignatureError{text: fmt.Sprintf(format, args...)}
}

// KeysFlag is the flag of the manager with the operator's keys.
const KeysFlag = "bundle-keys"

// ParsePublicKeys reads lines as in an authorized_keys file. Options are refused, because nothing would heed them.
func ParsePublicKeys(lines []string) ([]ssh.PublicKey, error) {
	keys := make([]ssh.PublicKey, 0, len(lines))
	for i, line := range lines {
		key, _, options, rest, err := ssh.ParseAuthorizedKey([]byte(line))
		_, isCertificate := key.(*ssh.Certificate)
		switch {
		case err != nil:
			return nil, fmt.Errorf("public key %d cannot be read: %w; give a line such as the content of id_ed25519.pub", i+1,
				err)
		case len(options) > 0 || len(bytes.TrimSpace(rest)) > 0:
			return nil, fmt.Errorf("public key %d is more than one key; give its type, its base64 text and a comment only", i+1)
		case isCertificate:
			return nil, fmt.Errorf("public key %d is a certificate; give the plain public key", i+1)
		}
		keys = append(keys, key)
	}
	return keys, nil
}

// VerifySignature says why data was not signed, for this purpose, by one of keys. signature is armored, as ssh-keygen
// writes it.
func VerifySignature(data, signature []byte, keys []ssh.PublicKey) error {
	if len(signature) > maxSignature {
		return untrusted("manifest.json.sig has %d bytes, which is no signature", len(signature))
	}
	parsed, err := parseSignature(signature)
	if err != nil {
		return untrusted("manifest.json.sig cannot be read as an SSH signature: %v", err)
	}
	if parsed.Namespace != SignatureNamespace {
		return untrusted("manifest.json.sig was made for the namespace %.64q, not for %q", parsed.Namespace,
			SignatureNamespace)
	}
	for _, key := range keys {
		if !bytes.Equal(key.Marshal(), parsed.PublicKey.Marshal()) {
			continue
		}
		if err := sshsig.Verify(bytes.NewReader(data), parsed, key, parsed.HashAlgorithm, SignatureNamespace); err != nil {
			return untrusted("manifest.json is not what was signed (%v): it was changed afterwards, or the signature belongs "+
				"to another bundle", err)
		}
		return nil
	}
	known := make([]string, 0, len(keys))
	for _, key := range keys {
		known = append(known, ssh.FingerprintSHA256(key))
	}
	return untrusted("manifest.json was signed by the key %s, but trusted are %s",
		ssh.FingerprintSHA256(parsed.PublicKey), strings.Join(known, ", "))
}

// parseSignature turns what a parser of others may do with bytes of others into an error.
func parseSignature(text []byte) (parsed *sshsig.Signature, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = errors.New("it is malformed")
		}
	}()
	parsed, err = sshsig.Unarmor(text)
	switch {
	case err != nil:
		return nil, err
	case parsed == nil || parsed.PublicKey == nil || parsed.Signature == nil:
		return nil, errors.New("it is incomplete")
	case parsed.Signature.Format == ssh.KeyAlgoRSA:
		// SHA-1: PROTOCOL.sshsig of OpenSSH forbids it.
		return nil, errors.New("it uses SHA-1")
	}
	return parsed, nil
}
