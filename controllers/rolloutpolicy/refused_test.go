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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/tools/events"
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
)

// green makes a MachineDeployment beside blue that is like it, with Machines green-old-0 and green-new-0.
func (w *world) green() {
	w.t.Helper()
	blue := &clusterv1.MachineDeployment{}
	w.read(blue, "blue")
	blue.ObjectMeta = metav1.ObjectMeta{Namespace: namespace, Name: "green", UID: "green"}
	blue.Spec.Replicas = ptr.To[int32](1)
	w.make(blue)
	for version, name := range map[string]string{"v1": "green-old-0", "v2": "green-new-0"} {
		set, machine := setOf(blue, version), machineOf(name, version)
		set.Name, set.UID = "green-"+version, types.UID("green-"+version)
		machine.Labels[clusterv1.MachineDeploymentNameLabel] = "green"
		machine.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(set,
			clusterv1.GroupVersion.WithKind("MachineSet"))}
		host := ""
		if version == "v1" {
			host = "quoin://" + name
		}
		if version == "v1" || blue.Spec.Rollout.Strategy.Type != clusterv1.OnDeleteMachineDeploymentStrategyType {
			w.make(machine, hostedBy(name, host))
		}
		w.make(set)
	}
	w.joins("green-old-0")
}

// denied is how an admission webhook refuses every write to Machines of the pool blue.
func denied(object client.Object) error {
	if object.GetLabels()[clusterv1.MachineDeploymentNameLabel] != "blue" {
		return nil
	}
	return apierrors.NewForbidden(schema.GroupResource{Group: clusterv1.GroupVersion.Group, Resource: "machines"},
		object.GetName(), errors.New(`admission webhook "guard.example.com" denied the request: frozen`))
}

// refuse has the API server answer writes to Machines with an error, where it has one.
func (w *world) refuse(with func(client.Object) error) {
	next := w.r.Client.(client.WithWatch)
	w.r.Client = interceptor.NewClient(next, interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch,
			options ...client.PatchOption) error {
			if err := with(object); err != nil {
				return err
			}
			return c.Patch(ctx, object, patch, options...)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, of string, object client.Object, patch client.Patch,
			options ...client.SubResourcePatchOption) error {
			if err := with(object); err != nil {
				return err
			}
			return c.SubResource(of).Patch(ctx, object, patch, options...)
		},
	})
}

func (w *world) once() (ctrl.Result, error) {
	return w.r.Reconcile(w.t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Namespace: namespace, Name: "c1"}})
}

// A webhook that refuses the deletion of one Machine stops the pool of that and no other. The
// status says what was refused, by whom and since when, until it is permitted.
//
// Proves: K-6, K-8, K-9, S3-10
func TestARefusedDeletionStopsItsPoolAlone(t *testing.T) {
	w := newWorld(t)
	w.onDelete()
	w.green()
	old := w.machine("green-old-0")
	w.adjust(old, func() { old.Finalizers = []string{"test/host"} })
	refuses := true
	w.r.Client = interceptor.NewClient(w.client, interceptor.Funcs{Delete: func(ctx context.Context, c client.WithWatch,
		object client.Object, options ...client.DeleteOption) error {
		if err := denied(object); err != nil && refuses {
			return err
		}
		return c.Delete(ctx, object, options...)
	}})
	for range 10 {
		_, err := w.once()
		w.Expect(err).To(Or(BeNil(), MatchError(ContainSubstring("guard.example.com"))))
		w.clock.Step(time.Minute)
	}
	_, err := w.once()
	w.Expect(err).To(MatchError(ContainSubstring("guard.example.com")), "it is asked again")
	w.Expect(w.deleting()).To(ConsistOf("green-old-0"))

	began := rollout.DeletedSince(w.machine("old-0")).UTC().Format(time.RFC3339)
	w.Expect(began).To(HavePrefix("2026-11-23T08:0"), "it is not begun anew")
	blue, stalled := w.policy().Status.MachineDeployments[0], quoinv1.RolloutPolicyStalledCondition
	w.Expect(blue.Reason).To(Equal(quoinv1.WriteRefusedReason))
	w.Expect(blue.Message).To(And(ContainSubstring("delete Machine prod/old-0"), ContainSubstring("guard.example.com"),
		ContainSubstring("since "+began)))
	w.Expect(blue.Outdated).To(HaveValue(BeEquivalentTo(2)))
	w.Expect(conditions.GetReason(w.policy(), stalled)).To(Equal(quoinv1.WriteRefusedReason))
	w.Expect(conditions.GetMessage(w.policy(), stalled)).To(Equal(blue.Message))
	w.Expect(w.policy().Status.MachineDeployments[1].Reason).To(Equal(quoinv1.RollingOutReason))

	refuses = false
	w.reconcile()
	w.Expect(w.deleting()).To(ConsistOf("green-old-0", "old-0"))
	w.Expect(w.policy().Status.MachineDeployments[0].Reason).NotTo(Equal(quoinv1.WriteRefusedReason))
	w.Expect(conditions.IsTrue(w.policy(), stalled)).To(BeFalse())
}

// Whatever write to a Machine is refused, Machines of the other pool get theirs.
//
// Proves: K-6, K-8, S3-10
func TestARefusedPatchStopsItsPoolAlone(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(*world)
		green   func(*world) bool
	}{
		"admission": {func(*world) {}, func(w *world) bool { return w.admitted("green-new-0") }},
		"condition of the gate": {func(w *world) {
			w.reconcile()
			w.joins("new-0")
			w.joins("green-new-0")
		}, func(w *world) bool {
			return conditions.Has(w.machine("green-new-0"), quoinv1.MachineRolloutValidatedCondition)
		}},
		"readiness gate": {func(w *world) {
			w.reconcile()
			w.joins("new-0")
			w.joins("green-new-0")
			w.clock.Step(time.Hour)
		}, func(w *world) bool { return !rollout.Gated(w.machine("green-new-0")) }},
		"hooks": {func(w *world) {
			w.reconcile()
			policy := w.policy()
			w.adjust(policy, func() { policy.Spec.Drain = &quoinv1.RolloutDrain{} })
		}, func(w *world) bool { return rollout.Hooked(w.machine("green-old-0")) }},
		"what no group selects": {func(w *world) {
			w.reconcile()
			policy := w.policy()
			w.adjust(policy, func() {
				policy.Spec.Groups = []quoinv1.RolloutGroup{{Name: "others", MachineDeployments: quoinv1.RolloutSelector{
					Names: []string{"red"}}}}
			})
		}, func(w *world) bool { return !rollout.Gated(w.machine("green-new-0")) }},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, machineOf("new-0", "v2"), hostedBy("new-0", ""))
			w.green()
			policy := w.policy()
			w.adjust(policy, func() { policy.Spec.Concurrency = ptr.To[int32](2) })
			c.prepare(w)
			w.Expect(c.green(w)).To(BeFalse())
			before := w.machine("new-0")
			w.refuse(denied)
			for range 5 {
				_, err := w.once()
				w.Expect(err).To(Or(BeNil(), MatchError(ContainSubstring("guard.example.com"))))
			}
			_, err := w.once()
			w.Expect(err).To(HaveOccurred(), "it is asked again")
			w.Expect(w.machine("new-0")).To(Equal(before))
			w.Expect(c.green(w)).To(BeTrue())
			if name == "what no group selects" { // it is no pool of the policy any more
				w.Expect(w.message(quoinv1.RolloutPolicyStalledCondition)).To(And(ContainSubstring("guard.example.com"),
					ContainSubstring("Machine new-0 of MachineDeployment blue: Unmark is refused")))
				w.Expect(w.recorded()).To(ContainElement(HavePrefix("Warning WriteRefused Machine new-0 of MachineDeployment " +
					"blue: Unmark is refused and tried again")))
				w.r.Client = w.client
				w.reconcile()
				w.Expect(w.message(quoinv1.RolloutPolicyStalledCondition)).To(BeEmpty())
				return
			}
			shown := func() quoinv1.RolloutProgress { return w.policy().Status.MachineDeployments[0] }
			w.Expect(shown().Message).To(ContainSubstring("guard.example.com"))
			w.Expect(shown().Reason).To(Equal(quoinv1.WriteRefusedReason))
			w.Expect(w.policy().Status.MachineDeployments[1].Reason).NotTo(Equal(quoinv1.WriteRefusedReason))
			since := shown().Since
			w.clock.Step(time.Minute)
			w.restart()
			w.refuse(denied)
			for range 3 {
				_, _ = w.once()
				w.Expect(shown().Reason).To(Equal(quoinv1.WriteRefusedReason), "it was refused to another process")
				w.Expect(shown().Since.Time).To(BeTemporally("==", since.Time))
				w.Expect(conditions.GetReason(w.policy(), quoinv1.RolloutPolicyStalledCondition)).
					To(Equal(quoinv1.WriteRefusedReason))
			}
			w.r.Client = w.client
			result, err := w.once()
			w.Expect(err).NotTo(HaveOccurred())
			if name == "hooks" {
				w.Expect(result.RequeueAfter).To(Equal(cacheLag))
			}
			w.reconcile()
			w.Expect(shown().Reason).NotTo(Equal(quoinv1.WriteRefusedReason), "it is permitted")
		})
	}
}

// What is refused of free Machines in the first pass of a process does not make it forget what it was refused of others
// before: since when is that of the first refusal.
func TestARefusalOfAFreeMachineKeepsSinceWhenOthersAreRefused(t *testing.T) {
	w := newWorld(t, machineOf("new-0", "v2"), hostedBy("new-0", ""))
	w.green()
	policy := w.policy()
	w.adjust(policy, func() { policy.Spec.Concurrency = ptr.To[int32](2) })
	w.reconcile()
	w.Expect(rollout.Gated(w.machine("green-new-0"))).To(BeTrue())
	w.adjust(policy, func() {
		policy.Spec.Drain = &quoinv1.RolloutDrain{}
		policy.Spec.Groups = []quoinv1.RolloutGroup{{Name: "blue", MachineDeployments: quoinv1.RolloutSelector{
			Names: []string{"blue"}}}}
	})
	frozen := func(object client.Object) error {
		if _, is := object.(*clusterv1.Machine); !is {
			return nil
		}
		return apierrors.NewForbidden(schema.GroupResource{Resource: "machines"}, object.GetName(), errors.New("frozen"))
	}
	blue := func() quoinv1.RolloutProgress { return w.policy().Status.MachineDeployments[0] }
	var since time.Time
	for pass := range 9 {
		if pass%3 == 0 {
			w.restart()
			w.refuse(frozen)
			w.clock.Step(time.Minute)
		}
		_, err := w.once()
		w.Expect(err).To(MatchError(And(ContainSubstring("old-0"), ContainSubstring("green-new-0"))))
		switch {
		case pass == 2:
			since = blue().Since.Time
			fallthrough
		case pass > 2:
			w.Expect(blue().Reason).To(Equal(quoinv1.WriteRefusedReason), "pass %d", pass)
			w.Expect(blue().Since.Time).To(BeTemporally("==", since), "pass %d", pass)
			w.Expect(conditions.GetReason(w.policy(), quoinv1.RolloutPolicyStalledCondition)).
				To(Equal(quoinv1.WriteRefusedReason), "pass %d", pass)
		}
	}
	w.r.Client = w.client
	w.reconcile() // writes, and comes again
	w.reconcile()
	w.Expect(blue().Reason).NotTo(Equal(quoinv1.WriteRefusedReason))
	w.Expect(w.message(quoinv1.RolloutPolicyStalledCondition)).To(BeEmpty())
}

// What does not count because that was refused is measured when it does, and once.
func TestWhatWasRefusedIsNotMeasured(t *testing.T) {
	w := newWorld(t, machineOf("new-0", "v2"), hostedBy("new-0", ""))
	w.reconcile()
	w.joins("new-0")
	w.clock.Step(time.Hour)
	w.refuse(denied)
	for range 5 {
		_, _ = w.once()
	}
	blue := w.policy().Status.MachineDeployments[0]
	w.Expect(blue.Reason).To(Equal(quoinv1.WriteRefusedReason))
	w.Expect(blue.RecentMachineSeconds).To(BeEmpty())
	w.restart()
	w.reconcile()
	w.Expect(w.policy().Status.MachineDeployments[0].RecentMachineSeconds).To(HaveLen(1))
}

// A Machine that was changed meanwhile is nobody's failure, and holds up no other pool. What is beside it is a failure.
func TestAConflictHoldsUpNoOtherPool(t *testing.T) {
	w := newWorld(t, machineOf("new-0", "v2"), hostedBy("new-0", ""))
	w.green()
	policy := w.policy()
	w.adjust(policy, func() { policy.Spec.Concurrency = ptr.To[int32](2) })
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "machines"}, "new-0", errors.New("changed"))
	w.refuse(func(object client.Object) error {
		if object.GetName() == "new-0" {
			return conflict
		}
		return nil
	})
	for range 5 {
		_, err := w.once()
		w.Expect(err).NotTo(HaveOccurred())
	}
	result, _ := w.once()
	w.Expect(result.RequeueAfter).To(Equal(cacheLag))
	w.Expect(w.admitted("green-new-0")).To(BeTrue())
	w.Expect(w.policy().Status.MachineDeployments[0].Reason).NotTo(Equal(quoinv1.WriteRefusedReason))
	w.Expect(conflicts(errors.Join(conflict, nil, errors.Join(conflict)))).To(BeTrue())
	w.Expect(conflicts(errors.Join(conflict, denied(machineOf("new-0", "v2"))))).To(BeFalse())
	w.Expect(conflicts(nil)).To(BeFalse())
}

// surging is a world in which three new Machines may be on their way, and the canary is about to count.
func surging(t *testing.T) *world {
	t.Helper()
	w := newWorld(t, machineOf("new-0", "v2"), hostedBy("new-0", ""), machineOf("new-1", "v2"), hostedBy("new-1", ""),
		machineOf("new-2", "v2"), hostedBy("new-2", ""))
	pool := w.blue()
	w.adjust(pool, func() { pool.Spec.Rollout.Strategy.RollingUpdate.MaxSurge = ptr.To(intstr.FromInt32(3)) })
	w.reconcile()
	w.joins("new-0")
	w.clock.Step(time.Hour)
	return w
}

// changeMeanwhile has somebody else change the Machine after each time that it is read, for three reconciles.
func (w *world) changeMeanwhile(name string) {
	w.t.Helper()
	w.refuse(func(object client.Object) error {
		if object.GetName() == name {
			return apierrors.NewConflict(schema.GroupResource{Resource: "machines"}, name, errors.New("changed"))
		}
		return nil
	})
	for range 3 {
		_, err := w.once()
		w.Expect(err).NotTo(HaveOccurred())
	}
}

// Machines are written by many while they come up: one that was changed meanwhile does not hold up those beside it.
func TestAConflictHoldsUpNoOtherMachine(t *testing.T) {
	w := surging(t)
	w.changeMeanwhile("new-1")
	w.Expect(rollout.Gated(w.machine("new-0"))).To(BeFalse(), "the canary counts")
	w.Expect(w.admitted("new-1")).To(BeFalse())
	w.Expect(w.admitted("new-2")).To(BeTrue())
}

// Nor is what was measured of those beside it forgotten, which count at once and are never measured again.
func TestAConflictForgetsNothingMeasured(t *testing.T) {
	w := surging(t)
	w.reconcile()
	w.Expect(w.admitted("new-2")).To(BeTrue())
	w.joins("new-1")
	w.joins("new-2")
	w.clock.Step(time.Hour)
	w.changeMeanwhile("new-1")
	w.Expect(rollout.Gated(w.machine("new-2"))).To(BeFalse())
	w.r.Client = w.client
	w.clock.Step(time.Minute)
	w.reconcile()
	w.Expect(rollout.Gated(w.machine("new-1"))).To(BeFalse())
	w.Expect(w.policy().Status.MachineDeployments[0].RecentMachineSeconds).To(HaveLen(3))
}

// Nodes that a workload cluster lets nobody taint leave the others their places among those of one reconcile.
func TestRefusedTaintsTakeNoPlace(t *testing.T) {
	w := newDraining(t, quoinv1.RolloutDrain{}, 0)
	workload := interceptor.NewClient(w.workload.(client.WithWatch), interceptor.Funcs{Patch: func(ctx context.Context,
		c client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
		if object.GetName() == "old-0" {
			return apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "old-0", errors.New("denied"))
		}
		return c.Patch(ctx, object, patch, options...)
	}})
	w.r.ClusterCache = clustercache.NewFakeClusterCache(workload, client.ObjectKey{Namespace: namespace, Name: "c1"},
		nodesWatch)
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "c1"}}
	seen := &observation{machines: map[string]*clusterv1.Machine{}}
	taints := make([]rollout.Decision, mostMarked+1)
	for i := range taints {
		taints[i] = rollout.Decision{Pool: "blue", Machine: "old-0", Action: rollout.Taint}
	}
	taints[mostMarked].Machine = "old-1"
	for _, name := range []string{"old-0", "old-1"} {
		seen.machines[name] = w.machine(name)
	}
	more, err := w.r.leave(t.Context(), w.policy(), cluster, seen, taints)
	w.Expect(err).To(MatchError(ContainSubstring("denied")))
	w.Expect(more).To(BeFalse())
	w.Expect(w.tainted("old-0")).To(BeFalse())
	w.Expect(w.tainted("old-1")).To(BeTrue())
	plan := rollout.Result{}
	w.r.recall(w.policy(), cluster, seen, &plan, true)
	w.Expect(plan.Stalled).To(BeEmpty(), "nothing of that is to be done any more")

	for i := range taints {
		taints[i].Machine = "old-1"
	}
	more, err = w.r.leave(t.Context(), w.policy(), cluster, seen, taints)
	w.Expect(err).NotTo(HaveOccurred())
	w.Expect(more).To(BeTrue(), "one reconcile does not taint all Nodes of a large pool")
}

// notes are the events about each object by its name; of those that say the same there is one.
type notes struct {
	events.EventRecorder
	about map[string]map[string]int
}

func (n *notes) Eventf(about, _ runtime.Object, kind, reason, _, note string, args ...any) {
	name := about.(client.Object).GetName()
	if n.about[name] == nil {
		n.about[name] = map[string]int{}
	}
	n.about[name][kind+" "+reason+" "+fmt.Sprintf(note, args...)]++
}

func (w *world) notes() *notes {
	n := &notes{about: map[string]map[string]int{}}
	w.r.Recorder = n
	return n
}

// unguarded are ways in which Machines with hooks come to be guarded by nobody.
func unguarded() map[string]func(w *world) {
	return map[string]func(w *world){
		"the policy is deleted": func(w *world) { w.Expect(w.client.Delete(w.t.Context(), w.policy())).To(Succeed()) },
		"the policy asks for nothing": func(w *world) {
			policy := w.policy()
			w.adjust(policy, func() { policy.Spec.Drain = nil })
		},
		"the pool leaves the policy": func(w *world) {
			policy := w.policy()
			w.adjust(policy, func() {
				policy.Spec.Groups = []quoinv1.RolloutGroup{{Name: "another",
					MachineDeployments: quoinv1.RolloutSelector{Names: []string{"green"}}}}
			})
		},
		"the pool is deleted": func(w *world) {
			blue := &clusterv1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Name: "blue"}}
			w.adjust(blue, func() { blue.Finalizers = []string{clusterv1.MachineDeploymentFinalizer} })
			w.Expect(w.client.Delete(w.t.Context(), blue)).To(Succeed())
		},
	}
}

// stalls has a policy, where there is one, be stalled by what is refused, or by nothing. No pool waits for it.
func (w *world) stalls(by string) {
	w.t.Helper()
	policies := &quoinv1.RolloutPolicyList{}
	w.Expect(w.client.List(w.t.Context(), policies)).To(Succeed())
	for i := range policies.Items {
		stalled := conditions.Get(&policies.Items[i], quoinv1.RolloutPolicyStalledCondition)
		w.Expect(stalled.Reason == quoinv1.WriteRefusedReason).To(Equal(by != ""))
		w.Expect(stalled.Message).To(HavePrefix(by))
		for _, progress := range policies.Items[i].Status.MachineDeployments {
			w.Expect(progress.Reason).NotTo(Equal(quoinv1.WriteRefusedReason))
		}
	}
}

// A Machine that no policy guards any more, and keeps its hooks because the API server refuses to have them taken off,
// says so itself, in the same words until it is permitted. Others are let go of, and no Node stays tainted.
//
// Proves: K-6, K-8
func TestAMachineSaysThatItKeepsItsHooks(t *testing.T) {
	for name, end := range unguarded() {
		t.Run(name, func(t *testing.T) {
			w := newDraining(t, quoinv1.RolloutDrain{}, 0)
			w.reconcile()
			end(w.world)
			w.refuse(func(object client.Object) error {
				if object.GetName() != "old-0" {
					return nil
				}
				return denied(object)
			})
			said := w.notes()
			for range 3 {
				_, err := w.once()
				w.Expect(err).To(MatchError(ContainSubstring("guard.example.com")), "it is asked again")
			}
			refused := "Machine old-0 of MachineDeployment blue: Unguard is refused and tried again"
			w.Expect(said.about["old-0"]).To(And(HaveLen(1), HaveKeyWithValue(And(HavePrefix("Warning WriteRefused "+refused),
				ContainSubstring("Permit it: take "+quoinv1.RolloutPreDrainHookAnnotation+", "+
					quoinv1.RolloutPreTerminateHookAnnotation+" off Machine prod/old-0"),
				HaveSuffix(`admission webhook "guard.example.com" denied the request: frozen`)), 3)))
			w.Expect(w.hooks("old-0")).To(Equal(both))
			for _, other := range []string{"old-1", "new-0", "new-1"} {
				w.Expect(w.hooks(other)).To(BeEmpty(), other)
				w.Expect(said.about[other]).To(BeEmpty())
			}
			w.Expect(w.tainted("old-0")).To(BeFalse())
			w.stalls(refused)

			w.r.Client = w.client
			for range 3 {
				_, err := w.once()
				w.Expect(err).NotTo(HaveOccurred())
			}
			w.Expect(w.machine("old-0").Annotations).NotTo(Or(HaveKey(quoinv1.RolloutPreDrainHookAnnotation),
				HaveKey(quoinv1.RolloutPreTerminateHookAnnotation), HaveKey(quoinv1.RolloutUntaintAnnotation)))
			w.Expect(said.about["old-0"]).To(HaveLen(1))
			w.stalls("")
		})
	}
}

// A Machine whose Node keeps the taint because a workload cluster refuses to have it taken off says so, and so does one
// that may not forget it.
func TestAMachineSaysThatItsNodeKeepsItsTaint(t *testing.T) {
	for name, end := range unguarded() {
		t.Run(name, func(t *testing.T) {
			w := newDraining(t, quoinv1.RolloutDrain{}, 0)
			w.reconcile()
			w.workload = interceptor.NewClient(w.workload.(client.WithWatch), interceptor.Funcs{Patch: func(ctx context.Context,
				c client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
				if object.GetName() == "old-0" {
					return apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "old-0", errors.New("denied"))
				}
				return c.Patch(ctx, object, patch, options...)
			}})
			cache := w.r.ClusterCache
			w.r.ClusterCache = clustercache.NewFakeClusterCache(w.workload, client.ObjectKey{Namespace: namespace, Name: "c1"},
				nodesWatch)
			end(w.world)
			said := w.notes()
			for range 3 {
				_, err := w.once()
				w.Expect(err).To(MatchError(ContainSubstring("denied")))
			}
			refused := "Machine old-0 of MachineDeployment blue: Untaint is refused and tried again"
			w.Expect(said.about["old-0"]).To(And(HaveLen(1), HaveKeyWithValue(And(HavePrefix("Warning WriteRefused "+refused),
				ContainSubstring("Permit it: taint Node old-0"), HaveSuffix("denied")), 3)))
			w.Expect(w.hooks("old-0")).To(BeEmpty())
			w.Expect(w.tainted("old-1")).To(BeFalse())
			w.stalls(refused)

			w.r.ClusterCache = cache
			w.refuse(denied)
			for range 3 {
				_, err := w.once()
				w.Expect(err).To(MatchError(ContainSubstring("guard.example.com")))
			}
			w.Expect(w.tainted("old-0")).To(BeFalse())
			refused = "Machine old-0 of MachineDeployment blue: Unguard is refused and tried again"
			w.Expect(said.about["old-0"]).To(And(HaveLen(2), HaveKeyWithValue(And(HavePrefix("Warning WriteRefused "+refused),
				ContainSubstring("take "+quoinv1.RolloutUntaintAnnotation+" off Machine prod/old-0"),
				ContainSubstring("guard.example.com")), 3)))
			w.stalls(refused)

			w.r.Client = w.client
			for range 3 {
				_, err := w.once()
				w.Expect(err).NotTo(HaveOccurred())
			}
			w.Expect(w.machine("old-0").Annotations).NotTo(HaveKey(quoinv1.RolloutUntaintAnnotation))
			w.stalls("")
		})
	}
}

// A Node is asked for as long as its Machine keeps its hooks, and for an hour from when it remembers the taint instead,
// of which one event says the end. What was refused before a policy came back shortens no hour.
func TestTheHourOfATaintBeginsWhenItsMachineRemembersIt(t *testing.T) {
	w := newDraining(t, quoinv1.RolloutDrain{}, 0)
	w.reconcile()
	w.r.ClusterCache = clustercache.NewFakeClusterCache(interceptor.NewClient(w.workload.(client.WithWatch),
		interceptor.Funcs{Patch: func(context.Context, client.WithWatch, client.Object, client.Patch,
			...client.PatchOption) error {
			return errors.New("no route to host")
		}}), client.ObjectKey{Namespace: namespace, Name: "c1"}, nodesWatch)
	w.Expect(w.client.Delete(t.Context(), w.policy())).To(Succeed())
	w.refuse(denied)
	said, remains := w.notes(), ContainSubstring("TaintRemains")
	for range 3 {
		_, err := w.once()
		w.Expect(err).To(MatchError(ContainSubstring("guard.example.com")))
		w.Expect(said.about["old-0"]).NotTo(HaveKey(remains))
		w.Expect(w.hooks("old-0")).To(Equal(both))
		w.clock.Step(untaintFor)
	}
	w.r.Client = w.client
	for _, later := range []time.Duration{0, untaintFor - time.Second} {
		w.clock.Step(later)
		w.reconcile()
		w.Expect(w.hooks("old-0")).To(BeEmpty())
		w.Expect(said.about["old-0"]).NotTo(HaveKey(remains))
	}
	for range 3 {
		w.clock.Step(time.Second)
		w.reconcile()
		w.Expect(said.about["old-0"]).To(HaveKeyWithValue(remains, 1))
	}
}

// A Machine that keeps its readiness gate when there is no policy any more says so.
func TestAMachineSaysThatItKeepsItsGate(t *testing.T) {
	w := newWorld(t, machineOf("new-0", "v2"), hostedBy("new-0", ""))
	w.reconcile()
	w.Expect(rollout.Gated(w.machine("new-0"))).To(BeTrue())
	w.Expect(w.client.Delete(t.Context(), w.policy())).To(Succeed())
	w.refuse(denied)
	said := w.notes()
	_, err := w.once()
	w.Expect(err).To(MatchError(ContainSubstring("guard.example.com")))
	w.Expect(said.about).To(HaveKeyWithValue("new-0", HaveKey(ContainSubstring(
		"Permit it: take "+clusterv1.DeleteMachineAnnotation+", its readiness gate off Machine prod/new-0: "))))

	machine := w.machine("new-0")
	for range 2 {
		w.Expect(w.r.recordRefusal(machine, rollout.Unmark, denied(machine))).To(HaveOccurred())
	}
	refusals, _ := w.r.refusals.Load(client.ObjectKey{Namespace: namespace, Name: "c1"})
	w.Expect(refusals).To(HaveLen(2), "what is said again is kept once")
}

// Parts of a Machine that was never made and that may not be deleted say so.
func TestPartsSayThatTheyMayNotBeDeleted(t *testing.T) {
	for made, which := range []string{"QuoinMachine", "KubeadmConfig"} {
		t.Run(which, func(t *testing.T) { partsSay(t, made+1, which) })
	}
}

func partsSay(t *testing.T, made int, which string) {
	t.Helper()
	w := newReplacing(t, 1, 0)
	w.kills = func(int) bool {
		machines, configs := w.parts()
		return machines-2+configs == made
	}
	w.deletes("old-0")
	for range 3 {
		_, _ = w.once()
	}
	parts := &infrav1.QuoinMachineList{}
	w.Expect(w.client.List(t.Context(), parts)).To(Succeed())
	var part string
	for i := range parts.Items {
		if stray(&parts.Items[i]) {
			part = parts.Items[i].Name
		}
	}
	w.Expect(w.client.Delete(t.Context(), w.policy())).To(Succeed())
	w.kills = func(int) bool { return false }
	w.restart()
	w.r.Client = interceptor.NewClient(w.client, interceptor.Funcs{Delete: func(context.Context, client.WithWatch,
		client.Object, ...client.DeleteOption) error {
		return apierrors.NewForbidden(schema.GroupResource{}, part, errors.New("denied"))
	}})
	said := w.notes()
	for range 3 {
		_, err := w.once()
		w.Expect(err).To(MatchError(ContainSubstring("denied")))
	}
	w.Expect(said.about[part]).To(And(HaveLen(1), HaveKeyWithValue(And(
		HavePrefix("Warning WriteRefused Machine "+part+": Delete is refused and tried again"),
		ContainSubstring("delete "+which+" "+part+", which no Machine has"), HaveSuffix("denied")), 3)))
}
