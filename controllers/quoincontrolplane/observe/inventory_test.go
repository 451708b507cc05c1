// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/collections"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/controllers/quoincontrolplane/desired"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/clienttest"
)

// Bootstrap data are made for Machines that are on their way in.
func TestWhoNeedsNoBootstrapDataGetsNoKubeadmConfig(t *testing.T) {
	for name, change := range map[string]func(*Inventory, *clusterv1.Machine){
		"it has one": func(inv *Inventory, _ *clusterv1.Machine) {
			inv.KubeadmConfigs["m"] = &bootstrapv1.KubeadmConfig{}
		},
		"it is being deleted": func(_ *Inventory, m *clusterv1.Machine) { m.DeletionTimestamp = ptr.To(metav1.Now()) },
		"its data were made":  func(_ *Inventory, m *clusterv1.Machine) { m.Spec.Bootstrap.DataSecretName = ptr.To("m") },
		"it is a node":        func(_ *Inventory, m *clusterv1.Machine) { m.Status.NodeRef.Name = "n" },
		"its data are of a user": func(_ *Inventory, m *clusterv1.Machine) {
			m.Spec.Bootstrap.ConfigRef = clusterv1.ContractVersionedObjectReference{}
		},
		"its QuoinMachine is gone": func(inv *Inventory, _ *clusterv1.Machine) { delete(inv.QuoinMachines, "m") },
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			machine := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "m"}}
			machine.Spec.Bootstrap.ConfigRef.Kind = desired.ConfigKind
			inv := &Inventory{Machines: collections.FromMachines(machine),
				KubeadmConfigs: map[string]*bootstrapv1.KubeadmConfig{},
				QuoinMachines:  map[string]*infrav1.QuoinMachine{"m": {}}}
			g.Expect(inv.Incomplete()).To(ConsistOf(machine))
			change(inv, machine)
			g.Expect(inv.Incomplete()).To(BeEmpty())
		})
	}
}

// While its bootstrap data run nobody knows yet whether they will succeed.
func TestTheNodeOfAMachineThatJoinsIsNotAwaited(t *testing.T) {
	g := NewWithT(t)
	infra := &infrav1.QuoinMachine{}
	infra.Spec.ProviderID = "quoin://hosts/h-m/1"
	inv := &Inventory{Machines: collections.FromMachines(&clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "m"}}),
		QuoinMachines: map[string]*infrav1.QuoinMachine{"m": infra},
		Hosts:         map[string]*infrav1.QuoinHost{"m": {}}}
	g.Expect(inv.awaitsNodes()).To(BeFalse())
	infra.Status.Initialization.Provisioned = ptr.To(true)
	g.Expect(inv.awaitsNodes()).To(BeTrue())
}

var inventoryScheme = clienttest.Scheme(corev1.AddToScheme, clusterv1.AddToScheme, bootstrapv1.AddToScheme,
	infrav1.AddToScheme, quoinv1.AddToScheme)

// managementCluster is one of these objects.
func managementCluster(objects ...client.Object) client.Reader {
	return clienttest.Unmanaged(inventoryScheme).WithObjects(objects...).Build()
}

// subjectC is the control plane of Cluster c.
func subjectC() Subject {
	subject := joined().Subject
	subject.ControlPlane.Namespace, subject.ControlPlane.Name, subject.ControlPlane.UID = namespace, "plane", "plane-uid"
	return subject
}

// metaOfC is that of an object of Cluster c.
func metaOfC(name string, labels ...string) metav1.ObjectMeta {
	object := metav1.ObjectMeta{Namespace: namespace, Name: name}
	object.Labels = map[string]string{clusterv1.ClusterNameLabel: "c"}
	for _, label := range labels {
		object.Labels[label] = ""
	}
	return object
}

// machineOfC is a Machine of the control plane, which the owners own.
func machineOfC(name string, owners ...metav1.OwnerReference) *clusterv1.Machine {
	machine := &clusterv1.Machine{ObjectMeta: metaOfC(name, clusterv1.MachineControlPlaneLabel)}
	machine.Spec.ClusterName, machine.OwnerReferences = "c", owners
	return machine
}

// Machines that nobody controls may be adopted while they and the control plane stay; one that somebody else controls
// is a person's mistake, and nothing is done beside it.
func TestWhoseMachinesAControlPlaneHas(t *testing.T) {
	owned := machineOfC("owned", desired.ControllerRef(subjectC().ControlPlane))
	for name, test := range map[string]struct {
		cached         bool
		change         func(*Subject)
		unowned        *clusterv1.Machine
		names, adopted []string
		err            string
	}{
		"live":   {names: []string{"owned"}, unowned: machineOfC("u"), adopted: []string{"u"}},
		"cached": {names: []string{"cached"}, cached: true},
		"of a control plane that goes": {names: []string{"owned"}, unowned: machineOfC("u"),
			change: func(s *Subject) { s.ControlPlane.DeletionTimestamp = ptr.To(metav1.Now()) }},
		"that go": {names: []string{"owned"}, unowned: func() *clusterv1.Machine {
			machine := machineOfC("u")
			machine.DeletionTimestamp, machine.Finalizers = ptr.To(metav1.Now()), []string{"held"}
			return machine
		}()},
		"of somebody else": {unowned: machineOfC("u", metav1.OwnerReference{Kind: "MachineSet", Name: "s", UID: "s",
			Controller: ptr.To(true)}), err: "control-plane Machine u is labeled as one of this control plane but MachineSet " +
			"s controls it: remove the label " + clusterv1.MachineControlPlaneLabel},
	} {
		t.Run(name, func(t *testing.T) {
			g, subject := NewWithT(t), subjectC()
			if test.change != nil {
				test.change(&subject)
			}
			live := []client.Object{owned}
			if test.unowned != nil {
				live = append(live, test.unowned)
			}
			sources := &Sources{Live: managementCluster(live...),
				Cache: managementCluster(machineOfC("cached", desired.ControllerRef(subject.ControlPlane)))}
			machines, err := sources.Machines(t.Context(), &subject, test.cached)
			if test.err != "" {
				g.Expect(err).To(MatchError(test.err))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(machines.Owned.Names()).To(ConsistOf(test.names))
			var adopted []string
			for _, machine := range machines.Unowned {
				adopted = append(adopted, machine.Name)
			}
			g.Expect(adopted).To(Equal(test.adopted))
		})
	}
}

// What belongs to another Cluster or to workers is not listed, hosts of whatever namespace are.
func TestWhatIsListedForAnInventory(t *testing.T) {
	g, subject := NewWithT(t), subjectC()
	other := metaOfC("other", clusterv1.MachineControlPlaneLabel)
	other.Labels[clusterv1.ClusterNameLabel] = "d"
	elsewhere := metaOfC("elsewhere", clusterv1.MachineControlPlaneLabel)
	elsewhere.Namespace = "elsewhere"
	owned := machineOfC("a", desired.ControllerRef(subject.ControlPlane))
	policy := &quoinv1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "c"}}
	policy.Spec.Windows = []quoinv1.RolloutWindow{{}}
	policy.Spec.ClusterName = "c"
	reader := managementCluster(owned, policy, &clusterv1.Machine{ObjectMeta: metaOfC("w")},
		&infrav1.QuoinMachine{ObjectMeta: metaOfC("a")}, &infrav1.QuoinMachine{ObjectMeta: other},
		&infrav1.QuoinMachine{ObjectMeta: elsewhere}, &bootstrapv1.KubeadmConfig{ObjectMeta: other},
		&bootstrapv1.KubeadmConfig{ObjectMeta: metaOfC("w")}, &bootstrapv1.KubeadmConfig{ObjectMeta: elsewhere},
		&bootstrapv1.KubeadmConfig{ObjectMeta: metaOfC("a", clusterv1.MachineControlPlaneLabel)},
		&infrav1.QuoinHost{ObjectMeta: metav1.ObjectMeta{Namespace: "hosts", Name: "h"}})
	subject.Cluster.Annotations = map[string]string{skew.PolicyAnnotation: "None-Such"}
	lists, err := (&Sources{Cache: reader, Live: reader, Clock: clocktesting.NewFakePassiveClock(noon)}).
		List(t.Context(), subject, false)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(lists.quoinMachines).To(ConsistOf(HaveField("Name", "a")))
	g.Expect(lists.configs).To(ConsistOf(HaveField("Name", "a")))
	g.Expect(lists.all).To(ConsistOf(HaveField("Name", "a"), HaveField("Name", "w")))
	g.Expect(lists.hosts).To(HaveLen(1))
	g.Expect(lists.hostsByKey[client.ObjectKey{Namespace: "hosts", Name: "h"}]).To(BeIdenticalTo(&lists.hosts[0]))
	g.Expect(lists.leftBehind).To(ContainSubstring("correct the annotation"))
	g.Expect(lists.window.Closed).To(ContainSubstring("spec.windows of RolloutPolicy c"))
	g.Expect(lists.Machines.Owned).To(HaveKey("a"))
}

// Where anything cannot be listed there is no inventory: what is missing would look as if it were gone.
func TestWhatCannotBeListedIsSaid(t *testing.T) {
	judged := func(s *Subject) { s.Cluster.Annotations = map[string]string{skew.PolicyAnnotation: "Distribution"} }
	for err, test := range map[string]struct {
		cache, live runtime.Object
		change      func(*Subject)
	}{
		"listing the Cluster's QuoinMachines: down":        {cache: &infrav1.QuoinMachineList{}},
		"listing the Machines of Cluster default/c: down":  {cache: &clusterv1.MachineList{}},
		"listing QuoinHosts: down":                         {cache: &infrav1.QuoinHostList{}},
		"listing the control plane's KubeadmConfigs: down": {cache: &bootstrapv1.KubeadmConfigList{}},
		"read ConfigMap default/quoin-releases: down":      {cache: &corev1.ConfigMap{}, change: judged},
		"listing RolloutPolicies: down":                    {live: &quoinv1.RolloutPolicyList{}},
		"failed to list control plane machines: down":      {live: &clusterv1.MachineList{}},
	} {
		t.Run(err, func(t *testing.T) {
			subject, reader := subjectC(), managementCluster()
			if test.change != nil {
				test.change(&subject)
			}
			sources := &Sources{Cache: reader, Live: reader, Clock: clocktesting.NewFakePassiveClock(noon)}
			if test.cache != nil {
				sources.Cache = &down{reader, test.cache}
			}
			if test.live != nil {
				sources.Live = &down{reader, test.live}
			}
			_, failed := sources.List(t.Context(), subject, false)
			NewWithT(t).Expect(failed).To(MatchError(err))
		})
	}
}

// listsOfC are those of a control plane of one Machine a on host h, of a worker w on host g, a worker v without a host,
// a Machine gone that somebody stripped of its finalizer, and a host kept by nobody knows whom.
func listsOfC() (*Lists, collections.Machines) {
	lists := &Lists{Subject: subjectC(), hostsByKey: map[client.ObjectKey]*infrav1.QuoinHost{}}
	named := func(machine *clusterv1.Machine, version string) *clusterv1.Machine {
		machine.Spec.Version, machine.Spec.InfrastructureRef.Name = version, "i-"+machine.Name
		machine.Spec.Bootstrap.ConfigRef.Name = "c-" + machine.Name
		return machine
	}
	machine := named(machineOfC("a"), "v1.36.3")
	worker := named(&clusterv1.Machine{ObjectMeta: metaOfC("w")}, "v1.35.4")
	lists.all = []clusterv1.Machine{*worker, *named(&clusterv1.Machine{ObjectMeta: metaOfC("v")}, "v1.34.1"), *machine}
	lists.hosts = make([]infrav1.QuoinHost, 4)
	for i, name := range []string{"h", "g", "free", "kept"} {
		host := &lists.hosts[i]
		host.Namespace, host.Name = "hosts", name
		lists.hostsByKey[client.ObjectKeyFromObject(host)] = host
		if name != "free" {
			host.Spec.ConsumerRef = &infrav1.ConsumerReference{Claim: "1"}
		}
		unreachable(host)
	}
	for name, id := range map[string]string{"i-a": "quoin://hosts/h/1", "i-w": "quoin://hosts/g/1",
		"gone": "quoin://hosts/gone/1"} {
		infra := infrav1.QuoinMachine{ObjectMeta: metaOfC(name)}
		infra.Spec.ProviderID = id
		if name == "gone" {
			infra.DeletionTimestamp = ptr.To(metav1.Now())
			infra.Spec.LifecycleHooks.PreTerminate = []infrav1.LifecycleHook{{Name: controlplanev1.HookName,
				Owner: desired.HookOwner(lists.ControlPlane)}}
		}
		lists.quoinMachines = append(lists.quoinMachines, infra)
	}
	lists.configs = []bootstrapv1.KubeadmConfig{{ObjectMeta: metaOfC("c-other")}, {ObjectMeta: metaOfC("c-a")}}
	return lists, collections.FromMachines(machine)
}

func TestAnInventoryHasThePartsOfEachMachine(t *testing.T) {
	g := NewWithT(t)
	lists, machines := listsOfC()
	lists.leftBehind, lists.window.Closed = "left", "night"
	left := metav1.ObjectMeta{Namespace: namespace, Name: "left",
		OwnerReferences: []metav1.OwnerReference{desired.MakerRef(lists.ControlPlane)}}
	lists.quoinMachines = append(lists.quoinMachines, infrav1.QuoinMachine{ObjectMeta: left})
	lists.quoinMachines[3].Spec.ProviderID = "quoin://hosts/left/1"
	lists.configs = append(lists.configs, bootstrapv1.KubeadmConfig{ObjectMeta: left})
	conditions.Set(&lists.all[0], metav1.Condition{Type: clusterv1.MachineNodeReadyCondition,
		Status: metav1.ConditionTrue, Reason: "Ready"})
	sources := &Sources{Live: managementCluster(), Clock: clocktesting.NewFakePassiveClock(noon)}
	inv, err := sources.Inventory(t.Context(), lists, machines)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(inv.Workers).To(Equal([]string{"v", "w"}))
	g.Expect(inv.versions).To(Equal(map[string]string{"i-a": "v1.36.3", "i-v": "v1.34.1", "i-w": "v1.35.4"}))
	g.Expect(inv.unfit).To(Equal(map[string]string{"i-a": "unreachable"}), "the worker's Node is well")
	g.Expect(inv.claimed).To(Equal(map[string]bool{"quoin://hosts/h/1": true, "quoin://hosts/g/1": true,
		"quoin://hosts/gone/1": true, "quoin://hosts/left/1": true, "quoin://hosts/kept/1": true}))
	g.Expect(inv.Machines.Names()).To(ConsistOf("a", "gone"))
	g.Expect(machines).To(HaveLen(1), "what was handed over stays")
	g.Expect(inv.QuoinMachines).To(And(HaveLen(2), HaveKeyWithValue("a", HaveField("Name", "i-a")),
		HaveKeyWithValue("gone", HaveField("Name", "gone"))))
	g.Expect(inv.KubeadmConfigs).To(And(HaveLen(1), HaveKeyWithValue("a", HaveField("Name", "c-a"))))
	g.Expect(inv.Hosts).To(And(HaveLen(1), HaveKeyWithValue("a", BeIdenticalTo(&lists.hosts[0]))))
	g.Expect(inv.Leftovers).To(ConsistOf(BeIdenticalTo(&lists.quoinMachines[3]), BeIdenticalTo(&lists.configs[2])))
	g.Expect(inv.Spare).To(Equal(controlplane.Spare{Free: 1}))
	g.Expect([]string{inv.LeftBehind, inv.Window.Closed}).To(Equal([]string{"left", "night"}))
}

func TestAnInventoryIsWholeOrNone(t *testing.T) {
	for err, test := range map[string]struct {
		of     runtime.Object
		change func(*Lists)
	}{
		"reading the Machine of QuoinMachine gone: down": {&clusterv1.Machine{}, func(l *Lists) {
			for i := range l.quoinMachines {
				l.quoinMachines[i].DeletionTimestamp = nil
				l.quoinMachines[i].Status.Initialization.Provisioned = ptr.To(true)
			}
		}},
		"reading QuoinHost hosts/h: down": {&infrav1.QuoinHost{}, func(l *Lists) {
			delete(l.hostsByKey, client.ObjectKey{Namespace: "hosts", Name: "h"})
			l.hostsByKey[client.ObjectKey{Namespace: "hosts", Name: "gone"}] = &infrav1.QuoinHost{}
		}},
		"reading Secret default/s of file /etc/f: down": {&corev1.Secret{}, func(l *Lists) {
			l.hosts[2].Status.Facts = &infrav1.HostFacts{CgroupVersion: 1, KubeletOnCgroupV1: ptr.To(false)}
			l.ControlPlane.Spec.KubeadmConfigSpec.Files = []bootstrapv1.File{{Path: "/etc/f",
				ContentFrom: bootstrapv1.FileSource{Secret: bootstrapv1.SecretFileSource{Name: "s", Key: "k"}}}}
		}},
		"reading hostNamespaces of QuoinMachineTemplate t: ": {&corev1.Secret{}, func(l *Lists) {
			l.Template = &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
				"template": map[string]any{"spec": map[string]any{"hostNamespaces": "not a list"}}}}}
			l.Template.SetKind("QuoinMachineTemplate")
			l.Template.SetName("t")
		}},
	} {
		t.Run(err, func(t *testing.T) {
			lists, machines := listsOfC()
			test.change(lists)
			sources := &Sources{Live: &down{managementCluster(), test.of}, Clock: clocktesting.NewFakePassiveClock(noon)}
			inv, failed := sources.Inventory(t.Context(), lists, machines)
			NewWithT(t).Expect(failed).To(MatchError(HavePrefix(err)))
			NewWithT(t).Expect(inv).To(BeNil())
		})
	}
}

// What was made for a Machine that never was is left over; what a Machine had, or has, is not.
func TestWhatIsLeftOver(t *testing.T) {
	maker := desired.MakerRef(subjectC().ControlPlane)
	machine := metav1.OwnerReference{Kind: "Machine", Name: "m", UID: "m", Controller: ptr.To(true)}
	for name, test := range map[string]struct {
		change func(*Inventory, *infrav1.QuoinMachine)
		is     bool
	}{
		"nobody's Machine": {func(*Inventory, *infrav1.QuoinMachine) {}, true},
		"not made here": {func(_ *Inventory, infra *infrav1.QuoinMachine) {
			infra.OwnerReferences[0].UID = "other"
		}, false},
		"a Machine had it": {func(_ *Inventory, infra *infrav1.QuoinMachine) {
			infra.OwnerReferences = append(infra.OwnerReferences, machine)
		}, false},
		"its Machine is there": {func(inv *Inventory, _ *infrav1.QuoinMachine) {
			inv.Machines.Insert(machineOfC("m"))
		}, false},
		"it is going": {func(_ *Inventory, infra *infrav1.QuoinMachine) {
			infra.DeletionTimestamp = ptr.To(metav1.Now())
		}, false},
	} {
		infra := &infrav1.QuoinMachine{ObjectMeta: metaOfC("m")}
		inv := &Inventory{Subject: subjectC(), Machines: collections.New()}
		infra.OwnerReferences = []metav1.OwnerReference{maker}
		test.change(inv, infra)
		NewWithT(t).Expect(inv.isLeftover(infra)).To(Equal(test.is), name)
	}
}

// A Machine names its host also when its QuoinMachine was torn away, and a host out of sight of the cache is read.
func TestWhichHostAMachineHas(t *testing.T) {
	torn := func(inv *Inventory) { delete(inv.QuoinMachines, "a") }
	named := func(id string) func(*Inventory) {
		return func(inv *Inventory) { inv.Machines["a"].Spec.ProviderID = id }
	}
	bound := func(host string) func(*Inventory) {
		return func(inv *Inventory) {
			inv.QuoinMachines["a"].Status.HostRef = &infrav1.HostReference{Namespace: "hosts", Name: host}
		}
	}
	unclaimed := func(inv *Inventory) { inv.QuoinMachines["a"].Spec.ProviderID = "" }
	for name, test := range map[string]struct {
		changes []func(*Inventory)
		host    string
		read    bool
	}{
		"listed":                          {nil, "h", false},
		"read":                            {[]func(*Inventory){bound("far")}, "far", true},
		"nowhere":                         {[]func(*Inventory){bound("none")}, "", true},
		"none":                            {[]func(*Inventory){unclaimed}, "", false},
		"none, whatever the Machine says": {[]func(*Inventory){unclaimed, named("quoin://hosts/h/1")}, "", false},
		"torn away":                       {[]func(*Inventory){torn}, "", false},
		"torn away, of which it is known": {[]func(*Inventory){torn, named("quoin://hosts/h/1")}, "h", false},
	} {
		t.Run(name, func(t *testing.T) {
			g, o := NewWithT(t), atNoon()
			listed := map[client.ObjectKey]*infrav1.QuoinHost{{Namespace: "hosts", Name: "h"}: o.Hosts["a"]}
			for _, change := range test.changes {
				change(&o.Inventory)
			}
			sources := &Sources{Live: &down{}}
			if test.read {
				sources.Live = managementCluster(&infrav1.QuoinHost{
					ObjectMeta: metav1.ObjectMeta{Namespace: "hosts", Name: "far"}})
			}
			g.Expect(sources.readHosts(t.Context(), &o.Inventory, listed)).To(Succeed())
			if test.host == "" {
				g.Expect(o.Hosts).To(BeEmpty())
			} else {
				g.Expect(o.Hosts).To(HaveKeyWithValue("a", HaveField("Name", test.host)))
			}
		})
	}
}

// A host that serves another claim by now is not the Machine's any more.
func TestAHostIsAMachinesOwnAsLongAsItsClaimIs(t *testing.T) {
	torn := func(id string) func(*Observation) {
		return func(o *Observation) {
			delete(o.QuoinMachines, "a")
			o.Machines["a"].Spec.ProviderID = id
		}
	}
	for name, test := range map[string]struct {
		change func(*Observation)
		own    bool
	}{
		"it is":                {func(*Observation) {}, true},
		"there is none":        {func(o *Observation) { o.Hosts = nil }, false},
		"it is free":           {func(o *Observation) { o.Hosts["a"].Spec.ConsumerRef = nil }, false},
		"it serves on":         {func(o *Observation) { o.Hosts["a"].Spec.ConsumerRef.Claim = "2" }, false},
		"torn away":            {torn("quoin://hosts/h/1"), true},
		"torn away long since": {torn("quoin://hosts/h/0"), false},
		"neither is anything's": {func(o *Observation) {
			torn("")(o)
			o.Hosts["a"].Spec.ConsumerRef = nil
		}, false},
	} {
		o := atNoon()
		test.change(o)
		want := o.Hosts["a"]
		if !test.own {
			want = nil
		}
		NewWithT(t).Expect(o.OwnHost("a")).To(BeIdenticalTo(want), name)
	}
}

// A Machine whose host nobody knows serves no newer claim.
func TestNoHostIsStale(t *testing.T) {
	o := atNoon()
	NewWithT(t).Expect(o.staleHosts()).To(BeEmpty())
	o.Hosts = nil
	NewWithT(t).Expect(o.staleHosts()).To(BeEmpty())
}
