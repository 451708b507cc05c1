// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinhost

import (
	"testing"

	. "github.com/onsi/gomega"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
)

func TestEveryStateHasAHandler(t *testing.T) {
	g := NewWithT(t)
	for _, state := range []infrav1.HostState{
		infrav1.HostStateRegistering, infrav1.HostStateInspecting, infrav1.HostStateAvailable, infrav1.HostStateClaimed,
		infrav1.HostStateProvisioning, infrav1.HostStateProvisioned, infrav1.HostStateCleaning, infrav1.HostStateQuarantined,
	} {
		g.Expect(handlers).To(HaveKey(state))
		for _, s := range []claimStatus{unclaimed, held, leaving, missing} {
			for _, pinned := range []bool{true, false} {
				g.Expect(handlers).To(HaveKey(nextState(state, s, pinned, false)))
			}
		}
	}
}

func TestTheStateFollowsTheClaim(t *testing.T) {
	const (
		registering  = infrav1.HostStateRegistering
		inspecting   = infrav1.HostStateInspecting
		available    = infrav1.HostStateAvailable
		claimed      = infrav1.HostStateClaimed
		provisioning = infrav1.HostStateProvisioning
		provisioned  = infrav1.HostStateProvisioned
		cleaning     = infrav1.HostStateCleaning
		quarantined  = infrav1.HostStateQuarantined
	)
	for _, c := range []struct {
		why               string
		from              infrav1.HostState
		status            claimStatus
		ownerlessCleaning bool
		to                infrav1.HostState
	}{
		{"a status that was lost begins anew", "", held, false, registering},
		{"a free host stays free", available, unclaimed, false, available},
		{"a claim is seen", available, held, false, claimed},
		{"a claim during registration waits for its end", registering, held, false, registering},
		{"a host at work stays at work", provisioning, held, false, provisioning},
		{"a node stays a node", provisioned, held, false, provisioned},
		{"a deletion interrupts the way to a node", provisioning, leaving, false, cleaning},
		{"a deletion ends a node", provisioned, leaving, false, cleaning},
		{"a deletion before anything ran", claimed, leaving, false, cleaning},
		{"a quarantined host stays, whatever leaves", quarantined, leaving, false, quarantined},
		{"a quarantined host stays, whoever claims", quarantined, held, false, quarantined},
		{"a claim removed by hand is looked into", provisioned, unclaimed, false, inspecting},
		{"the end of a release whose status was not written", cleaning, unclaimed, false, inspecting},
		{"a scrub needs no claim", cleaning, unclaimed, true, cleaning},
		{"a missing consumer changes nothing", provisioned, missing, false, provisioned},
		{"a reset goes on when its consumer is gone", cleaning, missing, false, cleaning},
	} {
		t.Run(c.why, func(t *testing.T) {
			NewWithT(t).Expect(nextState(c.from, c.status, true, c.ownerlessCleaning)).To(Equal(c.to))
		})
	}
}

func TestAttemptsOfAPlanAreNumbered(t *testing.T) {
	g := NewWithT(t)
	// A claim may consist of digits alone, which are no number of an attempt.
	g.Expect(nextAttempt("reset-12345678", "reset-12345678")).To(Equal("reset-12345678-2"))
	g.Expect(nextAttempt("reset-12345678-2", "reset-12345678")).To(Equal("reset-12345678-3"))
	g.Expect(attemptOf("reset-12345678-02", "reset-12345678")).To(BeZero())
	g.Expect(attemptOf("reset-12345678-1", "reset-12345678")).To(BeZero())
	g.Expect(attemptOf("reset-other", "reset-12345678")).To(BeZero())
	g.Expect(addonsPlan("v1.36.3+Vendor.1")).To(Equal("addons-v1.36.3-vendor.1"))
}
