// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package redfish

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"
)

// Credentials of an account of a BMC. However they are printed, nothing of them shows.
type Credentials struct{ user, password string }

// Login makes credentials.
func Login(user, password string) Credentials { return Credentials{user: user, password: password} }

// Format prints a placeholder, whatever the verb.
func (c Credentials) Format(f fmt.State, _ rune) { _, _ = fmt.Fprint(f, "[credentials]") }

// MarshalText encodes a placeholder.
func (c Credentials) MarshalText() ([]byte, error) { return []byte("[credentials]"), nil }

// strip takes the password, plain and as basic authentication sends it, out of a text that the BMC sent: some of them
// quote the request that they refuse.
func (c Credentials) strip(text string) string {
	if c.password == "" {
		return text
	}
	basic := base64.StdEncoding.EncodeToString([]byte(c.user + ":" + c.password))
	return strings.NewReplacer(basic, "[credentials]", c.password, "[password]").Replace(text)
}

// Fingerprint of a certificate: the SHA-256 of its DER form in hexadecimal digits.
func Fingerprint(certificate *x509.Certificate) string {
	sum := sha256.Sum256(certificate.Raw)
	return hex.EncodeToString(sum[:])
}
