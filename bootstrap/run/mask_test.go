// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"encoding/base64"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

const keyBody = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj"

func TestSecretsInATailAreMasked(t *testing.T) {
	pem := "-----BEGIN RSA PRIVATE KEY-----\n" + keyBody + "\n" + keyBody + "\n-----END RSA PRIVATE KEY-----"
	for name, tc := range map[string]struct{ text, want string }{
		"token":           {"join --token abcdef.0123456789abcdef now", "join --token <hidden> now"},
		"bare token":      {"using abcdef.0123456789abcdef", "using <token>"},
		"certificate key": {"--certificate-key " + strings.Repeat("0a", 32), "--certificate-key <key>"},
		"bare key":        {"the key\n\t" + strings.Repeat("0a", 32) + "\nend", "the key\n\t<key>\nend"},
		"digest":          {"sha256:" + strings.Repeat("0a", 32), "sha256:" + strings.Repeat("0a", 32)},
		"PEM":             {"before " + pem + " after", "before <RSA PRIVATE KEY> after"},
		"PEM begun":       {keyBody + "\n-----END RSA PRIVATE KEY-----\nerror: bad key", "<RSA PRIVATE KEY>\nerror: bad key"},
		"PEM cut":         {"error: bad key\n-----BEGIN EC PRIVATE KEY-----\n" + keyBody, "error: bad key\n<EC PRIVATE KEY>"},
		"PEM in between":  {"x\n" + keyBody + "\n" + keyBody + "\nx", "x\n<data>\n<data>\nx"},
		"two PEMs":        {pem + "\nmiddle\n" + pem, "<RSA PRIVATE KEY>\nmiddle\n<RSA PRIVATE KEY>"},
		"kubeconfig": {"client-key-data: " + base64.StdEncoding.EncodeToString([]byte(pem)) + "\nerror: x",
			"client-key-data: <PEM>\nerror: x"},
		"web token":       {"got eyJhbGciOiJSUzI1NiIs.eyJpc3MiOiJrdWJlcm5ldGVz.c2lnbmF0dXJl ok", "got <token> ok"},
		"password":        {"PASSWORD=hunter2 x", "PASSWORD=<hidden> x"},
		"nothing to hide": {"error: disk /dev/sdz is missing", "error: disk /dev/sdz is missing"},
	} {
		NewWithT(t).Expect(mask(tc.text)).To(Equal(tc.want), name)
	}
}

func TestATailThatWasCutByBytesLosesItsFirstPiece(t *testing.T) {
	g := NewWithT(t)
	answer := func(lines ...string) string {
		return "now 1\ncomplete\nresult failed a 1\nstep a 0 0 60\njournal 1 b a start\njournal 1 b a failed 1\ntail " +
			strings.Join(lines, "\ntail ") + "\n"
	}
	long := strings.Repeat("word ", tailBytes/5)
	g.Expect(parseStatus(answer("ef.0123456789abcdef "+long, "error: x")).Tail).To(Equal("error: x"))
	g.Expect(parseStatus(answer("ef.0123456789abcdef " + long)).Tail).To(HavePrefix("word word"))
	g.Expect(parseStatus(answer("short", "error: x")).Tail).To(Equal("short\nerror: x"))
}
