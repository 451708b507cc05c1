// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"fmt"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
)

func TestTheTopologyOfACluster(t *testing.T) {
	g := NewWithT(t)
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "prod"}}
	g.Expect(TopologyOf(cluster, nil)).To(BeNil())
	cluster.Spec.Topology.ClassRef.Name = "class"
	cluster.Spec.Topology.Workers.MachineDeployments = []clusterv1.MachineDeploymentTopology{{Name: "a"}, {Name: "b"}}
	of := func(name, cluster, listed string) clusterv1.MachineDeployment {
		md := clusterv1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Name: name,
			Labels: map[string]string{clusterv1.ClusterTopologyMachineDeploymentNameLabel: listed}}}
		md.Spec.ClusterName = cluster
		return md
	}
	pools := []clusterv1.MachineDeployment{of("blue", "prod", "b"), of("green", "other", "a"),
		of("red", "prod", "c")}
	g.Expect(TopologyOf(cluster, pools)).To(Equal(&Topology{Order: map[string]int{"blue": 1}, All: 2, Concurrency: 1,
		Pending: map[string]bool{}}))
	cluster.Annotations = map[string]string{clusterv1.ClusterTopologyUpgradeConcurrencyAnnotation: "3"}
	g.Expect(TopologyOf(cluster, pools).Concurrency).To(Equal(3))
}

// A MachineDeployment rolls while somebody has to look at it, or fewer of its Machines are at its template than there
// are or are to be. What its status does not say is none.
func TestWhatRolls(t *testing.T) {
	for _, c := range []struct {
		looked                     int64
		upToDate, replicas, status *int32
		rolls                      bool
	}{
		{1, ptr.To[int32](1), ptr.To[int32](1), ptr.To[int32](1), false},
		{0, ptr.To[int32](1), ptr.To[int32](1), ptr.To[int32](1), true},
		{1, ptr.To[int32](1), ptr.To[int32](2), ptr.To[int32](1), true},
		{1, ptr.To[int32](1), ptr.To[int32](1), ptr.To[int32](2), true},
		{1, nil, ptr.To[int32](1), nil, true},
		{1, nil, nil, ptr.To[int32](1), true},
		{1, nil, ptr.To[int32](0), ptr.To[int32](0), false},
		{1, ptr.To[int32](0), nil, nil, false},
	} {
		pool := &clusterv1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Generation: 1}}
		pool.Spec.Replicas, pool.Status.ObservedGeneration = c.replicas, c.looked
		pool.Status.UpToDateReplicas, pool.Status.Replicas = c.upToDate, c.status
		NewWithT(t).Expect(rolls(pool)).To(Equal(c.rolls), "%d: %d of %d, and %d are there", c.looked,
			ptr.Deref(c.upToDate, -1), ptr.Deref(c.replicas, -1), ptr.Deref(c.status, -1))
	}
}

// Whoever is to set a field is sent to the topology where that writes the MachineDeployment.
func TestWhereFieldsAreSet(t *testing.T) {
	g := NewWithT(t)
	pool := Pool{Name: "blue"}
	says := func() []string { return []string{pool.replicasOf(), pool.maxUnavailableOf(), pool.AnnotationsOf()} }
	g.Expect(says()).To(Equal([]string{"replicas of MachineDeployment blue", "maxUnavailable of MachineDeployment blue",
		"annotations of MachineDeployment blue"}))
	pool.Labels = map[string]string{clusterv1.ClusterTopologyOwnedLabel: "", clusterv1.ClusterNameLabel: "prod",
		clusterv1.ClusterTopologyMachineDeploymentNameLabel: "md"}
	const listed = "spec.topology.workers.machineDeployments[name=md]."
	g.Expect(says()).To(Equal([]string{listed + "replicas of Cluster prod",
		listed + "rollout.strategy.rollingUpdate.maxUnavailable of Cluster prod",
		listed + "metadata.annotations of Cluster prod"}))
}

// A pool is about to follow its topology until it has the version of the present step, unless a person holds it.
func TestWhatIsAboutToFollowATopology(t *testing.T) {
	g := NewWithT(t)
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "prod"}}
	cluster.Spec.Topology.ClassRef.Name, cluster.Spec.Topology.Version = "class", "v1.36.0"
	listed := []clusterv1.MachineDeploymentTopology{{Name: "a"}, {Name: "b"}, {Name: "c"}}
	cluster.Spec.Topology.Workers.MachineDeployments = listed
	var pools []clusterv1.MachineDeployment
	for name, version := range map[string]string{"a": "v1.35.0", "b": "v1.34.0", "c": "v1.36.0"} {
		md := clusterv1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Name: "md-" + name,
			Labels: map[string]string{clusterv1.ClusterTopologyMachineDeploymentNameLabel: name}}}
		md.Spec.ClusterName, md.Spec.Template.Spec.Version, md.Spec.Replicas = "prod", version, ptr.To[int32](1)
		// The new Machine is there, and the old one too.
		md.Status.Replicas, md.Status.UpToDateReplicas = ptr.To[int32](2), ptr.To[int32](1)
		pools = append(pools, md)
	}
	pending := func() map[string]bool { return TopologyOf(cluster, pools).Pending }
	g.Expect(pending()).To(Equal(map[string]bool{"md-a": true, "md-b": true}))
	cluster.Status.Conditions = []metav1.Condition{{Type: clusterv1.ClusterTopologyReconciledCondition,
		Status: metav1.ConditionFalse, Reason: clusterv1.ClusterTopologyReconciledFailedReason}}
	g.Expect(pending()).To(BeEmpty(), "nobody knows when a write that fails will not")
	cluster.Status.Conditions[0].Reason = clusterv1.ClusterTopologyReconciledClusterUpgradingReason
	g.Expect(pending()).To(HaveLen(2))
	listed[0].Metadata.Annotations = map[string]string{clusterv1.ClusterTopologyDeferUpgradeAnnotation: ""}
	g.Expect(pending()).To(Equal(map[string]bool{"md-b": true}))
	listed[0].Metadata.Annotations = map[string]string{clusterv1.ClusterTopologyHoldUpgradeSequenceAnnotation: ""}
	g.Expect(pending()).To(BeEmpty(), "it holds what comes after it as well")
	listed[0].Metadata.Annotations = nil
	cluster.Annotations = map[string]string{clusterv1.ClusterTopologyUpgradeStepAnnotation: "v1.35.0"}
	g.Expect(pending()).To(Equal(map[string]bool{"md-b": true}), "md-c has the version that comes last")
	for i := range pools {
		pools[i].Status.Replicas = ptr.To[int32](1)
	}
	g.Expect(pending()).To(BeEmpty(), "what has its version and nothing to replace was written before")
	for i := range pools {
		pools[i].Generation = 2
	}
	g.Expect(pending()).To(Equal(map[string]bool{"md-b": true}), "nobody has looked at what is written")
	cluster.Annotations, cluster.Spec.Topology.Version = nil, "v1.37.0"
	g.Expect(pending()).To(BeEmpty(), "it writes none yet, and a lifecycle hook may keep it from that for days")
}

// A topology that lets all pools go writes them one after another, in any order: what it writes first waits for a pool
// that comes first and is not written yet.
func TestAPoolWaitsForOneThatItsTopologyIsAboutToWrite(t *testing.T) {
	g := NewWithT(t)
	old, waits := Machine{Name: "old", Outdated: true, Hosted: true, Joined: true, Available: true}, Machine{Name: "new"}
	pools := []Pool{{Name: "blue", Replicas: 1, Revision: "1", Completed: "1", Stock: Limits{Surge: 1},
		Skewed:   "it is of the version before",
		Machines: []Machine{{Name: "serves", Hosted: true, Joined: true, Available: true}}},
		{Name: "green", Replicas: 1, Revision: "2", Completed: "1", Stock: Limits{Surge: 1}, Machines: []Machine{old, waits}}}
	reason := func(topology *Topology) Reason {
		for _, d := range Plan(State{Pools: pools, Topology: topology}, &quoinv1.RolloutPolicySpec{}, time.Time{}).Decisions {
			if d.Machine == "new" {
				return d.Reason
			}
		}
		return ""
	}
	order, pending := map[string]int{"blue": 1, "green": 0}, map[string]bool{"blue": true}
	behind := append([]Pool{{Name: "amber", Replicas: 1, Revision: "2", Completed: "1", Stock: Limits{Surge: 1},
		Machines: []Machine{old}}}, pools[0])
	behind[1].Completed = ""
	arranged, err := arrange(behind, &quoinv1.RolloutPolicySpec{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(current(arranged, &Topology{Order: order, All: 2, Concurrency: 2, Pending: pending}, 1, time.Time{})).
		To(Equal([]string{"amber"}), "nothing of a pool that is not written has begun")
	g.Expect(reason(&Topology{Order: order, All: 2, Concurrency: 2, Pending: pending})).To(Equal(Previous))
	g.Expect(reason(&Topology{Order: order, All: 2, Concurrency: 2})).To(Equal(First))
	g.Expect(reason(&Topology{Order: order, All: 2, Concurrency: 1, Pending: pending})).To(Equal(First),
		"the topology would wait for this one")
}

// A policy has to keep the order of a topology that upgrades fewer than all at once; what that does not list is in none.
func TestTheOrderOfATopology(t *testing.T) {
	g := NewWithT(t)
	pools := []Pool{{Name: "blue"}, {Name: "cyan"}, {Name: "green"}}
	policy := &quoinv1.RolloutPolicySpec{}
	says := func(topology *Topology) string {
		message, err := Misordered(pools, policy, topology)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(Plan(State{Pools: pools, Topology: topology}, policy, time.Time{}).Misordered).To(Equal(message))
		return message
	}
	g.Expect(says(nil)).To(BeEmpty())
	topology := &Topology{Order: map[string]int{"blue": 1, "green": 0}, All: 2, Concurrency: 1}
	g.Expect(says(topology)).To(HavePrefix("MachineDeployment blue comes before green here, and after it in the Cluster's"))
	g.Expect(says(&Topology{Order: topology.Order, All: 2, Concurrency: 2})).To(BeEmpty(), "all go at once")
	g.Expect(says(&Topology{Order: map[string]int{"blue": 0, "green": 1}, All: 2, Concurrency: 1})).To(BeEmpty())
	g.Expect(says(&Topology{Order: map[string]int{"blue": 0, "green": 0}, All: 2, Concurrency: 1})).To(BeEmpty())
}

// Others go on while a rollout stops, but that a topology which upgrades fewer than all at once gives them no version
// meanwhile: what says that they go on says how they do.
func TestARolloutThatStopsSaysWhatItsTopologyWithholds(t *testing.T) {
	leaver := oldOne
	leaver.Deleting, leaver.Leave = true, Leave{PreTerminate: true, Began: eight.Add(-time.Hour)}
	policy := &quoinv1.RolloutPolicySpec{DeadlineSeconds: ptr.To[int32](600), Drain: &quoinv1.RolloutDrain{}}
	says := func(topology *Topology) []string {
		pool := Pool{Name: "blue", Replicas: 1, Stock: Limits{Surge: 1}, Completed: "1", Machines: []Machine{oldOne},
			Said: NoneMade, Since: eight.Add(-time.Hour)}
		s := State{Topology: topology, Pools: []Pool{pool}}
		overdue := Plan(s, policy, eight)
		refused := overdue
		refused.Refuse(Decision{Pool: "blue", Machine: "old", Action: Delete}, "no")
		s.Pools[0].Machines = []Machine{leaver}
		return []string{overdue.Stalled, refused.Progress[0].Message, Plan(s, policy, eight).DrainFailed}
	}
	listed := map[string]int{"blue": 0, "green": 1}
	for want, topologies := range map[string][]*Topology{
		"other MachineDeployments go on, but the Cluster's topology upgrades 1 at once, this one counted: for all to go on " +
			"give the Cluster the annotation topology.cluster.x-k8s.io/upgrade-concurrency: \"2\"(\\.|$)": {
			{Order: listed, All: 2, Concurrency: 1}},
		"other MachineDeployments go on(\\.|$)": {nil, {Order: listed, All: 2, Concurrency: 2},
			{Order: map[string]int{"green": 0}, All: 2, Concurrency: 1}},
	} {
		for _, topology := range topologies {
			NewWithT(t).Expect(says(topology)).To(HaveEach(MatchRegexp(want)))
		}
	}
}

// What is on its way comes before what was begun.
func TestWhatIsOnItsWayComesFirst(t *testing.T) {
	g := NewWithT(t)
	old := Machine{Name: "old", Outdated: true, Hosted: true, Joined: true}
	pools, err := arrange([]Pool{
		{Name: "blue", Replicas: 2, Revision: "2", Completed: "1", Stock: Limits{Surge: 1},
			Machines: []Machine{old, {Name: "new", Hosted: true, Joined: true}}},
		{Name: "green", Replicas: 1, Revision: "2", Completed: "1", Stock: Limits{Surge: 1},
			Machines: []Machine{old, {Name: "new", Hosted: true}}},
	}, &quoinv1.RolloutPolicySpec{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(current(pools, nil, 1, time.Time{})).To(Equal([]string{"green"}))
	g.Expect(current(pools, nil, 2, time.Time{})).To(Equal([]string{"blue", "green"}))

	// With OnDelete an outdated one is gone before one at the present template is there: that is begun, and no other.
	pools, err = arrange([]Pool{
		{Name: "blue", Replicas: 1, Revision: "2", Completed: "1", Stock: Limits{Surge: 1}, Machines: []Machine{old}},
		{Name: "green", Replicas: 1, Revision: "2", Completed: "1", OnDelete: true, Machines: []Machine{old}},
	}, &quoinv1.RolloutPolicySpec{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(current(pools, nil, 1, time.Time{})).To(Equal([]string{"blue"}))
	pools[1].Replicas = 2
	g.Expect(current(pools, nil, 1, time.Time{})).To(Equal([]string{"green"}))
}

// Cluster API makes no Machine of another version than the control plane's (machineset_preflight.go), and a topology
// gives the version to the next pool when the one before is done. What waits for that version keeps nobody waiting who
// has it, or both would wait for ever: a pool whose other rollout was begun before, and one that a policy has first.
func TestNobodyWaitsForAPoolThatGetsNoMachines(t *testing.T) {
	const why = "it is of v1.35.0"
	old, counted := serving("blue-1"), serving("blue-2")
	counted.Outdated = false
	hosted := Machine{Name: "blue-3", Admitted: eight, Hosted: true, Gated: true, Created: eight}
	hostless, waits := hosted, Machine{Name: "blue-3", Created: eight}
	hostless.Hosted, hostless.NoHost = false, "no free host matches"
	leaver, gone := serving("blue-1"), serving("blue-1")
	leaver.Deleting, gone.Outdated, gone.NeedsUpdate = true, false, "needs-update on its Node"
	kept := leaver
	kept.Leave.PreDrain, leaver.Leave.PreDrain = true, false
	for name, c := range map[string]struct {
		blue   []Machine
		admits bool
	}{
		"nothing of it is begun":                 {[]Machine{old}, true},
		"it was begun":                           {[]Machine{old, counted}, true},
		"one was made before and waits":          {[]Machine{old, waits}, true},
		"one was admitted before without a host": {[]Machine{old, hostless}, true},
		"a person selected one":                  {[]Machine{gone}, true},
		"one has a host":                         {[]Machine{old, hosted}, false},
		"one is to leave and is not drained":     {[]Machine{kept, counted}, true},
		"one leaves":                             {[]Machine{leaver, counted}, false},
	} {
		g := NewWithT(t)
		blue := Pool{Name: "blue", Replicas: len(c.blue), Revision: "2", Completed: "1", Stock: Limits{Surge: 1},
			Machines: c.blue, Skewed: why}
		if name == "a person selected one" {
			blue.Completed, blue.Stock.Unavailable = "2", 1
		}
		first, last := blue, blue
		first.Name, last.Name = "amber", "zinc"
		cyan := Pool{Name: "cyan", Replicas: 1, Revision: "2", Completed: "1", Stock: Limits{Surge: 1},
			Machines: []Machine{serving("cyan-1"), {Name: "cyan-2", Created: eight}}}
		for _, pool := range []Pool{first, last} {
			admits := func(machine string) bool {
				decisions := Plan(State{Pools: []Pool{pool, cyan}}, &quoinv1.RolloutPolicySpec{}, eight).Decisions
				return slices.ContainsFunc(decisions, func(d Decision) bool { return d.Machine == machine && d.Action == Admit })
			}
			if pool.Name == "amber" || c.admits { // what is begun comes before what is not, whatever its place
				g.Expect(admits("cyan-2")).To(Equal(c.admits), "%s: %s", pool.Name, name)
			}
			g.Expect(admits("blue-3")).To(BeFalse(), name)
			if pool.Skewed = ""; pool.Name == "amber" {
				g.Expect(admits("cyan-2")).To(BeFalse(), name)
			}
		}
		// What is alone waits for nobody.
		result := Plan(State{Pools: []Pool{blue}}, &quoinv1.RolloutPolicySpec{}, eight)
		for _, d := range result.Decisions {
			g.Expect(d.Reason).NotTo(Equal(Previous), "%s: %+v", name, d)
		}
	}
}

// What gets no Machines says so, and none is deleted that nothing would take the place of.
func TestNothingIsDeletedThatCouldNotBeMadeAnew(t *testing.T) {
	marked := serving("blue-1")
	marked.Outdated, marked.NeedsUpdate = false, "needs-update on its Node"
	for name, pool := range map[string]Pool{
		"selected":            {Completed: "2", Stock: Limits{Surge: 1, Unavailable: 1}, Machines: []Machine{marked}},
		"on delete":           {OnDelete: true, Machines: []Machine{serving("blue-1")}},
		"made by Cluster API": {Stock: Limits{Surge: 1}, Machines: []Machine{serving("blue-1")}},
	} {
		g := NewWithT(t)
		pool.Name, pool.Replicas, pool.Revision, pool.Skewed = "blue", 1, "2", "it is of v1.35.0"
		result := Plan(State{Pools: []Pool{pool}}, &quoinv1.RolloutPolicySpec{}, eight)
		g.Expect(result.Decisions).NotTo(ContainElement(HaveField("Action", Delete)), name)
		g.Expect(result.Progress[0].Reason).To(Equal(ControlPlane), "%s: %+v", name, result.Progress[0])
		g.Expect(result.Progress[0].Message).To(ContainSubstring("is not made: it is of v1.35.0"), name)
	}
}

// A managed topology gives its new version to the next pool of its list when as many as it may upgrade are done, and a
// policy orders them in another way, since the list was edited later. Whatever was on its way of other templates when
// the control plane got the version, both come to their end.
func TestATopologyOfAnotherOrderComesToItsEnd(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := newFleet()
		for i := range rapid.IntRange(2, 4).Draw(t, "pools") {
			d := &deployment{name: fmt.Sprintf("pool%c", 'a'+i), replicas: rapid.IntRange(1, 3).Draw(t, "replicas"),
				surge: rapid.IntRange(0, 2).Draw(t, "surge"), onDelete: rapid.IntRange(0, 4).Draw(t, "strategy") == 0,
				template: 1, behind: map[int]bool{}}
			d.unavailable = max(1-d.surge, 0)
			d.whole(f.now)
			f.pools = append(f.pools, d)
			f.policy.Groups = append(f.policy.Groups, quoinv1.RolloutGroup{Name: d.name,
				MachineDeployments: quoinv1.RolloutSelector{Names: []string{d.name}}})
		}
		f.policy.Groups = rapid.Permutation(f.policy.Groups).Draw(t, "policy")
		f.policy.Concurrency = ptr.To(rapid.Int32Range(1, 2).Draw(t, "at once"))
		listed := rapid.Permutation(f.pools).Draw(t, "topology")
		most := rapid.IntRange(1, len(listed)-1).Draw(t, "upgraded at once")
		step := func() {
			f.decide()
			f.moves()
			f.now = f.now.Add(tick)
		}
		step()
		for _, d := range f.pools {
			if rapid.Bool().Draw(t, "has another template before") {
				d.template++
			}
		}
		for range rapid.IntRange(0, 40).Draw(t, "steps") {
			step()
		}
		upgraded := map[string]int{}
		for _, d := range f.pools {
			for template := range d.template {
				d.behind[template+1] = true
			}
		}
		for range 2000 {
			upgrading := 0
			for _, d := range listed {
				of := upgraded[d.name]
				if of > 0 && d.of(of, func(*node) bool { return true }) < len(d.machines) {
					upgrading++
				}
			}
			for _, d := range listed {
				if upgraded[d.name] == 0 && upgrading < most {
					d.template++
					upgraded[d.name] = d.template
					upgrading++
				}
			}
			step()
			if len(upgraded) == len(listed) && f.settled() {
				return
			}
		}
		t.Fatalf("it does not end: %s, %v is upgraded\n%s%v", f.draw(), upgraded, f.says(), f.lines())
	})
}

// A version that would not start is a person's to correct, and no other pool waits until that is done.
func TestNobodyWaitsForAVersionThatWouldNotStart(t *testing.T) {
	g := NewWithT(t)
	blue := Pool{Name: "blue", Replicas: 1, Revision: "2", Completed: "1", Stock: Limits{Surge: 1},
		Unsupported: "it is newer than the API servers",
		Machines:    []Machine{serving("blue-1"), {Name: "blue-2", Created: eight}}}
	cyan := blue
	cyan.Name, cyan.Unsupported = "cyan", ""
	cyan.Machines = []Machine{serving("cyan-1"), {Name: "cyan-2", Created: eight}}
	g.Expect(Plan(State{Pools: []Pool{blue, cyan}}, &quoinv1.RolloutPolicySpec{}, eight).Decisions).To(ConsistOf(
		And(HaveField("Machine", "blue-2"), HaveField("Reason", ControlPlane)),
		And(HaveField("Machine", "cyan-2"), HaveField("Action", Admit))))
	on := Machine{Name: "blue-3", Admitted: eight, Hosted: true, Gated: true, Created: eight}
	blue.Machines = append(blue.Machines, on)
	g.Expect(Plan(State{Pools: []Pool{blue, cyan}}, &quoinv1.RolloutPolicySpec{}, eight).Decisions).To(ContainElement(
		And(HaveField("Machine", "cyan-2"), HaveField("Reason", Previous))), "what has a host goes on")
}
