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
	"k8s.io/apimachinery/pkg/runtime/schema"
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

// application is what a field manager applies to an object.
type application struct {
	wanted, current client.Object
	manager         string
}

// applications are those to a Machine and to what belongs to it.
func applications(inv *observe.Inventory, machine *clusterv1.Machine) []application {
	all := []application{{desiredMachine(inv, machine), machine, machineManager}}
	metadata := func(object client.Object, kind schema.GroupVersionKind) {
		all = append(all, application{desired.Metadata(inv.ControlPlane, inv.Cluster.Name, object, kind), object,
			metadataManager})
	}
	if infra := inv.QuoinMachines[machine.Name]; infra != nil {
		metadata(infra, infrav1.GroupVersion.WithKind("QuoinMachine"))
	}
	if config := inv.KubeadmConfigs[machine.Name]; config != nil {
		metadata(config, bootstrapv1.GroupVersion.WithKind(desired.ConfigKind))
	}
	return all
}

// propagated reports whether propagate would write nothing. What it writes must not be decided by a cache: it would put
// hooks back on a Machine that was let go since.
func (r *Reconciler) propagated(inv *observe.Inventory) bool {
	for name, machine := range inv.Machines {
		if !machine.DeletionTimestamp.IsZero() {
			if changeDeletion(inv.ControlPlane, machine.DeepCopy()) {
				return false
			}
			continue
		}
		if infra := inv.QuoinMachines[name]; infra != nil && inv.LacksHostHook(infra) {
			return false
		}
		for _, a := range applications(inv, machine) {
			digest, err := digestOf(a.wanted)
			if err != nil || !r.history.Applied.Is(applied(inv, a.current, a.manager), digest) || !holds(a.wanted, a.current) {
				return false
			}
		}
	}
	return true
}

func (r *Reconciler) propagateTo(ctx context.Context, inv *observe.Inventory, machine *clusterv1.Machine) error {
	if !machine.DeletionTimestamp.IsZero() {
		for _, a := range applications(inv, machine) {
			r.history.Applied.Forget(applied(inv, a.current, a.manager))
		}
		return r.propagateDeletion(ctx, inv, machine)
	}
	for _, a := range applications(inv, machine) {
		if err := r.applyOnce(ctx, inv, a); err != nil {
			return fmt.Errorf("propagating to %s %s: %w", a.wanted.GetObjectKind().GroupVersionKind().Kind,
				a.current.GetName(), err)
		}
		if infra, ok := a.current.(*infrav1.QuoinMachine); ok {
			if err := r.ensureHostHook(ctx, inv, infra); err != nil {
				return err
			}
		}
	}
	return nil
}

// propagateDeletion lets a user end a drain that takes too long, and keep pods off the node meanwhile. Nothing else of
// a Machine that leaves is touched: the hooks, above all, must not come back.
func (r *Reconciler) propagateDeletion(
	ctx context.Context, inv *observe.Inventory, machine *clusterv1.Machine,
) error {
	changed := machine.DeepCopy()
	if !changeDeletion(inv.ControlPlane, changed) {
		return nil
	}
	if err := r.Client.Patch(ctx, changed, client.MergeFrom(machine)); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("propagating deletion time-outs and taints to Machine %s: %w", machine.Name, err)
	}
	return nil
}

// changeDeletion gives a Machine the time-outs and taints that are wanted now, and reports whether it had others.
func changeDeletion(controlPlane *controlplanev1.QuoinControlPlane, machine *clusterv1.Machine) bool {
	template, before := controlPlane.Spec.MachineTemplate.Spec, machine.Spec
	wanted := template.Deletion
	machine.Spec.Deletion.NodeDrainTimeoutSeconds = wanted.NodeDrainTimeoutSeconds
	machine.Spec.Deletion.NodeVolumeDetachTimeoutSeconds = wanted.NodeVolumeDetachTimeoutSeconds
	if wanted.NodeDeletionTimeoutSeconds != nil {
		machine.Spec.Deletion.NodeDeletionTimeoutSeconds = wanted.NodeDeletionTimeoutSeconds
	}
	machine.Spec.Taints = template.Taints
	return !equality.Semantic.DeepEqual(before.Deletion, machine.Spec.Deletion) ||
		!equality.Semantic.DeepEqual(before.Taints, machine.Spec.Taints)
}

// apply applies an object whole, server-side, and notes its UID.
func (r *Reconciler) apply(
	ctx context.Context, object client.Object, manager string, options ...client.ApplyOption,
) error {
	raw, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return err
	}
	applied := &unstructured.Unstructured{Object: raw}
	unstructured.RemoveNestedField(applied.Object, "status")
	unstructured.RemoveNestedField(applied.Object, "metadata", "creationTimestamp")
	if err := r.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(applied),
		append(options, client.ForceOwnership, client.FieldOwner(manager))...); err != nil {
		return err
	}
	object.SetUID(applied.GetUID())
	return nil
}

func desiredMachine(inv *observe.Inventory, machine *clusterv1.Machine) *clusterv1.Machine {
	return desired.Machine(inv.ControlPlane, inv.Cluster.Name, machine.Name, machine, inv.PreCreated(machine))
}

// applied names what the field manager applied to the object.
func applied(inv *observe.Inventory, object client.Object, manager string) history.Applied {
	return history.Applied{ControlPlane: inv.ControlPlane.UID, Object: object.GetUID(), Manager: manager}
}

// applyOnce applies the object unless the same was applied before and still holds: a reconcile every few seconds must
// not be a write every few seconds.
func (r *Reconciler) applyOnce(ctx context.Context, inv *observe.Inventory, a application) error {
	key := applied(inv, a.current, a.manager)
	digest, err := digestOf(a.wanted)
	if err != nil || r.history.Applied.Is(key, digest) && holds(a.wanted, a.current) {
		return err
	}
	if err := r.apply(ctx, a.wanted, a.manager); err != nil {
		// Gone: the next observation will show it.
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
	if !includes(current.GetLabels(), wanted.GetLabels()) || !includes(current.GetAnnotations(), wanted.GetAnnotations()) {
		return false
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

func includes(current, wanted map[string]string) bool {
	for name, value := range wanted {
		if has, ok := current[name]; !ok || has != value {
			return false
		}
	}
	return true
}
