// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinmachine

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/jointoken"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/rollout"
)

// +kubebuilder:rbac:groups=quoin.cluster.x-k8s.io,resources=rolloutpolicies,verbs=get;list;watch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machinedeployments,verbs=get;list;watch
// +kubebuilder:rbac:groups=bootstrap.cluster.x-k8s.io,resources=kubeadmconfigs,verbs=get
// +kubebuilder:rbac:groups=bootstrap.cluster.x-k8s.io,resources=kubeadmconfigtemplates,verbs=get

// notAdmitted says why a Machine of a MachineDeployment may not claim a host yet: a RolloutPolicy selects it and did
// not admit it. It is empty when none does, so that nothing waits for a policy that is gone.
func (r *Reconciler) notAdmitted(ctx context.Context, reader client.Reader, v *observation) (string, error) {
	name := v.machine.Labels[clusterv1.MachineDeploymentNameLabel]
	if name == "" || !rollout.AdmittedAt(v.machine).IsZero() || !v.cluster.DeletionTimestamp.IsZero() {
		return "", nil
	}
	policies := &quoinv1.RolloutPolicyList{}
	if err := reader.List(ctx, policies, client.InNamespace(v.machine.Namespace),
		client.UnsafeDisableDeepCopy); err != nil {
		return "", fmt.Errorf("listing the RolloutPolicies of namespace %s: %w", v.machine.Namespace, err)
	}
	policy := rollout.Of(policies.Items, v.cluster.Name)
	if policy == nil {
		return "", nil
	}
	pool := &clusterv1.MachineDeployment{}
	err := reader.Get(ctx, client.ObjectKey{Namespace: v.machine.Namespace, Name: name}, pool)
	if apierrors.IsNotFound(err) || err == nil && !rollout.Leads(v.cluster.Name, pool) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("reading MachineDeployment %s/%s: %w", v.machine.Namespace, name, err)
	}
	place, err := rollout.Select(&policy.Spec, name, pool.Labels)
	if err != nil {
		return fmt.Sprintf("RolloutPolicy %s: %v; correct the selector", policy.Name, err), nil
	}
	if place < 0 {
		return "", nil
	}
	why := "it has not admitted the Machine yet"
	for _, progress := range policy.Status.MachineDeployments {
		if progress.Name == name && progress.Message != "" {
			why = progress.Message
		}
	}
	if annotations.HasPaused(policy) {
		why = fmt.Sprintf("it is paused: take annotation %s off it", clusterv1.PausedAnnotation)
	}
	return fmt.Sprintf("RolloutPolicy %s: %s", policy.Name, why), nil
}

// replaceDead deletes a Machine that may claim a host and can never join. A policy's controller looks at the token when
// it admits the Machine; nobody does where the policy goes, nor while there is no host. It reports whether the Machine
// is to have no host, and when that is asked again where nobody knows whether it could join.
func (r *Reconciler) replaceDead(
	ctx context.Context, quoinMachine *infrav1.QuoinMachine, v *observation,
) (again time.Duration, dead bool, err error) {
	since := v.machine.CreationTimestamp.Time
	if admitted := rollout.AdmittedAt(v.machine); admitted.After(since) {
		since = admitted
	}
	if v.now.Sub(since) < jointoken.Age || !jointoken.Replaceable(v.machine) {
		return 0, false, nil
	}
	verdict, err := jointoken.Judge(ctx, r.APIReader, r.ClusterCache, client.ObjectKeyFromObject(v.cluster), v.machine,
		v.now)
	if err != nil || verdict == (jointoken.Verdict{}) {
		return 0, false, err
	}
	if verdict.Unknown != "" {
		v.obstacle = &obstacle{infrav1.MachineWaitingForHostReason, fmt.Sprintf("Machine %s: %s", v.machine.Name,
			verdict.Unknown)}
		return unseenRecheck, true, nil
	}
	v.obstacle = &obstacle{infrav1.MachineWaitingForHostReason, fmt.Sprintf("no host is claimed: the bootstrap token of "+
		"Machine %s is gone (Secret %s of the Cluster), so it could never join; it is deleted, and its MachineSet makes "+
		"another one", v.machine.Name, verdict.Gone)}
	return 0, true, jointoken.Replace(ctx, r.Client, r.Recorder, quoinMachine, v.machine, verdict.Gone)
}

// waitingForRollout names the QuoinMachines of a policy's Cluster that wait for an admission.
func (r *Reconciler) waitingForRollout(ctx context.Context, object client.Object) []ctrl.Request {
	policy, ok := object.(*quoinv1.RolloutPolicy)
	if !ok {
		return nil
	}
	machines := &infrav1.QuoinMachineList{}
	if err := r.Client.List(ctx, machines, client.UnsafeDisableDeepCopy, client.InNamespace(policy.Namespace),
		client.MatchingLabels{clusterv1.ClusterNameLabel: policy.Spec.ClusterName}); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing the QuoinMachines that wait for a rollout", "rolloutPolicy", policy.Name)
		return nil
	}
	var requests []ctrl.Request
	for i := range machines.Items {
		if conditions.GetReason(&machines.Items[i], infrav1.MachineHostClaimedCondition) ==
			infrav1.MachineWaitingForRolloutReason {
			requests = append(requests, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&machines.Items[i])})
		}
	}
	return requests
}
