// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// page is how many objects one call to an API server asks for.
	page = 500
	// Priority classes of what a Cluster cannot do without.
	clusterCritical, nodeCritical = "system-cluster-critical", "system-node-critical"
)

// place is what a Node is to the rollout.
type place int

const (
	// The zero place is that of Nodes without a Machine. They belong to no other group, so a failure there stops a
	// rollout (K-8).
	_ place = iota
	// ours are of the pool that is rolled out, or of the control plane.
	ours
	// others are of another pool, or of a Machine that leaves.
	others
)

// places by the name of the Node.
func (s *Subject) places() map[string]place {
	places := map[string]place{}
	for i := range s.Machines {
		machine := &s.Machines[i]
		pool, pooled := machine.Labels[clusterv1.MachineDeploymentNameLabel]
		_, plane := machine.Labels[clusterv1.MachineControlPlaneLabel]
		switch {
		case !machine.Status.NodeRef.IsDefined():
		case !machine.DeletionTimestamp.IsZero() || pooled && pool != s.Pool:
			places[machine.Status.NodeRef.Name] = others
		case pooled || plane:
			places[machine.Status.NodeRef.Name] = ours
		}
	}
	return places
}

// subjects are the Machines that were healthy just before, by the name of the Node.
func (s *Subject) subjects() map[string]string {
	of := map[string]string{}
	for i := range s.Machines {
		if machine := &s.Machines[i]; slices.Contains(s.Subjects, machine.Name) && machine.Status.NodeRef.IsDefined() {
			of[machine.Status.NodeRef.Name] = machine.Name
		}
	}
	return of
}

// lookAtNodes finds Nodes of the pool and of the control plane that are not there or not ready.
func (s *Subject) lookAtNodes(ctx context.Context) (string, error) {
	nodes := map[string]bool{}
	err := pages(ctx, s.Workload, func() *corev1.NodeList { return &corev1.NodeList{} }, func(list *corev1.NodeList) {
		for i := range list.Items {
			nodes[list.Items[i].Name] = ready(&list.Items[i])
		}
	})
	if err != nil {
		return "", fmt.Errorf("list the Nodes: %w", err)
	}
	wrong, looked := finding{}, 0
	of := s.subjects()
	for name, place := range s.places() {
		if place != ours {
			continue
		}
		looked++
		if is, known := nodes[name]; !known {
			wrong.add(of[name], fmt.Sprintf("Node %s is not there", name))
		} else if !is {
			wrong.add(of[name], fmt.Sprintf("Node %s is not ready", name))
		}
	}
	for _, name := range s.Subjects {
		if !slices.ContainsFunc(s.Machines, func(m clusterv1.Machine) bool {
			return m.Name == name && m.Status.NodeRef.IsDefined() && m.DeletionTimestamp.IsZero()
		}) {
			wrong.add(name, fmt.Sprintf("Machine %s has no Node", name))
		}
	}
	return fmt.Sprintf("%d Nodes are ready", looked), wrong.found()
}

func ready(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// lookAtPods finds system-critical pods that do not run or are not ready. Those of priority system-node-critical count
// for the group of their Node; a cluster-critical one counts wherever it is (kOps: pkg/validation/validate_cluster.go).
func (s *Subject) lookAtPods(ctx context.Context) (string, error) {
	places, of := s.places(), s.subjects()
	wrong, looked := finding{}, 0
	err := pages(ctx, s.Workload, func() *corev1.PodList { return &corev1.PodList{} }, func(list *corev1.PodList) {
		for i := range list.Items {
			pod := &list.Items[i]
			switch {
			// What is evicted is made anew, and counts then.
			case !pod.DeletionTimestamp.IsZero() || pod.Status.Phase == corev1.PodSucceeded || madeAnew(pod):
			case pod.Spec.PriorityClassName == clusterCritical,
				pod.Spec.PriorityClassName == nodeCritical && places[pod.Spec.NodeName] != others:
				looked++
				if why := unwell(pod); why != "" {
					wrong.add(of[pod.Spec.NodeName], why)
				}
			}
		}
	})
	if err != nil {
		return "", fmt.Errorf("list the pods: %w", err)
	}
	return fmt.Sprintf("%d system-critical pods are ready", looked), wrong.found()
}

// madeAnew reports whether a pod failed for good and its controller makes another one; that of a static pod makes none.
func madeAnew(pod *corev1.Pod) bool {
	owner := metav1.GetControllerOf(pod)
	return pod.Status.Phase == corev1.PodFailed && owner != nil && owner.Kind != "Node"
}

// unwell says what is wrong with a pod; empty when nothing is.
func unwell(pod *corev1.Pod) string {
	about := fmt.Sprintf("pod %s/%s", pod.Namespace, pod.Name)
	if pod.Spec.NodeName != "" {
		about += " on Node " + pod.Spec.NodeName
	}
	if pod.Status.Phase != corev1.PodRunning {
		return fmt.Sprintf("%s is %s", about, pod.Status.Phase)
	}
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue {
			return ""
		}
	}
	return about + " is not ready"
}

// pages reads a list in parts, so that a large Cluster's pods are not all held at once.
func pages[L client.ObjectList](ctx context.Context, from client.Reader, empty func() L, each func(L)) error {
	for next := ""; ; {
		list := empty()
		if err := from.List(ctx, list, client.Limit(page), client.Continue(next)); err != nil {
			return err
		}
		each(list)
		if next = list.GetContinue(); next == "" {
			return nil
		}
	}
}
