// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// GivenUp says whether nobody waits for the reset of the host any more: a person abandoned it, or it counts as dead
// under its policy. Its claim ends without a reset, and it stays Quarantined until a person has it reset and verified;
// that it answers again changes nothing about that.
func (h *QuoinHost) GivenUp() bool {
	if h.Status.State != HostStateQuarantined {
		return false
	}
	for _, c := range h.Status.Conditions {
		if c.Type == HostCleanCondition && c.Status == "False" {
			return c.Reason == HostAbandonedReason || c.Reason == HostDeadReason || c.Reason == HostReturnedReason
		}
	}
	return false
}

// Answers reports whether the host itself answered when it was last asked, and so runs: it let us in, or showed the key
// that is pinned and refused us. What shows another key is not known to be the host.
func (h *QuoinHost) Answers() bool {
	for _, c := range h.Status.Conditions {
		if c.Type == HostReachableCondition {
			return c.Status == "True" || c.Reason == HostAuthenticationFailedReason
		}
	}
	return false
}

// ReleasedUnclean says whether a person let the Machine of the host go although the host is not known to be clean. Its
// claim ends without that, and it stays Quarantined; unlike one that was given up it may run.
func (h *QuoinHost) ReleasedUnclean() bool {
	if h.Status.State != HostStateQuarantined {
		return false
	}
	for _, c := range h.Status.Conditions {
		if c.Type == HostCleanCondition {
			return c.Status == "False" && c.Reason == HostReleasedUncleanReason
		}
	}
	return false
}

// StaleClaim is the condition that says that the host serves a newer generation of its claim, as the objects of another
// management cluster have it; nil when none does, and for no host.
func (h *QuoinHost) StaleClaim() *metav1.Condition {
	if h == nil {
		return nil
	}
	for i := range h.Status.Conditions {
		if c := &h.Status.Conditions[i]; c.Status == metav1.ConditionFalse && c.Reason == HostStaleClaimReason {
			return c
		}
	}
	return nil
}

// Fenced says whether the host is known not to run: its power was confirmed to be off, or a person stated that it is
// gone.
func (h *QuoinHost) Fenced() bool {
	for _, c := range h.Status.Conditions {
		if c.Type == HostFencedCondition {
			return c.Status == "True"
		}
	}
	return false
}

// MachineReplaced says whether another machine answers at the host's address than before, and nobody has confirmed it.
func (h *QuoinHost) MachineReplaced() bool {
	for _, c := range h.Status.Conditions {
		if c.Type == HostUnchangedCondition {
			return c.Status == "False" && c.Reason == HostMachineReplacedReason
		}
	}
	return false
}
