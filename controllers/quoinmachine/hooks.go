// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinmachine

import (
	"context"
	"fmt"
	"maps"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/lifecycle"
)

// annotateHooks brings spec.lifecycleHooks to the Machine, where Cluster API honors them. It reports whether it wrote.
func (r *Reconciler) annotateHooks(
	ctx context.Context, quoinMachine *infrav1.QuoinMachine, v *observation,
) (bool, error) {
	if v.machine == nil {
		return false, nil
	}
	annotations := lifecycle.Annotations(quoinMachine, v.machine)
	if maps.Equal(annotations, v.machine.Annotations) || len(annotations) == 0 && len(v.machine.Annotations) == 0 {
		return false, nil
	}
	machine := v.machine.DeepCopy()
	machine.Annotations = annotations
	// Exactly the Machine that was read: a hook must not be added to one whose deletion has begun since, nor to another of
	// its name.
	change := client.MergeFromWithOptions(v.machine, client.MergeFromWithOptimisticLock{})
	if err := r.Client.Patch(ctx, machine, change); err != nil {
		if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			// An event tells what became of it.
			return true, nil
		}
		return false, fmt.Errorf("bringing lifecycle hooks to Machine %s/%s: %w", machine.Namespace, machine.Name, err)
	}
	v.machine = machine
	return true, nil
}

// held says whether the host of a QuoinMachine in deletion must not be touched yet, and shows why.
func (r *Reconciler) held(ctx context.Context, quoinMachine *infrav1.QuoinMachine, v *observation) (bool, error) {
	if v.machine == nil {
		// A cache that lags must not look like a Machine that is gone.
		machine, err := r.ownerNow(ctx, quoinMachine)
		if err != nil {
			return true, err
		}
		v.machine = machine
	}
	verdict := lifecycle.Release(quoinMachine, v.machine)
	if verdict.Allowed {
		return false, nil
	}
	v.hold = &obstacle{verdict.Reason, verdict.Message}
	// Once: what follows says the same until somebody acts.
	if r.Recorder != nil && verdict.Reason == infrav1.MachineInUseReason &&
		conditions.GetReason(quoinMachine, infrav1.MachineReadyCondition) != verdict.Reason {
		r.Recorder.Eventf(quoinMachine, v.machine, "Warning", verdict.Reason, verdict.Reason, "%s", verdict.Message)
	}
	return true, nil
}

// ownerNow reads the Machine that owns the QuoinMachine from the API server; nil when there is none.
func (r *Reconciler) ownerNow(ctx context.Context, quoinMachine *infrav1.QuoinMachine) (*clusterv1.Machine, error) {
	for _, owner := range quoinMachine.OwnerReferences {
		if owner.Kind != "Machine" || !isClusterAPI(owner) {
			continue
		}
		machine := &clusterv1.Machine{}
		err := r.APIReader.Get(ctx, client.ObjectKey{Namespace: quoinMachine.Namespace, Name: owner.Name}, machine)
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		if err != nil {
			return nil, fmt.Errorf("reading Machine %s/%s: %w", quoinMachine.Namespace, owner.Name, err)
		}
		return machine, nil
	}
	return r.referringNow(ctx, quoinMachine)
}

// referringNow finds the Machine that refers to the QuoinMachine, for an owner reference may have been stripped, and a
// host must not be reset under a Machine that lives; nil when there is none. One that never had a host has nothing to
// lose.
func (r *Reconciler) referringNow(ctx context.Context, quoinMachine *infrav1.QuoinMachine) (*clusterv1.Machine, error) {
	cluster := quoinMachine.Labels[clusterv1.ClusterNameLabel]
	if quoinMachine.Spec.ProviderID == "" || cluster == "" {
		return nil, nil
	}
	machines := &clusterv1.MachineList{}
	if err := r.APIReader.List(ctx, machines, client.InNamespace(quoinMachine.Namespace),
		client.MatchingLabels{clusterv1.ClusterNameLabel: cluster}); err != nil {
		return nil, fmt.Errorf("listing the Machines of Cluster %s/%s: %w", quoinMachine.Namespace, cluster, err)
	}
	for i := range machines.Items {
		ref := machines.Items[i].Spec.InfrastructureRef
		if ref.Name == quoinMachine.Name && ref.Kind == "QuoinMachine" && ref.APIGroup == infrav1.GroupVersion.Group {
			return &machines.Items[i], nil
		}
	}
	return nil, nil
}

func isClusterAPI(owner metav1.OwnerReference) bool {
	group, err := schema.ParseGroupVersion(owner.APIVersion)
	return err == nil && group.Group == clusterv1.GroupVersion.Group
}
