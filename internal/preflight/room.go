// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
)

// amounts are thousandths of a CPU, bytes of memory, and pods.
type amounts [3]int64

func amountsOf(list corev1.ResourceList) amounts {
	return amounts{list.Cpu().MilliValue(), list.Memory().Value(), list.Pods().Value()}
}

// say the amount of one of them.
func (a amounts) say(of int) string {
	return []string{resource.NewMilliQuantity(a[0], resource.DecimalSI).String() + " CPUs",
		resource.NewQuantity(a[1], resource.BinarySI).String() + " of memory", fmt.Sprint(a[2], " pods")}[of]
}

func (a amounts) plus(b amounts, times int64) amounts {
	for i := range a {
		a[i] += times * b[i]
	}
	return a
}

// within reports whether all of them are at most the other's.
func (a amounts) within(b amounts) bool { return a[0] <= b[0] && a[1] <= b[1] && a[2] <= b[2] }

// asks is what a pod requests, at least: what comes of the order of its init containers is left out.
func asks(pod *corev1.Pod) amounts {
	var sum, first amounts
	for _, container := range pod.Spec.Containers {
		sum = sum.plus(amountsOf(container.Resources.Requests), 1)
	}
	for _, container := range pod.Spec.InitContainers {
		requests := amountsOf(container.Resources.Requests)
		if container.RestartPolicy != nil {
			sum = sum.plus(requests, 1) // it runs beside the others
		}
		for i := range first {
			first[i] = max(first[i], requests[i])
		}
	}
	for i := range sum {
		sum[i] = max(sum[i], first[i])
	}
	if pod.Spec.Resources != nil {
		for i, of := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			if _, set := pod.Spec.Resources.Requests[of]; set {
				sum[i] = amountsOf(pod.Spec.Resources.Requests)[i]
			}
		}
	}
	sum = sum.plus(amountsOf(pod.Spec.Overhead), 1)
	sum[2] = 1
	return sum
}

// roomy is a Node of a pool.
type roomy struct {
	name string
	// free is what its pods leave, empty what those leave that stay when it is drained; nothing is free while it takes
	// none.
	free, empty amounts
	// moves are the pods that a drain evicts and somebody makes anew, moved what they ask for together.
	moves  []*corev1.Pod
	moved  amounts
	leaves bool
}

// judgeRoom finds pools that lack room for the pods of the Nodes that leave at a time. It adds up requests, for each
// resource by the Nodes that have most to give away. A scheduler finds no more room than that, but may find less.
func (s Subject) judgeRoom(
	ctx context.Context, drains []drained, pools []clusterv1.MachineDeployment,
) ([]quoinv1.Finding, error) {
	list := &corev1.NodeList{}
	if err := s.Workload.List(ctx, list); err != nil {
		return nil, fmt.Errorf("list the Nodes: %w", err)
	}
	pods, err := s.podsByNode(ctx)
	if err != nil {
		return nil, err
	}
	machines, err := s.machines(ctx)
	if err != nil {
		return nil, err
	}
	nodes, byNode := map[string]*corev1.Node{}, map[string]drained{}
	for i := range list.Items {
		nodes[list.Items[i].Name] = &list.Items[i]
	}
	for _, drain := range drains {
		byNode[drain.machine.Status.NodeRef.Name] = drain
	}
	byPool := map[string][]roomy{}
	for i := range machines {
		name, of := machines[i].Status.NodeRef.Name, group(&machines[i])
		if node := nodes[name]; node != nil && of != nil {
			drain, leaves := byNode[name]
			one := roomOf(node, pods[name], drain)
			one.leaves = leaves
			byPool[*of] = append(byPool[*of], one)
		}
	}
	var findings []quoinv1.Finding
	for i := range pools {
		surge, unavailable := bounds(&pools[i])
		findings = append(findings, judgePoolRoom(pools[i].Name, byPool[pools[i].Name], surge, unavailable)...)
	}
	return findings, nil
}

func roomOf(node *corev1.Node, pods []corev1.Pod, drain drained) roomy {
	one := roomy{name: node.Name, empty: amountsOf(node.Status.Allocatable)}
	away := map[client.ObjectKey]bool{}
	for _, pod := range slices.Concat(drain.evicted, drain.awaited) {
		away[client.ObjectKeyFromObject(pod)] = true
	}
	for _, pod := range drain.evicted {
		if metav1.GetControllerOf(pod) != nil {
			one.moves, one.moved = append(one.moves, pod), one.moved.plus(asks(pod), 1)
		}
	}
	one.free = one.empty
	for i := range pods {
		pod := &pods[i]
		if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
			continue
		}
		if one.free = one.free.plus(asks(pod), -1); !away[client.ObjectKeyFromObject(pod)] {
			one.empty = one.empty.plus(asks(pod), -1)
		}
	}
	for i := range one.free {
		if one.free[i] = max(one.free[i], 0); node.Spec.Unschedulable || !isReady(node) {
			one.free[i] = 0
		}
	}
	return one
}

// judgePoolRoom takes new Nodes for as large as the least of those that they replace.
func judgePoolRoom(pool string, nodes []roomy, surge, unavailable int) []quoinv1.Finding {
	var leaving []roomy
	var fresh amounts
	for _, node := range nodes {
		if !node.leaves {
			continue
		}
		for i := range fresh {
			if fresh[i] = min(fresh[i], node.empty[i]); len(leaving) == 0 {
				fresh[i] = node.empty[i]
			}
		}
		leaving = append(leaving, node)
	}
	together, came := min(surge+unavailable, len(leaving)), min(surge, len(leaving))
	object, beside := "MachineDeployment "+pool, fmt.Sprintf("the Nodes that stay meanwhile and %d new ones", came)
	var lacks []string
	for i := range fresh {
		slices.SortStableFunc(leaving, func(a, b roomy) int { return cmp.Compare(b.moved[i], a.moved[i]) })
		need, room := amounts{}, amounts{}.plus(fresh, int64(came))
		for _, node := range nodes {
			room = room.plus(node.free, 1)
		}
		for _, node := range leaving[:together] {
			need, room = need.plus(node.moved, 1), room.plus(node.free, -1)
		}
		if need[i] > room[i] {
			lacks = append(lacks, fmt.Sprintf("%s where %s are free", need.say(i), room.say(i)))
		}
	}
	if len(lacks) > 0 {
		return []quoinv1.Finding{warns(object, "NoRoom", fmt.Sprintf("%d of its Nodes leave at a time, and their pods ask "+
			"%s for %s: some wait, unless Nodes of other pools take them", together, beside, strings.Join(lacks, ", and for ")),
			"add a Machine to the pool, replace fewer at a time (maxUnavailable), or lower what the pods request")}
	}
	if came > 0 {
		nodes = append([]roomy{{free: fresh}}, nodes...)
	}
	return judgeLargest(object, beside, leaving, nodes)
}

// judgeLargest finds pods for which no Node has room, though there is enough in sum.
func judgeLargest(object, beside string, leaving, nodes []roomy) []quoinv1.Finding {
	fit, lone := map[amounts][]string{}, []*corev1.Pod(nil) // two Nodes each: one of them is another than the pod's
	for _, from := range leaving {
		for _, pod := range from.moves {
			ask := asks(pod)
			found, known := fit[ask]
			for i := 0; !known && i < len(nodes) && len(found) < 2; i++ {
				if ask.within(nodes[i].free) {
					found = append(found, nodes[i].name)
				}
			}
			if fit[ask] = found; !slices.ContainsFunc(found, func(name string) bool { return name != from.name }) {
				lone = append(lone, pod)
			}
		}
	}
	if len(lone) == 0 {
		return nil
	}
	most := slices.MaxFunc(lone, func(a, b *corev1.Pod) int {
		left, right := asks(a), asks(b)
		return cmp.Or(cmp.Compare(left[0], right[0]), cmp.Compare(left[1], right[1]), cmp.Compare(b.Name, a.Name))
	})
	ask := asks(most)
	return []quoinv1.Finding{warns(object, "NoNodeForPod", fmt.Sprintf("of %s none has room for %d pods, such as %s/%s, "+
		"which asks for %s and %s: they wait, unless Nodes of other pools take them", beside, len(lone), most.Namespace,
		most.Name, ask.say(0), ask.say(1)),
		"add a Machine with more room to the pool, set maxSurge, or lower what the pods request")}
}
