//go:build e2e

// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/e2e/lab"
)

// workers has a RolloutPolicy lead the replacement of a pool of three, while somebody uses what runs there.
func workers() {
	var crew *lab.Cluster
	policy := &quoinv1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: lab.Namespace, Name: "crew"},
		Spec: quoinv1.RolloutPolicySpec{ClusterName: "crew", PauseAfter: quoinv1.RolloutPauseCanary,
			SoakSeconds: ptr.To[int32](10), DeadlineSeconds: ptr.To[int32](150)}}

	It("makes a cluster of three workers with a guarded workload, and one host to spare", func(ctx SpecContext) {
		must(the.lab.AddWorker(ctx))
		crew = need(the.lab.Create(ctx, lab.Crew()))
		must(crew.AwaitAPI(ctx))
		must(crew.ApplyNetwork(ctx))
		must(crew.AwaitReady(ctx, 15*time.Minute, lab.NewVersion, lab.NewVersion))
		must(the.lab.Apply(ctx, crew.Kubeconfig(), web))
		expectWeb(ctx, crew)
		awaitBudget(ctx, crew, 1)
		Expect(the.lab.Management.Create(ctx, policy)).To(Succeed())
	}, NodeTimeout(25*time.Minute))

	It("tries one, waits for a person, and replaces the others, while requests go on [S3-26] [S3-35] [K-11]", func(ctx SpecContext) {
		service := &corev1.Service{}
		Expect(crew.Client.Get(ctx, client.ObjectKey{Namespace: "default", Name: "web"}, service)).To(Succeed())
		callers := need(crew.Call(ctx, "http://"+service.Spec.ClusterIP+"/"))
		timeline := crew.Watch(ctx)
		defer timeline.Stop()
		before := workerMachines(ctx, crew)
		spare := spareHost(ctx, "worker")

		By("changing what workers are made of")
		need(crew.EditWorkerConfig(ctx, "crew-second", func(spec *bootstrapv1.KubeadmConfigSpec) {
			spec.PostKubeadmCommands = append(spec.PostKubeadmCommands, "touch /run/second")
		}))
		Eventually(func(ctx context.Context) string {
			Expect(touched(ctx, crew, before)).To(BeEmpty())
			return readPolicy(ctx, policy).Status.PausedAfter
		}).WithContext(ctx).WithTimeout(8*time.Minute).ShouldNot(BeEmpty(), "the canary that waits for a person")
		the.lab.Printf("\n%+v", policy.Status)
		Expect(workerMachines(ctx, crew)).To(HaveKeyWithValue(policy.Status.PausedAfter, spare.Name))
		Consistently(func(ctx context.Context) []string { return touched(ctx, crew, before) }).WithContext(ctx).
			WithTimeout(8 * time.Second).Should(BeEmpty())

		By("saying that it goes on")
		was := client.MergeFrom(policy.DeepCopy())
		policy.Spec.ContinueAfter = policy.Status.PausedAfter
		Expect(the.lab.Management.Patch(ctx, policy, was)).To(Succeed())
		awaitPolicy(ctx, policy, 15*time.Minute, quoinv1.UpToDateReason)
		must(crew.AwaitReady(ctx, 5*time.Minute, lab.NewVersion, lab.NewVersion))
		timeline.Stop()
		calls, err := callers.Stop(ctx)
		total := lab.Total(calls)
		the.lab.Printf("\nRequests of the workload: %d answered, %d failed, longest gap %s\n%s\nWhat happened:\n%s",
			total.Gaps.Successes, total.Gaps.Failures, total.Gaps.Longest, lab.Describe(calls), timeline)
		must(err)
		Expect(total.Gaps.Failures).To(BeZero(), "%v", total.Failures)
		Expect(total.Gaps.Successes).To(BeNumerically(">", 1000))
		for machine := range before {
			must(timeline.Before(lab.Fact{What: lab.NodeReady, Name: spare.Name}, lab.Fact{What: lab.MachineDeleting, Name: machine}))
			must(timeline.Before(lab.Fact{What: lab.MachineDrained, Name: machine}, lab.Fact{What: lab.HostCleaning, Name: machine}))
		}
		expectWeb(ctx, crew)
	}, NodeTimeout(35*time.Minute))

	It("stops after a canary that never becomes Ready, with nothing deleted, and takes the template before [C16]", func(ctx SpecContext) {
		before := workerMachines(ctx, crew)
		former := need(crew.EditWorkerConfig(ctx, "crew-broken", func(spec *bootstrapv1.KubeadmConfigSpec) {
			spec.PostKubeadmCommands = append(spec.PostKubeadmCommands, "systemctl disable --now kubelet")
		}))
		Eventually(func(ctx context.Context) bool {
			Expect(touched(ctx, crew, before)).To(BeEmpty())
			return conditions.IsTrue(readPolicy(ctx, policy), quoinv1.RolloutPolicyStalledCondition)
		}).WithContext(ctx).WithTimeout(8*time.Minute).Should(BeTrue(), "%+v", policy.Status)
		the.lab.Printf("\n%s", condition(policy.Status.Conditions, quoinv1.RolloutPolicyStalledCondition))
		tried := workerMachines(ctx, crew)
		Expect(tried).To(HaveLen(4), "the three that serve, and one that was tried")
		need(crew.EditWorkerConfig(ctx, former, func(*bootstrapv1.KubeadmConfigSpec) {}))
		awaitPolicy(ctx, policy, 5*time.Minute, quoinv1.UpToDateReason)
		must(crew.AwaitReady(ctx, 8*time.Minute, lab.NewVersion, lab.NewVersion))
		Expect(workerMachines(ctx, crew)).To(Equal(before), "nobody but the canary was touched")
		must(the.lab.AwaitHosts(ctx, 5*time.Minute, infrav1.HostStateAvailable, need(the.lab.Host(notIn(tried, before)))))
	}, NodeTimeout(25*time.Minute))
}

// readPolicy reads a RolloutPolicy anew.
func readPolicy(ctx context.Context, policy *quoinv1.RolloutPolicy) *quoinv1.RolloutPolicy {
	GinkgoHelper()
	Expect(the.lab.Management.Get(ctx, client.ObjectKeyFromObject(policy), policy)).To(Succeed())
	return policy
}

// awaitPolicy waits until a RolloutPolicy progresses for a reason, or does not, with nothing that is outdated.
func awaitPolicy(ctx context.Context, policy *quoinv1.RolloutPolicy, deadline time.Duration, reason string) {
	GinkgoHelper()
	Eventually(func(ctx context.Context) string {
		return conditions.GetReason(readPolicy(ctx, policy), quoinv1.RolloutPolicyProgressingCondition)
	}).WithContext(ctx).WithTimeout(deadline).Should(Equal(reason), func() string {
		return condition(policy.Status.Conditions, quoinv1.RolloutPolicyProgressingCondition)
	})
}

// touched are those of the Machines that are being deleted, or are gone.
func touched(ctx context.Context, cluster *lab.Cluster, machines map[string]string) []string {
	GinkgoHelper()
	stay := map[string]bool{}
	for _, machine := range need(cluster.Machines(ctx)) {
		stay[machine.Name] = machine.DeletionTimestamp.IsZero()
	}
	var touched []string
	for name := range machines {
		if !stay[name] {
			touched = append(touched, name)
		}
	}
	return touched
}

// notIn is the node of the Machine that is in one map and not in another.
func notIn(all, some map[string]string) string {
	for machine, node := range all {
		if _, is := some[machine]; !is {
			return node
		}
	}
	return ""
}
