// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// minSigningKey is how long a key must be: 32 random bytes have 44 characters in base64, and 64 in hexadecimal.
const minSigningKey = 32

// SigningKeys authenticate sidecars: the first one signs, and each of them is believed. None signs nothing and believes
// every sidecar. Who can write to the store does not have them.
type SigningKeys [][]byte

// ParseSigningKeys reads keys, one per line; empty lines and those that begin with # are skipped. What it says of an
// error shows nothing of them.
func ParseSigningKeys(raw []byte) (SigningKeys, error) {
	var keys SigningKeys
	number := 0
	for line := range strings.Lines(string(raw)) {
		number++
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if len(line) < minSigningKey {
			return nil, fmt.Errorf("line %d has less than %d characters: take one of openssl rand -hex 32", number,
				minSigningKey)
		}
		keys = append(keys, []byte(line))
	}
	if len(keys) == 0 {
		return nil, errors.New("it holds no key: one per line, the first signs")
	}
	return keys, nil
}

// sign returns the metadata with their signature, which covers everything else in them: name, cluster, time and
// digests. So it holds for no other name and no other cluster.
func (k SigningKeys) sign(m Metadata) Metadata {
	m.Signature = ""
	if len(k) > 0 {
		m.Signature = hex.EncodeToString(m.mac(k[0]))
	}
	return m
}

// believe reports whether one of the keys signed the metadata.
func (k SigningKeys) believe(m Metadata) bool {
	if len(k) == 0 {
		return true
	}
	signature, err := hex.DecodeString(m.Signature)
	if err != nil {
		return false
	}
	for _, key := range k {
		if hmac.Equal(signature, m.mac(key)) {
			return true
		}
	}
	return false
}

func (m Metadata) mac(key []byte) []byte {
	m.Signature, m.Time = "", m.Time.UTC()
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte("quoin snapshot\n"))
	_ = json.NewEncoder(mac).Encode(m) // neither its fields nor a hash can fail
	return mac.Sum(nil)
}
