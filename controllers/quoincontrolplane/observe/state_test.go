// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"errors"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/collections"
	"sigs.k8s.io/cluster-api/util/conditions"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/placement"
)

var noon = time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)

// atNoon observes one Machine a, which serves.
func atNoon() *Observation {
	o := &Observation{Inventory: *joined(), At: noon}
	o.ControlPlane.Namespace, o.ControlPlane.Name = namespace, "plane"
	o.Machines["a"].CreationTimestamp = metav1.NewTime(time.Unix(7, 0))
	infra := &infrav1.QuoinMachine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "a"}}
	infra.Spec.ProviderID = infrav1.ProviderID("hosts", "h", "1")
	o.QuoinMachines["a"] = infra
	host := &infrav1.QuoinHost{ObjectMeta: metav1.ObjectMeta{Namespace: "hosts", Name: "h"}}
	host.Spec.ConsumerRef = &infrav1.ConsumerReference{Claim: "1"}
	o.Hosts["a"] = host
	o.Workload = Workload{Connected: true, Health: map[string]Health{"a": {seen: true, Serving: true}}}
	return o
}

// Each thing that is read of a Machine is one thing that a decision knows, and nothing else changes by it.
func TestWhatADecisionKnowsOfAMachine(t *testing.T) {
	type machine = controlplane.Machine
	claimed := func(o *Observation) { o.Machines["a"].Status.NodeRef.Name = "" }
	deleted := func(o *Observation) { o.Machines["a"].DeletionTimestamp = ptr.To(metav1.NewTime(time.Unix(9, 0))) }
	running := func(since time.Duration) func(*Observation) {
		return func(o *Observation) {
			o.Hosts["a"].Status.Operation = &infrav1.HostOperation{ID: infrav1.ProvisionOperation("1"),
				Phase: infrav1.HostOperationRunning, Step: infrav1.HostOperationStepJoin,
				Since: ptr.To(metav1.NewTime(noon.Add(-since)))}
		}
	}
	expiring := func(in time.Duration) func(*Observation) {
		return func(o *Observation) { o.Machines["a"].Status.CertificatesExpiryDate = metav1.NewTime(noon.Add(in)) }
	}
	template := func(o *Observation) { o.request = &placement.Request{Namespace: namespace} }
	bound := func(o *Observation) {
		o.Machines["a"].Spec.FailureDomain = "rack"
		o.Template = withTemplate().Template
	}
	deleting := func(reason string) func(*Observation) {
		return func(o *Observation) {
			conditions.Set(o.Machines["a"], metav1.Condition{Type: clusterv1.MachineDeletingCondition,
				Status: metav1.ConditionTrue, Reason: reason})
		}
	}
	hooked := func(o *Observation) {
		o.QuoinMachines["a"].Spec.LifecycleHooks.PreTerminate = []infrav1.LifecycleHook{{Name: "another"},
			{Name: controlplanev1.HookName}}
	}
	for name, test := range map[string]struct {
		changes []func(*Observation)
		want    func(*machine)
	}{
		"nothing": {nil, func(*machine) {}},
		"version": {[]func(*Observation){func(o *Observation) { o.Machines["a"].Spec.Version = "v1.35.4" }},
			func(m *machine) { m.Version = "v1.35.4" }},
		"outdated by one thing": {[]func(*Observation){func(o *Observation) {
			o.Outdated = map[string][]string{"a": {"Version"}}
		}}, func(m *machine) { m.UpToDate = false }},
		"ill, and seen": {[]func(*Observation){func(o *Observation) {
			o.Workload.Health["a"] = Health{seen: true, Problem: "ill"}
		}}, func(m *machine) { m.Healthy, m.Serving, m.Problem = false, false, "ill" }},
		"its Node is being deleted": {[]func(*Observation){func(o *Observation) {
			o.Workload.Health["a"] = Health{seen: true, goes: true, Serving: true}
		}}, func(m *machine) { m.Registered = false }},
		"not seen": {[]func(*Observation){func(o *Observation) { o.Workload.Health = nil }},
			func(m *machine) { m.Healthy, m.Serving, m.Registered = false, false, false }},
		"its kubelet says so": {[]func(*Observation){func(o *Observation) {
			o.Workload.Health["a"] = Health{seen: true, Serving: true, kubelet: "v1.36.1"}
			o.Machines["a"].Status.NodeInfo = &corev1.NodeSystemInfo{KubeletVersion: "v1.36.2"}
		}}, func(m *machine) { m.Kubelet = "v1.36.1" }},
		"Cluster API says so": {[]func(*Observation){func(o *Observation) {
			o.Machines["a"].Status.NodeInfo = &corev1.NodeSystemInfo{KubeletVersion: "v1.36.2"}
		}}, func(m *machine) { m.Kubelet = "v1.36.2" }},
		"deleted": {[]func(*Observation){deleted}, func(m *machine) { m.Deleting, m.DeletedAt = true, 9 }},

		"its certificates last for a day": {[]func(*Observation){expiring(24 * time.Hour)}, func(*machine) {}},
		"its certificates last for less": {[]func(*Observation){expiring(24*time.Hour - time.Second)},
			func(m *machine) { m.CertificatesExpire = true }},
		"its certificates are about to end": {[]func(*Observation){expiring(time.Second)},
			func(m *machine) { m.CertificatesExpire = true }},
		"its certificates have ended": {[]func(*Observation){expiring(0)},
			func(m *machine) { m.CertificatesExpire, m.CertificatesEnded = true, "2026-11-28T12:00:00Z" }},
		"preferred": {[]func(*Observation){func(o *Observation) {
			note(o.Machines["a"], clusterv1.DeleteMachineAnnotation)
		}}, func(m *machine) { m.Preferred = true }},
		"held before its drain": {[]func(*Observation){func(o *Observation) {
			note(o.Machines["a"], controlplanev1.PreDrainHookAnnotation)
		}}, func(m *machine) { m.DrainHook = true }},
		"held before its end": {[]func(*Observation){func(o *Observation) {
			note(o.Machines["a"], controlplanev1.PreTerminateHookAnnotation)
		}}, func(m *machine) { m.Hook = true }},
		"its host is held": {[]func(*Observation){hooked}, func(m *machine) { m.Hook = true }},
		"held by others": {[]func(*Observation){func(o *Observation) {
			o.Machines["a"].Annotations = map[string]string{}
			for _, hook := range []string{"z", "y", "x", "w", "v"} {
				o.Machines["a"].Annotations[clusterv1.PreTerminateDeleteHookAnnotationPrefix+"/"+hook] = ""
			}
		}}, func(m *machine) {
			for _, hook := range []string{"v", "w", "x", "y", "z"} {
				m.OtherHooks = append(m.OtherHooks, clusterv1.PreTerminateDeleteHookAnnotationPrefix+"/"+hook)
			}
		}},
		"at its end": {[]func(*Observation){deleting(clusterv1.MachineDeletingWaitingForPreTerminateHookReason)},
			func(m *machine) { m.AtTermination = true }},
		"its drain": {[]func(*Observation){deleting(clusterv1.MachineDeletingDrainingNodeReason)}, func(*machine) {}},
		"its end is said to be over": {[]func(*Observation){func(o *Observation) {
			conditions.Set(o.Machines["a"], metav1.Condition{Type: clusterv1.MachineDeletingCondition,
				Status: metav1.ConditionFalse, Reason: clusterv1.MachineDeletingWaitingForPreTerminateHookReason})
		}}, func(*machine) {}},
		"its infrastructure goes, which we hold": {[]func(*Observation){hooked,
			deleting(clusterv1.MachineDeletingWaitingForInfrastructureDeletionReason)},
			func(m *machine) { m.Hook, m.AtTermination = true, true }},
		"its infrastructure goes": {[]func(*Observation){
			deleting(clusterv1.MachineDeletingWaitingForInfrastructureDeletionReason)},
			func(*machine) {}},
		"bootstrapped": {[]func(*Observation){func(o *Observation) {
			o.QuoinMachines["a"].Status.Initialization.Provisioned = ptr.To(true)
		}}, func(m *machine) { m.Bootstrapped, m.Joined = true, true }},
		"without a Node": {[]func(*Observation){claimed, func(o *Observation) {
			conditions.Set(o.QuoinMachines["a"], metav1.Condition{Type: infrav1.MachineReadyCondition,
				Status: metav1.ConditionFalse, Reason: "R", Message: "it waits"})
		}}, func(m *machine) { m.Node, m.Problem = "", "it waits" }},
		"with a Node its QuoinMachine is not asked": {[]func(*Observation){func(o *Observation) {
			conditions.Set(o.QuoinMachines["a"], metav1.Condition{Type: infrav1.MachineReadyCondition,
				Status: metav1.ConditionFalse, Reason: "R", Message: "it waits"})
		}}, func(*machine) {}},
		"joining": {[]func(*Observation){running(KubeadmIsNew - 1)},
			func(m *machine) { m.Joining, m.KubeadmBegan = true, true }},
		"joining for long": {[]func(*Observation){running(KubeadmIsNew)}, func(m *machine) { m.Joining = true }},
		"joining by a clock ahead": {[]func(*Observation){running(1 - KubeadmIsNew)},
			func(m *machine) { m.Joining, m.KubeadmBegan = true, true }},
		"joining by a clock far ahead": {[]func(*Observation){running(-KubeadmIsNew)}, func(m *machine) { m.Joining = true }},
		"joining, before kubeadm": {[]func(*Observation){running(0), func(o *Observation) {
			o.Hosts["a"].Status.Operation.Step = "Install"
		}}, func(m *machine) { m.Joining = true }},
		"joining since nobody knows when": {[]func(*Observation){running(0), func(o *Observation) {
			o.Hosts["a"].Status.Operation.Since = nil
		}}, func(m *machine) { m.Joining = true }},
		"silent for long": {[]func(*Observation){running(0), func(o *Observation) {
			o.Hosts["a"].Status.UnreachableSince = ptr.To(metav1.NewTime(noon.Add(-time.Hour)))
		}}, func(*machine) {}},
		"joining, before it began": {[]func(*Observation){running(0), func(o *Observation) {
			o.Hosts["a"].Status.Operation.Phase = infrav1.HostOperationNotStarted
		}}, func(*machine) {}},
		"its join failed": {[]func(*Observation){running(0), func(o *Observation) {
			o.Hosts["a"].Status.Operation.Phase = infrav1.HostOperationFailed
		}}, func(*machine) {}},
		"another one joins": {[]func(*Observation){running(0), func(o *Observation) {
			o.Hosts["a"].Status.Operation.ID = infrav1.ProvisionOperation("2")
		}}, func(*machine) {}},
		"joining for nobody": {[]func(*Observation){running(0), func(o *Observation) {
			o.QuoinMachines["a"].Spec.ProviderID = ""
			o.Hosts["a"].Status.Operation.ID = infrav1.ProvisionOperation("")
		}}, func(*machine) {}},
		"joined": {[]func(*Observation){running(0), func(o *Observation) {
			o.Hosts["a"].Status.Operation.Phase = infrav1.HostOperationSucceeded
		}}, func(m *machine) { m.Joined = true }},
		"its host does not return": {[]func(*Observation){template}, func(m *machine) {
			m.NoReturn = string(placement.NoReturn(placement.Request{Namespace: namespace},
				placement.HostOf(atNoon().Hosts["a"])))
		}},
		"no host of its failure domain": {[]func(*Observation){bound},
			func(m *machine) { m.FailureDomain, m.NoHost = "rack", true }},
		"a free host of its failure domain": {[]func(*Observation){bound, func(o *Observation) {
			o.freeDomains = map[string]int{"rack": 1}
		}}, func(m *machine) { m.FailureDomain = "rack" }},
		"a host of its failure domain to come": {[]func(*Observation){bound, func(o *Observation) {
			o.pendingDomains = map[string]int{"rack": 1}
		}}, func(m *machine) { m.FailureDomain = "rack" }},
		"a free host of its failure domain, and one to come": {[]func(*Observation){bound, func(o *Observation) {
			o.freeDomains, o.pendingDomains = map[string]int{"rack": 1}, map[string]int{"rack": 1}
		}}, func(m *machine) { m.FailureDomain = "rack" }},
		"nobody knows the hosts of its failure domain": {[]func(*Observation){bound, func(o *Observation) {
			o.Template = nil
		}}, func(m *machine) { m.FailureDomain = "rack" }},
		"its host has a failure domain": {[]func(*Observation){bound, func(o *Observation) {
			o.Template = nil
			o.QuoinMachines["a"].Status.FailureDomain = "here"
		}}, func(m *machine) { m.FailureDomain = "here" }},
		"without parts": {[]func(*Observation){func(o *Observation) { o.QuoinMachines = nil }}, func(*machine) {}},
	} {
		t.Run(name, func(t *testing.T) {
			o := atNoon()
			for _, change := range test.changes {
				change(o)
			}
			want := machine{Name: "a", Created: 7, HostClaimed: true, Node: "n-a", UpToDate: true, Healthy: true,
				Serving: true, Registered: true}
			test.want(&want)
			NewWithT(t).Expect(o.stateOf(o.Machines["a"])).To(Equal(want))
		})
	}
}

// Each thing that is read of a control plane is one thing that a decision knows, and nothing else changes by it.
func TestWhatADecisionKnowsOfAControlPlane(t *testing.T) {
	type state = controlplane.State
	cluster := func(change func(*clusterv1.Cluster)) func(*Observation) {
		return func(o *Observation) { change(o.Cluster) }
	}
	for name, test := range map[string]struct {
		change func(*Observation)
		want   func(*state)
	}{
		"nothing": {func(*Observation) {}, func(*state) {}},
		"replicas": {func(o *Observation) { o.ControlPlane.Spec.Replicas = ptr.To[int32](3) },
			func(s *state) { s.Replicas = 3 }},
		"etcd elsewhere": {external, func(s *state) { s.StackedEtcd = false }},
		"deleted": {func(o *Observation) { o.ControlPlane.DeletionTimestamp = ptr.To(metav1.Now()) },
			func(s *state) { s.Deleting = true }},
		"its Cluster is deleted": {cluster(func(c *clusterv1.Cluster) { c.DeletionTimestamp = ptr.To(metav1.Now()) }),
			func(s *state) { s.ClusterDeleting = true }},
		"certificates": {func(o *Observation) { o.Certificates = &metav1.Condition{Status: metav1.ConditionTrue} },
			func(s *state) { s.Certificates = true }},
		"no certificates": {func(o *Observation) { o.Certificates = &metav1.Condition{Status: metav1.ConditionFalse} },
			func(*state) {}},
		"initialized": {func(o *Observation) {
			o.ControlPlane.Status.Initialization.ControlPlaneInitialized = ptr.To(true)
		}, func(s *state) { s.Initialized, s.Unanswered = true, false }},
		"a Machine that was a node, and no status": {func(o *Observation) {
			o.Machines["a"].Spec.ProviderID = o.QuoinMachines["a"].Spec.ProviderID
		}, func(s *state) { s.Initialized = true }},
		"initialized by its condition": {func(o *Observation) {
			conditions.Set(o.ControlPlane, metav1.Condition{Type: controlplanev1.ControlPlaneInitializedCondition,
				Status: metav1.ConditionTrue, Reason: "R"})
		}, func(s *state) { s.Initialized, s.Unanswered = true, false }},
		"no connection": {func(o *Observation) { o.Workload.Connected = false }, func(s *state) { s.Reachable = false }},
		"unreadable": {func(o *Observation) { o.Workload.Err = errors.New("down") },
			func(s *state) { s.Reachable = false }},
		"its configuration": {func(o *Observation) { o.Workload.ConfigVersion = "v1.35.4" },
			func(s *state) { s.ConfigVersion = "v1.35.4" }},
		"add-ons": {func(o *Observation) { o.Workload.AddonsCurrent = true }, func(s *state) { s.AddonsCurrent = true }},
		"kube-proxy is held": {func(o *Observation) { o.Workload.ProxyHeld = "why" },
			func(s *state) { s.ProxyHeld = true }},
		"unknown add-ons": {func(o *Observation) { o.Workload.AddonsErr = errors.New("why") },
			func(s *state) { s.AddonsProblem = "why" }},
		"the add-ons' version": {func(o *Observation) { o.Workload.AddonsVersion = "v1.35.4" },
			func(s *state) { s.AddonsVersion = "v1.35.4" }},
		"spare hosts": {func(o *Observation) { o.Spare.Free = 2 }, func(s *state) { s.Spare.Free = 2 }},
		"workers":     {func(o *Observation) { o.Workers = []string{"v", "w"} }, func(s *state) { s.Workers = 2 }},
		"left behind": {func(o *Observation) { o.LeftBehind = "w" }, func(s *state) { s.LeftBehind = "w" }},
		"no window":   {func(o *Observation) { o.Window.Closed = "night" }, func(s *state) { s.Window = "night" }},
		"a version to come": {cluster(func(c *clusterv1.Cluster) {
			c.Spec.Topology.ClassRef.Name, c.Spec.Topology.Version = "class", "v1.37.0"
		}), func(s *state) { s.AwaitedVersion = "version v1.37.0 has yet to come from the Cluster's topology" }},
		"a step to come": {cluster(func(c *clusterv1.Cluster) {
			c.Annotations = map[string]string{clusterv1.ClusterTopologyUpgradeStepAnnotation: "v1.36.4"}
			c.Spec.Topology.ClassRef.Name, c.Spec.Topology.Version = "class", "v1.37.0"
		}), func(s *state) { s.AwaitedVersion = "version v1.36.4 has yet to come from the Cluster's topology" }},
		"its version has come": {cluster(func(c *clusterv1.Cluster) {
			c.Spec.Topology.ClassRef.Name, c.Spec.Topology.Version = "class", "v1.36.3"
		}), func(*state) {}},
		"a strategy": {func(o *Observation) {
			o.ControlPlane.Spec.Rollout.Strategy = controlplanev1.RolloutStrategyType(controlplane.Surge)
		}, func(s *state) { s.Strategy = controlplane.Surge }},
		"backups": {func(o *Observation) { o.ControlPlane.Spec.Backup = &controlplanev1.EtcdBackup{} },
			func(s *state) { s.Backup = controlplane.Backup{Wanted: true, Last: "there is none yet"} }},
		"in flight": {func(o *Observation) {
			o.ControlPlane.Status.Operation = &controlplanev1.ControlPlaneOperation{Type: "ScaleUp", Machine: "a"}
		}, func(s *state) { s.InFlight = controlplane.InFlight{Operation: "ScaleUp", Machine: "a"} }},
		"members to remove": {func(o *Observation) {
			o.ControlPlane.Annotations = map[string]string{controlplanev1.RemoveEtcdMemberAnnotation: "ff"}
		}, func(s *state) { s.RemoveMembers = []uint64{255} }},
		"a stale host": {func(o *Observation) {
			o.Hosts["a"].Status.Conditions = []metav1.Condition{{Type: "Some", Status: metav1.ConditionTrue,
				Reason: infrav1.HostStaleClaimReason}, {Type: "Other", Status: metav1.ConditionFalse,
				Reason: infrav1.HostStaleClaimReason, Message: "newer"}}
		}, func(s *state) { s.StaleHosts = []controlplane.StaleHost{{Name: "hosts/h", Message: "newer"}} }},
	} {
		t.Run(name, func(t *testing.T) {
			g, o := NewWithT(t), atNoon()
			test.change(o)
			o.fillState()
			g.Expect(o.State.Machines).To(HaveLen(1))
			o.State.Machines, o.State.Etcd = nil, state{}.Etcd
			want := state{Name: "-n default plane", Replicas: 1, Version: "v1.36.3", StackedEtcd: true, Reachable: true,
				Unanswered: true}
			test.want(&want)
			g.Expect(o.State).To(Equal(want))
		})
	}
}

// Images are brought to the hosts of all Machines of the Cluster that stay.
func TestWhatADecisionKnowsOfHosts(t *testing.T) {
	g, o := NewWithT(t), atNoon()
	wanted := o.ControlPlane.Spec.Version
	o.versions, o.unfit = map[string]string{"i-a": wanted, "w": "v1.35.4"}, map[string]string{"w": "detached"}
	o.Workload.AddonsVersion = "v1.35.4"
	own, worker, going := *o.QuoinMachines["a"], infrav1.QuoinMachine{}, infrav1.QuoinMachine{}
	own.Name, worker.Name, going.Name, going.DeletionTimestamp = "i-a", "w", "gone", ptr.To(metav1.Now())
	own.Status.Initialization.Provisioned = ptr.To(true)
	own.Spec.AddonVersions, own.Status.AddonVersions = []string{"v1.34.0", wanted}, []string{"v1.35.4"}
	worker.Spec.AddonVersions, worker.Status.AddonVersions = []string{"v1.35.4"}, []string{wanted}
	o.QuoinMachines["a"] = &own
	o.ClusterQuoinMachines = []infrav1.QuoinMachine{going, own, worker}
	o.fillState()
	g.Expect(o.State.Hosts).To(Equal([]controlplane.Host{
		{Name: "i-a", Version: wanted, Machine: "a", Provisioned: true, Requested: true, PresentRunning: true},
		{Name: "w", Version: "v1.35.4", Unfit: "detached", Present: true, RequestedRunning: true},
	}))
}

// Whatever names a host to others may stand in the peer URL of its member, in whatever way it is written.
func TestWhichAddressesAMemberMayHave(t *testing.T) {
	g, o := NewWithT(t), atNoon()
	addresses := func() []string { return o.addressesOf(o.Machines["a"]) }
	g.Expect(addresses()).To(BeEmpty())
	o.Hosts["a"].Spec.NodeNetwork.Addresses = []string{"192.0.2.3"}
	g.Expect(addresses()).To(Equal([]string{"192.0.2.3"}))
	o.Hosts["a"].Status.Facts = &infrav1.HostFacts{NodeAddresses: []string{"2001:DB8:0::4"}}
	o.QuoinMachines["a"].Status.Addresses = []clusterv1.MachineAddress{{Address: "2001:db8:0:0::2"}}
	o.Machines["a"].Status.Addresses = []clusterv1.MachineAddress{{Address: "H.test"}, {Address: "192.0.2.1"}}
	g.Expect(addresses()).To(Equal([]string{"H.test", "192.0.2.1", "2001:db8::2", "192.0.2.3", "2001:db8::4"}))
	g.Expect(o.Hosts["a"].Status.Facts.NodeAddresses).To(Equal([]string{"2001:DB8:0::4"}), "it is the cache's own")
	o.QuoinMachines, o.Hosts = nil, nil
	g.Expect(addresses()).To(Equal([]string{"H.test", "192.0.2.1"}))
}

// A Machine that was made ahead has no host yet, and is left alone no longer than it may be of use.
func TestWhatADecisionKnowsOfAPreCreatedMachine(t *testing.T) {
	type part = controlplane.PreCreatedMachine
	made := func(o *Observation, age time.Duration) {
		o.Machines["a"].CreationTimestamp = metav1.NewTime(noon.Add(-age))
	}
	for name, test := range map[string]struct {
		change func(*Observation)
		unfit  string
		part   bool
	}{
		"new":        {func(*Observation) {}, "", false},
		"at its end": {func(o *Observation) { made(o, PreCreatedLife) }, "", false},
		"too old": {func(o *Observation) { made(o, PreCreatedLife+1) }, "it was made more than 3m0s ago",
			false},
		"outdated": {func(o *Observation) { o.Outdated = map[string][]string{"a": {"Version"}} }, "it is outdated", false},
		"given up": {func(o *Observation) {
			conditions.Set(o.Machines["a"], metav1.Condition{Type: clusterv1.MachineHealthCheckSucceededCondition,
				Status: metav1.ConditionFalse, Reason: "R"})
		}, "its health check gave it up", false},
		"well": {func(o *Observation) {
			conditions.Set(o.Machines["a"], metav1.Condition{Type: clusterv1.MachineHealthCheckSucceededCondition,
				Status: metav1.ConditionTrue, Reason: "R"})
		}, "", false},
		"not listed yet": {func(o *Observation) {
			made(o, 10*time.Second)
			o.QuoinMachines = nil
		}, "", false},
		"not listed at all": {func(o *Observation) {
			made(o, 10*time.Second+1)
			o.QuoinMachines = nil
		}, "its QuoinMachine is going or gone", false},
		"going": {func(o *Observation) {
			o.QuoinMachines["a"].DeletionTimestamp = ptr.To(metav1.Now())
		}, "its QuoinMachine is going or gone", false},
		"not held": {func(o *Observation) { o.Machines["a"].Annotations = nil }, "", true},
		"deleted":  {func(o *Observation) { o.Machines["a"].DeletionTimestamp = ptr.To(metav1.Now()) }, "", true},
		"not initialized": {func(o *Observation) {
			o.ControlPlane.Status.Initialization.ControlPlaneInitialized = nil
		}, "", true},
		"a Node":        {func(o *Observation) { o.Machines["a"].Status.NodeRef.Name = "n-a" }, "", true},
		"a provider ID": {func(o *Observation) { o.Machines["a"].Spec.ProviderID = "quoin://hosts/h/1" }, "", true},
		"a claim": {func(o *Observation) {
			o.QuoinMachines["a"].Spec.ProviderID = "quoin://hosts/h/1"
		}, "", true},
		"a host": {func(o *Observation) {
			o.QuoinMachines["a"].Status.HostRef = &infrav1.HostReference{}
		}, "", true},
		"a host that says so first": {func(o *Observation) {
			o.fleet = []infrav1.QuoinHost{{}, claimedBy(o.QuoinMachines["a"])}
		}, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			g, o := NewWithT(t), atNoon()
			o.ControlPlane.Status.Initialization.ControlPlaneInitialized = ptr.To(true)
			made(o, time.Second)
			o.Machines["a"].Status.NodeRef.Name, o.QuoinMachines["a"].Spec.ProviderID = "", ""
			o.QuoinMachines["a"].OwnerReferences = []metav1.OwnerReference{{Kind: "Machine", Name: "a", UID: "uid"}}
			o.Machines["a"].Annotations = map[string]string{infrav1.HoldClaimAnnotation: ""}
			o.ClusterQuoinMachines = []infrav1.QuoinMachine{*o.QuoinMachines["a"]}
			test.change(o)
			o.fillState()
			if test.part {
				g.Expect(o.State.PreCreated).To(BeEmpty())
				g.Expect(o.State.Machines).To(HaveLen(1))
				g.Expect(o.Parts()).To(HaveLen(1))
				return
			}
			g.Expect(o.State.PreCreated).To(Equal([]part{{Name: "a", Unfit: test.unfit}}))
			g.Expect(o.State.Machines).To(BeEmpty())
			g.Expect(o.Parts()).To(BeEmpty())
			if len(o.QuoinMachines) > 0 {
				g.Expect(o.State.Hosts).To(BeEmpty(), "its images are nobody's concern yet")
			}
		})
	}
}

func TestOfTwoPreCreatedMachinesTheYoungerIsOfNoUse(t *testing.T) {
	g, o := NewWithT(t), atNoon()
	o.ControlPlane.Status.Initialization.ControlPlaneInitialized = ptr.To(true)
	o.Machines = collections.New()
	o.QuoinMachines = map[string]*infrav1.QuoinMachine{}
	for i, name := range []string{"b", "a"} {
		machine := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Name: name,
			CreationTimestamp: metav1.NewTime(noon.Add(time.Duration(i-2) * time.Second)),
			Annotations:       map[string]string{infrav1.HoldClaimAnnotation: ""}}}
		o.Machines.Insert(machine)
		o.QuoinMachines[name] = &infrav1.QuoinMachine{}
	}
	o.fillState()
	g.Expect(o.State.PreCreated).To(Equal([]controlplane.PreCreatedMachine{{Name: "b"},
		{Name: "a", Unfit: "another one was made ahead, too"}}))
}

// claimedBy is a host with the claim of the QuoinMachine of Machine a.
func claimedBy(infra *infrav1.QuoinMachine) infrav1.QuoinHost {
	host := infrav1.QuoinHost{}
	host.Spec.ConsumerRef = &infrav1.ConsumerReference{Namespace: infra.Namespace, Name: infra.Name, Machine: "a",
		Claim: infrav1.ClaimOf("uid")}
	return host
}
