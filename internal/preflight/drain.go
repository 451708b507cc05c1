// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"fmt"
	"slices"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/core/reconcilers/machine/drain"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// drained is what the drain of a Machine's Node would do.
type drained struct {
	machine *clusterv1.Machine
	// evicted are the pods that it would evict, awaited those that it would wait for until they end by themselves.
	evicted, awaited []*corev1.Pod
}

// rehearse has Cluster API drain the Nodes of the Machines that leave, on what was read: the code that decides is the
// one that will drain, with its rules and labels.
func (s Subject) rehearse(ctx context.Context) ([]drained, error) {
	leaving, err := s.leaving(ctx)
	if err != nil {
		return nil, err
	}
	stage := &rehearsal{s: s}
	if stage.pods, err = s.podsByNode(ctx); err != nil {
		return nil, err
	}
	ctx = ctrl.LoggerInto(ctx, logr.Discard())
	helper := &drain.Helper{Client: stage, RemoteClient: stage, GracePeriodSeconds: -1}
	var all []drained
	for _, machine := range leaving {
		if _, excluded := machine.Annotations[clusterv1.ExcludeNodeDrainingAnnotation]; excluded {
			continue
		}
		node := machine.Status.NodeRef.Name
		pods, err := helper.GetPodsForEviction(ctx, s.Cluster, machine, node)
		if err != nil {
			return nil, fmt.Errorf("rehearse the drain of Node %s: %w", node, err)
		}
		stage.evicted = nil
		result := helper.EvictPods(ctx, pods)
		all = append(all, drained{machine: machine,
			evicted: slices.Concat(stage.evicted, result.PodsToTriggerEvictionLater),
			awaited: slices.Concat(result.PodsToWaitCompletedNow, result.PodsToWaitCompletedLater)})
	}
	return all, nil
}

// podsByNode are all pods that were scheduled.
func (s Subject) podsByNode(ctx context.Context) (map[string][]corev1.Pod, error) {
	pods := &corev1.PodList{}
	if err := s.Workload.List(ctx, pods); err != nil {
		return nil, fmt.Errorf("list the pods: %w", err)
	}
	byNode := map[string][]corev1.Pod{}
	for _, pod := range pods.Items {
		byNode[pod.Spec.NodeName] = append(byNode[pod.Spec.NodeName], pod)
	}
	return byNode, nil
}

// rehearsal answers a drain from what was read, and takes down what it would evict. Of a drain's own client it has no
// more than that.
type rehearsal struct {
	client.Client
	s       Subject
	pods    map[string][]corev1.Pod
	evicted []*corev1.Pod
}

// List implements client.Reader for the pods of a Node, and for what Subject's own readers have.
func (r *rehearsal) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	switch list := list.(type) {
	case *corev1.PodList:
		asked := (&client.ListOptions{}).ApplyOptions(options)
		node, _ := asked.FieldSelector.RequiresExactMatch("spec.nodeName")
		list.Items = r.pods[node]
		return nil
	case *clusterv1.MachineDrainRuleList:
		return r.s.Management.List(ctx, list, options...)
	}
	return r.s.Workload.List(ctx, list, options...)
}

// Get implements client.Reader for the DaemonSets of pods: they are listed once, for each Node has a pod of each.
func (r *rehearsal) Get(ctx context.Context, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	sets := &appsv1.DaemonSetList{}
	if err := r.s.Workload.List(ctx, sets); err != nil {
		return err
	}
	if slices.ContainsFunc(sets.Items, func(set appsv1.DaemonSet) bool {
		return client.ObjectKeyFromObject(&set) == key
	}) {
		return nil
	}
	return apierrors.NewNotFound(appsv1.Resource("daemonsets"), key.Name)
}

// SubResource implements client.Client for evictions.
func (r *rehearsal) SubResource(string) client.SubResourceClient { return eviction{to: r} }

// eviction takes down who would be evicted.
type eviction struct {
	client.SubResourceClient
	to *rehearsal
}

// Create implements client.SubResourceWriter.
func (e eviction) Create(_ context.Context, of, _ client.Object, _ ...client.SubResourceCreateOption) error {
	e.to.evicted = append(e.to.evicted, of.(*corev1.Pod))
	return nil
}
