// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package redfish_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/redfish"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/redfish/redfishtest"
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

func TestTheFingerprintMayBeWrittenInCapitals(t *testing.T) {
	w := newWorld(t, redfishtest.Options{}, func(t *redfish.Target) { t.Fingerprint = strings.ToUpper(t.Fingerprint) })
	w.g.Expect(w.c.State(t.Context())).To(Equal(redfish.On))
}
