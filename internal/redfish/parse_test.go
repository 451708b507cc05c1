// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package redfish

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	. "github.com/onsi/gomega"
)

// FuzzParse feeds everything that a BMC can send to every parser: none panics, what they let pass stays within the
// service and within bounds.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		`{"@odata.id":"/redfish/v1/","Systems":{"@odata.id":"/redfish/v1/Systems"}}`,
		`{"Members":[{"@odata.id":"/redfish/v1/Systems/1"}],"Members@odata.nextLink":"/redfish/v1/Systems?$skip=1"}`,
		`{"PowerState":"On","Actions":{"#ComputerSystem.Reset":{"target":"/redfish/v1/Systems/1/Actions/ComputerSystem.Reset",` +
			`"ResetType@Redfish.AllowableValues":["On","ForceOff"],"@Redfish.ActionInfo":"/redfish/v1/Systems/1/ResetActionInfo"}}}`,
		`{"Parameters":[{"Name":"ResetType","AllowableValues":["On","ForceOff"]}]}`,
		`{"error":{"message":"no","@Message.ExtendedInfo":[{"Message":"\u001b[31mred\u0000"}]}}`,
		`{"Systems":{"@odata.id":"https://elsewhere/redfish/v1/Systems"}}`,
		`{"Systems":{"@odata.id":"//elsewhere/redfish/v1/Systems"}}`,
		`{"Systems":{"@odata.id":"/redfish/v1/../../x"}}`,
		`[`, `null`, "\xff\xfe",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		within := func(path string) {
			if path != "" && (!strings.HasPrefix(path, "/redfish/v1/") && !strings.HasPrefix(path, "/%") ||
				strings.Contains(path, "..")) {
				t.Fatalf("%q leads out of the service", path)
			}
		}
		if path, err := parseRoot(data); err == nil {
			within(path)
		}
		if paths, _, err := parseSystems(data); err == nil {
			for _, path := range paths {
				within(path)
			}
		}
		if system, err := parseComputer(data); err == nil {
			within(system.target)
			within(system.info)
			bounded(t, string(system.power), allowedTexts(system.allowed))
		}
		if types, err := parseActionInfo(data); err == nil {
			bounded(t, "", allowedTexts(types))
		}
		bounded(t, parseError(data, Credentials{}), nil)
	})
}

func allowedTexts(types []ResetType) []string {
	var out []string
	for _, t := range types {
		out = append(out, string(t))
	}
	return out
}

func bounded(t *testing.T, text string, more []string) {
	t.Helper()
	if len(more) > 32 {
		t.Fatalf("%d texts", len(more))
	}
	for _, s := range append(more, text) {
		if utf8.RuneCountInString(s) > maxQuoted || strings.ContainsFunc(s, func(r rune) bool {
			return !unicode.IsPrint(r)
		}) {
			t.Fatalf("%q may garble a terminal", s)
		}
	}
}

func TestLinksMustStayWithinTheService(t *testing.T) {
	g := NewWithT(t)
	for _, path := range []string{"/redfish/v1/Systems", "/redfish/v1/Systems/1",
		"/redfish/v1/Systems/System.Embedded.1"} {
		g.Expect(checkLink(path)).To(Succeed(), path)
	}
	for _, path := range []string{
		"", "/", "/redfish/v2/Systems", "redfish/v1/Systems", "https://elsewhere/redfish/v1/Systems",
		"//elsewhere/redfish/v1/Systems",
		"/redfish/v1/../../etc", "/redfish/v1/%2e%2e/x", "/redfish/v1/Systems?$skip=1", "/redfish/v1/Systems#1", "\x00",
	} {
		g.Expect(checkLink(path)).NotTo(Succeed(), path)
	}
}

func TestOnlyAReadingIsRedirectedAndOnlyWithinItsOrigin(t *testing.T) {
	for to, follows := range map[string]bool{
		"https://bmc.example/redfish/v1": true, "https://bmc.example:443/redfish/v1/": true, "HTTPS://BMC.EXAMPLE/": true,
		"https://bmc.example:8443/redfish/v1/": false, "http://bmc.example/redfish/v1/": false,
		"https://bmc.example./redfish/v1/": false, "https://other.example/redfish/v1/": false,
	} {
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			first, err := http.NewRequestWithContext(t.Context(), method, "https://bmc.example/redfish/v1/", nil)
			NewWithT(t).Expect(err).NotTo(HaveOccurred())
			next, err := http.NewRequestWithContext(t.Context(), method, to, nil)
			NewWithT(t).Expect(err).NotTo(HaveOccurred())
			NewWithT(t).Expect(stayAtHome(next, []*http.Request{first}) == nil).
				To(Equal(follows && method == http.MethodGet), method+" "+to)
		}
	}
}

func TestATextOfTheBMCIsBoundedAndPrintable(t *testing.T) {
	g := NewWithT(t)
	g.Expect(printable("\x1b[31mred\x00 \xff")).To(Equal("[31mred"))
	g.Expect(utf8.RuneCountInString(printable(strings.Repeat("ü", 5000)))).To(Equal(maxQuoted))
}

func TestNoPartOfAQuotedSecretIsShown(t *testing.T) {
	g := NewWithT(t)
	login := Login("root", `pass"word\123`)
	quote := func(text string) string {
		data, err := json.Marshal(map[string]any{"error": map[string]string{"message": text}})
		g.Expect(err).NotTo(HaveOccurred())
		return parseError(data, login)
	}
	// The cut goes through the middle of what is quoted.
	for _, text := range []string{
		strings.Repeat("x", maxQuoted-6) + login.password,
		strings.Repeat("x", maxQuoted-6) + base64.StdEncoding.EncodeToString([]byte("root:"+login.password)),
	} {
		g.Expect(quote(text)).To(And(ContainSubstring("["), Not(ContainSubstring("pass\"")), Not(ContainSubstring("cm9v"))))
	}
}
