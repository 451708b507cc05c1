// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoincontrolplane

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	kerrors "k8s.io/apimachinery/pkg/util/errors"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/controllers/quoincontrolplane/desired"
	"github.com/quoin-dev/cluster-api-provider-quoin/controllers/quoincontrolplane/history"
	"github.com/quoin-dev/cluster-api-provider-quoin/controllers/quoincontrolplane/observe"
)

// Field managers of server-side apply. A label that leaves the template leaves the objects, because only we own it.
const (
	machineManager  = "quoin-control-plane"
	metadataManager = "quoin-control-plane-metadata"
)

// propagate brings to existing Machines what needs no new ones: labels, annotations, readiness gates, taints,
// minReadySeconds and the time-outs of their deletion.
func (r *Reconciler) propagate(ctx context.Context, inv *observe.Inventory) error {
	var failures []error
	for _, machine := range inv.Machines.SortedByCreationTimestamp() {
		failures = append(failures, r.propagateTo(ctx, inv, machine))
	}
	return kerrors.NewAggregate(failures)
}

// propagated reports whether propagate would write nothing. What it writes must not be decided by a cache: it would put
// hooks back on a Machine that was let go since.
func (r *Reconciler) propagated(inv *observe.Inventory) bool {
	has := func(wanted, current client.Object, manager string) bool {
		digest, err := digestOf(wanted)
		return err == nil && r.history.Applied.Is(applied(inv, current, manager), digest) && holds(wanted, current)
	}
	for name, machine := range inv.Machines {
		if !machine.DeletionTimestamp.IsZero() {
			if changeDeletion(inv.ControlPlane, machine.DeepCopy()) {
				return false
			}
			continue
		}
		infra, config := inv.QuoinMachines[name], inv.KubeadmConfigs[name]
		switch {
		case !has(desiredMachine(inv, machine), machine, machineManager),
			infra != nil && !has(desired.Metadata(inv.ControlPlane, inv.Cluster.Name, infra,
				infrav1.GroupVersion.WithKind("QuoinMachine")),
				infra, metadataManager),
			infra != nil && inv.LacksHold(infra),
			config != nil && !has(desired.Metadata(inv.ControlPlane, inv.Cluster.Name, config,
				bootstrapv1.GroupVersion.WithKind(desired.ConfigKind)), config, metadataManager):
			return false
		}
	}
	return true
}

func (r *Reconciler) propagateTo(ctx context.Context, inv *observe.Inventory, machine *clusterv1.Machine) error {
	name := machine.Name
	if !machine.DeletionTimestamp.IsZero() {
		return r.propagateDeletion(ctx, inv, machine)
	}
	if err := r.applyOnce(ctx, inv, desiredMachine(inv, machine), machine, machineManager); err != nil {
		return fmt.Errorf("propagating to Machine %s: %w", name, err)
	}
	if infra := inv.QuoinMachines[name]; infra != nil {
		if err := r.applyOnce(ctx, inv, desired.Metadata(inv.ControlPlane, inv.Cluster.Name, infra,
			infrav1.GroupVersion.WithKind("QuoinMachine")), infra, metadataManager); err != nil {
			return fmt.Errorf("propagating to QuoinMachine %s: %w", infra.Name, err)
		}
		if err := r.keepHold(ctx, inv, infra); err != nil {
			return err
		}
	}
	if config := inv.KubeadmConfigs[name]; config != nil {
		if err := r.applyOnce(ctx, inv, desired.Metadata(inv.ControlPlane, inv.Cluster.Name, config,
			bootstrapv1.GroupVersion.WithKind(desired.ConfigKind)), config, metadataManager); err != nil {
			return fmt.Errorf("propagating to KubeadmConfig %s: %w", config.Name, err)
		}
	}
	return nil
}

// propagateDeletion lets a user end a drain that takes too long. Nothing else of a Machine that leaves is touched: the
// hooks, above all, must not come back.
func (r *Reconciler) propagateDeletion(
	ctx context.Context, inv *observe.Inventory, machine *clusterv1.Machine,
) error {
	changed := machine.DeepCopy()
	if !changeDeletion(inv.ControlPlane, changed) {
		return nil
	}
	if err := r.Client.Patch(ctx, changed, client.MergeFrom(machine)); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("propagating deletion time-outs to Machine %s: %w", machine.Name, err)
	}
	return nil
}

// changeDeletion gives a Machine the time-outs that are wanted now, and reports whether it had others.
func changeDeletion(controlPlane *controlplanev1.QuoinControlPlane, machine *clusterv1.Machine) bool {
	wanted, before := controlPlane.Spec.MachineTemplate.Spec.Deletion, machine.Spec.Deletion
	machine.Spec.Deletion.NodeDrainTimeoutSeconds = wanted.NodeDrainTimeoutSeconds
	machine.Spec.Deletion.NodeVolumeDetachTimeoutSeconds = wanted.NodeVolumeDetachTimeoutSeconds
	if wanted.NodeDeletionTimeoutSeconds != nil {
		machine.Spec.Deletion.NodeDeletionTimeoutSeconds = wanted.NodeDeletionTimeoutSeconds
	}
	return !equality.Semantic.DeepEqual(before, machine.Spec.Deletion)
}

// apply applies an object whole, server-side, and notes its UID.
func (r *Reconciler) apply(ctx context.Context, object client.Object, manager string) error {
	raw, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return err
	}
	applied := &unstructured.Unstructured{Object: raw}
	unstructured.RemoveNestedField(applied.Object, "status")
	unstructured.RemoveNestedField(applied.Object, "metadata", "creationTimestamp")
	if err := r.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(applied), client.ForceOwnership,
		client.FieldOwner(manager)); err != nil {
		return err
	}
	object.SetUID(applied.GetUID())
	return nil
}

// desiredMachine is what the Machine is to be like.
func desiredMachine(inv *observe.Inventory, machine *clusterv1.Machine) *clusterv1.Machine {
	return desired.Machine(inv.ControlPlane, inv.Cluster.Name, machine.Name, machine, inv.PreCreated(machine))
}

// applied names what the field manager applied to the object.
func applied(inv *observe.Inventory, object client.Object, manager string) history.Applied {
	return history.Applied{Plane: inv.ControlPlane.UID, Object: object.GetUID(), Manager: manager}
}

// applyOnce applies the object unless the same was applied before and still holds: a reconcile every few seconds must
// not be a write every few seconds.
func (r *Reconciler) applyOnce(
	ctx context.Context, inv *observe.Inventory, wanted, current client.Object, manager string,
) error {
	key := applied(inv, current, manager)
	digest, err := digestOf(wanted)
	if err != nil || r.history.Applied.Is(key, digest) && holds(wanted, current) {
		return err
	}
	if err := r.apply(ctx, wanted, manager); err != nil {
		// Gone: the next look will show it.
		if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			return nil
		}
		return err
	}
	r.history.Applied.Set(key, digest)
	return nil
}

func digestOf(wanted client.Object) (uint64, error) {
	data, err := json.Marshal(wanted)
	if err != nil {
		return 0, err
	}
	digest := fnv.New64a()
	_, _ = digest.Write(data)
	return digest.Sum64(), nil
}

// holds reports whether the object has what was applied. What was taken out of the template since shows in the digest.
func holds(wanted, current client.Object) bool {
	for name, value := range wanted.GetLabels() {
		if has, ok := current.GetLabels()[name]; !ok || has != value {
			return false
		}
	}
	for name, value := range wanted.GetAnnotations() {
		if has, ok := current.GetAnnotations()[name]; !ok || has != value {
			return false
		}
	}
	machine, ok := wanted.(*clusterv1.Machine)
	if !ok {
		return true
	}
	has := current.(*clusterv1.Machine).Spec.DeepCopy()
	// Defaulted by admission when the template leaves it open.
	if machine.Spec.Deletion.NodeDeletionTimeoutSeconds == nil {
		has.Deletion.NodeDeletionTimeoutSeconds = nil
	}
	return equality.Semantic.DeepEqual(machine.Spec.MinReadySeconds, has.MinReadySeconds) &&
		equality.Semantic.DeepEqual(machine.Spec.ReadinessGates, has.ReadinessGates) &&
		equality.Semantic.DeepEqual(machine.Spec.Deletion, has.Deletion) &&
		equality.Semantic.DeepEqual(machine.Spec.Taints, has.Taints)
}
