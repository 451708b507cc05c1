// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"errors"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/etcd"
)

// A Node that is taken from under its kubelet, or from a member of etcd, does not come back by itself.
func TestNodesThatOutliveTheirMachine(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*Observation, *corev1.Node)
		orphan bool
	}{
		"gone for good": {func(*Observation, *corev1.Node) {}, true},
		"it reports": {func(_ *Observation, n *corev1.Node) {
			n.Status.Conditions[1].Status = corev1.ConditionTrue
		}, false},
		"being deleted": {func(_ *Observation, n *corev1.Node) { n.DeletionTimestamp = ptr.To(metav1.Now()) }, false},
		"nobody's":      {func(_ *Observation, n *corev1.Node) { n.Annotations[clusterv1.MachineAnnotation] = "" }, false},
		"of another Cluster": {func(_ *Observation, n *corev1.Node) {
			n.Annotations[clusterv1.ClusterNameAnnotation] = "d"
		}, false},
		"of another namespace": {func(_ *Observation, n *corev1.Node) {
			n.Annotations[clusterv1.ClusterNamespaceAnnotation] = "d"
		}, false},
		"its host is claimed": {func(o *Observation, n *corev1.Node) { o.claimed[n.Spec.ProviderID] = true }, false},
		"its Machine is there": {func(o *Observation, _ *corev1.Node) {
			o.Machines.Insert(&clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "gone"}})
		}, false},
		"a member of etcd": {func(o *Observation, _ *corev1.Node) {
			o.Etcd.Cluster.Members = append(o.Etcd.Cluster.Members, etcd.Member{Name: "n-gone"})
		}, false},
		"nobody knows of etcd": {func(o *Observation, _ *corev1.Node) { o.Etcd.Err = errors.New("down") }, false},
		"etcd runs elsewhere": {func(o *Observation, _ *corev1.Node) {
			o.Etcd.Err = errors.New("down")
			external(o)
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			o := threeMembers()
			o.Cluster = &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "c"}}
			o.claimed = map[string]bool{}
			orphan := func(name string) *corev1.Node {
				node := readyNode("n-" + name)
				node.Annotations = map[string]string{clusterv1.MachineAnnotation: name,
					clusterv1.ClusterNameAnnotation: "c", clusterv1.ClusterNamespaceAnnotation: namespace}
				node.Spec.ProviderID = "quoin://hosts/" + name + "/1"
				node.Status.Conditions[1].Status = corev1.ConditionUnknown
				return node
			}
			node := orphan("gone")
			o.Workload.Nodes = map[string]*corev1.Node{"n-gone": node}
			want := []string(nil)
			if test.orphan {
				// Named in order, whatever the map has first.
				for _, other := range []string{"x", "y", "z", "v", "w"} {
					o.Workload.Nodes["n-"+other] = orphan(other)
				}
				want = []string{"n-gone", "n-v", "n-w", "n-x", "n-y", "n-z"}
			}
			test.change(o, node)
			NewWithT(t).Expect(o.orphanNodes()).To(Equal(want))
		})
	}
}

func external(o *Observation) {
	o.ControlPlane.Spec.KubeadmConfigSpec.ClusterConfiguration.Etcd.External = bootstrapv1.ExternalEtcd{
		Endpoints: []string{"https://etcd.test:2379"}}
}

// While nobody can read Nodes, one that a Machine had is named as its host registers it.
func TestANodeThatCannotBeReadIsNamedByItsHost(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*infrav1.QuoinMachine, *clusterv1.Machine)
		node   string
	}{
		"it was a node": {func(*infrav1.QuoinMachine, *clusterv1.Machine) {}, "n-a"},
		"named already": {func(_ *infrav1.QuoinMachine, m *clusterv1.Machine) { m.Status.NodeRef.Name = "n-b" }, "n-b"},
		"it never was":  {func(_ *infrav1.QuoinMachine, m *clusterv1.Machine) { m.Spec.ProviderID = "" }, ""},
		"its data have not run": {func(infra *infrav1.QuoinMachine, _ *clusterv1.Machine) {
			infra.Status.Initialization.Provisioned = nil
		}, ""},
		"nobody knows its host's name yet": {func(infra *infrav1.QuoinMachine, _ *clusterv1.Machine) {
			infra.Status.Addresses = infra.Status.Addresses[:1]
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			g, read := NewWithT(t), &members{}
			inv, sources, _ := hosted(t, read)
			sources.Workloads = &workload{live: unreadable()}
			infra, machine := inv.QuoinMachines["a"], inv.Machines["a"]
			infra.Status.Addresses = []clusterv1.MachineAddress{{Type: clusterv1.MachineInternalIP, Address: "192.0.2.9"},
				{Type: clusterv1.MachineHostName, Address: "n-a"}}
			machine.Spec.ProviderID, machine.Status.NodeRef.Name = infra.Spec.ProviderID, ""
			test.change(infra, machine)
			before := machine.DeepCopy()
			o, err := sources.Observe(t.Context(), inv)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(o.State.Reachable || o.Answered()).To(BeFalse())
			g.Expect(o.Machines["a"].Status.NodeRef.Name).To(Equal(test.node))
			g.Expect(len(read.asked) > 0).To(Equal(test.node != ""), "etcd is read through hosts of nodes")
			g.Expect(machine).To(Equal(before), "it is written nowhere")
		})
	}
}

// A Machine that has joined has a Node, which Cluster API names a moment later.
func TestANodeIsNamedByItsProviderID(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*Inventory, *clusterv1.Machine)
		node   string
	}{
		"joined":          {func(*Inventory, *clusterv1.Machine) {}, "n-a"},
		"named already":   {func(_ *Inventory, m *clusterv1.Machine) { m.Status.NodeRef.Name = "n-b" }, "n-b"},
		"being deleted":   {func(_ *Inventory, m *clusterv1.Machine) { m.DeletionTimestamp = ptr.To(metav1.Now()) }, ""},
		"without a host":  {func(inv *Inventory, _ *clusterv1.Machine) { inv.Hosts = nil }, ""},
		"without a claim": {func(inv *Inventory, _ *clusterv1.Machine) { inv.QuoinMachines["a"].Spec.ProviderID = "" }, ""},
		"without parts":   {func(inv *Inventory, _ *clusterv1.Machine) { inv.QuoinMachines = nil }, ""},
		"still joining": {func(inv *Inventory, _ *clusterv1.Machine) {
			inv.QuoinMachines["a"].Status.Initialization.Provisioned = nil
		}, ""},
		"its data ran, which its QuoinMachine does not say yet": {func(inv *Inventory, _ *clusterv1.Machine) {
			inv.QuoinMachines["a"].Status.Initialization.Provisioned = nil
			inv.Hosts["a"].Status.Operation = &infrav1.HostOperation{ID: infrav1.ProvisionOperation("1"),
				Phase: infrav1.HostOperationSucceeded}
		}, "n-a"},
	} {
		t.Run(name, func(t *testing.T) {
			g, inv := NewWithT(t), joined()
			machine := inv.Machines["a"]
			machine.Status.NodeRef.Name = ""
			infra := &infrav1.QuoinMachine{}
			infra.Spec.ProviderID = infrav1.ProviderID("hosts", "h", "1")
			infra.Status.Initialization.Provisioned = ptr.To(true)
			inv.QuoinMachines["a"], inv.Hosts["a"] = infra, &infrav1.QuoinHost{}
			node, stranger := readyNode("n-a"), readyNode("stranger")
			node.Spec.ProviderID = infra.Spec.ProviderID
			test.change(inv, machine)
			before := machine.DeepCopy()
			named := inv.nameNodes(map[string]*corev1.Node{"n-a": node, "stranger": stranger})
			g.Expect(named).To(HaveLen(1))
			g.Expect(named["a"].Status.NodeRef.Name).To(Equal(test.node))
			g.Expect(machine).To(Equal(before), "it is written nowhere")
		})
	}
}
