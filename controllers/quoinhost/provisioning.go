// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinhost

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/run"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/suitability"
)

// factsLast is how old facts may be when a host is about to become a node.
const factsLast = 5 * time.Minute

// provisioning starts the plan of the claim, once, and follows it to its end.
func (r *reconciliation) provisioning(ctx context.Context) (result, error) {
	id := infrav1.ProvisionOperation(r.host.Spec.ConsumerRef.Claim)
	status, o := r.followProvisioning(ctx, id)
	if o.pending {
		return o.result, nil
	}
	switch status.Phase {
	case run.NotStarted:
		return r.startProvisioning(ctx, id)
	case run.Succeeded:
		return r.becameNode(ctx)
	case run.Failed:
		return r.provisionEnded(ctx, infrav1.HostStepFailedReason, status, "the Machine must be replaced: delete it, and "+
			"its host is reset")
	case run.Interrupted:
		return r.provisionEnded(ctx, infrav1.HostBootstrapInterruptedReason, status, "kubeadm is not run twice, so the "+
			"Machine must be replaced: delete it, and its host is reset")
	}
	if r.mayBeStopped() {
		return r.stopProvisioning(ctx, id)
	}
	r.setFalse(infrav1.HostProvisionedCondition, infrav1.HostStepRunningReason,
		fmt.Sprintf("%s on %s: %s", r.version(), r.host.Name, status.Message))
	return r.poll(), nil
}

// mayBeStopped reports whether the Machine leaves, and its departure goes on: no hook keeps it from being drained.
// Without a Node there is nothing to drain, so Cluster API goes past all hooks before that and never waits for those of
// others; ours says whether the control plane agrees.
func (r *reconciliation) mayBeStopped() bool {
	m := r.claim.machine
	if m == nil || m.DeletionTimestamp.IsZero() {
		return false
	}
	_, ours := m.Annotations[controlplanev1.PreDrainHookAnnotation]
	return !ours && (!m.Status.NodeRef.IsDefined() || !heldBeforeDrain(m))
}

// stopProvisioning ends the plan of a Machine that leaves, and may be drained. It may hang until a step's time is over,
// and as long as it runs it may add a member to etcd, for which the control plane would keep the host.
func (r *reconciliation) stopProvisioning(ctx context.Context, id string) (result, error) {
	if r.maintenanceGate("the end of the bootstrap of Machine " + r.claim.machine.Name) {
		return after(r.timings().Poll), nil
	}
	ours := r.ownerRecord()
	_, o := call(ctx, r, callStop(id), shortCall, func(ctx context.Context, host *infrav1.QuoinHost) (struct{}, error) {
		return struct{}{}, r.controller.Provisioner.StopPlan(ctx, host, ours, id)
	})
	if o.pending {
		return o.result, nil
	}
	r.pace().unmark(callFollow(id))
	return after(0), nil
}

// followProvisioning follows the plan of the claim. When neither the host nor our status knows the plan, but the
// objects say that the claim was a node once, then the host lost its journal: kubeadm would run for the second time.
func (r *reconciliation) followProvisioning(ctx context.Context, id string) (run.Status, outcome) {
	status, o := r.follow(ctx, id)
	if !o.pending && status.Phase == run.NotStarted && !status.Lost && r.wasNode() {
		status = run.Status{Phase: run.Interrupted, Message: journalLost}
		r.record(id, status)
	}
	return status, o
}

// wasNode says whether the claim was a node once. The Machine's provider ID, which core copies only from a provisioned
// QuoinMachine, says so even after a move, which drops every status.
func (r *reconciliation) wasNode() bool {
	if m := r.claim.quoinMachine; m != nil && ptr.Deref(m.Status.Initialization.Provisioned, false) {
		return true
	}
	m := r.claim.machine
	return m != nil && (m.Status.NodeRef.IsDefined() || m.Spec.ProviderID != "" &&
		m.Spec.ProviderID == r.host.ProviderID())
}

// provisionEnded shows why the bootstrap data will not run to its end. A phase that was only remembered has no message;
// the condition then says it already.
func (r *reconciliation) provisionEnded(
	ctx context.Context, reason string, status run.Status, todo string,
) (result, error) {
	if status.Message == "" {
		if conditions.GetReason(r.host, infrav1.HostProvisionedCondition) == reason {
			return onEvent(), nil
		}
		r.pace().unmark(callFollow(r.host.Status.Operation.ID))
		return after(0), nil
	}
	message := status.Message
	if status.Tail != "" {
		message += "\n" + lastLines(status.Tail, 12)
	}
	if r.elsewhere() {
		if err := r.tellMachine(ctx, reason, message+"\n"+todo); err != nil {
			return result{}, err
		}
		message = status.WithoutTail().Message + "; " + r.see()
	}
	message += "\n" + todo
	if !r.isFalse(infrav1.HostProvisionedCondition, message) {
		r.event("Warning", reason, "%s", message)
		if reason != infrav1.HostBootstrapInterruptedReason || !r.mayBeStopped() {
			// Another attempt of the same pool tries other hosts first. One that was stopped by order is no failure of a host.
			r.host.Status.LastFailure = &infrav1.HostFailure{Time: metav1.Time{Time: r.now}, Pool: r.pool(), Reason: reason}
		}
	}
	r.setFalse(infrav1.HostProvisionedCondition, reason, message)
	return onEvent(), nil
}

// becameNode is the end of the way.
func (r *reconciliation) becameNode(ctx context.Context) (result, error) {
	if err := r.untellMachine(ctx); err != nil {
		return result{}, err
	}
	version := r.version()
	r.host.Status.Version = version
	r.holdsAddons(version)
	r.setTrue(infrav1.HostProvisionedCondition, infrav1.HostProvisionedReason)
	r.setFalse(infrav1.HostCleanCondition, infrav1.HostInUseReason, "the host belongs to a Machine")
	return r.moveTo(infrav1.HostStateProvisioned), nil
}

// startProvisioning hands the plan to the host. Whatever can be found wrong without the host is found before it is
// touched.
func (r *reconciliation) startProvisioning(ctx context.Context, id string) (result, error) {
	refuse := func(reason, message string) (result, error) {
		r.warn(infrav1.HostProvisionedCondition, reason, message)
		return r.tryLater(), nil
	}
	if wait := r.backOff(); wait > 0 {
		return after(wait), nil
	}
	if r.maintenanceGate("the installation of a node") {
		return r.probe(ctx), nil
	}
	machine := r.claim.machine
	if machine == nil || r.claim.cluster == nil || ptr.Deref(machine.Spec.Bootstrap.DataSecretName, "") == "" {
		return r.moveTo(infrav1.HostStateClaimed), nil
	}
	if res, handled, err := r.unfitToStart(ctx, machine); err != nil || handled {
		return res, err
	}
	order, err := r.provisionOrder(ctx, id)
	var invalid *bootstrapDataError
	var address *endpointError
	var kubeadm *kubeadmError
	switch {
	case errors.As(err, &invalid):
		message, err := r.refusal(ctx, invalid)
		if err != nil {
			return result{}, err
		}
		return refuse(infrav1.HostBootstrapDataInvalidReason, message)
	case errors.As(err, &address):
		return refuse(infrav1.ClusterEndpointMissingReason, address.Error())
	case errors.As(err, &kubeadm):
		return refuse(infrav1.HostVersionSkewReason, kubeadm.Error())
	case err != nil:
		// It passes by itself; until then a person sees what it is.
		r.setFalse(infrav1.HostProvisionedCondition, infrav1.HostOperationFailedReason, err.Error())
		return result{}, err
	}
	files := PushOrder{order.Owner, order.Artifacts, order.Role}
	if o := r.push(ctx, id, infrav1.HostProvisionedCondition, files); o.pending {
		return o.result, nil
	}
	if o := start(ctx, r, id, order, r.controller.Provisioner.Provision); o.pending {
		if r.host.Status.NextAttempt == nil {
			r.setFalse(infrav1.HostProvisionedCondition, infrav1.HostStepRunningReason,
				fmt.Sprintf("handing %s and the bootstrap data to %s", order.Artifacts.Version, r.host.Name))
		}
		return o.result, nil
	}
	r.event("Normal", "BootstrapStarted", "installing %s and running the bootstrap data of Machine %s",
		order.Artifacts.Version, machine.Name)
	return r.started(id)
}

// unfitToStart finds what speaks against a start now: the Machine goes, or the host is not what a node needs, or has to
// be looked at anew to know.
func (r *reconciliation) unfitToStart(ctx context.Context,
	machine *clusterv1.Machine) (res result, handled bool, err error) {
	if !machine.DeletionTimestamp.IsZero() || !r.claim.quoinMachine.DeletionTimestamp.IsZero() {
		// Hooks may hold the deletion for long, and a node that came up meanwhile would only have to go again.
		r.setFalse(infrav1.HostProvisionedCondition, infrav1.HostMachineDeletingReason,
			fmt.Sprintf("Machine %s/%s is being deleted: its bootstrap data is not run any more", machine.Namespace,
				machine.Name))
		return onEvent(), true, nil
	}
	if r.isUnsuitable() {
		// Inspect again: whatever it lacked may be there by now.
		reason := infrav1.HostUnsuitableReason
		if offset := r.host.Status.Facts.ClockOffset; offset != nil && offset.Abs() > suitability.MaxClockOffset {
			reason = infrav1.HostClockOffsetReason
		}
		r.setFalse(infrav1.HostProvisionedCondition, reason, conditions.GetMessage(r.host, infrav1.HostInspectedCondition))
		return r.reinspect(), true, nil
	}
	if read := r.host.Status.Facts.InspectedAt; read == nil || r.now.Sub(read.Time) > factsLast {
		// A host may have been free for months: its clock, and whatever else a join needs, is looked at anew.
		return r.reinspect(), true, nil
	}
	why, err := r.outranked(ctx)
	if err != nil {
		// It passes by itself; until then a person sees what it is.
		r.setFalse(infrav1.HostProvisionedCondition, infrav1.HostOperationFailedReason, err.Error())
		return result{}, true, err
	}
	if why != "" {
		r.warn(infrav1.HostProvisionedCondition, infrav1.HostDuplicateReason, why)
		return r.reinspect(), true, nil
	}
	// Last: nothing lies between this answer and the bootstrap data.
	refused, err := r.withheld(ctx)
	if err != nil {
		return result{}, true, err
	}
	if refused.reason != "" {
		return r.refuseClaim(refused), true, nil
	}
	return result{}, false, nil
}

// bootstrapDataError says that the bootstrap data cannot be carried out; the host was not touched.
type bootstrapDataError struct {
	err error
	// quotes says that the text may hold parts of the bootstrap data.
	quotes bool
}

func (e *bootstrapDataError) Error() string {
	return e.err.Error() + "; the host was not touched. Correct the KubeadmConfig and replace the Machine"
}

// refusal is what the host says of bootstrap data that cannot be carried out.
func (r *reconciliation) refusal(ctx context.Context, invalid *bootstrapDataError) (string, error) {
	if !invalid.quotes {
		return invalid.Error(), nil
	}
	message := r.controller.secretsOf(ctx, r.host).Values(invalid.Error())
	if !r.elsewhere() {
		return message, nil
	}
	text := &bootstrapDataError{err: fmt.Errorf("the bootstrap data of Machine %s/%s cannot be carried out, %s",
		r.claim.machine.Namespace, r.claim.machine.Name, r.see())}
	return text.Error(), r.tellMachine(ctx, infrav1.HostBootstrapDataInvalidReason, message)
}

// endpointError says that the virtual address cannot be made of the spec.
type endpointError struct{ text string }

func (e *endpointError) Error() string { return e.text }

func (r *reconciliation) version() string {
	if r.claim.machine == nil {
		return r.host.Status.Version
	}
	return r.claim.machine.Spec.Version
}

// reinspect reads the facts of a claimed host again.
func (r *reconciliation) reinspect() result {
	if wait := r.pace().remaining(callInspect, r.timings().Inspect); wait > 0 {
		return after(wait)
	}
	return r.moveTo(infrav1.HostStateInspecting)
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
