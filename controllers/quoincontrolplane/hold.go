// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoincontrolplane

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kerrors "k8s.io/apimachinery/pkg/util/errors"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/controllers/quoincontrolplane/desired"
)

// What holds a control-plane Machine: a pre-drain hook until its departure was agreed to, a pre-terminate hook until
// its etcd member is gone, and, where it has one, the same hold on its QuoinMachine, because annotations of a Machine
// can be stripped, and Cluster API skips the first when it likes. Set while the Machine is not being deleted, and taken
// away once and for good.

// holdHost puts our hold into a QuoinMachine that is about to be made.
func (s *scope) holdHost(infra *unstructured.Unstructured) error {
	if !desired.StackedEtcd(s.plane) {
		return nil
	}
	entries, _, err := unstructured.NestedSlice(infra.Object, "spec", "lifecycleHooks", "preTerminate")
	if err != nil {
		return err
	}
	entries = slices.DeleteFunc(entries, func(entry any) bool {
		fields, ok := entry.(map[string]any)
		return ok && fields["name"] == controlplanev1.HookName
	})
	entries = append(entries, map[string]any{"name": controlplanev1.HookName, "owner": desired.HookOwner(s.plane)})
	return unstructured.SetNestedSlice(infra.Object, entries, "spec", "lifecycleHooks", "preTerminate")
}

// keepHold puts our hold on the QuoinMachine of a Machine that was adopted, moved, or made before there was such a
// hold.
func (r *Reconciler) keepHold(ctx context.Context, s *scope, infra *infrav1.QuoinMachine) error {
	if !s.lacksHold(infra) {
		return nil
	}
	return r.changeHold(ctx, infra, func(hooks []infrav1.LifecycleHook) []infrav1.LifecycleHook {
		return append(slices.DeleteFunc(hooks, ours), infrav1.LifecycleHook{Name: controlplanev1.HookName,
			Owner: desired.HookOwner(s.plane)})
	})
}

// changeHold changes the pre-terminate hooks of a QuoinMachine as they are now: the list is written as a whole, so
// never over what somebody else did meanwhile.
func (r *Reconciler) changeHold(
	ctx context.Context, seen *infrav1.QuoinMachine, change func([]infrav1.LifecycleHook) []infrav1.LifecycleHook,
) error {
	infra := &infrav1.QuoinMachine{}
	if err := r.APIReader.Get(ctx, client.ObjectKeyFromObject(seen), infra); err != nil {
		return client.IgnoreNotFound(err)
	}
	original := infra.DeepCopy()
	infra.Spec.LifecycleHooks.PreTerminate = change(slices.Clone(infra.Spec.LifecycleHooks.PreTerminate))
	if len(infra.Spec.LifecycleHooks.PreTerminate) == 0 {
		// An empty list would be written as lifecycleHooks without anything, which the API refuses.
		infra.Spec.LifecycleHooks.PreTerminate = nil
	}
	patch := client.MergeFromWithOptions(original, client.MergeFromWithOptimisticLock{})
	if err := r.Client.Patch(ctx, infra, patch); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("changing the hold on QuoinMachine %s: %w", infra.Name, err)
	}
	return nil
}

// lacksHold tells that the host of a Machine must be held and is not.
func (s *scope) lacksHold(infra *infrav1.QuoinMachine) bool {
	return desired.StackedEtcd(s.plane) && !hostHeld(infra) && infra.DeletionTimestamp.IsZero()
}

// hostHeld tells that our hold is on the QuoinMachine.
func hostHeld(infra *infrav1.QuoinMachine) bool {
	return infra != nil && slices.ContainsFunc(infra.Spec.LifecycleHooks.PreTerminate, ours)
}

func ours(hook infrav1.LifecycleHook) bool { return hook.Name == controlplanev1.HookName }

func hasHook(machine *clusterv1.Machine, hook string) bool {
	_, has := machine.Annotations[hook]
	return has
}

// openDrain takes the pre-drain hook off the Machine.
func (r *Reconciler) openDrain(ctx context.Context, machine *clusterv1.Machine) error {
	return r.dropHooks(ctx, machine, controlplanev1.PreDrainHookAnnotation)
}

// release takes all of our holds off a Machine. Its QuoinMachine comes first: once the Machine's hooks are gone, nobody
// may look at it again.
func (r *Reconciler) release(ctx context.Context, s *scope, machine *clusterv1.Machine) error {
	if infra := s.infra[machine.Name]; hostHeld(infra) {
		if err := r.changeHold(ctx, infra, func(hooks []infrav1.LifecycleHook) []infrav1.LifecycleHook {
			return slices.DeleteFunc(hooks, ours)
		}); err != nil {
			return err
		}
	}
	return r.dropHooks(ctx, machine, controlplanev1.PreDrainHookAnnotation, controlplanev1.PreTerminateHookAnnotation)
}

func (r *Reconciler) dropHooks(ctx context.Context, machine *clusterv1.Machine, hooks ...string) error {
	original := machine.DeepCopy()
	for _, hook := range hooks {
		delete(machine.Annotations, hook)
	}
	if len(machine.Annotations) == len(original.Annotations) {
		return nil
	}
	if err := r.Client.Patch(ctx, machine, client.MergeFrom(original)); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("taking hooks off Machine %s: %w", machine.Name, err)
	}
	return nil
}

// deleteAll deletes all Machines at once. Nothing of etcd is to be kept, so no hook holds them.
func (r *Reconciler) deleteAll(ctx context.Context, s *scope) error {
	var failures []error
	for _, machine := range s.machines.SortedByCreationTimestamp() {
		if err := r.release(ctx, s, machine); err != nil {
			failures = append(failures, err)
			continue
		}
		if machine.DeletionTimestamp.IsZero() {
			failures = append(failures, r.deleteMachine(ctx, machine))
		}
	}
	return kerrors.NewAggregate(failures)
}

// atTermination tells that nothing holds the Machine any more but what comes after its drain: pre-terminate hooks, or,
// of a Machine whose hooks were stripped, the hold on its QuoinMachine.
func atTermination(machine *clusterv1.Machine, infra *infrav1.QuoinMachine) bool {
	if !conditions.IsTrue(machine, clusterv1.MachineDeletingCondition) {
		return false
	}
	switch conditions.GetReason(machine, clusterv1.MachineDeletingCondition) {
	case clusterv1.MachineDeletingWaitingForPreTerminateHookReason:
		return true
	case clusterv1.MachineDeletingWaitingForInfrastructureDeletionReason:
		return hostHeld(infra)
	}
	return false
}
