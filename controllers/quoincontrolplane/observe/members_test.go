// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/collections"
	"sigs.k8s.io/cluster-api/util/secret"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/etcd"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/quorum"
)

// observed is an observation of three Machines a, b and c in zones of the same names, with a member each, 1 to 3.
func threeMembers() *Observation {
	o := &Observation{Inventory: Inventory{Subject: Subject{ControlPlane: &controlplanev1.QuoinControlPlane{}},
		Machines: collections.Machines{}, QuoinMachines: map[string]*infrav1.QuoinMachine{}}}
	o.Etcd.Cluster.Agreed = true
	o.Etcd.ReadAt = time.Now()
	for i, name := range []string{"a", "b", "c"} {
		machine := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Name: name}}
		machine.Status.NodeRef.Name = "n-" + name
		o.Machines[name] = machine
		o.QuoinMachines[name] = &infrav1.QuoinMachine{Status: infrav1.QuoinMachineStatus{FailureDomain: "zone-" + name}}
		o.Etcd.Cluster.Members = append(o.Etcd.Cluster.Members, etcd.Member{ID: uint64(i + 1), Name: "n-" + name,
			Answers: true, ReportedBy: "n-" + name, Leader: i == 0, Size: 4096, PeerAddresses: []string{"192.0.2." + name}})
	}
	return o
}

// By an alarm of a member that is gone nobody is ill.
func TestAnAlarmOfAMemberThatIsGoneIsNobodys(t *testing.T) {
	g := NewWithT(t)
	o := threeMembers()
	g.Expect(o.Membership().Alarm).To(BeEmpty())
	o.Etcd.Cluster.Corrupt = []uint64{9, 0xbeef}
	g.Expect(o.Membership().Alarm).To(Equal("alarm CORRUPT is raised for member 9, beef, which is not in the list any " +
		"more, so etcd takes no writes"))
	o.Etcd.Cluster.Corrupt = []uint64{0xbeef}
	g.Expect(o.Membership().Alarm).To(HavePrefix("alarm CORRUPT is raised for member beef, which is not in the list"))
	for _, corrupt := range [][]uint64{{0}, {0, 9}} {
		o.Etcd.Cluster.Corrupt = corrupt
		g.Expect(o.Membership().Alarm).To(Equal("alarm CORRUPT is raised for no member in particular, because members have " +
			"different data and etcd does not know whose are whole, so it takes no writes"))
	}
	g.Expect(o.Membership().Count().Healthy).To(Equal(3))
}

func TestMembershipTellsWhereMembersAre(t *testing.T) {
	g := NewWithT(t)
	o := threeMembers()
	o.Etcd.Cluster.Members[1].Alarms = []string{"NOSPACE"}
	o.Etcd.Cluster.Members[2].Answers, o.Etcd.Cluster.Members[2].ReportedBy = false, ""
	membership := o.Membership()
	g.Expect(membership.Known && membership.Agreed).To(BeTrue())
	g.Expect(membership.Members[0]).To(Equal(quorum.Member{ID: 1, Name: "n-a", Machine: "a", FailureDomain: "zone-a",
		Leader: true, Healthy: true, Size: 4096}))
	g.Expect(membership.Members[1].Healthy).To(BeFalse())
	g.Expect(membership.Members[1].Problem).To(ContainSubstring("NOSPACE"))
	g.Expect(membership.Members[2].Problem).NotTo(BeEmpty())
	g.Expect(membership.Count()).To(Equal(quorum.Count{Voters: 3, Healthy: 1}))
}

// Of a member without a Machine it is known from the others that it works; one that nobody hears of, or that is a
// learner, has a reason for that.
func TestAMemberWithoutAMachineIsAsTheOthersHearOfIt(t *testing.T) {
	for name, tc := range map[string]struct {
		member  etcd.Member
		problem string
		state   quorum.MemberState
	}{
		"connected":            {etcd.Member{Connected: true}, "", quorum.MemberHealthy},
		"a learner, connected": {etcd.Member{Connected: true, Learner: true}, "", quorum.MemberLearner},
		"silent":               {etcd.Member{}, "it was not reached", quorum.MemberWavering},
		"a silent learner":     {etcd.Member{Learner: true}, "it was not reached", quorum.MemberLearner},
		"unasked":              {etcd.Member{Unasked: true, Problem: "no metrics"}, "no metrics", quorum.MemberUnasked},
		"corrupt": {etcd.Member{Connected: true, Alarms: []string{"CORRUPT"}}, "alarm CORRUPT",
			quorum.MemberWavering},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			o := threeMembers()
			tc.member.ID, tc.member.Name = 9, "n-other"
			o.Etcd.Cluster.Members = append(o.Etcd.Cluster.Members, tc.member)
			member := o.Membership().Members[3]
			g.Expect(member.Machine).To(BeEmpty())
			g.Expect(member.Problem).To(Equal(tc.problem))
			g.Expect(member.State(time.Minute)).To(Equal(tc.state))
		})
	}
}

// A member votes before its Machine has a Node, and for good where the bootstrap failed after that. Its host is asked
// by nobody then: it is as the others hear of it, and not dead for that.
func TestAMemberWhoseMachineHasNoNodeIsAsTheOthersHearOfIt(t *testing.T) {
	for name, tc := range map[string]struct {
		connected, unasked bool
		state              quorum.MemberState
	}{
		"connected": {true, false, quorum.MemberHealthy},
		"silent":    {false, false, quorum.MemberDead},
		"unasked":   {false, true, quorum.MemberUnasked},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			o := threeMembers()
			o.Etcd.Endpoints = map[string]etcd.Endpoint{"a": {Name: "n-a"}, "b": {Name: "n-b"}}
			o.Machines["c"].Status.NodeRef.Name = ""
			o.Hosts = map[string]*infrav1.QuoinHost{"c": {Status: infrav1.QuoinHostStatus{
				Facts: &infrav1.HostFacts{Hostname: "n-c"}}}}
			of := &o.Etcd.Cluster.Members[2]
			of.Answers, of.ReportedBy, of.Connected, of.Unasked = false, "", tc.connected, tc.unasked
			member := o.Membership().Members[2]
			g.Expect(member.Machine).To(Equal("c"))
			member.Silent = time.Hour
			g.Expect(member.State(time.Minute)).To(Equal(tc.state))
			g.Expect(member.Hearsay).To(BeTrue())
			g.Expect(o.Membership().Members[0].Hearsay).To(BeFalse())
		})
	}
}

// Somebody's finalizer keeps a Machine whose host serves another one by now, under a Node of the same name: the member
// there is the other one's, by its own word and by its name.
func TestAMemberIsNotOfAMachineThatItsHostServesNoMore(t *testing.T) {
	for _, reported := range []string{"n-b", ""} {
		for range 20 { // a map has no order
			g, o := NewWithT(t), threeMembers()
			o.Etcd.Cluster.Members[1].ReportedBy = reported
			kept := o.Machines["b"].DeepCopy()
			kept.Name, kept.CreationTimestamp = "kept", metav1.NewTime(time.Unix(1, 0))
			o.Machines["b"].CreationTimestamp = metav1.NewTime(time.Unix(2, 0))
			o.Machines.Insert(kept)
			host := &infrav1.QuoinHost{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "h-b"}}
			host.Spec.ConsumerRef = &infrav1.ConsumerReference{Claim: "2"}
			o.Machines["b"].Spec.ProviderID = host.ProviderID()
			o.QuoinMachines["b"].Spec.ProviderID = host.ProviderID()
			kept.Spec.ProviderID = infrav1.ProviderID(namespace, "h-b", "1")
			o.Hosts = map[string]*infrav1.QuoinHost{"b": host, "kept": host}
			g.Expect(o.Membership().Members[1].Machine).To(Equal("b"))
		}
	}
}

// Certificates are about to end for a day, and end at their very second; of some nobody knows when.
func TestWhenCertificatesEnd(t *testing.T) {
	o := threeMembers()
	o.At = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for name, test := range map[string]struct {
		left  time.Duration
		soon  bool
		ended string
	}{
		"in two days":   {48 * time.Hour, false, ""},
		"in an hour":    {time.Hour, true, ""},
		"in a second":   {time.Second, true, ""},
		"now":           {0, true, "2026-11-21T12:00:00Z"},
		"an hour since": {-time.Hour, true, "2026-11-21T11:00:00Z"},
	} {
		g := NewWithT(t)
		o.Machines["a"].Status.CertificatesExpiryDate = metav1.NewTime(o.At.Add(test.left))
		machine := o.stateOf(o.Machines["a"])
		g.Expect(machine.CertificatesExpire).To(Equal(test.soon), name)
		g.Expect(machine.CertificatesEnded).To(Equal(test.ended), name)
	}
	NewWithT(t).Expect(o.stateOf(o.Machines["b"]).CertificatesEnded).To(BeEmpty())
}

// That they depart, and are held, is for the plan to say of the members.
func TestMachinesAreHeldUntilTheirDepartureIsAllowed(t *testing.T) {
	g := NewWithT(t)
	o := threeMembers()
	now := metav1.Now()
	o.Machines["a"].DeletionTimestamp = &now
	o.Machines["b"].DeletionTimestamp = &now
	for _, name := range []string{"a", "c"} {
		o.Machines[name].Annotations = map[string]string{controlplanev1.PreDrainHookAnnotation: ""}
	}
	for name, want := range map[string][]bool{"a": {true, true}, "b": {true, false}, "c": {false, true}} {
		machine := o.stateOf(o.Machines[name])
		g.Expect([]bool{machine.Deleting, machine.DrainHook}).To(Equal(want), "%s: deleting, with the hook", name)
	}
}

func TestLeftoversOfAnEarlierMachineAreNobodys(t *testing.T) {
	g := NewWithT(t)
	o := threeMembers()
	o.Etcd.Cluster.Members = append(o.Etcd.Cluster.Members, etcd.Member{ID: 9, Name: "n-c"})
	members := o.Membership().Members
	g.Expect(members[2].Machine).To(Equal("c"))
	g.Expect(members[3].Machine).To(BeEmpty())
}

// Whose member one is its own host says. A name may be any other, as where etcd's arguments set it, or that of another
// Machine's Node, as after a host was installed anew under the name of a former one.
func TestAMemberIsThatOfTheMachineWhoseHostTellsIt(t *testing.T) {
	g := NewWithT(t)
	o := threeMembers()
	members := o.Etcd.Cluster.Members
	members[0].Name, members[0].PeerAddresses = "one", nil
	members[1].Name, members[2].Name = "n-c", "n-b"
	members[0].ReportedBy, members[1].ReportedBy, members[2].ReportedBy = "n-a", "n-b", "n-c"
	for i, machine := range []string{"a", "b", "c"} {
		g.Expect(o.Membership().Members[i].Machine).To(Equal(machine))
	}

	// The host of c tells another member, so the one with its name and address is nobody's.
	o = threeMembers()
	o.Etcd.Cluster.Members[2].Answers, o.Etcd.Cluster.Members[2].ReportedBy = false, ""
	o.Etcd.Cluster.Members = append(o.Etcd.Cluster.Members, etcd.Member{ID: 9, Name: "other", Answers: true,
		ReportedBy: "n-c"})
	g.Expect(o.Membership().Members[2].Machine).To(BeEmpty())
	g.Expect(o.Membership().Members[3].Machine).To(Equal("c"))
}

// Of a host that does not say, the Node's name tells which member it has, and until there is one the addresses and the
// name of the host.
func TestAMemberWhoseHostDoesNotSayIsFoundByItsNameOrAddress(t *testing.T) {
	type change func(*clusterv1.Machine, *infrav1.QuoinHost, *etcd.Member)
	for name, test := range map[string]struct {
		change change
		want   string
	}{
		"nothing is alike": {func(*clusterv1.Machine, *infrav1.QuoinHost, *etcd.Member) {}, ""},
		"its Node has the name": {func(m *clusterv1.Machine, _ *infrav1.QuoinHost, e *etcd.Member) {
			m.Status.NodeRef.Name, e.Name = "n-d", "n-d"
		}, "d"},
		"its host has the name": {func(_ *clusterv1.Machine, _ *infrav1.QuoinHost, e *etcd.Member) { e.Name = "h-d" }, "d"},
		"its host has the name, its Node another": {func(m *clusterv1.Machine, _ *infrav1.QuoinHost, e *etcd.Member) {
			m.Status.NodeRef.Name, e.Name = "n-d", "h-d"
		}, ""},
		"its host has the address": {func(_ *clusterv1.Machine, _ *infrav1.QuoinHost, e *etcd.Member) {
			e.PeerAddresses = []string{"192.0.2.8", "192.0.2.9"}
		}, "d"},
		"its host has the address, its Node another name": {
			func(m *clusterv1.Machine, _ *infrav1.QuoinHost, e *etcd.Member) {
				m.Status.NodeRef.Name, e.Name, e.PeerAddresses = "n-d", "n-e", []string{"192.0.2.9"}
			}, "e"},
		"a member that has not started, of a Node": {func(m *clusterv1.Machine, _ *infrav1.QuoinHost, e *etcd.Member) {
			m.Status.NodeRef.Name, e.PeerAddresses = "n-d", []string{"192.0.2.9"}
		}, "d"},
		"neither has a name": {func(_ *clusterv1.Machine, h *infrav1.QuoinHost, _ *etcd.Member) {
			h.Status.Facts = nil
		}, ""},
		"another one has the address, by its own word": {
			func(_ *clusterv1.Machine, _ *infrav1.QuoinHost, e *etcd.Member) {
				e.PeerAddresses = []string{"192.0.2.1"}
			}, ""},
		"another one has the name, by its own word": {
			func(_ *clusterv1.Machine, _ *infrav1.QuoinHost, e *etcd.Member) { e.Name = "n-a" }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			o := threeMembers()
			machine := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "d"}}
			host, member := &infrav1.QuoinHost{}, etcd.Member{ID: 9}
			host.Spec.NodeNetwork.Addresses = []string{"192.0.2.9"}
			host.Status.Facts = &infrav1.HostFacts{Hostname: "h-d"}
			test.change(machine, host, &member)
			o.Machines.Insert(machine, &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "e",
				CreationTimestamp: metav1.NewTime(time.Unix(9, 0))}})
			o.Machines["a"].Status.Addresses = []clusterv1.MachineAddress{{Address: "192.0.2.1"}}
			// The younger e has the address of d, too, and no Node.
			o.Hosts = map[string]*infrav1.QuoinHost{"d": host, "e": {Spec: host.Spec}}
			o.Etcd.Cluster.Members = append(o.Etcd.Cluster.Members, member)
			for range 10 {
				NewWithT(t).Expect(o.Membership().Members[3].Machine).To(Equal(test.want))
			}
		})
	}
}

// What is not known of etcd says why.
func TestAMembershipThatIsNotKnownSaysWhy(t *testing.T) {
	g := NewWithT(t)
	o := threeMembers()
	o.Etcd.Err = errors.New("down")
	g.Expect(o.Membership()).To(Equal(quorum.Membership{Problem: "down"}))
	o.Etcd.Err = fmt.Errorf("%w: two clusters", etcd.ErrContradiction)
	g.Expect(o.Membership()).To(Equal(quorum.Membership{Problem: "etcd contradicts itself: two clusters",
		Contradicts: true}))
	o = threeMembers()
	external(o)
	g.Expect(o.Membership()).To(Equal(quorum.Membership{Problem: "it was not read"}))
	o = threeMembers()
	o.Etcd.Cluster.Members = nil
	g.Expect(o.Membership()).To(Equal(quorum.Membership{Problem: "it was not read"}))
	o = threeMembers()
	o.Etcd.Cluster.Agreed = false
	g.Expect(o.Membership()).To(And(HaveField("Known", true), HaveField("Agreed", false)))
}

// What a member lacks is said once: by its alarms, by the reading, or as that it was not reached.
func TestAMemberSaysWhatItLacks(t *testing.T) {
	full := "alarm CORRUPT, NOSPACE, its database is full: " + quorum.MakeRoom
	for name, test := range map[string]struct {
		change  func(*etcd.Member)
		problem string
		full    bool
	}{
		"nothing":     {func(*etcd.Member) {}, "", false},
		"an answer":   {func(m *etcd.Member) { m.Answers = false }, "it was not reached", false},
		"a reason":    {func(m *etcd.Member) { m.Answers, m.Problem = false, "it hangs" }, "it hangs", false},
		"sound data":  {func(m *etcd.Member) { m.Alarms = []string{"CORRUPT"} }, "alarm CORRUPT", false},
		"two things":  {func(m *etcd.Member) { m.Alarms = []string{"CORRUPT", "NOSPACE"} }, full, true},
		"its network": {func(m *etcd.Member) { m.Answers, m.Connected = false, true }, "it was not reached", false},
	} {
		o := threeMembers()
		o.Etcd.Endpoints = map[string]etcd.Endpoint{"b": {Name: "n-b"}}
		member := &o.Etcd.Cluster.Members[1]
		member.Lag, member.Syncs = 3, 4
		test.change(member)
		NewWithT(t).Expect(o.Membership().Members[1]).To(Equal(quorum.Member{ID: 2, Name: "n-b", Machine: "b",
			FailureDomain: "zone-b", Healthy: test.problem == "", Problem: test.problem, Full: test.full, Lag: 3, Size: 4096,
			Unasked: name == "its network", Progress: 4}), name)
	}
}

// members are those that a reading finds; asked says through which endpoints.
type members struct {
	found etcd.Cluster
	err   error
	asked []etcd.Endpoint
	then  func()
}

func (m *members) Read(_ context.Context, asked []etcd.Endpoint, _ etcd.Credentials) (etcd.Cluster, error) {
	m.asked = asked
	if m.then != nil {
		m.then()
	}
	return m.found, m.err
}

// dialer says which host it was to connect from.
type dialer struct{}

func (dialer) DialHost(_ context.Context, host *infrav1.QuoinHost, network, address string) (net.Conn, error) {
	return nil, fmt.Errorf("%s to %s from %s", network, address, host.Name)
}

// authority is the Secret of etcd's authority of Cluster c.
func authority(t *testing.T) *corev1.Secret {
	t.Helper()
	g := NewWithT(t)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	g.Expect(err).NotTo(HaveOccurred())
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: noon.Add(time.Hour), IsCA: true,
		BasicConstraintsValid: true}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	g.Expect(err).NotTo(HaveOccurred())
	private, err := x509.MarshalECPrivateKey(key)
	g.Expect(err).NotTo(HaveOccurred())
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: secret.Name("c", secret.EtcdCA)},
		Data: map[string][]byte{
			secret.TLSCrtDataName: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate}),
			secret.TLSKeyDataName: pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: private})}}
}

// twoNodes is an inventory of the nodes a and z, the older of them, with hosts h-a and h-z, and of two Machines that
// cannot be asked for members: one without a Node and one without a host.
func twoNodes() *Inventory {
	inv := joined()
	inv.Machines["a"].CreationTimestamp = metav1.NewTime(time.Unix(9, 0))
	older, lost := inv.Machines["a"].DeepCopy(), inv.Machines["a"].DeepCopy()
	older.Name, older.Status.NodeRef.Name, older.CreationTimestamp = "z", "n-z", metav1.NewTime(time.Unix(8, 0))
	lost.Name, lost.Status.NodeRef.Name = "lost", "n-lost"
	inv.Machines.Insert(older, lost, &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "new"}})
	for _, name := range []string{"a", "z", "new"} {
		inv.Hosts[name] = &infrav1.QuoinHost{ObjectMeta: metav1.ObjectMeta{Name: "h-" + name}}
	}
	return inv
}

// Etcd is asked through each host of a node, in the order of the Machines, with credentials of its authority.
func TestEtcdIsReadThroughTheHostsOfNodes(t *testing.T) {
	g, ca := NewWithT(t), authority(t)
	empty, having := fake.NewClientBuilder().Build(), fake.NewClientBuilder().WithObjects(ca).Build()
	unusable := ca.DeepCopy()
	unusable.Data[secret.TLSKeyDataName] = nil
	for name, test := range map[string]struct {
		secrets, live client.Reader
		change        func(*Inventory)
		err, problem  string
		notAsked      bool
	}{
		"it is read":                   {secrets: having, live: empty},
		"the authority has no label":   {secrets: empty, live: having},
		"the authority is nowhere":     {secrets: empty, live: empty, problem: "reading etcd's authority: ", notAsked: true},
		"the authority cannot be read": {secrets: unreadable(), live: having, problem: "authority: down", notAsked: true},
		"the authority has no key": {secrets: fake.NewClientBuilder().WithObjects(unusable).Build(), live: empty,
			problem: "unable to decode PEM data", notAsked: true},
		"etcd does not answer": {secrets: having, live: empty, err: "no member", problem: "no member"},
		"there is no Node": {secrets: having, live: empty, change: func(inv *Inventory) { inv.Hosts = nil },
			problem: "no Machine has a host and a Node yet", notAsked: true},
	} {
		t.Run(name, func(t *testing.T) {
			g, inv := NewWithT(t), twoNodes()
			if test.change != nil {
				test.change(inv)
			}
			kept := inv.Machines["z"].DeepCopy()
			kept.Name, kept.Spec.ProviderID = "kept", infrav1.ProviderID(namespace, "h-taken", "1")
			inv.Machines.Insert(kept)
			taken := &infrav1.QuoinHost{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "h-taken"}}
			taken.Spec.ConsumerRef = &infrav1.ConsumerReference{Claim: "2"}
			if inv.Hosts != nil {
				inv.Hosts["kept"] = taken
			}
			clock := clocktesting.NewFakePassiveClock(noon)
			etcdReader := &members{found: etcd.Cluster{Agreed: true}, then: func() { clock.SetTime(noon.Add(time.Second)) }}
			if test.err != "" {
				etcdReader.err = errors.New(test.err)
			}
			read := (&Sources{Secrets: test.secrets, Live: test.live, Hosts: dialer{}, Etcd: etcdReader, Clock: clock}).
				readEtcd(t.Context(), inv)
			if test.problem != "" {
				g.Expect(read.Err).To(MatchError(ContainSubstring(test.problem)))
			} else {
				g.Expect(read.Err).NotTo(HaveOccurred())
			}
			if test.notAsked {
				g.Expect(etcdReader.asked).To(BeEmpty())
				g.Expect(read.ReadAt).To(BeZero())
				return
			}
			g.Expect(read.Cluster.Agreed).To(BeTrue())
			g.Expect(read.ReadAt).To(Equal(noon), "when it was begun")
			g.Expect(read.Credentials).NotTo(BeZero())
			g.Expect(etcdReader.asked).To(HaveExactElements(HaveField("Name", "n-z"), HaveField("Name", "n-a")))
			g.Expect(read.Endpoints).To(And(HaveLen(2), HaveKey("a"), HaveKey("z")))
			_, err := read.Endpoints["z"].Dial(t.Context(), "tcp", "127.0.0.1:2379")
			g.Expect(err).To(MatchError("tcp to 127.0.0.1:2379 from h-z"))
		})
	}

	inv := twoNodes()
	external(&Observation{Inventory: *inv})
	g.Expect((&Sources{}).readEtcd(t.Context(), inv)).To(BeZero())
}
