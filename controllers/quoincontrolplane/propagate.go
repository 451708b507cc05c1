// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoincontrolplane

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"sync"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	kerrors "k8s.io/apimachinery/pkg/util/errors"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
)

// Field managers of server-side apply. A label that leaves the template leaves the objects, because only we own it.
const (
	machineManager  = "quoin-control-plane"
	metadataManager = "quoin-control-plane-metadata"
)

// propagate brings to existing Machines what needs no new ones: labels, annotations, readiness gates, taints,
// minReadySeconds and the time-outs of their deletion.
func (r *Reconciler) propagate(ctx context.Context, s *scope) error {
	var failures []error
	for _, machine := range s.machines.SortedByCreationTimestamp() {
		failures = append(failures, r.propagateTo(ctx, s, machine))
	}
	return kerrors.NewAggregate(failures)
}

// propagated tells that propagate would write nothing. What it writes must not be decided by a cache: it would put hooks back
// on a Machine that was let go since.
func (r *Reconciler) propagated(s *scope) bool {
	has := func(desired, current client.Object, manager string) bool {
		digest, err := digestOf(desired)
		return err == nil && r.applied.is(appliedKey{uid: current.GetUID(), manager: manager}, digest) && holds(desired, current)
	}
	for name, machine := range s.machines {
		if !machine.DeletionTimestamp.IsZero() {
			if s.changeDeletion(machine.DeepCopy()) {
				return false
			}
			continue
		}
		infra, config := s.infra[name], s.configs[name]
		switch {
		case !has(s.desiredMachine(name, machine), machine, machineManager),
			infra != nil && !has(s.metadataOf(infra, infrav1.GroupVersion.WithKind("QuoinMachine")), infra, metadataManager),
			infra != nil && s.lacksHold(infra),
			config != nil && !has(s.metadataOf(config, bootstrapv1.GroupVersion.WithKind(configKind)), config, metadataManager):
			return false
		}
	}
	return true
}

func (r *Reconciler) propagateTo(ctx context.Context, s *scope, machine *clusterv1.Machine) error {
	name := machine.Name
	if !machine.DeletionTimestamp.IsZero() {
		return r.propagateDeletion(ctx, s, machine)
	}
	if err := r.applyOnce(ctx, s.desiredMachine(name, machine), machine, machineManager); err != nil {
		return fmt.Errorf("propagating to Machine %s: %w", name, err)
	}
	if infra := s.infra[name]; infra != nil {
		if err := r.applyOnce(ctx, s.metadataOf(infra, infrav1.GroupVersion.WithKind("QuoinMachine")), infra, metadataManager); err != nil {
			return fmt.Errorf("propagating to QuoinMachine %s: %w", infra.Name, err)
		}
		if err := r.keepHold(ctx, s, infra); err != nil {
			return err
		}
	}
	if config := s.configs[name]; config != nil {
		if err := r.applyOnce(ctx, s.metadataOf(config, bootstrapv1.GroupVersion.WithKind(configKind)), config, metadataManager); err != nil {
			return fmt.Errorf("propagating to KubeadmConfig %s: %w", config.Name, err)
		}
	}
	return nil
}

// propagateDeletion lets a user end a drain that takes too long. Nothing else of a Machine that leaves is touched: the
// hooks, above all, must not come back.
func (r *Reconciler) propagateDeletion(ctx context.Context, s *scope, machine *clusterv1.Machine) error {
	original := machine.DeepCopy()
	if !s.changeDeletion(machine) {
		return nil
	}
	if err := r.Client.Patch(ctx, machine, client.MergeFrom(original)); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("propagating deletion time-outs to Machine %s: %w", machine.Name, err)
	}
	return nil
}

// changeDeletion gives a Machine the time-outs that are wanted now, and tells whether it had others.
func (s *scope) changeDeletion(machine *clusterv1.Machine) bool {
	wanted, before := s.plane.Spec.MachineTemplate.Spec.Deletion, machine.Spec.Deletion
	machine.Spec.Deletion.NodeDrainTimeoutSeconds = wanted.NodeDrainTimeoutSeconds
	machine.Spec.Deletion.NodeVolumeDetachTimeoutSeconds = wanted.NodeVolumeDetachTimeoutSeconds
	if wanted.NodeDeletionTimeoutSeconds != nil {
		machine.Spec.Deletion.NodeDeletionTimeoutSeconds = wanted.NodeDeletionTimeoutSeconds
	}
	return !equality.Semantic.DeepEqual(before, machine.Spec.Deletion)
}

// metadataOf is an object with nothing but the labels and annotations that the template gives.
func (s *scope) metadataOf(object client.Object, kind schema.GroupVersionKind) client.Object {
	desired := &unstructured.Unstructured{}
	desired.SetGroupVersionKind(kind)
	desired.SetNamespace(object.GetNamespace())
	desired.SetName(object.GetName())
	desired.SetUID(object.GetUID())
	desired.SetLabels(s.labels())
	desired.SetAnnotations(s.annotations())
	return desired
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
	if err := r.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(applied), client.ForceOwnership, client.FieldOwner(manager)); err != nil {
		return err
	}
	object.SetUID(applied.GetUID())
	return nil
}

// applyOnce applies the object unless the same was applied before and still holds: a reconcile every few seconds must not
// be a write every few seconds.
func (r *Reconciler) applyOnce(ctx context.Context, desired, current client.Object, manager string) error {
	key := appliedKey{uid: current.GetUID(), manager: manager}
	digest, err := digestOf(desired)
	if err != nil || r.applied.is(key, digest) && holds(desired, current) {
		return err
	}
	if err := r.apply(ctx, desired, manager); err != nil {
		// Gone: the next look will show it.
		if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			return nil
		}
		return err
	}
	r.applied.set(key, digest)
	return nil
}

func digestOf(desired client.Object) (uint64, error) {
	data, err := json.Marshal(desired)
	if err != nil {
		return 0, err
	}
	digest := fnv.New64a()
	_, _ = digest.Write(data)
	return digest.Sum64(), nil
}

// holds tells that the object has what was applied. What was taken out of the template since shows in the digest.
func holds(desired, current client.Object) bool {
	for name, value := range desired.GetLabels() {
		if has, ok := current.GetLabels()[name]; !ok || has != value {
			return false
		}
	}
	for name, value := range desired.GetAnnotations() {
		if has, ok := current.GetAnnotations()[name]; !ok || has != value {
			return false
		}
	}
	wanted, ok := desired.(*clusterv1.Machine)
	if !ok {
		return true
	}
	has := current.(*clusterv1.Machine).Spec.DeepCopy()
	// Defaulted by admission when the template leaves it open.
	if wanted.Spec.Deletion.NodeDeletionTimeoutSeconds == nil {
		has.Deletion.NodeDeletionTimeoutSeconds = nil
	}
	return equality.Semantic.DeepEqual(wanted.Spec.MinReadySeconds, has.MinReadySeconds) &&
		equality.Semantic.DeepEqual(wanted.Spec.ReadinessGates, has.ReadinessGates) &&
		equality.Semantic.DeepEqual(wanted.Spec.Deletion, has.Deletion) &&
		equality.Semantic.DeepEqual(wanted.Spec.Taints, has.Taints)
}

type appliedKey struct {
	uid     types.UID
	manager string
}

// appliedCache remembers the digest of what was applied to an object. Safe for concurrent use; its zero value is empty.
type appliedCache struct {
	mu      sync.Mutex
	digests map[appliedKey]uint64
}

// mostApplied bounds the memory; forgetting costs one apply per object.
const mostApplied = 10000

func (c *appliedCache) is(key appliedKey, digest uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	known, ok := c.digests[key]
	return ok && known == digest
}

func (c *appliedCache) set(key appliedKey, digest uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.digests == nil || len(c.digests) >= mostApplied {
		c.digests = map[appliedKey]uint64{}
	}
	c.digests[key] = digest
}
