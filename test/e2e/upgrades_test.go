//go:build e2e

// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/hack/components/repository"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/e2e/lab"
)

// upgrades edits the control plane's version, then that of the workers.
func upgrades() {
	It("looks ahead: what no drain could get past blocks, and nothing when it is mended", func(ctx SpecContext) {
		awaitBudget(ctx, the.demo, 2)
		blocked := lookAhead(ctx, the.demo, "budget-of-two", lab.NewVersion)
		Expect(blocked.Status.Verdict).To(Equal(quoinv1.VerdictBlock))
		Expect(conditions.Get(blocked, quoinv1.PreflightCheckPassedCondition).Message).
			To(HavePrefix("Disruption: PodDisruptionBudget default/web: wants all of its 2 pods"))

		awaitBudget(ctx, the.demo, 1)
		passed := lookAhead(ctx, the.demo, "budget-of-one", lab.NewVersion)
		Expect(passed.Status.Verdict).To(BeElementOf(quoinv1.VerdictPass, quoinv1.VerdictWarn))
		for _, result := range passed.Status.Checks {
			if result.Name == "VersionPath" {
				Expect(result.Message).To(ContainSubstring("control plane %s -> %s", lab.OldVersion, lab.NewVersion))
			}
		}
	}, NodeTimeout(6*time.Minute))

	It("replaces the control plane by surge, though the manager is killed while kubeadm joins", func(ctx SpecContext) {
		old, oldMachine := controlPlaneNode(ctx)
		target := spareHost(ctx, "control-plane")
		joinsBefore := need(the.lab.KubeadmCalls(ctx, target, "join"))
		before := handOvers(ctx)
		timeline := the.demo.Watch(ctx)
		defer timeline.Stop()

		By("editing the control plane's version")
		must(the.demo.EditControlPlaneVersion(ctx, lab.NewVersion))
		killDuringJoin(ctx, target, repository.InfrastructureLabel)

		must(the.demo.AwaitReady(ctx, 10*time.Minute, lab.NewVersion, lab.OldVersion))
		timeline.Stop()
		the.lab.Printf("\nWhat happened:\n%s", timeline)
		logNodes(ctx, the.demo, "after the control plane's version was edited")

		By("having run kubeadm join once on " + target.Name)
		Expect(need(the.lab.KubeadmCalls(ctx, target, "join")) - joinsBefore).To(Equal(1))
		Expect(kubeadmStarts(ctx, target, "join")).To(Equal(1))

		By("leaving the workers at their version, Ready and serving [S0-31]")
		for _, node := range need(the.demo.Nodes(ctx)) {
			if !node.ControlPlane {
				Expect(node.Kubelet).To(Equal(lab.OldVersion))
			}
		}
		expectWeb(ctx, the.demo)

		By("having had the new node Ready before the old Machine was deleted [S2-24]")
		must(timeline.Before(lab.Fact{What: lab.NodeReady, Name: target.Name}, lab.Fact{What: lab.MachineDeleting, Name: oldMachine}))
		By("having drained before the host was touched [S2-1] [S1-22] [R11]")
		must(timeline.Before(lab.Fact{What: lab.MachineDrained, Name: oldMachine}, lab.Fact{What: lab.HostCleaning, Name: old.Name}))
		By("having handed the virtual address over while both API servers served")
		Expect(handOvers(ctx)).To(ContainElement(Not(BeElementOf(before))))
		By("having taken the host back before the Node was deleted [S2-18] [S2-19] [S2-35]")
		must(timeline.Before(lab.Fact{What: lab.HostCleaning, Name: old.Name}, lab.Fact{What: lab.NodeGone, Name: old.Name}))

		By("leaving one voting etcd member, that of the new node")
		Expect(etcdMembers(ctx, target)).To(ConsistOf(target.Name + " started voter"))
		By("having the controller-manager and the scheduler talk to the API server beside them alone [S1-20]")
		servers := strings.Fields(need(the.lab.OnHost(ctx, target, `cd /etc/kubernetes
sed -n 's|.*server: https://||p' controller-manager.conf scheduler.conf
sed -n 's|.*--advertise-address=\(.*\)|\1:6443|p' manifests/kube-apiserver.yaml`)))
		Expect(servers).To(And(HaveLen(3), HaveEach(servers[0])))

		By("giving the old host back, clean")
		must(the.lab.AwaitHosts(ctx, 2*time.Minute, infrav1.HostStateAvailable, need(the.lab.Host(old.Name))))
		expectClean(ctx, need(the.lab.Host(old.Name)))
	}, NodeTimeout(25*time.Minute))

	It("lets CoreDNS and kube-proxy follow the control plane", func(ctx SpecContext) {
		proxy := &appsv1.DaemonSet{}
		Expect(the.demo.Client.Get(ctx, client.ObjectKey{Namespace: "kube-system", Name: "kube-proxy"}, proxy)).To(Succeed())
		Expect(proxy.Spec.Template.Spec.Containers[0].Image).To(Equal("quoin.test/kube-proxy:" + lab.NewVersion))
		Eventually(func(ctx context.Context) (string, error) {
			err := the.demo.Client.Get(ctx, client.ObjectKeyFromObject(proxy), proxy)
			return fmt.Sprintf("%d of %d", proxy.Status.NumberReady, proxy.Status.DesiredNumberScheduled), err
		}).WithContext(ctx).Should(Equal("3 of 3"))
		dns := &appsv1.Deployment{}
		Expect(the.demo.Client.Get(ctx, client.ObjectKey{Namespace: "kube-system", Name: "coredns"}, dns)).To(Succeed())
		Eventually(func(ctx context.Context) (int32, error) {
			err := the.demo.Client.Get(ctx, client.ObjectKeyFromObject(dns), dns)
			return dns.Status.UpdatedReplicas - dns.Status.UnavailableReplicas, err
		}).WithContext(ctx).Should(Equal(*dns.Spec.Replicas))
	}, NodeTimeout(3*time.Minute))

	It("replaces the workers, waiting for a disruption budget that forbids a drain", func(ctx SpecContext) {
		By("setting a budget that no drain can satisfy")
		must(the.lab.Apply(ctx, the.demo.Kubeconfig(), budget(2)))
		before := workerMachines(ctx, the.demo)
		timeline := the.demo.Watch(ctx)
		defer timeline.Stop()
		must(the.demo.EditWorkerVersion(ctx, lab.NewVersion))

		By("seeing a Machine wait for its drain, with both pods up [S0-72] [S2-14]")
		Eventually(func() bool {
			return timeline.Noted(clusterv1.MachineDeletingDrainingNodeReason, "web-", "disruption budget")
		}).
			WithContext(ctx).WithTimeout(5*time.Minute).Should(BeTrue(), "a drain that waits for web's pods")
		Consistently(func(ctx context.Context) (map[string]string, error) { return readyPods(ctx, the.demo) }).
			WithContext(ctx).WithTimeout(8 * time.Second).Should(HaveLen(2))

		By("relaxing the budget")
		must(the.lab.Apply(ctx, the.demo.Kubeconfig(), budget(1)))
		must(the.demo.AwaitReady(ctx, 12*time.Minute, lab.NewVersion, lab.NewVersion))
		timeline.Stop()
		the.lab.Printf("\nWhat happened:\n%s", timeline)
		after := logNodes(ctx, the.demo, "after the workers' version was edited")
		the.lab.Printf("\nKubelets, before -> after:")
		for _, node := range the.nodes {
			the.lab.Printf("  %-10s %s -> %s", node.Name, node.Kubelet, kubeletOf(after, node.Name))
		}

		By("having drained each worker, cleaned its host and only then deleted its Node [S2-1] [S2-18] [S2-19] [S1-22] [R11]")
		for machine, node := range before {
			must(timeline.Before(lab.Fact{What: lab.MachineDrained, Name: machine}, lab.Fact{What: lab.HostCleaning, Name: node}))
			must(timeline.Before(lab.Fact{What: lab.HostCleaning, Name: node}, lab.Fact{What: lab.NodeGone, Name: node}))
		}
		expectWeb(ctx, the.demo)
		expectDescribed(ctx, the.demo)
	}, NodeTimeout(22*time.Minute))

	It("gives the last replaced host back, clean", func(ctx SpecContext) {
		for _, role := range []string{"control-plane", "worker"} {
			host := spareHost(ctx, role)
			expectClean(ctx, host)
		}
	}, NodeTimeout(4*time.Minute))
}

// killDuringJoin waits until kubeadm joins on a host, and ends managers with SIGKILL while it does. It returns for how long
// they were away.
func killDuringJoin(ctx context.Context, target *lab.Host, providers ...string) lab.Span {
	GinkgoHelper()
	const joins = `pgrep -f "^/usr/bin/kubeadm join" >/dev/null`
	// On a busy machine the search for the managers may take longer than kubeadm, and beginning a command in a container
	// is what keeps it busy, so one command looks all the time.
	killAll := aim(ctx, providers...)
	_, err := the.lab.Console(ctx, target.Container(),
		"end=$(($(date +%s) + 720)); until "+joins+"; do [ $(date +%s) -lt $end ] || exit 1; sleep 0.1; done")
	Expect(err).NotTo(HaveOccurred(), "kubeadm join on %s", target.Name)
	awaitKilled := killAll()
	_, err = the.lab.Console(ctx, target.Container(), joins)
	Expect(err).NotTo(HaveOccurred(), "kubeadm still joins after the managers were killed: otherwise this proves nothing")
	the.lab.Printf("   kubeadm joined on %s meanwhile", target.Name)
	return awaitKilled()
}

// kill ends managers with SIGKILL; the function that it returns waits until they are back, and says for how long they were
// away.
func kill(ctx context.Context, providers ...string) func() lab.Span {
	GinkgoHelper()
	return aim(ctx, providers...)()
}

// aim finds the processes of the managers that lead, and returns what kill does.
func aim(ctx context.Context, providers ...string) func() func() lab.Span {
	GinkgoHelper()
	managers := map[string]*lab.Manager{}
	for _, provider := range providers {
		managers[provider] = need(the.lab.Manager(ctx, provider))
	}
	return func() func() lab.Span {
		GinkgoHelper()
		began := time.Now()
		must(the.lab.Kill(ctx, slices.Collect(maps.Values(managers))...))
		for provider, manager := range managers {
			the.lab.Printf("   killed process %s, the manager of %s", manager.PID, provider)
		}
		return func() lab.Span {
			GinkgoHelper()
			for _, manager := range managers {
				must(the.lab.AwaitManager(ctx, manager))
			}
			return lab.Span{Phase: lab.Killed, From: began, To: time.Now()}
		}
	}
}

// controlPlaneNode is the only control-plane node, with the name of its Machine.
func controlPlaneNode(ctx context.Context) (node lab.Node, machine string) {
	GinkgoHelper()
	for _, one := range need(the.demo.Nodes(ctx)) {
		if one.ControlPlane {
			node = one
		}
	}
	for _, one := range need(the.demo.Machines(ctx)) {
		if one.Status.NodeRef.Name == node.Name {
			machine = one.Name
		}
	}
	Expect(machine).NotTo(BeEmpty(), "the Machine of node %s", node.Name)
	return node, machine
}

// workerMachines are the nodes of the workers' Machines.
func workerMachines(ctx context.Context, cluster *lab.Cluster) map[string]string {
	GinkgoHelper()
	workers := map[string]string{}
	for _, machine := range need(cluster.Machines(ctx)) {
		if _, controlPlane := machine.Labels[clusterv1.MachineControlPlaneLabel]; !controlPlane {
			workers[machine.Name] = machine.Status.NodeRef.Name
		}
	}
	return workers
}

// spareHost is the host of a role that nobody has.
func spareHost(ctx context.Context, role string) *lab.Host {
	GinkgoHelper()
	return spareHosts(ctx, role, 1)[0]
}

// spareHosts are as many hosts of a role that nobody has.
func spareHosts(ctx context.Context, role string, count int) (spares []*lab.Host) {
	GinkgoHelper()
	Eventually(func(ctx context.Context) int {
		spares = nil
		for _, host := range the.lab.Hosts {
			if host.Labels[lab.RoleLabel] == role && quoinHost(ctx, host.Name).Status.State == infrav1.HostStateAvailable {
				spares = append(spares, host)
			}
		}
		return len(spares)
	}).WithContext(ctx).WithTimeout(2*time.Minute).Should(BeNumerically(">=", count), "spare hosts with role %s", role)
	return spares
}

// etcdMembers asks etcd itself, through the static pod's own client on the host.
func etcdMembers(ctx context.Context, host *lab.Host) []string {
	GinkgoHelper()
	out := need(the.lab.OnHost(ctx, host, `etcdctl --endpoints https://127.0.0.1:2379 --cacert /etc/kubernetes/pki/etcd/ca.crt \
	--cert /etc/kubernetes/pki/etcd/server.crt --key /etc/kubernetes/pki/etcd/server.key member list 2>/dev/null`))
	var members []string
	for line := range strings.Lines(out) {
		// id, status, name, peer address, client address, is a learner
		fields := strings.Split(strings.TrimSpace(line), ", ")
		if len(fields) < 6 {
			continue
		}
		kind := "voter"
		if fields[5] == "true" {
			kind = "learner"
		}
		members = append(members, fields[2]+" "+fields[1]+" "+kind)
	}
	return members
}

func kubeletOf(nodes []lab.Node, name string) string {
	for _, node := range nodes {
		if node.Name == name {
			return node.Kubelet
		}
	}
	return "given back"
}

// awaitBudget applies the budget of web, and waits until the cluster has counted by it.
func awaitBudget(ctx context.Context, cluster *lab.Cluster, minAvailable int) {
	GinkgoHelper()
	must(the.lab.Apply(ctx, cluster.Kubeconfig(), budget(minAvailable)))
	applied := &policyv1.PodDisruptionBudget{}
	Eventually(func(ctx context.Context) (bool, error) {
		err := cluster.Client.Get(ctx, client.ObjectKey{Namespace: "default", Name: "web"}, applied)
		return applied.Status.ObservedGeneration == applied.Generation, err
	}).WithContext(ctx).Should(BeTrue())
}

// lookAhead makes a PreflightCheck of a Cluster, and returns it with its verdict.
func lookAhead(ctx context.Context, cluster *lab.Cluster, name, version string) *quoinv1.PreflightCheck {
	GinkgoHelper()
	check := &quoinv1.PreflightCheck{ObjectMeta: metav1.ObjectMeta{Namespace: lab.Namespace, Name: name},
		Spec: quoinv1.PreflightCheckSpec{ClusterName: cluster.Name, Version: version}}
	Expect(the.lab.Management.Create(ctx, check)).To(Succeed())
	Eventually(func(ctx context.Context) (bool, error) {
		err := the.lab.Management.Get(ctx, client.ObjectKeyFromObject(check), check)
		return conditions.IsTrue(check, quoinv1.PreflightCheckCompletedCondition), err
	}).WithContext(ctx).WithTimeout(2*time.Minute).Should(BeTrue(), "%+v", check)
	printChecks(check)
	return check
}

// printChecks prints the findings of a PreflightCheck.
func printChecks(check *quoinv1.PreflightCheck) {
	for _, result := range check.Status.Checks {
		the.lab.Printf("  %-6s %-15s %s", result.Verdict, result.Name, result.Message)
		for _, finding := range result.Findings {
			the.lab.Printf("         %s %s: %s; %s", finding.Verdict, finding.Object, finding.Message, finding.Fix)
		}
	}
}
