// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"filippo.io/age"
)

// maxRecipients bounds the header of encrypted data.
const maxRecipients = 64

// Recipients are whom snapshots are encrypted to.
type Recipients []age.Recipient

// ParseRecipients reads age public keys, one per line; empty lines and those that begin with # are skipped. An
// identity, which is a private key, is refused: it must not lie beside what it opens. What it says of an error shows
// nothing of a line, which may be a secret in the wrong place.
func ParseRecipients(raw []byte) (Recipients, error) {
	var recipients Recipients
	for i, line := range strings.Split(string(raw), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if strings.Contains(strings.ToUpper(line), "AGE-SECRET-KEY-") {
			return nil, fmt.Errorf("line %d is a private key: keep it elsewhere, and put its public key (age-keygen -y) here",
				i+1)
		}
		parsed, err := age.ParseRecipients(strings.NewReader(line))
		if err != nil {
			return nil, fmt.Errorf("line %d is no age public key (age1..., as age-keygen -y prints it)", i+1)
		}
		recipients = append(recipients, parsed...)
	}
	if len(recipients) == 0 {
		return nil, errors.New("it holds no age public key (age1..., one per line)")
	}
	if len(recipients) > maxRecipients {
		return nil, fmt.Errorf("%d recipients are more than %d", len(recipients), maxRecipients)
	}
	for _, recipient := range recipients {
		if _, ok := recipient.(fmt.Stringer); !ok {
			return nil, errors.New("a recipient has no public form")
		}
	}
	return recipients, nil
}

// names are the public keys.
func (r Recipients) names() []string {
	var names []string
	for _, recipient := range r {
		names = append(names, fmt.Sprint(recipient))
	}
	return names
}

// ParseIdentities reads age private keys, one per line, as age-keygen writes them. What it says of an error shows
// nothing of them.
func ParseIdentities(raw []byte) ([]age.Identity, error) {
	identities, err := age.ParseIdentities(bytes.NewReader(raw))
	if err != nil {
		return nil, errors.New("it holds no age private keys (AGE-SECRET-KEY-1..., one per line), as age-keygen writes them")
	}
	return identities, nil
}
