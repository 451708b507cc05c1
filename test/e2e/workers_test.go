//go:build e2e

// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"maps"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
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
			SoakSeconds: ptr.To[int32](10), DeadlineSeconds: ptr.To[int32](900), OnFailure: quoinv1.RolloutFailureRollback,
			Drain:      &quoinv1.RolloutDrain{PostDrainDelaySeconds: ptr.To[int32](5), IntervalSeconds: ptr.To[int32](5)},
			Validation: &quoinv1.RolloutValidation{SuccessThreshold: ptr.To[int32](2), IntervalSeconds: ptr.To[int32](5)}}}

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
		awaitPolicy(ctx, policy, time.Minute, quoinv1.UpToDateReason)
		Eventually(func(ctx context.Context) []quoinv1.RolloutProgress {
			return readPolicy(ctx, policy).Status.MachineDeployments
		}).WithContext(ctx).Should(ConsistOf(HaveField("Recorded", Not(BeEmpty()))))
	}, NodeTimeout(35*time.Minute))

	It("tries one, waits for a person, and replaces the others, while requests go on [S3-26] [S3-27] [S3-35] [K-11] [S0-70]", func(ctx SpecContext) {
		callers := callWeb(ctx, crew)
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
		Expect(policy.Status.Validation.Results).To(And(Not(BeEmpty()), HaveEach(HaveField("Status", quoinv1.RolloutCheckPassed))))
		Expect(tainted(ctx, crew)).To(ConsistOf(slices.Collect(maps.Values(before))), "those that are to be replaced, and no other")
		for _, machine := range need(crew.Machines(ctx)) {
			if before[machine.Name] != "" {
				Expect(machine.Annotations).To(And(HaveKey(quoinv1.RolloutPreDrainHookAnnotation),
					HaveKey(quoinv1.RolloutPreTerminateHookAnnotation)))
			}
		}
		Consistently(func(ctx context.Context) []string { return touched(ctx, crew, before) }).WithContext(ctx).
			WithTimeout(8 * time.Second).Should(BeEmpty())

		By("saying that it goes on")
		was := client.MergeFrom(policy.DeepCopy())
		policy.Spec.ContinueAfter = policy.Status.PausedAfter
		Expect(the.lab.Management.Patch(ctx, policy, was)).To(Succeed())
		awaitPolicy(ctx, policy, 15*time.Minute, quoinv1.UpToDateReason)
		must(crew.AwaitReady(ctx, 5*time.Minute, lab.NewVersion, lab.NewVersion))
		timeline.Stop()
		the.lab.Printf("\nWhat happened:\n%s", timeline)
		hangUp(ctx, callers)
		for machine := range before {
			must(timeline.Before(lab.Fact{What: lab.NodeReady, Name: spare.Name}, lab.Fact{What: lab.MachineDeleting, Name: machine}))
			must(timeline.Before(lab.Fact{What: lab.MachineDrained, Name: machine}, lab.Fact{What: lab.HostCleaning, Name: machine}))
		}
		expectWeb(ctx, crew)
		Expect(tainted(ctx, crew)).To(BeEmpty())
	}, NodeTimeout(35*time.Minute))

	// Cluster API alone would have two hosts made workers of the broken template at once: it makes both Machines here as well.
	It("stops after a canary that never becomes Ready, and goes back with nothing deleted [C16]", func(ctx SpecContext) {
		must(the.lab.AddSecondWorker(ctx))
		was := client.MergeFrom(readPolicy(ctx, policy).DeepCopy())
		policy.Spec.DeadlineSeconds = ptr.To[int32](150)
		policy.Spec.Strategy = &quoinv1.RolloutStrategy{MaxSurge: ptr.To(intstr.FromInt32(2))}
		Expect(the.lab.Management.Patch(ctx, policy, was)).To(Succeed())
		must(crew.SurgeWorkers(ctx, 2))
		before := workerMachines(ctx, crew)
		former := need(crew.EditWorkerConfig(ctx, "crew-broken", func(spec *bootstrapv1.KubeadmConfigSpec) {
			spec.PostKubeadmCommands = append(spec.PostKubeadmCommands, idleKubelet)
		}))
		made, tried := map[string]bool{}, map[string]bool{}
		Eventually(func(ctx context.Context) string {
			Expect(touched(ctx, crew, before)).To(BeEmpty())
			for _, machine := range need(crew.Machines(ctx)) {
				if _, was := before[machine.Name]; was || util.IsControlPlaneMachine(&machine) {
					continue
				}
				made[machine.Name] = true
				if claimed(ctx, machine.Spec.InfrastructureRef.Name) {
					tried[machine.Name] = true
				}
			}
			reason := conditions.GetReason(readPolicy(ctx, policy), quoinv1.RolloutPolicyRolledBackCondition)
			Expect(reason).NotTo(Equal(quoinv1.RollbackRefusedReason), func() string {
				return condition(policy.Status.Conditions, quoinv1.RolloutPolicyRolledBackCondition)
			})
			return reason
		}).WithContext(ctx).WithTimeout(12*time.Minute).Should(Equal(quoinv1.RolledBackReason), func() string {
			return condition(policy.Status.Conditions, quoinv1.RolloutPolicyProgressingCondition)
		})
		the.lab.Printf("\n%s", condition(policy.Status.Conditions, quoinv1.RolloutPolicyRolledBackCondition))
		Expect(made).To(HaveLen(2), "Machines of the broken template")
		Expect(tried).To(HaveLen(1), "those of them that had a host")
		Expect(need(crew.WorkerDeployment(ctx)).Spec.Template.Spec.Bootstrap.ConfigRef.Name).To(Equal(former))
		awaitPolicy(ctx, policy, 5*time.Minute, quoinv1.UpToDateReason)
		must(crew.AwaitReady(ctx, 8*time.Minute, lab.NewVersion, lab.NewVersion))
		Expect(workerMachines(ctx, crew)).To(Equal(before), "nobody but the canary was touched")
		must(crew.SurgeWorkers(ctx, 1))
		// A reset takes back what Quoin wrote, and no more.
		for _, spare := range spareHosts(ctx, "worker", 2) {
			need(the.lab.OnHost(ctx, spare, "rm -f "+idleDropIn+"; systemctl daemon-reload"))
		}
	}, NodeTimeout(25*time.Minute))

	It("rolls without a spare host, one Machine missing at a time, while requests go on", func(ctx SpecContext) {
		spares := spareHosts(ctx, "worker", 2)
		for _, spare := range spares {
			editHost(ctx, spare.Name, func(host *infrav1.QuoinHost) {
				host.Spec.Maintenance = &infrav1.Maintenance{Reason: "there is none to spare"}
			})
		}
		was := client.MergeFrom(readPolicy(ctx, policy).DeepCopy())
		policy.Spec.DeadlineSeconds = ptr.To[int32](900)
		policy.Spec.PauseAfter, policy.Spec.ContinueAfter = quoinv1.RolloutPauseNone, ""
		policy.Spec.WhenNoSpare = quoinv1.RolloutWithoutSpareRemoveFirst
		Expect(the.lab.Management.Patch(ctx, policy, was)).To(Succeed())
		before := workerMachines(ctx, crew)
		callers := callWeb(ctx, crew)
		need(crew.EditWorkerConfig(ctx, "crew-third", func(spec *bootstrapv1.KubeadmConfigSpec) {
			spec.PostKubeadmCommands = append(spec.PostKubeadmCommands, "touch /run/third")
		}))
		least := len(before)
		Eventually(func(ctx context.Context) bool {
			serving := 0
			for _, machine := range need(crew.Machines(ctx)) {
				if _, controlPlane := machine.Labels[clusterv1.MachineControlPlaneLabel]; !controlPlane &&
					conditions.IsTrue(&machine, clusterv1.MachineNodeReadyCondition) {
					serving++
				}
			}
			least = min(least, serving)
			return len(touched(ctx, crew, before)) == len(before) &&
				conditions.GetReason(readPolicy(ctx, policy), quoinv1.RolloutPolicyProgressingCondition) == quoinv1.UpToDateReason
		}).WithContext(ctx).WithTimeout(30*time.Minute).WithPolling(2*time.Second).Should(BeTrue(), func() string {
			return condition(policy.Status.Conditions, quoinv1.RolloutPolicyProgressingCondition)
		})
		must(crew.AwaitReady(ctx, 5*time.Minute, lab.NewVersion, lab.NewVersion))
		Expect(least).To(Equal(len(before)-1), "workers that are Ready at the worst time")
		hangUp(ctx, callers)
		for _, spare := range spares {
			Expect(workerMachines(ctx, crew)).NotTo(ContainElement(spare.Name))
		}
	}, NodeTimeout(40*time.Minute))
}

// claimed reports whether a QuoinMachine has a host.
func claimed(ctx context.Context, name string) bool {
	GinkgoHelper()
	machine := &infrav1.QuoinMachine{}
	err := the.lab.Management.Get(ctx, client.ObjectKey{Namespace: lab.Namespace, Name: name}, machine)
	Expect(client.IgnoreNotFound(err)).To(Succeed())
	return err == nil && machine.Status.HostRef != nil
}

// tainted are the Nodes that pods rather avoid, for their Machines are to be replaced.
func tainted(ctx context.Context, cluster *lab.Cluster) []string {
	GinkgoHelper()
	nodes := &corev1.NodeList{}
	Expect(cluster.Client.List(ctx, nodes)).To(Succeed())
	var names []string
	for _, node := range nodes.Items {
		if slices.ContainsFunc(node.Spec.Taints, func(taint corev1.Taint) bool { return taint.Key == quoinv1.RolloutTaintKey }) {
			names = append(names, node.Name)
		}
	}
	return names
}

// idleKubelet has a unit run in the place of the kubelet that does nothing. One that is merely stopped is started again.
const (
	idleDropIn  = "/etc/systemd/system/kubelet.service.d/99-idle.conf"
	idleKubelet = `printf '[Service]\nExecStart=\nExecStart=/bin/sleep infinity\n' > ` + idleDropIn +
		` && systemctl daemon-reload && systemctl restart kubelet`
)

// callWeb has the Service of the workload called all the time, from everywhere.
func callWeb(ctx context.Context, cluster *lab.Cluster) *lab.Callers {
	GinkgoHelper()
	service := &corev1.Service{}
	Expect(cluster.Client.Get(ctx, client.ObjectKey{Namespace: "default", Name: "web"}, service)).To(Succeed())
	return need(cluster.Call(ctx, "http://"+service.Spec.ClusterIP+"/"))
}

// hangUp ends the calls, none of which may have failed.
func hangUp(ctx context.Context, callers *lab.Callers) {
	GinkgoHelper()
	calls, err := callers.Stop(ctx)
	total := lab.Total(calls)
	the.lab.Printf("\nRequests of the workload: %d answered, %d failed, longest gap %s\n%s", total.Gaps.Successes,
		total.Gaps.Failures, total.Gaps.Longest, lab.Describe(calls))
	must(err)
	Expect(total.Gaps.Failures).To(BeZero(), "%v", total.Failures)
	Expect(total.Gaps.Successes).To(BeNumerically(">", 1000))
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
