// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/collections"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/controllers/quoincontrolplane/desired"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/etcd"
)

// orphanNodes are Nodes of this control plane whose Machine and host are gone, and whose kubelet has stopped. A kubelet
// that reports belongs to somebody: a Node that is taken from under it does not come back by itself. Of one that is
// being deleted only somebody else's finalizer is left, and nothing waits for that.
func (o *Observation) orphanNodes() []string {
	var names []string
	for name, node := range o.Workload.Nodes {
		annotations := node.Annotations
		machine := annotations[clusterv1.MachineAnnotation]
		if machine == "" || annotations[clusterv1.ClusterNameAnnotation] != o.Cluster.Name ||
			annotations[clusterv1.ClusterNamespaceAnnotation] != o.Cluster.Namespace ||
			NodeReady(node) == corev1.ConditionTrue || !node.DeletionTimestamp.IsZero() {
			continue
		}
		if !o.claimed[node.Spec.ProviderID] && o.Machines[machine] == nil && !o.isMember(name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// isMember reports whether an etcd member runs there, or that nobody knows.
func (o *Observation) isMember(node string) bool {
	if !desired.StackedEtcd(o.ControlPlane) {
		return false
	}
	return o.Etcd.Err != nil || slices.ContainsFunc(o.Etcd.Cluster.Members, func(m etcd.Member) bool {
		return m.Name == node
	})
}

// NodeReady is whether a Node is Ready, as its kubelet said last.
func NodeReady(node *corev1.Node) corev1.ConditionStatus {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status
		}
	}
	return corev1.ConditionUnknown
}

// PodReady reports whether a Pod is Ready.
func PodReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(condition corev1.PodCondition) bool {
		return condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue
	})
}

// readiness is since when the kubelet of a Node does not report, or since when it is Ready.
func readiness(node *corev1.Node) (lostSince, readySince time.Time) {
	for _, condition := range node.Status.Conditions {
		switch {
		case condition.Type != corev1.NodeReady:
		case condition.Status == corev1.ConditionTrue:
			readySince = condition.LastTransitionTime.Time
		case condition.Status == corev1.ConditionUnknown:
			lostSince = condition.LastTransitionTime.Time
		}
	}
	return lostSince, readySince
}

// awaitsNodes reports whether a Machine has joined and Cluster API has not named its Node yet.
func (inv *Inventory) awaitsNodes() bool {
	return slices.ContainsFunc(inv.Machines.UnsortedList(), inv.awaitsNode)
}

func (inv *Inventory) awaitsNode(machine *clusterv1.Machine) bool {
	host, infra := inv.Hosts[machine.Name], inv.QuoinMachines[machine.Name]
	if machine.Status.NodeRef.IsDefined() || !machine.DeletionTimestamp.IsZero() || host == nil || infra == nil {
		return false
	}
	_, joined := joining(host, infra, 0)
	return joined || Provisioned(infra)
}

// registersAs is the name that the host of a QuoinMachine registers its Node with; empty while that is not known.
func registersAs(infra *infrav1.QuoinMachine) string {
	for _, address := range infra.Status.Addresses {
		if address.Type == clusterv1.MachineHostName {
			return address.Address
		}
	}
	return ""
}

// nodesByHosts names the Nodes of Machines that were nodes once as their hosts register them, for as long as nobody can
// read Nodes: a move or a restore of the objects has lost what Cluster API found before, and it finds nothing now. What
// is named is written nowhere.
func (inv *Inventory) nodesByHosts() collections.Machines {
	machines := collections.New()
	for name, machine := range inv.Machines {
		if machine.Spec.ProviderID != "" && inv.awaitsNode(machine) {
			machine = machine.DeepCopy()
			machine.Status.NodeRef.Name = registersAs(inv.QuoinMachines[name])
		}
		machines[name] = machine
	}
	return machines
}

// nameNodes finds the Nodes of Machines that have joined, by their provider IDs, as Cluster API will at its next
// reconcile, a second later or two. What it finds is written nowhere.
func (inv *Inventory) nameNodes(nodes map[string]*corev1.Node) collections.Machines {
	machines := collections.New()
	for name, machine := range inv.Machines {
		if inv.awaitsNode(machine) {
			for _, node := range nodes {
				if node.Spec.ProviderID != "" && node.Spec.ProviderID == inv.QuoinMachines[name].Spec.ProviderID {
					machine = machine.DeepCopy()
					machine.Status.NodeRef.Name = node.Name
				}
			}
		}
		machines[name] = machine
	}
	return machines
}
