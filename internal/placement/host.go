// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"k8s.io/utils/ptr"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
)

// HostOf is a QuoinHost as placement sees it.
func HostOf(h *infrav1.QuoinHost) Host {
	_, detached := h.Annotations[infrav1.DetachedAnnotation]
	host := Host{
		Namespace: h.Namespace, Name: h.Name, Labels: h.Labels,
		State:              string(h.Status.State),
		Ready:              conditions.IsTrue(h, infrav1.HostReadyCondition),
		InUse:              h.Spec.ConsumerRef != nil,
		Leaving:            !h.DeletionTimestamp.IsZero() || annotations.HasPaused(h),
		Held:               h.Spec.HeldFor != nil,
		Detached:           detached,
		Maintenance:        h.Spec.Maintenance != nil,
		FailureDomain:      h.Spec.FailureDomain,
		ConsumerNamespaces: h.Spec.ConsumerNamespaces,
		Identities:         IdentitiesOf(h),
		FormerPool:         h.Annotations[infrav1.FormerPoolAnnotation],
		Staged:             h.Status.Staged,
	}
	if h.Status.Facts != nil {
		host.Runtime = h.Status.Facts.ContainerRuntime
		host.Cgroup = CgroupOf(h.Status.Facts)
	}
	if h.Spec.Quarantine != nil {
		// Its status may be older than that, or lost.
		host.State = string(infrav1.HostStateQuarantined)
	}
	answers := h.Status.UnreachableSince == nil && !conditions.IsFalse(h, infrav1.HostReachableCondition)
	switch infrav1.HostState(host.State) {
	case infrav1.HostStateCleaning:
		host.Preparing = answers
	case infrav1.HostStateInspecting:
		host.Preparing = answers && !conditions.IsFalse(h, infrav1.HostInspectedCondition)
	case infrav1.HostStateClaimed, infrav1.HostStateProvisioning, infrav1.HostStateProvisioned:
		host.Serving = answers
	}
	if failure := h.Status.LastFailure; failure != nil {
		host.FailedAt, host.FailedPool = failure.Time.Time, failure.Pool
	}
	return host
}

// HostFails reports whether a reason why a host does not become a Node is the host's: a Machine like the one that has
// it may become a Node on another host.
func HostFails(reason string) bool {
	switch reason {
	case infrav1.HostStepFailedReason, infrav1.HostBootstrapInterruptedReason, infrav1.HostOperationFailedReason,
		infrav1.HostAbandonedReason, infrav1.HostDeadReason, infrav1.HostUnsuitableReason, infrav1.HostClockOffsetReason,
		infrav1.HostDuplicateReason, infrav1.HostOwnedByOtherReason, infrav1.HostStaleClaimReason,
		infrav1.HostNamespaceNotAllowedReason, infrav1.HostNotAcceptedReason, infrav1.HostMachineMismatchReason,
		infrav1.HostUnreachableReason, infrav1.HostAddressRefusedReason, infrav1.HostAuthenticationFailedReason,
		infrav1.HostCredentialsInvalidReason, infrav1.HostKeyChangedReason, infrav1.HostKeyMissingReason:
		return true
	}
	return false
}

// CgroupOf is the version of control groups that a kubelet on the host has to be told of; 0 where it is not known, and
// where the host itself tells it. A host that was inspected before that was asked may do so.
func CgroupOf(facts *infrav1.HostFacts) int32 {
	if facts == nil || ptr.Deref(facts.KubeletOnCgroupV1, true) {
		return 0
	}
	return facts.CgroupVersion
}
