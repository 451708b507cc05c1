// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoincontrolplane

import (
	"fmt"
	"os"
	"testing"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/cluster-api/util/secret"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/controllers/quoincontrolplane/observe"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew"
	versions "github.com/quoin-dev/cluster-api-provider-quoin/internal/skew/observed"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

func newUID(kind, name string) types.UID { return types.UID("uid-" + kind + "-" + name) }

// initialized brings a control plane of one Machine up.
func initialized(t *testing.T, w *world) string {
	t.Helper()
	w.reconcile()
	machines := w.machines()
	w.g.Expect(machines).To(HaveLen(1))
	w.provision(machines[0].Name)
	w.hold(machines[0].Name)
	w.reconcile()
	return machines[0].Name
}

func TestFirstMachine(t *testing.T) {
	w := newWorld(t, 1)
	g := w.g
	w.reconcile()
	machines := w.machines()
	g.Expect(machines).To(HaveLen(1))
	machine := machines[0]
	g.Expect(machine.Name).To(MatchRegexp(`^cp-[a-z0-9]{5}$`))
	g.Expect(machine.Spec.Version).To(Equal(oldVer))
	g.Expect(machine.Labels).To(HaveKeyWithValue(clusterv1.MachineControlPlaneLabel, ""))
	g.Expect(machine.Annotations).To(HaveKey(controlplanev1.PreTerminateHookAnnotation))
	g.Expect(machine.Spec.ReadinessGates).To(HaveLen(5))
	g.Expect(metav1.IsControlledBy(&machine, w.plane())).To(BeTrue())
	infra := w.infra(machine.Name)
	g.Expect(infra.Annotations).To(HaveKeyWithValue(clusterv1.TemplateClonedFromNameAnnotation, "cp"))
	g.Expect(infra.Labels).To(HaveKeyWithValue(clusterv1.ClusterNameLabel, "c"))
	template := &infrav1.QuoinMachineTemplate{}
	g.Expect(w.mgmt.Get(t.Context(), key, template)).To(Succeed())
	g.Expect(template.OwnerReferences).To(ConsistOf(HaveField("Kind", "Cluster")))
	for _, purpose := range []secret.Purpose{secret.ClusterCA, secret.EtcdCA, secret.FrontProxyCA, secret.ServiceAccount,
		secret.Kubeconfig} {
		stored := &corev1.Secret{}
		g.Expect(w.mgmt.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: secret.Name("c", purpose)}, stored)).
			To(Succeed())
		g.Expect(stored.Type).To(Equal(clusterv1.ClusterSecretType))
		g.Expect(stored.Labels).To(HaveKeyWithValue(clusterv1.ClusterNameLabel, "c"))
		g.Expect(metav1.IsControlledBy(stored, w.plane())).To(BeTrue())
	}
	g.Expect(w.condition(controlplanev1.ControlPlaneInitializedCondition).Status).To(Equal(metav1.ConditionFalse))
	g.Expect(w.condition(controlplanev1.ControlPlaneAvailableCondition).Status).To(Equal(metav1.ConditionFalse))

	w.provision(machine.Name)
	w.reconcile()
	plane := w.plane()
	g.Expect(plane.Status.Initialization.ControlPlaneInitialized).To(HaveValue(BeTrue()))
	g.Expect(plane.Status.Selector).To(ContainSubstring(clusterv1.ClusterNameLabel + "=c"))
	g.Expect(plane.Status.Replicas).To(HaveValue(BeEquivalentTo(1)))
	g.Expect(plane.Status.UpToDateReplicas).To(HaveValue(BeEquivalentTo(1)))
	g.Expect(plane.Status.Versions).To(ConsistOf(clusterv1.StatusVersion{Version: oldVer, Replicas: 1}))
	g.Expect(plane.Status.Etcd.Members).To(ConsistOf(controlplanev1.EtcdMember{Name: "n-" + machine.Name, ID: "1",
		Machine: machine.Name,
		Role:    "Leader", State: "Healthy", Healthy: ptr.To(true)}))
	for _, condition := range []string{controlplanev1.ControlPlaneAvailableCondition,
		controlplanev1.ControlPlaneInitializedCondition,
		controlplanev1.ControlPlaneCertificatesAvailableCondition, controlplanev1.ControlPlaneEtcdClusterHealthyCondition,
		controlplanev1.ControlPlaneComponentsHealthyCondition, controlplanev1.ControlPlaneAddonsUpToDateCondition} {
		g.Expect(w.condition(condition).Status).To(Equal(metav1.ConditionTrue), "%s: %s", condition, w.condition(condition).
			Message)
	}
	for _, condition := range []string{controlplanev1.ControlPlaneRollingOutCondition,
		controlplanev1.ControlPlaneScalingUpCondition,
		controlplanev1.ControlPlaneScalingDownCondition, controlplanev1.ControlPlaneDeletingCondition} {
		g.Expect(w.condition(condition).Status).To(Equal(metav1.ConditionFalse), condition)
	}
	for _, gate := range w.machine(machine.Name).Spec.ReadinessGates {
		g.Expect(w.machine(machine.Name).Status.Conditions).To(ContainElement(And(HaveField("Type", gate.ConditionType),
			HaveField("Status", metav1.ConditionTrue))))
	}
}

// Proves: R9, S1-17
//
// Between a version's admission and its first API server an older worker can have come, and no webhook need have been
// there: nothing is touched until none is too old, or the version is taken back.
func TestAVersionThatWouldLeaveKubeletsBehindWaits(t *testing.T) {
	w := newWorld(t, 1)
	g := w.g
	first := initialized(t, w)
	worker := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "w",
		Labels: map[string]string{clusterv1.ClusterNameLabel: "c", clusterv1.MachineDeploymentNameLabel: "blue"}}}
	worker.Spec.ClusterName, worker.Spec.Version = "c", oldVer
	g.Expect(w.mgmt.Create(t.Context(), worker)).To(Succeed())
	runs := func(version string) {
		worker.Status.NodeInfo = &corev1.NodeSystemInfo{KubeletVersion: version}
		g.Expect(w.mgmt.Status().Update(t.Context(), worker)).To(Succeed())
	}
	runs("v1.32.9")
	w.edit(func(p *controlplanev1.QuoinControlPlane) { p.Spec.Version = newVer })
	w.reconcile()
	g.Expect(w.infra(first).Spec.AddonVersions).To(BeEmpty())
	g.Expect(w.machines()).To(HaveLen(2), "the first Machine and the worker")
	g.Expect(w.condition(controlplanev1.ControlPlaneRollingOutCondition)).To(And(
		HaveField("Status", metav1.ConditionTrue), HaveField("Reason", controlplanev1.VersionSkewReason),
		HaveField("Message", And(ContainSubstring("kubelet v1.32.9 of Machine w is older than API server v1.36.3"),
			ContainSubstring("bring it to v1.33 or later first"),
			ContainSubstring("raise MachineDeployment blue to "+oldVer+" first"), ContainSubstring("set spec.version back")))))

	p := w.reconciliation()
	_, err := w.r.ensurePrerequisites(t.Context(), p)
	g.Expect(err).NotTo(HaveOccurred())
	_, err = w.r.observeCached(t.Context(), p)
	g.Expect(err).NotTo(HaveOccurred())
	p.observation.LeftBehind = ""
	g.Expect(w.r.observeLive(t.Context(), p)).To(Succeed())
	g.Expect(p.observation.State.LeftBehind).NotTo(BeEmpty(), "what came between two looks counts")

	runs("v1.33.9")
	w.reconcile()
	w.fetchImages()
	w.reconcile()
	g.Expect(w.machines()).To(HaveLen(3))
}

// Proves: R18
//
// Where the cluster did not answer when its version was edited, etcd is asked before the first Machine of that is made.
func TestAVersionThatItsEtcdMayNotReachWaits(t *testing.T) {
	w := newWorld(t, 1)
	g := w.g
	first := initialized(t, w)
	w.edit(func(p *controlplanev1.QuoinControlPlane) { p.Spec.Version = newVer })
	runs := func(tag string) { w.runsEtcd(t, first, tag) }
	runs("3.5.21-0")
	w.reconcile()
	g.Expect(w.infra(first).Spec.AddonVersions).To(BeEmpty())
	g.Expect(w.machines()).To(HaveLen(1))
	g.Expect(w.condition(controlplanev1.ControlPlaneRollingOutCondition)).To(And(
		HaveField("Status", metav1.ConditionTrue), HaveField("Reason", controlplanev1.VersionSkewReason),
		HaveField("Message", And(ContainSubstring("which only v3.5.26 and later may: bring it there first"),
			ContainSubstring("(R18)"), ContainSubstring("set spec.version back to "+oldVer)))))
	runs("3.5.26-0")
	w.reconcile()
	w.fetchImages()
	w.reconcile()
	g.Expect(w.machines()).To(HaveLen(2))
}

// Proves: R18
//
// So it is when nothing but the tag of etcd's image is edited: that is no other version, and every API server runs it.
func TestAnImageThatItsEtcdMayNotReachWaits(t *testing.T) {
	w := newWorld(t, 1)
	g := w.g
	first := initialized(t, w)
	w.runsEtcd(t, first, "3.5.21-0")
	w.edit(func(p *controlplanev1.QuoinControlPlane) {
		p.Spec.KubeadmConfigSpec.ClusterConfiguration.Etcd.Local.ImageTag = "3.6.8-0"
	})
	w.reconcile()
	g.Expect(w.machines()).To(HaveLen(1))
	g.Expect(w.condition(controlplanev1.ControlPlaneRollingOutCondition)).To(And(
		HaveField("Status", metav1.ConditionTrue), HaveField("Reason", controlplanev1.VersionSkewReason),
		HaveField("Message", And(ContainSubstring("but none is made: etcd v3.5.21-0"),
			ContainSubstring("which only v3.5.26 and later may"), ContainSubstring("(R18)")))))
	w.runsEtcd(t, first, "3.5.26-0")
	w.reconcile()
	w.fetchImages()
	w.reconcile()
	g.Expect(w.machines()).To(HaveLen(2))
}

// runsEtcd has the member of a Machine run an image of the tag.
func (w *world) runsEtcd(t *testing.T, machine, tag string) {
	t.Helper()
	pod := &corev1.Pod{}
	w.g.Expect(w.workload.Get(t.Context(), client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: "etcd-n-" + machine},
		pod)).To(Succeed())
	pod.Labels["component"], pod.Spec.NodeName = "etcd", "n-"+machine
	pod.Spec.Containers = []corev1.Container{{Name: "etcd", Image: "quoin.test/etcd:" + tag}}
	w.g.Expect(w.workload.Update(t.Context(), pod)).To(Succeed())
}

// Proves: S0-30
//
// A distribution's rules on pools are asked of its catalog before the first Machine of a version is made; without one
// that can be read, versions stay as they are.
func TestAVersionThatADistributionKeepsFromItsPoolsWaits(t *testing.T) {
	w := newWorld(t, 1)
	g := w.g
	initialized(t, w)
	cluster := &clusterv1.Cluster{}
	g.Expect(w.mgmt.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "c"}, cluster)).To(Succeed())
	cluster.Annotations = map[string]string{skew.PolicyAnnotation: "Distribution"}
	g.Expect(w.mgmt.Update(t.Context(), cluster)).To(Succeed())
	worker := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "w",
		Labels: map[string]string{clusterv1.ClusterNameLabel: "c"}}}
	worker.Spec.ClusterName, worker.Spec.Version = "c", oldVer
	g.Expect(w.mgmt.Create(t.Context(), worker)).To(Succeed())
	w.edit(func(p *controlplanev1.QuoinControlPlane) { p.Spec.Version = newVer })
	holds := func(why string) {
		w.reconcile()
		g.Expect(w.machines()).To(HaveLen(2), "the first Machine and the worker")
		g.Expect(w.condition(controlplanev1.ControlPlaneRollingOutCondition)).To(And(
			HaveField("Reason", controlplanev1.VersionSkewReason), HaveField("Message", ContainSubstring(why))))
	}
	holds("make ConfigMap default/quoin-releases")
	catalog := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: versions.CatalogName},
		Data: map[string]string{versions.CatalogKey: "tool: v1.36.3\nreleases:\n- {version: v1.35.4}\n" +
			"- {version: v1.36.3, pools: [v1.36.3]}\n"}}
	g.Expect(w.mgmt.Create(t.Context(), catalog)).To(Succeed())
	holds("is none of the versions that release v1.36.3 lists for pools: bring it to one of v1.36.3 first (S0-30)")
	catalog.Data[versions.CatalogKey] = "tool: v1.36.3\nreleases: [{version: v1.35.4}, {version: v1.36.3}]\n"
	g.Expect(w.mgmt.Update(t.Context(), catalog)).To(Succeed())
	w.reconcile()
	w.fetchImages()
	w.reconcile()
	g.Expect(w.machines()).To(HaveLen(3))
}

// Proves: R7, S1-25
//
// kube-proxy gets no other minor that a policy forbids beside a worker's kubelet, and CoreDNS does not wait for that. It
// says by which rule, and follows once it may. What no policy forbids follows at once.
func TestKubeProxyIsHeldBackByTheKubeletsOfWorkers(t *testing.T) {
	for name, c := range map[string]struct {
		policy, proxy, worker string
		held                  []string
		release               func(g *WithT, w *world)
	}{
		"a kubelet of the minor before": {policy: "Kubernetes-1.24", proxy: "v1.34.1", worker: "v1.34.1",
			held: []string{"kube-proxy keeps v1.34.1", "beside Machine w", "kubelet v1.34.1", "S1-25", "skip-kube-proxy"},
			release: func(g *WithT, w *world) {
				worker := w.machine("w")
				worker.Spec.Version = oldVer
				g.Expect(w.mgmt.Update(t.Context(), worker)).To(Succeed())
			}},
		"one that is too old for all": {proxy: "v1.31.1", worker: "v1.31.1",
			held:    []string{"is 4 minors from kubelet v1.31.1", "R7"},
			release: func(g *WithT, w *world) { g.Expect(w.mgmt.Delete(t.Context(), w.machine("w"))).To(Succeed()) }},
		"a policy that is none": {policy: "Kubernets", proxy: "v1.34.1", worker: oldVer,
			held: []string{"correct the annotation"}, release: func(_ *WithT, w *world) { w.policy("") }},
		"three minors by default":        {proxy: "v1.34.1", worker: "v1.32.1"},
		"another patch":                  {policy: "Kubernetes-1.24", proxy: "v1.35.1", worker: "v1.34.1"},
		"another patch, whatever policy": {policy: "Kubernets", proxy: "v1.35.1", worker: "v1.34.1"},
		"releases that nobody lists":     {policy: "Distribution", proxy: "v1.34.1", worker: "v1.34.1"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1)
			g := w.g
			initialized(t, w)
			w.policy(c.policy)
			worker := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "w",
				Labels: map[string]string{clusterv1.ClusterNameLabel: "c"}}}
			worker.Spec.ClusterName, worker.Spec.Version = "c", c.worker
			g.Expect(w.mgmt.Create(t.Context(), worker)).To(Succeed())
			w.runsAddons("quoin.test/kube-proxy:"+c.proxy, "quoin.test/coredns:v1.12.0")
			w.reconcile()
			g.Expect(w.image(&appsv1.Deployment{}, observe.CoreDNS)).To(HaveSuffix(":v1.13.1"))
			if c.release != nil {
				g.Expect(w.image(&appsv1.DaemonSet{}, observe.KubeProxy)).To(HaveSuffix(":" + c.proxy))
				condition := w.condition(controlplanev1.ControlPlaneAddonsUpToDateCondition)
				g.Expect(condition).To(And(HaveField("Status", metav1.ConditionFalse),
					HaveField("Reason", controlplanev1.VersionSkewReason)))
				for _, says := range c.held {
					g.Expect(condition.Message).To(ContainSubstring(says))
				}
				c.release(g, w)
				w.reconcile()
			}
			g.Expect(w.image(&appsv1.DaemonSet{}, observe.KubeProxy)).To(HaveSuffix(":" + oldVer))
			g.Expect(w.condition(controlplanev1.ControlPlaneAddonsUpToDateCondition).Status).To(Equal(metav1.ConditionTrue))
		})
	}
}

// policy chooses policies of versions for the Cluster.
func (w *world) policy(names string) {
	w.t.Helper()
	cluster := &clusterv1.Cluster{}
	w.g.Expect(w.mgmt.Get(w.t.Context(), client.ObjectKey{Namespace: namespace, Name: "c"}, cluster)).To(Succeed())
	cluster.Annotations = map[string]string{skew.PolicyAnnotation: names}
	w.g.Expect(w.mgmt.Update(w.t.Context(), cluster)).To(Succeed())
}

// runsAddons gives the add-ons these images.
func (w *world) runsAddons(proxy, dns string) {
	w.t.Helper()
	daemonSet, deployment := &appsv1.DaemonSet{}, &appsv1.Deployment{}
	w.image(daemonSet, observe.KubeProxy)
	w.image(deployment, observe.CoreDNS)
	daemonSet.Spec.Template = podTemplate(observe.KubeProxy, proxy)
	deployment.Spec.Template = podTemplate(observe.CoreDNS, dns)
	w.g.Expect(w.workload.Update(w.t.Context(), daemonSet)).To(Succeed())
	w.g.Expect(w.workload.Update(w.t.Context(), deployment)).To(Succeed())
}

// Proves: S2-30, S2-33, S0-34, S1-26, R6, R10
//
// A version edit, step by step: images, kubeadm-config, new Machine, leader, drain, member, host, add-ons.
func TestVersionChange(t *testing.T) {
	w := newWorld(t, 1)
	g := w.g
	first := initialized(t, w)
	w.provisionedWorker(nil)
	w.edit(func(p *controlplanev1.QuoinControlPlane) { p.Spec.Version = newVer })

	w.reconcile()
	g.Expect(w.infra("worker").Spec.AddonVersions).To(ConsistOf(newVer))
	g.Expect(w.infra(first).Spec.AddonVersions).To(BeEmpty(), "it leaves before the add-ons follow")
	g.Expect(w.machines()).To(HaveLen(1), "no Machine before the hosts have the add-ons' images")
	g.Expect(w.configVersion()).To(Equal(oldVer))
	g.Expect(w.condition(controlplanev1.ControlPlaneAddonsUpToDateCondition)).To(And(
		HaveField("Status", metav1.ConditionFalse), HaveField("Reason", controlplanev1.WaitingForAddonImagesReason),
		HaveField("Message", ContainSubstring("hosts of worker"))))

	w.fetchImages()
	w.once()
	g.Expect(w.configVersion()).To(Equal(newVer))
	g.Expect(w.machines()).To(HaveLen(1), "one step at a time")
	w.once()
	g.Expect(w.machines()).To(HaveLen(2))
	second := other(w, first)
	g.Expect(w.machine(second).Spec.Version).To(Equal(newVer))
	g.Expect(w.infra(second).Spec.AddonVersions).To(ConsistOf(oldVer), "CoreDNS and kube-proxy run there before they "+
		"follow the version")
	g.Expect(w.condition(controlplanev1.ControlPlaneRollingOutCondition).Message).
		To(ContainSubstring("Version v1.35.4, v1.36.3 required"))

	w.reconcile()
	g.Expect(w.machines()).To(HaveLen(2))
	g.Expect(w.machine(first).DeletionTimestamp).To(BeNil(), "the old Machine stays until the new one works")

	w.provision(second)
	w.hold(second)
	w.etcd.members[1].Learner = true
	w.reconcile()
	g.Expect(w.machine(first).DeletionTimestamp).To(BeNil(), "the old Machine stays while the new member is a learner")
	w.etcd.members[1].Learner = false
	w.reconcile()
	g.Expect(w.machine(first).DeletionTimestamp).To(BeNil(), "the old Machine stays while the new host lacks the add-on "+
		"images that run")
	g.Expect(w.condition(controlplanev1.ControlPlaneAddonsUpToDateCondition).Message).To(ContainSubstring(second))
	w.fetchImages()
	w.reconcile()
	g.Expect(w.etcd.moved).To(Equal([]uint64{2}), "leadership is moved away before the drain")
	g.Expect(w.machine(first).DeletionTimestamp).NotTo(BeNil())
	g.Expect(w.etcd.members).To(HaveLen(2), "the member stays until the drain is over")
	g.Expect(w.hasHook(first)).To(BeTrue())

	w.drained(first)
	w.once()
	g.Expect(w.etcd.removed).To(Equal([]uint64{1}))
	g.Expect(w.hasHook(first)).To(BeTrue(), "the host is released when the member is seen to be gone")
	w.once()
	g.Expect(w.hasHook(first)).To(BeFalse())
	w.reconcile()
	g.Expect(w.hasHook(first)).To(BeFalse(), "the hook does not come back")
	g.Expect(w.image(&appsv1.DaemonSet{}, observe.KubeProxy)).To(Equal("quoin.test/kube-proxy:"+oldVer),
		"kube-proxy follows only when every API server runs the version")

	w.gone(first)
	w.reconcile()
	g.Expect(w.image(&appsv1.DaemonSet{}, observe.KubeProxy)).To(Equal("quoin.test/kube-proxy:" + newVer))
	g.Expect(w.image(&appsv1.Deployment{}, observe.CoreDNS)).To(Equal("quoin.test/coredns:v1.14.2"))
	g.Expect(w.plane().Status.Versions).To(ConsistOf(clusterv1.StatusVersion{Version: newVer, Replicas: 1}))
	g.Expect(w.condition(controlplanev1.ControlPlaneAddonsUpToDateCondition).Status).To(Equal(metav1.ConditionTrue))
	g.Expect(w.condition(controlplanev1.ControlPlaneRollingOutCondition).Status).To(Equal(metav1.ConditionFalse))
	g.Expect(w.machines()).To(HaveLen(1))
}

func other(w *world, name string) string {
	for _, machine := range w.machines() {
		if machine.Name != name {
			return machine.Name
		}
	}
	return ""
}

// Proves: R8, R21
func TestIllegalVersionsAreTold(t *testing.T) {
	for _, version := range []string{"v1.37.0", "v1.34.0"} {
		t.Run(version, func(t *testing.T) {
			w := newWorld(t, 1)
			initialized(t, w)
			w.edit(func(p *controlplanev1.QuoinControlPlane) { p.Spec.Version = version })
			w.reconcile()
			w.g.Expect(w.machines()).To(HaveLen(1))
			w.g.Expect(w.configVersion()).To(Equal(oldVer))
			w.g.Expect(w.condition(controlplanev1.ControlPlaneRollingOutCondition)).To(And(
				HaveField("Reason", controlplanev1.VersionSkewReason), HaveField("Message", ContainSubstring(version))))
		})
	}
}

func TestMachinesJoinOneAtATime(t *testing.T) {
	w := newWorld(t, 3)
	g := w.g
	first := initialized(t, w)
	g.Expect(w.machines()).To(HaveLen(2))
	w.provision(other(w, first))
	w.etcd.members[1].Learner = true
	w.reconcile()
	g.Expect(w.machines()).To(HaveLen(2))
	w.etcd.members[1].Learner = false
	w.reconcile()
	g.Expect(w.machines()).To(HaveLen(3))
	g.Expect(w.condition(controlplanev1.ControlPlaneScalingUpCondition).Status).To(Equal(metav1.ConditionFalse))
}

// A manager that dies between the objects of a Machine leaves nothing behind, and makes no Machine twice.
func TestKilledWhileCreating(t *testing.T) {
	for _, at := range []string{"create QuoinMachine", "create KubeadmConfig"} {
		t.Run(at, func(t *testing.T) {
			w := newWorld(t, 1)
			w.fail = at
			for range 6 {
				_, _ = w.r.Reconcile(t.Context(), request())
			}
			w.reconcile()
			w.g.Expect(w.fail).To(BeEmpty(), "nothing was created")
			w.g.Expect(w.machines()).To(HaveLen(1))
			list := &infrav1.QuoinMachineList{}
			w.g.Expect(w.mgmt.List(t.Context(), list)).To(Succeed())
			w.g.Expect(list.Items).To(HaveLen(1), "the remains are gone")
		})
	}
}

func TestPropagationWithoutRollout(t *testing.T) {
	w := newWorld(t, 1, func(p *controlplanev1.QuoinControlPlane) {
		p.Spec.MachineTemplate.ObjectMeta.Labels = map[string]string{"team": "a", "old": "x"}
	})
	g := w.g
	name := initialized(t, w)
	g.Expect(w.machine(name).Labels).To(HaveKeyWithValue("old", "x"))
	w.edit(func(p *controlplanev1.QuoinControlPlane) {
		p.Spec.MachineTemplate.ObjectMeta.Labels = map[string]string{"team": "b"}
		p.Spec.MachineTemplate.ObjectMeta.Annotations = map[string]string{"note": "y"}
		p.Spec.MachineTemplate.Spec.MinReadySeconds = ptr.To[int32](30)
		p.Spec.MachineTemplate.Spec.Deletion.NodeDrainTimeoutSeconds = ptr.To[int32](60)
		p.Spec.MachineTemplate.Spec.ReadinessGates = []clusterv1.MachineReadinessGate{{ConditionType: "Mine"}}
		p.Spec.MachineTemplate.Spec.Taints = []clusterv1.MachineTaint{{Key: "k", Effect: corev1.TaintEffectNoSchedule,
			Propagation: clusterv1.MachineTaintPropagationAlways}}
	})
	w.reconcile()
	machine := w.machine(name)
	g.Expect(w.machines()).To(HaveLen(1), "nothing is rolled out")
	g.Expect(machine.Labels).To(And(HaveKeyWithValue("team", "b"), Not(HaveKey("old"))))
	g.Expect(machine.Annotations).To(And(HaveKeyWithValue("note", "y"),
		HaveKey(controlplanev1.PreTerminateHookAnnotation)))
	g.Expect(machine.Spec.MinReadySeconds).To(HaveValue(BeEquivalentTo(30)))
	g.Expect(machine.Spec.Deletion.NodeDrainTimeoutSeconds).To(HaveValue(BeEquivalentTo(60)))
	g.Expect(machine.Spec.ReadinessGates).To(ContainElement(HaveField("ConditionType", "Mine")))
	g.Expect(machine.Spec.Taints).To(HaveLen(1))
	g.Expect(machine.Spec.ProviderID).NotTo(BeEmpty(), "what others set stays")
	g.Expect(w.infra(name).Labels).To(And(HaveKeyWithValue("team", "b"), Not(HaveKey("old"))))
}

// An update that fails is told, and is not taken for one that was done.
func TestAddonsThatCannotBeUpdated(t *testing.T) {
	w := newWorld(t, 1)
	g := w.g
	initialized(t, w)
	w.edit(func(p *controlplanev1.QuoinControlPlane) {
		p.Spec.KubeadmConfigSpec.ClusterConfiguration.DNS.ImageTag = "v1.3.0"
	})
	_, err := w.r.Reconcile(t.Context(), request())
	g.Expect(err).To(HaveOccurred())
	g.Expect(w.condition(controlplanev1.ControlPlaneAddonsUpToDateCondition)).To(And(
		HaveField("Status", metav1.ConditionFalse), HaveField("Message", ContainSubstring("CoreDNS"))))
}

// An image that somebody named by its digest stays, and is no reason to think that the API does not answer.
func TestPinnedAddonsAreLeftAlone(t *testing.T) {
	w := newWorld(t, 1)
	g := w.g
	initialized(t, w)
	const image = "quoin.test/kube-proxy@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	daemonSet := &appsv1.DaemonSet{}
	w.image(daemonSet, observe.KubeProxy)
	daemonSet.Spec.Template = podTemplate(observe.KubeProxy, image)
	g.Expect(w.workload.Update(t.Context(), daemonSet)).To(Succeed())
	w.edit(func(p *controlplanev1.QuoinControlPlane) {
		p.Spec.KubeadmConfigSpec.ClusterConfiguration.DNS.ImageTag = "v1.13.2"
	})
	w.reconcile()
	g.Expect(w.condition(controlplanev1.ControlPlaneAvailableCondition).Status).To(Equal(metav1.ConditionTrue))
	g.Expect(w.image(&appsv1.Deployment{}, observe.CoreDNS)).To(HaveSuffix(":v1.13.2"))
	g.Expect(w.image(daemonSet, observe.KubeProxy)).To(Equal(image))
	g.Expect(w.condition(controlplanev1.ControlPlaneAddonsUpToDateCondition).Status).To(Equal(metav1.ConditionTrue))
}

// Of a minor whose CoreDNS is not known, kube-proxy follows and the user is asked for the rest.
func TestUnknownCoreDNSIsTold(t *testing.T) {
	w := newWorld(t, 1, func(p *controlplanev1.QuoinControlPlane) { p.Spec.Version = "v1.99.0" })
	g := w.g
	initialized(t, w)
	g.Expect(w.condition(controlplanev1.ControlPlaneAddonsUpToDateCondition)).To(And(
		HaveField("Status", metav1.ConditionFalse), HaveField("Message", ContainSubstring("dns.imageTag"))))
}

// No Node is Ready before a network plugin runs, which users install once the API is there.
func TestAvailableBeforeNetworkPlugin(t *testing.T) {
	w := newWorld(t, 3)
	g := w.g
	w.reconcile()
	first := w.machines()[0].Name
	w.provision(first)
	node := &corev1.Node{}
	g.Expect(w.workload.Get(t.Context(), client.ObjectKey{Name: "n-" + first}, node)).To(Succeed())
	node.Status.Conditions[0].Status = corev1.ConditionFalse
	g.Expect(w.workload.Status().Update(t.Context(), node)).To(Succeed())
	w.reconcile()
	g.Expect(w.condition(controlplanev1.ControlPlaneAvailableCondition).Status).To(Equal(metav1.ConditionTrue))
	g.Expect(w.machines()).To(HaveLen(2), "the next one joins")
}

// A worker that can take no images does not hold up an upgrade, and is listed, whatever its Node says.
func TestAWorkerThatCannotTakeImagesIsNotWaitedFor(t *testing.T) {
	for reason, set := range map[string]func(*infrav1.QuoinHost){
		"unreachable": func(h *infrav1.QuoinHost) {
			conditions.Set(h, metav1.Condition{Type: infrav1.HostReachableCondition, Status: metav1.ConditionFalse,
				Reason: infrav1.HostUnreachableReason})
		},
		"in maintenance": func(h *infrav1.QuoinHost) { h.Spec.Maintenance = &infrav1.Maintenance{Reason: "new fans"} },
		"detached": func(h *infrav1.QuoinHost) {
			metav1.SetMetaDataAnnotation(&h.ObjectMeta, infrav1.DetachedAnnotation, "")
		},
		"powered off": func(h *infrav1.QuoinHost) { h.Status.Power = &infrav1.HostPower{State: "Off"} },
	} {
		t.Run(reason, func(t *testing.T) { testNotWaitedFor(t, reason, set) })
	}
}

func testNotWaitedFor(t *testing.T, reason string, set func(*infrav1.QuoinHost)) {
	w := newWorld(t, 1)
	g := w.g
	initialized(t, w)
	host := &infrav1.QuoinHost{ObjectMeta: metav1.ObjectMeta{Namespace: "hosts", Name: "dead"}}
	g.Expect(w.mgmt.Create(t.Context(), host)).To(Succeed())
	before := host.DeepCopy()
	before.Spec.ConsumerRef = &infrav1.ConsumerReference{}
	w.provisionedWorker(&infrav1.HostReference{Namespace: "hosts", Name: "dead"})
	w.edit(func(p *controlplanev1.QuoinControlPlane) { p.Spec.Version = newVer })
	w.reconcile()
	g.Expect(w.machines()).To(HaveLen(1), "it can be given images, so it is waited for")
	g.Expect(w.condition(controlplanev1.ControlPlaneAddonsUpToDateCondition).Message).
		NotTo(ContainSubstring("Not waited for"))

	status := host.DeepCopy()
	set(status)
	set(host)
	g.Expect(w.mgmt.Update(t.Context(), host)).To(Succeed())
	host.Status = status.Status
	g.Expect(w.mgmt.Status().Update(t.Context(), host)).To(Succeed())
	host.Spec.ConsumerRef = &infrav1.ConsumerReference{}
	g.Expect(hostUnavailable().Update(event.UpdateEvent{ObjectOld: before, ObjectNew: host})).To(Equal(reason != "unreachable"),
		"a person's will is heard at once")
	w.reconcile()
	g.Expect(w.machines()).To(HaveLen(2))
	g.Expect(w.infra("worker").Spec.AddonVersions).To(ConsistOf(newVer), "it gets them when it is back")
	g.Expect(w.condition(controlplanev1.ControlPlaneAddonsUpToDateCondition).Message).
		To(ContainSubstring("the hosts of worker (" + reason + ")"))
}

func TestWhatNeedsNewMachines(t *testing.T) {
	tests := map[string]struct {
		edit    func(*controlplanev1.QuoinControlPlane)
		rollout string
	}{
		"template": {func(p *controlplanev1.QuoinControlPlane) {
			p.Spec.MachineTemplate.Spec.InfrastructureRef.Name = "cp2"
		}, "QuoinMachine is not up-to-date"},
		"files": {func(p *controlplanev1.QuoinControlPlane) {
			p.Spec.KubeadmConfigSpec.PreKubeadmCommands = []string{"true"}
		}, "KubeadmConfig is not up-to-date"},
		"init only": {func(p *controlplanev1.QuoinControlPlane) {
			p.Spec.KubeadmConfigSpec.JoinConfiguration.NodeRegistration.Name = "x"
		}, ""},
		"dns": {func(p *controlplanev1.QuoinControlPlane) {
			p.Spec.KubeadmConfigSpec.ClusterConfiguration.DNS.ImageTag = "v1.13.2"
		}, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1)
			g := w.g
			machine := initialized(t, w)
			template := &infrav1.QuoinMachineTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "cp2"}}
			g.Expect(w.mgmt.Create(t.Context(), template)).To(Succeed())
			w.edit(tt.edit)
			w.reconcile()
			condition := fmt.Sprint(w.machine(machine).Status.Conditions)
			if tt.rollout == "" {
				g.Expect(w.machines()).To(HaveLen(1), condition)
				return
			}
			g.Expect(w.machines()).To(HaveLen(2))
			g.Expect(condition).To(ContainSubstring(tt.rollout))
		})
	}
}
