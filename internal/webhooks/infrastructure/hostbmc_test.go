// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package infrastructure

import (
	"context"
	"errors"
	"testing"

	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
)

// by is the context of a user's request.
func by(user string) context.Context {
	request := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{UserInfo: authenticationv1.UserInfo{
		Username: user, Groups: []string{"tenants"}, Extra: map[string]authenticationv1.ExtraValue{"scope": {"a"}},
	}}}
	return admission.NewContextWithRequest(context.Background(), request)
}

// reviewer answers SubjectAccessReviews.
type reviewer struct {
	client.Writer
	allowed bool
	err     error
	asked   []authorizationv1.SubjectAccessReviewSpec
}

func rights(allowed bool) *reviewer { return &reviewer{allowed: allowed} }

func (r *reviewer) Create(_ context.Context, o client.Object, _ ...client.CreateOption) error {
	review := o.(*authorizationv1.SubjectAccessReview) //nolint:forcetypeassert // nothing else is created
	r.asked = append(r.asked, review.Spec)
	review.Status.Allowed = r.allowed
	return r.err
}

// Whoever may write hosts must not have the password of a BMC sent to a server of their own.
func TestABMCIsSetByWhoeverMayReadItsSecret(t *testing.T) {
	with := func(address, secret, fingerprint string) *infrav1.QuoinHost {
		return host("h1", func(h *infrav1.QuoinHost) {
			h.Spec.HostKeys = []string{ed25519Key}
			h.Spec.BMC = &infrav1.BMC{Address: address, CredentialsRef: infrav1.SecretReference{Name: secret},
				CertificateFingerprint: fingerprint}
		})
	}
	without := host("h1", func(h *infrav1.QuoinHost) { h.Spec.HostKeys = []string{ed25519Key} })
	before := with("https://192.0.2.107", "bmc", "aa")
	for name, c := range map[string]struct {
		before, after *infrav1.QuoinHost
		asked         bool
	}{
		"a new host":               {nil, before, true},
		"a new host without a BMC": {nil, without, false},
		"a BMC is added":           {without, before, true},
		"the address":              {before, with("https://203.0.113.9", "bmc", "aa"), true},
		"the Secret":               {before, with("https://192.0.2.107", "other", "aa"), true},
		"the pinned certificate":   {before, with("https://192.0.2.107", "bmc", "bb"), true},
		"the BMC is taken away":    {before, without, false},
		"something else of the host": {before, func() *infrav1.QuoinHost {
			h := before.DeepCopy()
			h.Spec.User = "quoin"
			return h
		}(), false},
	} {
		t.Run(name, func(t *testing.T) {
			for _, allowed := range []bool{true, false} {
				g := NewWithT(t)
				reviews := rights(allowed)
				w := &HostWebhook{Client: reader(t), Live: reader(t), Reviews: reviews}
				var err error
				if c.before == nil {
					_, err = w.ValidateCreate(by("mallory"), c.after)
				} else {
					_, err = w.ValidateUpdate(by("mallory"), c.before, c.after)
				}
				if !c.asked {
					g.Expect(err).NotTo(HaveOccurred())
					g.Expect(reviews.asked).To(BeEmpty())
					continue
				}
				g.Expect(reviews.asked).To(ConsistOf(authorizationv1.SubjectAccessReviewSpec{
					User: "mallory", Groups: []string{"tenants"},
					Extra: map[string]authorizationv1.ExtraValue{"scope": {"a"}},
					ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: "hosts", Verb: "get", Version: "v1",
						Resource: "secrets", Name: c.after.Spec.BMC.CredentialsRef.Name},
				}))
				if allowed {
					g.Expect(err).NotTo(HaveOccurred())
					continue
				}
				expectRefusal(t, err, "spec.bmc: Forbidden: the credentials in Secret "+c.after.Spec.BMC.CredentialsRef.Name)
				g.Expect(err).To(MatchError(ContainSubstring(`user "mallory" may not read them: have somebody set it who may`)))
			}
		})
	}
	for name, c := range map[string]struct {
		change  func(*infrav1.BMC)
		refusal string
	}{
		"that of another host":              {func(*infrav1.BMC) {}, "QuoinHost hosts/other has this BMC"},
		"written otherwise":                 {func(b *infrav1.BMC) { b.Address = "https://192.0.2.107:443/" }, "has this"},
		"a computer of one that names none": {func(b *infrav1.BMC) { b.System = "/redfish/v1/Systems/1" }, "has this BMC"},
		"another address":                   {func(b *infrav1.BMC) { b.Address = "https://192.0.2.108" }, ""},
		"another port, as behind a NAT":     {func(b *infrav1.BMC) { b.Address = "https://192.0.2.107:8443" }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			other := before.DeepCopy()
			other.Name, other.Spec.Address = "other", "192.0.2.9"
			h := before.DeepCopy()
			c.change(h.Spec.BMC)
			w := &HostWebhook{Client: reader(t, other), Live: reader(t), Reviews: rights(true)}
			_, err := w.ValidateCreate(by("operator"), h)
			expectRefusal(t, err, c.refusal)
			_, err = w.ValidateUpdate(by("operator"), without, h)
			expectRefusal(t, err, c.refusal)
			if c.refusal != "" {
				// They were stored before: whatever else changes is not refused, and one names its computer after the other.
				rotated := h.DeepCopy()
				rotated.Spec.BMC.CertificateFingerprint = "cc"
				_, err = w.ValidateUpdate(by("operator"), h, rotated)
				expectRefusal(t, err, "")
				named := h.DeepCopy()
				named.Spec.BMC.System = "/redfish/v1/Systems/1"
				_, err = w.ValidateUpdate(by("operator"), h, named)
				expectRefusal(t, err, "")
				given, bare := h.DeepCopy(), without.DeepCopy()
				given.Spec.ConsumerRef = &infrav1.ConsumerReference{Namespace: "hosts", Name: "m", Machine: "m", Claim: "0123abcd"}
				bare.Spec.ConsumerRef = given.Spec.ConsumerRef.DeepCopy()
				_, err = w.ValidateUpdate(by("operator"), bare, given)
				expectRefusal(t, err, c.refusal)
				// A claim is no pass, unless both were there before, and nobody here has taken the other one over yet.
				moved, other := given.DeepCopy(), other.DeepCopy()
				moved.Spec.ManagedBy, moved.UID = "elsewhere", "copy"
				for passes, brought := range map[string]func(*infrav1.QuoinHost){
					c.refusal: func(*infrav1.QuoinHost) {},
					"has this BMC": func(o *infrav1.QuoinHost) {
						o.Spec.ConsumerRef, o.UID, o.Spec.ManagedBy = given.Spec.ConsumerRef, "other", "other"
					},
					"": func(o *infrav1.QuoinHost) {
						o.Spec.ConsumerRef, o.UID, o.Spec.ManagedBy = given.Spec.ConsumerRef, "other", "elsewhere"
					},
				} {
					beside := other.DeepCopy()
					brought(beside)
					w := &HostWebhook{Client: reader(t, beside), Live: reader(t), Reviews: rights(true)}
					_, err = w.ValidateCreate(by("operator"), moved)
					expectRefusal(t, err, passes)
				}
				// Free hosts are held while they move.
				held, free := other.DeepCopy(), h.DeepCopy()
				held.Spec.HeldFor, free.Spec.HeldFor = &infrav1.HostHold{Source: "a"}, &infrav1.HostHold{Source: "b"}
				_, err = (&HostWebhook{Client: reader(t, held), Live: reader(t), Reviews: rights(true)}).
					ValidateCreate(by("operator"), free)
				expectRefusal(t, err, "")
				// Two blades of one chassis.
				other.Spec.BMC.System, h.Spec.BMC.System = "/redfish/v1/Systems/1", "/redfish/v1/Systems/2"
				_, err = (&HostWebhook{Client: reader(t, other), Live: reader(t), Reviews: rights(true)}).
					ValidateCreate(by("operator"), h)
				expectRefusal(t, err, "")
			}
		})
	}
	for name, c := range map[string]struct {
		status  metav1.ConditionStatus
		refusal string
	}{
		"verified":          {metav1.ConditionTrue, "QuoinHost strangers/other has this BMC"},
		"another machine's": {metav1.ConditionFalse, ""},
		"only named":        {metav1.ConditionUnknown, ""},
	} {
		t.Run("of another namespace, "+name, func(t *testing.T) {
			other := before.DeepCopy()
			other.Namespace, other.Name, other.Spec.Address = "strangers", "other", "192.0.2.9"
			other.Status.Conditions = []metav1.Condition{{Type: infrav1.HostBMCVerifiedCondition, Status: c.status}}
			w := &HostWebhook{Client: reader(t, other), Live: reader(t), Reviews: rights(true)}
			_, err := w.ValidateCreate(by("operator"), before)
			expectRefusal(t, err, c.refusal)
		})
	}
	for name, c := range map[string]struct{ other, was, is, refusal string }{
		"with a slash":                    {"/redfish/v1/Systems/1", "", "/redfish/v1/Systems/1/", "has this BMC"},
		"none beside one that is named":   {"/redfish/v1/Systems/1", "/redfish/v1/Systems/2", "", "has this BMC"},
		"one of two that were not named":  {"", "", "/redfish/v1/Systems/1", ""},
		"another, where one was not":      {"/redfish/v1/Systems/1", "", "/redfish/v1/Systems/2", ""},
		"that of another, where none was": {"/redfish/v1/Systems/1", "", "/redfish/v1/Systems/1", "has this BMC"},
	} {
		t.Run("a system is named: "+name, func(t *testing.T) {
			other, was, is := before.DeepCopy(), before.DeepCopy(), before.DeepCopy()
			other.Name, other.Spec.Address = "other", "192.0.2.9"
			other.Spec.BMC.System, was.Spec.BMC.System, is.Spec.BMC.System = c.other, c.was, c.is
			w := &HostWebhook{Client: reader(t, other), Live: reader(t), Reviews: rights(true)}
			_, err := w.ValidateUpdate(by("operator"), was, is)
			expectRefusal(t, err, c.refusal)
		})
	}
	for name, c := range map[string]struct {
		namespace, word, serial string
		refusal                 string
	}{
		"the UUID":          {"hosts", "33221100-5544-7766-8899-AABBCCDDEEFF", "", "read on QuoinHost hosts/other"},
		"in other bytes":    {"hosts", "00112233-4455-6677-8899-AABBCCDDEEFF", "", "read on QuoinHost hosts/other"},
		"the serial number": {"hosts", "s4ewnx0m", "S4EWNX0M", `that it is "s4ewnx0m"`},
		"of no machine":     {"hosts", "Default string", "Default string", ""},
		"another":           {"hosts", "S4EWNX0N", "S4EWNX0M", ""},
		"a stranger's":      {"elsewhere", "S4EWNX0M", "S4EWNX0M", ""},
	} {
		t.Run("what inspection read on another host: "+name, func(t *testing.T) {
			other, h := without.DeepCopy(), before.DeepCopy()
			other.Namespace, other.Name, other.Spec.Address = c.namespace, "other", "192.0.2.9"
			other.Status.Facts = &infrav1.HostFacts{ProductUUID: "33221100-5544-7766-8899-aabbccddeeff", SerialNumber: c.serial}
			h.Spec.BMC.SystemID = c.word
			w := &HostWebhook{Client: reader(t, other), Live: reader(t), Reviews: rights(true)}
			_, err := w.ValidateCreate(by("operator"), h)
			expectRefusal(t, err, c.refusal)
			_, err = w.ValidateUpdate(by("operator"), before, h)
			expectRefusal(t, err, c.refusal)
		})
	}
	for name, c := range map[string]struct {
		namespace, said string
		refusal         string
	}{
		"one computer behind two addresses": {"hosts", "SN-1", `spec.bmc.systemID: Forbidden: QuoinHost hosts/other says "SN-1" too`},
		"in other letters":                  {"hosts", "sn-1", "QuoinHost hosts/other says"},
		"another computer":                  {"hosts", "SN-2", ""},
		"a stranger's":                      {"elsewhere", "SN-1", ""},
	} {
		t.Run(name, func(t *testing.T) {
			other, h := before.DeepCopy(), before.DeepCopy()
			other.Namespace, other.Name, other.Spec.Address = c.namespace, "other", "192.0.2.9"
			other.Spec.BMC.Address, other.Spec.BMC.SystemID = "https://bmc.example.com", c.said
			h.Spec.BMC.SystemID = "SN-1"
			w := &HostWebhook{Client: reader(t, other), Live: reader(t), Reviews: rights(true)}
			_, err := w.ValidateCreate(by("operator"), h)
			expectRefusal(t, err, c.refusal)
			rotated := h.DeepCopy()
			rotated.Spec.BMC.CertificateFingerprint = "cc"
			_, err = w.ValidateUpdate(by("operator"), h, rotated)
			expectRefusal(t, err, "")
		})
	}
	g := NewWithT(t)
	w := &HostWebhook{Client: reader(t), Live: reader(t), Reviews: &reviewer{allowed: true, err: errors.New("no answer")}}
	_, err := w.ValidateCreate(by("operator"), before)
	g.Expect(err).To(MatchError(ContainSubstring("no answer")), "nobody knows")
	_, err = w.ValidateCreate(context.Background(), before)
	g.Expect(err).To(MatchError(ContainSubstring("who sets spec.bmc")))
}
