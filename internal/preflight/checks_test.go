// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	kcpv1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/quorum"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/suitability"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/clienttest"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/estatetest"
)

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// subject is a Cluster c1 whose managing cluster and own API server hold the objects.
func subject(t *testing.T, management, workload []client.Object) Subject {
	t.Helper()
	scheme := clienttest.Scheme(clientgoscheme.AddToScheme, bootstrapv1.AddToScheme, clusterv1.AddToScheme,
		clusterctlv1.AddToScheme, infrav1.AddToScheme, quoinv1.AddToScheme)
	reader := func(objects []client.Object) client.Reader {
		return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()
	}
	return Subject{Cluster: &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "c1"}},
		Version: "v1.36.3", Management: reader(management), Workload: reader(workload), Now: now}
}

// says is what findings are compared by.
func says(findings []quoinv1.Finding) []string {
	var all []string
	for _, finding := range findings {
		all = append(all, string(finding.Verdict)+" "+finding.Object+" "+finding.Reason)
	}
	return all
}

type looker = func(context.Context, Subject) (string, []quoinv1.Finding, error)

func expect(t *testing.T, check looker, s Subject, want ...string) []quoinv1.Finding {
	t.Helper()
	g := NewWithT(t)
	_, findings, err := check(t.Context(), s)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(says(findings)).To(ConsistOf(want))
	for _, finding := range findings {
		g.Expect(finding.Message).NotTo(BeEmpty())
	}
	return findings
}

func machine(name, version string, controlPlane bool) *clusterv1.Machine {
	m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: name,
		Labels: map[string]string{clusterv1.ClusterNameLabel: "c1"}}}
	m.Spec.ClusterName, m.Spec.Version, m.Status.NodeRef.Name = "c1", version, name
	if controlPlane {
		m.Labels[clusterv1.MachineControlPlaneLabel] = ""
	} else {
		m.Labels[clusterv1.MachineDeploymentNameLabel] = "blue"
	}
	return m
}

func TestVersionPath(t *testing.T) {
	g := NewWithT(t)
	control, worker := machine("cp", "v1.35.4", true), machine("w", "v1.34.1", false)
	s := subject(t, []client.Object{control, worker}, nil)
	message, findings, err := lookAtVersionPath(t.Context(), s)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(findings).To(BeEmpty())
	g.Expect(message).To(ContainSubstring("control plane v1.35.4 -> v1.36.3: one minor at a time"))
	g.Expect(message).To(ContainSubstring("MachineDeployment blue v1.34.1 -> v1.36.3: workers follow the control plane"))

	s.Version = "v1.37.0"
	hops := expect(t, lookAtVersionPath, s, "Warn  SeveralHops")
	g.Expect(hops[0].Fix).To(HavePrefix("set v1.36 first, then v1.37.0"))
	s.Upgraded = true // by a ClusterUpgrade, which makes the hops itself
	expect(t, lookAtVersionPath, s)
	s.Version = "v1.34.2"
	expect(t, lookAtVersionPath, s, "Block  NoVersionPath")
	s.Version = "latest"
	expect(t, lookAtVersionPath, s, "Block  NoVersionPath")

	// Cluster API takes a managed topology over a minor only where its ClusterClass lists a version of it.
	class := &clusterv1.ClusterClass{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "quoin"}}
	s = subject(t, []client.Object{control, worker, class}, nil)
	s.Version = "v1.37.0"
	s.Cluster.Spec.Topology = clusterv1.Topology{ClassRef: clusterv1.ClusterClassRef{Name: "quoin"}, Version: "v1.35.4"}
	expect(t, lookAtVersionPath, s, "Block  NoVersionPath")
	class.Spec.KubernetesVersions = []string{"v1.35.4", "v1.36.3", "v1.37.0"}
	s.Management = subject(t, []client.Object{control, worker, class}, nil).Management
	expect(t, lookAtVersionPath, s)

	// Of a way that somebody else plans only the end is judged.
	class.Spec.KubernetesVersions = nil
	class.Spec.Upgrade.External.GenerateUpgradePlanExtension = "plan.ours"
	old := machine("old", "v1.32.1", false)
	s.Management = subject(t, []client.Object{control, worker, class}, nil).Management
	s.Version = "v1.36.3"
	message, findings, err = lookAtVersionPath(t.Context(), s)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(message).To(ContainSubstring("plan.ours"))
	for _, finding := range findings {
		g.Expect(finding.Verdict).To(Equal(quoinv1.VerdictWarn))
	}
	s.Management = subject(t, []client.Object{control, old, class}, nil).Management
	expect(t, lookAtVersionPath, s, "Block  NoVersionPath")

	s.Cluster.Annotations = map[string]string{skew.PolicyAnnotation: "ours"}
	expect(t, lookAtVersionPath, s, "Block Cluster c1 UnknownPolicy")
}

// Proves: S1-2
func TestVersionPathToAMinorWithoutPatches(t *testing.T) {
	for runs, target := range map[string]string{"v1.33.1": "v1.34.4", "v1.34.4": "v1.34.9"} {
		findings := expect(t, lookAtVersionPath, withVersions(t, runs, target), "Warn  Unmaintained")
		NewWithT(t).Expect(findings[0].Message).To(HavePrefix("v1.34 gets no patches any more"))
	}
	expect(t, lookAtVersionPath, withVersions(t, "v1.34.4", "v1.35.4"))
}

func withVersions(t *testing.T, runs, target string) Subject {
	t.Helper()
	s := subject(t, []client.Object{machine("cp", runs, true), machine("w", runs, false)}, nil)
	s.Version = target
	return s
}

// Proves: S1-13
func TestVersionPathFromAnOldPatch(t *testing.T) {
	const first = "go to v1.35.4, the newest known patch of what runs, before you leave v1.35.1 behind (S1-13)"
	s := withVersions(t, "v1.35.1", "v1.36.3")
	expect(t, lookAtVersionPath, s)
	s.Via = []string{"v1.35.4"}
	findings := expect(t, lookAtVersionPath, s, "Warn  Advice")
	NewWithT(t).Expect(findings[0].Message).To(Equal(first))

	class := &clusterv1.ClusterClass{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "quoin"}}
	class.Spec.KubernetesVersions = []string{"v1.35.4", "v1.36.3"}
	s.Via, s.Management = nil, subject(t, []client.Object{machine("cp", "v1.35.1", true), class}, nil).Management
	s.Cluster.Spec.Topology = clusterv1.Topology{ClassRef: clusterv1.ClusterClassRef{Name: "quoin"}, Version: "v1.35.1"}
	findings = expect(t, lookAtVersionPath, s, "Warn  Advice")
	NewWithT(t).Expect(findings[0].Message).To(Equal(first))
}

// A Node that no Machine refers to keeps its kubelet, whatever is planned.
func TestVersionPathHeedsNodesWithoutMachines(t *testing.T) {
	for kubelet, want := range map[string][]string{"v1.34.1": nil, "v1.32.1": {"Block  NoVersionPath"}, "ours": nil} {
		stray := node("stray")
		stray.Status.NodeInfo.KubeletVersion = kubelet
		s := subject(t, []client.Object{machine("cp", "v1.35.4", true)}, []client.Object{stray})
		expect(t, lookAtVersionPath, s, want...)
	}
}

// Proves: R6, S1-25, S1-27
//
// A kube-proxy that is left alone keeps its version at every hop, and the kubelets beside it are a person's matter; one
// that follows is judged as it is by then.
func TestVersionPathOfAKubeProxyThatIsLeftAlone(t *testing.T) {
	for name, c := range map[string]struct {
		runs, target, policy string
		follows, alone       []string
	}{
		"the kubelets beside it": {runs: "v1.35.4", target: "v1.36.3", policy: "Kubernetes-1.24",
			follows: []string{"Block  NoVersionPath"}},
		"as many hops as it may stay": {runs: "v1.34.4", target: "v1.36.3", follows: []string{"Warn  SeveralHops"},
			alone: []string{"Warn  SeveralHops"}},
		"a hop more": {runs: "v1.32.4", target: "v1.36.3", follows: []string{"Warn  SeveralHops", "Warn  Kubeadm"},
			alone: []string{"Block  NoVersionPath"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := subject(t, []client.Object{machine("cp", c.runs, true), machine("w", c.runs, false)},
				[]client.Object{estatetest.KubeProxy(c.runs)})
			s.Version, s.Cluster.Annotations = c.target, map[string]string{skew.PolicyAnnotation: c.policy}
			s.ControlPlane = plane(func(*controlplanev1.QuoinControlPlane) {})
			expect(t, lookAtVersionPath, s, c.follows...)
			s.ControlPlane.Annotations = map[string]string{kcpv1.SkipKubeProxyAnnotation: ""}
			for _, finding := range expect(t, lookAtVersionPath, s, c.alone...) {
				if finding.Verdict == quoinv1.VerdictBlock {
					NewWithT(t).Expect(finding.Message).To(ContainSubstring("DaemonSet kube-proxy, which is left to you, is older"))
				}
			}
		})
	}
}

// Proves: R17, R18
func TestVersionPathAsksWhatKubeadmIsTold(t *testing.T) {
	for name, c := range map[string]struct {
		runs, target, etcd string
		gates              map[string]bool
		want               []string
	}{
		"etcd that may become 3.6": {runs: "v1.33.9", target: "v1.34.4", etcd: "3.5.26-0"},
		"etcd that may not":        {runs: "v1.33.9", target: "v1.34.4", etcd: "3.5.24-0", want: []string{"Block  Kubeadm"}},
		"etcd that depends on what the first hop brings": {runs: "v1.32.9", target: "v1.34.4", etcd: "3.5.16-0",
			want: []string{"Warn  SeveralHops", "Warn  Kubeadm"}},
		"kubelets of their own node's API server": {runs: "v1.33.9", target: "v1.34.4", etcd: "3.6.5-0",
			gates: map[string]bool{"ControlPlaneKubeletLocalMode": true}},
		"kubelets of any API server": {runs: "v1.33.9", target: "v1.34.4", etcd: "3.6.5-0",
			gates: map[string]bool{"ControlPlaneKubeletLocalMode": false}, want: []string{"Block  Kubeadm"}},
		"kubelets of any API server, at the second hop": {runs: "v1.29.9", target: "v1.31.4", etcd: "3.5.26-0",
			gates: map[string]bool{"ControlPlaneKubeletLocalMode": false},
			want:  []string{"Warn  SeveralHops", "Block  Kubeadm"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := subject(t, []client.Object{machine("cp", c.runs, true)}, []client.Object{estatetest.StaticPod("etcd", c.etcd)})
			s.Version = c.target
			s.ControlPlane = plane(func(p *controlplanev1.QuoinControlPlane) {
				p.Spec.KubeadmConfigSpec.ClusterConfiguration.FeatureGates = c.gates
			})
			expect(t, lookAtVersionPath, s, append(c.want, "Warn  Unmaintained")...)
		})
	}
}

// Proves: R9
//
// What runs as pods is asked as it is when the version is edited.
func TestVersionPathHeedsWhatRunsInside(t *testing.T) {
	for scheduler, want := range map[string][]string{"v1.34.1": nil, "v1.33.1": {"Block  NoVersionPath"}} {
		var pods []client.Object
		for component, version := range map[string]string{"kube-apiserver": "v1.35.4", "kube-scheduler": scheduler} {
			pod := estatetest.StaticPod(component, version)
			pod.Spec.NodeName = "cp"
			pods = append(pods, pod)
		}
		s := subject(t, []client.Object{machine("cp", "v1.35.4", true)}, pods)
		expect(t, lookAtVersionPath, s, want...)
	}
}

// Proves: S0-4, S0-6, S0-7, S0-8, S0-9, S0-10, S0-11, S0-16, S0-19, S0-24
//
// What a distribution asks of pools, of the clusters around one and of its tool no plan knows. It blocks here, so that
// an upgrade that admission would refuse half-way touches nothing.
func TestVersionPathAsksTheDistribution(t *testing.T) {
	twoBehind := []string{"ManagedClustersTwoMinorsBehind"}
	for name, c := range map[string]struct {
		clusters     map[string]string
		managing     string
		gates        []string
		tool, to     string
		worker, rule string
	}{
		"from its pool, two behind": {clusters: map[string]string{"c1": "v1.29.4"}, to: "v1.30.0", worker: "v1.28.6"},
		"from its pool, three behind": {clusters: map[string]string{"c1": "v1.29.4"}, to: "v1.30.0", worker: "v1.27.8",
			rule: "S0-24"},
		"up to its managing cluster": {clusters: map[string]string{"c1": "v1.29.4", "mc": "v1.30.0"}, managing: "mc",
			to: "v1.30.0"},
		"past its managing cluster": {clusters: map[string]string{"c1": "v1.29.4", "mc": "v1.29.4"}, managing: "mc",
			to: "v1.30.0", rule: "S0-4"},
		"past its managing cluster by a patch": {clusters: map[string]string{"c1": "v1.30.0", "mc": "v1.30.0"},
			managing: "mc", to: "v1.30.100-gke.96", rule: "S0-4"},
		"over a bootstrap cluster": {clusters: map[string]string{"c1": "v1.29.4"}, to: "v1.30.0"},
		"from far behind": {clusters: map[string]string{"c1": "v1.27.2", "mc": "v1.30.0"}, managing: "mc",
			to: "v1.28.6"},
		"beside one of another minor, below 1.30": {managing: "mc",
			clusters: map[string]string{"c1": "v1.29.4", "c2": "v1.28.6", "mc": "v1.30.0"}, to: "v1.30.0"},
		"to another version than the tool's": {clusters: map[string]string{"c1": "v1.29.4"}, tool: "v1.30.100-gke.96",
			to: "v1.30.0", rule: "S0-16"},
		"over two minors":               {clusters: map[string]string{"c1": "v1.28.1"}, to: "v1.30.0", rule: "S0-19"},
		"over a minor that it left out": {clusters: map[string]string{"c1": "v1.31.0"}, to: "v1.33.0", rule: "S0-19"},
		"managing one that is two behind": {clusters: map[string]string{"c1": "v1.29.4", "c2": "v1.28.6"}, managing: "c1",
			to: "v1.30.0"},
		"managing one that is three behind": {clusters: map[string]string{"c1": "v1.29.4", "c2": "v1.27.8"}, managing: "c1",
			to: "v1.30.0", rule: "S0-7"},
		"managing one that would be two behind 1.29": {clusters: map[string]string{"c1": "v1.28.6", "c2": "v1.27.8"},
			managing: "c1", to: "v1.29.4", rule: "S0-9"},
		"managing that with the gate": {clusters: map[string]string{"c1": "v1.28.6", "c2": "v1.27.8"}, gates: twoBehind,
			managing: "c1", to: "v1.29.4"},
		"managing several minors from 1.29": {clusters: map[string]string{"c1": "v1.28.6", "c2": "v1.28.6", "c3": "v1.29.0"},
			managing: "c1", to: "v1.29.4", rule: "S0-8"},
		"managing one that would be two behind 1.28": {clusters: map[string]string{"c1": "v1.27.8", "c2": "v1.26.3"},
			managing: "c1", to: "v1.28.6", rule: "S0-10"},
		"managing several minors from 1.28": {clusters: map[string]string{"c1": "v1.27.8", "c2": "v1.27.8", "c3": "v1.28.1"},
			managing: "c1", to: "v1.28.6", rule: "S0-11"},
		"managing one that is far behind, by a patch": {clusters: map[string]string{"c1": "v1.30.0", "c2": "v1.26.3"},
			managing: "c1", to: "v1.30.100-gke.96"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			objects := estatetest.Estate{Tool: cmp.Or(c.tool, c.to), Gates: c.gates, Clusters: c.clusters,
				Managing: c.managing}.Objects("prod")
			if c.worker != "" {
				objects = append(objects, machine("w", c.worker, false))
			}
			s := subject(t, objects, nil)
			s.Cluster.Annotations = map[string]string{skew.PolicyAnnotation: "Distribution"}
			s.Version = c.to
			_, findings, err := lookAtVersionPath(t.Context(), s)
			g.Expect(err).NotTo(HaveOccurred())
			if c.rule == "" {
				g.Expect(says(findings)).NotTo(ContainElement(HavePrefix("Block")), "%v", findings)
				return
			}
			g.Expect(says(findings)).To(ConsistOf("Block  NoVersionPath"))
			g.Expect(findings[0].Message).To(And(ContainSubstring("("+c.rule+")"), MatchRegexp("bring|go to|set")))
		})
	}
}

func node(name string, conditions ...corev1.NodeCondition) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	n.Status.Conditions = conditions
	n.Status.NodeInfo.ContainerRuntimeVersion = "containerd://2.1.4"
	return n
}

// lease that the kubelet of a Node renewed just now.
func lease(name string) *coordinationv1.Lease {
	l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: name}}
	l.Spec.RenewTime = &metav1.MicroTime{Time: now}
	return l
}

func TestNodes(t *testing.T) {
	is := func(condition corev1.NodeConditionType, status corev1.ConditionStatus) corev1.NodeCondition {
		return corev1.NodeCondition{Type: condition, Status: status, Message: "so it says"}
	}
	ready := is(corev1.NodeReady, corev1.ConditionTrue)
	cordoned, old := node("cordoned", ready), node("old", ready)
	cordoned.Spec.Unschedulable = true
	old.Status.NodeInfo.ContainerRuntimeVersion = "containerd://1.7.28"
	going, waiting := machine("going", "v1.35.4", false), machine("waiting", "v1.35.4", false)
	management, workload := []client.Object{going, waiting}, []client.Object(nil)
	for _, name := range []string{"well", "silent", "down", "full", "cordoned", "old"} {
		management = append(management, machine(name, "v1.35.4", false))
	}
	going.DeletionTimestamp, going.Finalizers = &metav1.Time{Time: now}, []string{"quoin.test/hold"}
	waiting.Status.NodeRef.Name = ""
	for _, name := range []string{"stray", "well", "full", "cordoned", "old"} {
		workload = append(workload, lease(name))
	}
	s := subject(t, management, append(workload,
		node("stray", ready), node("well", ready, is(corev1.NodeDiskPressure, corev1.ConditionFalse)), node("silent"),
		node("down", is(corev1.NodeReady, corev1.ConditionUnknown)),
		node("full", ready, is(corev1.NodeDiskPressure, corev1.ConditionTrue),
			is(corev1.NodeMemoryPressure, corev1.ConditionTrue), is(corev1.NodePIDPressure, corev1.ConditionTrue),
			is(corev1.NodeNetworkUnavailable, corev1.ConditionTrue)),
		cordoned, old,
	))
	want := []string{"Block Node silent NotReady", "Block Node down NotReady", "Block Node full DiskPressure",
		"Block Node full MemoryPressure", "Block Node full PIDPressure", "Block Node full NetworkUnavailable",
		"Warn Node cordoned Cordoned", "Block Machine going Deleting", "Block Machine waiting NoNode",
		"Warn Node stray NoMachine"}
	expect(t, lookAtNodes, s, append(want, "Block Node old RuntimeEnded")...)
	s.Version = "v1.35.9"
	expect(t, lookAtNodes, s, want...)
}

// A kubelet writes its own time into its Lease.
func TestNodesHeedTheirClocks(t *testing.T) {
	const limit = suitability.MaxClockOffset
	for renewed, want := range map[time.Duration][]string{
		0: nil, limit: nil, -limit - renewals: nil,
		limit + time.Second:             {"Block Node n Clock"},
		-limit - renewals - time.Second: {"Block Node n Clock"},
	} {
		lease := lease("n")
		lease.Spec.RenewTime.Time = now.Add(renewed)
		elsewhere := lease.DeepCopy()
		elsewhere.Namespace, elsewhere.Spec.RenewTime.Time = "shop", now.Add(time.Hour)
		expect(t, lookAtNodes, subject(t, []client.Object{machine("n", "v1.35.4", false)}, []client.Object{lease, elsewhere,
			node("n", corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue})}), want...)
	}
	gone := lease("n")
	gone.Spec.RenewTime.Time = now.Add(-time.Hour)
	expect(t, lookAtNodes, subject(t, []client.Object{machine("n", "v1.35.4", false)}, []client.Object{gone,
		node("n", corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionUnknown})}), "Block Node n NotReady")
	never := lease("n")
	never.Spec.RenewTime = nil
	for _, leases := range [][]client.Object{nil, {never}} {
		expect(t, lookAtNodes, subject(t, []client.Object{machine("n", "v1.35.4", false)}, append(leases,
			node("n", ready))), "Warn Node n NoLease")
	}
}

// Proves: R20
//
// A host that the kubelet of the version does not start on is none for the Machine that comes after the next one.
func TestNodesHeedTheCgroupsOfTheirHosts(t *testing.T) {
	for name, c := range map[string]struct {
		cgroup        int32
		tells, onHost bool
		runs, to      string
		want          []string
	}{
		"v2":                           {cgroup: 2},
		"v1":                           {cgroup: 1, want: []string{"Block Node n CgroupEnded"}},
		"v1, and kubelets start on it": {cgroup: 1, tells: true},
		"v1, and the host says so":     {cgroup: 1, onHost: true},
		"v1, which is early enough":    {cgroup: 1, to: "v1.34.9"},
		"v1, of a Machine that stays":  {cgroup: 1, runs: "v1.36.3"},
		"unknown":                      {},
	} {
		t.Run(name, func(t *testing.T) {
			host := newRack(t).host("h")
			host.Spec.ConsumerRef = &infrav1.ConsumerReference{Namespace: "prod", Machine: "n", Claim: "c"}
			host.Status.Facts = &infrav1.HostFacts{MachineID: "id", CgroupVersion: c.cgroup,
				KubeletOnCgroupV1: ptr.To(c.onHost)}
			of := machine("n", cmp.Or(c.runs, "v1.33.4"), false)
			of.Spec.ProviderID = host.ProviderID()
			shared := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "kubelet-config"},
				Data: map[string]string{"kubelet": "failCgroupV1: " + strconv.FormatBool(!c.tells)}}
			pool := &clusterv1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "blue",
				Labels: map[string]string{clusterv1.ClusterNameLabel: "c1"}}}
			s := subject(t, []client.Object{of, host, pool}, []client.Object{lease("n"), node("n", ready), shared})
			s.Version = cmp.Or(c.to, s.Version)
			for _, finding := range expect(t, lookAtNodes, s, c.want...) {
				NewWithT(t).Expect(finding.Message).To(And(ContainSubstring(s.Version), ContainSubstring("R20")))
			}
		})
	}
}

func plane(change func(*controlplanev1.QuoinControlPlane)) *controlplanev1.QuoinControlPlane {
	found := &controlplanev1.QuoinControlPlane{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "cp"}}
	member := func(name, role string) controlplanev1.EtcdMember {
		return controlplanev1.EtcdMember{Name: name, Machine: name, Role: role, Healthy: ptr.To(true)}
	}
	found.Status.Etcd = &controlplanev1.EtcdStatus{Agreed: ptr.To(true), ObservedTime: metav1.Time{Time: now},
		Members: []controlplanev1.EtcdMember{member("a", "Leader"), member("b", "Voter"), member("c", "Voter")}}
	for condition, status := range map[string]metav1.ConditionStatus{
		controlplanev1.ControlPlaneAvailableCondition:         metav1.ConditionTrue,
		controlplanev1.ControlPlaneComponentsHealthyCondition: metav1.ConditionTrue,
		controlplanev1.ControlPlaneRollingOutCondition:        metav1.ConditionFalse,
		controlplanev1.ControlPlaneRemediatingCondition:       metav1.ConditionFalse,
		controlplanev1.ControlPlaneScalingUpCondition:         metav1.ConditionFalse,
		controlplanev1.ControlPlaneScalingDownCondition:       metav1.ConditionFalse,
		controlplanev1.ControlPlaneAddonsUpToDateCondition:    metav1.ConditionTrue,
		controlplanev1.ControlPlaneBackupHealthyCondition:     metav1.ConditionTrue,
	} {
		found.Status.Conditions = append(found.Status.Conditions, metav1.Condition{Type: condition, Status: status})
	}
	found.Spec.Backup = &controlplanev1.EtcdBackup{}
	found.Status.Backup = &controlplanev1.EtcdBackupStatus{
		LastGood: &controlplanev1.BackupRecord{Name: "one", Time: metav1.Time{Time: now.Add(-time.Hour)}}}
	change(found)
	return found
}

func set(plane *controlplanev1.QuoinControlPlane, condition string, status metav1.ConditionStatus) {
	for i := range plane.Status.Conditions {
		if plane.Status.Conditions[i].Type == condition {
			plane.Status.Conditions[i].Status = status
		}
	}
}

// What is found of a member goes by the state by which everything else is decided about it, and so does what helps: a
// new member helps neither a database that is full nor one that is there again in a moment, and of a learner that does
// not answer nobody has a Machine replaced.
func TestMembersOfEtcdAreFoundByTheirState(t *testing.T) {
	for state, c := range map[quorum.MemberState]struct {
		role, machine, want, fix string
	}{
		quorum.MemberLearner:  {"Learner", "b", "Learner", "wait until it votes"},
		quorum.MemberFull:     {"Voter", "b", "Unhealthy", quorum.MakeRoom},
		quorum.MemberSlow:     {"Voter", "b", "Unhealthy", "wait until the disk of its host is quick again"},
		quorum.MemberWavering: {"Voter", "b", "Unhealthy", "wait a moment"},
		"":                    {"Voter", "b", "Unhealthy", "wait a moment"},
		quorum.MemberDead:     {"Leader", "b", "Unhealthy", "have its Machine replaced, or mend its host"},
		quorum.MemberUnasked:  {"Voter", "", "Unhealthy", "see condition EtcdClusterHealthy"},
	} {
		t.Run(string(state), func(t *testing.T) {
			s := subject(t, nil, nil)
			s.ControlPlane = plane(func(p *controlplanev1.QuoinControlPlane) {
				b := &p.Status.Etcd.Members[1]
				b.Role, b.Machine, b.State, b.Healthy, b.Problem = c.role, c.machine, string(state), ptr.To(false), "no answer"
			})
			NewWithT(t).Expect(expect(t, lookAtEtcd, s, "Block etcd member b "+c.want)).To(
				HaveExactElements(HaveField("Fix", HavePrefix(c.fix))))
		})
	}
}

// What the check says where it finds nothing.
func TestWhatIsSaidOfEtcd(t *testing.T) {
	g := NewWithT(t)
	s := subject(t, nil, nil)
	s.ControlPlane = plane(func(p *controlplanev1.QuoinControlPlane) { p.Status.Etcd.Tolerates = ptr.To[int32](1) })
	says, found, err := lookAtEtcd(t.Context(), s)
	g.Expect(says, found, err).To(Equal("3 members, of which 1 more may fail"))
	s.ControlPlane.Status.Etcd.Tolerates = nil
	says, found, err = lookAtEtcd(t.Context(), s)
	g.Expect(says, found, err).To(Equal("3 members, of which 0 more may fail"))
	external := &s.ControlPlane.Spec.KubeadmConfigSpec.ClusterConfiguration.Etcd.External
	external.Endpoints = []string{"https://etcd.quoin.test"}
	says, found, err = lookAtEtcd(t.Context(), s)
	g.Expect(says, found, err).To(Equal("external: its members are not looked after here"))
}

func TestControlPlaneEtcdAndBackup(t *testing.T) {
	const object = " QuoinControlPlane cp "
	for name, c := range map[string]struct {
		change               func(*controlplanev1.QuoinControlPlane)
		plane, etcd, backups []string
	}{
		"well": {change: func(*controlplanev1.QuoinControlPlane) {}},
		"nothing reported": {
			change: func(p *controlplanev1.QuoinControlPlane) { p.Status = controlplanev1.QuoinControlPlaneStatus{} },
			plane: []string{"Block" + object + "NotAvailable", "Block" + object + "ComponentsUnhealthy",
				"Block" + object + "ScalingUp", "Block" + object + "ScalingDown",
				"Block" + object + "Remediating", "Block" + object + "RollingOut", "Block" + object + "AddonsOutOfDate"},
			etcd: []string{"Block" + object + "Unobserved"}, backups: []string{"Warn" + object + "None"},
		},
		"rolling out": {
			change: func(p *controlplanev1.QuoinControlPlane) {
				set(p, controlplanev1.ControlPlaneRollingOutCondition, metav1.ConditionTrue)
				p.Status.Etcd.Members[1].Role = "Learner"
			},
			plane: []string{"Block" + object + "RollingOut"}, etcd: []string{"Block etcd member b Learner"},
		},
		"a rollout that waits for workers": {
			change: func(p *controlplanev1.QuoinControlPlane) {
				conditions.Set(p, metav1.Condition{Type: controlplanev1.ControlPlaneRollingOutCondition,
					Status: metav1.ConditionTrue, Reason: controlplanev1.VersionSkewReason})
			},
			plane: []string{"Warn" + object + "RolloutHeld"},
		},
		"add-ons that wait for workers": {
			change: func(p *controlplanev1.QuoinControlPlane) {
				conditions.Set(p, metav1.Condition{Type: controlplanev1.ControlPlaneAddonsUpToDateCondition,
					Status: metav1.ConditionFalse, Reason: controlplanev1.VersionSkewReason})
			},
			plane: []string{"Warn" + object + "AddonsHeld"},
		},
		"short of a member": {
			change: func(p *controlplanev1.QuoinControlPlane) {
				set(p, controlplanev1.ControlPlaneScalingUpCondition, metav1.ConditionTrue)
			},
			plane: []string{"Block" + object + "ScalingUp"},
		},
		"a member too many": {
			change: func(p *controlplanev1.QuoinControlPlane) {
				set(p, controlplanev1.ControlPlaneScalingDownCondition, metav1.ConditionTrue)
			},
			plane: []string{"Block" + object + "ScalingDown"},
		},
		"paused by itself": {
			change: func(p *controlplanev1.QuoinControlPlane) {
				p.Annotations = map[string]string{clusterv1.PausedAnnotation: ""}
			},
			plane: []string{"Block" + object + "Paused"},
		},
		"edited and not observed since": {
			change: func(p *controlplanev1.QuoinControlPlane) { p.Generation, p.Status.ObservedGeneration = 3, 2 },
			plane:  []string{"Block" + object + "Unobserved"},
		},
		"a member is ill, one has no Machine, and nobody agrees": {
			change: func(p *controlplanev1.QuoinControlPlane) {
				p.Status.Etcd.Agreed = nil
				p.Status.Etcd.Members[0].Healthy = ptr.To(false)
				p.Status.Etcd.Members[2].Machine = ""
			},
			etcd: []string{"Block" + object + "NoQuorum", "Block etcd member a Unhealthy", "Block etcd member c NoMachine"},
		},
		"what was read of etcd is old": {
			change: func(p *controlplanev1.QuoinControlPlane) {
				p.Status.Etcd.ObservedTime.Time = now.Add(-etcdTooOld - time.Second)
			},
			etcd: []string{"Block" + object + "Unobserved"},
		},
		"what was read of etcd is dated ahead": {
			change: func(p *controlplanev1.QuoinControlPlane) {
				p.Status.Etcd.ObservedTime.Time = now.Add(etcdTooOld + time.Second)
			},
			etcd: []string{"Block" + object + "Unobserved"},
		},
		"what was read of etcd is just not old": {
			change: func(p *controlplanev1.QuoinControlPlane) { p.Status.Etcd.ObservedTime.Time = now.Add(-etcdTooOld) },
		},
		"no member of etcd is known": {
			change: func(p *controlplanev1.QuoinControlPlane) { p.Status.Etcd.Members = nil },
			etcd:   []string{"Block" + object + "Unobserved"},
		},
		"external etcd": {
			change: func(p *controlplanev1.QuoinControlPlane) {
				p.Status.Etcd = nil
				p.Spec.KubeadmConfigSpec.ClusterConfiguration.Etcd.External.Endpoints = []string{"https://etcd.quoin.test"}
			},
		},
		"no backup": {
			change:  func(p *controlplanev1.QuoinControlPlane) { p.Spec.Backup = nil },
			backups: []string{"Warn" + object + "NotConfigured"},
		},
		"an old backup that fails since": {
			change: func(p *controlplanev1.QuoinControlPlane) {
				set(p, controlplanev1.ControlPlaneBackupHealthyCondition, metav1.ConditionFalse)
				p.Status.Backup.LastGood.Time.Time = now.Add(-25 * time.Hour)
			},
			backups: []string{"Warn" + object + "Failing", "Warn" + object + "Old"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := subject(t, nil, nil)
			s.ControlPlane = plane(c.change)
			expect(t, lookAtControlPlane, s, c.plane...)
			expect(t, lookAtEtcd, s, c.etcd...)
			expect(t, lookAtBackup, s, c.backups...)
		})
	}
}

// Of what another provider looks after only the contract tells.
func TestAForeignControlPlane(t *testing.T) {
	is := func(condition string, status metav1.ConditionStatus) metav1.Condition {
		return metav1.Condition{Type: condition, Status: status, Message: "so it says"}
	}
	available := is(clusterv1.ClusterControlPlaneAvailableCondition, metav1.ConditionTrue)
	still := is(clusterv1.ClusterRollingOutCondition, metav1.ConditionFalse)
	const away, rolling = "Block Cluster c1 NotAvailable", "Block Cluster c1 RollingOut"
	for name, c := range map[string]struct {
		kind       string
		conditions []metav1.Condition
		want       []string
	}{
		"well":             {conditions: []metav1.Condition{available, still}},
		"nothing reported": {want: []string{away, rolling}},
		"not available": {
			conditions: []metav1.Condition{is(clusterv1.ClusterControlPlaneAvailableCondition, metav1.ConditionUnknown), still},
			want:       []string{away},
		},
		"rolling out": {
			conditions: []metav1.Condition{available, is(clusterv1.ClusterRollingOutCondition, metav1.ConditionTrue)},
			want:       []string{rolling},
		},
		"ours and away": {
			kind: "QuoinControlPlane", conditions: []metav1.Condition{available, still},
			want: []string{"Block QuoinControlPlane cp NotFound"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := subject(t, nil, nil)
			s.Cluster.Status.Conditions = c.conditions
			s.Cluster.Spec.ControlPlaneRef = clusterv1.ContractVersionedObjectReference{Name: "cp",
				APIGroup: controlplanev1.GroupVersion.Group, Kind: cmp.Or(c.kind, "KubeadmControlPlane")}
			expect(t, lookAtControlPlane, s, c.want...)
			expect(t, lookAtEtcd, s, "Warn  NotLookedAt")
			expect(t, lookAtBackup, s, "Warn  NotLookedAt")
		})
	}
}

func TestCertificates(t *testing.T) {
	with := func(name string, left time.Duration) *clusterv1.Machine {
		m := machine(name, "v1.35.4", true)
		m.Status.CertificatesExpiryDate = metav1.Time{Time: now.Add(left)}
		return m
	}
	worker := with("worker", -time.Hour)
	delete(worker.Labels, clusterv1.MachineControlPlaneLabel)
	fixes := map[string]string{}
	for _, finding := range expect(t, lookAtCertificates, subject(t, []client.Object{with("well", certificatesSoon+time.Hour),
		with("soon", certificatesSoon), with("over", 0), machine("unknown", "v1.35.4", true), worker}, nil),
		"Warn Machine soon ExpireSoon", "Block Machine over Expired") {
		fixes[finding.Reason] = finding.Fix
	}
	NewWithT(t).Expect(fixes).To(Equal(map[string]string{
		"ExpireSoon": "let the upgrade follow soon: each new Machine has new ones",
		"Expired": "have the Machine replaced; or renew them on its host with kubeadm certs renew all, and remove annotation " +
			"machine.cluster.x-k8s.io/certificates-expiry from the Machine's KubeadmConfig",
	}))
}

// Proves: S1-18
func TestWebhooks(t *testing.T) {
	rule := func(group string, versions ...string) admissionregistrationv1.RuleWithOperations {
		return admissionregistrationv1.RuleWithOperations{Rule: admissionregistrationv1.Rule{APIGroups: []string{group},
			APIVersions: versions, Resources: []string{"deployments"}}}
	}
	exact, equivalent := ptr.To(admissionregistrationv1.Exact), ptr.To(admissionregistrationv1.Equivalent)
	validating := func(name string, match *admissionregistrationv1.MatchPolicyType,
		rules ...admissionregistrationv1.RuleWithOperations) client.Object {
		hook := admissionregistrationv1.ValidatingWebhook{Name: name + ".quoin.test", MatchPolicy: match, Rules: rules}
		return &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name},
			Webhooks: []admissionregistrationv1.ValidatingWebhook{hook}}
	}
	mutating := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "mutating"},
		Webhooks: []admissionregistrationv1.MutatingWebhook{{Name: "m.quoin.test", MatchPolicy: exact,
			Rules: []admissionregistrationv1.RuleWithOperations{rule("example.org", "v1"), rule("networking.k8s.io", "v1")}}}}
	findings := expect(t, lookAtWebhooks, subject(t, nil, []client.Object{
		validating("default", nil, rule("apps", "v1")), validating("equivalent", equivalent, rule("apps", "v1")),
		validating("all", exact, rule("apps", "*")), validating("custom", exact, rule("cluster.x-k8s.io", "v1beta2")),
		validating("exact", exact, rule("apps", "v1", "v1beta1")), validating("any", exact, rule("*", "v1")),
		validating("core", exact, rule("", "v1")),
		validating("snapshots", exact, rule("snapshot.storage.k8s.io", "v1")), mutating,
	}), "Warn ValidatingWebhookConfiguration exact ListsVersions",
		"Warn ValidatingWebhookConfiguration any ListsVersions",
		"Warn MutatingWebhookConfiguration mutating ListsVersions")
	for _, finding := range findings {
		NewWithT(t).Expect(finding.Fix).To(Equal("set matchPolicy: Equivalent"))
	}
}

// Proves: S1-19
//
// No object tells whether a webhook can handle what a minor adds, so a person is asked, once for all of them.
func TestWebhooksThatMayNotKnowWhatIsNew(t *testing.T) {
	hook := func(name, group string, failure *admissionregistrationv1.FailurePolicyType) client.Object {
		of := admissionregistrationv1.ValidatingWebhook{Name: name, FailurePolicy: failure}
		of.Rules = []admissionregistrationv1.RuleWithOperations{{Rule: admissionregistrationv1.Rule{
			APIGroups: []string{group}, APIVersions: []string{"v1"}, Resources: []string{"*"}}}}
		return &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name},
			Webhooks: []admissionregistrationv1.ValidatingWebhook{of}}
	}
	fail, ignore := ptr.To(admissionregistrationv1.Fail), ptr.To(admissionregistrationv1.Ignore)
	harmless := []client.Object{hook("ignores", "", ignore), hook("custom", "cluster.x-k8s.io", fail)}
	strict := append(slices.Clone(harmless), hook("pods", "", fail), hook("apps", "apps", nil), hook("all", "*", fail))
	for name, c := range map[string]struct {
		runs  string
		hooks []client.Object
		want  []string
	}{
		"a further minor": {runs: "v1.35.4", hooks: strict, want: []string{"Warn  AskTheirMakers"}},
		"a patch":         {runs: "v1.36.1", hooks: strict},
		"that let all by": {runs: "v1.35.4", hooks: harmless},
	} {
		t.Run(name, func(t *testing.T) {
			findings := expect(t, lookAtWebhooks, subject(t, []client.Object{machine("cp", c.runs, true)}, c.hooks), c.want...)
			for _, finding := range findings {
				NewWithT(t).Expect(finding.Message).To(HaveSuffix("is refused (S1-19): all, apps, pods"))
			}
		})
	}
}

func TestDeprecatedAPIs(t *testing.T) {
	s := subject(t, nil, nil)
	line := func(group, removed, resource, subresource, version string) string {
		return fmt.Sprintf("apiserver_requested_deprecated_apis{group=%q,removed_release=%q,resource=%q,subresource=%q,"+
			"version=%q} 1\n", group, removed, resource, subresource, version)
	}
	metrics := "# HELP apiserver_requested_deprecated_apis [STABLE] Gauge of deprecated APIs that have been requested\n" +
		"# TYPE apiserver_requested_deprecated_apis gauge\n" +
		line("", "", "componentstatuses", "", "v1") +
		line("flowcontrol.apiserver.k8s.io", "1.36", "flowschemas", "status", "v1beta3") +
		line("storage.k8s.io", "1.37", "csinodes", "", "v1beta1") +
		"apiserver_request_total{code=\"200\",group=\"\"} 17\n"
	s.Metrics = func(context.Context) ([]byte, error) { return []byte(metrics), nil }
	const schemas, nodes = "flowcontrol.apiserver.k8s.io/v1beta3/flowschemas/status", "storage.k8s.io/v1beta1/csinodes"
	for _, finding := range expect(t, lookAtDeprecatedAPIs, s, "Block "+schemas+" Removed", "Warn "+nodes+" Deprecated") {
		// Neither looks again while the API server that was asked still runs.
		NewWithT(t).Expect(finding.Fix).To(Equal("have those who ask for it use a later version; the audit log's annotation " +
			"k8s.io/deprecated names them. An API server forgets what it was asked for only when it restarts"))
	}
	s.Version = "v1.35.9"
	expect(t, lookAtDeprecatedAPIs, s, "Warn "+schemas+" Deprecated", "Warn "+nodes+" Deprecated")
	s.Version = "v2.0.0"
	expect(t, lookAtDeprecatedAPIs, s, "Block "+schemas+" Removed", "Block "+nodes+" Removed")
	s.Metrics = func(context.Context) ([]byte, error) { return nil, errors.New("forbidden") }
	_, _, err := lookAtDeprecatedAPIs(t.Context(), s)
	NewWithT(t).Expect(err).To(MatchError(ContainSubstring("forbidden")))
}

func TestSupply(t *testing.T) {
	host := func(name, role string, machine string) *infrav1.QuoinHost {
		h := &infrav1.QuoinHost{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: name,
			Labels: map[string]string{"role": role}}}
		h.Status.State = infrav1.HostStateAvailable
		h.Status.Facts = &infrav1.HostFacts{MachineID: "id-of-" + name, ContainerRuntime: "containerd://2.1.4"}
		h.Status.Conditions = []metav1.Condition{{Type: infrav1.HostReadyCondition, Status: metav1.ConditionTrue}}
		if machine != "" {
			h.Status.State = infrav1.HostStateProvisioned
			h.Spec.ConsumerRef = &infrav1.ConsumerReference{Namespace: "prod", Name: machine, Machine: machine}
		}
		return h
	}
	template := func(role string) *infrav1.QuoinMachineTemplate {
		of := &infrav1.QuoinMachineTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: role}}
		of.Spec.Template.Spec.HostSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"role": role}}
		return of
	}
	ref := func(name string) clusterv1.ContractVersionedObjectReference {
		return clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group,
			Kind: "QuoinMachineTemplate", Name: name}
	}
	pool := func(name string, replicas int32, maxUnavailable *intstr.IntOrString) *clusterv1.MachineDeployment {
		of := &clusterv1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: name,
			Labels: map[string]string{clusterv1.ClusterNameLabel: "c1"}}}
		of.Spec.Replicas, of.Spec.Template.Spec.InfrastructureRef = &replicas, ref("worker")
		of.Spec.Rollout.Strategy.RollingUpdate.MaxUnavailable = maxUnavailable
		return of
	}
	old, copied := host("old", "worker", ""), host("copy", "worker", "")
	old.Status.Facts.ContainerRuntime = "containerd://1.7.28"
	copied.Status.Facts.MachineID = "id-of-used"
	used := []client.Object{template("control-plane"), template("worker"), machine("cp", "v1.35.4", true),
		machine("w", "v1.35.4", false), host("used", "worker", "w"), host("used-too", "control-plane", "cp"), old, copied}
	pools := []client.Object{pool("blue", 2, nil), pool("empty", 0, nil),
		pool("green", 2, ptr.To(intstr.FromInt32(1))), pool("red", 2, ptr.To(intstr.FromString("10%")))}
	control, worker := host("a", "control-plane", ""), []client.Object{host("b", "worker", "")}
	theirs := host("c", "control-plane", "")
	theirs.Namespace, theirs.Spec.ConsumerNamespaces = "hostile", []string{"*"}
	const noHost, auto = " QuoinControlPlane cp NoSpareHost", controlplanev1.RolloutStrategyAuto
	surge, first := controlplanev1.RolloutStrategySurge, controlplanev1.RolloutStrategyRemoveFirst
	for name, c := range map[string]struct {
		more     []client.Object
		replicas int32
		strategy controlplanev1.RolloutStrategyType
		want     []string
	}{
		"one of each":                    {more: append(worker, control), replicas: 1},
		"none for a single member":       {more: worker, replicas: 1, want: []string{"Block" + noHost}},
		"one that is not accepted":       {more: append(worker, theirs), replicas: 1, want: []string{"Block" + noHost}},
		"none for three by surge":        {more: worker, replicas: 3, strategy: surge, want: []string{"Block" + noHost}},
		"none for three":                 {more: worker, replicas: 3, want: []string{"Warn" + noHost}},
		"none for three, automatic":      {more: worker, replicas: 3, strategy: auto, want: []string{"Warn" + noHost}},
		"none for three that go first":   {more: worker, replicas: 3, strategy: first},
		"none by a strategy of tomorrow": {more: worker, replicas: 3, strategy: "OfTomorrow", want: []string{"Block" + noHost}},
		"none for the pools": {more: []client.Object{control}, replicas: 1, want: []string{
			"Block MachineDeployment blue NoSpareHost", "Block MachineDeployment red NoSpareHost"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := subject(t, slices.Concat(used, pools, c.more), nil)
			s.ControlPlane = plane(func(p *controlplanev1.QuoinControlPlane) {
				p.Spec.Replicas, p.Spec.Rollout.Strategy = &c.replicas, c.strategy
				p.Spec.MachineTemplate.Spec.InfrastructureRef = ref("control-plane")
			})
			expect(t, lookAtSupply, s, c.want...)
		})
	}
	for name, c := range map[string]struct {
		change func(pool *clusterv1.MachineDeployment)
		want   []string
	}{
		"of the version, with all of its Machines": {change: func(pool *clusterv1.MachineDeployment) {
			pool.Spec.Template.Spec.Version = "v1.36.3"
			pool.Name = "done"
		}},
		"of the version, with a Machine behind": {change: func(pool *clusterv1.MachineDeployment) {
			pool.Spec.Template.Spec.Version = "v1.36.3"
		}, want: []string{"Block MachineDeployment blue NoSpareHost"}},
		"of neither, as Cluster API resolves it": {change: func(pool *clusterv1.MachineDeployment) {
			pool.Spec.Rollout.Strategy.RollingUpdate.MaxSurge = ptr.To(intstr.FromInt32(0))
			pool.Spec.Rollout.Strategy.RollingUpdate.MaxUnavailable = ptr.To(intstr.FromString("10%"))
		}},
		"of a part of a Machine more": {change: func(pool *clusterv1.MachineDeployment) {
			pool.Spec.Rollout.Strategy.RollingUpdate.MaxSurge = ptr.To(intstr.FromString("10%"))
		}, want: []string{"Block MachineDeployment blue NoSpareHost"}},
	} {
		t.Run("a rollout "+name, func(t *testing.T) {
			blue, done := pool("blue", 2, nil), machine("d", "v1.36.3", false)
			done.Labels[clusterv1.MachineDeploymentNameLabel] = "done"
			c.change(blue)
			expect(t, lookAtSupply, subject(t, append(used, blue, done), nil), c.want...)
		})
	}
	const blocked, warned = "Block MachineDeployment blue NoSpareHost", "Warn MachineDeployment blue NoSpareHost"
	for name, c := range map[string]struct {
		change func(policy *quoinv1.RolloutPolicy)
		// keeps the Machine from leaving a host that helps.
		keeps bool
		// named by another host, which would help, but is none of its own.
		named bool
		want  string
	}{
		"one Machine is missing":  {want: warned},
		"of another Cluster":      {change: func(p *quoinv1.RolloutPolicy) { p.Spec.ClusterName = "c2" }, want: blocked},
		"that waits":              {change: func(p *quoinv1.RolloutPolicy) { p.Spec.WhenNoSpare = "" }, want: blocked},
		"its host is no other's":  {keeps: true, want: blocked},
		"a stranger's would be":   {keeps: true, named: true, want: blocked},
		"that cannot be read":     {change: func(p *quoinv1.RolloutPolicy) { p.Spec.Strategy = strategyOf("many") }, want: blocked},
		"that needs all Machines": {change: func(p *quoinv1.RolloutPolicy) { p.Spec.Strategy = strategyOf("100%") }, want: blocked},
		"that needs half of them": {change: func(p *quoinv1.RolloutPolicy) { p.Spec.Strategy = strategyOf("50%") }, want: warned},
		"that drains nothing": {change: func(p *quoinv1.RolloutPolicy) {
			p.Spec.Strategy = &quoinv1.RolloutStrategy{DrainAndTerminate: ptr.To(false)}
		}, want: blocked},
		"of other MachineDeployments": {change: func(p *quoinv1.RolloutPolicy) {
			p.Spec.Groups = []quoinv1.RolloutGroup{{Name: "a", MachineDeployments: quoinv1.RolloutSelector{Names: []string{"red"}}}}
		}, want: blocked},
	} {
		t.Run("by a policy "+name, func(t *testing.T) {
			policy := &quoinv1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "workers"}}
			policy.Spec.ClusterName, policy.Spec.WhenNoSpare = "c1", quoinv1.RolloutWithoutSpareRemoveFirst
			if c.change != nil {
				c.change(policy)
			}
			worker, its := machine("w", "v1.35.4", false), host("used", "worker", "w")
			if c.keeps {
				its.Labels = nil
			}
			objects := []client.Object{template("worker"), worker, its, policy, pool("blue", 2, nil)}
			if c.named {
				worker.Spec.ProviderID = its.ProviderID()
				objects = append(objects, host("usurper", "worker", "w"))
			}
			findings := expect(t, lookAtSupply, subject(t, objects, nil), c.want)
			if c.want == warned {
				NewWithT(t).Expect(findings[0].Message).To(HaveSuffix("as whenNoSpare of RolloutPolicy workers says, and one of " +
					"2 is missing meanwhile"))
			}
		})
	}
	done := plane(func(p *controlplanev1.QuoinControlPlane) {
		p.Spec.Version, p.Spec.MachineTemplate.Spec.InfrastructureRef = "v1.36.3", ref("control-plane")
	})
	up := subject(t, []client.Object{template("control-plane"), machine("cp", "v1.36.3", true)}, nil)
	up.ControlPlane = done
	expect(t, lookAtSupply, up)
	up = subject(t, used, nil)
	up.ControlPlane = done
	expect(t, lookAtSupply, up, "Block"+noHost)
	there := pool("blue", 1, nil)
	there.Spec.Template.Spec.FailureDomain = "rack-2"
	here := host("b", "worker", "")
	here.Spec.FailureDomain = "rack-1"
	expect(t, lookAtSupply, subject(t, append(used, there, here), nil), "Block MachineDeployment blue NoSpareHost")
	here.Spec.FailureDomain = "rack-2"
	expect(t, lookAtSupply, subject(t, append(used, there, here), nil))
	s := subject(t, []client.Object{pool("blue", 1, nil), host("b", "worker", "")}, nil)
	missing := expect(t, lookAtSupply, s, "Block MachineDeployment blue NoSpareHost")
	NewWithT(t).Expect(missing[0].Message).
		To(ContainSubstring("QuoinMachineTemplate prod/worker, of which it is made, is not there"))
}

func strategyOf(minAvailable string) *quoinv1.RolloutStrategy {
	return &quoinv1.RolloutStrategy{RolloutVictims: quoinv1.RolloutVictims{
		MinAvailable: ptr.To(intstr.FromString(minAvailable))}}
}

// Proves: R20
func TestSupplyHeedsHostsWithCgroupV1(t *testing.T) {
	host := &infrav1.QuoinHost{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "old"}}
	host.Status.State = infrav1.HostStateAvailable
	host.Status.Facts = &infrav1.HostFacts{MachineID: "id", CgroupVersion: 1, KubeletOnCgroupV1: ptr.To(false)}
	host.Status.Conditions = []metav1.Condition{{Type: infrav1.HostReadyCondition, Status: metav1.ConditionTrue}}
	template := &infrav1.QuoinMachineTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "all"}}
	pool := &clusterv1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "blue",
		Labels: map[string]string{clusterv1.ClusterNameLabel: "c1"}}}
	pool.Spec.Template.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{
		APIGroup: infrav1.GroupVersion.Group, Kind: "QuoinMachineTemplate", Name: "all"}
	data := func(name, value string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: name},
			Data: map[string][]byte{"value": []byte(value)}}
	}
	shared := func(kubelet string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "kubelet-config"},
			Data: map[string]string{"kubelet": kubelet}}
	}
	const says, noHost = "fail-cgroupv1: false", " NoSpareHost"
	workers, members := "Block MachineDeployment blue"+noHost, "Block QuoinControlPlane cp"+noHost
	for name, c := range map[string]struct {
		version                         string
		control, former, newest, shared string
		want                            []string
	}{
		"that nothing tells":                  {want: []string{members, workers}},
		"that the workers' data tell":         {newest: says, want: []string{members}},
		"that only a former worker's told":    {former: says, want: []string{members, workers}},
		"that the control plane's data tell":  {control: says, want: []string{workers}},
		"that the shared configuration tells": {shared: "failCgroupV1: false"},
		"of a version that needs no word":     {version: "v1.34.9"},
	} {
		t.Run(name, func(t *testing.T) {
			member, former, newest := machine("m", "v1.33.4", true), machine("w1", "v1.33.4", false), machine("w2", "v1.33.4", false)
			newest.CreationTimestamp.Time = now
			former.CreationTimestamp.Time, member.CreationTimestamp.Time = now.Add(-time.Hour), now.Add(time.Hour)
			for _, of := range []*clusterv1.Machine{member, former, newest} {
				of.Spec.Bootstrap.DataSecretName = ptr.To("data-" + of.Name)
			}
			s := subject(t, []client.Object{host, template, pool, member, former, newest, data("data-m", c.control),
				data("data-w1", c.former), data("data-w2", c.newest)}, []client.Object{shared(c.shared)})
			s.Version = cmp.Or(c.version, s.Version)
			s.ControlPlane = plane(func(p *controlplanev1.QuoinControlPlane) {
				p.Spec.MachineTemplate.Spec.InfrastructureRef = pool.Spec.Template.Spec.InfrastructureRef
			})
			expect(t, lookAtSupply, s, c.want...)
		})
	}
}
