// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package pivot

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
)

// ReachCommand is the word after which the manager's program is asked what it reaches, and ends.
const ReachCommand = "reach"

const (
	// managerContainer is the name that clusterctl wants.
	managerContainer = "manager"
	// neverReady is a condition that nobody sets.
	neverReady = "quoin.cluster.x-k8s.io/never-ready"
	// podDeadline ends a Pod whose command was killed. It is longer than a question takes, and an image to come.
	podDeadline = 5 * time.Minute
)

// Asker is the Deployment beside whose managers is asked: those that connect to hosts. Nil where there is none.
func Asker(managers []appsv1.Deployment) *appsv1.Deployment {
	label := clusterctlv1.ManifestLabel("quoin", clusterctlv1.InfrastructureProviderType)
	i := slices.IndexFunc(managers, func(d appsv1.Deployment) bool {
		return d.Labels[clusterv1.ProviderNameLabel] == label && len(d.Spec.Template.Spec.Containers) > 0
	})
	if i < 0 {
		return nil
	}
	return &managers[i]
}

// ReachPod asks a question for a namespace that is to move: the manager's own program, with its flags, where the
// manager's Pods may run and with the network that they have. It has their labels, for a NetworkPolicy selects by
// those. It stands for none of them: no ReplicaSet adopts it without a hash, it gets no port, and it is never ready,
// so that no Service leads to it and no disruption budget counts it. It has no token, mounts nothing, and ends by
// itself.
func ReachPod(manager *appsv1.Deployment, namespace string, q Question) (*corev1.Pod, error) {
	arguments, err := q.Arguments()
	if err != nil {
		return nil, err
	}
	template := manager.Spec.Template.DeepCopy()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: manager.Namespace, Name: "quoin-reach-" + namespace,
			Labels: maps.Clone(template.Labels), Annotations: template.Annotations},
		Spec: template.Spec,
	}
	delete(pod.Labels, appsv1.DefaultDeploymentUniqueLabelKey)
	spec := &pod.Spec
	one := max(0, slices.IndexFunc(spec.Containers, func(c corev1.Container) bool { return c.Name == managerContainer }))
	spec.Containers = spec.Containers[one : one+1]
	spec.InitContainers, spec.Volumes, spec.TopologySpreadConstraints = nil, nil, nil
	spec.PriorityClassName, spec.Priority, spec.PreemptionPolicy = "", nil, nil
	spec.RestartPolicy, spec.AutomountServiceAccountToken = corev1.RestartPolicyNever, ptr.To(false)
	spec.ActiveDeadlineSeconds = ptr.To(int64(podDeadline / time.Second))
	spec.TerminationGracePeriodSeconds = ptr.To[int64](1)
	spec.ReadinessGates = append(spec.ReadinessGates, corev1.PodReadinessGate{ConditionType: neverReady})
	container := &spec.Containers[0]
	container.Args = append(append(container.Args, ReachCommand), arguments...)
	container.Ports, container.VolumeMounts, container.VolumeDevices, container.Lifecycle = nil, nil, nil, nil
	container.LivenessProbe, container.ReadinessProbe, container.StartupProbe = nil, nil, nil
	container.TerminationMessagePath = corev1.TerminationMessagePathDefault
	container.TerminationMessagePolicy = corev1.TerminationMessageFallbackToLogsOnError
	return pod, nil
}

// Left is what the Pod's program left, once it has ended.
func Left(pod *corev1.Pod) (message string, ended bool) {
	for _, status := range pod.Status.ContainerStatuses {
		if over := status.State.Terminated; over != nil && status.Name == pod.Spec.Containers[0].Name {
			return cmp.Or(over.Message, fmt.Sprintf("%s, exit code %d", over.Reason, over.ExitCode)), true
		}
	}
	if pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded {
		return fmt.Sprintf("%s: %s", pod.Status.Reason, pod.Status.Message), true
	}
	return "", false
}

// Awaits says what a Pod that has not ended waits for.
func Awaits(pod *corev1.Pod) string {
	for _, status := range pod.Status.ContainerStatuses {
		if waiting := status.State.Waiting; waiting != nil {
			return fmt.Sprintf("image %s, %s: %s", status.Image, waiting.Reason, waiting.Message)
		}
		if status.State.Running != nil {
			return "it runs and does not end"
		}
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return c.Reason + ": " + c.Message
		}
	}
	return "nobody has started it"
}

// Unaskable says why nobody on the target can be asked; empty where somebody can.
func (f Facts) Unaskable() string {
	switch {
	case f.Reach.Manager == nil:
		return "the target has no manager of the infrastructure provider quoin"
	case f.schedulable() == 0:
		return "no node of the target can run the Pod that would ask"
	}
	return ""
}
