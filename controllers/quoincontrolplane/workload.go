// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoincontrolplane

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/quoin-dev/cluster-api-provider-quoin/controllers/quoincontrolplane/desired"
)

const (
	controlPlaneNodeLabel = "node-role.kubernetes.io/control-plane"
	kubeadmConfigName     = "kubeadm-config"
	// workloadTimeout bounds all that one reconcile reads from a workload cluster.
	workloadTimeout = 5 * time.Second
)

// staticPodLabels are what kubeadm labels the static pods of a control plane with.
var staticPodLabels = map[string]string{"tier": "control-plane"}

// WorkloadObjects are what the caches of workload clusters hold besides Nodes: a Cluster may have very many other
// objects of these kinds.
func WorkloadObjects() map[client.Object]cache.ByObject {
	inSystem := func(config cache.Config) cache.ByObject {
		return cache.ByObject{Namespaces: map[string]cache.Config{metav1.NamespaceSystem: config}}
	}
	named := func(name string) cache.ByObject {
		return inSystem(cache.Config{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, name)})
	}
	return map[client.Object]cache.ByObject{
		&corev1.Pod{}:        inSystem(cache.Config{LabelSelector: labels.SelectorFromSet(staticPodLabels)}),
		&corev1.ConfigMap{}:  named(kubeadmConfigName),
		&appsv1.DaemonSet{}:  named(kubeProxy),
		&appsv1.Deployment{}: named(coreDNS),
	}
}

// workload is what was read from the workload cluster.
type workload struct {
	client client.Client
	// reader is client, or for a cached observation the cache; cached says so.
	reader client.Reader
	cached bool
	// err is why it could not be read.
	err           error
	configVersion string
	health        map[string]machineHealth
	// nodes of the control plane, by name.
	nodes map[string]*corev1.Node
	// pods are the mirrors of static pods, by name.
	pods map[string]*corev1.Pod
	// addonsErr is why it could not be told what the add-ons have. It concerns nothing but the add-ons.
	addonsErr     error
	addonsCurrent bool
	// dnsProblem is why CoreDNS does not follow the version by itself; what to do, as a sentence.
	dnsProblem string
	// addonsVersion is the Kubernetes version whose images the add-ons have now; empty when it is not known.
	addonsVersion string
	// images of the add-ons that were read, by name.
	images map[string]string
}

// machineHealth is the health of one Machine's node and static pods.
type machineHealth struct {
	// seen: the node was read.
	seen bool
	// lostSince is since when its kubelet does not report, readySince since when it is Ready; zero when it does, or is
	// not.
	lostSince, readySince time.Time
	kubelet               string
	// serving: the static pods are ready, and podProblem is empty. problem may tell more, of the Node.
	serving    bool
	podProblem string
	// problem is the first thing that is wrong; empty when all is well.
	problem string
	// conditions of the static pods, by type.
	conditions map[string]metav1.Condition
}

// readWorkload reads nodes, static pods and kubeadm's configuration. A cluster that cannot be read is no error: what
// follows from it is decided, and shown in conditions.
func (r *Reconciler) readWorkload(ctx context.Context, s *scope) {
	s.workload.health = map[string]machineHealth{}
	ctx, cancel := context.WithTimeout(ctx, workloadTimeout)
	defer cancel()
	// Uncached, unless the observation is: whether an API server's pod is ready must not be remembered from before it
	// died.
	workloadClient, err := r.ClusterCache.GetUncachedClient(ctx, client.ObjectKeyFromObject(s.cluster))
	if err != nil {
		s.workload.err = fmt.Errorf("no connection to the workload cluster: %w", err)
		return
	}
	s.workload.client, s.workload.images = fencedClient{workloadClient, r.fenceOf(s)}, map[string]string{}
	if s.workload.reader, s.workload.err = r.workloadReader(ctx, s); s.workload.err != nil {
		return
	}
	if s.workload.err = s.readKubeadmConfig(ctx); s.workload.err != nil {
		return
	}
	if s.workload.err = r.watchWorkload(ctx, s); s.workload.err != nil {
		return
	}
	if s.workload.err = s.readNodes(ctx); s.workload.err != nil {
		return
	}
	s.nameNodes()
	if s.workload.err = s.readPods(ctx); s.workload.err != nil {
		return
	}
	for name, machine := range s.machines {
		if machine.Status.NodeRef.IsDefined() {
			s.workload.health[name] = s.readHealth(ctx, machine)
		}
	}
	s.workload.addonsVersion = s.runningAddons(ctx)
	s.workload.addonsCurrent, s.workload.addonsErr = s.addonsCurrent(ctx)
}

// workloadReader reads from the cache for a cached observation, as long as the cluster answers the probes of its
// connection: a cache does not tell that the cluster is silent.
func (r *Reconciler) workloadReader(ctx context.Context, s *scope) (client.Reader, error) {
	cluster := client.ObjectKeyFromObject(s.cluster)
	probes := r.ClusterCache.GetHealthCheckingState(ctx, cluster)
	if !s.cached || probes.LastProbeSuccessTime.IsZero() || probes.ConsecutiveFailures > 0 {
		return s.workload.client, nil
	}
	s.workload.cached = true
	reader, err := r.ClusterCache.GetReader(ctx, cluster)
	if err != nil {
		return nil, fmt.Errorf("no connection to the workload cluster: %w", err)
	}
	return reader, nil
}

// cacheFailed tells that a cache could not be read: it may not be filled yet. Whether the cluster answers is not told
// by that.
func (w *workload) cacheFailed() bool { return w.cached && w.err != nil }

// readKubeadmConfig reads the version that a join installs. That the ConfigMap is readable proves that kubeadm init
// ran.
func (s *scope) readKubeadmConfig(ctx context.Context) error {
	config := &corev1.ConfigMap{}
	key := client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: kubeadmConfigName}
	if err := s.workload.reader.Get(ctx, key, config); err != nil {
		return fmt.Errorf("reading ConfigMap %s of the workload cluster: %w", key, err)
	}
	var configuration struct {
		KubernetesVersion string `json:"kubernetesVersion"`
	}
	if err := yaml.Unmarshal([]byte(config.Data["ClusterConfiguration"]), &configuration); err != nil {
		return fmt.Errorf("reading ClusterConfiguration in ConfigMap %s of the workload cluster: %w", key, err)
	}
	s.workload.configVersion = configuration.KubernetesVersion
	return nil
}

// readNodes reads the control plane's Nodes at once, those without a Machine as well.
func (s *scope) readNodes(ctx context.Context) error {
	nodes := &corev1.NodeList{}
	if err := s.workload.reader.List(ctx, nodes, client.HasLabels{controlPlaneNodeLabel}); err != nil {
		return fmt.Errorf("listing the control plane's Nodes: %w", err)
	}
	s.workload.nodes = map[string]*corev1.Node{}
	for i := range nodes.Items {
		s.workload.nodes[nodes.Items[i].Name] = &nodes.Items[i]
	}
	return nil
}

// awaitsNodes tells that a Machine has joined and Cluster API has not named its Node yet.
func (s *scope) awaitsNodes() bool {
	return slices.ContainsFunc(s.machines.UnsortedList(), s.awaitsNode)
}

func (s *scope) awaitsNode(machine *clusterv1.Machine) bool {
	host, infra := s.hosts[machine.Name], s.infra[machine.Name]
	if machine.Status.NodeRef.IsDefined() || !machine.DeletionTimestamp.IsZero() || host == nil || infra == nil {
		return false
	}
	_, joined := joining(host, infra)
	return joined || provisioned(infra)
}

// nameNodes finds the Nodes of Machines that have joined, by their provider IDs, as Cluster API will at its next look,
// a second later or two. What it finds is written nowhere.
func (s *scope) nameNodes() {
	for name, machine := range s.machines {
		if !s.awaitsNode(machine) {
			continue
		}
		for _, node := range s.workload.nodes {
			if node.Spec.ProviderID != "" && node.Spec.ProviderID == s.infra[name].Spec.ProviderID {
				machine.Status.NodeRef.Name = node.Name
			}
		}
	}
}

// readPods reads the mirrors of all static pods at once.
func (s *scope) readPods(ctx context.Context) error {
	pods := &corev1.PodList{}
	if err := s.workload.reader.List(ctx, pods, client.InNamespace(metav1.NamespaceSystem),
		client.MatchingLabels(staticPodLabels)); err != nil {
		return fmt.Errorf("listing the control plane's static pods: %w", err)
	}
	s.workload.pods = map[string]*corev1.Pod{}
	for i := range pods.Items {
		s.workload.pods[pods.Items[i].Name] = &pods.Items[i]
	}
	return nil
}

// node reads a Node, which somebody may have taken the control plane's label from.
func (s *scope) node(ctx context.Context, name string) (*corev1.Node, error) {
	if node := s.workload.nodes[name]; node != nil {
		return node, nil
	}
	node := &corev1.Node{}
	if err := s.workload.reader.Get(ctx, client.ObjectKey{Name: name}, node); err != nil {
		return nil, err
	}
	s.workload.nodes[name] = node
	return node, nil
}

func (s *scope) readHealth(ctx context.Context, machine *clusterv1.Machine) machineHealth {
	health := machineHealth{conditions: map[string]metav1.Condition{}}
	name := machine.Status.NodeRef.Name
	node, err := s.node(ctx, name)
	if err != nil {
		health.problem = fmt.Sprintf("Node %s cannot be read: %v", name, err)
		s.setPods(&health, metav1.ConditionUnknown, clusterv1.InspectionFailedReason, health.problem)
		return health
	}
	health.seen, health.kubelet = true, node.Status.NodeInfo.KubeletVersion
	health.lostSince, health.readySince = readiness(node)
	switch nodeReady(node) {
	case corev1.ConditionUnknown:
		// A silent kubelet does not update its pods either.
		health.problem = fmt.Sprintf("the kubelet of Node %s does not report", name)
		s.setPods(&health, metav1.ConditionUnknown, clusterv1.InspectionFailedReason, health.problem)
		return health
	case corev1.ConditionFalse:
		health.problem = fmt.Sprintf("Node %s is not Ready", name)
	}
	for _, pod := range desired.StaticPods {
		if pod.Etcd && !desired.StackedEtcd(s.plane) {
			continue
		}
		condition := s.tellPod(pod.Component + "-" + name)
		condition.Type = pod.Condition
		health.conditions[pod.Condition] = condition
		if condition.Status != metav1.ConditionTrue && health.podProblem == "" {
			health.podProblem = condition.Message
		}
	}
	health.serving = health.podProblem == ""
	health.problem = orElse(health.problem, health.podProblem)
	return health
}

func (s *scope) setPods(health *machineHealth, status metav1.ConditionStatus, reason, message string) {
	for _, pod := range desired.StaticPods {
		if !pod.Etcd || desired.StackedEtcd(s.plane) {
			health.conditions[pod.Condition] = metav1.Condition{Type: pod.Condition, Status: status, Reason: reason,
				Message: message}
		}
	}
}

// tellPod tells of a static pod by its mirror in the API.
func (s *scope) tellPod(name string) metav1.Condition {
	pod := s.workload.pods[name]
	if pod == nil {
		return metav1.Condition{Status: metav1.ConditionFalse, Reason: "DoesNotExist",
			Message: fmt.Sprintf("Pod %s does not exist", name)}
	}
	if podReady(pod) {
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

func podReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(condition corev1.PodCondition) bool {
		return condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue
	})
}

// readiness is since when the kubelet of a Node does not report, or since when it is Ready.
func readiness(node *corev1.Node) (lostSince, readySince time.Time) {
	for _, condition := range node.Status.Conditions {
		switch {
		case condition.Type != corev1.NodeReady:
		case condition.Status == corev1.ConditionTrue:
			readySince = condition.LastTransitionTime.Time
		case condition.Status == corev1.ConditionUnknown:
			lostSince = condition.LastTransitionTime.Time
		}
	}
	return lostSince, readySince
}
