// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package hostpower

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/hostaccess"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/redfish"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/clienttest"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/redfishtest"
)

func account(namespace string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "bmc"}, Type: corev1.SecretTypeBasicAuth,
		Data: map[string][]byte{"username": []byte(redfishtest.User), "password": []byte(redfishtest.Password)},
	}
}

func power(objects ...client.Object) *Power {
	builder := clienttest.Indexed(clienttest.Scheme(corev1.AddToScheme, infrav1.AddToScheme)).WithObjects(objects...)
	reader := builder.Build()
	return &Power{Reader: reader, Hosts: reader, Interval: time.Millisecond}
}

func behind(bmc *redfishtest.Server) *infrav1.QuoinHost {
	return &infrav1.QuoinHost{
		ObjectMeta: metav1.ObjectMeta{Namespace: "hosts", Name: "h1"},
		Spec: infrav1.QuoinHostSpec{BMC: &infrav1.BMC{
			Address: bmc.Address(), CredentialsRef: infrav1.SecretReference{Name: "bmc"},
			CertificateFingerprint: bmc.Fingerprint(),
		}},
		Status: infrav1.QuoinHostStatus{Facts: &infrav1.HostFacts{ProductUUID: redfishtest.UUID("1")}},
	}
}

func TestAHostIsSwitchedThroughItsBMC(t *testing.T) {
	g := NewWithT(t)
	bmc := redfishtest.New(redfishtest.Options{SessionsOnly: true})
	defer bmc.Close()
	p, host := power(account("hosts")), behind(bmc)
	g.Expect(p.State(t.Context(), host)).To(Equal("On"))
	g.Expect(p.Off(t.Context(), host, nil)).To(Succeed())
	g.Expect(p.State(t.Context(), host)).To(Equal("Off"))
	g.Expect(p.On(t.Context(), host)).To(Succeed())
	g.Expect(p.Cycle(t.Context(), host, nil)).To(Succeed())
	g.Expect(bmc.Orders()).To(Equal([]string{"ForceOff", "On", "PowerCycle"}))
	g.Expect(bmc.Sessions()).To(BeZero(), "a BMC has room for few")
}

// Between the agreement to an order and the order lies the whole conversation with the BMC.
func TestAnOrderThatIsNotDueAnyMoreIsNotGiven(t *testing.T) {
	answered := errors.New("the host answers")
	type due = func(context.Context) error
	for name, order := range map[string]func(*Power, context.Context, *infrav1.QuoinHost, due) error{
		"off": (*Power).Off, "cycle": (*Power).Cycle,
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			bmc := redfishtest.New(redfishtest.Options{})
			defer bmc.Close()
			g.Expect(order(power(account("hosts")), t.Context(), behind(bmc), func(context.Context) error {
				return answered
			})).To(MatchError(answered))
			g.Expect(bmc.Orders()).To(BeEmpty())
			g.Expect(bmc.Power("1")).To(Equal("On"))
		})
	}
}

func TestOneOfSeveralSystemsIsThatOfTheSpec(t *testing.T) {
	g := NewWithT(t)
	bmc := redfishtest.New(redfishtest.Options{Systems: []string{"a", "b"}})
	defer bmc.Close()
	host := behind(bmc)
	host.Spec.BMC.System = "/redfish/v1/Systems/b"
	host.Status.Facts.ProductUUID = redfishtest.UUID("b")
	g.Expect(power(account("hosts")).Off(t.Context(), host, nil)).To(Succeed())
	g.Expect(bmc.Power("a")).To(Equal("On"))
	g.Expect(bmc.Power("b")).To(Equal("Off"))
}

// What a person says of the computer counts in place of what was found on the host.
func TestTheBMCOfAnotherMachineIsNotUsed(t *testing.T) {
	bmc := redfishtest.New(redfishtest.Options{})
	defer bmc.Close()
	for name, c := range map[string]struct {
		change func(*infrav1.QuoinHost)
		same   bool
	}{
		"its own":           {func(*infrav1.QuoinHost) {}, true},
		"another's":         {func(h *infrav1.QuoinHost) { h.Status.Facts.ProductUUID = redfishtest.UUID("2") }, false},
		"no UUID was found": {func(h *infrav1.QuoinHost) { h.Status.Facts.ProductUUID = "" }, false},
		"nothing was found": {func(h *infrav1.QuoinHost) { h.Status.Facts = nil }, false},
		"a person says it is": {func(h *infrav1.QuoinHost) {
			h.Status.Facts, h.Spec.BMC.SystemID = nil, redfishtest.UUID("1")
		}, true},
		"a person says otherwise": {func(h *infrav1.QuoinHost) { h.Spec.BMC.SystemID = redfishtest.UUID("2") }, false},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			host, p := behind(bmc), power(account("hosts"))
			c.change(host)
			orders := len(bmc.Orders())
			_, err := p.State(t.Context(), host)
			for _, err := range []error{err, p.Off(t.Context(), host, nil), p.On(t.Context(), host), p.Cycle(t.Context(), host, nil)} {
				if c.same {
					g.Expect(err).NotTo(HaveOccurred())
					continue
				}
				g.Expect(err).To(BeAssignableToTypeOf(&redfish.IdentityError{}))
				g.Expect(err).To(MatchError(ContainSubstring("correct spec.bmc")))
			}
			if !c.same {
				g.Expect(bmc.Orders()).To(HaveLen(orders))
			}
		})
	}
}

// One of two boards with one UUID is reached under its name, the other one under the address that has the name.
func TestAUUIDThatAnotherHostHasTooDecidesNothing(t *testing.T) {
	const big, little = "33221100-5544-7766-8899-aabbccddeeff", "00112233-4455-6677-8899-AABBCCDDEEFF"
	for name, c := range map[string]struct {
		mine, others func(*infrav1.QuoinHost)
		same         bool
	}{
		"one UUID":             {nothing, nothing, false},
		"the other byte order": {nothing, func(h *infrav1.QuoinHost) { h.Status.Facts.ProductUUID = little }, false},
		"a person's word for the other": {nothing, func(h *infrav1.QuoinHost) { h.Spec.BMC.SystemID = "S4EWNX0N" },
			false},
		"a person's word":             {func(h *infrav1.QuoinHost) { h.Spec.BMC.SystemID = "S4EWNX0M" }, nothing, true},
		"the UUID as a person's word": {func(h *infrav1.QuoinHost) { h.Spec.BMC.SystemID = big }, nothing, false},
		"the same, and no other BMC": {func(h *infrav1.QuoinHost) { h.Spec.BMC.SystemID = big },
			func(h *infrav1.QuoinHost) { h.Spec.BMC = nil }, true},
		"its serial number": {func(h *infrav1.QuoinHost) { h.Status.Facts.SerialNumber = "S4EWNX0M" }, nothing, true},
		"a person's word, read on the other": {func(h *infrav1.QuoinHost) { h.Spec.BMC.SystemID = "S4EWNX0M" },
			func(h *infrav1.QuoinHost) {
				h.Spec.BMC, h.Status.Facts = nil, &infrav1.HostFacts{SerialNumber: "s4ewnx0m"}
			}, false},
		"a person's word, said of the other too": {func(h *infrav1.QuoinHost) { h.Spec.BMC.SystemID = "S4EWNX0M" },
			func(h *infrav1.QuoinHost) { h.Spec.BMC.SystemID = "s4ewnx0m" }, false},
		"another UUID": {nothing, func(h *infrav1.QuoinHost) { h.Status.Facts.ProductUUID = redfishtest.UUID("2") }, true},
		"no BMC":       {nothing, func(h *infrav1.QuoinHost) { h.Spec.BMC = nil }, true},
		"of strangers": {nothing, func(h *infrav1.QuoinHost) { h.Namespace = "strangers" }, true},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			identify := func(string) (uuid, serial, sku string) { return big, "S4EWNX0M", "" }
			bmc := redfishtest.New(redfishtest.Options{Identify: identify})
			defer bmc.Close()
			host, other := behind(bmc), behind(bmc)
			host.Spec.BMC.Address = strings.Replace(bmc.Address(), "127.0.0.1", "localhost", 1)
			host.Status.Facts.ProductUUID, other.Status.Facts.ProductUUID = big, big
			other.Name = "h2"
			c.mine(host)
			c.others(other)
			p := power(account("hosts"), host, other)
			_, err := p.State(t.Context(), host)
			for _, err := range []error{err, p.Off(t.Context(), host, nil), p.On(t.Context(), host), p.Cycle(t.Context(), host, nil)} {
				if c.same {
					g.Expect(err).NotTo(HaveOccurred())
					continue
				}
				g.Expect(err).To(BeAssignableToTypeOf(&redfish.IdentityError{}))
				g.Expect(err).To(MatchError(And(ContainSubstring("QuoinHost hosts/h2"), ContainSubstring("spec.bmc.systemID"),
					ContainSubstring("SerialNumber S4EWNX0M"))))
			}
			if !c.same {
				g.Expect(bmc.Orders()).To(BeEmpty())
			}
		})
	}
}

// A typo gives h1 the BMC of h2, which names none of its own, and the operator copies what that BMC says: until h2 is
// inspected nobody can know better.
func TestAWordIsRefusedOnceInspectionFindsItOnAnotherHost(t *testing.T) {
	g := NewWithT(t)
	bmc := redfishtest.New(redfishtest.Options{})
	defer bmc.Close()
	host, other := behind(bmc), behind(bmc)
	host.Status.Facts.ProductUUID, host.Spec.BMC.SystemID = redfishtest.UUID("2"), redfishtest.UUID("1")
	other.Name, other.Spec.BMC, other.Status.Facts = "h2", nil, nil
	g.Expect(power(account("hosts"), host, other).Off(t.Context(), host, nil)).To(Succeed())
	g.Expect(bmc.Orders()).To(HaveLen(1))
	other.Status.Facts = &infrav1.HostFacts{ProductUUID: redfishtest.UUID("1")}
	p := power(account("hosts"), host, other)
	g.Expect(p.Off(t.Context(), host, nil)).To(MatchError(And(ContainSubstring("another machine's"),
		ContainSubstring("QuoinHost hosts/h2"))))
	g.Expect(p.State(t.Context(), host)).Error().To(HaveOccurred(), "nor does it fence h1 that h2 is off")
	g.Expect(bmc.Orders()).To(HaveLen(1))
}

func nothing(*infrav1.QuoinHost) {}

func TestAnUnpinnedOrChangedCertificateIsNotTrusted(t *testing.T) {
	g := NewWithT(t)
	bmc := redfishtest.New(redfishtest.Options{})
	defer bmc.Close()
	host := behind(bmc)
	bmc.ChangeCertificate()
	var changed *redfish.CertificateError
	g.Expect(power(account("hosts")).Off(t.Context(), host, nil)).To(BeAssignableToTypeOf(changed))
	host.Spec.BMC.CertificateFingerprint = ""
	g.Expect(power(account("hosts")).Off(t.Context(), host, nil)).To(BeAssignableToTypeOf(changed))
	g.Expect(bmc.Logins()).To(BeZero())
}

func TestWhatIsWrongWithTheAccountIsSaid(t *testing.T) {
	bmc := redfishtest.New(redfishtest.Options{})
	defer bmc.Close()
	host := behind(bmc)
	wrongType, empty := account("hosts"), account("hosts")
	wrongType.Type = corev1.SecretTypeOpaque
	empty.Data = map[string][]byte{"username": []byte("operator")}
	for name, c := range map[string]struct {
		secret *corev1.Secret
		says   string
	}{
		"not there":  {account("another-namespace"), "does not exist"},
		"wrong type": {wrongType, `has type "Opaque"`},
		"incomplete": {empty, "lacks username or password"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			_, err := power(c.secret).State(t.Context(), host)
			var refused *hostaccess.CredentialsError
			g.Expect(err).To(BeAssignableToTypeOf(refused))
			g.Expect(err).To(MatchError(And(ContainSubstring(c.says), ContainSubstring("hosts/bmc"))))
		})
	}
	host.Spec.BMC = nil
	_, err := power().State(t.Context(), host)
	NewWithT(t).Expect(err).To(MatchError(ErrNoBMC))
}

// A person named the computer before the machine was replaced.
func TestAMachineThatWasReplacedIsNotSwitchedByTheNameOfTheOneBefore(t *testing.T) {
	g := NewWithT(t)
	bmc := redfishtest.New(redfishtest.Options{})
	defer bmc.Close()
	p, host := power(account("hosts")), behind(bmc)
	replaced := []metav1.Condition{{Type: infrav1.HostUnchangedCondition, Status: metav1.ConditionFalse,
		Reason: infrav1.HostMachineReplacedReason}}
	host.Status.Conditions = replaced
	g.Expect(p.State(t.Context(), host)).To(Equal("On"), "what it says of itself now is that of the BMC")

	host.Status.Facts.ProductUUID, host.Spec.BMC.SystemID = redfishtest.UUID("2"), redfishtest.UUID("1")
	g.Expect(p.Off(t.Context(), host, nil)).To(MatchError(And(ContainSubstring("systemID"),
		ContainSubstring(infrav1.HostUnchangedCondition))))
	_, err := p.State(t.Context(), host)
	g.Expect(err).To(HaveOccurred(), "that it is off proves nothing")
	g.Expect(bmc.Orders()).To(BeEmpty())

	host.Status.Conditions = nil
	g.Expect(p.Off(t.Context(), host, nil)).To(Succeed(), "a person confirmed it")
}
