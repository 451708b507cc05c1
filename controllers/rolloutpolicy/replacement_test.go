// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package rolloutpolicy

import (
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/rollout"
)

// newReplacing is a world of two Machines at the present template, with hooks, and as many free hosts.
func newReplacing(t *testing.T, free, kills int) *world {
	t.Helper()
	w := newWorld(t)
	w.Expect(bootstrapv1.AddToScheme(w.client.Scheme())).To(Succeed())
	scheme := runtime.NewScheme()
	w.Expect(corev1.AddToScheme(scheme)).To(Succeed())
	w.workload = fake.NewClientBuilder().WithScheme(scheme).WithObjects(
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "old-0"}},
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "old-1"}}).Build()
	of := func(spec *clusterv1.MachineSpec) {
		spec.Version = "v1.35.4"
		spec.Bootstrap.ConfigRef = clusterv1.ContractVersionedObjectReference{APIGroup: bootstrapv1.GroupVersion.Group,
			Kind: "KubeadmConfigTemplate", Name: "blue"}
	}
	blue := &clusterv1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Name: "blue"}}
	w.adjust(blue, func() { of(&blue.Spec.Template.Spec) })
	set := &clusterv1.MachineSet{ObjectMeta: metav1.ObjectMeta{Name: "blue-v1"}}
	w.adjust(set, func() {
		of(&set.Spec.Template.Spec)
		set.Labels[clusterv1.MachineDeploymentNameLabel] = "blue"
		set.Spec.ClusterName = "c1"
		set.Spec.Selector.MatchLabels = map[string]string{clusterv1.MachineDeploymentUniqueLabel: "v1"}
		set.Spec.Template.Annotations = map[string]string{"example.com/later": "taken off"}
	})
	w.Expect(w.client.Delete(t.Context(), &clusterv1.MachineSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace,
		Name: "blue-v2"}})).To(Succeed())
	at := metav1.ObjectMeta{Namespace: namespace, Name: "blue"}
	config := &bootstrapv1.KubeadmConfigTemplate{ObjectMeta: *at.DeepCopy()}
	config.Spec.Template.Spec.JoinConfiguration.NodeRegistration.Name = "cloned"
	w.make(config, &infrav1.QuoinMachineTemplate{ObjectMeta: *at.DeepCopy()})
	for i := range free {
		host := &infrav1.QuoinHost{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprint("free-", i)}}
		host.Status.State = infrav1.HostStateAvailable
		host.Status.Conditions = []metav1.Condition{{Type: infrav1.HostReadyCondition, Status: metav1.ConditionTrue}}
		w.make(host)
	}
	policy := w.policy()
	w.adjust(policy, func() {
		policy.Spec.Drain, policy.Spec.DeadlineSeconds = &quoinv1.RolloutDrain{}, ptr.To[int32](1800)
	})
	for _, name := range []string{"old-0", "old-1"} {
		w.joins(name)
		machine := w.machine(name)
		w.adjust(machine, func() { machine.Finalizers = []string{clusterv1.MachineFinalizer} })
	}
	w.reconcile()
	writes := w.writes
	w.kills = func(write int) bool {
		return kills > 0 && write > writes && (write-writes)%kills == 0 && write < writes+40
	}
	w.restart()
	return w
}

// all Machines by name.
func (w *world) all() map[string]*clusterv1.Machine {
	w.t.Helper()
	list, all := &clusterv1.MachineList{}, map[string]*clusterv1.Machine{}
	w.Expect(w.client.List(w.t.Context(), list)).To(Succeed())
	for i := range list.Items {
		all[list.Items[i].Name] = &list.Items[i]
	}
	return all
}

func (w *world) parts() (machines, configs int) {
	w.t.Helper()
	m, c := &infrav1.QuoinMachineList{}, &bootstrapv1.KubeadmConfigList{}
	w.Expect(w.client.List(w.t.Context(), m)).To(Succeed())
	w.Expect(w.client.List(w.t.Context(), c)).To(Succeed())
	return len(m.Items), len(c.Items)
}

func (w *world) deletes(name string) {
	w.t.Helper()
	w.Expect(w.client.Delete(w.t.Context(), w.machine(name))).To(Succeed())
}

// A person deletes a Machine, and a host is free: exactly one Machine is made in its place, of the MachineSet's templates,
// and is Available before the other one is drained. Whatever write the process dies at, there is no second one, and no
// part that nobody has.
func TestAMachineThatAPersonDeletesIsReplacedFirst(t *testing.T) {
	for _, every := range []int{0, 1, 2, 3} {
		t.Run(fmt.Sprint("killed at every write of ", every), func(t *testing.T) {
			w := newReplacing(t, 1, every)
			w.deletes("old-0")
			said := w.notes()
			w.reconcile()
			all := w.all()
			w.Expect(all).To(HaveLen(3))
			if every == 0 {
				w.clock.Step(time.Minute)
				w.reconcile()
				w.Expect(said.about["old-0"]).To(And(HaveLen(1), HaveKeyWithValue(ContainSubstring(
					"ReplacementFirst another Machine is made in its place"), 1)), "who deleted it reads it there, once")
			}
			_, name, _ := strings.Cut(all["old-0"].Annotations[quoinv1.RolloutReplacementAnnotation], " ")
			made := all[name]
			w.Expect(made).NotTo(BeNil())
			machines, configs := w.parts()
			w.Expect([]int{machines, configs}).To(Equal([]int{3, 1}))

			w.Expect(metav1.GetControllerOf(made)).To(HaveField("Name", "blue-v1"))
			w.Expect(made.Labels).To(And(HaveKeyWithValue(clusterv1.MachineDeploymentUniqueLabel, "v1"),
				HaveKeyWithValue(clusterv1.MachineDeploymentNameLabel, "blue"),
				HaveKeyWithValue(clusterv1.MachineSetNameLabel, "blue-v1")))
			w.Expect(made.Annotations).NotTo(HaveKey("example.com/later"), "it is the MachineSet's to set and to take off")
			w.Expect(made.Spec.Version).To(Equal("v1.35.4"))
			w.Expect(made.Spec.Bootstrap.ConfigRef.Kind).To(Equal("KubeadmConfig"))
			config := &bootstrapv1.KubeadmConfig{}
			w.read(config, made.Spec.Bootstrap.ConfigRef.Name)
			w.Expect(config.Spec.JoinConfiguration.NodeRegistration.Name).To(Equal("cloned"))
			w.Expect(config.OwnerReferences).To(ConsistOf(HaveField("Kind", "Cluster")))
			w.Expect(rollout.AdmittedAt(made)).NotTo(BeZero())
			w.Expect(all["old-0"].Annotations).To(HaveKey(quoinv1.RolloutPreDrainHookAnnotation))
			blue := w.policy().Status.MachineDeployments[0]
			w.Expect(blue.Reason).To(Equal("ReplacementFirst"))
			w.Expect(blue.Message).To(And(ContainSubstring(name), ContainSubstring(quoinv1.RolloutPreDrainHookAnnotation)))

			w.joins(name)
			w.reconcile()
			w.Expect(w.machine("old-0").Annotations).NotTo(HaveKey(quoinv1.RolloutPreDrainHookAnnotation))
			w.Expect(w.all()).To(HaveLen(3))
		})
	}
}

// Without a free host, and where it may have been a scale-down, the Machine is drained at once.
func TestAMachineIsNotReplacedFirst(t *testing.T) {
	for why, prepare := range map[string]func(w *world) (free int){
		"no host is free":               func(*world) int { return 0 },
		"there are 2 Machines for 1":    func(w *world) int { w.scale(1); return 1 },
		"kubeadm of v1.35.4":            func(w *world) int { w.make(controlPlaneMachine("v1.36.0")); return 1 },
		"only by a KubeadmConfigTempla": func(w *world) int { w.bootstrapBy("TalosConfigTemplate"); return 1 },
	} {
		t.Run(why, func(t *testing.T) {
			w := newReplacing(t, 0, 0)
			for i := range prepare(w) {
				host := &infrav1.QuoinHost{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprint("free-", i)}}
				host.Status.State = infrav1.HostStateAvailable
				host.Status.Conditions = []metav1.Condition{{Type: infrav1.HostReadyCondition, Status: metav1.ConditionTrue}}
				w.make(host)
			}
			w.deletes("old-0")
			w.reconcile()
			w.Expect(w.machine("old-0").Annotations).NotTo(HaveKey(quoinv1.RolloutPreDrainHookAnnotation))
			machines, configs := w.parts()
			w.Expect([]int{machines, configs}).To(Equal([]int{2, 0}))
			said := ""
			for len(w.events.Events) > 0 {
				said += <-w.events.Events
			}
			w.Expect(said).To(ContainSubstring(why))
		})
	}
}

func (w *world) scale(to int32) {
	w.t.Helper()
	blue := &clusterv1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Name: "blue"}}
	w.adjust(blue, func() { blue.Spec.Replicas = ptr.To(to) })
}

func (w *world) bootstrapBy(kind string) {
	w.t.Helper()
	blue := &clusterv1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Name: "blue"}}
	w.adjust(blue, func() { blue.Spec.Template.Spec.Bootstrap.ConfigRef.Kind = kind })
	set := &clusterv1.MachineSet{ObjectMeta: metav1.ObjectMeta{Name: "blue-v1"}}
	w.adjust(set, func() { set.Spec.Template.Spec.Bootstrap.ConfigRef.Kind = kind })
}

func controlPlaneMachine(version string) *clusterv1.Machine {
	machine := machineOf("cp-0", version)
	machine.Labels = map[string]string{clusterv1.ClusterNameLabel: "c1", clusterv1.MachineControlPlaneLabel: ""}
	machine.OwnerReferences = nil
	return machine
}

// The process dies after it made a part, and the Machine is let go of by hand: the part goes when that is gone, with a
// policy and without one, and nothing is deleted that a Machine has.
func TestPartsThatNoMachineHasAreDeleted(t *testing.T) {
	for _, policy := range []bool{true, false} {
		for writes := 1; writes <= 2; writes++ {
			t.Run(fmt.Sprint("policy ", policy, ", parts ", writes), func(t *testing.T) {
				w := newReplacing(t, 1, 0)
				begin := w.writes
				dead := false
				w.kills = func(int) bool {
					machines, configs := w.parts()
					dead = dead || machines-2+configs >= writes
					return dead
				}
				w.deletes("old-0")
				for range 10 {
					_, _ = w.r.Reconcile(t.Context(), requestOfCluster)
					if dead {
						break
					}
				}
				w.Expect(w.writes).To(BeNumerically(">", begin))
				machines, configs := w.parts()
				w.Expect(machines - 2 + configs).To(Equal(writes))
				if !policy {
					w.Expect(w.client.Delete(t.Context(), w.policy())).To(Succeed())
				}
				part := &infrav1.QuoinMachineList{}
				w.Expect(w.client.List(t.Context(), part)).To(Succeed())
				brought := false
				for i := range part.Items {
					brought = brought || len(w.r.ofCluster(t.Context(), &part.Items[i])) > 0 && stray(&part.Items[i])
				}
				w.Expect(brought).To(BeTrue(), "the part itself brings its Cluster here")
				old := w.machine("old-0")
				w.adjust(old, func() { old.Finalizers = nil })
				w.kills = func(int) bool { return false }
				w.restart()
				w.clock.Step(time.Hour)
				w.reconcile()
				machines, configs = w.parts()
				w.Expect([]int{machines, configs}).To(Equal([]int{2, 0}))
			})
		}
	}
}

// The name is that of the MachineSet with what comes of the UID, always the same, and no longer than Cluster API's.
func TestNamesOfReplacements(t *testing.T) {
	g := NewWithT(t)
	set := &clusterv1.MachineSet{ObjectMeta: metav1.ObjectMeta{Name: "blue-v1"}}
	name := func(uid string) string {
		name, err := replacementName(set, uid)
		g.Expect(err).NotTo(HaveOccurred())
		return name
	}
	first := name("a")
	g.Expect(first).To(MatchRegexp("^blue-v1-[a-z0-9]{5}$"))
	g.Expect(name("a")).To(Equal(first))
	g.Expect(name("b")).NotTo(Equal(first))
	set.Spec.MachineNaming.Template = "{{ .cluster.name }}-{{ .random }}"
	set.Spec.ClusterName = "c1"
	g.Expect(name("a")).To(Equal("c1" + strings.TrimPrefix(first, "blue-v1")))
	set.Spec.ClusterName = strings.Repeat("x", 80)
	g.Expect(name("a")).To(HaveLen(63))
	g.Expect(name("a")).NotTo(Equal(name("b")))
}

var requestOfCluster = ctrl.Request{NamespacedName: client.ObjectKey{Namespace: namespace, Name: "c1"}}
