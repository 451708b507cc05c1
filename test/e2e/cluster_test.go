//go:build e2e

// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/e2e/lab"
)

// clusterLife makes a cluster of one control plane and two workers at the old version.
func clusterLife() {
	It("pins the hosts' keys: given up front, or those of the first contact", func(ctx SpecContext) {
		for _, host := range the.lab.Hosts {
			object := quoinHost(ctx, host.Name)
			Expect(object.Spec.HostKeys).NotTo(BeEmpty(), "host %s", host.Name)
			Expect(object.Status.Facts).NotTo(BeNil(), "host %s", host.Name)
			Expect(object.Status.Facts.BootID).NotTo(BeEmpty(), "host %s", host.Name)
			Expect(object.Status.Facts.ContainerRuntime).To(HavePrefix("containerd://"), "host %s", host.Name)
		}
	}, NodeTimeout(time.Minute))

	It("makes a cluster of bare hosts", func(ctx SpecContext) {
		the.demo = need(the.lab.Create(ctx, lab.Demo()))
		must(the.demo.AwaitAPI(ctx))
		must(the.demo.ApplyNetwork(ctx))
		must(the.demo.AwaitReady(ctx, 8*time.Minute, lab.OldVersion, lab.OldVersion))
		the.nodes = logNodes(ctx, the.demo, "at the beginning")
		for _, node := range the.nodes {
			Expect(node.ProviderID).To(HavePrefix("quoin://"+lab.Namespace+"/"+node.Name+"/"), "node %s", node.Name)
		}
	}, NodeTimeout(16*time.Minute))

	It("runs pods on the workers, reachable through a Service from every worker", func(ctx SpecContext) {
		must(the.lab.Apply(ctx, the.demo.Kubeconfig(), web))
		expectWeb(ctx, the.demo)
	}, NodeTimeout(5*time.Minute))

	It("ran kubeadm once on each host", func(ctx SpecContext) {
		for _, node := range the.nodes {
			verb, step := "join", "join"
			if node.ControlPlane {
				verb, step = "init", "init"
			}
			host := need(the.lab.Host(node.Name))
			Expect(need(the.lab.KubeadmCalls(ctx, host, verb))).To(Equal(1), "calls of kubeadm %s on %s", verb, node.Name)
			Expect(kubeadmStarts(ctx, host, step)).To(Equal(1), "journaled starts of kubeadm %s on %s", verb, node.Name)
		}
	}, NodeTimeout(time.Minute))

	It("guards the first etcd member against beginning anew", func(ctx SpecContext) {
		node, _ := controlPlaneNode(ctx)
		out := need(the.lab.OnHost(ctx, need(the.lab.Host(node.Name)), `grep -o /etc/kubernetes/quoin/etcd-has-its-data /etc/kubernetes/manifests/etcd.yaml | sort -u
dirname "$(readlink -e /etc/kubernetes/quoin/etcd-has-its-data)"`))
		Expect(strings.Fields(out)).To(Equal([]string{"/etc/kubernetes/quoin/etcd-has-its-data", "/var/lib/etcd/member/wal"}),
			"what its pod mounts, and where the mark lies")
	}, NodeTimeout(time.Minute))

	It("leaves clusterctl describe with no unexplained Unknown", func(ctx SpecContext) {
		expectDescribed(ctx, the.demo)
	}, NodeTimeout(3*time.Minute))
}

// deletion deletes the first cluster with kubectl.
func deletion() {
	It("leaves no Machine behind and gives every host back, clean", func(ctx SpecContext) {
		_, err := the.lab.Kubectl(ctx, the.lab.Kubeconfig(), "delete", "cluster", the.demo.Name, "--namespace", lab.Namespace, "--wait=false")
		must(err)
		must(the.demo.Delete(ctx, 8*time.Minute))
		expectNothingLeft(ctx, the.demo)
		must(the.lab.AwaitHosts(ctx, 2*time.Minute, infrav1.HostStateAvailable))
		for _, host := range the.lab.Hosts {
			expectClean(ctx, host)
		}
	}, NodeTimeout(12*time.Minute))
}

// topology makes a cluster from the ClusterClass, with its bundles over HTTP, and edits its version.
func topology() {
	It("makes it, raises it and deletes it", func(ctx SpecContext) {
		server := need(the.lab.ServeBundles(context.WithoutCancel(ctx)))
		DeferCleanup(server.Close)
		the.other = need(the.lab.Create(ctx, lab.ClusterSpec{
			Name: "classy", Flavor: "topology", Version: lab.OldVersion, VirtualAddress: "172.30.0.101", RouterID: 101,
			Workers: 1, Bundles: server.Location(),
		}))
		must(the.other.AwaitAPI(ctx))
		must(the.other.ApplyNetwork(ctx))
		must(the.other.AwaitReady(ctx, 8*time.Minute, lab.OldVersion, lab.OldVersion))
		logNodes(ctx, the.other, "of the cluster")
		Expect(server.Served()).To(BeNumerically(">", 3), "files that the hosts fetched over HTTP")

		By("editing topology.version")
		must(the.other.EditTopologyVersion(ctx, lab.NewVersion))
		must(the.other.AwaitReady(ctx, 12*time.Minute, lab.NewVersion, lab.NewVersion))
		logNodes(ctx, the.other, "of the cluster, after the edit")
		expectDescribed(ctx, the.other)

		By("deleting it")
		must(the.other.Delete(ctx, 8*time.Minute))
		expectNothingLeft(ctx, the.other)
		must(the.lab.AwaitHosts(ctx, 2*time.Minute, infrav1.HostStateAvailable))
	}, NodeTimeout(35*time.Minute))
}

// quoinHost reads a host of the inventory.
func quoinHost(ctx context.Context, name string) *infrav1.QuoinHost {
	GinkgoHelper()
	host := &infrav1.QuoinHost{}
	Expect(the.lab.Management.Get(ctx, client.ObjectKey{Namespace: lab.Namespace, Name: name}, host)).To(Succeed())
	return host
}

// logNodes prints the nodes with the version of their kubelet.
func logNodes(ctx context.Context, cluster *lab.Cluster, when string) []lab.Node {
	GinkgoHelper()
	nodes := need(cluster.Nodes(ctx))
	the.lab.Printf("\nNodes %s:", when)
	for _, node := range nodes {
		the.lab.Printf("  %-10s kubelet %s  ready %t  control plane %t  %s", node.Name, node.Kubelet, node.Ready, node.ControlPlane, node.ProviderID)
	}
	return nodes
}

// expectDescribed reads what a user reads.
func expectDescribed(ctx context.Context, cluster *lab.Cluster) {
	GinkgoHelper()
	describe := func(ctx context.Context) (string, error) {
		return the.lab.Clusterctl(ctx, nil, "describe", "cluster", cluster.Name, "--namespace", lab.Namespace,
			"--show-conditions", "all", "--kubeconfig", the.lab.Kubeconfig())
	}
	var last string
	Eventually(func(ctx context.Context) (string, error) {
		out, err := describe(ctx)
		last = out
		return out, err
	}).WithContext(ctx).WithTimeout(90 * time.Second).WithPolling(5 * time.Second).ShouldNot(ContainSubstring("Unknown"))
	the.lab.Printf("\n%s", last)
}

// expectNothingLeft looks for objects of a deleted cluster.
func expectNothingLeft(ctx context.Context, cluster *lab.Cluster) {
	GinkgoHelper()
	for _, list := range []client.ObjectList{&clusterv1.MachineList{}, &infrav1.QuoinMachineList{}, &infrav1.QuoinClusterList{}} {
		Expect(the.lab.Management.List(ctx, list, client.InNamespace(lab.Namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: cluster.Name})).To(Succeed())
		Expect(meta.LenList(list)).To(BeZero(), "%T", list)
	}
	hosts := &infrav1.QuoinHostList{}
	Expect(the.lab.Management.List(ctx, hosts, client.InNamespace(lab.Namespace))).To(Succeed())
	for _, host := range hosts.Items {
		if ref := host.Spec.ConsumerRef; ref != nil {
			Expect(ref.Name).NotTo(HavePrefix(cluster.Name), "host %s", host.Name)
		}
	}
}

// remains lists what a node leaves on a host. It is not the code that cleans, nor the code that verifies.
const remains = `
for process in kubelet kube-apiserver kube-controller-manager kube-scheduler etcd kube-proxy keepalived containerd-shim-runc-v2; do
	pgrep -f "(^|/)$process( |$)" >/dev/null && echo "process $process"
done
for path in /etc/kubernetes /var/lib/etcd /var/lib/kubelet /var/lib/quoin/created /usr/bin/kubeadm /usr/bin/kubelet /etc/keepalived/keepalived.conf; do
	[ -e "$path" ] && [ -n "$(ls -A "$path")" ] && echo "path $path: $(ls -A "$path" | head -n 5 | xargs)"
done
grep -q '"uid":"[^"]' /var/lib/quoin/owner.json 2>/dev/null && echo "owner $(cat /var/lib/quoin/owner.json)"
systemctl is-enabled kubelet 2>/dev/null | grep -x enabled >/dev/null && echo "unit kubelet is enabled"
ip -brief address | grep -E '172\.30\.0\.10[0-9]/' | sed 's/^/address /'
ss --listening --tcp --numeric --no-header | awk '$4 ~ /:(6443|10250|2379|2380)$/ { print "port", $4 }'
grep -E ' /var/lib/(kubelet|etcd)' /proc/mounts | sed 's/^/mount /'
ctr --namespace k8s.io containers ls -q | sed 's/^/container /'
true
`

// expectClean reads a host back over SSH.
func expectClean(ctx context.Context, host *lab.Host) {
	GinkgoHelper()
	Expect(strings.TrimSpace(need(the.lab.OnHost(ctx, host, remains)))).To(BeEmpty(), "remains on %s", host.Name)
	object := quoinHost(ctx, host.Name)
	Expect(object.Spec.ConsumerRef).To(BeNil())
	Expect(object.Status.State).To(Equal(infrav1.HostStateAvailable))
	Expect(meta.IsStatusConditionTrue(object.Status.Conditions, infrav1.HostCleanCondition)).To(BeTrue(), "host %s is verified to be clean", host.Name)
}

// kubeadmStarts counts, in the journals of all runs on a host, how often a step that runs a kubeadm command started.
func kubeadmStarts(ctx context.Context, host *lab.Host, verb string) int {
	GinkgoHelper()
	out := need(the.lab.OnHost(ctx, host, fmt.Sprintf(`cat /var/lib/quoin/runs/*/journal 2>/dev/null | awk '$3 ~ /kubeadm/ && $3 ~ /%s/ && $4 == "start"' | wc -l`, verb)))
	var n int
	_, err := fmt.Sscan(out, &n)
	Expect(err).NotTo(HaveOccurred())
	return n
}

// condition of an object, as `type=status reason: message`, for messages and for matching.
func condition(conditions []metav1.Condition, kind string) string {
	found := meta.FindStatusCondition(conditions, kind)
	if found == nil {
		return kind + " is not set"
	}
	return fmt.Sprintf("%s=%s %s: %s", kind, found.Status, found.Reason, found.Message)
}
