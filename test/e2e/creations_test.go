//go:build e2e

// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/e2e/lab"
)

// creation is what the making of one first control-plane host took, by the journal of its host, in whole seconds.
type creation struct {
	host string
	// together is how many were made at the same time.
	together int
	// init is kubeadm init, around all from before the guard of etcd until it was closed, plan the whole way.
	init, around, plan time.Duration
	// etcd and apiServer are how often they were started again.
	etcd, apiServer int32
}

// creations makes clusters of one host again and again: half of them alone, half of them three at a time, which is load on a
// small machine. QUOIN_E2E_CREATIONS is how many. Times are told and not judged; that nothing was started again is.
func creations() {
	It("makes a first control plane in the time of kubeadm init, however busy the machine is", func(ctx SpecContext) {
		number := 20
		if text := os.Getenv("QUOIN_E2E_CREATIONS"); text != "" {
			number = need(strconv.Atoi(text))
		}
		must(the.lab.AddRacks(ctx))
		var made []creation
		DeferCleanup(func() { the.lab.Printf("\n%s", table(made)) })
		for len(made) < number {
			together := 1
			if len(made) >= number/2 {
				together = min(3, number-len(made))
			}
			made = append(made, create(ctx, together)...)
		}
		for _, one := range made {
			Expect(one.etcd).To(BeZero(), "etcd on %s was started again", one.host)
		}
	}, NodeTimeout(80*time.Minute))
}

// create makes that many clusters at the same time and deletes them again.
func create(ctx context.Context, together int) []creation {
	GinkgoHelper()
	var clusters []*lab.Cluster
	for i := range together {
		clusters = append(clusters, need(the.lab.Create(ctx, lab.ClusterSpec{Name: fmt.Sprintf("first-%d", i), Version: lab.OldVersion,
			VirtualAddress: fmt.Sprintf("172.30.0.%d", 110+i), RouterID: 110 + i})))
	}
	var made []creation
	for _, cluster := range clusters {
		must(cluster.AwaitAPI(ctx))
		made = append(made, measure(ctx, cluster, together))
	}
	for _, cluster := range clusters {
		must(cluster.Delete(ctx, 10*time.Minute))
	}
	must(the.lab.AwaitHosts(ctx, 3*time.Minute, infrav1.HostStateAvailable))
	return made
}

// measure reads the journal of the host that carries the cluster.
func measure(ctx context.Context, cluster *lab.Cluster, together int) creation {
	GinkgoHelper()
	host := hostOf(ctx, cluster)
	Eventually(func(ctx context.Context) (string, error) {
		return the.lab.OnHost(ctx, host, "cat /var/lib/quoin/runs/provision-*/result")
	}).
		WithContext(ctx).WithTimeout(5 * time.Minute).Should(ContainSubstring("succeeded"))
	at := map[string]int{}
	first, last := 0, 0
	for line := range strings.Lines(need(the.lab.OnHost(ctx, host, "cat /var/lib/quoin/runs/provision-*/journal"))) {
		fields := strings.Fields(line)
		last = need(strconv.Atoi(fields[0]))
		if first == 0 {
			first = last
		}
		at[fields[2]+" "+fields[3]] = last
	}
	seconds := func(from, to string) time.Duration {
		Expect(at).To(And(HaveKey(from), HaveKey(to)))
		return time.Duration(at[to]-at[from]) * time.Second
	}
	Expect(need(the.lab.OnHost(ctx, host, "readlink -e /etc/kubernetes/quoin/etcd-has-its-data"))).To(HavePrefix("/var/lib/etcd/member/wal/"), "the guard is closed")
	return creation{
		host: host.Name, together: together, etcd: restarts(ctx, cluster, "etcd"), apiServer: restarts(ctx, cluster, "kube-apiserver"),
		init:   seconds("kubeadm-init start", "kubeadm-init done"),
		around: seconds("guard-etcd start", "close-etcd-guard done"),
		plan:   time.Duration(last-first) * time.Second,
	}
}

// hostOf is the only host of a cluster.
func hostOf(ctx context.Context, cluster *lab.Cluster) *lab.Host {
	GinkgoHelper()
	hosts := &infrav1.QuoinHostList{}
	Expect(the.lab.Management.List(ctx, hosts, client.InNamespace(lab.Namespace))).To(Succeed())
	at := slices.IndexFunc(hosts.Items, func(host infrav1.QuoinHost) bool {
		return host.Spec.ConsumerRef != nil && strings.HasPrefix(host.Spec.ConsumerRef.Name, cluster.Name+"-")
	})
	Expect(at).To(BeNumerically(">=", 0), "a host of %s", cluster.Name)
	return need(the.lab.Host(hosts.Items[at].Name))
}

// restarts is how often the kubelet started a static pod's container again.
func restarts(ctx context.Context, cluster *lab.Cluster, component string) int32 {
	GinkgoHelper()
	count := int32(-1)
	Eventually(func(ctx context.Context) (int32, error) {
		pods := &corev1.PodList{}
		err := cluster.Client.List(ctx, pods, client.InNamespace("kube-system"), client.MatchingLabels{"component": component})
		for _, pod := range pods.Items {
			for _, container := range pod.Status.ContainerStatuses {
				count = container.RestartCount
			}
		}
		return count, err
	}).WithContext(ctx).WithTimeout(2 * time.Minute).Should(BeNumerically(">=", 0))
	return count
}

// table tells of each creation, and of the slowest beside the median.
func table(made []creation) string {
	var text strings.Builder
	text.WriteString("| host | at the same time | kubeadm init | with the guard | over kubeadm init | the whole plan | restarts of etcd, API server |\n|---|---|---|---|---|---|---|\n")
	var init, around []time.Duration
	for _, one := range made {
		fmt.Fprintf(&text, "| %s | %d | %s | %s | %s | %s | %d, %d |\n", one.host, one.together, one.init, one.around, one.around-one.init, one.plan, one.etcd, one.apiServer)
		init, around = append(init, one.init), append(around, one.around)
	}
	for name, all := range map[string][]time.Duration{"kubeadm init": init, "with the guard": around} {
		if slices.Sort(all); len(all) > 0 {
			fmt.Fprintf(&text, "%s: median %s, slowest %s\n", name, all[len(all)/2], all[len(all)-1])
		}
	}
	return text.String()
}
