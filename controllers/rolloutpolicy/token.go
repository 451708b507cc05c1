// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package rolloutpolicy

import (
	"context"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/jointoken"
)

// replaceDead deletes a Machine that is to be admitted and can never join, and reports whether it did. Its MachineSet
// makes another one, with a token of its own. Where nobody knows whether the Machine could join it is not admitted yet,
// and unknown says so: a host with a dead token waits for ever, and a Machine without one is asked about again.
func (r *Reconciler) replaceDead(
	ctx context.Context, policy *quoinv1.RolloutPolicy, cluster *clusterv1.Cluster, seen *observation,
	machine *clusterv1.Machine,
) (dead bool, unknown string, err error) {
	if r.Clock.Since(machine.CreationTimestamp.Time) < jointoken.Age || !jointoken.Replaceable(machine) {
		return false, "", nil
	}
	verdict, err := jointoken.Judge(ctx, r.APIReader, r.ClusterCache, client.ObjectKeyFromObject(cluster), machine,
		r.Clock.Now())
	if err != nil || verdict == (jointoken.Verdict{}) {
		return false, "", err
	}
	live := &infrav1.QuoinMachine{}
	of := client.ObjectKey{Namespace: machine.Namespace, Name: machine.Spec.InfrastructureRef.Name}
	if err := r.APIReader.Get(ctx, of, live); err != nil || live.Spec.ProviderID != "" {
		// It is not here, as after a restore, or has a host: its Node may run.
		return false, "", client.IgnoreNotFound(err)
	}
	if verdict.Unknown != "" {
		return false, verdict.Unknown, nil
	}
	if is, err := r.current(ctx, seen, policy, cluster); err != nil || !is {
		return true, "", err
	}
	if err := jointoken.Replace(ctx, r.Client, r.Recorder, policy, machine, verdict.Gone); err != nil {
		return false, "", err
	}
	return true, "", nil
}
