// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinhost

import (
	"cmp"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/owner"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/async"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/hostaccess"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/hostpower"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/redfish"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/clienttest"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/redfishtest"
)

// corrections of spec.bmc, after which it may mean another computer.
var corrections = map[string]func(*infrav1.BMC){
	"address":  func(b *infrav1.BMC) { b.Address = "https://192.0.2.112" },
	"system":   func(b *infrav1.BMC) { b.System = "/redfish/v1/Systems/2" },
	"systemID": func(b *infrav1.BMC) { b.SystemID = "S4EWNX0N" },
	"pin":      func(b *infrav1.BMC) { b.CertificateFingerprint = strings.Repeat("5f", 32) },
}

func TestTheWordOfAnotherBMCFencesNobody(t *testing.T) {
	for name, correct := range corrections {
		t.Run(name, func(t *testing.T) {
			w := silentWorld(t, withBMC)
			deleteMachine(w)
			w.until("ordered off", func(*infrav1.QuoinHost) bool { return slices.Contains(w.bmc.told(), "off") })
			w.g.Expect(w.host().Fenced()).To(BeFalse(), "the answer was not looked at yet")
			// It was the wrong computer that was powered off.
			w.update(func(h *infrav1.QuoinHost) { correct(h.Spec.BMC) })
			w.until("ordered off there", func(*infrav1.QuoinHost) bool {
				w.g.Expect(w.host().Fenced()).To(BeFalse())
				return len(w.bmc.told()) == 3
			})
			w.until("fenced", (*infrav1.QuoinHost).Fenced)
			w.g.Expect(w.bmc.told()).To(Equal([]string{"cycle", "off", "off"}))
		})
	}
}

// fencedWorld has a host that its BMC fenced, and whose node is still drained.
func fencedWorld(t *testing.T) *world {
	w := silentWorld(t, withBMC)
	machine := &clusterv1.Machine{}
	w.object(machine, "m1")
	w.g.Expect(w.client.Delete(t.Context(), machine)).To(Succeed())
	w.object(machine, "m1")
	machine.Status.Conditions = []metav1.Condition{{Type: clusterv1.MachineNodeReadyCondition,
		Status: metav1.ConditionUnknown, Reason: "Seen", LastTransitionTime: metav1.Time{Time: w.now}}}
	w.g.Expect(w.client.Status().Update(t.Context(), machine)).To(Succeed())
	w.until("fenced", (*infrav1.QuoinHost).Fenced)
	return w
}

func TestAFenceEndsWithTheBMCThatGaveIt(t *testing.T) {
	fenced := func(h *infrav1.QuoinHost) bool { return h.Fenced() }
	for name, correct := range corrections {
		t.Run(name, func(t *testing.T) {
			w := fencedWorld(t)
			// The right one cannot be read.
			w.bmc.set(errNoRoute, "On")
			w.update(func(h *infrav1.QuoinHost) { correct(h.Spec.BMC) })
			w.reconcile()
			found := condition1(w.host(), infrav1.HostFencedCondition)
			w.g.Expect(found.Status).To(Equal(metav1.ConditionFalse))
			w.g.Expect(found.Message).To(And(ContainSubstring("spec.bmc was changed"),
				ContainSubstring(infrav1.AbandonAnnotation)))
			w.never("is fenced", fenced, 20)
			w.bmc.set(nil, "On")
			w.until("fenced by the right one", fenced)
		})
	}
	t.Run("it is taken away", func(t *testing.T) {
		w := fencedWorld(t)
		w.update(func(h *infrav1.QuoinHost) { h.Spec.BMC = nil })
		w.until("fenced no more", func(h *infrav1.QuoinHost) bool { return !h.Fenced() })
		w.never("is fenced", fenced, 10)
	})
	t.Run("another account", func(t *testing.T) {
		w := fencedWorld(t)
		w.update(func(h *infrav1.QuoinHost) { h.Spec.BMC.CredentialsRef.Name = "other" })
		w.never("is not fenced", func(h *infrav1.QuoinHost) bool { return !h.Fenced() }, 10)
	})
	t.Run("the word of a person", func(t *testing.T) {
		w := fencedWorld(t)
		w.annotate(infrav1.AbandonAnnotation, w.host().ProviderID())
		w.until("abandoned", (*infrav1.QuoinHost).Abandoned)
		w.update(func(h *infrav1.QuoinHost) { h.Spec.BMC.Address = "https://192.0.2.112" })
		w.never("is not fenced", func(h *infrav1.QuoinHost) bool { return !h.Fenced() }, 10)
	})
	t.Run("and a reset still turns the host on", func(t *testing.T) {
		w := poweredOff(t)
		w.update(func(h *infrav1.QuoinHost) { h.Spec.BMC.Address = "https://192.0.2.112" })
		w.until("fenced no more", func(h *infrav1.QuoinHost) bool { return h.GivenUp() && !h.Fenced() })
		orphaned(w).until("without a claim", func(h *infrav1.QuoinHost) bool { return h.Spec.ConsumerRef == nil })
		w.room.set(func() { w.room.err = nil })
		w.annotate(infrav1.RetryAnnotation, "")
		w.untilState(infrav1.HostStateAvailable)
		w.g.Expect(w.bmc.told()).To(Equal([]string{"cycle", "off", "on"}))
	})
}

// bmcWorld is a free host with a BMC.
func bmcWorld(t *testing.T) *world {
	host := newHost()
	host.Spec.HostKeys = []string{keyA}
	withBMC(host)
	w := newWorld(t, host)
	w.bmc.count = true
	w.untilState(infrav1.HostStateAvailable)
	return w
}

func TestABMCIsAskedBeforeItIsNeeded(t *testing.T) {
	w := bmcWorld(t)
	w.untilReason(infrav1.HostBMCVerifiedCondition, infrav1.HostBMCVerifiedReason)
	w.g.Expect(w.host().Status.Power.State).To(BeEmpty(), "nobody needs it now")
	w.g.Expect(w.bmc.told()).To(Equal([]string{"state"}))
	w.linger(100)
	w.restart()
	w.linger(10)
	w.g.Expect(w.bmc.told()).To(HaveLen(1), "nor does another manager, on the same day")
	w.now = w.now.Add(25 * time.Hour)
	w.linger(5)
	w.g.Expect(w.bmc.told()).To(HaveLen(2))
	w.update(func(h *infrav1.QuoinHost) { h.Generation++ })
	w.linger(5)
	w.g.Expect(w.bmc.told()).To(HaveLen(2), "claims, orders and baselines change the spec too")
	w.update(func(h *infrav1.QuoinHost) { h.Spec.BMC.Address = "https://192.0.2.112" })
	w.linger(5)
	w.g.Expect(w.bmc.told()).To(HaveLen(3), "another one is asked at once")
	w.update(func(h *infrav1.QuoinHost) { h.Spec.BMC = nil })
	w.linger(2)
	w.g.Expect(condition1(w.host(), infrav1.HostBMCVerifiedCondition)).To(BeNil())
}

func TestABMCThatWouldBeOfNoUseIsNamedWhileTheHostIsWell(t *testing.T) {
	for name, c := range map[string]struct {
		state string
		err   error
		says  string
		// reason is BMCFailed when empty.
		reason string
		// times it is asked within 25 hours.
		times int
	}{
		"it does not answer": {err: &redfish.UnreachableError{Address: "192.0.2.111", Action: "log in", Err: errNoRoute},
			says: "does not answer", times: 25},
		"it refuses the account": {err: &redfish.AuthenticationError{Address: "192.0.2.111", Action: "log in", Status: 401},
			says: "refuses the user name or the password", reason: infrav1.HostBMCLoginRefusedReason, times: 2},
		"it presents another certificate": {err: &redfish.CertificateError{Address: "192.0.2.111", Expected: "5f1c", Seen: "0b77"},
			says: "expected 5f1c, seen 0b77; if that is right, pin the new one in spec.bmc.certificateFingerprint", times: 25},
		"it is another machine's":      {err: &redfish.IdentityError{Address: "192.0.2.111"}, says: "192.0.2.111", times: 25},
		"it says that the host is off": {state: "Off", says: "the power is off, and the host answers", times: 25},
	} {
		t.Run(name, func(t *testing.T) {
			host := newHost()
			host.Spec.HostKeys = []string{keyA}
			withBMC(host)
			w := newWorld(t, host)
			w.bmc.count, w.bmc.err, w.bmc.state = true, c.err, c.state
			w.untilReason(infrav1.HostBMCVerifiedCondition, cmp.Or(c.reason, infrav1.HostBMCFailedReason))
			message := condition1(w.host(), infrav1.HostBMCVerifiedCondition).Message
			w.g.Expect(message).To(And(ContainSubstring(c.says), ContainSubstring("the host cannot be fenced"),
				ContainSubstring("quoin.cluster.x-k8s.io/retry=")))
			w.g.Expect(w.host().Status.State).To(Equal(infrav1.HostStateAvailable), "it serves all the same")
			w.g.Expect(condition1(w.host(), infrav1.HostReadyCondition).Status).To(Equal(metav1.ConditionTrue))
			w.g.Expect(w.host().Fenced()).To(BeFalse())
			// Managers come and go.
			for range 49 {
				w.restart()
				for end := w.now.Add(30 * time.Minute); w.now.Before(end); {
					w.linger(1)
				}
			}
			w.g.Expect(len(w.bmc.told())).To(BeNumerically("~", c.times, 1))
			w.bmc.set(nil, "On")
			w.annotate(infrav1.RetryAnnotation, "")
			w.untilReason(infrav1.HostBMCVerifiedCondition, infrav1.HostBMCVerifiedReason)
		})
	}
}

// Two boards have one UUID, and one BMC is written as a name and as the address of that name: the host that dies must not
// take the other one with it.
func TestTwoHostsOfOneUUIDDoNotPowerEachOtherOff(t *testing.T) {
	const uuid, swapped = "33221100-5544-7766-8899-aabbccddeeff", "00112233-4455-6677-8899-AABBCCDDEEFF"
	identify := func(string) (uuid, serial, sku string) { return swapped, "S4EWNX0M", "" }
	bmc := redfishtest.New(redfishtest.Options{Identify: identify})
	t.Cleanup(bmc.Close)
	at := func(address string) *infrav1.BMC {
		return &infrav1.BMC{Address: address, CertificateFingerprint: bmc.Fingerprint(),
			CredentialsRef: infrav1.SecretReference{Name: "bmc"}}
	}
	w := claimedWorld(t, false)
	w.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "hosts", Name: "bmc"},
		Type: corev1.SecretTypeBasicAuth, Data: map[string][]byte{corev1.BasicAuthUsernameKey: []byte(redfishtest.User),
			corev1.BasicAuthPasswordKey: []byte(redfishtest.Password)}})
	w.r.Power = &hostpower.Power{Reader: w.client, Hosts: w.client, Interval: time.Millisecond}
	w.room.facts.ProductUUID = uuid
	w.update(func(h *infrav1.QuoinHost) {
		h.Spec.BMC = at(strings.Replace(bmc.Address(), "127.0.0.1", "localhost", 1))
	})
	w.untilState(infrav1.HostStateProvisioned)
	w.untilReason(infrav1.HostBMCVerifiedCondition, infrav1.HostBMCVerifiedReason)

	// No namespace may claim both, so that nothing else compares them.
	other := twin(func(h *infrav1.QuoinHost) {
		h.Spec.ConsumerNamespaces, h.Spec.BMC = []string{"hosts"}, at(bmc.Address())
		h.Status.Facts = &infrav1.HostFacts{Hostname: "h2", ProductUUID: swapped}
	})
	w.update(func(h *infrav1.QuoinHost) { h.Spec.ConsumerNamespaces = []string{"team"} })
	w.create(other)
	found := w.untilReason(infrav1.HostBMCVerifiedCondition, infrav1.HostBMCFailedReason)
	w.g.Expect(found.Status).To(Equal(metav1.ConditionFalse))
	w.g.Expect(found.Message).To(And(ContainSubstring("QuoinHost hosts/h2 has this UUID"),
		ContainSubstring("spec.bmc.systemID"), ContainSubstring("SerialNumber S4EWNX0M")))

	w.addPeer("beside", func(*owner.Record) {})
	w.room.set(func() { w.room.err = errNoRoute })
	w.until("silent", func(h *infrav1.QuoinHost) bool { return h.Status.UnreachableSince != nil })
	deleteMachine(w)
	found = w.untilReason(infrav1.HostFencedCondition, infrav1.HostBMCFailedReason)
	w.g.Expect(found.Message).To(ContainSubstring("spec.bmc.systemID"))
	w.never("was given up", func(h *infrav1.QuoinHost) bool { return h.GivenUp() || h.Fenced() }, 20)
	w.g.Expect(bmc.Orders()).To(BeEmpty())

	w.update(func(h *infrav1.QuoinHost) { h.Spec.BMC.SystemID = "S4EWNX0M" })
	w.until("fenced", (*infrav1.QuoinHost).Fenced)
	w.g.Expect(bmc.Orders()).To(Equal([]string{"PowerCycle", "ForceOff"}))
}

// A BMC that answers much has the room of its namespace's hosts, and no other.
func TestWhatBMCsAnswerSharesTheRoomOfWhatHostsPrint(t *testing.T) {
	g := NewWithT(t)
	bmc := redfishtest.New(redfishtest.Options{})
	defer bmc.Close()
	bmc.Misbehave(redfishtest.Faults{Padding: 200 << 10})
	room := async.NewOutput(async.LeastOutput)
	var objects []client.Object
	for _, namespace := range []string{"tarpits", "good"} {
		objects = append(objects, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "bmc"},
			Type: corev1.SecretTypeBasicAuth, Data: map[string][]byte{corev1.BasicAuthUsernameKey: []byte(redfishtest.User),
				corev1.BasicAuthPasswordKey: []byte(redfishtest.Password)}})
	}
	reader := clienttest.Indexed(newScheme()).WithObjects(objects...).Build()
	r := &Reconciler{Client: reader, APIReader: reader, Connector: hostaccess.New(reader, ssh.PoolOptions{Output: room})}
	r.defaults()
	state := func(namespace string) error {
		_, err := r.Power.State(t.Context(), &infrav1.QuoinHost{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "h1"},
			Spec: infrav1.QuoinHostSpec{BMC: &infrav1.BMC{Address: bmc.Address(), CertificateFingerprint: bmc.Fingerprint(),
				SystemID: redfishtest.UUID("1"), CredentialsRef: infrav1.SecretReference{Name: "bmc"}}},
		})
		return err
	}
	g.Expect(state("tarpits")).To(Succeed())
	for room.Take("tarpits") == nil {
	}
	g.Expect(state("tarpits")).To(MatchError(And(ContainSubstring("namespace tarpits"),
		ContainSubstring(async.OutputFlag))))
	g.Expect(state("good")).To(Succeed())
	bmc.Misbehave(redfishtest.Faults{})
	g.Expect(state("tarpits")).To(Succeed(), "what is short needs none")
}
