// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinhost

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/artifacts"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/run"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/placement"
)

const (
	// stagePrefix begins the names of plans that stage.
	stagePrefix = "stage-"
	// stageCall is the call that starts one.
	stageCall = "stage"
)

func isStaging(plan string) bool { return strings.HasPrefix(plan, stagePrefix) }

// stagePlan names the plan for what is wanted.
func stagePlan(wanted infrav1.StagedArtifacts) string {
	return fmt.Sprintf("%s%x", stagePrefix, sha256.Sum256(fmt.Append(nil, wanted)))[:len(stagePrefix)+12]
}

// askedFor is what a free host is asked to have.
func (r *reconciliation) askedFor() []infrav1.StagedArtifacts {
	if stage := r.host.Spec.Stage; stage != nil && r.now.Before(stage.Until.Time) {
		return stage.Artifacts
	}
	return nil
}

// nextToStage is the first of that which the host does not have.
func (r *reconciliation) nextToStage() (infrav1.StagedArtifacts, bool) {
	for _, wanted := range r.askedFor() {
		if !slices.Contains(r.host.Status.Staged, wanted) {
			return wanted, true
		}
	}
	return infrav1.StagedArtifacts{}, false
}

// staging brings to a free host what it is asked to have. It is handled while there is something to be done about that;
// whatever goes wrong, the host stays free to be claimed.
func (r *reconciliation) staging(ctx context.Context) (res result, handled bool, err error) {
	wanted, missing := r.nextToStage()
	if !missing {
		return r.followWithdrawn(ctx)
	}
	plan := stagePlan(wanted)
	if r.pace().remaining(stagingFailed(plan), r.timings().Stage) > 0 {
		return result{}, false, nil
	}
	id := r.attempt(plan)
	status, o := r.follow(ctx, id)
	if o.pending {
		return o.result, true, nil
	}
	switch status.Phase {
	case run.NotStarted:
		if r.host.Spec.Maintenance != nil {
			return result{}, false, nil
		}
		return r.startStaging(ctx, id, wanted)
	case run.Succeeded:
		r.host.Status.Staged = append(r.host.Status.Staged, wanted)
		r.event("Normal", infrav1.HostStagedReason, "what a %s of %s needs is on the host", roleOf(wanted), wanted.Version)
		return after(0), true, nil
	case run.Failed, run.Interrupted:
		r.record(nextAttempt(id, plan), run.Status{Phase: run.NotStarted})
		return r.stagingFails(wanted, status.Message), true, nil
	}
	r.setFalse(infrav1.HostStagedCondition, infrav1.HostStepRunningReason,
		fmt.Sprintf("a %s of %s: %s", roleOf(wanted), wanted.Version, status.Message))
	return r.poll(), true, nil
}

// followWithdrawn sees a plan to its end that nobody asks for any more.
func (r *reconciliation) followWithdrawn(ctx context.Context) (res result, handled bool, err error) {
	runs := r.host.Status.Operation
	if runs == nil || !isStaging(runs.ID) || runs.Phase != infrav1.HostOperationRunning {
		return result{}, false, nil
	}
	status, o := r.follow(ctx, runs.ID)
	if !o.pending && !status.Phase.Final() {
		o = pending(r.poll())
	}
	return o.result, o.pending, nil
}

// startStaging hands the plan to the host, once the status names it: whoever finds the host paused asks about that one.
// It is no order, because nothing that a claim rests on changes.
func (r *reconciliation) startStaging(
	ctx context.Context, id string, wanted infrav1.StagedArtifacts,
) (res result, handled bool, err error) {
	if r.noted != id {
		return after(0), true, nil
	}
	order, refused, err := r.stageOrder(ctx, id, wanted)
	if err != nil {
		return result{}, true, err
	}
	if refused == "" {
		var o outcome
		if refused, o = call(ctx, r, callStage(id), shortCall, with(order, r.controller.stage)); o.pending {
			return o.result, true, nil
		}
	}
	if refused != "" {
		return r.stagingFails(wanted, refused), true, nil
	}
	res, err = r.started(id)
	return res, true, err
}

// stagingFails says why something cannot be staged, and has it tried again.
func (r *reconciliation) stagingFails(wanted infrav1.StagedArtifacts, why string) result {
	r.pace().mark(stagingFailed(stagePlan(wanted)))
	r.warn(infrav1.HostStagedCondition, infrav1.HostStagingFailedReason, fmt.Sprintf("a %s of %s cannot be staged, which "+
		"only costs time later: %s", roleOf(wanted), wanted.Version, why))
	return after(0)
}

// stageOrder is what the template says about where the version comes from, or why the host does not take it from there.
func (r *reconciliation) stageOrder(
	ctx context.Context, id string, wanted infrav1.StagedArtifacts,
) (order StageOrder, refused string, err error) {
	if !placement.NamespaceAllowed(placement.HostOf(r.host), wanted.Namespace) {
		return order, fmt.Sprintf("spec.consumerNamespaces does not offer the host to namespace %s", wanted.Namespace), nil
	}
	template, key := &infrav1.QuoinMachineTemplate{}, client.ObjectKey{Namespace: wanted.Namespace, Name: wanted.Template}
	if found, err := r.controller.find(ctx, key, template); err != nil || !found {
		return order, fmt.Sprintf("there is no QuoinMachineTemplate %s", key), err
	}
	// Nothing of it is secret. But whoever writes a QuoinHost could ask for any template here, which says where its
	// bundles lie; and what no Machine of the template accepts, it need not have.
	if accepted := template.Spec.Template.Spec.HostNamespaces; !placement.NamespaceAccepted(accepted, key.Namespace,
		r.host.Namespace) {
		return order, fmt.Sprintf("spec.template.spec.hostNamespaces of QuoinMachineTemplate %s does not name namespace %s",
			key, r.host.Namespace), nil
	}
	order = StageOrder{ID: id, Owner: r.ownerRecord(), Role: artifacts.Worker, Artifacts: artifacts.Wanted{
		Version: wanted.Version, Source: sourceOf(template.Spec.Template.Spec.Artifacts)}}
	if wanted.Role == infrav1.StageRoleControlPlane {
		order.Role = artifacts.ControlPlane
	}
	if r.host.Status.Facts != nil {
		order.Artifacts.Architecture = r.host.Status.Facts.Architecture
	}
	return order, order.Artifacts.Stageable(), nil
}

// stage starts to stage. What is wrong with the source or on the host only keeps that from being staged: the next look
// at the host, or the next claim, finds it for itself. So all but a connection that fails is an answer.
func (r *Reconciler) stage(ctx context.Context, host *infrav1.QuoinHost, order StageOrder) (string, error) {
	err := r.Provisioner.Stage(ctx, host, order)
	if err == nil {
		return "", nil
	}
	switch f := explain(err, host); f.condition {
	case infrav1.HostReachableCondition, infrav1.HostKeyVerifiedCondition:
		return "", err
	default:
		return f.message, nil
	}
}

// dropStaging gives up the conversation about staging that a claim found under way: the host is needed for something
// else now.
func (r *reconciliation) dropStaging() {
	if op, _, under := r.controller.Calls.Running(r.key()); under && strings.HasPrefix(op, stageCall+" ") {
		r.controller.Calls.Cancel(r.key())
	}
}

// forgetStaged keeps what the status says about staging in line with what there is: a claim uses it up, and what nobody
// asks for any more is not spoken of.
func (r *reconciliation) forgetStaged() {
	h := r.host
	if h.Status.State != infrav1.HostStateAvailable && h.Status.State != infrav1.HostStateInspecting {
		h.Status.Staged = nil
		conditions.Delete(h, infrav1.HostStagedCondition)
		return
	}
	asked := r.askedFor()
	if len(asked) == 0 {
		conditions.Delete(h, infrav1.HostStagedCondition)
		return
	}
	// Without a bound, a host that is free for years would list every version.
	h.Status.Staged = slices.DeleteFunc(h.Status.Staged, func(is infrav1.StagedArtifacts) bool {
		return !slices.Contains(asked, is)
	})
	if _, missing := r.nextToStage(); !missing {
		r.setTrue(infrav1.HostStagedCondition, infrav1.HostStagedReason)
	}
}

func roleOf(wanted infrav1.StagedArtifacts) string {
	if wanted.Role == infrav1.StageRoleControlPlane {
		return "control-plane Machine"
	}
	return "worker"
}
