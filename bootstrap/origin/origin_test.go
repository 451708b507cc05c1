// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package origin_test

import (
	"net/url"
	"os/exec"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/origin"
)

// The manager and the hosts, which have a shell, agree on it.
func TestAnOriginIsTheSameHoweverItIsWritten(t *testing.T) {
	for _, c := range []struct {
		one, other string
		same       bool
	}{
		{"https://a", "https://A:443", true},
		{"HTTPS://a/x?y#z", "https://a:443", true},
		{"http://a:80/x", "HTTP://a", true},
		{"http://a:/x", "http://a", true},
		{"https://[FE80::1]/x", "https://[fe80::1]:443", true},
		{"https://[fe80::1]:8443", "https://[fe80::1]:443", false},
		{"https://a:8443?x", "https://a:8443", true},
		{"https://a", "http://a", false},
		{"http://a:443", "https://a:443", false},
		{"https://a:80", "http://a:80", false},
		{"https://a:443", "https://a:4430", false},
		{"https://a", "https://b", false},
		{"https://a", "https://a.", false},
		{"http://a", "http://a:443", false},
	} {
		t.Run(c.one+" and "+c.other, func(t *testing.T) {
			g := NewWithT(t)
			of := func(text string) string {
				parsed, err := url.Parse(text)
				g.Expect(err).NotTo(HaveOccurred())
				return origin.Of(parsed)
			}
			g.Expect(of(c.one) == of(c.other)).To(Equal(c.same))
			said, err := exec.CommandContext(t.Context(), "sh", "-c",
				`. ../artifacts/curl.sh; quoin_origin "$1"; quoin_origin "$2"`, "sh", c.one, c.other).CombinedOutput()
			g.Expect(err).NotTo(HaveOccurred())
			lines := strings.Fields(string(said))
			g.Expect(lines).To(HaveLen(2))
			g.Expect(lines[0] == lines[1]).To(Equal(c.same), "%s", said)
		})
	}
}
