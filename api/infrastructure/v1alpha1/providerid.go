// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"fmt"
	"strings"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// ProviderIDPrefix begins every provider ID of ours.
const ProviderIDPrefix = "quoin://"

// claimLength is how much of a Machine's UID makes a claim: the first group of a UUID.
const claimLength = 8

// ProviderID names the node that a claim makes of a host. The claim is a part of it because the host's name alone would
// match the old Node when the host is used again at once.
func ProviderID(namespace, host, claim string) string {
	return fmt.Sprintf("%s%s/%s/%s", ProviderIDPrefix, namespace, host, claim)
}

// ParseProviderID is the inverse of ProviderID.
func ParseProviderID(id string) (namespace, host, claim string, err error) {
	parts := strings.Split(strings.TrimPrefix(id, ProviderIDPrefix), "/")
	if !strings.HasPrefix(id, ProviderIDPrefix) || len(parts) != 3 || parts[0] == "" || parts[1] == "" || parts[2] == "" {
		return "", "", "", fmt.Errorf("provider ID %q is not of the form %s<namespace>/<host>/<claim>", id, ProviderIDPrefix)
	}
	return parts[0], parts[1], parts[2], nil
}

// HostOf names the host of the QuoinMachine: by its status, or by its provider ID, which survives a move of the
// objects. ok is false when it has none.
func HostOf(m *QuoinMachine) (namespace, host string, ok bool) {
	if ref := m.Status.HostRef; ref != nil {
		return ref.Namespace, ref.Name, true
	}
	namespace, host, _, err := ParseProviderID(m.Spec.ProviderID)
	return namespace, host, err == nil
}

// ClaimOf is the claim that a Machine with this UID makes.
func ClaimOf(machineUID string) string {
	if len(machineUID) > claimLength {
		return machineUID[:claimLength]
	}
	return machineUID
}

// ProviderID of the node that the claim makes of the host; empty without a claim.
func (h *QuoinHost) ProviderID() string {
	if h.Spec.ConsumerRef == nil {
		return ""
	}
	return ProviderID(h.Namespace, h.Name, h.Spec.ConsumerRef.Claim)
}

// ClaimedBy reports whether the host's claim is that of the QuoinMachine. Its provider ID decides, because UIDs change
// in a move. Before it is set, the Machine that owns the QuoinMachine does: whoever may write a QuoinHost can write any
// name into its claim.
func (h *QuoinHost) ClaimedBy(m *QuoinMachine) bool {
	ref := h.Spec.ConsumerRef
	switch {
	case ref == nil || ref.Namespace != m.Namespace || ref.Name != m.Name:
		return false
	case m.Spec.ProviderID != "":
		return m.Spec.ProviderID == h.ProviderID()
	}
	for _, owner := range m.OwnerReferences {
		if owner.Kind == "Machine" {
			return owner.Name == ref.Machine && ClaimOf(string(owner.UID)) == ref.Claim
		}
	}
	return true
}

// Serves reports whether the host's claim is that of the Machine, by the same rule.
func (h *QuoinHost) Serves(m *clusterv1.Machine) bool {
	ref := h.Spec.ConsumerRef
	switch {
	case ref == nil || ref.Namespace != m.Namespace || ref.Machine != m.Name:
		return false
	case m.Spec.ProviderID != "":
		return m.Spec.ProviderID == h.ProviderID()
	}
	return ref.Claim == ClaimOf(string(m.UID))
}

// ResetOperation begins the ID of the plan that resets a host after a claim; a repeated attempt adds "-2" and so on.
func ResetOperation(claim string) string { return "reset-" + claim }

// Released says whether the host was verified to be clean after the claim that it still carries.
func (h *QuoinHost) Released() bool {
	if h.Spec.ConsumerRef == nil || h.Status.Operation == nil {
		return false
	}
	id, want := h.Status.Operation.ID, ResetOperation(h.Spec.ConsumerRef.Claim)
	if id != want && !strings.HasPrefix(id, want+"-") {
		return false
	}
	for _, c := range h.Status.Conditions {
		if c.Type == HostCleanCondition {
			return c.Status == "True" && c.Reason == HostReleasePendingReason
		}
	}
	return false
}

// Abandoned says whether a person stated that the host is gone or will be wiped, so that nobody waits for its reset.
func (h *QuoinHost) Abandoned() bool {
	if h.Status.State != HostStateQuarantined {
		return false
	}
	for _, c := range h.Status.Conditions {
		if c.Type == HostCleanCondition {
			return c.Status == "False" && c.Reason == HostAbandonedReason
		}
	}
	return false
}
