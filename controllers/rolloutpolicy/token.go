// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package rolloutpolicy

import (
	"context"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/jointoken"
)

// replaceDead deletes a Machine that is to be admitted and can never join, and reports whether it did. Its MachineSet
// makes another one, with a token of its own. What is not known deletes nothing: the join says what is wrong.
func (r *Reconciler) replaceDead(
	ctx context.Context, policy *quoinv1.RolloutPolicy, cluster *clusterv1.Cluster, seen *observation,
	machine *clusterv1.Machine,
) (bool, error) {
	if r.Clock.Since(machine.CreationTimestamp.Time) < jointoken.Age || !jointoken.Replaceable(machine) {
		return false, nil
	}
	gone, err := jointoken.Gone(ctx, r.APIReader, r.ClusterCache, client.ObjectKeyFromObject(cluster), machine)
	if err != nil {
		ctrl.LoggerFrom(ctx).Info("Whether the bootstrap token of a Machine is there is not known", "machine", machine.Name,
			"reason", err.Error())
	}
	if gone == "" {
		return false, nil
	}
	live := &infrav1.QuoinMachine{}
	of := client.ObjectKey{Namespace: machine.Namespace, Name: machine.Spec.InfrastructureRef.Name}
	if err := r.APIReader.Get(ctx, of, live); err != nil || live.Spec.ProviderID != "" {
		// It is not here, as after a restore, or has a host: its Node may run.
		return false, client.IgnoreNotFound(err)
	}
	if is, err := r.current(ctx, seen, policy, cluster); err != nil || !is {
		return true, err
	}
	if err := jointoken.Replace(ctx, r.Client, r.Recorder, policy, machine, gone); err != nil {
		return false, err
	}
	return true, nil
}
