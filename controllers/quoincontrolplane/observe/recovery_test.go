// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/collections"
	"sigs.k8s.io/cluster-api/util/conditions"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
)

// A member is known not to run when its host was reset since, is known to be off, or a person says so; that an object
// is not there says nothing.
func TestAHostIsGoneForARecoveryOnlyWhenThatIsKnown(t *testing.T) {
	gone := controlplane.RecoveryHost{Gone: true}
	const id = "quoin://metal/h/1"
	unbound := func(name, id string) controlplane.RecoveryHost {
		return controlplane.RecoveryHost{Unbound: true, Name: name, ProviderID: id}
	}
	for name, c := range map[string]struct {
		change func(inv *Inventory, infra *infrav1.QuoinMachine, host *infrav1.QuoinHost)
		want   controlplane.RecoveryHost
	}{
		"it is there": {func(*Inventory, *infrav1.QuoinMachine, *infrav1.QuoinHost) {},
			controlplane.RecoveryHost{Name: "-n metal quoinhost h", ProviderID: id}},
		"it is silent": {func(_ *Inventory, _ *infrav1.QuoinMachine, host *infrav1.QuoinHost) {
			conditions.Set(host, metav1.Condition{Type: infrav1.HostReachableCondition, Status: metav1.ConditionFalse,
				Reason: "Timeout"})
		}, controlplane.RecoveryHost{Name: "-n metal quoinhost h", ProviderID: id, Silent: true}},
		"it is off": {func(_ *Inventory, _ *infrav1.QuoinMachine, host *infrav1.QuoinHost) {
			conditions.Set(host, metav1.Condition{Type: infrav1.HostFencedCondition, Status: metav1.ConditionTrue,
				Reason: infrav1.HostFencedReason})
		}, gone},
		"it serves another claim": {func(_ *Inventory, _ *infrav1.QuoinMachine, host *infrav1.QuoinHost) {
			host.Spec.ConsumerRef.Claim = "2"
		}, gone},
		"it is free": {func(_ *Inventory, _ *infrav1.QuoinMachine, host *infrav1.QuoinHost) {
			host.Spec.ConsumerRef, host.Status.State = nil, infrav1.HostStateAvailable
		}, gone},
		"it was registered anew, whoever has it": {func(_ *Inventory, _ *infrav1.QuoinMachine, host *infrav1.QuoinHost) {
			host.Status.State = infrav1.HostStateAvailable
		}, controlplane.RecoveryHost{Name: "-n metal quoinhost h", ProviderID: id}},
		"it was registered anew": {func(_ *Inventory, _ *infrav1.QuoinMachine, host *infrav1.QuoinHost) {
			host.Spec.ConsumerRef, host.Status.State = nil, infrav1.HostStateRegistering
		}, unbound("-n metal quoinhost h", "")},
		"its QuoinMachine was torn away": {func(inv *Inventory, _ *infrav1.QuoinMachine, _ *infrav1.QuoinHost) {
			delete(inv.QuoinMachines, "m")
		}, unbound("-n metal quoinhost h", id)},
		"it has no object": {func(inv *Inventory, _ *infrav1.QuoinMachine, _ *infrav1.QuoinHost) {
			delete(inv.Hosts, "m")
		}, unbound("-n ns quoinmachine m", id)},
		"a person says so of the QuoinMachine": {func(inv *Inventory, infra *infrav1.QuoinMachine, _ *infrav1.QuoinHost) {
			infra.Annotations = map[string]string{infrav1.AbandonAnnotation: id}
			delete(inv.Hosts, "m")
		}, gone},
		"a person says so of the host before": {func(inv *Inventory, infra *infrav1.QuoinMachine, _ *infrav1.QuoinHost) {
			infra.Annotations = map[string]string{infrav1.AbandonAnnotation: "quoin://metal/g/1"}
			delete(inv.Hosts, "m")
		}, unbound("-n ns quoinmachine m", id)},
		"neither has one": {func(inv *Inventory, _ *infrav1.QuoinMachine, _ *infrav1.QuoinHost) {
			delete(inv.Hosts, "m")
			delete(inv.QuoinMachines, "m")
		}, unbound("-n ns machine m", id)},
		"a person says so of the Machine": {func(inv *Inventory, _ *infrav1.QuoinMachine, _ *infrav1.QuoinHost) {
			inv.Machines["m"].Annotations = map[string]string{infrav1.AbandonAnnotation: id}
			delete(inv.Hosts, "m")
			delete(inv.QuoinMachines, "m")
		}, gone},
		"a person's word about the Machine while its host is there": {
			func(inv *Inventory, _ *infrav1.QuoinMachine, _ *infrav1.QuoinHost) {
				inv.Machines["m"].Annotations = map[string]string{infrav1.AbandonAnnotation: id}
			}, controlplane.RecoveryHost{Name: "-n metal quoinhost h", ProviderID: id}},
		"there never was one": {func(inv *Inventory, infra *infrav1.QuoinMachine, _ *infrav1.QuoinHost) {
			infra.Spec.ProviderID, inv.Machines["m"].Spec.ProviderID = "", ""
			delete(inv.Hosts, "m")
		}, gone},
	} {
		host := &infrav1.QuoinHost{ObjectMeta: metav1.ObjectMeta{Namespace: "metal", Name: "h"}}
		host.Spec.ConsumerRef = &infrav1.ConsumerReference{Namespace: "ns", Name: "m", Machine: "m", Claim: "1"}
		host.Status.State = infrav1.HostStateProvisioned
		infra := &infrav1.QuoinMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "m"}}
		infra.Spec.ProviderID = id
		inv := &Inventory{Machines: collections.FromMachines(&clusterv1.Machine{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "m"}, Spec: clusterv1.MachineSpec{ProviderID: id}}),
			QuoinMachines: map[string]*infrav1.QuoinMachine{"m": infra}, Hosts: map[string]*infrav1.QuoinHost{"m": host}}
		inv.ControlPlane = &controlplanev1.QuoinControlPlane{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "cp"}}
		c.change(inv, infra, host)
		NewWithT(t).Expect(inv.recoveryHost("m", "r1")).To(Equal(c.want), name)
	}
}

// What etcd had when it was last read is at hand where nobody can read it.
func TestARecoveryKnowsTheMembersOfTheLastReading(t *testing.T) {
	g := NewWithT(t)
	inv := &Inventory{}
	inv.ControlPlane = &controlplanev1.QuoinControlPlane{}
	inv.ControlPlane.Spec.Recovery = &controlplanev1.EtcdRecovery{ID: "r1", Machine: "m"}
	g.Expect(inv.recovery().Unclaimed).To(BeEmpty())
	inv.ControlPlane.Status.Etcd = &controlplanev1.EtcdStatus{Members: []controlplanev1.EtcdMember{
		{ID: "a1", Machine: "m"}, {ID: "beef"}}}
	g.Expect(inv.recovery().Unclaimed).To(Equal([]string{"beef"}))
}

// How far a host came with its part is what its order and its operation of the same recovery say.
func TestHowFarAHostCameWithItsPartInARecovery(t *testing.T) {
	ordered := func(id string) func(*infrav1.QuoinMachine, *infrav1.QuoinHost) {
		return func(infra *infrav1.QuoinMachine, _ *infrav1.QuoinHost) {
			infra.Spec.EtcdRecovery = &infrav1.EtcdRecoveryOrder{ID: id}
		}
	}
	runs := func(id string, phase string) func(*infrav1.QuoinMachine, *infrav1.QuoinHost) {
		return func(infra *infrav1.QuoinMachine, host *infrav1.QuoinHost) {
			ordered("r1")(infra, host)
			host.Status.Operation = &infrav1.HostOperation{ID: infrav1.RecoverOperation(id), Phase: phase}
			conditions.Set(host, metav1.Condition{Type: infrav1.HostEtcdRecoveryCondition, Status: metav1.ConditionFalse,
				Reason: "R", Message: "m"})
		}
	}
	takes := func(id string) func(*infrav1.QuoinMachine, *infrav1.QuoinHost) {
		return func(infra *infrav1.QuoinMachine, host *infrav1.QuoinHost) {
			ordered("r1")(infra, host)
			host.Spec.Order = &infrav1.HostOrder{Plan: infrav1.RecoverOperation(id)}
		}
	}
	type part = controlplane.RecoveryHost
	for name, test := range map[string]struct {
		change func(*infrav1.QuoinMachine, *infrav1.QuoinHost)
		want   part
	}{
		"it has none":        {func(*infrav1.QuoinMachine, *infrav1.QuoinHost) {}, part{}},
		"that of another":    {ordered("r0"), part{}},
		"it has one":         {ordered("r1"), part{Ordered: true}},
		"it takes its order": {takes("r1"), part{Ordered: true, Began: true}},
		"it takes another":   {takes("r0"), part{Ordered: true}},
		"it is to begin":     {runs("r1", infrav1.HostOperationNotStarted), part{Ordered: true, Message: "m"}},
		"it runs":            {runs("r1", infrav1.HostOperationRunning), part{Ordered: true, Began: true, Message: "m"}},
		"it ended": {runs("r1", infrav1.HostOperationSucceeded),
			part{Ordered: true, Began: true, Succeeded: true, Message: "m"}},
		"it failed": {runs("r1", infrav1.HostOperationFailed),
			part{Ordered: true, Began: true, Failed: true, Message: "m"}},
		"another one runs": {runs("r0", infrav1.HostOperationRunning), part{Ordered: true}},
		"it takes its order, which does not run yet": {func(infra *infrav1.QuoinMachine, host *infrav1.QuoinHost) {
			runs("r1", infrav1.HostOperationNotStarted)(infra, host)
			takes("r1")(infra, host)
		}, part{Ordered: true, Began: true, Message: "m"}},
	} {
		inv := atNoon().Inventory
		test.change(inv.QuoinMachines["a"], inv.Hosts["a"])
		test.want.Name, test.want.ProviderID = "-n hosts quoinhost h", infrav1.ProviderID("hosts", "h", "1")
		NewWithT(t).Expect(inv.recoveryHost("a", "r1")).To(Equal(test.want), name)
	}
}

// snapshotDelivered is a recovery r1 with snapshot s on the host of m, whose data are there.
func snapshotDelivered() *Inventory {
	inv := &Inventory{Machines: collections.New()}
	inv.ControlPlane = &controlplanev1.QuoinControlPlane{}
	inv.ControlPlane.Spec.Backup = &controlplanev1.EtcdBackup{}
	inv.ControlPlane.Spec.Recovery = &controlplanev1.EtcdRecovery{ID: "r1", Machine: "m", GiveUp: []string{"n"},
		Snapshot: &controlplanev1.RecoverySnapshot{Name: "s"}}
	inv.ControlPlane.Status.Backup = &controlplanev1.EtcdBackupStatus{Restore: &controlplanev1.EtcdRestoreStatus{
		RecoveryID: "r1", Machine: "m", Snapshot: "s", SnapshotSHA256: "aa", SHA256: "beef", SizeBytes: ptr.To[int64](5),
		Message: "all is there"}}
	return inv
}

// The data of a snapshot are there when the host has verified those of this very recovery, and until then it is said
// how far they came.
func TestHowFarTheDataOfASnapshotCame(t *testing.T) {
	data := func(size int64) *controlplane.RecoveryData {
		return &controlplane.RecoveryData{Snapshot: "s", SHA256: "beef", SnapshotSHA256: "aa", Size: size}
	}
	for name, test := range map[string]struct {
		change    func(*controlplanev1.QuoinControlPlane)
		delivered *controlplane.RecoveryData
		delivery  string
	}{
		"they are there": {func(*controlplanev1.QuoinControlPlane) {}, data(5), "all is there"},
		"of any size": {func(p *controlplanev1.QuoinControlPlane) { p.Status.Backup.Restore.SizeBytes = nil }, data(0),
			"all is there"},
		"they are not verified": {func(p *controlplanev1.QuoinControlPlane) {
			p.Status.Backup.Restore.SHA256, p.Status.Backup.Restore.Message = "", "half of it is there"
		}, nil, "half of it is there"},
		"nothing is said": {func(p *controlplanev1.QuoinControlPlane) { p.Status.Backup.Restore.Message = "" }, data(5),
			"it is about to begin"},
		"they are another recovery's": {func(p *controlplanev1.QuoinControlPlane) {
			p.Status.Backup.Restore.RecoveryID = "r0"
		}, nil, "it begins once what recovery r0 brought to the host of Machine m is removed: all is there"},
		"they are on another Machine's host": {func(p *controlplanev1.QuoinControlPlane) {
			p.Status.Backup.Restore.Machine, p.Status.Backup.Restore.Message = "n", ""
		}, nil, "it begins once what recovery r1 brought to the host of Machine n is removed: that is about to begin"},
		"none are known": {func(p *controlplanev1.QuoinControlPlane) { p.Status.Backup.Restore = nil }, nil,
			"it is about to begin"},
		"no snapshot is known": {func(p *controlplanev1.QuoinControlPlane) { p.Status.Backup = nil }, nil,
			"it is about to begin"},
		"no store is known": {func(p *controlplanev1.QuoinControlPlane) { p.Spec.Backup, p.Status.Backup = nil, nil }, nil,
			"spec.backup is not set, so no store is known: set spec.backup.store to where the snapshot is"},
	} {
		g, inv := NewWithT(t), snapshotDelivered()
		test.change(inv.ControlPlane)
		g.Expect(inv.Delivered()).To(Equal(test.delivered), name)
		g.Expect(inv.recovery().Delivered).To(Equal(test.delivered != nil), name)
		g.Expect(inv.recovery().Delivery).To(Equal(test.delivery), name)
	}
	inv := snapshotDelivered()
	inv.ControlPlane.Spec.Recovery.Snapshot = nil
	NewWithT(t).Expect(inv.Delivered()).To(BeNil(), "it goes on with its own data")
}

// A recovery is what a person asks for, with what was recorded of it and with the hosts of all Machines.
func TestARecoveryIsWhatIsAskedForAndRecorded(t *testing.T) {
	for record, test := range map[string]struct {
		state  controlplane.RecoveryState
		edited bool
	}{
		"": {},
		`{"id":"r0","state":"Begun","machine":"b"}`:                {},
		`{"id":"r1","state":"Begun"}`:                              {state: controlplane.RecoveryBegun},
		`{"id":"r1","state":"Begun","machine":"a"}`:                {state: controlplane.RecoveryBegun, edited: true},
		`{"id":"r1","state":"Begun","machine":"a","giveUp":["n"]}`: {state: controlplane.RecoveryBegun},
		`{"id":"r1","state":"Begun","machine":"b","giveUp":["n"]}`: {state: controlplane.RecoveryBegun, edited: true},
		`{"id":"r1","state":"Begun","machine":"a","giveUp":["n"],"snapshot":"s"}`: {state: controlplane.RecoveryBegun,
			edited: true},
		`{"id":"r1","state":"Complete","machine":"b"}`: {state: controlplane.RecoveryComplete},
	} {
		o := atNoon()
		o.ControlPlane.Annotations = map[string]string{controlplanev1.RecoveryAnnotation: record}
		o.ControlPlane.Spec.Recovery = &controlplanev1.EtcdRecovery{ID: "r1", Machine: "a", GiveUp: []string{"n"}}
		NewWithT(t).Expect(o.recovery()).To(Equal(&controlplane.Recovery{ID: "r1", Machine: "a", GiveUp: []string{"n"},
			State: test.state, Edited: test.edited, Hosts: map[string]controlplane.RecoveryHost{"a": {
				Name: "-n hosts quoinhost h", ProviderID: infrav1.ProviderID("hosts", "h", "1")}}}), record)
	}
	NewWithT(t).Expect(snapshotDelivered().recovery().Snapshot).To(Equal("s"))
	inv := snapshotDelivered()
	inv.ControlPlane.Annotations = map[string]string{controlplanev1.RecoveryAnnotation: `{"id":"r2","earlier":["r1"]}`}
	NewWithT(t).Expect(inv.recovery().Superseded).To(BeTrue())
}

// The digest that is asked for is held against that of the data with which the recovery began.
func TestTheDigestOfARecoveryThatHasBegunIsThatOfItsData(t *testing.T) {
	const begun = `{"id":"r1","state":"Begun","machine":"m","giveUp":["n"],"snapshot":"s",` +
		`"data":{"snapshot":"s","sha256":"beef","snapshotSHA256":"aa","size":5}}`
	for _, test := range []struct {
		record, digest string
		edited         bool
	}{
		{begun, "", false}, {begun, "aa", false}, {begun, "bb", true},
		{strings.Replace(begun, `"snapshotSHA256":"aa",`, "", 1), "bb", false},
		{strings.Replace(begun, "Begun", "Fetching", 1), "bb", false},
	} {
		inv := snapshotDelivered()
		inv.ControlPlane.Annotations = map[string]string{controlplanev1.RecoveryAnnotation: test.record}
		inv.ControlPlane.Spec.Recovery.Snapshot.SHA256 = test.digest
		NewWithT(t).Expect(inv.recovery().Edited).To(Equal(test.edited), "%q and %s", test.digest, test.record)
	}
}

// Of recoveries that nobody asks for any more, and that hosts have parts in, the recorded one is named; without a record
// that of the oldest Machine.
func TestAWithdrawnRecoveryIsTheOneThatHostsHaveAPartIn(t *testing.T) {
	for name, test := range map[string]struct {
		// parts of the Machines a, b and c, the oldest first.
		parts  []string
		record string
		want   *controlplane.Recovery
		hosts  []string
	}{
		"none": {parts: []string{"", "", ""}},
		"one":  {parts: []string{"", "r1", ""}, want: &controlplane.Recovery{ID: "r1"}, hosts: []string{"b"}},
		"two, none recorded": {parts: []string{"r1", "", "r2"}, want: &controlplane.Recovery{ID: "r1"},
			hosts: []string{"a", "c"}},
		"three, one recorded": {parts: []string{"r1", "r2", "r3"}, record: `{"id":"r2","state":"Begun","machine":"b"}`,
			want:  &controlplane.Recovery{ID: "r2", Machine: "b", State: controlplane.RecoveryBegun},
			hosts: []string{"a", "b", "c"}},
	} {
		g, o := NewWithT(t), atNoon()
		o.ControlPlane.Annotations = map[string]string{controlplanev1.RecoveryAnnotation: test.record}
		o.Machines, o.Hosts, o.QuoinMachines = collections.New(), nil, map[string]*infrav1.QuoinMachine{}
		for i, name := range []string{"a", "b", "c"} {
			o.Machines.Insert(&clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Name: name,
				CreationTimestamp: metav1.NewTime(noon.Add(time.Duration(i) * time.Second))}})
			if test.parts[i] != "" {
				o.QuoinMachines[name] = &infrav1.QuoinMachine{}
				o.QuoinMachines[name].Spec.EtcdRecovery = &infrav1.EtcdRecoveryOrder{ID: test.parts[i]}
				o.QuoinMachines[name].Spec.ProviderID = infrav1.ProviderID("hosts", name, "1")
			}
		}
		o.QuoinMachines["d"] = &infrav1.QuoinMachine{}
		o.Machines.Insert(&clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "d"}})
		got := o.recovery()
		if test.want == nil {
			g.Expect(got).To(BeNil(), name)
			continue
		}
		test.want.Withdrawn, test.want.Hosts = true, map[string]controlplane.RecoveryHost{}
		for _, host := range test.hosts {
			test.want.Hosts[host] = o.recoveryHost(host, "")
		}
		g.Expect(got).To(Equal(test.want), name)
	}
}
