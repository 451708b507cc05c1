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
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/e2e/lab"
)

// trio is the life of a control plane of three, with somebody who writes to it all the time.
func trio() {
	// deaf is for how long a watch did not hear of a write, the last time.
	var deaf time.Duration
	// whileWriting does something to the cluster and then looks whether anything that was acknowledged is lost.
	whileWriting := func(ctx context.Context, what string, do func()) lab.Counts {
		GinkgoHelper()
		writer := need(the.trio.Write(ctx))
		defer writer.Stop()
		census := the.trio.Count(ctx)
		do()
		// A few more seconds show that writes go on.
		time.Sleep(3 * time.Second)
		writer.Stop()
		deaf = writer.Deaf()
		counts := census.Stop()
		the.lab.Printf("\n%s: %s\n  %+v\n  %s", what, writer.Report(), counts, strings.Join(census.Story(), "\n  "))
		Expect(need(writer.Lost(ctx))).To(BeEmpty(), "acknowledged keys that are lost")
		return counts
	}

	It("makes a cluster with three control planes", func(ctx SpecContext) {
		must(the.lab.AddRacks(ctx))
		the.trio = need(the.lab.Create(ctx, lab.Trio()))
		must(the.trio.AwaitAPI(ctx))
		must(the.trio.ApplyNetwork(ctx))
		must(the.trio.AwaitReady(ctx, 15*time.Minute, lab.OldVersion, lab.OldVersion))
		logNodes(ctx, the.trio, "at the beginning")
		expectTrio(ctx, the.trio)
	}, NodeTimeout(25*time.Minute))

	It("keeps the first member out when its data are gone, where it would begin an empty cluster", func(ctx SpecContext) {
		name, host := firstMember(ctx)
		counts := whileWriting(ctx, "While the first member was without its data", func() {
			need(the.lab.OnHost(ctx, host, "rm -rf /var/lib/etcd/member; pkill -KILL -x etcd"))
			By("being tried by the kubelet again and again")
			time.Sleep(45 * time.Second)
			Expect(need(the.lab.OnHost(ctx, host, "ls /var/lib/etcd/member 2>/dev/null || true"))).NotTo(ContainSubstring("wal"), "a log, which is a cluster that has begun")
			Expect(controlPlaneMachines(ctx, the.trio)).To(HaveLen(3))
			out, err := the.lab.Kubectl(ctx, the.lab.Kubeconfig(), "annotate", "machine", name, "--namespace", lab.Namespace, clusterv1.RemediateMachineAnnotation+"=")
			Expect(err).NotTo(HaveOccurred(), out)
			Eventually(func(ctx context.Context) map[string]string { return controlPlaneMachines(ctx, the.trio) }).WithContext(ctx).
				WithTimeout(10 * time.Minute).WithPolling(2 * time.Second).ShouldNot(HaveKey(name))
			must(the.trio.AwaitReady(ctx, 10*time.Minute, lab.OldVersion, lab.OldVersion))
		})
		Expect(counts.FewestTolerated).To(BeNumerically(">=", 0), "a quorum at every moment")
		expectTrio(ctx, the.trio)
	}, NodeTimeout(25*time.Minute))

	It("replaces the three by surge, one after the other, and no write is lost", func(ctx SpecContext) {
		before := handOvers(ctx)
		insider := need(the.trio.Inside(ctx))
		counts := whileWriting(ctx, "During the upgrade", func() {
			must(the.trio.EditControlPlaneVersion(ctx, lab.NewVersion))
			must(the.trio.AwaitReady(ctx, 25*time.Minute, lab.NewVersion, lab.OldVersion))
		})
		seen := need(insider.Report(ctx))
		the.lab.Printf("\nFrom a pod, through the Service kubernetes: longest gap between reads %s, between writes %s", seen.Reads, seen.Writes)
		must(insider.Stop(ctx, the.trio))
		By("having the API server of each host leave before its etcd member, so that nobody hung on one without")
		// It is two seconds where the machine has nothing else to do, and was two minutes for each host.
		Expect(max(seen.Reads.Longest, seen.Writes.Longest)).To(BeNumerically("<", 10*time.Second))
		By("having evicted the pods of CoreDNS one after the other, so that names were known [S0-42]")
		Expect(seen.Names.Longest).To(BeNumerically("<", 10*time.Second))
		Expect(seen.Names.Last).To(BeTemporally(">", time.Now().Add(-time.Minute)), "names that are known again")
		Expect(seen.Writes.Last).To(BeTemporally(">", time.Now().Add(-time.Minute)), "a client that goes on")
		By("never having had less than three voters, or more than one Machine on its way out [S2-30] [S2-33] [S2-34]")
		Expect(counts.MostMachines).To(Equal(4))
		Expect(counts.FewestVoters).To(Equal(3))
		Expect(counts.MostLeaving).To(Equal(1))
		By("having handed the virtual address over before the API server of its host went")
		Expect(handOvers(ctx)).To(ContainElement(Not(BeElementOf(before))))
		By("having had who only listens at the address connect to the host that has it now")
		Expect(deaf).To(BeNumerically("<", 10*time.Second))
		expectTrio(ctx, the.trio)
	}, NodeTimeout(30*time.Minute))

	It("refuses to delete the three at once, and says what would be lost", func(ctx SpecContext) {
		before := controlPlaneMachines(ctx, the.trio)
		out, err := the.lab.Kubectl(ctx, the.lab.Kubeconfig(), "delete", "machines", "--namespace", lab.Namespace, "--wait=false",
			"--selector", clusterv1.ClusterNameLabel+"="+the.trio.Name+","+clusterv1.MachineControlPlaneLabel)
		Expect(err).To(HaveOccurred(), out)
		the.lab.Printf("\n%v", err)
		Expect(err.Error()).To(ContainSubstring("quorum"))
		// One may go; it is replaced first.
		must(the.trio.AwaitReady(ctx, 15*time.Minute, lab.NewVersion, lab.OldVersion))
		after := controlPlaneMachines(ctx, the.trio)
		kept := 0
		for name := range before {
			if _, there := after[name]; there {
				kept++
			}
		}
		Expect(kept).To(BeNumerically(">=", 2), "Machines that were not deleted")
		expectTrio(ctx, the.trio)
	}, NodeTimeout(20*time.Minute))

	It("survives that the three are deleted at once while nobody refuses it", func(ctx SpecContext) {
		before := controlPlaneMachines(ctx, the.trio)
		counts := whileWriting(ctx, "While all three were deleted at once", func() {
			restore := withoutDeleteAdmission(ctx)
			_, err := the.lab.Kubectl(ctx, the.lab.Kubeconfig(), "delete", "machines", "--namespace", lab.Namespace, "--wait=false",
				"--selector", clusterv1.ClusterNameLabel+"="+the.trio.Name+","+clusterv1.MachineControlPlaneLabel)
			must(err)
			restore()
			for name := range before {
				machine := &clusterv1.Machine{}
				key := client.ObjectKey{Namespace: lab.Namespace, Name: name}
				if err := the.lab.Management.Get(ctx, key, machine); !apierrors.IsNotFound(err) {
					must(err)
					Expect(machine.DeletionTimestamp).NotTo(BeNil(), "Machine %s is being deleted", name)
				}
			}
			must(the.trio.AwaitReady(ctx, 30*time.Minute, lab.NewVersion, lab.OldVersion))
		})
		for name := range before {
			Expect(controlPlaneMachines(ctx, the.trio)).NotTo(HaveKey(name))
		}
		Expect(counts.FewestTolerated).To(BeNumerically(">=", 0), "a quorum at every moment")
		Expect(counts.MostLeaving).To(Equal(1))
		expectTrio(ctx, the.trio)
	}, NodeTimeout(35*time.Minute))

	It("replaces a Machine whose QuoinMachine somebody deleted, and touches its host only in its turn", func(ctx SpecContext) {
		var name string
		for machine := range controlPlaneMachines(ctx, the.trio) {
			name = machine
		}
		counts := whileWriting(ctx, "While a QuoinMachine was deleted by hand", func() {
			infra := &infrav1.QuoinMachine{}
			Expect(the.lab.Management.Get(ctx, client.ObjectKey{Namespace: lab.Namespace, Name: name}, infra)).To(Succeed())
			Expect(the.lab.Management.Delete(ctx, infra)).To(Succeed())
			Eventually(func(ctx context.Context) map[string]string { return controlPlaneMachines(ctx, the.trio) }).WithContext(ctx).
				WithTimeout(15 * time.Minute).WithPolling(2 * time.Second).ShouldNot(HaveKey(name))
			must(the.trio.AwaitReady(ctx, 15*time.Minute, lab.NewVersion, lab.OldVersion))
		})
		Expect(counts.FewestVoters).To(Equal(3))
		expectTrio(ctx, the.trio)
	}, NodeTimeout(32*time.Minute))

	It("keeps the member of a Machine whose finalizer and hooks somebody stripped until another one votes", func(ctx SpecContext) {
		var name, node string
		for name, node = range controlPlaneMachines(ctx, the.trio) {
			break
		}
		counts := whileWriting(ctx, "While the finalizer of a Machine was stripped", func() {
			management := the.lab.Kubeconfig()
			out, err := the.lab.Kubectl(ctx, management, "delete", "machine", name, "--namespace", lab.Namespace, "--wait=false")
			Expect(err).NotTo(HaveOccurred(), out)
			out, err = the.lab.Kubectl(ctx, management, "patch", "machine", name, "--namespace", lab.Namespace, "--type=merge",
				"--patch", `{"metadata":{"finalizers":null,"annotations":null}}`)
			Expect(err).NotTo(HaveOccurred(), out)
			Expect(controlPlaneMachines(ctx, the.trio)).NotTo(HaveKey(name), "the Machine goes at once, with nobody asked")
			// Its host goes last but one, its Node last: when the kubelet was silent for a while.
			must(the.lab.AwaitHosts(ctx, 10*time.Minute, infrav1.HostStateAvailable, need(the.lab.Host(node))))
			must(the.trio.AwaitReady(ctx, 10*time.Minute, lab.NewVersion, lab.OldVersion))
		})
		Expect(counts.FewestVoters).To(Equal(3))
		Expect(need(the.trio.Nodes(ctx))).NotTo(ContainElement(HaveField("Name", node)), "the Node that Cluster API left behind")
		expectClean(ctx, need(the.lab.Host(node)))
		expectTrio(ctx, the.trio)
	}, NodeTimeout(25*time.Minute))

	recoveries()

	It("is gone when the Cluster is deleted, without ceremony", func(ctx SpecContext) {
		must(the.trio.Delete(ctx, 10*time.Minute))
		expectNothingLeft(ctx, the.trio)
		must(the.lab.AwaitHosts(ctx, 3*time.Minute, infrav1.HostStateAvailable))
		for _, host := range the.lab.Hosts {
			expectClean(ctx, host)
		}
	}, NodeTimeout(15*time.Minute))
}

// handOvers are what hosts have told of giving up the virtual address; each names its Machine.
func handOvers(ctx context.Context) []string {
	GinkgoHelper()
	return strings.Fields(need(the.lab.Kubectl(ctx, the.lab.Kubeconfig(), "get", "events", "--all-namespaces", "--output=name",
		"--field-selector", "reason=VirtualAddressHandedOver")))
}

// firstMember is the Machine whose etcd member kubeadm had begin the cluster, and its host.
func firstMember(ctx context.Context) (machine string, host *lab.Host) {
	GinkgoHelper()
	for name, node := range controlPlaneMachines(ctx, the.trio) {
		host := need(the.lab.Host(node))
		if strings.TrimSpace(need(the.lab.OnHost(ctx, host, "grep -cE -- '--initial-cluster=[^,]+$' /etc/kubernetes/manifests/etcd.yaml || true"))) == "1" {
			return name, host
		}
	}
	Fail("no member was the first")
	return "", nil
}

// controlPlaneMachines are the nodes of the control plane's Machines, by the Machines' names.
func controlPlaneMachines(ctx context.Context, cluster *lab.Cluster) map[string]string {
	GinkgoHelper()
	found := map[string]string{}
	for _, machine := range need(cluster.Machines(ctx)) {
		if _, controlPlane := machine.Labels[clusterv1.MachineControlPlaneLabel]; controlPlane {
			found[machine.Name] = machine.Status.NodeRef.Name
		}
	}
	return found
}

// expectTrio asks etcd itself: three voters, one on each control-plane node, and nobody else.
func expectTrio(ctx context.Context, cluster *lab.Cluster) {
	GinkgoHelper()
	var voters []any
	var one string
	for _, node := range controlPlaneMachines(ctx, cluster) {
		voters = append(voters, node+" started voter")
		one = node
	}
	Expect(voters).To(HaveLen(3))
	Expect(etcdMembers(ctx, need(the.lab.Host(one)))).To(ConsistOf(voters...))
}

// withoutDeleteAdmission takes the webhooks away that are asked before a Machine is deleted; restore puts them back.
func withoutDeleteAdmission(ctx context.Context) (restore func()) {
	GinkgoHelper()
	list := &admissionregistrationv1.ValidatingWebhookConfigurationList{}
	Expect(the.lab.Management.List(ctx, list)).To(Succeed())
	var taken []*admissionregistrationv1.ValidatingWebhookConfiguration
	for i := range list.Items {
		original := list.Items[i].DeepCopy()
		var kept []admissionregistrationv1.ValidatingWebhook
		for _, webhook := range original.Webhooks {
			if !asksBeforeDeletion(webhook) {
				kept = append(kept, webhook)
			}
		}
		if len(kept) == len(original.Webhooks) {
			continue
		}
		list.Items[i].Webhooks = kept
		Expect(the.lab.Management.Update(ctx, &list.Items[i])).To(Succeed())
		taken = append(taken, original)
	}
	// The API server learns of it a moment later.
	time.Sleep(3 * time.Second)
	return func() {
		GinkgoHelper()
		for _, original := range taken {
			now := &admissionregistrationv1.ValidatingWebhookConfiguration{}
			Expect(the.lab.Management.Get(ctx, client.ObjectKeyFromObject(original), now)).To(Succeed())
			now.Webhooks = original.Webhooks
			Expect(the.lab.Management.Update(ctx, now)).To(Succeed())
		}
		the.lab.Printf("%s", fmt.Sprintf("   put %d webhook configurations back", len(taken)))
	}
}

// asksBeforeDeletion tells our webhook for the deletion of Machines from Cluster API's.
func asksBeforeDeletion(webhook admissionregistrationv1.ValidatingWebhook) bool {
	for _, rule := range webhook.Rules {
		deletes, machines := false, false
		for _, operation := range rule.Operations {
			deletes = deletes || operation == admissionregistrationv1.Delete
		}
		for _, resource := range rule.Resources {
			machines = machines || resource == "machines"
		}
		if deletes && machines && strings.Contains(webhook.Name, "quoin") {
			return true
		}
	}
	return false
}
