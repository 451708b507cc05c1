// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package redfish_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/redfish"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/redfishtest"
)

func TestAChangedCertificateStopsBeforeTheLoginAndShowsBoth(t *testing.T) {
	w := newWorld(t, redfishtest.Options{})
	w.g.Expect(w.c.State(t.Context())).To(Equal(redfish.On))
	expected, logins := w.bmc.Fingerprint(), w.bmc.Logins()
	w.bmc.ChangeCertificate()
	err := w.c.PowerOff(t.Context())
	w.g.Expect(err).To(Equal(&redfish.CertificateError{Address: w.bmc.Address(), Expected: expected,
		Seen: w.bmc.Fingerprint()}))
	w.g.Expect(err.Error()).To(ContainSubstring("spec.bmc.certificateFingerprint"))
	w.g.Expect(w.bmc.Logins()).To(Equal(logins), "nobody gets the password but who has the pinned certificate")
}

func TestWithoutAPinTheCertificateMustBeTrusted(t *testing.T) {
	w := newWorld(t, redfishtest.Options{}, func(t *redfish.Target) { t.Fingerprint = "" })
	_, err := w.c.State(t.Context())
	var untrusted *redfish.CertificateError
	w.g.Expect(err).To(BeAssignableToTypeOf(untrusted))
	w.g.Expect(err).To(MatchError(ContainSubstring("seen " + w.bmc.Fingerprint())))
	w.g.Expect(w.bmc.Logins()).To(BeZero())

	trusting, err := redfish.New(redfish.Target{
		Address: w.bmc.Address(), Credentials: redfish.Login(redfishtest.User, redfishtest.Password), Roots: w.bmc.Roots(),
		Machine: redfish.Machine{UUID: redfishtest.UUID("1")},
	})
	w.g.Expect(err).NotTo(HaveOccurred())
	defer trusting.Close()
	w.g.Expect(trusting.State(t.Context())).To(Equal(redfish.On))
}

func TestAWrongPasswordIsTriedOnce(t *testing.T) {
	for _, sessionsOnly := range []bool{false, true} {
		w := newWorld(t, redfishtest.Options{SessionsOnly: sessionsOnly}, func(t *redfish.Target) {
			t.Credentials = redfish.Login(redfishtest.User, "wrong")
			t.System = "/redfish/v1/Systems/1"
		})
		_, err := w.c.State(t.Context())
		var refused *redfish.AuthenticationError
		w.g.Expect(err).To(BeAssignableToTypeOf(refused))
		w.g.Expect(w.bmc.Logins()).To(Equal(1), "BMCs lock accounts")
	}
}

func TestSessionsServeWhereBasicAuthenticationDoesNot(t *testing.T) {
	w := newWorld(t, redfishtest.Options{SessionsOnly: true})
	w.g.Expect(w.c.PowerOff(t.Context())).To(Succeed())
	w.g.Expect(w.bmc.Sessions()).To(Equal(1))
	w.g.Expect(w.bmc.Logins()).To(Equal(1))
	w.c.Close()
	w.g.Expect(w.bmc.Sessions()).To(BeZero())
}

func TestForbiddenTellsOfTheRoleNotOfThePassword(t *testing.T) {
	w := newWorld(t, redfishtest.Options{})
	w.bmc.Misbehave(redfishtest.Faults{Status: http.StatusForbidden})
	w.g.Expect(w.c.State(t.Context())).Error().To(MatchError(ContainSubstring("too few rights")))
}

func TestCredentialsNeverShow(t *testing.T) {
	g := NewWithT(t)
	credentials := redfish.Login("root", "calvin-17")
	encoded, err := json.Marshal(map[string]any{"c": credentials})
	g.Expect(err).NotTo(HaveOccurred())
	for _, text := range []string{
		fmt.Sprint(credentials), fmt.Sprintf("%+v %#v %s %q", credentials, credentials, credentials, credentials),
		fmt.Sprintf("%+v", redfish.Target{Credentials: credentials}), string(encoded),
	} {
		g.Expect(text).NotTo(Or(ContainSubstring("calvin"), ContainSubstring("root")))
	}

	for _, status := range []int{http.StatusBadRequest, http.StatusInternalServerError, http.StatusUnauthorized} {
		w := newWorld(t, redfishtest.Options{})
		w.bmc.Misbehave(redfishtest.Faults{Status: status, Quote: true})
		_, err := w.c.State(t.Context())
		w.g.Expect(err).To(HaveOccurred())
		w.g.Expect(err.Error()).NotTo(ContainSubstring(redfishtest.Password), "some BMCs quote what they refuse")
	}
}

func TestLinksAndRedirectionsLeadNowhereElse(t *testing.T) {
	var visits atomic.Int32
	elsewhere := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { visits.Add(1) }))
	defer elsewhere.Close()

	w := newWorld(t, redfishtest.Options{})
	w.bmc.Misbehave(redfishtest.Faults{LinkAway: elsewhere.URL})
	w.g.Expect(w.c.State(t.Context())).Error().To(MatchError(ContainSubstring("does not lead into the service")))

	redirecting := httptest.NewTLSServer(http.RedirectHandler(elsewhere.URL+"/redfish/v1/", http.StatusTemporaryRedirect))
	defer redirecting.Close()
	c, err := redfish.New(redfish.Target{Address: redirecting.URL,
		Fingerprint: redfish.Fingerprint(redirecting.Certificate())})
	w.g.Expect(err).NotTo(HaveOccurred())
	defer c.Close()
	w.g.Expect(c.State(t.Context())).Error().To(MatchError(ContainSubstring("HTTP status 307")))
	w.g.Expect(visits.Load()).To(BeZero())

	// The same origin is home, however it is written.
	var port string
	home := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/redfish/v1/" {
			http.Redirect(w, r, "HTTPS://LOCALHOST:"+port+"/redfish/v1/home", http.StatusTemporaryRedirect)
			return
		}
		visits.Add(1)
		w.WriteHeader(http.StatusTeapot)
	}))
	defer home.Close()
	_, port, err = net.SplitHostPort(home.Listener.Addr().String())
	w.g.Expect(err).NotTo(HaveOccurred())
	c, err = redfish.New(redfish.Target{Address: "https://localhost:" + port,
		Fingerprint: redfish.Fingerprint(home.Certificate())})
	w.g.Expect(err).NotTo(HaveOccurred())
	defer c.Close()
	w.g.Expect(c.State(t.Context())).Error().To(MatchError(ContainSubstring("HTTP status 418")))
	w.g.Expect(visits.Load()).To(BeEquivalentTo(1))
}

func TestAnAddressThatIsRefusedIsNotConnectedTo(t *testing.T) {
	for _, refusal := range []error{errors.New("it is link-local"), nil} {
		w := newWorld(t, redfishtest.Options{}, func(t *redfish.Target) {
			t.Control = func(context.Context, string, string, syscall.RawConn) error { return refusal }
		})
		_, err := w.c.State(t.Context())
		if refusal == nil {
			w.g.Expect(err).NotTo(HaveOccurred())
			continue
		}
		w.g.Expect(err).To(MatchError(ContainSubstring("it is link-local")))
	}
}

func TestTheComputerIsTheMachineThatIsMeant(t *testing.T) {
	const uuid, swapped = "33221100-5544-7766-8899-aabbccddeeff", "00112233-4455-6677-8899-AABBCCDDEEFF"
	type machine = redfish.Machine
	other := redfishtest.UUID("2")
	const serial, strange = "S4EWNX0M", "S4EWNX0N"
	const h18 = "QuoinHost hosts/h18"
	const another, unknown = "is another machine's", "nothing tells whether"
	const zeros, filler = "00000000-0000-0000-0000-000000000000", "To be filled by O.E.M."
	for name, c := range map[string]struct {
		meant             machine
		uuid, serial, sku string
		says              string
	}{
		"one UUID":                          {machine{UUID: uuid}, uuid, "", "", ""},
		"the other byte order":              {machine{UUID: uuid}, swapped, "", "", ""},
		"another UUID":                      {machine{UUID: uuid}, other, "", "", another},
		"another UUID with its serial":      {machine{UUID: uuid, Serial: serial}, other, serial, "", unknown},
		"another UUID, another serial":      {machine{UUID: uuid, Serial: serial}, other, strange, "", another},
		"one UUID, another serial":          {machine{UUID: uuid, Serial: serial}, uuid, strange, "", another},
		"one UUID, its serial as the SKU":   {machine{UUID: uuid, Serial: serial}, uuid, "CN7016346B00AB", serial, ""},
		"one UUID, a serial of no machine":  {machine{UUID: uuid, Serial: serial}, swapped, filler, "", ""},
		"a person's UUID, another serial":   {machine{ID: uuid, UUID: uuid, Serial: serial}, uuid, strange, "", ""},
		"its serial number":                 {machine{Serial: serial}, uuid, "s4ewnx0m", "", ""},
		"its serial number as the SKU":      {machine{UUID: zeros, Serial: serial}, zeros, "CN7016346B00AB", serial, ""},
		"another serial number":             {machine{Serial: serial}, "", strange, "", another},
		"a person's UUID that is none":      {machine{ID: zeros}, zeros, "", "", ""},
		"a person's serial number":          {machine{ID: "x1", UUID: uuid}, "", "X1", "", ""},
		"a person's SKU":                    {machine{ID: serial}, "", "", serial, ""},
		"a person's UUID beside its serial": {machine{ID: other, UUID: uuid, Serial: serial}, other, serial, "", ""},
		"a person's UUID, no serial":        {machine{ID: other, UUID: uuid, Serial: filler}, other, serial, "", ""},
		"a person's UUID against both":      {machine{ID: other, UUID: uuid, Serial: serial}, other, strange, "", another},
		"a person's word against both":      {machine{ID: strange, UUID: uuid, Serial: serial}, other, strange, "", another},
		"a person's UUID, another's too":    {machine{ID: other, UUID: uuid, Shared: h18}, other, "", "", another},
		"the same, and nothing is known":    {machine{ID: other, Shared: h18}, other, "", "", another},
		"the same, and its serial decides":  {machine{ID: serial, Serial: serial, Shared: h18}, other, serial, "", ""},
		"its own UUID, another's too":       {machine{ID: uuid, UUID: uuid, Shared: h18}, uuid, strange, "", unknown},
		"a person says nothing":             {machine{ID: "    "}, uuid, "", "", another},
		"a person says otherwise":           {machine{ID: strange, UUID: uuid}, uuid, serial, "", another},
		"no UUID on either side":            {machine{UUID: zeros}, zeros, "", "", unknown},
		"serial numbers of no machine":      {machine{Serial: filler}, "", filler, "", unknown},
		"a UUID here and a serial there":    {machine{UUID: uuid}, "", serial, "", unknown},
		"nothing is known of the machine":   {machine{}, uuid, "", "", unknown},
		"nothing is known of the computer":  {machine{UUID: uuid}, "", "", "", unknown},
	} {
		t.Run(name, func(t *testing.T) {
			identify := func(string) (uuid, serial, sku string) { return c.uuid, c.serial, c.sku }
			w := newWorld(t, redfishtest.Options{Identify: identify}, func(t *redfish.Target) { t.Machine = c.meant })
			_, err := w.c.State(t.Context())
			for _, err := range []error{err, w.c.PowerCycle(t.Context()), w.c.PowerOff(t.Context()),
				w.c.PowerOn(t.Context())} {
				if c.says == "" {
					w.g.Expect(err).NotTo(HaveOccurred())
					continue
				}
				w.g.Expect(err).To(BeAssignableToTypeOf(&redfish.IdentityError{}))
				w.g.Expect(err).To(MatchError(And(ContainSubstring(c.says), ContainSubstring("correct spec.bmc"))))
				offered := ContainSubstring("set spec.bmc.systemID")
				if c.says == another {
					offered = And(Not(offered), ContainSubstring("docs/bmc.md"))
				}
				w.g.Expect(err).To(MatchError(offered), "nobody is led to paste what another machine's BMC says")
				if c.meant.Shared != "" {
					w.g.Expect(err).To(MatchError(ContainSubstring(c.meant.Shared)))
				}
			}
			if c.says != "" {
				w.g.Expect(w.bmc.Orders()).To(BeEmpty())
			}
		})
	}
}

func TestTheFingerprintMayBeWrittenInCapitals(t *testing.T) {
	w := newWorld(t, redfishtest.Options{}, func(t *redfish.Target) { t.Fingerprint = strings.ToUpper(t.Fingerprint) })
	w.g.Expect(w.c.State(t.Context())).To(Equal(redfish.On))
}
