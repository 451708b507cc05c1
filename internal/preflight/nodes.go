// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"fmt"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/suitability"
)

// lookAtNodes looks whether each Node is ready, short of nothing, on time and able to run the version, and whether each
// Machine has its Node.
func lookAtNodes(ctx context.Context, s Subject) (string, []quoinv1.Finding, error) {
	nodes := &corev1.NodeList{}
	if err := s.Workload.List(ctx, nodes); err != nil {
		return "", nil, fmt.Errorf("list the Nodes: %w", err)
	}
	machines, err := s.machines(ctx)
	if err != nil {
		return "", nil, err
	}
	leases := &coordinationv1.LeaseList{}
	if err := s.Workload.List(ctx, leases, client.InNamespace(corev1.NamespaceNodeLease)); err != nil {
		return "", nil, fmt.Errorf("list the Leases of Nodes: %w", err)
	}
	renewed := map[string]time.Time{}
	for _, lease := range leases.Items {
		if lease.Spec.RenewTime != nil {
			renewed[lease.Name] = lease.Spec.RenewTime.Time
		}
	}
	goals, err := s.goals(ctx)
	if err != nil {
		return "", nil, err
	}
	groups := map[string]string{}
	for i := range machines {
		if of := group(&machines[i]); of != nil {
			groups[machines[i].Status.NodeRef.Name] = *of
		}
	}
	var findings []quoinv1.Finding
	for i := range nodes.Items {
		node := &nodes.Items[i]
		findings = append(findings, judgeNode(node, s.goal(goals, groups[node.Name]))...)
		at, known := renewed[node.Name]
		switch {
		case !isReady(node): // which is why its Lease is old
		case known:
			findings = append(findings, judgeClock(node, s.Now.Sub(at))...)
		default:
			findings = append(findings, warns("Node "+node.Name, "NoLease",
				"its kubelet renews no Lease, so nobody knows whether its clock is right, and its loss is seen late",
				"let its kubelet write Leases in namespace "+corev1.NamespaceNodeLease+", and compare its clock by hand"))
		}
	}
	for _, node := range withoutMachine(nodes.Items, machines) {
		findings = append(findings, warns("Node "+node.Name, "NoMachine",
			"no Machine refers to it, so nothing upgrades it", "upgrade it by hand, or remove it"))
	}
	for i := range machines {
		findings = append(findings, judgeMachine(&machines[i])...)
	}
	ended, err := s.judgeCgroups(ctx, machines, goals)
	if err != nil {
		return "", nil, err
	}
	findings = append(findings, ended...)
	return fmt.Sprintf("%d Nodes and %d Machines", len(nodes.Items), len(machines)), findings, nil
}

// wants are the statuses of a Node's conditions that keep an upgrade from beginning when they are others.
var wants = []struct {
	condition corev1.NodeConditionType
	status    corev1.ConditionStatus
	fix       string
}{
	{corev1.NodeReady, corev1.ConditionTrue, "mend the Node, or have its Machine replaced"},
	{corev1.NodeMemoryPressure, corev1.ConditionFalse, "free memory: pods of a drained Node have to go somewhere"},
	{corev1.NodeDiskPressure, corev1.ConditionFalse, "free disk space: images of the new version need it"},
	{corev1.NodePIDPressure, corev1.ConditionFalse, "end processes, or raise the limit"},
	{corev1.NodeNetworkUnavailable, corev1.ConditionFalse, "mend the network plug-in on the Node"},
}

func judgeNode(node *corev1.Node, version string) []quoinv1.Finding {
	object := "Node " + node.Name
	var findings []quoinv1.Finding
	for _, want := range wants {
		status, said := corev1.ConditionUnknown, ""
		for _, condition := range node.Status.Conditions {
			if condition.Type == want.condition {
				status, said = condition.Status, condition.Message
			}
		}
		if status == want.status || status == corev1.ConditionUnknown && want.condition != corev1.NodeReady {
			continue // not every network plug-in sets its condition
		}
		message := fmt.Sprintf("%s is %s", want.condition, status)
		if said != "" {
			message += ": " + said
		}
		findings = append(findings, blocks(object, reasonOf(want.condition), message, want.fix))
	}
	if node.Spec.Unschedulable {
		findings = append(findings, warns(object, "Cordoned",
			"takes no pods, so less room is left for those of a Node that is drained", "uncordon it, or remove it"))
	}
	if ended := skew.RuntimeEnded(node.Status.NodeInfo.ContainerRuntimeVersion, version); ended != "" {
		findings = append(findings, blocks(object, "RuntimeEnded", "its host cannot be used for "+version+" "+ended,
			"install a later containerd on the host first"))
	}
	return findings
}

// judgeCgroups finds hosts of Machines that are replaced on which a kubelet of the version does not start: they serve
// no Machine after that, so a rollout that began with a spare host has none for the next one.
func (s Subject) judgeCgroups(
	ctx context.Context, machines []clusterv1.Machine, goals goals,
) (findings []quoinv1.Finding, err error) {
	hosts := &infrav1.QuoinHostList{}
	if err := s.Management.List(ctx, hosts); err != nil {
		return nil, fmt.Errorf("list the QuoinHosts: %w", err)
	}
	fleet, fails := s.supply(hosts, machines), map[string]bool{}
	for i := range machines {
		host, has := fleet.claimed[machines[i].Name]
		of := group(&machines[i])
		if !has || of == nil || !s.leaves(&machines[i], goals) {
			continue
		}
		version := s.goal(goals, *of)
		ended := skew.CgroupEnded(host.Cgroup, version)
		if ended == "" {
			continue
		}
		if _, asked := fails[*of]; !asked {
			if fails[*of], err = fleet.failsOnCgroupV1(ctx, *of); err != nil {
				return nil, err
			}
		}
		if fails[*of] {
			findings = append(findings, blocks("Node "+machines[i].Status.NodeRef.Name, "CgroupEnded",
				"its host cannot be used for "+version+" "+ended,
				"start the host with cgroup v2, or give failCgroupV1: false to the kubelets"))
		}
	}
	return findings, nil
}

// renewals is how old the last renewal of a Lease is before its Node is not ready any more, and somewhat more.
const renewals = time.Minute

func isReady(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// judgeClock finds a clock that is as far off ours as no host's may be that is to join. A kubelet writes its own time
// into its Lease, and nobody calls it not ready for what that says.
func judgeClock(node *corev1.Node, age time.Duration) []quoinv1.Finding {
	var message string
	switch {
	case age < -suitability.MaxClockOffset:
		message = fmt.Sprintf("its clock is %s ahead of the manager's", -age.Round(time.Second))
	case age > suitability.MaxClockOffset+renewals:
		message = fmt.Sprintf("its clock is up to %s behind the manager's", age.Round(time.Second))
	default:
		return nil
	}
	return []quoinv1.Finding{blocks("Node "+node.Name, "Clock", message+
		": certificates that are made now are not valid for both", "let both follow a time server")}
}

// withoutMachine are the Nodes that no Machine refers to.
func withoutMachine(nodes []corev1.Node, machines []clusterv1.Machine) []corev1.Node {
	referred := map[string]bool{}
	for i := range machines {
		referred[machines[i].Status.NodeRef.Name] = true
	}
	var found []corev1.Node
	for _, node := range nodes {
		if !referred[node.Name] {
			found = append(found, node)
		}
	}
	return found
}

func reasonOf(condition corev1.NodeConditionType) string {
	if condition == corev1.NodeReady {
		return "NotReady"
	}
	return string(condition)
}

// judgeMachine finds Machines without a Node, which nothing would upgrade, and those on their way, which would make two
// changes of one.
func judgeMachine(machine *clusterv1.Machine) []quoinv1.Finding {
	object := "Machine " + machine.Name
	switch {
	case !machine.DeletionTimestamp.IsZero():
		return []quoinv1.Finding{blocks(object, "Deleting", "is being deleted",
			"wait for its end; kubectl describe machine says what it waits for")}
	case !machine.Status.NodeRef.IsDefined():
		return []quoinv1.Finding{blocks(object, "NoNode", "has no Node yet",
			"wait for it, or delete it; kubectl describe machine says what it waits for")}
	}
	return nil
}
