// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util/collections"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/controllers/quoincontrolplane/desired"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/clienttest"
)

// workload is a workload cluster that can be reached, and of which there is a cache, unless an error is set.
type workload struct {
	live, cached       client.Reader
	liveErr, cachedErr error
	probes             clustercache.HealthCheckingState
	within             time.Duration
}

func (w *workload) GetReader(context.Context, client.ObjectKey) (client.Reader, error) {
	return w.cached, w.cachedErr
}

func (w *workload) GetUncachedReader(ctx context.Context, _ client.ObjectKey) (client.Reader, error) {
	if deadline, limited := ctx.Deadline(); limited {
		w.within = time.Until(deadline)
	}
	return w.live, w.liveErr
}

func (w *workload) GetHealthCheckingState(context.Context, client.ObjectKey) clustercache.HealthCheckingState {
	return w.probes
}

// cluster is a workload cluster of one well Node n-a with its static pods, and with what further objects there are.
func cluster(more ...client.Object) *fake.ClientBuilder {
	objects := []client.Object{kubeadmConfig("kubernetesVersion: v1.36.3"), readyNode("n-a")}
	for _, pod := range desired.StaticPods {
		objects = append(objects, staticPod(pod.Component+"-n-a"))
	}
	return clienttest.Unmanaged(inside).WithObjects(append(objects, more...)...)
}

// down does not answer for objects, or for lists, of one kind; without a kind for nothing at all.
type down struct {
	client.Reader

	of runtime.Object
}

func (d *down) err(into runtime.Object) error {
	if d.of == nil || reflect.TypeOf(into) == reflect.TypeOf(d.of) {
		return errors.New("down")
	}
	return nil
}

func (d *down) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	if err := d.err(into); err != nil {
		return err
	}
	return d.Reader.Get(ctx, key, into, options...)
}

func (d *down) List(ctx context.Context, into client.ObjectList, options ...client.ListOption) error {
	if err := d.err(into); err != nil {
		return err
	}
	return d.Reader.List(ctx, into, options...)
}

// inside are the kinds that are read in a workload cluster.
var inside = clienttest.Scheme(corev1.AddToScheme, appsv1.AddToScheme, policyv1.AddToScheme)

func kubeadmConfig(configuration string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: KubeadmConfigName},
		Data: map[string]string{"ClusterConfiguration": configuration}}
}

func readyNode(name string) *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{ControlPlaneNodeLabel: ""}}}
	node.Status.NodeInfo.KubeletVersion = "v1.36.3"
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeDiskPressure, Status: corev1.ConditionUnknown,
		LastTransitionTime: metav1.NewTime(time.Unix(1, 0))},
		{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	return node
}

func staticPod(name string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: name, Labels: StaticPodLabels}}
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse},
		{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	return pod
}

// joined is the inventory of a control plane of one Machine a, whose Node is n-a.
func joined() *Inventory {
	machine := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "a"}}
	machine.Status.NodeRef.Name = "n-a"
	inv := &Inventory{Subject: Subject{ControlPlane: &controlplanev1.QuoinControlPlane{},
		Cluster: &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "c"}}},
		Machines: collections.FromMachines(machine), QuoinMachines: map[string]*infrav1.QuoinMachine{},
		Hosts: map[string]*infrav1.QuoinHost{}}
	inv.ControlPlane.Spec.Version = "v1.36.3"
	return inv
}

func watched(context.Context, *Subject) error { return nil }

func TestAWorkloadClusterThatIsWell(t *testing.T) {
	g := NewWithT(t)
	w, machines := (&Sources{Workloads: &workload{live: cluster(readyNode("n-b")).Build()}, Watch: watched}).
		readWorkload(t.Context(), joined())
	g.Expect(w.Err).NotTo(HaveOccurred())
	g.Expect(w.Connected).To(BeTrue())
	g.Expect(w.ConfigVersion).To(Equal("v1.36.3"))
	g.Expect(w.Nodes).To(And(HaveLen(2), HaveKey("n-a"), HaveKey("n-b")))
	g.Expect(w.pods).To(HaveLen(4))
	g.Expect(machines).To(HaveLen(1))
	g.Expect(w.AddonsErr).NotTo(HaveOccurred())
	g.Expect(w.AddonsCurrent).To(BeTrue())
	g.Expect(w.AddonsVersion).To(Equal("v1.36.3"), "that of the kubelet, where there is no kube-proxy")
	g.Expect(w.Images).To(Equal(map[string]string{KubeProxy: "", CoreDNS: ""}))
	health := w.Health["a"]
	g.Expect(health.Serving && health.seen).To(BeTrue())
	g.Expect(health.Problem).To(BeEmpty())
	g.Expect(health.kubelet).To(Equal("v1.36.3"))
	for _, condition := range desired.MachineConditions(joined().ControlPlane)[:4] {
		g.Expect(health.Conditions[condition]).To(And(HaveField("Type", condition),
			HaveField("Status", metav1.ConditionTrue), HaveField("Reason", "Running")))
	}
}

// What was read before a failure is kept, and what comes behind it is not known.
func TestAWorkloadClusterIsReadAsFarAsItGoes(t *testing.T) {
	failing := func(of runtime.Object) func(*Sources, *workload) {
		return func(_ *Sources, w *workload) { w.live = &down{cluster().Build(), of} }
	}
	for name, test := range map[string]struct {
		change                         func(*Sources, *workload)
		err, addons                    string
		connected, config, nodes, pods bool
	}{
		"no connection": {change: func(_ *Sources, w *workload) { w.liveErr = errors.New("down") },
			err: "no connection to the workload cluster: down"},
		"no configuration": {change: failing(&corev1.ConfigMap{}), connected: true,
			err: "reading ConfigMap kube-system/kubeadm-config of the workload cluster: down"},
		"a configuration that is none": {change: func(_ *Sources, w *workload) {
			w.live = clienttest.Unmanaged(inside).WithObjects(kubeadmConfig("{")).Build()
		}, connected: true, err: "reading ClusterConfiguration in ConfigMap kube-system/kubeadm-config"},
		"no watch": {change: func(s *Sources, _ *workload) {
			s.Watch = func(context.Context, *Subject) error { return errors.New("no watch") }
		}, connected: true, config: true, err: "no watch"},
		"no Nodes": {change: failing(&corev1.NodeList{}), connected: true, config: true,
			err: "listing the control plane's Nodes: down"},
		"no pods": {change: failing(&corev1.PodList{}), connected: true, config: true, nodes: true,
			err: "listing the control plane's static pods: down"},
		"no kube-proxy": {change: failing(&appsv1.DaemonSet{}), connected: true, config: true, nodes: true, pods: true,
			addons: "reading DaemonSet kube-proxy of the workload cluster: down"},
		"no CoreDNS": {change: failing(&appsv1.Deployment{}), connected: true, config: true, nodes: true, pods: true,
			addons: "reading Deployment coredns of the workload cluster: down"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			of := &workload{live: cluster().Build()}
			sources := &Sources{Workloads: of, Watch: watched}
			test.change(sources, of)
			w, machines := sources.readWorkload(t.Context(), joined())
			says := func(err error, message string) {
				if message == "" {
					g.Expect(err).NotTo(HaveOccurred())
				} else {
					g.Expect(err).To(MatchError(ContainSubstring(message)))
				}
			}
			says(w.Err, test.err)
			says(w.AddonsErr, test.addons)
			g.Expect(machines).To(HaveKey("a"))
			g.Expect([]bool{w.Connected, w.ConfigVersion != "", len(w.Nodes) > 0, len(w.pods) > 0}).
				To(Equal([]bool{test.connected, test.config, test.nodes, test.pods}))
			g.Expect(w.AddonsCurrent).To(BeFalse())
			g.Expect(w.Health).To(HaveLen(map[bool]int{true: 1}[test.pods]))
			g.Expect(w.CacheFailed()).To(BeFalse())
		})
	}
}

// A Machine that has joined is looked for among the Nodes before Cluster API names its Node: its health counts at once.
func TestTheHealthOfAMachineWhoseNodeIsNotNamedYet(t *testing.T) {
	g, o := NewWithT(t), atNoon()
	o.Machines["a"].Status.NodeRef.Name = ""
	o.QuoinMachines["a"].Status.Initialization.Provisioned = ptr.To(true)
	node := readyNode("n-b")
	node.Spec.ProviderID = o.QuoinMachines["a"].Spec.ProviderID
	w, machines := (&Sources{Workloads: &workload{live: cluster(node).Build()}, Watch: watched}).
		readWorkload(t.Context(), &o.Inventory)
	g.Expect(w.Err).NotTo(HaveOccurred())
	g.Expect(machines["a"].Status.NodeRef.Name).To(Equal("n-b"))
	g.Expect(w.Health).To(HaveKey("a"))
	g.Expect(o.Machines["a"].Status.NodeRef.IsDefined()).To(BeFalse())
}

// A cache shows nothing of a cluster that is silent.
func TestACacheIsReadWhileTheClusterAnswersItsProbes(t *testing.T) {
	for name, test := range map[string]struct {
		live   bool
		probes clustercache.HealthCheckingState
		failed error
		cached bool
	}{
		"it answers":      {probes: clustercache.HealthCheckingState{LastProbeSuccessTime: time.Unix(1, 0)}, cached: true},
		"it must be live": {live: true, probes: clustercache.HealthCheckingState{LastProbeSuccessTime: time.Unix(1, 0)}},
		"it never did":    {},
		"it does not now": {probes: clustercache.HealthCheckingState{LastProbeSuccessTime: time.Unix(1, 0),
			ConsecutiveFailures: 1}},
		"the cache is not": {probes: clustercache.HealthCheckingState{LastProbeSuccessTime: time.Unix(1, 0)}, cached: true,
			failed: errors.New("no cache")},
	} {
		t.Run(name, func(t *testing.T) {
			g, inv := NewWithT(t), joined()
			inv.Cached = !test.live
			of := &workload{live: cluster(readyNode("live")).Build(), cached: cluster(readyNode("cached")).Build(),
				probes: test.probes, cachedErr: test.failed}
			w, _ := (&Sources{Workloads: of, Watch: watched}).readWorkload(t.Context(), inv)
			g.Expect(w.Connected).To(BeTrue())
			g.Expect(w.CacheFailed()).To(Equal(test.failed != nil))
			switch {
			case test.failed != nil:
				g.Expect(w.Err).To(MatchError("no connection to the workload cluster: no cache"))
			case test.cached:
				g.Expect(w.Nodes).To(HaveKey("cached"))
			default:
				g.Expect(w.Nodes).To(HaveKey("live"))
			}
		})
	}
}

func TestAllThatIsReadOfAWorkloadClusterHasFiveSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		of := &workload{live: cluster().Build()}
		(&Sources{Workloads: of, Watch: watched}).readWorkload(t.Context(), joined())
		NewWithT(t).Expect(of.within).To(Equal(5 * time.Second))
	})
}

// Of a kubelet that does not report its pods are not known either. What a Node lacks is a problem, and its static pods
// may serve all the same.
func TestHealthOfAMachine(t *testing.T) {
	since := metav1.NewTime(time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC))
	ready := func(node *corev1.Node, status corev1.ConditionStatus) {
		node.Status.Conditions[1].Status, node.Status.Conditions[1].LastTransitionTime = status, since
	}
	for name, test := range map[string]struct {
		change                             func(*corev1.Node, map[string]*corev1.Pod)
		external, absent                   bool
		problem, pod                       string
		serving, unseen, goes, lost, ready bool
		unknown, pods                      int
	}{
		"well": {change: func(node *corev1.Node, _ map[string]*corev1.Pod) { ready(node, corev1.ConditionTrue) },
			serving: true, ready: true, pods: 4},
		"not ready": {change: func(node *corev1.Node, _ map[string]*corev1.Pod) { ready(node, corev1.ConditionFalse) },
			problem: "Node n-a is not Ready", serving: true, pods: 4},
		"silent": {change: func(node *corev1.Node, _ map[string]*corev1.Pod) { ready(node, corev1.ConditionUnknown) },
			problem: "the kubelet of Node n-a does not report", lost: true, unknown: 4, pods: 4},
		"never reported": {change: func(node *corev1.Node, _ map[string]*corev1.Pod) { node.Status.Conditions = nil },
			problem: "the kubelet of Node n-a does not report", unknown: 4, pods: 4},
		"silent, without etcd": {change: func(node *corev1.Node, _ map[string]*corev1.Pod) {
			ready(node, corev1.ConditionUnknown)
		}, external: true, problem: "the kubelet of Node n-a does not report", lost: true, unknown: 3, pods: 3},
		"no Node": {change: func(*corev1.Node, map[string]*corev1.Pod) {}, absent: true, unseen: true,
			problem: "Node n-a cannot be read: nodes \"n-a\" not found", unknown: 4, pods: 4},
		"being deleted": {change: func(node *corev1.Node, _ map[string]*corev1.Pod) {
			node.DeletionTimestamp, node.Finalizers = ptr.To(metav1.Now()), []string{"a/b"}
		}, serving: true, goes: true, pods: 4},
		"two pods are not there": {change: func(_ *corev1.Node, pods map[string]*corev1.Pod) {
			delete(pods, "kube-controller-manager-n-a")
			delete(pods, "kube-scheduler-n-a")
		}, problem: "Pod kube-controller-manager-n-a does not exist", pod: "Pod kube-controller-manager-n-a does not exist",
			pods: 4},
		"no Ready Node and no etcd": {change: func(node *corev1.Node, pods map[string]*corev1.Pod) {
			ready(node, corev1.ConditionFalse)
			delete(pods, "etcd-n-a")
		}, problem: "Node n-a is not Ready", pod: "Pod etcd-n-a does not exist", pods: 4},
		"etcd runs elsewhere": {change: func(_ *corev1.Node, pods map[string]*corev1.Pod) { delete(pods, "etcd-n-a") },
			external: true, serving: true, pods: 3},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			node := readyNode("n-a")
			w := &Workload{Nodes: map[string]*corev1.Node{}, pods: map[string]*corev1.Pod{}}
			for _, pod := range desired.StaticPods {
				w.pods[pod.Component+"-n-a"] = staticPod(pod.Component + "-n-a")
			}
			test.change(node, w.pods)
			reader := clienttest.Unmanaged(inside)
			if !test.absent {
				// Somebody took the label from it: it is in no list.
				node.Labels = nil
				reader.WithObjects(node)
			}
			health := w.readHealth(t.Context(), reader.Build(), joined().Machines["a"], !test.external)
			g.Expect(health.Problem).To(Equal(test.problem))
			g.Expect(health.PodProblem).To(Equal(test.pod))
			g.Expect(health.Serving).To(Equal(test.serving))
			g.Expect(health.seen).To(Equal(!test.unseen))
			g.Expect(health.goes).To(Equal(test.goes))
			g.Expect(health.Conditions).To(HaveLen(test.pods))
			unknown := 0
			for kind, condition := range health.Conditions {
				g.Expect(condition.Type).To(Equal(kind))
				if condition.Status == metav1.ConditionUnknown {
					g.Expect(condition.Reason).To(Equal(clusterv1.InspectionFailedReason))
					g.Expect(condition.Message).To(Equal(test.problem))
					unknown++
				}
			}
			g.Expect(unknown).To(Equal(test.unknown))
			at := func(is bool) time.Time { return map[bool]time.Time{true: since.Time}[is] }
			g.Expect(health.lostSince.Equal(at(test.lost))).To(BeTrue())
			g.Expect(health.readySince.Equal(at(test.ready))).To(BeTrue())
			if !test.unseen {
				g.Expect(w.Nodes).To(HaveKey("n-a"), "it is read once")
			}
		})
	}
}

func TestAStaticPodSaysWhyItIsNotReady(t *testing.T) {
	waiting := corev1.ContainerStatus{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{
		Reason: "CrashLoopBackOff"}}}
	ended := corev1.ContainerStatus{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		Reason: "OOMKilled"}}}
	silent := []corev1.ContainerStatus{{}, {State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{}}},
		{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}}}
	for name, test := range map[string]struct {
		phase           corev1.PodPhase
		containers      []corev1.ContainerStatus
		reason, message string
	}{
		"it starts":          {corev1.PodPending, nil, "Provisioning", "Pod p is not ready"},
		"no container tells": {corev1.PodRunning, silent, "Provisioning", "Pod p is not ready"},
		"one tells": {corev1.PodRunning, []corev1.ContainerStatus{ended}, "Provisioning",
			"Pod p is not ready: OOMKilled"},
		"two tell": {corev1.PodRunning, []corev1.ContainerStatus{waiting, ended}, "Provisioning",
			"Pod p is not ready: CrashLoopBackOff, OOMKilled"},
		"it failed": {corev1.PodFailed, nil, "Failed", "Pod p is not ready"},
		"it ended":  {corev1.PodSucceeded, nil, "Failed", "Pod p is not ready"},
	} {
		pod := &corev1.Pod{Status: corev1.PodStatus{Phase: test.phase, ContainerStatuses: test.containers,
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse}}}}
		NewWithT(t).Expect(podCondition("p", pod)).To(Equal(metav1.Condition{Status: metav1.ConditionFalse,
			Reason: test.reason, Message: test.message}), name)
	}
	NewWithT(t).Expect(podCondition("p", nil)).To(Equal(metav1.Condition{Status: metav1.ConditionFalse,
		Reason: "DoesNotExist", Message: "Pod p does not exist"}))
}

// What a kubelet says of itself goes before what Cluster API read of it.
func TestRunningVersionsAreCountedOldestFirst(t *testing.T) {
	g := NewWithT(t)
	machines := collections.New()
	for name, version := range map[string]string{"a": "v1.36.3", "b": "v1.9.1", "c": "v1.36.3", "d": "", "e": "v1.10.0",
		"f": "v1.36.1", "g": "v1.35.12", "h": "v1.35.4"} {
		machine := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if version != "" {
			machine.Status.NodeInfo = &corev1.NodeSystemInfo{KubeletVersion: version}
		}
		machines.Insert(machine)
	}
	older := []clusterv1.StatusVersion{{Version: "v1.10.0", Replicas: 1}, {Version: "v1.35.4", Replicas: 1},
		{Version: "v1.35.12", Replicas: 1}, {Version: "v1.36.1", Replicas: 1}}
	g.Expect(RunningVersions(machines, nil)).To(Equal(slices.Concat([]clusterv1.StatusVersion{{Version: "v1.9.1",
		Replicas: 1}}, older, []clusterv1.StatusVersion{{Version: "v1.36.3", Replicas: 2}})))
	g.Expect(RunningVersions(machines, map[string]Health{"b": {kubelet: "v1.36.3"}})).To(Equal(
		slices.Concat(older, []clusterv1.StatusVersion{{Version: "v1.36.3", Replicas: 3}})))
}
