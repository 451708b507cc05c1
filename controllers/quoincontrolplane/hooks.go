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
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/controllers/quoincontrolplane/desired"
	"github.com/quoin-dev/cluster-api-provider-quoin/controllers/quoincontrolplane/observe"
)

// The deletion hooks of a control-plane Machine: a pre-drain hook until its departure was approved, a pre-terminate
// hook until its etcd member is gone, and, where it has one, the same hook on its QuoinMachine, because annotations of
// a Machine can be stripped, and Cluster API skips the first when it likes. Set while the Machine is not being deleted,
// and taken away once and for good.

// addHostHook puts our hook into a QuoinMachine that is about to be made.
func addHostHook(controlPlane *controlplanev1.QuoinControlPlane, infra *unstructured.Unstructured) error {
	if !desired.StackedEtcd(controlPlane) {
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
	entries = append(entries, map[string]any{"name": controlplanev1.HookName, "owner": desired.HookOwner(controlPlane)})
	return unstructured.SetNestedSlice(infra.Object, entries, "spec", "lifecycleHooks", "preTerminate")
}

// ensureHostHook puts our hook on the QuoinMachine of a Machine that was adopted, moved, or made before there was such
// a hold.
func (r *Reconciler) ensureHostHook(ctx context.Context, inv *observe.Inventory, infra *infrav1.QuoinMachine) error {
	if !inv.LacksHostHook(infra) {
		return nil
	}
	return r.changeHostHooks(ctx, infra, func(hooks []infrav1.LifecycleHook) []infrav1.LifecycleHook {
		return append(slices.DeleteFunc(hooks, observe.Ours), infrav1.LifecycleHook{Name: controlplanev1.HookName,
			Owner: desired.HookOwner(inv.ControlPlane)})
	})
}

// changeHostHooks changes the pre-terminate hooks of a QuoinMachine as they are now: the list is written as a whole, so
// never over what somebody else did meanwhile.
func (r *Reconciler) changeHostHooks(
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
		return fmt.Errorf("changing the hooks on QuoinMachine %s: %w", infra.Name, err)
	}
	return nil
}

// releaseDrain takes the pre-drain hook off the Machine.
func (r *Reconciler) releaseDrain(ctx context.Context, machine *clusterv1.Machine) error {
	return r.dropHooks(ctx, machine, controlplanev1.PreDrainHookAnnotation)
}

// release takes all of our hooks off a Machine. Its QuoinMachine comes first: once the Machine's hooks are gone, nobody
// may reconcile it again.
func (r *Reconciler) release(ctx context.Context, inv *observe.Inventory, machine *clusterv1.Machine) error {
	if infra := inv.QuoinMachines[machine.Name]; observe.HasHostHook(infra) {
		if err := r.changeHostHooks(ctx, infra, func(hooks []infrav1.LifecycleHook) []infrav1.LifecycleHook {
			return slices.DeleteFunc(hooks, observe.Ours)
		}); err != nil {
			return err
		}
	}
	return r.dropHooks(ctx, machine, controlplanev1.PreDrainHookAnnotation, controlplanev1.PreTerminateHookAnnotation)
}

func (r *Reconciler) dropHooks(ctx context.Context, machine *clusterv1.Machine, hooks ...string) error {
	changed := machine.DeepCopy()
	for _, hook := range hooks {
		delete(changed.Annotations, hook)
	}
	if len(changed.Annotations) == len(machine.Annotations) {
		return nil
	}
	if err := r.Client.Patch(ctx, changed, client.MergeFrom(machine)); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("taking hooks off Machine %s: %w", machine.Name, err)
	}
	return nil
}

// deleteAll deletes all Machines at once. Nothing of etcd is to be kept, so no hook keeps them.
func (r *Reconciler) deleteAll(ctx context.Context, inv *observe.Inventory) error {
	var failures []error
	for _, machine := range inv.Machines.SortedByCreationTimestamp() {
		if err := r.release(ctx, inv, machine); err != nil {
			failures = append(failures, err)
			continue
		}
		if machine.DeletionTimestamp.IsZero() {
			failures = append(failures, r.deleteMachine(ctx, machine))
		}
	}
	return kerrors.NewAggregate(failures)
}
