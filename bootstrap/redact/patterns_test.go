// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package redact

import (
	"encoding/base64"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

const keyBody = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj"

func TestWhatLooksLikeASecretIsHidden(t *testing.T) {
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
		"web token": {"got eyJhbGciOiJSUzI1NiIs.eyJpc3MiOiJrdWJlcm5ldGVz.c2lnbmF0dXJl ok", "got <token> ok"},
		"URL": {"fatal: https://bot:hunter2@git.example.com/x not found",
			"fatal: https://bot:<hidden>@git.example.com/x not found"},
		"URL with a user": {"ssh://git@example.com:22/x", "ssh://git@example.com:22/x"},
		"bearer":          {"> Authorization: Bearer abc.def", "> Authorization: Bearer <hidden>"},
		"basic":           {`"Authorization": "Basic dXNlcjpwYXNz",`, `"Authorization": "Basic <hidden>",`},
		"authentication":  {"use basic authentication", "use basic authentication"},
		"docker":          {`{"auths":{"r.io":{"auth":"dXNlcjpwYXNz"}}}`, `{"auths":{"r.io":{"auth":"<hidden>"}}}`},
		"AWS":             {"key AKIAIOSFODNN7EXAMPLE of", "key <key> of"},
		"AWS secret": {"aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
			"aws_secret_access_key = <hidden>"},
		"GCP": {`"private_key_id": "0123", "private_key": "-----BEGIN PRIVATE KEY-----\nMIIE\n-----END PRIVATE KEY-----\n"}`,
			`"private_key_id": "<hidden>", "private_key": "<PRIVATE KEY>\n"}`},
		"GCP API":         {"key=AIzaSyA-0123456789abcdefghijklmnopqrstu", "key=<key>"},
		"Azure":           {"AccountName=x;AccountKey=abc+/def==;Suffix=y", "AccountName=x;AccountKey=<hidden>;Suffix=y"},
		"Azure SAS":       {"GET /x?sv=2020&sig=abc%2Fdef&se=1", "GET /x?sv=2020&sig=<hidden>&se=1"},
		"Azure client":    {"abc8Q~" + strings.Repeat("x", 34) + " is wrong", "<key> is wrong"},
		"GitHub":          {"remote: ghp_" + strings.Repeat("a1", 18) + " expired", "remote: <token> expired"},
		"GitLab":          {"glpat-" + strings.Repeat("a1", 10), "<token>"},
		"password":        {"PASSWORD=hunter2 x", "PASSWORD=<hidden> x"},
		"nothing to hide": {"error: disk /dev/sdz is missing", "error: disk /dev/sdz is missing"},
	} {
		NewWithT(t).Expect(Patterns(tc.text)).To(Equal(tc.want), name)
	}
}
