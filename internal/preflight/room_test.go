// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func resources(cpu, memory, pods string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for name, amount := range map[corev1.ResourceName]string{corev1.ResourceCPU: cpu, corev1.ResourceMemory: memory,
		corev1.ResourcePods: pods} {
		if amount != "" {
			list[name] = resource.MustParse(amount)
		}
	}
	return list
}

// requesting is a container that asks for so much.
func requesting(cpu, memory string) corev1.Container {
	return corev1.Container{Resources: corev1.ResourceRequirements{Requests: resources(cpu, memory, "")}}
}

// asking is a change of a pod that a ReplicaSet makes anew, and that asks for so much.
func asking(cpu, memory string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		ownedBy("ReplicaSet", "web")(pod)
		pod.Spec.Containers = []corev1.Container{requesting(cpu, memory)}
	}
}

// Proves: S0-46
//
// Nodes w1 and on have 4 CPUs, 8Gi and room for 5 pods, and each a pod of a DaemonSet that asks for a CPU.
func TestDisruptionHeedsTheRoomThatIsLeft(t *testing.T) {
	const noRoom, noNode = "Warn MachineDeployment blue NoRoom", "Warn MachineDeployment blue NoNodeForPod"
	two := func(cpu, memory string) []*corev1.Pod {
		return []*corev1.Pod{web("a", "w1", asking(cpu, memory)), web("b", "w2", asking(cpu, memory))}
	}
	many := func(changes ...func(*corev1.Pod)) (all []*corev1.Pod) {
		for i := range 6 {
			all = append(all, web(fmt.Sprint(i), fmt.Sprint("w", i%2+1), append([]func(*corev1.Pod){asking("100m", "")},
				changes...)...))
		}
		return all
	}
	for name, c := range map[string]struct {
		nodes              []string
		surge, unavailable int32
		pods               []*corev1.Pod
		change             func(node *corev1.Node)
		stays              bool
		want               []string
		says               string
	}{
		"a new Node takes what leaves": {surge: 1, pods: two("3", "7Gi")},
		"another takes what leaves":    {unavailable: 1, pods: two("1500m", "4Gi")},
		"no CPU is left":               {unavailable: 1, pods: two("2", "1Gi"), want: []string{noRoom}, says: "for 2 CPUs where 1 CPUs are free"},
		"no memory is left":            {unavailable: 1, pods: two("1", "5Gi"), want: []string{noRoom}, says: "for 5Gi of memory where 3Gi of memory are free"},
		"no pods are left":             {unavailable: 1, pods: many(), want: []string{noRoom}, says: "for 3 pods where 1 pods are free"},
		"pods that nobody makes anew":  {unavailable: 1, pods: many(func(p *corev1.Pod) { p.OwnerReferences = nil })},
		"pods that ended":              {unavailable: 1, pods: many(inPhase(corev1.PodSucceeded))},
		"pods of Nodes that stay":      {unavailable: 1, pods: many(), stays: true},
		"nothing is left to go to":     {nodes: []string{"w1"}, unavailable: 1, pods: two("1", "1Gi")[:1], want: []string{noRoom}},
		"pods that are awaited and end": {surge: 1, pods: []*corev1.Pod{web("a", "w1", asking("1", "")),
			web("b", "w2", asking("3", "")), web("c", "w1", asking("2", ""), labeled(clusterv1.PodDrainLabel, "wait-completed"), ends)}},
		"both leave at a time":          {unavailable: 2, pods: two("1", "1Gi"), want: []string{noRoom}, says: "2 of its Nodes leave at a time"},
		"both, and both are new before": {surge: 2, pods: two("3", "7Gi")},
		"both, and one is new before":   {surge: 1, unavailable: 1, pods: two("2", "7Gi"), want: []string{noRoom}, says: "1 new ones for 4 CPUs where 3 CPUs are free, and for 14Gi"},
		"the other takes no pods": {unavailable: 1, pods: two("1", "1Gi"), want: []string{noRoom},
			change: func(node *corev1.Node) { node.Spec.Unschedulable = true }},
		"the other is not ready": {unavailable: 1, pods: two("1", "1Gi"), want: []string{noRoom},
			change: func(node *corev1.Node) { node.Status.Conditions = nil }},
		"enough in sum, and on no Node": {nodes: []string{"w1", "w2", "w3"}, unavailable: 1,
			pods: append(two("1500m", "1Gi"), web("c", "w3", asking("2", "1Gi"))), want: []string{noNode},
			says: "none has room for 1 pods, such as shop/c, which asks for 2 CPUs and 1Gi of memory"},
		"on its own Node alone": {nodes: []string{"w1", "w2", "w3"}, unavailable: 1, want: []string{noNode},
			pods: append(append(two("1", ""), web("c", "w1", asking("1", "")), web("d", "w2", asking("1", ""))),
				web("e", "w3", asking("1500m", ""))), says: "none has room for 1 pods, such as shop/e"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			if c.nodes == nil {
				c.nodes = []string{"w1", "w2"}
			}
			pool := &clusterv1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "blue",
				Labels: map[string]string{clusterv1.ClusterNameLabel: "c1"}}}
			pool.Spec.Replicas = ptr.To(int32(len(c.nodes))) //nolint:gosec // a few
			pool.Spec.Rollout.Strategy.RollingUpdate.MaxSurge = ptr.To(intstr.FromInt32(c.surge))
			pool.Spec.Rollout.Strategy.RollingUpdate.MaxUnavailable = ptr.To(intstr.FromInt32(c.unavailable))
			agent := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "agent"}}
			management, workload := []client.Object{pool}, []client.Object{shop(), agent}
			for i, name := range c.nodes {
				on := node(name, corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue})
				if on.Status.Allocatable = resources("4", "8Gi", "5"); c.change != nil && i > 0 {
					c.change(on)
				}
				version := "v1.35.4"
				if c.stays {
					version = "v1.36.3"
				}
				workload = append(workload, on, web("agent-"+name, name, asking("1", ""), ownedBy("DaemonSet", "agent")))
				management = append(management, machine(name, version, false))
			}
			for _, pod := range c.pods {
				workload = append(workload, pod)
			}
			for _, finding := range expect(t, lookAtDisruption, subject(t, management, workload), c.want...) {
				g.Expect(finding.Message).To(ContainSubstring(c.says))
			}
		})
	}
}

func TestWhatAPodAsksFor(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	sidecar := requesting("500m", "1Gi")
	sidecar.RestartPolicy = &always
	for name, c := range map[string]struct {
		spec corev1.PodSpec
		want amounts
	}{
		"nothing": {want: amounts{0, 0, 1}},
		"its containers": {spec: corev1.PodSpec{Containers: []corev1.Container{requesting("1", "1Gi"), requesting("", "1Gi")}},
			want: amounts{1000, 2 << 30, 1}},
		"the largest init container": {spec: corev1.PodSpec{Containers: []corev1.Container{requesting("1", "2Gi")},
			InitContainers: []corev1.Container{requesting("3", "1Gi"), requesting("2", "1Gi")}}, want: amounts{3000, 2 << 30, 1}},
		"a sidecar": {spec: corev1.PodSpec{Containers: []corev1.Container{requesting("1", "2Gi")},
			InitContainers: []corev1.Container{sidecar}}, want: amounts{1500, 3 << 30, 1}},
		"itself": {spec: corev1.PodSpec{Containers: []corev1.Container{requesting("1", "2Gi")},
			Resources: &corev1.ResourceRequirements{Requests: resources("2", "", "")}}, want: amounts{2000, 2 << 30, 1}},
		"its sandbox": {spec: corev1.PodSpec{Containers: []corev1.Container{requesting("1", "")},
			Overhead: resources("250m", "1Gi", "")}, want: amounts{1250, 1 << 30, 1}},
	} {
		NewWithT(t).Expect(asks(&corev1.Pod{Spec: c.spec})).To(Equal(c.want), name)
	}
}
