// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// kubeletIs notes which kubelets live.
func (c *ControlPlane) kubeletIs(k *kubeletState, alive bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if alive {
		c.kubelets[k.node] = k
	} else if c.kubelets[k.node] == k {
		delete(c.kubelets, k.node)
	}
}

func (c *ControlPlane) kubeletOf(node string) *kubeletState {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.kubelets[node]
}

// manage does what the controllers of a controller manager do that matter here: it says when a kubelet is silent, and
// removes pods whose node is gone. For living kubelets it also does what they do to all pods that are not static: it runs
// those that are new, and removes those that terminate.
func (c *ControlPlane) manage(ctx context.Context) {
	seen := map[string]time.Time{}
	for pause(ctx, 200*time.Millisecond) {
		client, err := c.client()
		if err != nil || !c.serving() {
			// Nobody is blamed for a time in which nobody could be heard.
			clear(seen)
			continue
		}
		bounded, cancel := context.WithTimeout(ctx, 5*time.Second)
		_ = c.manageOnce(bounded, client, seen)
		cancel()
	}
}

func (c *ControlPlane) manageOnce(ctx context.Context, client kubernetes.Interface, seen map[string]time.Time) error {
	cached := metav1.ListOptions{ResourceVersion: "0"}
	nodes, err := client.CoreV1().Nodes().List(ctx, cached)
	if err != nil {
		return err
	}
	pods, err := client.CoreV1().Pods("").List(ctx, cached)
	if err != nil {
		return err
	}
	silent := map[string]bool{}
	known := map[string]bool{}
	for i := range nodes.Items {
		node := &nodes.Items[i]
		known[node.Name] = true
		k := c.kubeletOf(node.Name)
		if _, ok := seen[node.Name]; k != nil || !ok {
			seen[node.Name] = time.Now()
		}
		unknown := nodeReady(node) == corev1.ConditionUnknown
		switch {
		case k != nil:
			if err := wakeNode(ctx, client, node); err != nil {
				return err
			}
			if unknown {
				k.mu.Lock()
				k.stale = true
				k.mu.Unlock()
			}
		case time.Since(seen[node.Name]) > c.options.NodeGrace:
			silent[node.Name] = true
			if !unknown {
				if err := silenceNode(ctx, client, node); err != nil {
					return err
				}
			}
		}
	}
	for i := range pods.Items {
		if err := c.managePod(ctx, client, &pods.Items[i], known, silent); err != nil {
			return err
		}
	}
	return nil
}

func (c *ControlPlane) managePod(ctx context.Context, client kubernetes.Interface, pod *corev1.Pod, known, silent map[string]bool) error {
	node := pod.Spec.NodeName
	if node == "" {
		return nil
	}
	alive := c.kubeletOf(node) != nil
	switch {
	case !known[node] && !alive:
		return removeNow(ctx, client, pod.Namespace, pod.Name)
	case silent[node] && podReady(pod):
		pod.Status = podStatus(pod, true, false, 0)
		_, err := client.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, pod, metav1.UpdateOptions{})
		return err
	case !alive || pod.Annotations[mirrorAnnotation] != "":
		return nil
	case pod.DeletionTimestamp != nil:
		return removeNow(ctx, client, pod.Namespace, pod.Name)
	case pod.Status.Phase == corev1.PodPending || pod.Status.Phase == corev1.PodRunning && !podReady(pod):
		pod.Status = podStatus(pod, true, true, 0)
		_, err := client.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, pod, metav1.UpdateOptions{})
		return err
	}
	return nil
}

// unreachable are the taints of a node whose kubelet is silent.
func unreachable() []corev1.Taint {
	now := metav1.Now()
	return []corev1.Taint{
		{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoSchedule, TimeAdded: &now},
		{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute, TimeAdded: &now},
	}
}

func silenceNode(ctx context.Context, client kubernetes.Interface, node *corev1.Node) error {
	for i := range node.Status.Conditions {
		condition := &node.Status.Conditions[i]
		condition.Status, condition.Reason, condition.Message = corev1.ConditionUnknown, "NodeStatusUnknown", "Kubelet stopped posting node status."
		condition.LastTransitionTime = metav1.Now()
	}
	node, err := client.CoreV1().Nodes().UpdateStatus(ctx, node, metav1.UpdateOptions{})
	if err != nil {
		return err
	}
	node.Spec.Taints = append(withoutUnreachable(node.Spec.Taints), unreachable()...)
	_, err = client.CoreV1().Nodes().Update(ctx, node, metav1.UpdateOptions{})
	return err
}

func wakeNode(ctx context.Context, client kubernetes.Interface, node *corev1.Node) error {
	kept := withoutUnreachable(node.Spec.Taints)
	if len(kept) == len(node.Spec.Taints) {
		return nil
	}
	node = node.DeepCopy()
	node.Spec.Taints = kept
	_, err := client.CoreV1().Nodes().Update(ctx, node, metav1.UpdateOptions{})
	return err
}

func withoutUnreachable(taints []corev1.Taint) []corev1.Taint {
	return slices.DeleteFunc(slices.Clone(taints), func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeUnreachable })
}

func nodeReady(node *corev1.Node) corev1.ConditionStatus {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status
		}
	}
	return ""
}
