// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim/machine"
)

const (
	mirrorAnnotation = "kubernetes.io/config.mirror"
	sourceAnnotation = "kubernetes.io/config.source"
)

// kubeletState is what a kubelet tells the API server. Its own goroutine writes what runs; another one sends it, for the
// API server may not answer, and static pods must be started all the same.
type kubeletState struct {
	plane   *ControlPlane
	machine *machine.Machine
	node    string
	// register creates the Node or renews its status.
	register func(ctx context.Context) error

	mu    sync.Mutex
	pods  map[string]podState
	stale bool
}

// podState is a static pod as it is reported.
type podState struct {
	pod      *corev1.Pod
	hash     string
	restarts int32
	alive    bool
	ready    bool
}

// observe copies what runs.
func (k *kubeletState) observe(s *staticPods) {
	pods := map[string]podState{}
	for _, run := range s.runs {
		container := run.pod.Spec.Containers[0].Name
		pods[run.pod.Name+"-"+k.node] = podState{
			pod: run.pod, hash: run.hash, restarts: run.restarts, alive: run.alive,
			ready: run.alive && k.plane.ready(k.machine, container),
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.pods = pods
}

// talk registers the Node and keeps the mirror pods, until the kubelet ends.
func (k *kubeletState) talk(ctx context.Context) {
	for k.register(ctx) != nil {
		if !pause(ctx, 200*time.Millisecond) {
			return
		}
	}
	k.plane.kubeletIs(k, true)
	defer k.plane.kubeletIs(k, false)
	sent := map[string]podState{}
	looked := time.Time{}
	for pause(ctx, 50*time.Millisecond) {
		client, err := k.plane.client()
		if err != nil || !k.plane.serving() {
			continue
		}
		k.mu.Lock()
		pods, stale := k.pods, k.stale
		k.stale = false
		k.mu.Unlock()
		if stale && k.register(ctx) == nil {
			looked = time.Time{}
		}
		if time.Since(looked) > 2*time.Second {
			if k.look(ctx, client, pods, sent) == nil {
				looked = time.Now()
			}
		}
		for name, wanted := range pods {
			if has, ok := sent[name]; ok && has.hash == wanted.hash && has.ready == wanted.ready && has.alive == wanted.alive && has.restarts == wanted.restarts {
				continue
			}
			if k.mirror(ctx, client, name, wanted) == nil {
				sent[name] = wanted
			}
		}
	}
}

// look removes the mirrors of pods that are gone, and forgets what was sent of those that somebody changed.
func (k *kubeletState) look(ctx context.Context, client kubernetes.Interface, pods, sent map[string]podState) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	list, err := client.CoreV1().Pods(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + k.node, ResourceVersion: "0"})
	if err != nil {
		return err
	}
	there := map[string]bool{}
	for _, pod := range list.Items {
		if pod.Annotations[mirrorAnnotation] == "" {
			continue
		}
		wanted, ok := pods[pod.Name]
		if !ok || pod.DeletionTimestamp != nil || pod.Annotations[mirrorAnnotation] != wanted.hash {
			if err := removeNow(ctx, client, pod.Namespace, pod.Name); err != nil {
				return err
			}
			continue
		}
		if podReady(&pod) == sent[pod.Name].ready {
			there[pod.Name] = true
		}
	}
	for name := range sent {
		if !there[name] {
			delete(sent, name)
		}
	}
	return nil
}

// mirror makes the pod in the API server, and says how it is.
func (k *kubeletState) mirror(ctx context.Context, client kubernetes.Interface, name string, wanted podState) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	pods := client.CoreV1().Pods(metav1.NamespaceSystem)
	pod, err := pods.Get(ctx, name, metav1.GetOptions{})
	if err == nil && pod.Annotations[mirrorAnnotation] != wanted.hash {
		if err := removeNow(ctx, client, pod.Namespace, pod.Name); err != nil {
			return err
		}
		err = apierrors.NewNotFound(corev1.Resource("pods"), name)
	}
	if apierrors.IsNotFound(err) {
		pod, err = pods.Create(ctx, k.pod(name, wanted), metav1.CreateOptions{})
	}
	if err != nil {
		return err
	}
	pod.Status = podStatus(pod, wanted.alive, wanted.ready, wanted.restarts)
	_, err = pods.UpdateStatus(ctx, pod, metav1.UpdateOptions{})
	return err
}

func (k *kubeletState) pod(name string, state podState) *corev1.Pod {
	pod := state.pod.DeepCopy()
	pod.Name, pod.Namespace = name, metav1.NamespaceSystem
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	pod.Annotations[mirrorAnnotation], pod.Annotations["kubernetes.io/config.hash"] = state.hash, state.hash
	pod.Annotations[sourceAnnotation] = "file"
	pod.Spec.NodeName = k.node
	pod.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}}
	pod.Spec.EnableServiceLinks = ptr.To(false)
	return pod
}

// podStatus of a pod that is alive and ready, or not.
func podStatus(pod *corev1.Pod, alive, ready bool, restarts int32) corev1.PodStatus {
	now := metav1.Now()
	status := corev1.PodStatus{Phase: corev1.PodRunning, StartTime: pod.Status.StartTime, QOSClass: pod.Status.QOSClass}
	if status.StartTime == nil {
		status.StartTime = &now
	}
	is := func(yes bool) corev1.ConditionStatus {
		if yes {
			return corev1.ConditionTrue
		}
		return corev1.ConditionFalse
	}
	for _, condition := range []corev1.PodCondition{
		{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}, {Type: corev1.PodInitialized, Status: corev1.ConditionTrue},
		{Type: corev1.ContainersReady, Status: is(ready)}, {Type: corev1.PodReady, Status: is(ready)},
	} {
		condition.LastTransitionTime = now
		if condition.Status == corev1.ConditionFalse {
			condition.Reason, condition.Message = "ContainersNotReady", fmt.Sprintf("containers with unready status: [%s]", pod.Spec.Containers[0].Name)
		}
		status.Conditions = append(status.Conditions, condition)
	}
	for _, container := range pod.Spec.Containers {
		state := corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}}
		if !alive {
			state = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}
		}
		status.ContainerStatuses = append(status.ContainerStatuses, corev1.ContainerStatus{
			Name: container.Name, Image: container.Image, Ready: ready, Started: ptr.To(alive), RestartCount: restarts, State: state,
		})
	}
	return status
}

func podReady(pod *corev1.Pod) bool {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

// removeNow deletes a pod as its kubelet does when all of it has ended.
func removeNow(ctx context.Context, client kubernetes.Interface, namespace, name string) error {
	err := client.CoreV1().Pods(namespace).Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// pause waits; false when the context ended first.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
