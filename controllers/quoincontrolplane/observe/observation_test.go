// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"errors"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util/collections"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/controllers/quoincontrolplane/history"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/etcd"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/quorum"
)

// The state is made of a reading and a past, and of nothing else: made twice it is the same, and what it was made of is
// as it was. Only with what the first one hands to the next do they go on.
func TestTheStateIsMadeOfWhatIsGiven(t *testing.T) {
	g := NewWithT(t)
	delays := Delays{DeadMember: time.Minute, SkippedDrain: time.Minute}
	read := func(at time.Time) *Observation {
		o := threeMembers()
		o.Cluster = &clusterv1.Cluster{}
		o.At, o.Etcd.ReadAt = at, at
		o.Workload.ConfigVersion = "v1.36.3"
		o.Etcd.Cluster.Members[1].Answers = false
		deleted := metav1.NewTime(at)
		for name, machine := range o.Machines {
			machine.UID = types.UID(name)
		}
		leaving := o.Machines["c"]
		leaving.DeletionTimestamp = &deleted
		leaving.Annotations = map[string]string{controlplanev1.PreTerminateHookAnnotation: ""}
		leaving.Status.Deletion = &clusterv1.MachineDeletionStatus{}
		leaving.Status.Conditions = []metav1.Condition{{Type: clusterv1.MachineDeletingCondition,
			Status: metav1.ConditionTrue, Reason: clusterv1.MachineDeletingWaitingForPreTerminateHookReason}}
		return o
	}
	start := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	attempts := &history.Backoff{}
	for _, machine := range []types.UID{"a", "gone"} {
		attempts.Note("plane", machine, start, false)
	}
	past := history.Past{PreCreation: attempts.Of("plane")}

	given := read(start)
	first, then := buildState(given, past, delays)
	g.Expect(first.State.Machines[0].PreCreationBackoff).To(BeTrue())
	g.Expect(first.State.Machines[1].PreCreationBackoff).To(BeFalse())
	g.Expect(first.State.DrainInGrace).To(BeTrue())
	g.Expect(first.Initialized()).To(BeTrue())
	g.Expect(then.PreCreation.Machines()).To(Equal(map[types.UID]bool{"a": true}))
	g.Expect(given.State).To(BeZero())
	g.Expect(given.Initialized()).To(BeFalse())
	g.Expect(past).To(Equal(history.Past{PreCreation: attempts.Of("plane")}))

	again, same := buildState(given, past, delays)
	g.Expect(again).To(Equal(first))
	g.Expect(same).To(Equal(then))

	_, then = buildState(read(start.Add(30*time.Second)), then, delays)
	later := read(start.Add(time.Minute))
	next, _ := buildState(later, then, delays)
	g.Expect(next.State.Etcd.Members[1].State(next.State.DeadMemberTimeout)).To(Equal(quorum.MemberDead))
	g.Expect(next.State.DrainInGrace).To(BeFalse())
	anew, _ := buildState(later, history.Past{}, delays)
	g.Expect(anew.State.Etcd.Members[1].State(next.State.DeadMemberTimeout)).To(Equal(quorum.MemberWavering))
	g.Expect(anew.State.DrainInGrace).To(BeTrue())
}

// hosted is the inventory of a Machine a on a host that has run its bootstrap data, and what it is read from: there are
// Node n-a and its member of etcd.
func hosted(t *testing.T, read *members) (*Inventory, *Sources, *clocktesting.FakePassiveClock) {
	t.Helper()
	inv := &atNoon().Inventory
	inv.ControlPlane.UID = "uid"
	inv.Machines["a"].Spec.Version = "v1.36.3"
	inv.QuoinMachines["a"].Status.Initialization.Provisioned = ptr.To(true)
	node := readyNode("n-a")
	node.Spec.ProviderID = inv.QuoinMachines["a"].Spec.ProviderID
	workloads := fake.NewClientBuilder().WithObjects(kubeadmConfig("kubernetesVersion: v1.36.3"), node).Build()
	read.found = etcd.Cluster{Agreed: true, Members: []etcd.Member{{ID: 1, Name: "n-a"}}}
	clock := clocktesting.NewFakePassiveClock(noon)
	return inv, &Sources{Clock: clock, History: &history.History{}, Watch: watched, Hosts: dialer{}, Etcd: read,
		Workloads: &workload{live: workloads}, Secrets: fake.NewClientBuilder().WithObjects(authority(t)).Build(),
		Delays: Delays{DeadMember: time.Minute, OrphanedMember: 4 * time.Minute, SkippedDrain: 2 * time.Minute,
			APIServerStop: 3 * time.Minute}}, clock
}

// The workload cluster and etcd are read, unless all of it is being deleted. The Node of a Machine that has just joined
// is named first, by which its member of etcd is found.
func TestWhatIsObserved(t *testing.T) {
	for name, test := range map[string]struct {
		change  func(*Inventory)
		nothing bool
	}{
		"a Machine with a Node": {change: func(*Inventory) {}},
		"a Machine that has just joined": {change: func(inv *Inventory) {
			inv.Machines["a"].Status.NodeRef = clusterv1.MachineNodeReference{}
		}},
		"a deletion": {change: func(inv *Inventory) { inv.ControlPlane.DeletionTimestamp = ptr.To(metav1.Now()) },
			nothing: true},
	} {
		t.Run(name, func(t *testing.T) {
			g, read := NewWithT(t), &members{}
			inv, sources, clock := hosted(t, read)
			test.change(inv)
			was := inv.Machines["a"].DeepCopy()
			o, err := sources.Observe(t.Context(), inv)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(o.Observed()).To(BeTrue())
			g.Expect(o.At).To(Equal(noon))
			g.Expect(inv.Machines["a"]).To(Equal(was))
			if test.nothing {
				g.Expect([]any{o.Workload, o.Etcd}).To(HaveEach(BeZero()))
				g.Expect(o.Machines).To(Equal(inv.Machines))
				return
			}
			g.Expect(o.Workload.Connected && o.State.Reachable && o.State.Initialized).To(BeTrue())
			g.Expect([]bool{inv.Initialized(), inv.Answered(), o.Answered()}).To(Equal([]bool{false, false, true}))
			g.Expect(o.Machines["a"].Status.NodeRef.Name).To(Equal("n-a"))
			g.Expect(read.asked).To(HaveExactElements(HaveField("Name", "n-a")))
			g.Expect(o.State.Etcd.Members).To(HaveExactElements(HaveField("Machine", "a")))
			g.Expect(o.State.DeadMemberTimeout).To(Equal(time.Minute))
			g.Expect(o.State.OrphanedMemberTimeout).To(Equal(4 * time.Minute))

			clock.SetTime(noon.Add(20 * time.Second))
			o, err = sources.Observe(t.Context(), inv)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(o.State.Etcd.Members[0].Silent).To(Equal(20*time.Second), "it knows the observation before")
		})
	}
}

// A control plane that cannot be compared with its Machines is not observed at all.
func TestNothingIsObservedOfWhatCannotBeCompared(t *testing.T) {
	g, read := NewWithT(t), &members{}
	inv, sources, _ := hosted(t, read)
	inv.KubeadmConfigs = map[string]*bootstrapv1.KubeadmConfig{"a": {}}
	inv.Machines["a"].Spec.Version = "1.x"
	_, err := sources.Observe(t.Context(), inv)
	g.Expect(err).To(MatchError(ContainSubstring("comparing the KubeadmConfig of Machine a")))
	g.Expect(read.asked).To(BeEmpty())
	g.Expect(Nothing(inv.Subject).Observed()).To(BeFalse())
	g.Expect(Nothing(inv.Subject).Subject).To(Equal(inv.Subject))
}

// Of what is observed again the workload cluster is read live, and what was listed since counts. Everything else is as
// it was before, which does not change.
func TestWhatIsObservedAgain(t *testing.T) {
	for _, deleted := range []bool{false, true} {
		g, read := NewWithT(t), &members{}
		inv, sources, clock := hosted(t, read)
		inv.Cached, inv.LeftBehind, inv.Workers = true, "before", []string{"w"}
		if deleted {
			inv.ControlPlane.DeletionTimestamp = ptr.To(metav1.Now())
		}
		of, is := sources.Workloads.(*workload)
		g.Expect(is).To(BeTrue())
		of.cached, of.probes = unreadable(), clustercache.HealthCheckingState{LastProbeSuccessTime: noon}
		before, err := sources.Observe(t.Context(), inv)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(before.Workload.Err == nil).To(Equal(deleted), "by the cache, which fails")
		before.Outdated = map[string][]string{"a": {"Version"}}
		read.asked = nil
		clock.SetTime(noon.Add(time.Second))
		lists := &Lists{all: []clusterv1.Machine{{}}, leftBehind: "now", window: Window{Closed: "night"}}
		again := sources.Again(t.Context(), before, lists)
		g.Expect(again.At).To(Equal(noon.Add(time.Second)))
		g.Expect(read.asked).To(BeEmpty(), "etcd is not read again")
		g.Expect(again.Etcd).To(Equal(before.Etcd))
		g.Expect(again.Outdated).To(Equal(before.Outdated))
		g.Expect(again.Workers).To(Equal(before.Workers))
		g.Expect(again.Machines).To(Equal(before.Machines))
		g.Expect(again.Workload.Connected && again.Workload.Err == nil).To(Equal(!deleted))
		g.Expect([]any{again.Cached, again.LeftBehind, again.State.LeftBehind, again.State.Window, len(again.all)}).To(
			Equal([]any{false, "now", "now", "night", 1}))
		g.Expect([]any{before.Cached, before.LeftBehind, len(before.all)}).To(Equal([]any{true, "before", 0}))
	}
}

// What is known of each Machine is judged by all that was read and by the times that a decision waits.
func TestTheStateSaysHowMachinesAre(t *testing.T) {
	g, o := NewWithT(t), atNoon()
	o.ControlPlane.Spec.Recovery = &controlplanev1.EtcdRecovery{ID: "r1"}
	o.Machines["a"].DeletionTimestamp = ptr.To(metav1.NewTime(noon))
	o.QuoinMachines["a"].Status.Initialization.Provisioned = ptr.To(true)
	o.Hosts["a"].Status.UnreachableSince = ptr.To(metav1.NewTime(noon.Add(-3*time.Minute - 1)))
	o.ControlPlane.Spec.KubeadmConfigSpec.ClusterConfiguration.FeatureGates = map[string]bool{
		"ControlPlaneKubeletLocalMode": false}
	o.ControlPlane.Spec.Version = "v1.35.1"
	o.Machines["a"].Labels = map[string]string{clusterv1.MachineControlPlaneLabel: ""}
	o.Machines["a"].Spec.Version = "v1.34.1"
	built, _ := buildState(o, history.Past{}, Delays{APIServerStop: 3 * time.Minute})
	g.Expect(built.Initialized()).To(BeFalse(), "no configuration was read")
	machine := built.State.Machines[0]
	g.Expect(machine.APIServer).To(Equal(controlplane.APIServerStays))
	g.Expect(machine.Health.SilentSince.Equal(noon.Add(-3*time.Minute - 1))).To(BeTrue())
	g.Expect(built.State.Recovery.ID).To(Equal("r1"))
	g.Expect(o.silence(&infrav1.QuoinHost{})).To(BeZero(), "that one answers")
	g.Expect(built.State.LeftBehind).To(ContainSubstring("R17"))
}

// A cached observation may be acted upon when the API server has the very Machines that it shows, and a quorum of etcd
// agreed to it a moment ago.
func TestWhenACachedObservationHolds(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*Observation, collections.Machines)
		holds  bool
	}{
		"just read": {func(*Observation, collections.Machines) {}, true},
		"read almost two seconds ago": {func(o *Observation, _ collections.Machines) {
			o.Etcd.ReadAt = noon.Add(1 - 2*time.Second)
		}, true},
		"read two seconds ago": {func(o *Observation, _ collections.Machines) {
			o.Etcd.ReadAt = noon.Add(-2 * time.Second)
		}, false},
		"no quorum": {func(o *Observation, _ collections.Machines) { o.Etcd.Cluster.Agreed = false }, false},
		"not read":  {func(o *Observation, _ collections.Machines) { o.Etcd.Err = errors.New("down") }, false},
		"etcd elsewhere": {func(o *Observation, _ collections.Machines) {
			o.Etcd.Err = errors.New("down")
			external(o)
		}, true},
		"a Machine awaits its Node": {func(o *Observation, _ collections.Machines) {
			o.Machines["a"].Status.NodeRef.Name = ""
			o.Hosts = map[string]*infrav1.QuoinHost{"a": {}}
			o.QuoinMachines["a"].Status.Initialization.Provisioned = ptr.To(true)
		}, false},
		"one is gone":    {func(_ *Observation, live collections.Machines) { delete(live, "b") }, false},
		"one is new":     {func(o *Observation, _ collections.Machines) { delete(o.Machines, "b") }, false},
		"one is another": {func(_ *Observation, live collections.Machines) { live["b"].UID = "another" }, false},
		"one has another name": {func(_ *Observation, live collections.Machines) {
			live["d"] = live["b"]
			delete(live, "b")
		}, false},
		"one has changed": {func(_ *Observation, live collections.Machines) { live["b"].ResourceVersion = "2" }, false},
		"one stands for one that is gone": {func(o *Observation, live collections.Machines) {
			o.Machines["b"].ResourceVersion, live["b"].ResourceVersion = "", ""
		}, false},
	} {
		o := threeMembers()
		live := collections.New()
		o.Etcd.ReadAt = noon
		for name, machine := range o.Machines {
			machine.UID, machine.ResourceVersion = types.UID(name), "1"
			live[name] = machine.DeepCopy()
		}
		test.change(o, live)
		NewWithT(t).Expect(o.Holds(live, noon)).To(Equal(test.holds), name)
	}
}
