//go:build e2e

// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/hack/components/repository"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/e2e/lab"
)

// Proves: S0-63, S0-64, S0-65, S0-66, C17
//
// pivot is the life of a site that is born in a kind cluster, manages itself, and goes back into a kind cluster to be taken
// down: stock clusterctl, and no label by hand.
func pivot() {
	var home *lab.Cluster
	quarantined, maintained := lab.Stranger(), "host-4"
	var why *infrav1.HostQuarantine

	It("makes a cluster in the kind cluster, with hosts beside it that are free, quarantined and in maintenance", func(ctx SpecContext) {
		must(the.lab.AddRacks(ctx))
		must(the.lab.LoadManagersOnHosts(ctx))
		By("registering a host with an earlier Kubernetes on it")
		must(the.lab.StartHost(ctx, quarantined))
		need(the.lab.OnHost(ctx, quarantined, "mkdir -p /etc/kubernetes && touch /etc/kubernetes/admin.conf"))
		Expect(the.lab.Management.Create(ctx, need(the.lab.QuoinHost(ctx, quarantined)))).To(Succeed())
		must(the.lab.AwaitHosts(ctx, 2*time.Minute, infrav1.HostStateQuarantined, quarantined))
		Eventually(func(ctx context.Context) *infrav1.HostQuarantine {
			why = quoinHost(ctx, quarantined.Name).Spec.Quarantine
			return why
		}).WithContext(ctx).ShouldNot(BeNil())
		editHost(ctx, maintained, func(host *infrav1.QuoinHost) {
			host.Spec.Maintenance = &infrav1.Maintenance{Reason: "its fans are being replaced"}
		})

		home = need(the.lab.Create(ctx, lab.Home()))
		must(home.AwaitAPI(ctx))
		must(home.ApplyNetwork(ctx))
		must(home.AwaitReady(ctx, 15*time.Minute, lab.OldVersion, lab.OldVersion))
		logNodes(ctx, home, "before the move")
	}, NodeTimeout(25*time.Minute))

	It("moves to the cluster itself, and nothing happens to a node", func(ctx SpecContext) {
		must(the.lab.Init(ctx, home))
		kind, before, generations := the.lab.Management, need(home.Nodes(ctx)), ownerGenerations(ctx, home)
		expectMovable(ctx, home)
		must(the.lab.Move(ctx, home.Kubeconfig()))
		expectNothingStays(ctx, kind)
		must(the.lab.RemoveKind(ctx))
		expectMoved(ctx, home, generations)
		must(home.AwaitReady(ctx, 5*time.Minute, lab.OldVersion, lab.OldVersion))
		Expect(need(home.Nodes(ctx))).To(Equal(before), "the same nodes, which nobody restarted")
		expectManagers(ctx)
		expectQuarantined(ctx, quarantined, why)
		Expect(quoinHost(ctx, maintained).Spec.Maintenance).To(HaveField("Reason", "its fans are being replaced"))
	}, NodeTimeout(30*time.Minute))

	It("grows by a worker", func(ctx SpecContext) {
		must(home.ScaleWorkers(ctx, 2))
		home.Workers = 2
		must(home.AwaitReady(ctx, 8*time.Minute, lab.OldVersion, lab.OldVersion))
		Expect(quoinHost(ctx, maintained).Spec.ConsumerRef).To(BeNil(), "a host in maintenance is left alone")
	}, NodeTimeout(10*time.Minute))

	It("upgrades the cluster that its own managers run on", func(ctx SpecContext) {
		editHost(ctx, maintained, func(host *infrav1.QuoinHost) { host.Spec.Maintenance = nil })
		writer := need(home.Write(ctx))
		defer writer.Stop()
		census := home.Count(ctx)
		must(home.EditControlPlaneVersion(ctx, lab.NewVersion))
		must(home.AwaitReady(ctx, 30*time.Minute, lab.NewVersion, lab.OldVersion))
		By("replacing a worker that stays behind its control plane [C17]")
		behind := workerMachines(ctx, home)
		for machine := range behind {
			need(the.lab.Kubectl(ctx, the.lab.Kubeconfig(), "delete", "machine", machine, "--namespace", lab.Namespace, "--wait=false"))
			Eventually(func(ctx context.Context) map[string]string { return workerMachines(ctx, home) }).WithContext(ctx).
				WithTimeout(8 * time.Minute).WithPolling(2 * time.Second).ShouldNot(HaveKey(machine))
			break
		}
		must(home.AwaitReady(ctx, 8*time.Minute, lab.NewVersion, lab.OldVersion))
		By("upgrading the workers")
		must(home.EditWorkerVersion(ctx, lab.NewVersion))
		must(home.AwaitReady(ctx, 15*time.Minute, lab.NewVersion, lab.NewVersion))
		writer.Stop()
		counts := census.Stop()
		the.lab.Printf("\nDuring the upgrade: %s\n  %+v", writer.Report(), counts)
		Expect(need(writer.Lost(ctx))).To(BeEmpty(), "acknowledged keys that are lost")
		Expect(counts.FewestVoters).To(Equal(3))
		Expect(counts.MostLeaving).To(Equal(1))
		logNodes(ctx, home, "after the upgrade")
		expectManagers(ctx)
		expectTrio(ctx, home)
	}, NodeTimeout(50*time.Minute))

	It("replaces a control-plane Machine of itself that is to be remediated", func(ctx SpecContext) {
		var name string
		for name = range controlPlaneMachines(ctx, home) {
			break
		}
		out, err := the.lab.Kubectl(ctx, the.lab.Kubeconfig(), "annotate", "machine", name, "--namespace", lab.Namespace, clusterv1.RemediateMachineAnnotation+"=")
		Expect(err).NotTo(HaveOccurred(), out)
		Eventually(func(ctx context.Context) (bool, error) {
			machines, err := home.Machines(ctx)
			for _, machine := range machines {
				if machine.Name == name {
					return false, err
				}
			}
			return err == nil, err
		}).WithContext(ctx).WithTimeout(12*time.Minute).WithPolling(2*time.Second).Should(BeTrue(), "Machine %s is gone", name)
		must(home.AwaitReady(ctx, 10*time.Minute, lab.NewVersion, lab.NewVersion))
		expectTrio(ctx, home)
	}, NodeTimeout(25*time.Minute))

	It("moves back to a kind cluster, where the Cluster is deleted", func(ctx SpecContext) {
		must(the.lab.RemakeKind(ctx))
		expectMovable(ctx, home)
		self, before := the.lab.Management, need(home.Nodes(ctx))
		must(the.lab.Move(ctx, the.lab.KindKubeconfig()))
		expectNothingStays(ctx, self)
		must(home.AwaitReady(ctx, 5*time.Minute, lab.NewVersion, lab.NewVersion))
		Expect(need(home.Nodes(ctx))).To(Equal(before))
		expectQuarantined(ctx, quarantined, why)

		By("going on there as with any cluster [S0-65]")
		must(home.ScaleWorkers(ctx, 1))
		home.Workers = 1
		must(home.AwaitReady(ctx, 5*time.Minute, lab.NewVersion, lab.NewVersion))
		must(home.Delete(ctx, 12*time.Minute))
		expectNothingLeft(ctx, home)
		must(the.lab.AwaitHosts(ctx, 3*time.Minute, infrav1.HostStateAvailable))
		for _, host := range the.lab.Hosts {
			expectClean(ctx, host)
		}
		expectQuarantined(ctx, quarantined, why)
	}, NodeTimeout(30*time.Minute))
}

// editHost changes a QuoinHost as `kubectl edit` does.
func editHost(ctx context.Context, name string, change func(*infrav1.QuoinHost)) {
	GinkgoHelper()
	host := quoinHost(ctx, name)
	before := client.MergeFrom(host.DeepCopy())
	change(host)
	Expect(the.lab.Management.Patch(ctx, host, before)).To(Succeed())
}

// expectManagers waits until both managers of each provider are ready, and prints where they run.
func expectManagers(ctx context.Context) {
	GinkgoHelper()
	for _, provider := range []string{repository.ControlPlaneLabel, repository.InfrastructureLabel} {
		Eventually(func(ctx context.Context) ([]corev1.Pod, error) { return the.lab.Pods(ctx, provider) }).WithContext(ctx).
			WithTimeout(3*time.Minute).Should(And(HaveLen(2), HaveEach(HaveField("Status.Conditions", ContainElement(
			And(HaveField("Type", corev1.PodReady), HaveField("Status", corev1.ConditionTrue)))))), provider)
		for _, pod := range need(the.lab.Pods(ctx, provider)) {
			the.lab.Printf("  %s on %s", pod.Name, pod.Spec.NodeName)
		}
	}
}

// expectMovable waits for the word that a move would go well, and for the command that does it.
func expectMovable(ctx context.Context, cluster *lab.Cluster) {
	GinkgoHelper()
	Eventually(func(ctx context.Context) (string, error) {
		found := &infrav1.QuoinCluster{}
		err := the.lab.Management.Get(ctx, cluster.Key(), found)
		return condition(found.Status.Conditions, infrav1.ClusterMovableCondition), err
	}).WithContext(ctx).WithTimeout(2 * time.Minute).Should(And(HavePrefix("Movable=True"), ContainSubstring("clusterctl move")))
}

// expectNothingStays looks for what a move has left behind.
func expectNothingStays(ctx context.Context, source client.Client) {
	GinkgoHelper()
	for _, list := range []client.ObjectList{&clusterv1.ClusterList{}, &clusterv1.MachineList{}, &infrav1.QuoinHostList{}, &infrav1.QuoinMachineList{}, &corev1.SecretList{}} {
		Expect(source.List(ctx, list, client.InNamespace(lab.Namespace))).To(Succeed())
		Expect(meta.LenList(list)).To(BeZero(), "%T", list)
	}
}

// ownerGenerations are those in the owner records of the cluster's hosts: a host counts each claim that it served.
func ownerGenerations(ctx context.Context, cluster *lab.Cluster) map[string]int64 {
	GinkgoHelper()
	generations := map[string]int64{}
	for _, node := range need(cluster.Nodes(ctx)) {
		generations[node.Name] = need(ownerGeneration(ctx, node.Name))
	}
	return generations
}

func ownerGeneration(ctx context.Context, name string) (int64, error) {
	host, err := the.lab.Host(name)
	if err != nil {
		return 0, err
	}
	content, err := the.lab.OnHost(ctx, host, "cat /var/lib/quoin/owner.json")
	if err != nil {
		return 0, err
	}
	var record struct{ Generation int64 }
	err = json.Unmarshal([]byte(content), &record)
	return record.Generation, err
}

// expectMoved waits until the hosts say themselves that they serve the next generation of their claims.
func expectMoved(ctx context.Context, cluster *lab.Cluster, before map[string]int64) {
	GinkgoHelper()
	for _, node := range need(cluster.Nodes(ctx)) {
		Eventually(func(ctx context.Context) (int64, error) { return ownerGeneration(ctx, node.Name) }).WithContext(ctx).
			WithTimeout(3*time.Minute).Should(Equal(before[node.Name]+1), "the owner record of %s", node.Name)
		Expect(need(the.lab.OnHost(ctx, need(the.lab.Host(node.Name)), "ls /etc/kubernetes/kubelet.conf"))).NotTo(BeEmpty())
	}
}

// expectQuarantined expects the host to be as it was, and for the same reason, with what was on it untouched.
func expectQuarantined(ctx context.Context, host *lab.Host, why *infrav1.HostQuarantine) {
	GinkgoHelper()
	must(the.lab.AwaitHosts(ctx, 2*time.Minute, infrav1.HostStateQuarantined, host))
	now := quoinHost(ctx, host.Name).Spec.Quarantine
	Expect(now).NotTo(BeNil())
	Expect(*now).To(And(HaveField("Reason", why.Reason), HaveField("Message", why.Message), HaveField("Since.Unix()", why.Since.Unix())))
	Expect(strings.TrimSpace(need(the.lab.OnHost(ctx, host, "ls /etc/kubernetes/admin.conf")))).NotTo(BeEmpty())
}
