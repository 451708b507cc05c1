// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package ssh

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
)

const (
	someKey         = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ3x3y0Dg0u3n0bGJ9W0n3h3s0Wc9U1bX6q6Jb3nq8aB"
	someKnownHost   = "host.example,192.0.2.1 " + someKey
	someHashedHost  = "|1|JfKTdBh7rNbXkVAQCRp4OQoPfmI=|USECr3SWf1JUPsms5AqfD5QfxkM= " + someKey
	someMarkedHost  = "@cert-authority *.example " + someKey
	someWithOptions = `command="sh",no-pty ` + someKey + " comment"
)

// What a person writes to hostKeys, or pastes from a host: it is a list of keys, or an error; and what is taken for a
// key stays the same key when it is written down again.
func FuzzParseHostKeys(f *testing.F) {
	for _, seed := range []string{"", "# note", someKey, someKnownHost, someHashedHost, someMarkedHost, someWithOptions,
		someKey + "\n" + someKnownHost, "ssh-ed25519 AAAA"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		keys, err := ParseHostKeys(text)
		if err != nil {
			if keys != nil {
				t.Fatal("keys beside an error")
			}
			return
		}
		for _, key := range keys {
			again, err := ParseHostKeys(FormatHostKey(key))
			if err != nil || len(again) != 1 || !sameKey(again[0], key) {
				t.Fatalf("%q became %q: %v", text, FormatHostKey(key), err)
			}
			if _, certificate := key.(*ssh.Certificate); certificate {
				t.Fatal("a certificate was taken for a key")
			}
			_ = Target{HostKeys: keys}.hostKeyAlgorithms()
		}
	})
}

func FuzzParseCertificate(f *testing.F) {
	f.Add([]byte(someKey))
	f.Add([]byte("ssh-ed25519-cert-v01@openssh.com AAAAIHNzaC1lZDI1NTE5LWNlcnQtdjAxQG9wZW5zc2guY29t x"))
	f.Fuzz(func(_ *testing.T, text []byte) {
		certificate, err := ParseCertificate(text)
		if err == nil {
			_ = CertificateFault(certificate, time.Unix(1, 0))
		}
	})
}

func FuzzParseSigner(f *testing.F) {
	f.Add([]byte("-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n-----END OPENSSH PRIVATE KEY-----\n"))
	f.Add([]byte("-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\nAAAA\n-----END RSA PRIVATE KEY-----\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		_, err := ParseSigner(text)
		if err != nil && len(text) > 200 && strings.Contains(err.Error(), string(text)) {
			t.Fatal("the error quotes the key")
		}
	})
}

// A host may present any key with any certificate. Whatever it is, it is refused unless it is what was asked for, and
// the sentence about it stays short.
func FuzzHostKey(f *testing.F) {
	authority, _, _, _, err := ssh.ParseAuthorizedKey([]byte(someKey))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(authority.Marshal())
	certificate := &ssh.Certificate{
		Nonce: []byte("n"), Key: authority, CertType: ssh.HostCert, SignatureKey: authority,
		ValidPrincipals: []string{strings.Repeat("long", 99)},
		Signature:       &ssh.Signature{Format: ssh.KeyAlgoED25519, Blob: make([]byte, 64)}, ValidBefore: 1 << 63,
		Permissions: ssh.Permissions{CriticalOptions: map[string]string{"x": "y"}},
	}
	f.Add(certificate.Marshal())
	f.Fuzz(func(t *testing.T, wire []byte) {
		key, err := ssh.ParsePublicKey(wire)
		if err != nil {
			return
		}
		target := Target{Address: "192.0.2.1", HostAuthorities: []ssh.PublicKey{authority}}
		err = target.judge(key, time.Unix(1700000000, 0))
		if err == nil {
			t.Fatal("nobody can have signed this")
		}
		if len(err.Error()) > 4096 {
			t.Fatalf("%d bytes for a sentence", len(err.Error()))
		}
	})
}

// Whatever a host prints, and in whichever pieces it arrives: the memory is bounded, the mark is found once, and what
// follows it is the end of what was printed.
func FuzzOutput(f *testing.F) {
	f.Add([]byte("sudo: noise\n"+started+"after"), 3, 10)
	f.Add([]byte(started+started), 1, 100)
	f.Add(bytes.Repeat([]byte("x"), 300), 7, 20)
	f.Fuzz(func(t *testing.T, output []byte, piece, limit int) {
		if piece < 1 || limit < 0 || limit > 1<<16 {
			return
		}
		head, tail := &headBuffer{limit: limit}, newStartedBuffer()
		for rest := output; len(rest) > 0; {
			n := min(piece, len(rest))
			for _, w := range []interface{ Write([]byte) (int, error) }{head, tail} {
				if wrote, err := w.Write(rest[:n]); wrote != n || err != nil {
					t.Fatal(wrote, err)
				}
			}
			rest = rest[n:]
		}
		want := output[:min(limit, len(output))]
		if head.String() != string(want) || head.truncated() != (len(output) > limit) {
			t.Fatalf("the beginning of %q is not %q", output, head.String())
		}
		if len(output) > MaxStderr {
			if len(tail.String()) > MaxStderr {
				t.Fatal("the end is too long")
			}
			return
		}
		before, after, begun := strings.Cut(string(output), started)
		if !begun {
			after = before
		}
		if tail.begun() != begun || tail.String() != after {
			t.Fatalf("of %q: %v %q", output, tail.begun(), tail.String())
		}
	})
}

// What comes over a terminal is put together again, whatever else appears there.
func FuzzTerminalOutput(f *testing.F) {
	f.Add([]byte("motd\r\n\x01R\r\n\x01O"+base64.StdEncoding.EncodeToString([]byte("out"))+"\n\x01X0\n"), 5)
	f.Add([]byte("\x01X\n\x01Xy\n\x01\n\x01O!\n\x01R\n\x01R\n"), 1)
	f.Fuzz(func(t *testing.T, screen []byte, piece int) {
		if piece < 1 {
			return
		}
		o := newTerminalOutput(&headBuffer{limit: MaxStdout})
		for rest := screen; len(rest) > 0; {
			n := min(piece, len(rest))
			if wrote, err := o.Write(rest[:n]); wrote != n || err != nil {
				t.Fatal(wrote, err)
			}
			rest = rest[n:]
		}
		if len(o.line) > maxTerminalLine || len(o.other.buf) > o.other.limit {
			t.Fatal("unbounded")
		}
		// And ours is understood after any of it.
		_, _ = fmt.Fprintf(o, "\n\x01X%d\n", 42)
		if code, ended := o.exit(); !ended || code != 42 {
			t.Fatal(code, ended)
		}
	})
}
