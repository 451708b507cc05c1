// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinhost

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/fieldindex"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/outage"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/redfish"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/steady"
)

// mustEnd says whether the claim of the host has to end: its QuoinMachine is being deleted, or its Machine is and the
// node does not answer either. In the latter case fencing frees the volumes that the deletion of the Machine waits for,
// which it does after its drain: as long as the control plane keeps a Machine from that, etcd may need its vote.
func (r *reconciliation) mustEnd() (quoinMachineGoes, must bool) {
	switch {
	case r.host.Status.State == infrav1.HostStateCleaning && r.claim.status == leaving && !r.host.Released():
		return true, true
	case r.claim.status == held && r.claimStands() && r.claim.machine != nil &&
		!r.claim.machine.DeletionTimestamp.IsZero():
		_, kept := r.claim.machine.Annotations[controlplanev1.PreDrainHookAnnotation]
		return false, !kept && (conditions.IsFalse(r.claim.machine, clusterv1.MachineNodeReadyCondition) ||
			conditions.IsUnknown(r.claim.machine, clusterv1.MachineNodeReadyCondition))
	}
	return false, false
}

// dead deals with a host that does not answer while its claim must end. It leaves everything to the state's handler
// while an attempt to reach the host is due: what answers is not dead.
func (r *reconciliation) dead(ctx context.Context) (res result, handled bool, err error) {
	goes, must := r.mustEnd()
	if !must || r.host.Status.UnreachableSince == nil || r.backOff() <= 0 && !r.host.Fenced() {
		return result{}, false, nil
	}
	if res, pending := r.stillOff(); pending {
		return res, true, nil
	}
	verdict, err := r.domain(ctx)
	if err != nil {
		return result{}, true, err
	}
	s := r.unreachability(goes, verdict.Lost)
	next := after(min(max(r.backOff(), r.timings().Next), r.timings().Power))
	meet := s.judge(r.now)
	if meet == fenced || meet == giveUp {
		if res, on := r.turnedOn(); on {
			return sooner(res, next), true, nil
		}
	}
	switch meet {
	case notYet:
		return result{}, false, nil
	case fenced:
		if r.backOff() <= 0 {
			// What answers again must be noticed.
			return result{}, false, nil
		}
	case notOurs:
		c := usurped(r.host)
		r.notFenced(c.Reason, r.silent()+"; before that it said: "+c.Message+r.wayOut())
	case domainLost:
		r.notFenced(infrav1.HostDomainLostReason, fmt.Sprintf("of failure domain %q %d of %d hosts fell silent together, "+
			"from %s on, so none of them is given up or powered off; look at the network and the power there",
			r.host.Spec.FailureDomain, verdict.Silent, verdict.Hosts, stamp(verdict.Since))+r.wayOut())
	case unfenced:
		r.notFenced(infrav1.HostNotFencedReason, r.silent()+"; it may still run, and no BMC can tell, so a person must. "+
			"Its Machine waits for that, unless its machine template said unreachable.release: AfterTimeout"+r.wayOut())
	case cycle:
		return sooner(r.cycle(ctx), next), true, nil
	case booting:
		r.notFenced(infrav1.HostPoweringReason, fmt.Sprintf("%s; its power was cycled at %s, and it has until %s to answer "+
			"before it is powered off", r.silent(), stamp(s.cycledAt), stamp(s.cycledAt.Add(bootTime))))
	case fence:
		return sooner(r.fence(ctx), next), true, nil
	case giveUp:
		r.giveUp()
		return after(0), true, nil
	}
	return next, true, nil
}

// unreachability is what the verdict about the host depends on.
func (r *reconciliation) unreachability(leaving, lost bool) unreachability {
	failed := func(reason string) bool { return hasReason(r.host, infrav1.HostFencedCondition, reason) }
	s := unreachability{
		policy: r.unreachablePolicy(), leaving: leaving, lost: lost,
		since:   steady.Shift(r.controller.Clock, r.host.Status.UnreachableSince.Time),
		usurped: usurped(r.host) != nil, fenced: r.host.Fenced(), bmc: r.host.Spec.BMC != nil,
		bmcFailed: failed(infrav1.HostBMCFailedReason) || failed(infrav1.HostUnconfirmedReason),
	}
	if power := r.host.Status.Power; power != nil && power.CycledAt != nil {
		s.cycledAt = steady.Shift(r.controller.Clock, power.CycledAt.Time)
	}
	return s
}

// unreachablePolicy is the host's, with what its QuoinMachine says instead.
func (r *reconciliation) unreachablePolicy() infrav1.UnreachablePolicy {
	policy := r.host.Spec.Unreachable
	if r.claim.quoinMachine != nil {
		policy = policy.OverriddenBy(r.claim.quoinMachine.Spec.Unreachable)
	}
	return policy
}

// sooner is the result that looks again first: an order to a BMC must not delay the next attempt to reach the host.
func sooner(a, b result) result { return after(min(a.requeueAfter, b.requeueAfter)) }

// domain judges the failure domain of the host. Hosts that nobody tries to reach say nothing about it.
func (r *reconciliation) domain(ctx context.Context) (outage.Verdict, error) {
	hosts := &infrav1.QuoinHostList{}
	inDomain := fieldindex.HostsOfDomain(r.host)
	if err := r.controller.Client.List(ctx, hosts, client.UnsafeDisableDeepCopy, inDomain); err != nil {
		return outage.Verdict{}, fmt.Errorf("listing QuoinHosts to judge failure domain %q: %w", r.host.Spec.FailureDomain,
			err)
	}
	domain := r.host.Spec.FailureDomain
	var seen []outage.Host
	for i := range hosts.Items {
		h := &hosts.Items[i]
		if h.Status.State == "" || h.Status.State == infrav1.HostStateRegistering ||
			h.Status.State == infrav1.HostStateQuarantined || isDetached(h) {
			continue
		}
		one := outage.Host{Domain: domain}
		if h.Status.UnreachableSince != nil {
			one.SilentSince = h.Status.UnreachableSince.Time
		}
		seen = append(seen, one)
	}
	return outage.Judge(domain, seen), nil
}

// cycle makes the host boot, once for each silence.
func (r *reconciliation) cycle(ctx context.Context) result {
	if r.powerHeld("cycling its power") {
		return onEvent()
	}
	_, done, err := r.changePower(ctx, orderCycle, r.controller.Power.Cycle)
	if res, ok := r.powerWithheld(err); ok {
		return res
	}
	var refused *redfish.RefusedError
	switch {
	case !done:
		r.powering("its power is being cycled, before it is given up")
		return onEvent()
	case err != nil && !errors.As(err, &refused):
		return r.powerFailed(err)
	case err == nil:
		r.event("Warning", "PowerCycled", "%s; its power was cycled", r.silent())
	}
	r.notePower(stateOf(r.host.Status.Power))
	r.host.Status.Power.CycledAt = &metav1.Time{Time: r.now}
	r.forgetFailures()
	// Not at once: what was dead a moment ago takes its time.
	r.host.Status.NextAttempt = &metav1.Time{Time: r.now.Add(bootTime / 10)}
	return after(bootTime / 10)
}

// fence turns the power off. Only what was read back counts.
func (r *reconciliation) fence(ctx context.Context) result {
	if r.powerHeld("powering it off") {
		return onEvent()
	}
	state, done, err := r.changePower(ctx, orderOff, r.controller.Power.Off)
	if res, ok := r.powerWithheld(err); ok {
		return res
	}
	switch {
	case !done:
		r.powering("it is being powered off")
		return onEvent()
	case err != nil:
		return r.powerFailed(err)
	case state != powerOff:
		return r.powerFailed(fmt.Errorf("the BMC took the order to power off, but says %s", state))
	}
	r.fenced(r.silent() + "; its BMC confirms that the power is off")
	delete(r.host.Annotations, infrav1.PowerOffAnnotation)
	return after(0)
}

// powering says what is asked of its BMC. That nothing may be asked stays said meanwhile: each attempt begins so.
func (r *reconciliation) powering(what string) {
	if !hasReason(r.host, infrav1.HostFencedCondition, infrav1.HostPowerNeededReason) {
		r.notFenced(infrav1.HostPoweringReason, r.silent()+"; "+what)
	}
}

// powerHeld keeps the power as it is while a person works at the host, and between two orders that fail.
func (r *reconciliation) powerHeld(what string) bool {
	if r.host.Spec.Maintenance != nil {
		r.notFenced(infrav1.HostMaintenanceReason, maintenanceNote(r.host,
			r.silent()+"; "+what+" waits for its end")+r.wayOut())
		return true
	}
	if r.mayPowerOff() && hasReason(r.host, infrav1.HostFencedCondition, infrav1.HostUnconfirmedReason) {
		return false
	}
	return r.pace().remaining(powerFailed, r.timings().Power) > 0
}

func (r *reconciliation) powerFailed(err error) result {
	r.pace().mark(powerFailed)
	r.notFenced(infrav1.HostBMCFailedReason, fmt.Sprintf("%s; %v; tried again at %s", r.silent(), err,
		stamp(r.now.Add(r.timings().Power)))+r.wayOut())
	return after(r.timings().Power)
}

// turnedOn reads the power of a fenced host again: a person may have turned it on since, and a host that runs and does
// not answer is not fenced. A BMC that fails now takes nothing back of what it confirmed.
func (r *reconciliation) turnedOn() (res result, on bool) {
	power := r.host.Status.Power
	if !r.host.Fenced() || stateOf(power) != powerOff ||
		power.ReadAt != nil && r.now.Sub(power.ReadAt.Time) < r.timings().Power {
		return result{}, false
	}
	state, known, pending := r.readPower()
	switch {
	case pending:
		return onEvent(), true
	case !known || state == powerOff:
		return result{}, false
	}
	// It gets the time that a boot takes, as if we had turned it on.
	r.host.Status.Power.CycledAt = &metav1.Time{Time: r.now}
	r.notFenced(infrav1.HostNotFencedReason, r.silent()+"; it was powered off, and somebody turned it on again: its BMC "+
		"says "+state+r.wayOut())
	return after(0), true
}

// readPower reads the power of the host from its BMC. It is not known where there is none, and for a while after a
// failure; pending says that the answer is not there yet.
func (r *reconciliation) readPower() (state string, known, pending bool) {
	if r.host.Spec.BMC == nil || r.pace().remaining(powerFailed, r.timings().Power) > 0 {
		return "", false, false
	}
	state, done, err := r.powerOrder("look", func(context.Context, *infrav1.QuoinHost) error { return nil })
	if done && err != nil {
		r.pace().mark(powerFailed)
	}
	return state, done && err == nil, !done
}

// giveUp lets the claim end without the host: it goes into quarantine, and its Machine may go.
func (r *reconciliation) giveUp() {
	r.controller.Calls.Cancel(r.key())
	message := r.silent() + ", and its claim had to end"
	if r.host.Fenced() {
		message += "; it was fenced"
	} else {
		message += "; unreachable.release is AfterTimeout, so nobody waited for proof that it does not run"
		r.notFenced(infrav1.HostNotFencedReason, "nothing says that the host does not run any more")
	}
	message += fmt.Sprintf(". It was not reset. When it is back, have it reset and verified: %s",
		annotate(r.host, infrav1.RetryAnnotation, ""))
	r.enter(infrav1.HostStateQuarantined)
	r.setFalse(infrav1.HostCleanCondition, infrav1.HostDeadReason, message)
	r.setFalse(infrav1.HostProvisionedCondition, infrav1.HostDeadReason, "the host counts as dead")
	r.event("Warning", infrav1.HostDeadReason, "%s", message)
}

// awaitReturn looks from time to time whether a dead host answers. That it does is told, and nothing else: it may be
// the old node, alive and with its credentials.
func (r *reconciliation) awaitReturn(ctx context.Context) result {
	if wait := r.pace().remaining(callReturn, r.timings().Probe); wait > 0 {
		return after(wait)
	}
	probed, o := call(ctx, r, callReturn, shortCall, r.controller.Provisioner.Probe)
	if o.pending {
		return o.result
	}
	serves := "it serves nobody"
	if probed.Owner != nil && !probed.Owner.Released() {
		serves = fmt.Sprintf("it still serves QuoinMachine %s (claim %s, generation %d)", probed.Owner.Machine,
			probed.Owner.UID, probed.Owner.Generation)
	}
	message := fmt.Sprintf("the host had been given up, and answers again; %s, and is not trusted until it was reset "+
		"and verified: %s", serves, annotate(r.host, infrav1.RetryAnnotation, ""))
	r.setFalse(infrav1.HostCleanCondition, infrav1.HostReturnedReason, message)
	r.event("Warning", infrav1.HostReturnedReason, "%s", message)
	return onEvent()
}

// wake turns a host on that was powered off to fence it, when a person wants it reset.
func (r *reconciliation) wake() outcome {
	if stateOf(r.host.Status.Power) != powerOff || r.host.Spec.BMC == nil {
		return ready
	}
	if r.maintenanceGate("turning the host on") {
		return pending(onEvent())
	}
	if wait := r.pace().remaining(powerFailed, r.timings().Power); wait > 0 {
		return pending(after(wait))
	}
	_, done, err := r.powerOrder("on", r.controller.Power.On)
	switch {
	case !done:
		r.setFalse(infrav1.HostCleanCondition, infrav1.HostPoweringReason, "the host is being turned on, to be reset")
		return pending(onEvent())
	case err != nil:
		r.pace().mark(powerFailed)
		r.cleaningFails()
		r.setFalse(infrav1.HostCleanCondition, infrav1.HostBMCFailedReason,
			fmt.Sprintf("the host is to be turned on: %v; tried again at %s", err, stamp(r.now.Add(r.timings().Power))))
		return pending(after(r.timings().Power))
	}
	return ready
}

// fenced notes that the host does not run.
func (r *reconciliation) fenced(message string) {
	r.condition(infrav1.HostFencedCondition, metav1.ConditionTrue, infrav1.HostFencedReason, message)
	r.event("Warning", infrav1.HostFencedReason, "%s", message)
}

// notFenced says why it is not known that the host does not run, and tells it when the reason changes.
func (r *reconciliation) notFenced(reason, message string) {
	if !hasReason(r.host, infrav1.HostFencedCondition, reason) {
		r.event("Warning", reason, "%s", message)
	}
	r.setFalse(infrav1.HostFencedCondition, reason, message)
}

// silent begins the sentences of this file.
func (r *reconciliation) silent() string {
	since := r.now
	if r.host.Status.UnreachableSince != nil {
		since = r.host.Status.UnreachableSince.Time
	}
	return fmt.Sprintf("the host has not answered since %s (limit %s)", stamp(since),
		timeoutOf(r.unreachablePolicy()).Round(time.Second))
}

func stateOf(power *infrav1.HostPower) string {
	if power == nil {
		return ""
	}
	return power.State
}
