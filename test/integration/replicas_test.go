// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/hack/components/repository"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/integration/rig"
)

// replicas are the specs of a provider whose nodes are drained, one after another and both at once.
func replicas() {
	const site = "self-managed"
	var (
		// managers are those of the control-plane provider, hosts those of the infrastructure provider.
		managers, hosts          *rig.Replicas
		deployment, deployedHost = &appsv1.Deployment{}, &appsv1.Deployment{}
		first, firstOfHosts      string
	)
	// machine is one that the webhook of deletions is asked about. A finalizer keeps it, as hooks do.
	machine := func(name string) *clusterv1.Machine {
		m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: site, Name: name,
			Finalizers: []string{"test.example.com/held"},
			Labels:     map[string]string{clusterv1.ClusterNameLabel: site, clusterv1.MachineControlPlaneLabel: ""},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: controlplanev1.GroupVersion.String(),
				Kind: "QuoinControlPlane", Name: "cp", UID: "cp", Controller: ptr.To(true)}}}}
		m.Spec.ClusterName, m.Spec.Bootstrap.DataSecretName = site, ptr.To("none")
		m.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{
			APIGroup: "infrastructure.cluster.x-k8s.io", Kind: "QuoinMachine", Name: name}
		return m
	}
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: site, Name: site,
		Annotations: map[string]string{controlplanev1.ProtectAnnotation: ""}}}
	cluster.Spec.Paused = ptr.To(true)
	cluster.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{
		APIGroup: "infrastructure.cluster.x-k8s.io", Kind: "QuoinCluster", Name: site}
	// refused by a webhook that answers.
	refused := MatchError(ContainSubstring("is protected"))
	deletion := func(ctx context.Context) error {
		return plane.Client.Delete(ctx, cluster.DeepCopy(), client.DryRunAll)
	}

	// moved is a worker that was being deleted before it was moved here, and whose cluster does not answer.
	moved := machine("moved")
	moved.Labels, moved.OwnerReferences = map[string]string{clusterv1.ClusterNameLabel: site}, nil
	moved.Annotations = map[string]string{infrav1.DeletionAnnotation: ""}
	moved.Spec.ProviderID = "quoin://moved"
	// undrained is what the webhook of such deletions says, when it answers.
	undrained := MatchError(ContainSubstring("without its pre-drain hooks and without a drain"))
	departure := func(ctx context.Context) error { return plane.Client.Delete(ctx, moved.DeepCopy(), client.DryRunAll) }
	replicate := func(ctx context.Context, label, name string, deployment *appsv1.Deployment) (*rig.Replicas, string) {
		GinkgoHelper()
		Expect(plane.Client.Get(ctx, client.ObjectKey{Namespace: name + "-system", Name: name + "-controller-manager"},
			deployment)).To(Succeed())
		members, err := plane.Replicate(ctx, label, 2)
		DeferCleanup(func(ctx SpecContext) { Expect(members.Restore(ctx)).To(Succeed()) })
		Expect(err).NotTo(HaveOccurred())
		leader, err := members.Leader(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(leader).NotTo(BeEmpty())
		return members, leader
	}
	// end a member as a kubelet does that drains its node.
	end := func(members *rig.Replicas, of *appsv1.Deployment) {
		GinkgoHelper()
		pod := of.Spec.Template.Spec
		left := *pod.TerminationGracePeriodSeconds - pod.Containers[0].Lifecycle.PreStop.Sleep.Seconds
		Expect(members.End(members.Members[0], time.Duration(left)*time.Second)).To(Succeed())
		Expect(members.Members[0].Failed()).NotTo(HaveOccurred(), "it was killed before it had ended")
	}

	BeforeAll(func(ctx SpecContext) {
		Expect(plane.Client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: site}})).To(Succeed())
		for _, object := range []client.Object{cluster, machine("leaving"), moved} {
			Expect(plane.Client.Create(ctx, object)).To(Succeed())
		}
		managers, first = replicate(ctx, repository.ControlPlaneLabel, "quoin-control-plane", deployment)
		hosts, firstOfHosts = replicate(ctx, repository.InfrastructureLabel, "quoin-infrastructure", deployedHost)
	}, NodeTimeout(6*time.Minute))

	It("has its webhooks answered by each, whoever leads", func(ctx SpecContext) {
		controlPlane := &controlplanev1.QuoinControlPlane{ObjectMeta: metav1.ObjectMeta{Namespace: site, Name: "asked"}}
		controlPlane.Spec.Replicas, controlPlane.Spec.Version = ptr.To[int32](1), "v1.36.3"
		controlPlane.Spec.MachineTemplate.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{
			APIGroup: "infrastructure.cluster.x-k8s.io", Kind: "QuoinMachineTemplate", Name: "cp"}
		Eventually(func(ctx context.Context) error { return plane.Client.Create(ctx, controlPlane) }).WithContext(ctx).
			Should(Succeed())
		scaled := func(to int32) func(context.Context) error {
			return func(ctx context.Context) error {
				edited := controlPlane.DeepCopy()
				edited.Spec.Replicas = &to
				return plane.Client.Patch(ctx, edited, client.MergeFrom(controlPlane.DeepCopy()), client.DryRunAll)
			}
		}
		for _, member := range managers.Members {
			managers.Prefer(member)
			before := managers.Answered(member)
			// The API server may have a request under way on a connection that was just ended.
			Eventually(scaled(2)).WithContext(ctx).Should(MatchError(ContainSubstring("spec.replicas: Forbidden")))
			Expect(scaled(3)(ctx)).To(Succeed())
			Expect(deletion(ctx)).To(refused)
			Expect(managers.Answered(member)).To(BeNumerically(">", before), "somebody else answered")
		}
	}, NodeTimeout(time.Minute))

	It("has those of hosts and of workers' deletions answered by each as well", func(ctx SpecContext) {
		quoinCluster := &infrav1.QuoinCluster{ObjectMeta: metav1.ObjectMeta{Namespace: site, Name: "asked"}}
		quoinCluster.Spec.LoadBalancer.Type = infrav1.LoadBalancerExternal
		quoinCluster.Spec.ControlPlaneEndpoint = infrav1.APIEndpoint{Host: "192.0.2.10", Port: 6443}
		Eventually(func(ctx context.Context) error { return plane.Client.Create(ctx, quoinCluster) }).WithContext(ctx).
			Should(Succeed())
		edited := func(edit func(*infrav1.QuoinCluster)) func(context.Context) error {
			return func(ctx context.Context) error {
				after := quoinCluster.DeepCopy()
				edit(after)
				return plane.Client.Patch(ctx, after, client.MergeFrom(quoinCluster.DeepCopy()), client.DryRunAll)
			}
		}
		for _, member := range hosts.Members {
			hosts.Prefer(member)
			before := hosts.Answered(member)
			Eventually(edited(func(c *infrav1.QuoinCluster) { c.Spec.ControlPlaneEndpoint.Host = "192.0.2.11" })).WithContext(ctx).
				Should(MatchError(ContainSubstring("spec.controlPlaneEndpoint.host: Forbidden")))
			Expect(edited(func(c *infrav1.QuoinCluster) { c.Labels = map[string]string{"edited": ""} })(ctx)).To(Succeed())
			Expect(departure(ctx)).To(undrained)
			Expect(hosts.Answered(member)).To(BeNumerically(">", before), "somebody else answered")
		}
	}, NodeTimeout(time.Minute))

	It("hands the leases over when the leaders end, and webhooks are answered meanwhile", func(ctx SpecContext) {
		end(managers, deployment)
		Expect(deletion(ctx)).To(refused)
		end(hosts, deployedHost)
		Expect(departure(ctx)).To(undrained)
		// Nobody waits until the leases have run out, which takes a minute.
		Eventually(managers.Leader).WithContext(ctx).WithTimeout(20 * time.Second).ShouldNot(Or(BeEmpty(), Equal(first)))
		Eventually(hosts.Leader).WithContext(ctx).WithTimeout(20 * time.Second).ShouldNot(Or(BeEmpty(), Equal(firstOfHosts)))
	}, NodeTimeout(3*time.Minute))

	It("lets a drain end when nobody answers", func(ctx SpecContext) {
		leaving := machine("leaving")
		Expect(plane.Client.Delete(ctx, leaving)).To(Succeed())
		Expect(plane.Client.Get(ctx, client.ObjectKeyFromObject(leaving), leaving)).To(Succeed())
		evict := evictions(ctx, deployment)
		By("evicting one Pod of two that work")
		Expect(evict("ready-1")).To(Succeed())
		Expect(evict("ready-2")).To(MatchError(apierrors.IsTooManyRequests, "IsTooManyRequests"))

		By("evicting both when neither works")
		Expect(managers.End(managers.Members[1], time.Minute)).To(Succeed())
		// While somebody answers, the garbage collector deletes what has an owner that is not there.
		guarded := machine("guarded")
		Expect(plane.Client.Create(ctx, guarded)).To(Succeed())
		Expect(plane.Client.Delete(ctx, guarded)).To(MatchError(ContainSubstring("failed calling webhook")))
		for _, name := range []string{"silent-1", "silent-2"} {
			Expect(evict(name)).To(Succeed(), "a drain waits for %s", name)
		}
		By("letting the Machine go that was drained")
		held := client.MergeFrom(leaving.DeepCopy())
		leaving.Finalizers = nil
		Expect(plane.Client.Patch(ctx, leaving, held)).To(Succeed())
		Expect(apierrors.IsNotFound(plane.Client.Get(ctx, client.ObjectKeyFromObject(leaving), leaving))).To(BeTrue())
	}, NodeTimeout(2*time.Minute))
}

// evictions makes Pods of a manager, ready ones and silent ones, and returns what a drain does to one by its name.
func evictions(ctx context.Context, deployment *appsv1.Deployment) func(name string) error {
	GinkgoHelper()
	for name, ready := range map[string]corev1.ConditionStatus{
		"ready-1": corev1.ConditionTrue, "ready-2": corev1.ConditionTrue,
		"silent-1": corev1.ConditionFalse, "silent-2": corev1.ConditionFalse,
	} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: deployment.Namespace, Name: name,
			Labels: deployment.Spec.Template.Labels}, Spec: *deployment.Spec.Template.Spec.DeepCopy()}
		pod.Spec.NodeName = "drained"
		Expect(plane.Client.Create(ctx, pod)).To(Succeed())
		pod.Status.Phase = corev1.PodRunning
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}
		Expect(plane.Client.Status().Update(ctx, pod)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) {
			Expect(client.IgnoreNotFound(plane.Client.Delete(ctx, pod, client.GracePeriodSeconds(0)))).To(Succeed())
		})
	}
	budgets := &policyv1.PodDisruptionBudgetList{}
	Expect(plane.Client.List(ctx, budgets, client.InNamespace(deployment.Namespace))).To(Succeed())
	Expect(budgets.Items).To(HaveLen(1))
	budget := &budgets.Items[0]
	Expect(budget.Spec.Selector.MatchLabels).To(Equal(deployment.Spec.Selector.MatchLabels))
	// As its controller has it, which does not run here.
	budget.Status = policyv1.PodDisruptionBudgetStatus{ObservedGeneration: budget.Generation, ExpectedPods: 2,
		CurrentHealthy: 2, DesiredHealthy: 1, DisruptionsAllowed: 1}
	Expect(plane.Client.Status().Update(ctx, budget)).To(Succeed())
	return func(name string) error {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: deployment.Namespace, Name: name}}
		return plane.Client.SubResource("eviction").Create(ctx, pod, &policyv1.Eviction{})
	}
}
