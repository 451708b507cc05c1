// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"regexp"
	"strings"
)

var (
	bootstrapToken = regexp.MustCompile(`\b[a-z0-9]{6}\.[a-z0-9]{16}\b`)
	webToken       = regexp.MustCompile(`\beyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*`)
	// A certificate key has 32 bytes, and so have etcd's encryption keys; a digest, which begins with its algorithm, is no
	// secret.
	hexKey   = regexp.MustCompile(`(^|[^:0-9a-fA-F])[0-9a-fA-F]{64}\b`)
	longHex  = regexp.MustCompile(`((?:certificate-key|key)[ =:"]+)[0-9a-f]{32,}\b`)
	keyData  = regexp.MustCompile(`(?i)((?:[a-z-]*key|certificate|authority)-data[ =:"]+)[A-Za-z0-9+/=]{16,}`)
	password = regexp.MustCompile(`(?i)((?:password|passwd|secret|token)[ =:"]+)[^\s"]+`)
	pemBlock = regexp.MustCompile(`(?s)-----BEGIN ([A-Z0-9 ]*)-----.*?(?:-----END [A-Z0-9 ]*-----|$)`)
	pemEnd   = regexp.MustCompile(`(?s)^.*?-----END ([A-Z0-9 ]*)-----`)
	// base64PEM is how kubeconfigs and Secrets carry PEM: "-----BEGIN" begins so.
	base64PEM = regexp.MustCompile(`LS0tLS1CRUdJTi[A-Za-z0-9+/=]*`)
	// The middle of a block, whose both ends the tail has cut off.
	base64Line = regexp.MustCompile(`(?m)^[ \t]*[A-Za-z0-9+/]{48,}={0,2}[ \t\r]*$`)
)

// mask hides what kubeadm and users' commands are known to print: bootstrap tokens, certificate keys, passwords, and
// PEM blocks, also one whose beginning or end the tail has cut off.
func mask(text string) string {
	if begin := strings.Index(text, "-----BEGIN "); begin < 0 || strings.Index(text, "-----END ") < begin {
		text = pemEnd.ReplaceAllString(text, "<$1>")
	}
	text = pemBlock.ReplaceAllString(text, "<$1>")
	text = base64PEM.ReplaceAllString(text, "<PEM>")
	text = bootstrapToken.ReplaceAllString(text, "<token>")
	text = webToken.ReplaceAllString(text, "<token>")
	text = longHex.ReplaceAllString(text, "${1}<key>")
	text = hexKey.ReplaceAllString(text, "${1}<key>")
	text = base64Line.ReplaceAllString(text, "<data>")
	text = keyData.ReplaceAllString(text, "${1}<hidden>")
	return password.ReplaceAllString(text, "${1}<hidden>")
}
