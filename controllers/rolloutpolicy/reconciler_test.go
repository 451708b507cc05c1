// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package rolloutpolicy

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/rollout"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/clienttest"
)

const namespace = "prod"

var errKilled = errors.New("the process was killed")

// world is Cluster c1 with a MachineDeployment blue of two Machines, whose template was just edited, and a policy.
type world struct {
	*WithT
	t      *testing.T
	client client.WithWatch
	r      *Reconciler
	clock  *clocktesting.FakeClock
	events *events.FakeRecorder
	writes int
	// workload is the Cluster's own API, where a test has one.
	workload client.Client
	// kills tells after which writes the process is cut off.
	kills func(write int) bool
}

func newWorld(t *testing.T, objects ...client.Object) *world {
	t.Helper()
	w := &world{WithT: NewWithT(t), t: t, kills: func(int) bool { return false }, events: events.NewFakeRecorder(1000),
		clock: clocktesting.NewFakeClock(time.Date(2026, 11, 23, 8, 0, 0, 0, time.UTC))}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clusterv1.AddToScheme, infrav1.AddToScheme, quoinv1.AddToScheme,
		appsv1.AddToScheme} {
		w.Expect(add(scheme)).To(Succeed())
	}
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "c1", UID: "c1"}}
	policy := policyOf("workers", w.clock.Now())
	neverPaused(policy)
	policy.Spec.SoakSeconds = ptr.To[int32](60)
	blue := &clusterv1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "blue", UID: "blue"}}
	blue.Spec = clusterv1.MachineDeploymentSpec{ClusterName: "c1", Replicas: ptr.To[int32](2), Template: template("v2")}
	blue.Spec.Rollout.Strategy.Type = clusterv1.RollingUpdateMachineDeploymentStrategyType
	all := append([]client.Object{cluster, policy, blue, setOf(blue, "v1"), setOf(blue, "v2")}, objects...)
	for i := range 2 {
		all = append(all, machineOf(fmt.Sprint("old-", i), "v1"), hostedBy(fmt.Sprint("old-", i),
			fmt.Sprintf("quoin://%s/host-%d/old-%d", namespace, i, i)))
	}
	w.client = clienttest.Unmanaged(scheme).WithObjects(all...).
		WithStatusSubresource(cluster, policy, &clusterv1.Machine{}).Build()
	w.adjust(blue, func() {
		rolling := &blue.Spec.Rollout.Strategy.RollingUpdate
		rolling.MaxSurge, rolling.MaxUnavailable = ptr.To(intstr.FromInt32(2)), ptr.To(intstr.FromInt32(0))
	})
	w.restart()
	return w
}

// neverPaused has a policy say so since it was made, which Cluster API's helper writes anew with its own words: that
// knows no clock of a test.
func neverPaused(policy *quoinv1.RolloutPolicy) {
	policy.Status.Conditions = []metav1.Condition{{Type: clusterv1.PausedCondition, Status: metav1.ConditionFalse,
		Reason: clusterv1.NotPausedReason, Message: "it was made", LastTransitionTime: policy.CreationTimestamp}}
}

func policyOf(name string, made time.Time) *quoinv1.RolloutPolicy {
	policy := &quoinv1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(name),
		CreationTimestamp: metav1.NewTime(made)}}
	policy.Spec.ClusterName = "c1"
	return policy
}

func template(version string) clusterv1.MachineTemplateSpec {
	return clusterv1.MachineTemplateSpec{Spec: clusterv1.MachineSpec{ClusterName: "c1", Version: version,
		InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group,
			Kind: "QuoinMachineTemplate", Name: "blue"}}}
}

func setOf(of *clusterv1.MachineDeployment, version string) *clusterv1.MachineSet {
	set := &clusterv1.MachineSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "blue-" + version,
		UID: types.UID(version), Labels: map[string]string{clusterv1.ClusterNameLabel: "c1"},
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(of,
			clusterv1.GroupVersion.WithKind("MachineDeployment"))}}}
	set.Spec.Template, set.Spec.Replicas = template(version), ptr.To[int32](2)
	return set
}

// machineOf is a Machine of a version's MachineSet, with no host.
func machineOf(name, version string) *clusterv1.Machine {
	set := &clusterv1.MachineSet{ObjectMeta: metav1.ObjectMeta{Name: "blue-" + version, UID: types.UID(version)}}
	machine := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(name),
		Labels: map[string]string{clusterv1.ClusterNameLabel: "c1", clusterv1.MachineDeploymentNameLabel: "blue"},
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(set,
			clusterv1.GroupVersion.WithKind("MachineSet"))}}}
	machine.Spec = template(version).Spec
	machine.Spec.InfrastructureRef.Kind, machine.Spec.InfrastructureRef.Name = "QuoinMachine", name
	return machine
}

func hostedBy(name, provider string) *infrav1.QuoinMachine {
	return &infrav1.QuoinMachine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name,
		Labels: map[string]string{clusterv1.ClusterNameLabel: "c1"}}, Spec: infrav1.QuoinMachineSpec{ProviderID: provider}}
}

// restart has a process begin that knows nothing of the one before.
func (w *world) restart() {
	dead := false
	count := func(write func() error) error {
		if dead {
			return errKilled // it writes nothing any more
		}
		if err := write(); err != nil {
			return err
		}
		w.writes++
		if dead = w.kills(w.writes); dead {
			return errKilled
		}
		return nil
	}
	writer := interceptor.NewClient(w.client, interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch,
			options ...client.PatchOption) error {
			return count(func() error { return c.Patch(ctx, object, patch, options...) })
		},
		Create: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption) error {
			return count(func() error { return c.Create(ctx, object, options...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.DeleteOption) error {
			return count(func() error { return c.Delete(ctx, object, options...) })
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, of string, object client.Object, patch client.Patch,
			options ...client.SubResourcePatchOption) error {
			return count(func() error { return c.SubResource(of).Patch(ctx, object, patch, options...) })
		},
	})
	w.r = &Reconciler{Client: writer, APIReader: w.client, Recorder: w.events, Clock: w.clock}
	if w.workload != nil {
		w.r.ClusterCache = clustercache.NewFakeClusterCache(w.workload, client.ObjectKey{Namespace: namespace, Name: "c1"},
			nodesWatch)
	}
}

// reconcile until nothing is written any more; a killed process is followed by another one.
func (w *world) reconcile() ctrl.Result {
	w.t.Helper()
	for range 50 {
		before := w.writes
		result, err := w.r.Reconcile(w.t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Namespace: namespace,
			Name: "c1"}})
		if errors.Is(err, errKilled) {
			w.restart()
			continue
		}
		w.Expect(err).NotTo(HaveOccurred())
		if w.writes == before {
			return result
		}
	}
	w.t.Fatal("it never stops to write")
	return ctrl.Result{}
}

func (w *world) read(object client.Object, name string) {
	w.t.Helper()
	w.Expect(w.client.Get(w.t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, object)).To(Succeed())
}

func (w *world) adjust(object client.Object, change func()) {
	w.t.Helper()
	w.read(object, object.GetName())
	change()
	w.Expect(w.client.Update(w.t.Context(), object)).To(Succeed())
}

func (w *world) make(objects ...client.Object) {
	w.t.Helper()
	for _, object := range objects {
		w.Expect(w.client.Create(w.t.Context(), object)).To(Succeed())
	}
}

func (w *world) machine(name string) *clusterv1.Machine {
	w.t.Helper()
	machine := &clusterv1.Machine{}
	w.read(machine, name)
	return machine
}

func (w *world) policy() *quoinv1.RolloutPolicy {
	w.t.Helper()
	policy := &quoinv1.RolloutPolicy{}
	w.read(policy, "workers")
	return policy
}

// joins has a Machine's Node be healthy as of now.
func (w *world) joins(name string) {
	w.t.Helper()
	w.meets(name, clusterv1.MachineBootstrapConfigReadyCondition, clusterv1.MachineInfrastructureReadyCondition,
		clusterv1.MachineNodeHealthyCondition, clusterv1.MachineAvailableCondition)
}

// meets has Cluster API say of a Machine with a Node that these conditions are True from now on.
func (w *world) meets(name string, all ...string) {
	w.t.Helper()
	machine := w.machine(name)
	machine.Status.NodeRef.Name = name
	for _, condition := range all {
		conditions.Set(machine, metav1.Condition{Type: condition, Status: metav1.ConditionTrue, Reason: "Test",
			LastTransitionTime: metav1.NewTime(w.clock.Now())})
	}
	w.Expect(w.client.Status().Update(w.t.Context(), machine)).To(Succeed())
}

func (w *world) admitted(name string) bool { return !rollout.AdmittedAt(w.machine(name)).IsZero() }

// A canary is admitted with its gate in one write, counts after its soak, and the next one follows. Whatever write the
// process dies at, nothing is admitted twice.
func TestACanaryGoesFirst(t *testing.T) {
	for _, every := range []int{0, 1, 2, 3} {
		t.Run(fmt.Sprint("killed at every write of ", every), func(t *testing.T) {
			w := newWorld(t, machineOf("new-0", "v2"), machineOf("new-1", "v2"), hostedBy("new-0", ""), hostedBy("new-1", ""))
			w.kills = func(write int) bool { return every > 0 && write%every == 0 && write < 40 }
			w.reconcile()
			w.Expect(w.admitted("new-0")).To(BeTrue())
			w.Expect(rollout.Gated(w.machine("new-0"))).To(BeTrue())
			w.Expect(rollout.Marked(w.machine("new-0"))).To(BeTrue())
			w.Expect(w.admitted("new-1")).To(BeFalse())
			w.Expect(w.policy().Labels).To(HaveKeyWithValue(clusterv1.ClusterNameLabel, "c1"))
			blue := w.policy().Status.MachineDeployments[0]
			w.Expect(blue.InFlight).To(HaveValue(BeEquivalentTo(1)))
			w.Expect(blue.Held).To(HaveValue(BeEquivalentTo(1)))
			w.Expect(blue.MaxSurge).To(HaveValue(BeEquivalentTo(2)))
			w.Expect(w.policy().Status.Progress).To(Equal("0/3"))

			w.joins("new-0")
			result := w.reconcile()
			w.Expect(result.RequeueAfter).To(Equal(time.Minute))
			gate := conditions.Get(w.machine("new-0"), quoinv1.MachineRolloutValidatedCondition)
			w.Expect(gate.Reason).To(Equal("Soaking"))
			w.Expect(rollout.Gated(w.machine("new-0"))).To(BeTrue())
			w.Expect(w.admitted("new-1")).To(BeFalse())

			w.clock.Step(time.Minute)
			w.reconcile()
			w.Expect(rollout.Gated(w.machine("new-0"))).To(BeFalse())
			w.Expect(rollout.Marked(w.machine("new-0"))).To(BeFalse())
			w.Expect(conditions.IsTrue(w.machine("new-0"), quoinv1.MachineRolloutValidatedCondition)).To(BeTrue())
			w.Expect(w.admitted("new-1")).To(BeTrue())
		})
	}
}

// A cache that has not seen the admission of a canary would have another one beside it.
func TestACacheThatIsBehindAdmitsNoOther(t *testing.T) {
	w := newWorld(t, machineOf("new-0", "v2"), machineOf("new-1", "v2"), hostedBy("new-0", ""), hostedBy("new-1", ""))
	before := &clusterv1.MachineList{}
	w.Expect(w.client.List(t.Context(), before)).To(Succeed())
	w.reconcile()
	w.Expect(w.admitted("new-0")).To(BeTrue())
	w.r.Client = interceptor.NewClient(w.client, interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch,
		list client.ObjectList, options ...client.ListOption) error {
		if machines, is := list.(*clusterv1.MachineList); is {
			before.DeepCopyInto(machines)
			return nil
		}
		return c.List(ctx, list, options...)
	}})
	w.reconcile()
	w.Expect(w.admitted("new-1")).To(BeFalse())
}

// A gate that a user set stays, and ours comes and goes beside it.
func TestOtherGatesStay(t *testing.T) {
	machine := machineOf("new-0", "v2")
	theirs := clusterv1.MachineReadinessGate{ConditionType: "example.com/Storage"}
	machine.Spec.ReadinessGates = []clusterv1.MachineReadinessGate{theirs}
	w := newWorld(t, machine, hostedBy("new-0", ""))
	w.reconcile()
	w.joins("new-0")
	w.clock.Step(time.Hour)
	w.reconcile()
	w.Expect(w.policy().Status.MachineDeployments[0].Message).To(ContainSubstring("example.com/Storage is not known yet"))
	w.Expect(rollout.Gated(w.machine("new-0"))).To(BeTrue())
	w.Expect(w.client.Delete(t.Context(), w.policy())).To(Succeed())
	w.reconcile()
	w.Expect(w.machine("new-0").Spec.ReadinessGates).To(ConsistOf(theirs))
}

// No hold outlives its policy, whoever was running when that was deleted.
func TestAPolicyThatIsGoneLeavesNothingBehind(t *testing.T) {
	for name, end := range map[string]func(*world){
		"it is deleted": func(w *world) { w.Expect(w.client.Delete(t.Context(), w.policy())).To(Succeed()) },
		"no group selects the pool": func(w *world) {
			policy := w.policy()
			w.adjust(policy, func() {
				policy.Spec.Groups = []quoinv1.RolloutGroup{{Name: "others", MachineDeployments: quoinv1.RolloutSelector{
					Names: []string{"green"}}}}
			})
		},
	} {
		for _, kill := range []int{0, 1, 2} {
			t.Run(fmt.Sprint(name, ", killed after write ", kill), func(t *testing.T) {
				w := newWorld(t, machineOf("new-0", "v2"), hostedBy("new-0", ""))
				w.reconcile()
				w.joins("new-0")
				w.reconcile()
				gated := w.machine("new-0")
				w.Expect(rollout.Gated(gated)).To(BeTrue())
				w.Expect(conditions.Has(gated, quoinv1.MachineRolloutValidatedCondition)).To(BeTrue())
				end(w)
				w.restart()
				w.Expect(w.r.ofCluster(t.Context(), gated)).To(HaveLen(1), "the Machine itself brings its Cluster here")
				last := w.writes + kill
				w.kills = func(write int) bool { return write == last }
				w.reconcile()
				w.Expect(w.machine("new-0").Spec.ReadinessGates).To(BeEmpty())
				w.Expect(conditions.Has(w.machine("new-0"), quoinv1.MachineRolloutValidatedCondition)).To(BeFalse())
				if name == "it is deleted" {
					w.Expect(w.r.ofCluster(t.Context(), w.machine("new-0"))).To(BeEmpty())
				}
			})
		}
	}
}

// Cluster API makes no Machine of the template: after the deadline the policy is stalled, with what Cluster API says of it.
func TestAPoolOfWhichClusterAPIMakesNoMachine(t *testing.T) {
	w := newWorld(t)
	policy, set := w.policy(), &clusterv1.MachineSet{ObjectMeta: metav1.ObjectMeta{Name: "blue-v2"}}
	w.adjust(policy, func() { policy.Spec.DeadlineSeconds = ptr.To[int32](600) })
	w.adjust(set, func() {
		conditions.Set(set, metav1.Condition{Type: clusterv1.MachineSetScalingUpCondition, Status: metav1.ConditionTrue,
			Reason: "ScalingUp", Message: "Scaling up from 0 to 2 replicas is blocked because:\n* KubeadmConfigTemplate does not exist"})
	})
	blue := func() quoinv1.RolloutProgress { return w.policy().Status.MachineDeployments[0] }
	w.Expect(w.reconcile().RequeueAfter).To(Equal(time.Minute))
	w.Expect(blue().Reason).To(Equal("RollingOut"))
	w.clock.Step(time.Minute)
	w.Expect(w.reconcile().RequeueAfter).To(Equal(10 * time.Minute))
	w.Expect(blue().Reason).To(Equal("NoMachineMade"))
	w.Expect(conditions.IsFalse(w.policy(), quoinv1.RolloutPolicyStalledCondition)).To(BeTrue())
	w.clock.Step(10 * time.Minute)
	w.reconcile()
	stalled := conditions.Get(w.policy(), quoinv1.RolloutPolicyStalledCondition)
	w.Expect(stalled.Reason).To(Equal(quoinv1.DeadlineExceededReason))
	w.Expect(stalled.Message).To(ContainSubstring("MachineDeployment blue: since 2026-11-23T08:01:00Z Cluster API is to make or " +
		"delete a Machine, and does not: Scaling up from 0 to 2 replicas is blocked because: * KubeadmConfigTemplate does not exist"))

	// It is not to delete one before minReadySeconds of another are over.
	old := w.machine("old-0")
	old.Spec.MinReadySeconds = ptr.To[int32](3600)
	w.Expect(w.client.Update(t.Context(), old)).To(Succeed())
	w.meets("old-0", clusterv1.MachineReadyCondition)
	w.reconcile()
	w.Expect(blue().Reason).To(Equal("RollingOut"))
	w.Expect(conditions.IsFalse(w.policy(), quoinv1.RolloutPolicyStalledCondition)).To(BeTrue())
	w.clock.Step(time.Hour + 59*time.Second)
	w.Expect(w.reconcile().RequeueAfter).To(Equal(time.Second))
	w.clock.Step(time.Second)
	w.reconcile()
	w.Expect(blue().Reason).To(Equal("NoMachineMade"))
}

func TestAClusterThatIsDeletedIsLeftAlone(t *testing.T) {
	w := newWorld(t, machineOf("new-0", "v2"), hostedBy("new-0", ""))
	w.reconcile()
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "c1"}}
	w.adjust(cluster, func() { cluster.Finalizers = []string{"test/stays"} })
	w.Expect(w.client.Delete(t.Context(), cluster)).To(Succeed())
	w.reconcile()
	w.Expect(rollout.Gated(w.machine("new-0"))).To(BeFalse())
}

func TestNothingIsWrittenWhilePaused(t *testing.T) {
	w := newWorld(t, machineOf("new-0", "v2"), hostedBy("new-0", ""))
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "c1"}}
	w.adjust(cluster, func() { cluster.Spec.Paused = ptr.To(true) })
	w.reconcile()
	w.Expect(w.admitted("new-0")).To(BeFalse())
	w.Expect(conditions.IsTrue(w.policy(), quoinv1.RolloutPolicyPausedCondition)).To(BeTrue())
	w.adjust(cluster, func() { cluster.Spec.Paused = nil })
	w.reconcile()
	w.Expect(w.admitted("new-0")).To(BeTrue())
	w.adjust(cluster, func() { cluster.Spec.Paused = ptr.To(true) })
	w.Expect(w.client.Delete(t.Context(), w.policy())).To(Succeed())
	w.reconcile()
	w.Expect(rollout.Gated(w.machine("new-0"))).To(BeTrue())
	w.adjust(cluster, func() { cluster.Spec.Paused = nil })
	w.reconcile()
	w.Expect(rollout.Gated(w.machine("new-0"))).To(BeFalse())
}

// The policy alone can be paused as well: nothing is admitted, counts or is guarded meanwhile. One that is deleted so
// holds nothing any more.
func TestAPausedPolicyLeavesEverythingAsItIs(t *testing.T) {
	w := newWorld(t, machineOf("new-0", "v2"), machineOf("new-1", "v2"), hostedBy("new-0", ""), hostedBy("new-1", ""))
	w.reconcile()
	w.joins("new-0")
	policy := w.policy()
	pause := func() { metav1.SetMetaDataAnnotation(&policy.ObjectMeta, clusterv1.PausedAnnotation, "") }
	w.adjust(policy, func() {
		pause()
		policy.Spec.Drain = &quoinv1.RolloutDrain{}
	})
	for range 3 {
		w.clock.Step(time.Hour)
		w.restart()
		w.reconcile()
		w.Expect(conditions.IsTrue(w.policy(), quoinv1.RolloutPolicyPausedCondition)).To(BeTrue())
		w.Expect(rollout.Gated(w.machine("new-0"))).To(BeTrue())
		w.Expect(w.admitted("new-1")).To(BeFalse())
		w.Expect(rollout.Hooked(w.machine("old-0"))).To(BeFalse())
	}
	w.adjust(policy, func() { policy.Annotations = nil })
	w.reconcile()
	w.Expect(conditions.IsTrue(w.policy(), quoinv1.RolloutPolicyPausedCondition)).To(BeFalse())
	w.Expect(rollout.Gated(w.machine("new-0"))).To(BeFalse())
	w.Expect(w.admitted("new-1")).To(BeTrue())
	w.Expect(rollout.Hooked(w.machine("old-0"))).To(BeTrue())

	w.adjust(policy, pause)
	w.reconcile()
	w.Expect(w.client.Delete(t.Context(), w.policy())).To(Succeed())
	w.reconcile()
	w.Expect(rollout.Gated(w.machine("new-1"))).To(BeFalse())
	w.Expect(rollout.Hooked(w.machine("old-0"))).To(BeFalse())
}

// Cluster API waits for hooks of a Cluster that is deleted, and takes the policy along only when that is gone: a pause of
// the policy keeps nothing of it. A pause of the Cluster does, as it does everything else.
func TestAPausedPolicyHoldsUpNoDeletionOfItsCluster(t *testing.T) {
	w := newWorld(t, machineOf("new-0", "v2"), hostedBy("new-0", ""))
	policy := w.policy()
	w.adjust(policy, func() { policy.Spec.Drain = &quoinv1.RolloutDrain{} })
	w.reconcile()
	w.Expect(rollout.Hooked(w.machine("old-0"))).To(BeTrue())
	w.adjust(policy, func() { metav1.SetMetaDataAnnotation(&policy.ObjectMeta, clusterv1.PausedAnnotation, "") })
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "c1"}}
	w.adjust(cluster, func() {
		cluster.Finalizers = []string{clusterv1.ClusterFinalizer}
		cluster.Spec.Paused = ptr.To(true)
	})
	w.Expect(w.client.Delete(t.Context(), cluster)).To(Succeed())
	w.reconcile()
	w.Expect(rollout.Hooked(w.machine("old-0"))).To(BeTrue())
	w.adjust(cluster, func() { cluster.Spec.Paused = nil })
	w.reconcile()
	w.Expect(rollout.Hooked(w.machine("old-0"))).To(BeFalse())
	w.Expect(rollout.Gated(w.machine("new-0"))).To(BeFalse())
}

// A policy that was deleted while its Cluster was paused is not there to be found when that is resumed.
func TestAClusterThatIsResumedIsReleased(t *testing.T) {
	w := newWorld(t, machineOf("new-0", "v2"), hostedBy("new-0", ""))
	w.reconcile()
	w.Expect(rollout.Gated(w.machine("new-0"))).To(BeTrue())
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "c1"}}
	w.adjust(cluster, func() { cluster.Spec.Paused = ptr.To(true) })
	w.Expect(w.client.Delete(t.Context(), w.policy())).To(Succeed())
	w.reconcile()
	w.Expect(rollout.Gated(w.machine("new-0"))).To(BeTrue())
	w.adjust(cluster, func() { cluster.Spec.Paused = nil })
	w.Expect(w.r.ofCluster(t.Context(), cluster)).To(HaveLen(1), "the Cluster's own event is the only one")
	w.reconcile()
	w.Expect(w.r.ofCluster(t.Context(), cluster)).To(BeEmpty())
}

// Two policies could only wait for each other: the older one holds, and the other says so.
func TestTheOldestPolicyHolds(t *testing.T) {
	w := newWorld(t, machineOf("new-0", "v2"), hostedBy("new-0", ""))
	w.make(policyOf("another", w.clock.Now().Add(time.Hour)))
	w.reconcile()
	another := &quoinv1.RolloutPolicy{}
	w.read(another, "another")
	w.Expect(conditions.GetReason(another, quoinv1.RolloutPolicyProgressingCondition)).To(Equal(quoinv1.AnotherPolicyReason))
	w.Expect(conditions.GetReason(w.policy(), quoinv1.RolloutPolicyProgressingCondition)).To(Equal(quoinv1.RollingOutReason))
}

// A cache that does not know the MachineSet of a Machine yet decides nothing about it.
func TestAMachineOfAnUnknownMachineSetWaits(t *testing.T) {
	w := newWorld(t, machineOf("new-0", "v3"), hostedBy("new-0", ""))
	w.Expect(w.reconcile().RequeueAfter).To(Equal(cacheLag))
	w.Expect(w.admitted("new-0")).To(BeFalse())
}

// The control plane comes first, and is to be healthy.
//
// Proves: S3-6, K-8
func TestWorkersComeAfterTheControlPlane(t *testing.T) {
	w := newWorld(t, machineOf("new-0", "v2"), hostedBy("new-0", ""))
	for _, condition := range []string{clusterv1.ClusterControlPlaneMachinesUpToDateCondition,
		clusterv1.ClusterControlPlaneAvailableCondition} {
		cluster := &clusterv1.Cluster{}
		set := func(status metav1.ConditionStatus) {
			w.read(cluster, "c1")
			conditions.Set(cluster, metav1.Condition{Type: condition, Status: status, Reason: "Test", Message: "2 of 3"})
			w.Expect(w.client.Status().Update(t.Context(), cluster)).To(Succeed())
		}
		set(metav1.ConditionFalse)
		w.reconcile()
		w.Expect(w.admitted("new-0")).To(BeFalse(), condition)
		w.Expect(conditions.GetMessage(w.policy(), quoinv1.RolloutPolicyProgressingCondition)).To(ContainSubstring("2 of 3"))
		set(metav1.ConditionTrue)
	}
	w.reconcile()
	w.Expect(w.admitted("new-0")).To(BeTrue())
}

// clusterctl moves what its Cluster owns, and an owner of another UID has the garbage collector delete the policy.
func TestThePolicyBelongsToTheClusterOfTheDay(t *testing.T) {
	w := newWorld(t)
	policy := w.policy()
	w.adjust(policy, func() {
		policy.Labels = map[string]string{clusterv1.ClusterNameLabel: "c1"}
		policy.OwnerReferences = []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster",
			Name: "c1", UID: "before"}}
	})
	w.reconcile()
	w.Expect(w.policy().OwnerReferences).To(ConsistOf(And(HaveField("Kind", "Cluster"), HaveField("UID", BeEquivalentTo("c1")))))
}
