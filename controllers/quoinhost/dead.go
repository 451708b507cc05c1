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

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/outage"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/redfish"
)

// mustEnd says whether the claim of the host has to end: its QuoinMachine is being deleted, or its Machine is and the node
// does not answer either. In the latter case fencing frees the volumes that the deletion of the Machine waits for.
func (t *turn) mustEnd() (quoinMachineGoes, must bool) {
	switch {
	case t.host.Status.State == infrav1.HostStateCleaning && t.claim.standing == leaving && !t.host.Released():
		return true, true
	case t.claim.standing == held && t.claimStands() && t.claim.machine != nil && !t.claim.machine.DeletionTimestamp.IsZero():
		return false, conditions.IsFalse(t.claim.machine, clusterv1.MachineNodeReadyCondition) ||
			conditions.IsUnknown(t.claim.machine, clusterv1.MachineNodeReadyCondition)
	}
	return false, false
}

// dead deals with a host that does not answer while its claim must end. It leaves everything to the state's handler while an
// attempt to reach the host is due: what answers is not dead.
func (t *turn) dead() (r result, handled bool, err error) {
	goes, must := t.mustEnd()
	if !must || t.host.Status.UnreachableSince == nil || t.backOff() <= 0 && !t.host.Fenced() {
		return result{}, false, nil
	}
	if r, pending := t.stillOff(); pending {
		return r, true, nil
	}
	verdict, err := t.domain()
	if err != nil {
		return result{}, true, err
	}
	s := silence{
		policy: t.unreachablePolicy(), since: t.host.Status.UnreachableSince.Time, leaving: goes, lost: verdict.Lost, usurped: usurped(t.host) != nil,
		fenced: t.host.Fenced(), bmc: t.host.Spec.BMC != nil,
		bmcFailed: hasReason(t.host, infrav1.HostFencedCondition, infrav1.HostBMCFailedReason) || hasReason(t.host, infrav1.HostFencedCondition, infrav1.HostUnconfirmedReason),
	}
	if power := t.host.Status.Power; power != nil && power.CycledAt != nil {
		s.cycledAt = power.CycledAt.Time
	}
	next := after(min(max(t.backOff(), time.Second), powerRetry))
	meet := s.judge(t.now)
	if meet == fenced || meet == giveUp {
		if r, on := t.turnedOn(); on {
			return sooner(r, next), true, nil
		}
	}
	switch meet {
	case notYet:
		return result{}, false, nil
	case fenced:
		if t.backOff() <= 0 {
			// What answers again must be noticed.
			return result{}, false, nil
		}
	case notOurs:
		c := usurped(t.host)
		t.notFenced(c.Reason, t.silent()+"; before that it said: "+c.Message+t.wayOut())
	case domainLost:
		t.notFenced(infrav1.HostDomainLostReason, fmt.Sprintf("of failure domain %q %d of %d hosts fell silent together, from %s on, so none of them is given up or powered off; "+
			"look at the network and the power there", t.host.Spec.FailureDomain, verdict.Silent, verdict.Hosts, stamp(verdict.Since))+t.wayOut())
	case unfenced:
		t.notFenced(infrav1.HostNotFencedReason, t.silent()+"; it may still run, and no BMC can tell, so a person must. "+
			"Its Machine waits for that, unless its machine template said unreachable.release: AfterTimeout"+t.wayOut())
	case cycle:
		return sooner(t.cycle(), next), true, nil
	case booting:
		t.notFenced(infrav1.HostPoweringReason, fmt.Sprintf("%s; its power was cycled at %s, and it has until %s to answer before it is powered off",
			t.silent(), stamp(s.cycledAt), stamp(s.cycledAt.Add(bootTime))))
	case fence:
		return sooner(t.fence(), next), true, nil
	case giveUp:
		t.giveUp()
		return after(0), true, nil
	}
	return next, true, nil
}

// unreachablePolicy is the host's, with what its QuoinMachine says instead.
func (t *turn) unreachablePolicy() infrav1.UnreachablePolicy {
	policy := t.host.Spec.Unreachable
	if t.claim.quoinMachine != nil {
		policy = policy.OverriddenBy(t.claim.quoinMachine.Spec.Unreachable)
	}
	return policy
}

// sooner is the result that looks again first: an order to a BMC must not delay the next attempt to reach the host.
func sooner(a, b result) result { return after(min(a.requeueAfter, b.requeueAfter)) }

// domain judges the failure domain of the host. Hosts that nobody tries to reach say nothing about it.
func (t *turn) domain() (outage.Verdict, error) {
	hosts := &infrav1.QuoinHostList{}
	if err := t.r.Client.List(t.ctx, hosts, client.UnsafeDisableDeepCopy); err != nil {
		return outage.Verdict{}, fmt.Errorf("listing QuoinHosts to judge failure domain %q: %w", t.host.Spec.FailureDomain, err)
	}
	domain := t.host.Spec.FailureDomain
	var seen []outage.Host
	for i := range hosts.Items {
		h := &hosts.Items[i]
		if h.Spec.FailureDomain != domain || domain == "" && h.Namespace != t.host.Namespace ||
			h.Status.State == "" || h.Status.State == infrav1.HostStateRegistering || h.Status.State == infrav1.HostStateQuarantined || isDetached(h) {
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
func (t *turn) cycle() result {
	if t.powerHeld("cycling its power") {
		return onEvent()
	}
	_, done, err := t.changePower("cycle", t.r.Power.Cycle)
	if r, ok := t.powerUnvouched(err); ok {
		return r
	}
	var refused *redfish.RefusedError
	switch {
	case !done:
		t.notFenced(infrav1.HostPoweringReason, t.silent()+"; its power is being cycled, before it is given up")
		return onEvent()
	case err != nil && !errors.As(err, &refused):
		return t.powerFailed(err)
	case err == nil:
		t.event("Warning", "PowerCycled", "%s; its power was cycled", t.silent())
	}
	t.notePower(stateOf(t.host.Status.Power))
	t.host.Status.Power.CycledAt = &metav1.Time{Time: t.now}
	t.forgetFailures()
	// Not at once: what was dead a moment ago takes its time.
	t.host.Status.NextAttempt = &metav1.Time{Time: t.now.Add(bootTime / 10)}
	return after(bootTime / 10)
}

// fence turns the power off. Only what was read back counts.
func (t *turn) fence() result {
	if t.powerHeld("powering it off") {
		return onEvent()
	}
	state, done, err := t.changePower("off", t.r.Power.Off)
	if r, ok := t.powerUnvouched(err); ok {
		return r
	}
	switch {
	case !done:
		t.notFenced(infrav1.HostPoweringReason, t.silent()+"; it is being powered off")
		return onEvent()
	case err != nil:
		return t.powerFailed(err)
	case state != powerOff:
		return t.powerFailed(fmt.Errorf("the BMC took the order to power off, but says %s", state))
	}
	t.fenced(t.silent() + "; its BMC confirms that the power is off")
	delete(t.host.Annotations, infrav1.PowerOffAnnotation)
	return after(0)
}

// powerHeld keeps the power as it is while a person works at the host, and between two orders that fail.
func (t *turn) powerHeld(what string) bool {
	if t.host.Spec.Maintenance != nil {
		t.notFenced(infrav1.HostMaintenanceReason, maintenanceNote(t.host, t.silent()+"; "+what+" waits for its end")+t.wayOut())
		return true
	}
	if t.mayPowerOff() && hasReason(t.host, infrav1.HostFencedCondition, infrav1.HostUnconfirmedReason) {
		return false
	}
	return t.r.pace.remaining(t.key(), "power failed", powerRetry, t.now) > 0
}

func (t *turn) powerFailed(err error) result {
	t.r.pace.mark(t.key(), "power failed", t.now)
	t.notFenced(infrav1.HostBMCFailedReason, fmt.Sprintf("%s; %v; tried again at %s", t.silent(), err, stamp(t.now.Add(powerRetry)))+t.wayOut())
	return after(powerRetry)
}

// turnedOn reads the power of a fenced host again: a person may have turned it on since, and a host that runs and does not
// answer is not fenced. A BMC that fails now takes nothing back of what it confirmed.
func (t *turn) turnedOn() (r result, on bool) {
	power := t.host.Status.Power
	if !t.host.Fenced() || stateOf(power) != powerOff || power.ReadAt != nil && t.now.Sub(power.ReadAt.Time) < powerRetry {
		return result{}, false
	}
	state, known, pending := t.readPower()
	switch {
	case pending:
		return onEvent(), true
	case !known || state == powerOff:
		return result{}, false
	}
	// It gets the time that a boot takes, as if we had turned it on.
	t.host.Status.Power.CycledAt = &metav1.Time{Time: t.now}
	t.notFenced(infrav1.HostNotFencedReason, t.silent()+"; it was powered off, and somebody turned it on again: its BMC says "+state+t.wayOut())
	return after(0), true
}

// readPower reads the power of the host from its BMC. It is not known where there is none, and for a while after a failure;
// pending says that the answer is not there yet.
func (t *turn) readPower() (state string, known, pending bool) {
	if t.host.Spec.BMC == nil || t.r.pace.remaining(t.key(), "power failed", powerRetry, t.now) > 0 {
		return "", false, false
	}
	state, done, err := t.powerOrder("look", func(context.Context, *infrav1.QuoinHost) error { return nil })
	if done && err != nil {
		t.r.pace.mark(t.key(), "power failed", t.now)
	}
	return state, done && err == nil, !done
}

// giveUp lets the claim end without the host: it goes into quarantine, and its Machine may go.
func (t *turn) giveUp() {
	t.r.Calls.Cancel(t.key())
	message := t.silent() + ", and its claim had to end"
	if t.host.Fenced() {
		message += "; it was fenced"
	} else {
		message += "; unreachable.release is AfterTimeout, so nobody waited for proof that it does not run"
		t.notFenced(infrav1.HostNotFencedReason, "nothing says that the host does not run any more")
	}
	message += fmt.Sprintf(". It was not reset. When it is back, have it reset and verified: kubectl -n %s annotate quoinhost %s %s=",
		t.host.Namespace, t.host.Name, infrav1.RetryAnnotation)
	t.enter(infrav1.HostStateQuarantined)
	t.condition(infrav1.HostCleanCondition, metav1.ConditionFalse, infrav1.HostDeadReason, message)
	t.condition(infrav1.HostProvisionedCondition, metav1.ConditionFalse, infrav1.HostDeadReason, "the host counts as dead")
	t.event("Warning", infrav1.HostDeadReason, "%s", message)
}

// awaitReturn looks from time to time whether a dead host answers. That it does is told, and nothing else: it may be the
// old node, alive and with its credentials.
func (t *turn) awaitReturn() result {
	if wait := t.r.pace.remaining(t.key(), "return", probeEvery, t.now); wait > 0 {
		return after(wait)
	}
	pulse, o := exchange(t, "return", shortExchange, t.r.Exchanges.Probe)
	if o.pending {
		return o.result
	}
	serves := "it serves nobody"
	if pulse.Owner != nil && !pulse.Owner.Released() {
		serves = fmt.Sprintf("it still serves QuoinMachine %s (claim %s, generation %d)", pulse.Owner.Machine, pulse.Owner.UID, pulse.Owner.Generation)
	}
	message := fmt.Sprintf("the host had been given up, and answers again; %s, and is not trusted until it was reset and verified: kubectl -n %s annotate quoinhost %s %s=",
		serves, t.host.Namespace, t.host.Name, infrav1.RetryAnnotation)
	t.condition(infrav1.HostCleanCondition, metav1.ConditionFalse, infrav1.HostReturnedReason, message)
	t.event("Warning", infrav1.HostReturnedReason, "%s", message)
	return onEvent()
}

// wake turns a host on that was powered off to fence it, when a person wants it reset.
func (t *turn) wake() outcome {
	if stateOf(t.host.Status.Power) != powerOff || t.host.Spec.BMC == nil {
		return ready
	}
	if t.maintained("turning the host on") {
		return pending(onEvent())
	}
	if wait := t.r.pace.remaining(t.key(), "power failed", powerRetry, t.now); wait > 0 {
		return pending(after(wait))
	}
	_, done, err := t.powerOrder("on", t.r.Power.On)
	switch {
	case !done:
		t.condition(infrav1.HostCleanCondition, metav1.ConditionFalse, infrav1.HostPoweringReason, "the host is being turned on, to be reset")
		return pending(onEvent())
	case err != nil:
		t.r.pace.mark(t.key(), "power failed", t.now)
		t.condition(infrav1.HostCleanCondition, metav1.ConditionFalse, infrav1.HostBMCFailedReason, fmt.Sprintf("the host is to be turned on: %v; tried again at %s", err, stamp(t.now.Add(powerRetry))))
		return pending(after(powerRetry))
	}
	return ready
}

// fenced notes that the host does not run.
func (t *turn) fenced(message string) {
	t.condition(infrav1.HostFencedCondition, metav1.ConditionTrue, infrav1.HostFencedReason, message)
	t.event("Warning", infrav1.HostFencedReason, "%s", message)
}

// notFenced says why it is not known that the host does not run, and tells it when the reason changes.
func (t *turn) notFenced(reason, message string) {
	if !hasReason(t.host, infrav1.HostFencedCondition, reason) {
		t.event("Warning", reason, "%s", message)
	}
	t.condition(infrav1.HostFencedCondition, metav1.ConditionFalse, reason, message)
}

// silent begins the sentences of this file.
func (t *turn) silent() string {
	since := t.now
	if t.host.Status.UnreachableSince != nil {
		since = t.host.Status.UnreachableSince.Time
	}
	return fmt.Sprintf("the host has not answered since %s (limit %s)", stamp(since), timeoutOf(t.unreachablePolicy()).Round(time.Second))
}

func stateOf(power *infrav1.HostPower) string {
	if power == nil {
		return ""
	}
	return power.State
}
