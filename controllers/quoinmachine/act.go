// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinmachine

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/placement"
)

// reconcileNormal claims a host, once. Everything after that is the host's progress, which summarize shows.
func (r *Reconciler) reconcileNormal(
	ctx context.Context, quoinMachine *infrav1.QuoinMachine, v *observation,
) (ctrl.Result, error) {
	if v.machine == nil {
		v.obstacle = &obstacle{infrav1.MachineWaitingForOwnerReason, "waiting for a Machine to own this QuoinMachine"}
		return ctrl.Result{}, nil
	}
	if v.host == nil && quoinMachine.Spec.ProviderID != "" {
		return r.hostLost(ctx, quoinMachine, v)
	}
	if v.host == nil {
		return r.claim(ctx, quoinMachine, v)
	}
	// Patched together with the status. It is set only here, so it also repairs a claim whose maker died.
	quoinMachine.Spec.ProviderID = v.host.ProviderID()
	return r.freeVolumes(ctx, quoinMachine, v), nil
}

// claim takes a free host by an update that fails when anybody else changed the host since it was read.
func (r *Reconciler) claim(
	ctx context.Context, quoinMachine *infrav1.QuoinMachine, v *observation,
) (ctrl.Result, error) {
	if again, may, err := r.mayClaim(ctx, v); err != nil || !may {
		return ctrl.Result{RequeueAfter: again}, err
	}
	request, err := selectorOf(quoinMachine)
	if err != nil {
		v.obstacle = &obstacle{infrav1.MachineSelectorInvalidReason,
			fmt.Sprintf("spec.hostSelector cannot be read: %v; correct it in the machine template", err)}
		return ctrl.Result{}, nil
	}
	request.FailureDomain, request.Version = v.machine.Spec.FailureDomain, v.machine.Spec.Version
	request.Pool = placement.Pool(v.machine)
	request.PreferFormer = quoinMachine.Spec.HostPreference == infrav1.HostPreferenceFormer
	request.Now = r.Clock.Now()
	free, err := r.free(ctx, quoinMachine)
	if err != nil {
		return ctrl.Result{}, err
	}
	if request.FailCgroupV1, err = r.failsOnCgroupV1(ctx, v, free); err != nil {
		return ctrl.Result{}, err
	}
	key := client.ObjectKeyFromObject(quoinMachine)
	if fits, others := r.reservations.fits(request, free, key); !fits {
		return r.noHost(ctx, quoinMachine, v, request, others)
	}
	if request.Members, request.Taken, err = r.members(ctx, quoinMachine, v); err != nil {
		return ctrl.Result{}, err
	}
	picked, others := r.reservations.choose(request, free, key, groupOf(quoinMachine))
	if picked.Chosen == nil {
		return r.noHost(ctx, quoinMachine, v, request, others)
	}
	host := hostNamed(free, picked.Chosen)
	claimed := false
	defer func() {
		if !claimed {
			r.reservations.release(client.ObjectKeyFromObject(host), key)
		}
	}()
	// A claim made a moment ago may not be in the cache: two hosts for one machine would be one too many.
	if own, err := r.claimedHost(ctx, quoinMachine, v.machine); err != nil || own != nil {
		v.host = own
		if own != nil {
			quoinMachine.Spec.ProviderID = own.ProviderID()
		}
		return ctrl.Result{}, err
	}
	// Asked once more, of the API server: a cache that is behind knows nothing of the newest API server yet.
	switch why, again, err := r.unsupported(ctx, r.APIReader, v); {
	case err != nil:
		return ctrl.Result{}, err
	case why != "":
		v.obstacle = &obstacle{infrav1.MachineWaitingForControlPlaneReason, why}
		return ctrl.Result{RequeueAfter: cmp.Or(again, time.Second)}, nil
	}
	if r.Withholds != nil {
		why, err := r.Withholds(ctx, v.machine)
		if err != nil {
			return ctrl.Result{}, err
		}
		if why != "" {
			v.obstacle = &obstacle{infrav1.MachineWaitingForControlPlaneReason, why}
			return ctrl.Result{RequeueAfter: unseenRecheck}, nil
		}
	}
	// So are policies, which are often applied together with what they are for: what begins before one is seen begins
	// beside its canary, outside of its windows.
	if why, err := r.notAdmitted(ctx, r.APIReader, v); err != nil || why != "" {
		v.obstacle = &obstacle{infrav1.MachineWaitingForRolloutReason, why}
		return ctrl.Result{RequeueAfter: unseenRecheck}, err
	}
	if again, dead, err := r.replaceDead(ctx, quoinMachine, v); err != nil || dead {
		return ctrl.Result{RequeueAfter: again}, err
	}
	if again, err := r.writeClaim(ctx, quoinMachine, v, host); err != nil || again > 0 {
		return ctrl.Result{RequeueAfter: again}, err
	}
	claimed = true
	r.reportClaim(quoinMachine, host, picked)
	v.host = host
	quoinMachine.Spec.ProviderID = host.ProviderID()
	return ctrl.Result{}, nil
}

// mayClaim reports whether it is time for the machine to have a host; the obstacle says why it is not.
func (r *Reconciler) mayClaim(ctx context.Context, v *observation) (again time.Duration, may bool, err error) {
	if v.cluster == nil || !ptr.Deref(v.cluster.Status.Initialization.InfrastructureProvisioned, false) {
		v.obstacle = &obstacle{infrav1.MachineWaitingForClusterReason,
			fmt.Sprintf("waiting for the infrastructure of Cluster %s", v.machine.Spec.ClusterName)}
		return 0, false, nil
	}
	if !v.machine.DeletionTimestamp.IsZero() {
		v.obstacle = &obstacle{infrav1.MachineWaitingForHostReason,
			"the Machine is being deleted; no host is claimed for it any more"}
		return 0, false, nil
	}
	if _, held := v.machine.Annotations[infrav1.HoldClaimAnnotation]; held {
		v.obstacle = &obstacle{infrav1.MachineHeldReason,
			fmt.Sprintf("Machine %s/%s was made ahead: a host is claimed when annotation %s is taken off",
				v.machine.Namespace, v.machine.Name, infrav1.HoldClaimAnnotation)}
		return 0, false, nil
	}
	switch why, again, err := r.unsupported(ctx, r.Client, v); {
	case err != nil:
		return 0, false, err
	case why != "":
		v.obstacle = &obstacle{infrav1.MachineWaitingForControlPlaneReason, why}
		return again, false, nil
	}
	if ptr.Deref(v.machine.Spec.Bootstrap.DataSecretName, "") == "" {
		// Workers exist long before a control plane answers. Holding hosts meanwhile could take the very ones that the
		// control plane needs to answer at all.
		v.obstacle = &obstacle{infrav1.MachineWaitingForBootstrapDataReason,
			fmt.Sprintf("waiting for the bootstrap data of Machine %s/%s; a host is claimed when it is there",
				v.machine.Namespace, v.machine.Name)}
		return 0, false, nil
	}
	// Last: most are admitted before there is anything else to wait for, and need not say in between that they were not.
	if why, err := r.notAdmitted(ctx, r.Client, v); err != nil || why != "" {
		v.obstacle = &obstacle{infrav1.MachineWaitingForRolloutReason, why}
		return unseenRecheck, false, err
	}
	return 0, true, nil
}

// writeClaim writes the claim to the host. When the host changed meanwhile it is to be tried again.
func (r *Reconciler) writeClaim(
	ctx context.Context, quoinMachine *infrav1.QuoinMachine, v *observation, host *infrav1.QuoinHost,
) (again time.Duration, err error) {
	host.Spec.ConsumerRef = &infrav1.ConsumerReference{
		Namespace: quoinMachine.Namespace, Name: quoinMachine.Name, Machine: v.machine.Name,
		Claim: infrav1.ClaimOf(string(v.machine.UID)),
	}
	// In the same update, so that the host never serves two claims of one generation: whoever still holds the claim before
	// this one, in a stale copy of these objects, knows a lower number and changes nothing on the host any more.
	host.Spec.ClaimGeneration++
	host.Spec.ManagedBy = string(host.UID)
	// What had the host before was marked, and nobody carried that to it.
	delete(host.Annotations, quoinv1.NeedsUpdateAnnotation)
	if err := r.Client.Update(ctx, host); err != nil {
		if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
			v.obstacle = &obstacle{infrav1.MachineWaitingForHostReason,
				fmt.Sprintf("host %s/%s changed while it was being claimed; trying again", host.Namespace, host.Name)}
			return time.Second, nil
		}
		return 0, fmt.Errorf("claiming QuoinHost %s/%s: %w", host.Namespace, host.Name, err)
	}
	return 0, nil
}

// noHost says why no host can be claimed; others that another machine is claiming one that could be.
func (r *Reconciler) noHost(
	ctx context.Context, quoinMachine *infrav1.QuoinMachine, v *observation, request placement.Request, others bool,
) (ctrl.Result, error) {
	key := ask{namespace: quoinMachine.Namespace, cluster: v.cluster.Name, domain: request.FailureDomain,
		version: request.Version, accepted: strings.Join(slices.Sorted(slices.Values(request.HostNamespaces)), ","),
		failCgroupV1: request.FailCgroupV1}
	if request.Selector != nil {
		key.selector = request.Selector.String()
	}
	counted, again, err := r.counts.of(key, v.now, func() (placement.Result, error) {
		fleet, err := r.fleet(ctx)
		if err != nil {
			return placement.Result{}, err
		}
		if _, request.Taken, err = r.members(ctx, quoinMachine, v); err != nil {
			return placement.Result{}, err
		}
		return r.reservations.count(request, fleet, client.ObjectKeyFromObject(quoinMachine), groupOf(quoinMachine)), nil
	})
	if err != nil {
		return ctrl.Result{}, err
	}
	if counted.Chosen != nil {
		v.obstacle = &obstacle{infrav1.MachineWaitingForHostReason,
			fmt.Sprintf("host %s/%s has just become free; trying again", counted.Chosen.Namespace, counted.Chosen.Name)}
		return ctrl.Result{RequeueAfter: time.Second}, nil
	}
	v.obstacle = &obstacle{infrav1.MachineNoMatchingHostReason, counted.Message()}
	v.candidates = candidatesOf(counted)
	if others {
		// A claim that fails leaves a free host, and no event may tell of it.
		return ctrl.Result{RequeueAfter: time.Second}, nil
	}
	if request.FailCgroupV1 {
		again = cmp.Or(again, unseenRecheck)
	}
	return ctrl.Result{RequeueAfter: again}, nil
}

// groupOf names the cluster and role whose members are spread over failure domains.
func groupOf(quoinMachine *infrav1.QuoinMachine) string {
	_, controlPlane := quoinMachine.Labels[clusterv1.MachineControlPlaneLabel]
	return fmt.Sprintf("%s/%s %t", quoinMachine.Namespace, quoinMachine.Labels[clusterv1.ClusterNameLabel], controlPlane)
}

func (r *Reconciler) reportClaim(quoinMachine *infrav1.QuoinMachine, host *infrav1.QuoinHost, picked placement.Result) {
	if r.Recorder == nil {
		return
	}
	kind, message := "Normal", fmt.Sprintf("claimed host %s/%s", host.Namespace, host.Name)
	if note := picked.Note(); note != "" {
		message += ": " + note
	}
	if picked.LastResort {
		kind = "Warning"
	}
	r.Recorder.Eventf(quoinMachine, host, kind, infrav1.MachineHostClaimedReason, infrav1.MachineHostClaimedReason, "%s",
		message)
}

// candidatesOf is why no host was chosen, as the status shows it.
func candidatesOf(result placement.Result) []infrav1.HostCandidates {
	var out []infrav1.HostCandidates
	for _, count := range result.Counts() {
		reason := string(count.Reason)
		if runes := []rune(reason); len(runes) > maxReason {
			// A selector may be of any length. No two reasons share a selector's first words, so they stay apart.
			reason = string(runes[:maxReason-1]) + "…"
		}
		out = append(out, infrav1.HostCandidates{Reason: reason, Hosts: int32(count.Hosts)}) //nolint:gosec // nobody has that many hosts
	}
	return out[:min(len(out), maxCandidates)]
}

// maxReason and maxCandidates are what the API takes.
const (
	maxReason     = 128
	maxCandidates = 32
)

func hostNamed(hosts []infrav1.QuoinHost, chosen *placement.Host) *infrav1.QuoinHost {
	for i := range hosts {
		if client.ObjectKeyFromObject(&hosts[i]) == (client.ObjectKey{Namespace: chosen.Namespace, Name: chosen.Name}) {
			return hosts[i].DeepCopy()
		}
	}
	return nil
}
