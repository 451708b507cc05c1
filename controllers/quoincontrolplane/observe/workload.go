// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"cmp"
	"context"
	"fmt"
	"sort"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/collections"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/quoin-dev/cluster-api-provider-quoin/controllers/quoincontrolplane/desired"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew/observed"
)

const (
	// ControlPlaneNodeLabel is on the Nodes of a control plane.
	ControlPlaneNodeLabel = observed.ControlPlaneNodeLabel
	// KubeadmConfigName is that of the ConfigMap that kubeadm joins with.
	KubeadmConfigName = "kubeadm-config"
	// WorkloadTimeout bounds all that one reconcile reads from a workload cluster.
	WorkloadTimeout = 5 * time.Second
)

// StaticPodLabels are what kubeadm labels the static pods of a control plane with.
var StaticPodLabels = map[string]string{"tier": "control-plane"}

// Workload is what was read from the workload cluster.
type Workload struct {
	// Connected: there is a connection to the cluster.
	Connected bool
	// Err is why it could not be read.
	Err error
	// ConfigVersion is the version that a join installs.
	ConfigVersion string
	// Health by Machine.
	Health map[string]Health
	// Nodes of the control plane, by name.
	Nodes map[string]*corev1.Node
	// AddonsErr is why it is not known what the add-ons have. It concerns nothing but the add-ons.
	AddonsErr error
	// AddonsCurrent: there is nothing that the add-ons are to get now.
	AddonsCurrent bool
	// ProxyHeld says what keeps kube-proxy from the wanted version beside the kubelets that run, and the way out; empty
	// when nothing does.
	ProxyHeld string
	// DNSProblem is why CoreDNS does not follow the version by itself; what to do, as a sentence.
	DNSProblem string
	// DNSBudget is what is to be done so that drains do not evict all pods of CoreDNS together.
	DNSBudget DNSBudget
	// AddonsVersion is the Kubernetes version whose images the add-ons have now; empty when it is not known.
	AddonsVersion string
	// Images of the add-ons that were read, by name.
	Images map[string]string

	// pods are the mirrors of static pods, by name.
	pods map[string]*corev1.Pod
	// cached: it was read from a cache.
	cached bool
}

// Health is that of one Machine's node and static pods.
type Health struct {
	// Serving: the static pods are ready, and PodProblem is empty. Problem may say more, of the Node.
	Serving    bool
	PodProblem string
	// Problem is the first thing that is wrong; empty when all is well.
	Problem string
	// Conditions of the static pods, by type.
	Conditions map[string]metav1.Condition

	// seen: the node was read. goes: it is being deleted.
	seen, goes bool
	// lostSince is since when its kubelet does not report, readySince since when it is Ready; zero when it does, or is
	// not.
	lostSince, readySince time.Time
	kubelet               string
}

// readWorkload reads nodes, static pods and kubeadm's configuration, and names the Nodes of the Machines that have
// joined, by their hosts while Nodes cannot be read. A cluster that cannot be read is no error: what follows from it is
// decided, and shown in conditions.
func (s *Sources) readWorkload(ctx context.Context, inv *Inventory) (Workload, collections.Machines) {
	w, machines := Workload{Health: map[string]Health{}}, inv.nodesByHosts()
	ctx, cancel := context.WithTimeout(ctx, WorkloadTimeout)
	defer cancel()
	var reader client.Reader
	if reader, w.Err = s.workloadReader(ctx, inv, &w); w.Err != nil {
		return w, machines
	}
	if w.ConfigVersion, w.Err = readKubeadmConfig(ctx, reader); w.Err != nil {
		return w, machines
	}
	if w.Err = s.Watch(ctx, &inv.Subject); w.Err != nil {
		return w, machines
	}
	if w.Nodes, w.Err = readNodes(ctx, reader); w.Err != nil {
		return w, machines
	}
	machines = inv.nameNodes(w.Nodes)
	if w.pods, w.Err = readPods(ctx, reader); w.Err != nil {
		return w, machines
	}
	for name, machine := range machines {
		if machine.Status.NodeRef.IsDefined() {
			w.Health[name] = w.readHealth(ctx, reader, machine, desired.StackedEtcd(inv.ControlPlane))
		}
	}
	w.readAddons(ctx, inv, machines, NewAddonImages(reader, nil))
	w.DNSBudget = readDNSBudget(ctx, inv.ControlPlane, reader)
	return w, machines
}

// workloadReader reads from the API server: whether an API server's pod is ready must not be remembered from before it
// died. For a cached observation it reads from the cache, as long as the cluster answers the probes of its connection:
// a cache does not show that the cluster is silent.
func (s *Sources) workloadReader(ctx context.Context, inv *Inventory, w *Workload) (client.Reader, error) {
	cluster := client.ObjectKeyFromObject(inv.Cluster)
	reader, err := s.Workloads.GetUncachedReader(ctx, cluster)
	if err != nil {
		return nil, fmt.Errorf("no connection to the workload cluster: %w", err)
	}
	w.Connected = true
	probes := s.Workloads.GetHealthCheckingState(ctx, cluster)
	if !inv.Cached || probes.LastProbeSuccessTime.IsZero() || probes.ConsecutiveFailures > 0 {
		return reader, nil
	}
	w.cached = true
	if reader, err = s.Workloads.GetReader(ctx, cluster); err != nil {
		return nil, fmt.Errorf("no connection to the workload cluster: %w", err)
	}
	return reader, nil
}

// CacheFailed reports whether a cache could not be read: it may not be filled yet. Whether the cluster answers is not
// told by that.
func (w *Workload) CacheFailed() bool { return w.cached && w.Err != nil }

// readKubeadmConfig reads the version that a join installs. That the ConfigMap is readable proves that kubeadm init
// ran.
func readKubeadmConfig(ctx context.Context, reader client.Reader) (string, error) {
	config := &corev1.ConfigMap{}
	key := client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: KubeadmConfigName}
	if err := reader.Get(ctx, key, config); err != nil {
		return "", fmt.Errorf("reading ConfigMap %s of the workload cluster: %w", key, err)
	}
	var configuration struct {
		KubernetesVersion string `json:"kubernetesVersion"`
	}
	if err := yaml.Unmarshal([]byte(config.Data["ClusterConfiguration"]), &configuration); err != nil {
		return "", fmt.Errorf("reading ClusterConfiguration in ConfigMap %s of the workload cluster: %w", key, err)
	}
	return configuration.KubernetesVersion, nil
}

// readNodes reads the control plane's Nodes at once, those without a Machine as well.
func readNodes(ctx context.Context, reader client.Reader) (map[string]*corev1.Node, error) {
	list := &corev1.NodeList{}
	if err := reader.List(ctx, list, client.HasLabels{ControlPlaneNodeLabel}); err != nil {
		return nil, fmt.Errorf("listing the control plane's Nodes: %w", err)
	}
	nodes := map[string]*corev1.Node{}
	for i := range list.Items {
		nodes[list.Items[i].Name] = &list.Items[i]
	}
	return nodes, nil
}

// readPods reads the mirrors of all static pods at once, by name.
func readPods(ctx context.Context, reader client.Reader) (map[string]*corev1.Pod, error) {
	list := &corev1.PodList{}
	if err := reader.List(ctx, list, client.InNamespace(metav1.NamespaceSystem),
		client.MatchingLabels(StaticPodLabels)); err != nil {
		return nil, fmt.Errorf("listing the control plane's static pods: %w", err)
	}
	pods := map[string]*corev1.Pod{}
	for i := range list.Items {
		pods[list.Items[i].Name] = &list.Items[i]
	}
	return pods, nil
}

// node reads a Node, which somebody may have taken the control plane's label from.
func (w *Workload) node(ctx context.Context, reader client.Reader, name string) (*corev1.Node, error) {
	if node := w.Nodes[name]; node != nil {
		return node, nil
	}
	node := &corev1.Node{}
	if err := reader.Get(ctx, client.ObjectKey{Name: name}, node); err != nil {
		return nil, err
	}
	w.Nodes[name] = node
	return node, nil
}

func (w *Workload) readHealth(
	ctx context.Context, reader client.Reader, machine *clusterv1.Machine, stacked bool,
) Health {
	health := Health{Conditions: map[string]metav1.Condition{}}
	unknown := func() {
		for _, pod := range desired.StaticPods {
			if !pod.Etcd || stacked {
				health.Conditions[pod.Condition] = metav1.Condition{Type: pod.Condition, Status: metav1.ConditionUnknown,
					Reason: clusterv1.InspectionFailedReason, Message: health.Problem}
			}
		}
	}
	name := machine.Status.NodeRef.Name
	node, err := w.node(ctx, reader, name)
	if err != nil {
		health.Problem = fmt.Sprintf("Node %s cannot be read: %v", name, err)
		unknown()
		return health
	}
	health.seen, health.goes = true, !node.DeletionTimestamp.IsZero()
	health.kubelet = node.Status.NodeInfo.KubeletVersion
	health.lostSince, health.readySince = readiness(node)
	switch NodeReady(node) {
	case corev1.ConditionUnknown:
		// A silent kubelet does not update its pods either.
		health.Problem = fmt.Sprintf("the kubelet of Node %s does not report", name)
		unknown()
		return health
	case corev1.ConditionFalse:
		health.Problem = fmt.Sprintf("Node %s is not Ready", name)
	}
	for _, pod := range desired.StaticPods {
		if pod.Etcd && !stacked {
			continue
		}
		component := pod.Component + "-" + name
		condition := podCondition(component, w.pods[component])
		condition.Type = pod.Condition
		health.Conditions[pod.Condition] = condition
		if condition.Status != metav1.ConditionTrue && health.PodProblem == "" {
			health.PodProblem = condition.Message
		}
	}
	health.Serving = health.PodProblem == ""
	health.Problem = cmp.Or(health.Problem, health.PodProblem)
	return health
}

// podCondition judges a static pod by its mirror in the API; pod is nil when there is none.
func podCondition(name string, pod *corev1.Pod) metav1.Condition {
	if pod == nil {
		return metav1.Condition{Status: metav1.ConditionFalse, Reason: "DoesNotExist",
			Message: fmt.Sprintf("Pod %s does not exist", name)}
	}
	if PodReady(pod) {
		return metav1.Condition{Status: metav1.ConditionTrue, Reason: "Running"}
	}
	var why []string
	for _, container := range pod.Status.ContainerStatuses {
		if waiting := container.State.Waiting; waiting != nil && waiting.Reason != "" {
			why = append(why, waiting.Reason)
		}
		if terminated := container.State.Terminated; terminated != nil && terminated.Reason != "" {
			why = append(why, terminated.Reason)
		}
	}
	message := fmt.Sprintf("Pod %s is not ready", name)
	if len(why) > 0 {
		message += ": " + strings.Join(why, ", ")
	}
	if pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded {
		return metav1.Condition{Status: metav1.ConditionFalse, Reason: "Failed", Message: message}
	}
	return metav1.Condition{Status: metav1.ConditionFalse, Reason: "Provisioning", Message: message}
}

// RunningVersions are those of the kubelets, oldest first. A Machine that runs nothing yet has none.
func RunningVersions(machines collections.Machines, health map[string]Health) []clusterv1.StatusVersion {
	counts := map[string]int32{}
	for name, machine := range machines {
		if version := KubeletVersion(machine, health[name]); version != "" {
			counts[version]++
		}
	}
	var result []clusterv1.StatusVersion
	for version, replicas := range counts {
		result = append(result, clusterv1.StatusVersion{Version: version, Replicas: replicas})
	}
	sort.Slice(result, func(i, j int) bool { return skew.Older(result[i].Version, result[j].Version) })
	return result
}
