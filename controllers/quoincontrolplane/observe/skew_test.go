// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"context"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew/observed"
)

// aged is a control plane of v1.35.4 that is to become v1.36.3, and a worker of a version.
func aged(worker string) *Lists {
	lists := &Lists{Subject: joined().Subject}
	for name, version := range map[string]string{"a": "v1.35.4", "w": worker} {
		machine := clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name,
			Labels: map[string]string{clusterv1.ClusterNameLabel: "c"}}}
		machine.Spec.ClusterName, machine.Spec.Version, machine.Status.NodeRef.Name = "c", version, "n-"+name
		if name == "a" {
			machine.Labels[clusterv1.MachineControlPlaneLabel] = ""
		} else {
			machine.Labels[clusterv1.MachineDeploymentNameLabel] = "blue"
		}
		lists.all = append(lists.all, machine)
	}
	return lists
}

// The wanted version is judged by all Machines of the Cluster, by each policy that it names.
func TestWhatAVersionWouldLeaveBehind(t *testing.T) {
	catalog := func(text string) client.Reader {
		return fake.NewClientBuilder().WithObjects(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace,
			Name: observed.CatalogName}, Data: map[string]string{observed.CatalogKey: text}}).Build()
	}
	const listing = "tool: v1.36.3\nreleases:\n- {version: v1.35.4}\n- {version: v1.36.3, pools: [v1.36.3]}\n"
	for name, test := range map[string]struct {
		worker, policy string
		cache          client.Reader
		want, end      string
		err            string
	}{
		"nothing": {worker: "v1.35.4"},
		"a worker": {worker: "v1.32.4", want: "kubelet v1.32.4 of Machine w",
			end: "; raise MachineDeployment blue to v1.35.4 first, then the control plane to v1.36.3"},
		"who knows by what policy": {worker: "v1.35.4", policy: "None-Such",
			want: "annotation quoin.cluster.x-k8s.io/skew-policy of Cluster c: there is no", end: "; correct the annotation"},
		"who knows by what catalog": {worker: "v1.35.4", policy: "Distribution", cache: fake.NewClientBuilder().Build(),
			want: "the version-skew policy of Cluster c judges by a catalog", end: "correct annotation " +
				skew.PolicyAnnotation},
		"who can read the catalog": {worker: "v1.35.4", policy: "Distribution", cache: unreadable(),
			err: "read ConfigMap default/quoin-releases: down"},
		"a worker of no listed version": {worker: "v1.35.4", policy: "Distribution", cache: catalog(listing),
			want: "kubelet v1.35.4 of Machine w", end: "bring it to one of v1.36.3 first (S0-30)"},
		"nothing of a catalog": {worker: "v1.35.4", policy: "Distribution",
			cache: catalog("tool: v1.36.3\nreleases: [{version: v1.35.4}, {version: v1.36.3}]\n")},
	} {
		t.Run(name, func(t *testing.T) {
			g, lists := NewWithT(t), aged(test.worker)
			lists.Cluster.Annotations = map[string]string{skew.PolicyAnnotation: test.policy}
			left, err := (&Sources{Cache: test.cache}).leftBehind(t.Context(), lists)
			if test.err != "" {
				g.Expect(err).To(MatchError(test.err))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			if test.want == "" {
				g.Expect(left).To(BeEmpty())
			}
			g.Expect(left).To(And(HavePrefix(test.want), HaveSuffix(test.end)))
		})
	}
}

// What kubeadm is to make is judged by the members of etcd, and apart from them by the API servers, which are those of
// the Machines.
func TestWhatKubeadmIsNotToMake(t *testing.T) {
	member := func(name, tag string) *corev1.Pod {
		pod := staticPod("etcd-" + name)
		pod.Labels = map[string]string{"component": "etcd"}
		pod.Spec.Containers = []corev1.Container{{Name: "etcd", Image: "quoin.test/etcd:" + tag}}
		return pod
	}
	off := map[string]bool{"ControlPlaneKubeletLocalMode": false}
	const gate = "feature gate ControlPlaneKubeletLocalMode is off"
	for name, test := range map[string]struct {
		pods         []*corev1.Pod
		gates        map[string]bool
		policy, left string
		etcd, others string
	}{
		"all may be made":    {pods: []*corev1.Pod{member("a", "3.5.26-0")}},
		"a member is behind": {pods: []*corev1.Pod{member("a", "3.5.21-0")}, etcd: "etcd v3.5.21-0 of Pod etcd-a"},
		"the first by name is said": {pods: []*corev1.Pod{member("d", "3.5.21-0"), member("b", "3.5.20-0"),
			member("c", "3.5.19-0"), member("a", "3.5.18-0")}, etcd: "etcd v3.5.18-0 of Pod etcd-a"},
		"a gate is off":               {gates: off, others: gate},
		"a gate is off, among others": {gates: off, left: "w", others: "w; " + gate},
		"others are behind":           {left: "w", others: "w"},
		"nobody knows by what policy": {pods: []*corev1.Pod{member("a", "3.5.21-0")}, gates: off, policy: "None-Such",
			left: "w", others: "w"},
	} {
		t.Run(name, func(t *testing.T) {
			for range 5 {
				g, o := NewWithT(t), atNoon()
				o.Cluster.Annotations = map[string]string{skew.PolicyAnnotation: test.policy}
				o.ControlPlane.Spec.Version = "v1.35.1"
				o.ControlPlane.Spec.KubeadmConfigSpec.ClusterConfiguration.FeatureGates = test.gates
				o.Machines["a"].Labels = map[string]string{clusterv1.MachineControlPlaneLabel: ""}
				o.Machines["a"].Spec.Version = "v1.34.1"
				o.Workload.pods = map[string]*corev1.Pod{}
				for _, pod := range test.pods {
					o.Workload.pods[pod.Name] = pod
				}
				o.State.LeftBehind = test.left
				o.judgeKubeadm()
				g.Expect(o.State.EtcdBehind == "").To(Equal(test.etcd == ""))
				g.Expect(o.State.EtcdBehind).To(HavePrefix(test.etcd))
				g.Expect(o.State.LeftBehind == "").To(Equal(test.others == ""))
				g.Expect(o.State.LeftBehind).To(HavePrefix(test.others))
			}
		})
	}
}

// Proves: R20
//
// A kubelet of a further Machine fails on hosts with cgroup v1 unless its own bootstrap data, or the configuration that
// all kubelets of the cluster get, let it start. The latter is asked of a cluster that there is.
func TestWhenAFurtherKubeletFailsOnCgroupV1(t *testing.T) {
	config := func(text string) client.Reader {
		return fake.NewClientBuilder().WithObjects(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Namespace: metav1.NamespaceSystem, Name: "kubelet-config"}, Data: map[string]string{"kubelet": text}}).Build()
	}
	for name, test := range map[string]struct {
		cgroup   int32
		before   bool
		file     string
		workload *workload
		live     client.Reader
		fails    bool
		err      string
	}{
		"it has cgroup v2": {cgroup: 2, workload: &workload{live: config("{}")}},
		"it fails":         {cgroup: 1, workload: &workload{live: config("{}")}, fails: true},
		"the cluster lets it start": {cgroup: 1, workload: &workload{
			live: config("failCgroupV1: false")}},
		"the cluster is not there yet": {cgroup: 1, before: true, fails: true,
			workload: &workload{live: config("failCgroupV1: false")}},
		"the cluster does not answer": {cgroup: 1, workload: &workload{liveErr: context.DeadlineExceeded,
			live: config("{}")}},
		"its data let it start": {cgroup: 1, file: "failCgroupV1: false", workload: &workload{live: config("{}")}},
		"its data cannot be read": {cgroup: 1, workload: &workload{live: config("{}")}, live: unreadable(),
			err: "reading Secret default/patch of file /p: down"},
	} {
		t.Run(name, func(t *testing.T) {
			g, inv := NewWithT(t), joined()
			inv.ControlPlane.Namespace = namespace
			if !test.before {
				inv.ControlPlane.Status.Initialization.ControlPlaneInitialized = ptr.To(true)
			}
			inv.fleet = []infrav1.QuoinHost{{}}
			inv.fleet[0].Status.Facts = &infrav1.HostFacts{CgroupVersion: test.cgroup, KubeletOnCgroupV1: ptr.To(false)}
			inv.ControlPlane.Spec.KubeadmConfigSpec.Files = []bootstrapv1.File{{Path: "/p", Content: test.file}}
			if test.live != nil {
				inv.ControlPlane.Spec.KubeadmConfigSpec.Files[0].ContentFrom.Secret = bootstrapv1.SecretFileSource{
					Name: "patch", Key: "k"}
			}
			fails, err := (&Sources{Live: test.live, Workloads: test.workload}).failsOnCgroupV1(t.Context(), inv)
			if test.err != "" {
				g.Expect(err).To(MatchError(test.err))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(fails).To(Equal(test.fails))
			if test.fails && !test.before {
				g.Expect(test.workload.within).To(BeNumerically("~", WorkloadTimeout, WorkloadTimeout/2))
			}
		})
	}
}
