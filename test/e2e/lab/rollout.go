// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/progress"
)

// AwaitReady waits until the control plane runs one version and the workers another (or the same), every Machine is up to
// date and none is left over, and every node is Ready.
func (c *Cluster) AwaitReady(ctx context.Context, deadline time.Duration, controlPlane, workers string) error {
	title := fmt.Sprintf("Waiting for %s: control plane %s, workers %s, nodes Ready", c.Name, controlPlane, workers)
	return c.lab.Step(ctx, title, deadline, func(ctx context.Context, step *progress.Step) error {
		return step.Poll(ctx, 2*time.Second, func(ctx context.Context) (bool, []string, error) {
			missing, err := c.missing(ctx, controlPlane, workers)
			if err != nil || len(missing) > 0 {
				return false, append(missing, c.pending(ctx)...), err
			}
			return true, nil, nil
		})
	})
}

// missing says what is not as it should be, in objects that a user looks at.
func (c *Cluster) missing(ctx context.Context, controlPlane, workers string) ([]string, error) {
	var missing []string
	need := func(ok bool, format string, args ...any) {
		if !ok {
			missing = append(missing, fmt.Sprintf(format, args...))
		}
	}
	plane, err := c.ControlPlane(ctx)
	if err != nil {
		return nil, err
	}
	need(plane.Status.ObservedGeneration == plane.Generation, "control plane: its controller")
	n := c.controlPlanes()
	need(count(plane.Status.Replicas) == n && count(plane.Status.AvailableReplicas) == n && count(plane.Status.UpToDateReplicas) == n,
		"control plane: %d machines, %d available, %d up to date", count(plane.Status.Replicas), count(plane.Status.AvailableReplicas), count(plane.Status.UpToDateReplicas))
	need(len(plane.Status.Versions) == 1 && plane.Status.Versions[0].Version == controlPlane, "control plane: version %s", versions(plane.Status.Versions))
	deployment, err := c.WorkerDeployment(ctx)
	if err != nil {
		return missing, err
	}
	need(deployment.Status.ObservedGeneration == deployment.Generation, "workers: their controller")
	need(count(deployment.Status.Replicas) == c.Workers && count(deployment.Status.AvailableReplicas) == c.Workers && count(deployment.Status.UpToDateReplicas) == c.Workers,
		"workers: %d machines, %d available, %d up to date", count(deployment.Status.Replicas), count(deployment.Status.AvailableReplicas), count(deployment.Status.UpToDateReplicas))
	// The control plane counts a Machine in deletion until it is gone.
	machines, err := c.Machines(ctx)
	if err != nil {
		return missing, err
	}
	for _, machine := range machines {
		need(machine.DeletionTimestamp.IsZero(), "machine %s is being deleted", machine.Name)
	}
	nodes, err := c.Nodes(ctx)
	if err != nil {
		return missing, err
	}
	need(len(nodes) == n+c.Workers, "%d nodes instead of %d", len(nodes), n+c.Workers)
	for _, node := range nodes {
		want := workers
		if node.ControlPlane {
			want = controlPlane
		}
		need(node.Kubelet == want, "node %s: kubelet %s", node.Name, node.Kubelet)
		need(node.Ready, "node %s: not Ready", node.Name)
	}
	return missing, nil
}

func count(n *int32) int {
	if n == nil {
		return 0
	}
	return int(*n)
}

func versions(all []clusterv1.StatusVersion) string {
	var texts []string
	for _, one := range all {
		texts = append(texts, one.Version)
	}
	return orUnknown(strings.Join(texts, ", "))
}

// pending lists what the control plane says of itself, Machines that are not running, and hosts that are busy or wait:
// what a person wants to know meanwhile.
func (c *Cluster) pending(ctx context.Context) []string {
	var waiting []string
	if plane, err := c.ControlPlane(ctx); err == nil {
		for _, kind := range []string{controlplanev1.ControlPlaneRollingOutCondition, controlplanev1.ControlPlaneAvailableCondition} {
			condition := meta.FindStatusCondition(plane.Status.Conditions, kind)
			if condition != nil && condition.Message != "" {
				waiting = append(waiting, fmt.Sprintf("control plane %s, %s %s: %s", plane.Name, kind, condition.Status, bullet(condition.Message, -1)))
			}
		}
		if len(plane.Status.Conditions) == 0 {
			waiting = append(waiting, fmt.Sprintf("control plane %s: a first word from its controller", plane.Name))
		}
	}
	machines, err := c.Machines(ctx)
	if err != nil {
		return nil
	}
	for _, machine := range machines {
		if machine.Status.Phase == string(clusterv1.MachinePhaseRunning) {
			continue
		}
		line := fmt.Sprintf("machine %s %s", machine.Name, orUnknown(machine.Status.Phase))
		for _, kind := range []string{clusterv1.MachineDeletingCondition, clusterv1.ReadyCondition} {
			condition := meta.FindStatusCondition(machine.Status.Conditions, kind)
			if condition != nil && condition.Message != "" {
				line += ": " + bullet(condition.Message, 0)
				break
			}
		}
		waiting = append(waiting, line)
	}
	hosts := &infrav1.QuoinHostList{}
	if err := c.lab.Management.List(ctx, hosts, client.InNamespace(Namespace)); err != nil {
		return waiting
	}
	for _, host := range hosts.Items {
		switch host.Status.State {
		case infrav1.HostStateAvailable, infrav1.HostStateProvisioned:
		default:
			waiting = append(waiting, describeHost(&host))
		}
	}
	return waiting
}

// bullet picks one item of a message that Cluster API made of several, from the end when negative: of a Machine's the
// first says most, of a control plane's the last.
func bullet(message string, at int) string {
	items := strings.Split("\n"+message, "\n* ")
	if len(items) > 1 {
		items = items[1:]
	}
	if at < 0 {
		at += len(items)
	}
	return strings.Join(strings.Fields(items[min(at, len(items)-1)]), " ")
}

// Node is what a user sees of a node.
type Node struct {
	Name, Kubelet, BootID, UID, ProviderID string
	ControlPlane, Ready                    bool
	// ReadySince is when the Node last became Ready.
	ReadySince time.Time
}

// Nodes by name.
func (c *Cluster) Nodes(ctx context.Context) ([]Node, error) {
	if c.Client == nil {
		return nil, errors.New("the API server did not answer yet")
	}
	list := &corev1.NodeList{}
	if err := c.Client.List(ctx, list); err != nil {
		return nil, fmt.Errorf("nodes of %s: %w", c.Name, err)
	}
	nodes := make([]Node, 0, len(list.Items))
	for _, one := range list.Items {
		_, controlPlane := one.Labels["node-role.kubernetes.io/control-plane"]
		node := Node{
			Name: one.Name, Kubelet: one.Status.NodeInfo.KubeletVersion, BootID: one.Status.NodeInfo.BootID,
			UID: string(one.UID), ProviderID: one.Spec.ProviderID, ControlPlane: controlPlane,
		}
		for _, condition := range one.Status.Conditions {
			if condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue {
				node.Ready, node.ReadySince = true, condition.LastTransitionTime.Time
			}
		}
		nodes = append(nodes, node)
	}
	sort.Slice(nodes, func(i, j int) bool { return nodes[i].Name < nodes[j].Name })
	return nodes, nil
}

// drained names the machines in deletion whose node is cordoned and has no pod left that a drain would move.
func (c *Cluster) drained(ctx context.Context, machines []clusterv1.Machine) ([]string, error) {
	var done []string
	for _, machine := range machines {
		if c.Client == nil || machine.DeletionTimestamp.IsZero() || !machine.Status.NodeRef.IsDefined() {
			continue
		}
		node, pods := &corev1.Node{}, &corev1.PodList{}
		// The node is read last: pods that went because it is gone prove nothing.
		err := c.Client.List(ctx, pods, client.MatchingFields{"spec.nodeName": machine.Status.NodeRef.Name})
		if err == nil {
			err = c.Client.Get(ctx, client.ObjectKey{Name: machine.Status.NodeRef.Name}, node)
		}
		switch {
		case apierrors.IsNotFound(err):
		case err != nil:
			return nil, fmt.Errorf("pods of node %s: %w", machine.Status.NodeRef.Name, err)
		case node.Spec.Unschedulable && !slices.ContainsFunc(pods.Items, moves):
			done = append(done, machine.Name)
		}
	}
	return done, nil
}

// moves tells whether a drain has to move a pod: it is not a static one, not a DaemonSet's, and has not ended.
func moves(pod corev1.Pod) bool {
	_, static := pod.Annotations[corev1.MirrorPodAnnotationKey]
	owner := metav1.GetControllerOf(&pod)
	ended := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	return !static && !ended && (owner == nil || owner.Kind != "DaemonSet")
}

// EditControlPlaneVersion does what `kubectl edit quoincontrolplane` does.
func (c *Cluster) EditControlPlaneVersion(ctx context.Context, version string) error {
	return c.EditControlPlane(ctx, func(spec *controlplanev1.QuoinControlPlaneSpec) { spec.Version = version })
}

// EditControlPlane changes the spec of the cluster's QuoinControlPlane.
func (c *Cluster) EditControlPlane(ctx context.Context, change func(*controlplanev1.QuoinControlPlaneSpec)) error {
	plane, err := c.ControlPlane(ctx)
	if err != nil {
		return err
	}
	before := client.MergeFrom(plane.DeepCopy())
	change(&plane.Spec)
	if err := c.lab.Management.Patch(ctx, plane, before); err != nil {
		return fmt.Errorf("editing control plane %s: %w", plane.Name, err)
	}
	return nil
}

// EditWorkerVersion does what `kubectl edit machinedeployment` does.
func (c *Cluster) EditWorkerVersion(ctx context.Context, version string) error {
	deployment, err := c.WorkerDeployment(ctx)
	if err != nil {
		return err
	}
	before := client.MergeFrom(deployment.DeepCopy())
	deployment.Spec.Template.Spec.Version = version
	if err := c.lab.Management.Patch(ctx, deployment, before); err != nil {
		return fmt.Errorf("editing the version of machine deployment %s: %w", deployment.Name, err)
	}
	return nil
}

// EditWorkerConfig gives the workers a KubeadmConfigTemplate of another name, as a user does who changes what they are
// made of, and returns the name of the one before. What there is of the name already is taken as it is.
func (c *Cluster) EditWorkerConfig(ctx context.Context, name string, change func(*bootstrapv1.KubeadmConfigSpec)) (string, error) {
	deployment, err := c.WorkerDeployment(ctx)
	if err != nil {
		return "", err
	}
	former := deployment.Spec.Template.Spec.Bootstrap.ConfigRef.Name
	config := &bootstrapv1.KubeadmConfigTemplate{}
	if err := c.lab.Management.Get(ctx, client.ObjectKey{Namespace: Namespace, Name: former}, config); err != nil {
		return "", fmt.Errorf("reading the bootstrap template of the workers: %w", err)
	}
	config.ObjectMeta = metav1.ObjectMeta{Namespace: Namespace, Name: name, Annotations: config.Annotations}
	change(&config.Spec.Template.Spec)
	if err := c.lab.Management.Create(ctx, config); err != nil && !apierrors.IsAlreadyExists(err) {
		return "", fmt.Errorf("making bootstrap template %s: %w", name, err)
	}
	before := client.MergeFrom(deployment.DeepCopy())
	deployment.Spec.Template.Spec.Bootstrap.ConfigRef.Name = name
	if err := c.lab.Management.Patch(ctx, deployment, before); err != nil {
		return "", fmt.Errorf("giving machine deployment %s another template: %w", deployment.Name, err)
	}
	return former, nil
}

// SurgeWorkers has so many workers be made before as many old ones go.
func (c *Cluster) SurgeWorkers(ctx context.Context, count int32) error {
	deployment, err := c.WorkerDeployment(ctx)
	if err != nil {
		return err
	}
	before := client.MergeFrom(deployment.DeepCopy())
	deployment.Spec.Rollout.Strategy = clusterv1.MachineDeploymentRolloutStrategy{
		Type: clusterv1.RollingUpdateMachineDeploymentStrategyType, RollingUpdate: clusterv1.MachineDeploymentRolloutStrategyRollingUpdate{
			MaxSurge: ptr.To(intstr.FromInt32(count)), MaxUnavailable: ptr.To(intstr.FromInt32(0))}}
	if err := c.lab.Management.Patch(ctx, deployment, before); err != nil {
		return fmt.Errorf("giving machine deployment %s a surge of %d: %w", deployment.Name, count, err)
	}
	return nil
}

// ScaleWorkers does what `kubectl scale machinedeployment` does.
func (c *Cluster) ScaleWorkers(ctx context.Context, replicas int) error {
	deployment, err := c.WorkerDeployment(ctx)
	if err != nil {
		return err
	}
	before := client.MergeFrom(deployment.DeepCopy())
	deployment.Spec.Replicas = ptr.To(int32(replicas)) //nolint:gosec // a handful
	if err := c.lab.Management.Patch(ctx, deployment, before); err != nil {
		return fmt.Errorf("scaling machine deployment %s to %d: %w", deployment.Name, replicas, err)
	}
	return nil
}

// MarkForDeletion names the Machine that goes first when its MachineDeployment shrinks.
func (c *Cluster) MarkForDeletion(ctx context.Context, name string) error {
	machine := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: name}}
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:"true"}}}`, clusterv1.DeleteMachineAnnotation)
	if err := c.lab.Management.Patch(ctx, machine, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		return fmt.Errorf("marking machine %s for deletion: %w", name, err)
	}
	return nil
}

// EditTopologyVersion does what `kubectl edit cluster` does where a ClusterClass manages the rest.
func (c *Cluster) EditTopologyVersion(ctx context.Context, version string) error {
	cluster := &clusterv1.Cluster{}
	if err := c.lab.Management.Get(ctx, c.Key(), cluster); err != nil {
		return fmt.Errorf("reading cluster %s: %w", c.Name, err)
	}
	before := client.MergeFrom(cluster.DeepCopy())
	cluster.Spec.Topology.Version = version
	if err := c.lab.Management.Patch(ctx, cluster, before); err != nil {
		return fmt.Errorf("editing the version of cluster %s: %w", c.Name, err)
	}
	return nil
}

// Delete deletes the Cluster and waits until it is gone, with all its Machines, and every host is Available again.
func (c *Cluster) Delete(ctx context.Context, deadline time.Duration) error {
	return c.lab.Step(ctx, "Deleting cluster "+c.Name, deadline, func(ctx context.Context, step *progress.Step) error {
		object := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: c.Name}}
		if err := client.IgnoreNotFound(c.lab.Management.Delete(ctx, object)); err != nil {
			return fmt.Errorf("deleting cluster %s: %w", c.Name, err)
		}
		return step.Poll(ctx, time.Second, func(ctx context.Context) (bool, []string, error) {
			err := c.lab.Management.Get(ctx, c.Key(), &clusterv1.Cluster{})
			if apierrors.IsNotFound(err) {
				return true, nil, nil
			}
			return false, c.pending(ctx), err
		})
	})
}
