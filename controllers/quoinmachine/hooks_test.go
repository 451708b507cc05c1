// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinmachine

import (
	"context"
	"errors"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
)

const (
	migrate = "pre-drain.delete.hook.machine.cluster.x-k8s.io/MigrateImportantApp"
	backup  = "pre-terminate.delete.hook.machine.cluster.x-k8s.io/BackupFileSystem"
)

func hooked(quoinMachine *infrav1.QuoinMachine) *infrav1.QuoinMachine {
	quoinMachine.Spec.LifecycleHooks = infrav1.LifecycleHooks{
		PreDrain:     []infrav1.LifecycleHook{{Name: "MigrateImportantApp", Owner: "my-app-migration-controller"}},
		PreTerminate: []infrav1.LifecycleHook{{Name: "BackupFileSystem", Owner: "my-backup-controller"}},
	}
	return quoinMachine
}

// hooks are the annotations of the Machine, but for those that say that it is being deleted.
func (w *world) hooks(name string) []string {
	var hooks []string
	for key := range w.capiMachine(name).Annotations {
		if strings.HasPrefix(key, clusterv1.PreDrainDeleteHookAnnotationPrefix) ||
			strings.HasPrefix(key, clusterv1.PreTerminateDeleteHookAnnotationPrefix) {
			hooks = append(hooks, key)
		}
	}
	return hooks
}

func (w *world) capiMachine(name string) *clusterv1.Machine {
	w.t.Helper()
	machine := &clusterv1.Machine{}
	w.g.Expect(w.client.Get(context.Background(), client.ObjectKey{Namespace: "team", Name: name}, machine)).To(Succeed())
	return machine
}

func (w *world) edit(name string, change func(*infrav1.QuoinMachine)) {
	w.t.Helper()
	quoinMachine := w.machine(name)
	change(quoinMachine)
	w.g.Expect(w.client.Update(context.Background(), quoinMachine)).To(Succeed())
}

// stage is how far Cluster API came with the deletion of the Machine.
func (w *world) stage(name, reason string) {
	w.t.Helper()
	machine := w.capiMachine(name)
	conditions.Set(machine, metav1.Condition{Type: clusterv1.MachineDeletingCondition, Status: metav1.ConditionTrue,
		Reason: reason})
	w.g.Expect(w.client.Status().Update(context.Background(), machine)).To(Succeed())
}

// The whole walk of a Machine with hooks at both points.
//
// Proves: S2-3, S2-5, S2-12, S2-13, S2-16, S2-17, S2-18, S2-20, S2-25, S2-26, S2-27, C13
func TestHooksHoldTheMachineUntilTheirOwnersTakeThemAway(t *testing.T) {
	machine, quoinMachine := owned("m1", uid1)
	w := newWorld(t, cluster(), machine, hooked(quoinMachine), host("h1", ""))
	w.reconcile("m1")
	w.g.Expect(w.capiMachine("m1").Annotations).
		To(And(HaveKeyWithValue(migrate, "my-app-migration-controller"), HaveKeyWithValue(backup, "my-backup-controller")))
	w.reconcile("m1")
	w.expect("m1", infrav1.MachineHostClaimedCondition, metav1.ConditionTrue, infrav1.MachineHostClaimedReason)
	w.expect("m1", infrav1.MachineDrainableCondition, metav1.ConditionFalse, infrav1.MachineHooksHoldReason,
		"MigrateImportantApp (owner my-app-migration-controller)")
	w.expect("m1", infrav1.MachineTerminableCondition, metav1.ConditionFalse, infrav1.MachineHooksHoldReason,
		"BackupFileSystem (owner my-backup-controller)")
	w.expect("m1", infrav1.MachineDrainedCondition, metav1.ConditionFalse, infrav1.MachineNotDeletingReason)

	w.g.Expect(w.client.Delete(context.Background(), w.capiMachine("m1"))).To(Succeed())
	w.stage("m1", clusterv1.MachineDeletingWaitingForPreDrainHookReason)
	w.edit("m1", func(m *infrav1.QuoinMachine) { m.Spec.LifecycleHooks.PreDrain = nil })
	w.reconcile("m1")
	w.g.Expect(w.capiMachine("m1").Annotations).NotTo(HaveKey(migrate))
	w.g.Expect(w.capiMachine("m1").Annotations).To(HaveKey(backup))
	w.expect("m1", infrav1.MachineDrainableCondition, metav1.ConditionTrue, infrav1.MachineNoHooksReason)

	w.stage("m1", clusterv1.MachineDeletingWaitingForPreTerminateHookReason)
	w.edit("m1", func(m *infrav1.QuoinMachine) { m.Spec.LifecycleHooks = infrav1.LifecycleHooks{} })
	w.reconcile("m1")
	w.g.Expect(w.hooks("m1")).To(BeEmpty())
	w.expect("m1", infrav1.MachineTerminableCondition, metav1.ConditionTrue, infrav1.MachineNoHooksReason)
}

// Somebody takes the annotation away, or Cluster API went past it: the entry holds all the same.
func TestAnEntryHoldsTheHostWhereItsAnnotationDoesNot(t *testing.T) {
	machine, quoinMachine := owned("m1", uid1)
	w := newWorld(t, cluster(), machine, hooked(quoinMachine), host("h1", ""))
	w.reconcile("m1")
	w.reconcile("m1")
	machine = w.capiMachine("m1")
	machine.Annotations = nil
	w.g.Expect(w.client.Update(context.Background(), machine)).To(Succeed())
	w.delete("m1")
	w.stage("m1", clusterv1.MachineDeletingWaitingForInfrastructureDeletionReason)
	w.updateHost("h1", func(h *infrav1.QuoinHost) {
		h.Status.State = infrav1.HostStateCleaning
		h.Status.Operation = &infrav1.HostOperation{ID: "reset-0123abcd", Phase: "Succeeded"}
		setCondition(h, infrav1.HostCleanCondition, metav1.ConditionTrue, infrav1.HostReleasePendingReason, "")
	})
	w.reconcile("m1")
	w.g.Expect(w.deleted("m1")).To(BeFalse())
	w.g.Expect(w.hooks("m1")).To(BeEmpty(), "nothing is added once the deletion has begun")
	w.expect("m1", infrav1.MachineReadyCondition, metav1.ConditionFalse, infrav1.MachineHooksHoldReason,
		"pre-drain MigrateImportantApp (owner my-app-migration-controller)",
		"pre-terminate BackupFileSystem (owner my-backup-controller)")
	w.edit("m1", func(m *infrav1.QuoinMachine) { m.Spec.LifecycleHooks = infrav1.LifecycleHooks{} })
	w.reconcile("m1")
	w.g.Expect(w.deleted("m1")).To(BeTrue())
}

// A person deletes the QuoinMachine of a Machine that is wanted.
func TestAMachineInUseKeepsItsHost(t *testing.T) {
	machine, quoinMachine := owned("m1", uid1)
	w := newWorld(t, cluster(), machine, quoinMachine, host("h1", ""))
	recorder := events.NewFakeRecorder(100)
	w.r.Recorder = recorder
	w.reconcile("m1")
	w.g.Expect(recorder.Events).To(Receive(ContainSubstring("claimed host")))
	w.g.Expect(w.client.Delete(context.Background(), w.machine("m1"))).To(Succeed())
	w.reconcile("m1")
	w.reconcile("m1")
	w.expect("m1", infrav1.MachineReadyCondition, metav1.ConditionFalse, infrav1.MachineInUseReason,
		"Machine team/m1 is not", "Delete the Machine")
	w.g.Expect(w.host("h1").Spec.ConsumerRef).NotTo(BeNil())
	w.g.Expect(recorder.Events).To(Receive(ContainSubstring("MachineInUse")))
	w.g.Expect(recorder.Events).NotTo(Receive(), "once")

	w.g.Expect(w.client.Delete(context.Background(), w.capiMachine("m1"))).To(Succeed())
	w.reconcile("m1")
	w.expect("m1", infrav1.MachineReadyCondition, metav1.ConditionFalse, infrav1.MachineReleasingReason)
}

// Somebody stripped the owner reference. The Machine refers to its QuoinMachine all the same, and its host is not
// reset.
func TestAMachineInUseIsFoundWithoutAnOwnerReference(t *testing.T) {
	machine, quoinMachine := owned("m1", uid1)
	machine.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group,
		Kind: "QuoinMachine", Name: "m1"}
	w := newWorld(t, cluster(), machine, quoinMachine, host("h1", ""))
	w.reconcile("m1")
	w.edit("m1", func(m *infrav1.QuoinMachine) { m.OwnerReferences = nil })
	w.g.Expect(w.client.Delete(context.Background(), w.machine("m1"))).To(Succeed())
	w.reconcile("m1")
	w.expect("m1", infrav1.MachineReadyCondition, metav1.ConditionFalse, infrav1.MachineInUseReason,
		"Machine team/m1 is not")

	w.g.Expect(w.client.Delete(context.Background(), w.capiMachine("m1"))).To(Succeed())
	w.reconcile("m1")
	w.expect("m1", infrav1.MachineReadyCondition, metav1.ConditionFalse, infrav1.MachineReleasingReason)
}

// The Machine is gone, and its dependents are collected. A cache that lags must not look like that.
func TestTheEndOfAMachineIsReadFromTheAPIServer(t *testing.T) {
	machine, quoinMachine := owned("m1", uid1)
	w := newWorld(t, cluster(), machine, quoinMachine)
	w.reconcile("m1")
	lagging := func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object,
		options ...client.GetOption) error {
		if _, ok := object.(*clusterv1.Machine); ok {
			return apierrors.NewNotFound(schema.GroupResource{Resource: "machines"}, key.Name)
		}
		return c.Get(ctx, key, object, options...)
	}
	w.r.Client = interceptor.NewClient(w.client, interceptor.Funcs{Get: lagging})
	w.g.Expect(w.client.Delete(context.Background(), w.machine("m1"))).To(Succeed())
	w.reconcile("m1")
	w.expect("m1", infrav1.MachineReadyCondition, metav1.ConditionFalse, infrav1.MachineInUseReason)

	machine = w.capiMachine("m1")
	machine.Finalizers = nil
	w.g.Expect(w.client.Update(context.Background(), machine)).To(Succeed())
	w.g.Expect(w.client.Delete(context.Background(), machine)).To(Succeed())
	w.reconcile("m1")
	w.g.Expect(w.deleted("m1")).To(BeTrue())
}

func TestAMachineThatIsMovedAwayIsHandsOff(t *testing.T) {
	machine, quoinMachine := owned("m1", uid1)
	w := newWorld(t, cluster(), machine, quoinMachine, host("h1", ""))
	w.reconcile("m1")
	w.edit("m1", func(m *infrav1.QuoinMachine) {
		hooked(m).Annotations = map[string]string{clusterctlv1.DeleteForMoveAnnotation: ""}
	})
	w.delete("m1")
	w.reconcile("m1")
	w.g.Expect(w.deleted("m1")).To(BeFalse(), "clusterctl takes the finalizer away itself")
	w.g.Expect(w.hooks("m1")).To(BeEmpty())
}

// A Machine whose deletion began a moment ago gets no hook: the patch counts only for the Machine as it was read.
func TestAHookIsOnlyAddedToTheMachineThatWasRead(t *testing.T) {
	machine, quoinMachine := owned("m1", uid1)
	w := newWorld(t, cluster(), machine, hooked(quoinMachine))
	w.r.Client = interceptor.NewClient(w.client, interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch,
			options ...client.PatchOption) error {
			if _, ok := object.(*clusterv1.Machine); ok {
				w.g.Expect(client.IgnoreNotFound(c.Delete(ctx, w.capiMachine("m1")))).To(Succeed())
			}
			return c.Patch(ctx, object, patch, options...)
		},
	})
	w.reconcile("m1")
	w.reconcile("m1")
	w.g.Expect(w.capiMachine("m1").DeletionTimestamp).NotTo(BeNil())
	w.g.Expect(w.hooks("m1")).To(BeEmpty())
	w.expect("m1", infrav1.MachineDrainableCondition, metav1.ConditionFalse, infrav1.MachineHooksHoldReason)
}

func TestAHookThatCannotBeWrittenIsTriedAgain(t *testing.T) {
	machine, quoinMachine := owned("m1", uid1)
	quoinMachine.Finalizers = []string{infrav1.MachineFinalizer}
	w := newWorld(t, cluster(), machine, hooked(quoinMachine), host("h1", ""))
	w.r.Client = interceptor.NewClient(w.client, interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch,
			options ...client.PatchOption) error {
			if _, ok := object.(*clusterv1.Machine); ok {
				return errors.New("admission says no")
			}
			return c.Patch(ctx, object, patch, options...)
		},
	})
	_, _ = w.r.Reconcile(context.Background(), request("m1"))
	_, err := w.r.Reconcile(context.Background(), request("m1"))
	w.g.Expect(err).To(MatchError(ContainSubstring("lifecycle hooks to Machine team/m1: admission says no")))
	w.g.Expect(w.host("h1").Spec.ConsumerRef).To(BeNil(), "no host without its holds")
}
