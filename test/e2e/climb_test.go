//go:build e2e

// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/hack/components/repository"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/e2e/lab"
)

// climb brings a cluster over two minors with one ClusterUpgrade, while somebody uses it and managers die.
func climb() {
	var climber *lab.Cluster
	upgrade := &quoinv1.ClusterUpgrade{ObjectMeta: metav1.ObjectMeta{Namespace: lab.Namespace, Name: "climb"}}

	It("makes a cluster of three control planes and two workers with a guarded workload, at "+
		lab.EarliestVersion, func(ctx SpecContext) {
		must(the.lab.BuildBundle(ctx, lab.EarliestVersion))
		must(the.lab.AddRacks(ctx))
		climber = need(the.lab.Create(ctx, lab.Climber()))
		must(climber.AwaitAPI(ctx))
		must(climber.ApplyNetwork(ctx))
		must(climber.AwaitReady(ctx, 20*time.Minute, lab.EarliestVersion, lab.EarliestVersion))
		logNodes(ctx, climber, "at the beginning")
		expectTrio(ctx, climber)
		must(the.lab.Apply(ctx, climber.Kubeconfig(), web))
		expectWeb(ctx, climber)
		awaitBudget(ctx, climber, 2)
	}, NodeTimeout(80*time.Minute))

	It("is blocked by a budget that no drain can keep, and touches nothing [S0-50]", func(ctx SpecContext) {
		before := standing(ctx, climber)
		upgrade.Spec = quoinv1.ClusterUpgradeSpec{ClusterName: climber.Name, Version: lab.NewVersion,
			Via: []string{lab.OldVersion}, Approve: quoinv1.UpgradeApprovalManual}
		Expect(the.lab.Management.Create(ctx, upgrade)).To(Succeed())
		Eventually(func(ctx context.Context) string { return progressOf(ctx, upgrade) }).WithContext(ctx).
			WithTimeout(3*time.Minute).Should(HavePrefix("Progressing=False Blocked"), "what the preflight finds")
		the.lab.Printf("\n%s\n%s", conditions.GetMessage(upgrade, quoinv1.ClusterUpgradePlannedCondition),
			progressOf(ctx, upgrade))
		logCheck(ctx, upgrade.Status.PreflightCheck)
		Expect(progressOf(ctx, upgrade)).To(
			ContainSubstring("Disruption: PodDisruptionBudget default/web: wants all of its 2 pods"))
		Expect(upgrade.Status.Plan.Hops).To(Equal([]string{lab.OldVersion, lab.NewVersion}))
		Consistently(func(ctx context.Context) string { return standing(ctx, climber) }).WithContext(ctx).
			WithTimeout(10 * time.Second).Should(Equal(before))
		Expect(begun(ctx, upgrade)).To(BeFalse())
	}, NodeTimeout(6*time.Minute))

	It("goes on when that is mended: two hops, then the workers, while managers are killed and "+
		"requests go on", func(ctx SpecContext) {
		plane, worker := spareHost(ctx, "control-plane"), spareHost(ctx, "worker")
		writer := need(climber.Write(ctx))
		defer writer.Stop()
		insider := need(climber.Inside(ctx))
		service := &corev1.Service{}
		Expect(climber.Client.Get(ctx, client.ObjectKey{Namespace: "default", Name: "web"}, service)).To(Succeed())
		callers := need(climber.Call(ctx, "http://"+service.Spec.ClusterIP+"/"))
		work, census, timeline := the.lab.Work(ctx), climber.Count(ctx), climber.Watch(ctx)
		defer timeline.Stop()
		before := need(climber.Nodes(ctx))

		By("mending the budget, and naming a check that need not be made, after which it looks again at once")
		awaitBudget(ctx, climber, 1)
		editUpgrade(ctx, upgrade, func(spec *quoinv1.ClusterUpgradeSpec) {
			spec.Skip = []quoinv1.SkippedCheck{{Name: "Backup", Reason: "nothing in this cluster is worth a snapshot"}}
		})
		By("approving the plan when what comes next is staged on the hosts to spare")
		Eventually(func(ctx context.Context) string {
			return progressOf(ctx, upgrade) + "\n" +
				condition(upgrade.Status.Conditions, quoinv1.ClusterUpgradeStagedCondition)
		}).WithContext(ctx).WithTimeout(15 * time.Minute).WithPolling(time.Second).
			Should(And(HavePrefix("Progressing=False ApprovalRequired"), ContainSubstring("\nStaged=True")))
		the.lab.Printf("\n%s", condition(upgrade.Status.Conditions, quoinv1.ClusterUpgradeStagedCondition))
		Expect(begun(ctx, upgrade)).To(BeFalse())
		editUpgrade(ctx, upgrade, func(spec *quoinv1.ClusterUpgradeSpec) { spec.ApprovedPlan = upgrade.Status.Plan.ID })
		awaitUpgrade(ctx, upgrade, 5*time.Minute, quoinv1.UpgradeStepControlPlane)
		logCheck(ctx, upgrade.Status.PreflightCheck)
		Expect(begun(ctx, upgrade)).To(BeTrue())

		By("killing the managers in the first hop, while kubeadm joins")
		providers := []string{repository.ControlPlaneLabel, repository.InfrastructureLabel}
		kills := []lab.Span{untilLed(ctx, killDuringJoin(ctx, plane, providers...), providers)}

		awaitUpgrade(ctx, upgrade, 95*time.Minute, quoinv1.UpgradeStepWorkers)
		seen := need(insider.Report(ctx))
		Expect(seen.Names.Last).To(BeTemporally(">", time.Now().Add(-time.Minute)), "names that are known again")
		must(insider.Stop(ctx, climber))
		By("killing the managers while the first worker's replacement is provisioned")
		Eventually(func(ctx context.Context) infrav1.HostState { return quoinHost(ctx, worker.Name).Status.State }).
			WithContext(ctx).WithTimeout(4 * time.Minute).WithPolling(200 * time.Millisecond).
			Should(Equal(infrav1.HostStateProvisioning))
		kills = append(kills, untilLed(ctx, kill(ctx, providers...)(), providers))

		awaitUpgrade(ctx, upgrade, 40*time.Minute, "")
		must(climber.AwaitReady(ctx, 3*time.Minute, lab.NewVersion, lab.NewVersion))
		timeline.Stop()
		counts := census.Stop()
		writer.Stop()
		calls, err := callers.Stop(ctx)
		plans := work.Stop(ctx)
		logNodes(ctx, climber, "at the end")
		logUpgrade(ctx, upgrade, plans, timeline.Lives(), kills)
		staged, unstaged := lab.JoinsOf(timeline.Lives(), plans, true), lab.JoinsOf(timeline.Lives(), plans, false)
		total := lab.Total(calls)
		the.lab.Printf("\nRequests of the workload: %d answered, %d failed, longest gap %s\n%s", total.Gaps.Successes,
			total.Gaps.Failures, total.Gaps.Longest, lab.Describe(calls))
		the.lab.Printf("What happened:\n%s", timeline)
		the.lab.Printf("What the control plane did:\n  %s", strings.Join(census.Story(), "\n  "))
		the.lab.Printf("API and etcd, from outside: %s\n"+
			"From a pod, during both hops: longest gap between reads %s, between writes %s, between renewals of the "+
			"scheduler's lease %s, between names that DNS knew %s\n%+v\n  %s",
			writer.Report(), seen.Reads, seen.Writes, seen.Schedulers, seen.Names, counts, strings.Join(timeline.Mixes(), "\n  "))
		must(err)

		By("having lost no request of the workload [S0-46]")
		Expect(total.Gaps.Failures).To(BeZero(), "%s", strings.Join(total.Failures, "\n"))
		Expect(total.Gaps.Successes).To(BeNumerically(">", 1000))
		By("having had API servers and a quorum all the time, and lost no write [S0-36]")
		Expect(need(writer.Lost(ctx))).To(BeEmpty(), "acknowledged keys that are lost")
		Expect(max(seen.Reads.Longest, seen.Writes.Longest)).To(BeNumerically("<", 10*time.Second))
		// A lease of 15 s that nobody handed over, and the next one's try.
		Expect(seen.Schedulers.Longest).To(BeNumerically("<", 25*time.Second))
		Expect(counts.FewestVoters).To(Equal(3))
		expectTrio(ctx, climber)
		By("having resolved names all the time, from a pod on a worker [S0-42]")
		Expect(seen.Names.Longest).To(BeNumerically("<", 10*time.Second))
		By("having had the address of the API server lead to one [S0-38]")
		Expect(writer.Longest()).To(BeNumerically("<", time.Minute))
		Expect(writer.Deaf()).To(BeNumerically("<", 10*time.Second))
		By("having gone one minor at a time, the workers once and last [C3]")
		Expect(timeline.Mixes()).To(Equal([]string{
			"control plane v1.34.4; workers v1.34.4",
			"control plane v1.34.4, v1.35.4; workers v1.34.4",
			"control plane v1.35.4; workers v1.34.4",
			"control plane v1.35.4, v1.36.3; workers v1.34.4",
			"control plane v1.36.3; workers v1.34.4",
			"control plane v1.36.3; workers v1.34.4, v1.36.3",
			"control plane v1.36.3; workers v1.36.3",
		}))
		By("having drained each Node before its host was touched, and replaced no more than had to be [S1-22]")
		// One that was made ahead and came to no host in time leaves too, with nothing to drain.
		left := slices.DeleteFunc(timeline.Names(lab.HostCleaning), func(name string) bool {
			_, err := the.lab.Host(name)
			return err == nil
		})
		Expect(left).To(HaveLen(3+3+2), "Machines that left their hosts")
		for _, machine := range left {
			must(timeline.Before(lab.Fact{What: lab.MachineDrained, Name: machine},
				lab.Fact{What: lab.HostCleaning, Name: machine}))
		}
		By("having spared hosts that were staged what the others had to bring first")
		Expect([]int{staged.Number, unstaged.Number}).To(HaveEach(BeNumerically(">", 0)))
		Expect(staged.Artifacts.Seconds()).To(BeNumerically("<", unstaged.Artifacts.Seconds()))
		Expect(staged.Whole.Seconds()).To(BeNumerically("<", unstaged.Whole.Seconds()))
		By("having changed no kubelet that ran [S1-23]")
		Expect(timeline.KubeletChanges()).To(BeEmpty())
		after := need(climber.Nodes(ctx))
		for _, node := range before {
			Expect(after).NotTo(ContainElement(HaveField("UID", node.UID)))
		}
		expectWeb(ctx, climber)
	}, NodeTimeout(150*time.Minute))

	It("says the same version everywhere, and what each step took [S0-3]", func(ctx SpecContext) {
		read(ctx, upgrade)
		completed := condition(upgrade.Status.Conditions, quoinv1.ClusterUpgradeCompletedCondition)
		Expect(completed).To(HavePrefix("Completed=True"))
		Expect(upgrade.Status.Version).To(Equal(lab.NewVersion))
		var types []quoinv1.UpgradeStepType
		for _, step := range upgrade.Status.Steps {
			types = append(types, step.Type)
			Expect(step.State).To(Equal(quoinv1.UpgradeStepDone), "%+v", step)
			Expect(step.StartTime.IsZero() || step.CompletionTime.IsZero()).To(BeFalse(), "%+v", step)
		}
		Expect(types).To(Equal([]quoinv1.UpgradeStepType{quoinv1.UpgradeStepPreflight, quoinv1.UpgradeStepSpecVersion,
			quoinv1.UpgradeStepControlPlane, quoinv1.UpgradeStepAddons, quoinv1.UpgradeStepControlPlane,
			quoinv1.UpgradeStepAddons, quoinv1.UpgradeStepWorkers, quoinv1.UpgradeStepHealth}))
		cluster := &infrav1.QuoinCluster{}
		Expect(the.lab.Management.Get(ctx, climber.Key(), cluster)).To(Succeed())
		Expect([]string{cluster.Spec.Version, cluster.Status.Version}).To(HaveEach(lab.NewVersion))
		for _, node := range need(climber.Nodes(ctx)) {
			Expect(node).To(And(HaveField("Kubelet", lab.NewVersion), HaveField("Ready", true)))
		}
		expectDescribed(ctx, climber)
	}, NodeTimeout(4*time.Minute))

	It("reads like its story, in events that each name their step", func(ctx SpecContext) {
		described := need(the.lab.Kubectl(ctx, the.lab.Kubeconfig(), "describe", "clusterupgrade", upgrade.Name,
			"--namespace", upgrade.Namespace))
		_, events, found := strings.Cut(described, "\nEvents:")
		Expect(found).To(BeTrue(), described)
		the.lab.Printf("\n%s", described)
		at := 0
		for _, next := range []string{"Planned", "Blocked", "ApprovalRequired", "Begun", "StepDone", "Completed"} {
			Expect(events[at:]).To(MatchRegexp(`(?m)^\s+(Normal|Warning)\s+%s\s`, next), "after what came before it:\n%s", events[at:])
			at += strings.Index(events[at:], " "+next+" ")
		}
		for _, step := range upgrade.Status.Steps {
			Expect(events).To(MatchRegexp(`StepDone .*%s.* -> %s took `, step.Type, step.To))
		}
	}, NodeTimeout(time.Minute))
}

// untilLed is for how long nobody decided, after managers were killed.
func untilLed(ctx context.Context, away lab.Span, providers []string) lab.Span {
	GinkgoHelper()
	for _, provider := range providers {
		if led := need(the.lab.AwaitLeader(ctx, provider, away.From)); led.After(away.To) {
			away.To = led
		}
	}
	return away
}

// read reads an upgrade anew.
func read(ctx context.Context, upgrade *quoinv1.ClusterUpgrade) {
	GinkgoHelper()
	Expect(the.lab.Management.Get(ctx, client.ObjectKeyFromObject(upgrade), upgrade)).To(Succeed())
}

// progressOf is what an upgrade says that it does or waits for.
func progressOf(ctx context.Context, upgrade *quoinv1.ClusterUpgrade) string {
	GinkgoHelper()
	read(ctx, upgrade)
	return condition(upgrade.Status.Conditions, quoinv1.ClusterUpgradeProgressingCondition)
}

// begun tells whether an upgrade says that it may have touched something.
func begun(ctx context.Context, upgrade *quoinv1.ClusterUpgrade) bool {
	GinkgoHelper()
	read(ctx, upgrade)
	return upgrade.Annotations[quoinv1.ClusterUpgradeBegunAnnotation] != "" || !upgrade.Status.StartTime.IsZero()
}

// editUpgrade does what `kubectl edit clusterupgrade` does.
func editUpgrade(ctx context.Context, upgrade *quoinv1.ClusterUpgrade, change func(*quoinv1.ClusterUpgradeSpec)) {
	GinkgoHelper()
	read(ctx, upgrade)
	before := client.MergeFrom(upgrade.DeepCopy())
	change(&upgrade.Spec)
	Expect(the.lab.Management.Patch(ctx, upgrade, before)).To(Succeed())
}

// awaitUpgrade waits until an upgrade carries out a step of a type or, without one, is completed; it tells each new
// step.
func awaitUpgrade(
	ctx context.Context, upgrade *quoinv1.ClusterUpgrade, deadline time.Duration, until quoinv1.UpgradeStepType,
) {
	GinkgoHelper()
	var told string
	Eventually(func(ctx context.Context) (bool, error) {
		// Who was killed is asked for webhooks a moment longer; reads go on.
		if err := the.lab.Management.Get(ctx, client.ObjectKeyFromObject(upgrade), upgrade); err != nil {
			return false, err
		}
		if upgrade.Status.Step != told {
			told = upgrade.Status.Step
			the.lab.Printf("   %s step %s", time.Now().Format(time.TimeOnly), told)
		}
		if until == "" {
			return conditions.IsTrue(upgrade, quoinv1.ClusterUpgradeCompletedCondition), nil
		}
		return slices.ContainsFunc(upgrade.Status.Steps, func(step quoinv1.UpgradeStep) bool {
			return step.Type == until && !step.StartTime.IsZero()
		}), nil
	}).WithContext(ctx).WithTimeout(deadline).WithPolling(500*time.Millisecond).Should(BeTrue(), func() string {
		return fmt.Sprintf("step %s: %s", upgrade.Status.Step,
			condition(upgrade.Status.Conditions, quoinv1.ClusterUpgradeProgressingCondition))
	})
}

// standing is what an upgrade must leave alone before its preflight passed: the versions in all specs, Machines, Nodes,
// and who has which host. What is staged on free hosts is none of the Cluster's.
func standing(ctx context.Context, cluster *lab.Cluster) string {
	GinkgoHelper()
	var text []string
	infra := &infrav1.QuoinCluster{}
	Expect(the.lab.Management.Get(ctx, cluster.Key(), infra)).To(Succeed())
	plane, workers := need(cluster.ControlPlane(ctx)), need(cluster.WorkerDeployment(ctx))
	text = append(text, fmt.Sprintf("versions %q %q %q, generations %d %d %d", infra.Spec.Version, plane.Spec.Version,
		workers.Spec.Template.Spec.Version, infra.Generation, plane.Generation, workers.Generation))
	for _, machine := range need(cluster.Machines(ctx)) {
		text = append(text, fmt.Sprintf("machine %s %s generation %d", machine.Name, machine.UID, machine.Generation))
	}
	for _, node := range need(cluster.Nodes(ctx)) {
		text = append(text, fmt.Sprintf("node %s %s %s", node.Name, node.UID, node.Kubelet))
	}
	for _, host := range the.lab.Hosts {
		object := quoinHost(ctx, host.Name)
		if object.Spec.ConsumerRef == nil { // it may be asked to have ahead what comes next
			text = append(text, fmt.Sprintf("host %s %s, free", host.Name, object.Status.State))
			continue
		}
		text = append(text, fmt.Sprintf("host %s %s generation %d", host.Name, object.Status.State, object.Generation))
	}
	return strings.Join(text, "\n")
}

// logCheck prints what a PreflightCheck found.
func logCheck(ctx context.Context, name string) {
	GinkgoHelper()
	check := &quoinv1.PreflightCheck{}
	Expect(the.lab.Management.Get(ctx, client.ObjectKey{Namespace: lab.Namespace, Name: name}, check)).To(Succeed())
	the.lab.Printf("\nPreflightCheck %s:", name)
	printChecks(check)
}

// logUpgrade prints what each step of an upgrade took, and to which phases its time went.
func logUpgrade(
	ctx context.Context, upgrade *quoinv1.ClusterUpgrade, plans []lab.Plan, lives []lab.Life, spans []lab.Span,
) {
	GinkgoHelper()
	read(ctx, upgrade)
	the.lab.Printf("\nWhat the steps of the upgrade took:")
	for i, step := range upgrade.Status.Steps {
		the.lab.Printf("  %d. %-12s %-40s %-8s %6s", i+1, step.Type, step.Object, step.To,
			step.CompletionTime.Sub(step.StartTime.Time))
		phases := map[quoinv1.UpgradeStepType]lab.Phase{quoinv1.UpgradeStepAddons: lab.Addons,
			quoinv1.UpgradeStepHealth: lab.Health}
		if phase, is := phases[step.Type]; is {
			spans = append(spans, lab.Span{Phase: phase, From: step.StartTime.Time, To: step.CompletionTime.Time})
		}
	}
	for _, plan := range plans {
		the.lab.Printf("     %s %-8s %-24s %6s", plan.Began.Format(time.TimeOnly), plan.Host, plan.ID, plan.Took)
	}
	for _, life := range lives {
		spans = append(spans, life.Spans(plans)...)
	}
	from, to := upgrade.Status.StartTime.Time, upgrade.Status.CompletionTime.Time
	shares := lab.Part(from, to, spans)
	wall, hosts, killed := to.Sub(from), lab.Of(shares, lab.ByHosts), lab.Of(shares, lab.ByKills)
	the.lab.Printf("\nTo what the time went:\n%s", lab.Table(lives, plans, shares))
	the.lab.Printf("Wall time %s, of which hosts were at work that others wait for %s, and kills left nobody to decide "+
		"for %s: ratio %.2f without the kills", wall, hosts, killed, (wall-killed).Seconds()/hosts.Seconds())
	staged, unstaged := lab.JoinsOf(lives, plans, true), lab.JoinsOf(lives, plans, false)
	bare := hosts + time.Duration(staged.Number)*(unstaged.Whole-staged.Whole)
	the.lab.Printf("Control planes, staged ahead: %s; not: %s. With all hosts unstaged these would be at work for %s: "+
		"ratio %.2f", staged, unstaged, bare, (wall-killed).Seconds()/bare.Seconds())
}
