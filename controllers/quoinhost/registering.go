// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinhost

import (
	"context"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/inspect"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/owner"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/hostaccess"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/suitability"
)

// registering makes the first contact. The key that is seen there is pinned before anything else happens.
func (t *turn) registering() (result, error) {
	if !trusted(t.host) && !hostaccess.FirstContact(t.host) {
		t.find(&hostaccess.HostKeyMissingError{Host: t.key().String()})
		return onEvent(), nil
	}
	if !trusted(t.host) {
		key, o := exchange(t, "identify", shortExchange, t.r.Exchanges.Identify)
		if o.pending {
			return o.result, nil
		}
		if err := t.pin(key); err != nil {
			return result{}, err
		}
		t.event("Normal", "HostKeyRecorded", "recorded host key %s at the first contact; compare it with the host's own", fingerprint(key))
		return onEvent(), nil
	}
	if _, o := exchange(t, "probe", shortExchange, t.r.Exchanges.Probe); o.pending {
		return o.result, nil
	}
	return t.moveTo(infrav1.HostStateInspecting)
}

// inspecting reads the facts and judges them. A host that nobody has must be clean to become Available; what is found on
// a claimed one is its claim's business.
func (t *turn) inspecting() (result, error) {
	facts, o := exchange(t, "inspect", shortExchange, func(ctx context.Context, host *infrav1.QuoinHost) (*inspect.Facts, error) {
		return t.r.Exchanges.Inspect(ctx, host)
	})
	if o.pending {
		return o.result, nil
	}
	t.host.Status.Facts = hostFacts(facts, t.host, t.virtualAddresses(), t.now)
	if t.claim.standing == unclaimed {
		// A record that cannot be read is a leftover, below.
		record, _ := recordOf(facts.OwnerRecord)
		if raised, err := t.catchUp(record); err != nil || raised {
			return after(0), err
		}
	}
	problems, hints := suitability.Assess(facts, t.host.Spec.NodeNetwork)
	if len(problems) > 0 {
		message := strings.Join(problems, "; ")
		if !t.isFalse(infrav1.HostInspectedCondition, message) {
			t.event("Warning", infrav1.HostUnsuitableReason, "%s", message)
		}
		t.condition(infrav1.HostInspectedCondition, metav1.ConditionFalse, infrav1.HostUnsuitableReason, message)
		if t.claim.standing == unclaimed {
			t.host.Status.NextAttempt = &metav1.Time{Time: t.now.Add(time.Minute)}
			return after(time.Minute), nil
		}
	} else {
		t.condition(infrav1.HostInspectedCondition, metav1.ConditionTrue, infrav1.HostInspectedReason, strings.Join(hints, "; "))
	}
	if t.claim.standing != unclaimed {
		if record, err := recordOf(facts.OwnerRecord); err == nil && t.quarantinedBy(record) {
			return after(0), nil
		}
		return t.moveTo(infrav1.HostStateClaimed)
	}
	if reason, message := leftovers(facts, t.host); reason != "" {
		t.condition(infrav1.HostCleanCondition, metav1.ConditionFalse, reason, message)
		t.event("Warning", reason, "%s", message)
		return t.moveTo(infrav1.HostStateQuarantined)
	}
	t.condition(infrav1.HostCleanCondition, metav1.ConditionTrue, infrav1.HostCleanReason, "")
	t.condition(infrav1.HostProvisionedCondition, metav1.ConditionFalse, infrav1.HostNotClaimedReason, "the host is free")
	return t.moveTo(infrav1.HostStateAvailable)
}

// available asks a free host from time to time whether it is there, because a claim should not meet a dead one.
func (t *turn) available() (result, error) {
	if t.retried && len(t.alike) > 0 {
		return t.moveTo(infrav1.HostStateInspecting)
	}
	return t.probe()
}

// probe asks for the boot ID. A free host that rebooted may have changed and is inspected again; a provisioned one stays
// what it is, because its bootstrap data must not run a second time.
func (t *turn) probe() (result, error) {
	if wait := t.r.pace.remaining(t.key(), "probe", probeEvery, t.now); wait > 0 {
		return after(wait), nil
	}
	pulse, o := exchange(t, "probe", shortExchange, t.r.Exchanges.Probe)
	if o.pending {
		return o.result, nil
	}
	facts := t.host.Status.Facts
	same := facts != nil && facts.BootID == pulse.BootID
	if t.host.Status.State == infrav1.HostStateAvailable {
		if same && !taken(pulse.Owner, t.host) {
			return after(probeEvery), nil
		}
		return t.moveTo(infrav1.HostStateInspecting)
	}
	if !same && facts != nil {
		t.event("Normal", "Rebooted", "the host rebooted")
		facts.BootID = pulse.BootID
	}
	if t.quarantinedBy(pulse.Owner) {
		return after(0), nil
	}
	if t.compare(pulse.Owner) && pulse.Owner != nil && !pulse.Owner.Released() && pulse.Owner.Generation < hostaccess.Generation(t.host) {
		// The manager that adopted the claim did not live to tell the host.
		t.r.pace.mark(t.key(), adopted, t.now)
		return after(0), nil
	}
	return after(probeEvery), nil
}

// taken says whether somebody else has, or had, a host that is free to us.
func taken(record *owner.Record, host *infrav1.QuoinHost) bool {
	return record != nil && (!record.Released() || record.Generation > hostaccess.Generation(host) || record.Quarantine.Reason != "")
}

func fingerprint(key string) string {
	keys, err := ssh.ParseHostKeys(key)
	if err != nil || len(keys) == 0 {
		return fmt.Sprintf("%q", key)
	}
	return ssh.Fingerprint(keys[0])
}
