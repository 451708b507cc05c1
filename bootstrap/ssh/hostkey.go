// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package ssh

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"
)

// ParseHostKeys reads pinned keys, one per line, in authorized_keys form ("ssh-ed25519 AAAA...") or as printed by
// ssh-keyscan ("host ssh-ed25519 AAAA..."). Empty lines and comments are skipped. Public keys of certificate
// authorities have the same form; a certificate is not a key, and a line of known_hosts with a marker (@revoked) is
// none to be pinned.
func ParseHostKeys(text string) ([]ssh.PublicKey, error) {
	var keys []ssh.PublicKey
	for n, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		key, _, _, _, err := ssh.ParseAuthorizedKey([]byte(line))
		marker := ""
		if err != nil {
			marker, _, key, _, _, err = ssh.ParseKnownHosts([]byte(line))
		}
		if err != nil {
			return nil, fmt.Errorf("line %d of the host keys is not an SSH public key; expected \"ssh-ed25519 AAAA...\" as in "+
				"/etc/ssh/ssh_host_ed25519_key.pub", n+1)
		}
		if marker != "" {
			return nil, fmt.Errorf("line %d of the host keys begins with @%s, which nobody would heed: leave a revoked key "+
				"out, and give an authority's key alone, as an authority", n+1, marker)
		}
		if _, certificate := key.(*ssh.Certificate); certificate {
			return nil, fmt.Errorf("line %d of the host keys is a certificate; give the key itself "+
				"(/etc/ssh/ssh_host_ed25519_key.pub), or the public key of the authority that signed it", n+1)
		}
		keys = append(keys, key)
	}
	return keys, nil
}

// FormatHostKey is the inverse of ParseHostKeys for one key, without a newline.
func FormatHostKey(key ssh.PublicKey) string {
	return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key)))
}

// Fingerprint is the SHA256 fingerprint as ssh-keygen -l prints it: that of a certificate is its key's.
func Fingerprint(key ssh.PublicKey) string { return ssh.FingerprintSHA256(plain(key)) }

func fingerprints(keys []ssh.PublicKey) []string {
	out := make([]string, 0, len(keys))
	for _, key := range keys {
		out = append(out, Fingerprint(key))
	}
	return out
}

// plain is the key that a certificate certifies, or the key itself.
func plain(key ssh.PublicKey) ssh.PublicKey {
	if certificate, ok := key.(*ssh.Certificate); ok {
		return certificate.Key
	}
	return key
}

func sameKey(a, b ssh.PublicKey) bool { return bytes.Equal(a.Marshal(), b.Marshal()) }

// firstContact says that nothing is known about the host yet: any key is taken, so that the caller can record it.
func (t Target) firstContact() bool { return len(t.HostKeys) == 0 && len(t.HostAuthorities) == 0 }

// judge says whether the host may present this key now. Its error is a *HostKeyChangedError.
func (t Target) judge(key ssh.PublicKey, now time.Time) error {
	if t.firstContact() {
		return nil
	}
	presented := plain(key)
	if slices.ContainsFunc(t.HostKeys, func(pinned ssh.PublicKey) bool { return sameKey(pinned, presented) }) {
		return nil
	}
	changed := &HostKeyChangedError{
		Endpoint: t.Endpoint(), Bastion: t.isBastion,
		Want: fingerprints(t.HostKeys), Authorities: fingerprints(t.HostAuthorities),
		Got: Fingerprint(presented), Key: presented,
	}
	if t.isBastion {
		// Nobody can accept it by its fingerprint: what is accepted that way is pinned to the host.
		changed.Key = nil
	}
	certificate, ok := key.(*ssh.Certificate)
	if !ok || len(t.HostAuthorities) == 0 {
		return changed
	}
	changed.Certificate = t.fault(certificate, now)
	if changed.Certificate == "" {
		return nil
	}
	return changed
}

// fault says why a host certificate is not accepted; "" when it is. Stricter than sshd's own client in one thing: a
// certificate without principals would stand for every host, so it stands for none.
func (t Target) fault(certificate *ssh.Certificate, now time.Time) string {
	checker := &ssh.CertChecker{Clock: func() time.Time { return now }}
	switch {
	case certificate.CertType != ssh.HostCert:
		return "it is not a host certificate"
	case !slices.ContainsFunc(t.HostAuthorities, func(a ssh.PublicKey) bool {
		return sameKey(a, certificate.SignatureKey)
	}):
		return "it is signed by " + Fingerprint(certificate.SignatureKey)
	case !slices.ContainsFunc(t.principals(), func(name string) bool {
		return slices.Contains(certificate.ValidPrincipals, name)
	}):
		return fmt.Sprintf("it is made out to %s, not to %s", listed(certificate.ValidPrincipals, "nobody"),
			listed(t.principals(), "nobody"))
	case now.Unix() < 0 || uint64(now.Unix()) < certificate.ValidAfter:
		return "it is not valid before " + moment(certificate.ValidAfter)
	case certificate.ValidBefore != ssh.CertTimeInfinity && uint64(now.Unix()) >= certificate.ValidBefore:
		return "it expired at " + moment(certificate.ValidBefore)
	case len(certificate.CriticalOptions) > 0:
		var options []string
		for option := range certificate.CriticalOptions {
			options = append(options, option)
		}
		slices.Sort(options)
		return fmt.Sprintf("it has critical options that nobody knows: %s", listed(options, ""))
	}
	if err := checker.CheckCert(certificate.ValidPrincipals[0], certificate); err != nil {
		return "its signature is not that of its authority"
	}
	return ""
}

// principals are the names that a host certificate may be made out to.
func (t Target) principals() []string {
	return append([]string{t.Address}, t.Names...)
}

// listed shows words that a host may have chosen: few of them, none too long, and quoted.
func listed(words []string, none string) string {
	if len(words) == 0 {
		return none
	}
	var shown []string
	for _, word := range words[:min(len(words), 5)] {
		shown = append(shown, fmt.Sprintf("%.64q", word))
	}
	if len(words) > len(shown) {
		shown = append(shown, "...")
	}
	return strings.Join(shown, ", ")
}

// moment is a time of a certificate; what no calendar holds is far away.
func moment(seconds uint64) string {
	if seconds > 1<<37 {
		return "a time beyond all calendars"
	}
	return time.Unix(int64(seconds), 0).UTC().Format(time.RFC3339)
}

// plainAlgorithms are those of plain host keys, in the order of a first contact: ed25519 first, as OpenSSH does,
// because it is the fingerprint that people compare.
var plainAlgorithms = []string{
	ssh.KeyAlgoED25519, ssh.KeyAlgoECDSA256, ssh.KeyAlgoECDSA384, ssh.KeyAlgoECDSA521,
	ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256,
}

var certificateAlgorithms = []string{
	ssh.CertAlgoED25519v01, ssh.CertAlgoECDSA256v01, ssh.CertAlgoECDSA384v01, ssh.CertAlgoECDSA521v01,
	ssh.CertAlgoRSASHA512v01, ssh.CertAlgoRSASHA256v01,
}

// hostKeyAlgorithms asks for what can be accepted only: a host has several keys, and offering another of them is not a
// change. Certificates come first, where there are authorities.
func (t Target) hostKeyAlgorithms() []string {
	if t.firstContact() {
		return plainAlgorithms
	}
	var algorithms []string
	if len(t.HostAuthorities) > 0 {
		algorithms = append(algorithms, certificateAlgorithms...)
	}
	for _, key := range t.HostKeys {
		if key.Type() == ssh.KeyAlgoRSA {
			algorithms = append(algorithms, ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256)
			continue
		}
		algorithms = append(algorithms, key.Type())
	}
	return algorithms
}
