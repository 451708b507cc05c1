// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package infrastructure

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/clienttest"
)

const (
	ed25519Key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl"
	brokenKey  = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9"
)

func reader(t *testing.T, objects ...client.Object) client.Reader {
	t.Helper()
	builder := clienttest.Indexed(clienttest.Scheme(infrav1.AddToScheme)).WithObjects(objects...)
	return builder.Build()
}

func host(name string, changes ...func(*infrav1.QuoinHost)) *infrav1.QuoinHost {
	h := &infrav1.QuoinHost{
		ObjectMeta: metav1.ObjectMeta{Namespace: "hosts", Name: name},
		Spec: infrav1.QuoinHostSpec{Address: "192.0.2.7", Port: 22, User: "root",
			CredentialsRef: infrav1.SecretReference{Name: "key"}},
	}
	for _, change := range changes {
		change(h)
	}
	return h
}

func at(address string) func(*infrav1.QuoinHost) {
	return func(h *infrav1.QuoinHost) { h.Spec.Address = address }
}

// expectRefusal expects err to refuse with a sentence that holds refusal, and nothing when refusal is "".
func expectRefusal(t *testing.T, err error, refusal string) {
	t.Helper()
	g := NewWithT(t)
	if refusal == "" {
		g.Expect(err).NotTo(HaveOccurred())
	} else {
		g.Expect(err).To(MatchError(ContainSubstring(refusal)))
	}
}

func TestHostSpec(t *testing.T) {
	const address, key, node, namespace = "spec.address", "spec.hostKeys[0]", "spec.nodeNetwork.addresses[0]",
		"spec.consumerNamespaces[0]"
	with := func(change func(*infrav1.QuoinHostSpec)) func(*infrav1.QuoinHost) {
		return func(h *infrav1.QuoinHost) { change(&h.Spec) }
	}
	keys := func(keys ...string) func(*infrav1.QuoinHost) {
		return with(func(s *infrav1.QuoinHostSpec) { s.HostKeys = keys })
	}
	nodes := func(addresses ...string) func(*infrav1.QuoinHost) {
		return with(func(s *infrav1.QuoinHostSpec) { s.NodeNetwork.Addresses = addresses })
	}
	namespaces := func(names ...string) func(*infrav1.QuoinHost) {
		return with(func(s *infrav1.QuoinHostSpec) { s.ConsumerNamespaces = names })
	}
	for name, c := range map[string]struct {
		change  func(*infrav1.QuoinHost)
		refusal string
	}{
		"an IPv4 address":                {at("192.0.2.7"), ""},
		"an IPv6 address":                {at("2001:db8::7"), ""},
		"a DNS name":                     {at("Rack1-07.example.com"), ""},
		"an IPv4 address out of range":   {at("192.0.2.700"), address},
		"an address with a port":         {at("192.0.2.7:22"), address},
		"an address with a user":         {at("root@192.0.2.7"), address},
		"an IPv6 address in brackets":    {at("[2001:db8::7]"), address},
		"the unspecified address":        {at("0.0.0.0"), address},
		"a multicast address":            {at("ff02::1"), address},
		"a link-local address of a zone": {at("fe80::1%eth0"), address},

		"a host key":                {keys(ed25519Key), ""},
		"a host key with a comment": {keys(ed25519Key + " root@host"), ""},
		"a cut-off host key":        {keys(brokenKey), key},
		"a fingerprint":             {keys("SHA256:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU"), key},

		"node addresses of both families": {nodes("192.0.2.8", "2001:db8::8"), ""},
		"a node address with a prefix":    {nodes("192.0.2.8/24"), node},
		"a loopback node address":         {nodes("127.0.0.1"), node},
		"a multicast node address":        {nodes("224.0.0.18"), node},
		"a link-local node address":       {nodes("fe80::1"), node},
		"an unspecified node address":     {nodes("::"), node},

		"a namespace":            {namespaces("prod"), ""},
		"every namespace":        {namespaces("*"), ""},
		"a pattern of namespace": {namespaces("prod-*"), namespace},
	} {
		t.Run(name, func(t *testing.T) {
			webhook := &HostWebhook{Client: reader(t)}
			_, err := webhook.ValidateCreate(t.Context(), host("a", c.change))
			expectRefusal(t, err, c.refusal)
			_, err = webhook.ValidateUpdate(t.Context(), host("a"), host("a", c.change))
			expectRefusal(t, err, c.refusal)
		})
	}
}

func TestHostAddressBelongsToOneHost(t *testing.T) {
	port := func(h *infrav1.QuoinHost) { h.Spec.Port = 2222 }
	elsewhere := func(h *infrav1.QuoinHost) { h.Namespace = "elsewhere" }
	inspected := func(h *infrav1.QuoinHost) { h.Status.Facts = &infrav1.HostFacts{Hostname: "a"} }
	for name, c := range map[string]struct {
		there, new *infrav1.QuoinHost
		refusal    string
	}{
		"another address": {host("a"), host("b", at("192.0.2.8")), ""},
		"the same address": {host("a"), host("b"),
			"QuoinHost hosts/a already describes the host at 192.0.2.7 port 22"},
		"the same in another namespace": {host("a", inspected), host("a", elsewhere), "QuoinHost hosts/a already"},
		"only named there":              {host("a"), host("a", elsewhere), ""},
		"the same at another port":      {host("a"), host("b", port), ""},
		"another spelling of IPv6": {host("a", at("2001:db8::7")), host("b", at("2001:DB8:0::7")),
			"QuoinHost hosts/a already"},
		"an IPv4 address mapped": {host("a"), host("b", at("::ffff:192.0.2.7")), "QuoinHost hosts/a already"},
		"another spelling of a name": {host("a", at("rack1.example.com")), host("b", at("Rack1.Example.com")),
			"QuoinHost hosts/a already"},
		"the host itself": {host("a"), host("a"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			webhook := &HostWebhook{Client: reader(t, c.there)}
			_, err := webhook.ValidateCreate(t.Context(), c.new)
			expectRefusal(t, err, c.refusal)
			before := c.new.DeepCopy()
			before.Spec.Address = "198.51.100.1"
			_, err = webhook.ValidateUpdate(t.Context(), before, c.new)
			expectRefusal(t, err, c.refusal)
			_, err = webhook.ValidateUpdate(t.Context(), c.new, c.new)
			expectRefusal(t, err, "")
		})
	}
}

func TestHostIsNotHandedOn(t *testing.T) {
	claim := func(machine, claim string) func(*infrav1.QuoinHost) {
		return func(h *infrav1.QuoinHost) {
			h.Spec.ConsumerRef = &infrav1.ConsumerReference{Namespace: "prod", Name: machine, Machine: machine, Claim: claim}
		}
	}
	nobody := func(*infrav1.QuoinHost) {}
	for name, c := range map[string]struct {
		before, after func(*infrav1.QuoinHost)
		refusal       string
	}{
		"claimed":  {nobody, claim("m1", "aaaa"), ""},
		"kept":     {claim("m1", "aaaa"), claim("m1", "aaaa"), ""},
		"released": {claim("m1", "aaaa"), nobody, ""},
		"handed to another machine": {claim("m1", "aaaa"), claim("m2", "bbbb"),
			"belongs to QuoinMachine prod/m1 and cannot be handed on"},
		"handed to its namesake": {claim("m1", "aaaa"), claim("m1", "bbbb"), "spec.consumerRef"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := (&HostWebhook{Client: reader(t), Live: reader(t)}).ValidateUpdate(t.Context(), host("a", c.before),
				host("a", c.after))
			expectRefusal(t, err, c.refusal)
		})
	}
}

// A claim that is written into a host of one's own does not make it another namespace's.
func TestAClaimIsNotImposedOnAMachineThatDoesNotAcceptTheHost(t *testing.T) {
	claim := func(h *infrav1.QuoinHost) {
		h.Spec.ConsumerRef = &infrav1.ConsumerReference{Namespace: "prod", Name: "m", Machine: "m", Claim: "0a1b2c3d"}
	}
	const refusal = "QuoinMachine prod/m accepts no hosts of namespace hosts"
	for name, c := range map[string]struct {
		there   []client.Object
		refusal string
	}{
		"it accepts none":              {[]client.Object{machine()}, refusal},
		"it accepts others":            {[]client.Object{machine(accepting("prod", "elsewhere"))}, refusal},
		"it has another host":          {[]client.Object{machine(provided("quoin://prod/a/0a1b2c3d"))}, refusal},
		"it accepts the namespace":     {[]client.Object{machine(accepting("hosts"))}, ""},
		"it accepts every namespace":   {[]client.Object{machine(accepting("*"))}, ""},
		"the host is its node's":       {[]client.Object{machine(provided("quoin://hosts/a/0a1b2c3d"))}, ""},
		"it is not here, as in a move": {nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			webhook := &HostWebhook{Client: reader(t), Live: reader(t, c.there...)}
			_, err := webhook.ValidateUpdate(t.Context(), host("a"), host("a", claim))
			expectRefusal(t, err, c.refusal)
			_, err = webhook.ValidateCreate(t.Context(), host("a", claim))
			expectRefusal(t, err, c.refusal)
			_, err = webhook.ValidateUpdate(t.Context(), host("a", claim), host("a", claim, at("192.0.2.99")))
			expectRefusal(t, err, "")
		})
	}
}

// Until its last finalizer goes, a host is connected to and reset, so each rule holds for one that is being deleted too.
func TestAHostThatIsBeingDeletedIsValidated(t *testing.T) {
	deleted := func(change func(*infrav1.QuoinHost)) *infrav1.QuoinHost {
		return host("a", func(h *infrav1.QuoinHost) {
			now := metav1.Now()
			h.DeletionTimestamp, h.Finalizers = &now, []string{infrav1.HostFinalizer}
			h.Spec.HostKeys = []string{ed25519Key}
			h.Spec.ConsumerRef = &infrav1.ConsumerReference{Namespace: "prod", Name: "m", Machine: "m", Claim: "0a1b2c3d"}
			h.Spec.ClaimGeneration = 3
			change(h)
		})
	}
	for name, c := range map[string]struct {
		change  func(*infrav1.QuoinHost)
		refusal string
	}{
		"an address that nobody has": {at("0.0.0.0"), "spec.address"},
		"trust that is taken away":   {func(h *infrav1.QuoinHost) { h.Spec.HostKeys = nil }, infrav1.AcceptHostKeyAnnotation},
		"a claim that changes hands": {func(h *infrav1.QuoinHost) { h.Spec.ConsumerRef.Name = "other" }, "spec.consumerRef"},
		"a claim that ends early":    {func(h *infrav1.QuoinHost) { h.Spec.ConsumerRef = nil }, "delete Machine m"},
		"a claim that is forgotten":  {func(h *infrav1.QuoinHost) { h.Spec.ClaimGeneration = 2 }, "keep 3"},
		"another address":            {at("192.0.2.99"), ""},
		"its finalizer that goes":    {func(h *infrav1.QuoinHost) { h.Finalizers = nil }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			webhook := &HostWebhook{Client: reader(t), Live: reader(t, machine(provided("quoin://hosts/a/0a1b2c3d")))}
			_, err := webhook.ValidateUpdate(t.Context(), deleted(func(*infrav1.QuoinHost) {}), deleted(c.change))
			expectRefusal(t, err, c.refusal)
		})
	}
}

// A host that was stored before a rule was there is claimed, quarantined, released and goes like any other. A person who
// brings what the rule refuses is refused.
func TestAHostIsNotRefusedForWhatItWasBefore(t *testing.T) {
	stored := func(changes ...func(*infrav1.QuoinHost)) *infrav1.QuoinHost {
		h := host("a", at("0.0.0.0"))
		now := metav1.Now()
		h.DeletionTimestamp, h.Finalizers = &now, []string{infrav1.HostFinalizer}
		h.Spec.NodeNetwork.Addresses, h.Spec.ConsumerNamespaces = []string{"127.0.0.1"}, []string{"team-*"}
		h.Spec.ConsumerRef = &infrav1.ConsumerReference{Namespace: "prod", Name: "m", Machine: "m", Claim: "0a1b2c3d"}
		for _, change := range changes {
			change(h)
		}
		return h
	}
	for name, c := range map[string]struct {
		change  func(*infrav1.QuoinHost)
		refusal string
	}{
		"its finalizer goes":   {func(h *infrav1.QuoinHost) { h.Finalizers = nil }, ""},
		"its claim ends":       {func(h *infrav1.QuoinHost) { h.Spec.ConsumerRef = nil }, ""},
		"it is quarantined":    {func(h *infrav1.QuoinHost) { h.Spec.Quarantine = &infrav1.HostQuarantine{Reason: "x"} }, ""},
		"one of its faults":    {at("192.0.2.7"), ""},
		"another address":      {at("224.0.0.1"), "224.0.0.1"},
		"another node address": {func(h *infrav1.QuoinHost) { h.Spec.NodeNetwork.Addresses[0] = "::1" }, "nodeNetwork.addresses"},
	} {
		t.Run(name, func(t *testing.T) {
			webhook := &HostWebhook{Client: reader(t), Live: reader(t)}
			_, err := webhook.ValidateUpdate(t.Context(), stored(), stored(c.change))
			expectRefusal(t, err, c.refusal)
		})
	}
}

func TestHostTrustIsNotGivenAnewUnseen(t *testing.T) {
	keys := func(keys ...string) func(*infrav1.QuoinHost) {
		return func(h *infrav1.QuoinHost) { h.Spec.HostKeys = keys }
	}
	webhook := &HostWebhook{Client: reader(t), Live: reader(t)}
	_, err := webhook.ValidateUpdate(t.Context(), host("a", keys(ed25519Key)), host("a"))
	expectRefusal(t, err, infrav1.AcceptHostKeyAnnotation)
	_, err = webhook.ValidateUpdate(t.Context(), host("a"), host("a", keys(ed25519Key)))
	expectRefusal(t, err, "")
}

func TestHostClaimEndsOnlyWithItsQuoinMachine(t *testing.T) {
	claimed := host("a", func(h *infrav1.QuoinHost) {
		h.Spec.ConsumerRef = &infrav1.ConsumerReference{Namespace: "prod", Name: "m", Machine: "m", Claim: "0a1b2c3d"}
	})
	owned := func(uid types.UID) *infrav1.QuoinMachine {
		m := machine()
		m.OwnerReferences = []metav1.OwnerReference{{APIVersion: "cluster.x-k8s.io/v1beta2", Kind: "Machine", Name: "m",
			UID: uid}}
		return m
	}
	for name, c := range map[string]struct {
		there   []client.Object
		refusal string
	}{
		"the QuoinMachine is gone": {nil, ""},
		"the QuoinMachine has the host": {[]client.Object{machine(provided("quoin://hosts/a/0a1b2c3d"))},
			"delete Machine m"},
		"it has just claimed it": {[]client.Object{owned("0a1b2c3d-0000-0000-0000-000000000000")},
			"delete Machine m"},
		"another one of its name has another claim":  {[]client.Object{machine(provided("quoin://hosts/b/ffffffff"))}, ""},
		"another one of its name has no claim yet":   {[]client.Object{owned("ffffffff-0000-0000-0000-000000000000")}, ""},
		"another one of its name has no Machine yet": {[]client.Object{machine()}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			webhook := &HostWebhook{Client: reader(t), Live: reader(t, c.there...)}
			_, err := webhook.ValidateUpdate(t.Context(), claimed, host("a"))
			expectRefusal(t, err, c.refusal)
			_, err = webhook.ValidateUpdate(t.Context(), claimed, claimed)
			expectRefusal(t, err, "")
		})
	}
}

func TestAClaimGenerationNeverGoesBack(t *testing.T) {
	g := NewWithT(t)
	g.Expect(validateGeneration(3, 3)).To(BeEmpty())
	g.Expect(validateGeneration(0, 1)).To(BeEmpty())
	g.Expect(validateGeneration(3, 9)).To(BeEmpty(), "a person raises it to take a host over")
	for _, after := range []int64{0, 2} {
		g.Expect(validateGeneration(3, after).ToAggregate()).To(MatchError(ContainSubstring("keep 3")))
	}
}

func TestAQuarantineIsNotTakenOffByAccident(t *testing.T) {
	quarantined := host("h1", func(h *infrav1.QuoinHost) {
		h.Spec.HostKeys = []string{ed25519Key}
		h.Spec.Quarantine = &infrav1.HostQuarantine{Reason: infrav1.HostNotCleanReason}
	})
	for name, c := range map[string]struct {
		change  func(*infrav1.QuoinHost)
		refusal string
	}{
		"replaced by a manifest": {func(h *infrav1.QuoinHost) {
			h.Spec.Quarantine = nil
		}, "annotate quoinhost h1 " + infrav1.RetryAnnotation + "="},
		"with the word for it": {func(h *infrav1.QuoinHost) {
			h.Spec.Quarantine = nil
			h.Annotations = map[string]string{infrav1.RetryAnnotation: ""}
		}, ""},
		"with the word for its verification": {func(h *infrav1.QuoinHost) {
			h.Spec.Quarantine = nil
			h.Annotations = map[string]string{infrav1.VerifyOnlyAnnotation: ""}
		}, ""},
		"another reason": {func(h *infrav1.QuoinHost) {
			h.Spec.Quarantine = &infrav1.HostQuarantine{Reason: infrav1.HostDeadReason}
		}, ""},
		"something else of a host": {func(h *infrav1.QuoinHost) { h.Spec.FailureDomain = "rack-a" }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			after := quarantined.DeepCopy()
			c.change(after)
			_, err := (&HostWebhook{Client: reader(t), Live: reader(t)}).ValidateUpdate(t.Context(), quarantined, after)
			expectRefusal(t, err, c.refusal)
		})
	}
}

func TestAWordAboutAQuarantineIsRefusedWhereThereIsNoCauseForIt(t *testing.T) {
	const id = "quoin://hosts/h1/0123abcd"
	claimed := func(h *infrav1.QuoinHost) {
		h.Spec.ConsumerRef = &infrav1.ConsumerReference{Namespace: "team", Name: "qm1", Machine: "m1", Claim: "0123abcd"}
	}
	quarantined := func(h *infrav1.QuoinHost) {
		h.Spec.Quarantine = &infrav1.HostQuarantine{Reason: infrav1.HostNotCleanReason}
	}
	inState := func(state infrav1.HostState) func(*infrav1.QuoinHost) {
		return func(h *infrav1.QuoinHost) { h.Status.State = state }
	}
	failing := func(h *infrav1.QuoinHost) { h.Status.CleaningFailsSince = &metav1.Time{Time: time.Now()} }
	abandoned := func(h *infrav1.QuoinHost) {
		h.Status.Conditions = []metav1.Condition{{Type: infrav1.HostCleanCondition, Status: metav1.ConditionFalse,
			Reason: infrav1.HostAbandonedReason}}
	}
	up := []func(*infrav1.QuoinHost){claimed, inState(infrav1.HostStateQuarantined), abandoned}
	reachable := func(status metav1.ConditionStatus, reason string) func(*infrav1.QuoinHost) {
		return func(h *infrav1.QuoinHost) {
			h.Status.Conditions = []metav1.Condition{{Type: infrav1.HostReachableCondition, Status: status, Reason: reason}}
		}
	}
	answers := reachable(metav1.ConditionTrue, infrav1.HostReachableReason)
	refuses := reachable(metav1.ConditionFalse, infrav1.HostAuthenticationFailedReason)
	silent := reachable(metav1.ConditionFalse, infrav1.HostUnreachableReason)
	another := reachable(metav1.ConditionFalse, infrav1.HostKeyChangedReason)
	const release, verify = infrav1.ReleaseUncleanAnnotation, infrav1.VerifyOnlyAnnotation
	const abandon = infrav1.AbandonAnnotation
	for name, c := range map[string]struct {
		host              *infrav1.QuoinHost
		annotation, value string
		refusal           string
	}{
		"its claim":             {host("h1", claimed, quarantined), release, id, ""},
		"another claim":         {host("h1", claimed, quarantined), release, "quoin://hosts/h1/ffffffff", release + "=" + id},
		"any value":             {host("h1", claimed, quarantined), release, "", release + "=" + id},
		"no claim":              {host("h1", quarantined), release, "", "no Machine has the host"},
		"no quarantine":         {host("h1", claimed, inState(infrav1.HostStateCleaning)), release, id, "the host is Cleaning"},
		"a cleaning that fails": {host("h1", claimed, inState(infrav1.HostStateCleaning), failing), release, id, ""},
		"a cleaning that fails, and nothing to verify": {host("h1", claimed, inState(infrav1.HostStateCleaning), failing),
			verify, "", "the host is Cleaning"},
		"a host given up":                     {host("h1", up...), release, id, "given up"},
		"mended":                              {host("h1", quarantined), verify, "", ""},
		"mended, by status":                   {host("h1", inState(infrav1.HostStateQuarantined)), verify, "", ""},
		"nothing to verify":                   {host("h1", inState(infrav1.HostStateAvailable)), verify, "", "the host is Available"},
		"gone":                                {host("h1", claimed, silent), abandon, id, ""},
		"gone, and its address another's":     {host("h1", claimed, another), abandon, id, ""},
		"never reached":                       {host("h1", claimed), abandon, id, ""},
		"gone, any value":                     {host("h1", claimed, silent), abandon, "", abandon + "=" + id},
		"gone, another claim":                 {host("h1", claimed, silent), abandon, "quoin://hosts/h1/ffffffff", abandon + "=" + id},
		"gone, and free":                      {host("h1", silent), abandon, "", ""},
		"gone, and free, a claim":             {host("h1", silent), abandon, id, "no Machine has the host"},
		"it answers":                          {host("h1", claimed, answers), abandon, id, infrav1.RetryAnnotation + "="},
		"it answers, and its Machine must go": {host("h1", claimed, answers), abandon, id, release + "=" + id},
		"it answers, quarantined":             {host("h1", claimed, quarantined, answers), abandon, id, verify + "="},
		"it answers, and is free":             {host("h1", answers), abandon, "", infrav1.DetachedAnnotation + "="},
		"it refuses our key":                  {host("h1", claimed, refuses), abandon, id, "switch it off"},
		"another annotation":                  {host("h1"), infrav1.RetryAnnotation, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			after := c.host.DeepCopy()
			after.Annotations = map[string]string{c.annotation: c.value}
			webhook := &HostWebhook{Client: reader(t), Live: reader(t)}
			_, err := webhook.ValidateUpdate(t.Context(), c.host, after)
			expectRefusal(t, err, c.refusal)

			_, err = webhook.ValidateUpdate(t.Context(), after, after)
			expectRefusal(t, err, "")
			further := after.DeepCopy()
			further.Finalizers = []string{"another.example.com/finalizer"}
			_, err = webhook.ValidateUpdate(t.Context(), after, further)
			expectRefusal(t, err, "")
			moved := after.DeepCopy()
			moved.Spec.FailureDomain, moved.Spec.HostKeys = "rack-b", []string{ed25519Key}
			_, err = webhook.ValidateUpdate(t.Context(), c.host, moved)
			expectRefusal(t, err, "")
		})
	}
}
