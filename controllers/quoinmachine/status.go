// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinmachine

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/lifecycle"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/objectpatch"
)

// summarize derives the whole status from the view.
//
// Ready says what the machine waits for, where. Four of its reasons are final, and only a new Machine helps:
// StepFailed, when the bootstrap data failed on the host, BootstrapInterrupted, when kubeadm was cut off, Abandoned and
// Dead. AddonImagesPresent is no part of Ready: during an upgrade every machine lacks the new version's images for a
// while, and serves all the same.
func summarize(m *infrav1.QuoinMachine, v *observation) {
	claimed := hostClaimed(v)
	provisioned := hostProvisioned(m, v)
	conditionsOf(m, claimed, provisioned, addonImages(m, v), ready(m, v, claimed, provisioned))
	conditionsOf(m, lifecycle.Conditions(m, v.machine, v.now)...)
	m.Status.Candidates = v.candidates
	if v.host == nil {
		return
	}
	m.Status.HostRef = &infrav1.HostReference{Namespace: v.host.Namespace, Name: v.host.Name}
	m.Status.FailureDomain = v.host.Spec.FailureDomain
	if addresses := addressesOf(v.host); len(addresses) > 0 {
		m.Status.Addresses = addresses
	}
	// A host whose status was lost in a move tells less for a while; what was true stays.
	if len(v.host.Status.AddonVersions) > 0 {
		m.Status.AddonVersions = slices.Clone(v.host.Status.AddonVersions)
	}
	if provisioned.Status == metav1.ConditionTrue {
		m.Status.Initialization.Provisioned = ptr.To(true)
	}
}

func hostClaimed(v *observation) metav1.Condition {
	c := metav1.Condition{Type: infrav1.MachineHostClaimedCondition, Status: metav1.ConditionFalse}
	switch {
	case v.host != nil:
		c.Status, c.Reason = metav1.ConditionTrue, infrav1.MachineHostClaimedReason
	case v.obstacle != nil:
		c.Reason, c.Message = v.obstacle.reason, v.obstacle.message
	default:
		c.Reason, c.Message = infrav1.MachineWaitingForHostReason, "no host was claimed yet"
	}
	return c
}

func hostProvisioned(m *infrav1.QuoinMachine, v *observation) metav1.Condition {
	c := metav1.Condition{Type: infrav1.MachineHostProvisionedCondition, Status: metav1.ConditionFalse}
	if v.host == nil {
		c.Reason, c.Message = infrav1.MachineWaitingForHostReason, "waiting for a host"
		return c
	}
	source := conditions.Get(v.host, infrav1.HostProvisionedCondition)
	name := v.host.Namespace + "/" + v.host.Name
	switch {
	case source == nil || source.Reason == infrav1.HostNotReachedReason || source.Reason == infrav1.HostNotClaimedReason:
		// What the host says is older than the claim.
		c.Reason, c.Message = infrav1.MachineWaitingForBootstrapDataReason, fmt.Sprintf("host %s: claimed, not begun", name)
	case source.Status == metav1.ConditionTrue:
		c.Status, c.Reason = metav1.ConditionTrue, source.Reason
	default:
		c.Reason, c.Message = source.Reason, fmt.Sprintf("host %s: %s", name, source.Message)
		if told := conditions.Get(m, infrav1.MachineBootstrapDataRanCondition); told != nil && told.Reason == source.Reason {
			// A host of another namespace does not tell that.
			c.Message = fmt.Sprintf("host %s: %s", name, told.Message)
		}
		// The way to the host is the nearer obstacle, unless the end is known already.
		if obstacle := unreached(v.host); obstacle != nil && !final(source.Reason) {
			c.Reason, c.Message = obstacle.Reason, fmt.Sprintf("host %s: %s", name, obstacle.Message)
		}
	}
	return c
}

// final says that the bootstrap data will not run to its end on this host.
func final(reason string) bool {
	switch reason {
	case infrav1.HostStepFailedReason, infrav1.HostBootstrapInterruptedReason, infrav1.HostAbandonedReason,
		infrav1.HostDeadReason:
		return true
	}
	return false
}

// unreached is why nobody gets to the host at the moment; nil when nothing is known to be in the way.
func unreached(host *infrav1.QuoinHost) *metav1.Condition {
	for _, kind := range []string{infrav1.HostKeyVerifiedCondition, infrav1.HostReachableCondition} {
		if c := conditions.Get(host, kind); c != nil && c.Status == metav1.ConditionFalse &&
			c.Reason != infrav1.HostNotReachedReason {
			return c
		}
	}
	return nil
}

func addonImages(m *infrav1.QuoinMachine, v *observation) metav1.Condition {
	c := metav1.Condition{Type: infrav1.MachineAddonImagesCondition, Status: metav1.ConditionTrue,
		Reason: infrav1.MachineImagesPresentReason}
	var present []string
	if v.host != nil {
		present = v.host.Status.AddonVersions
	}
	var missing []string
	for _, version := range m.Spec.AddonVersions {
		if !slices.Contains(present, version) {
			missing = append(missing, version)
		}
	}
	if len(missing) == 0 {
		return c
	}
	c.Status, c.Reason = metav1.ConditionFalse, infrav1.MachineWaitingForImagesReason
	c.Message = "the host lacks the add-on images of " + strings.Join(missing, ", ")
	if v.host != nil {
		c.Message = fmt.Sprintf("host %s/%s lacks the add-on images of %s", v.host.Namespace, v.host.Name,
			strings.Join(missing, ", "))
		if source := conditions.Get(v.host, infrav1.HostAddonImagesCondition); source != nil &&
			source.Status == metav1.ConditionFalse {
			c.Message += ": " + source.Message
		}
	}
	return c
}

func ready(m *infrav1.QuoinMachine, v *observation, claimed, provisioned metav1.Condition) metav1.Condition {
	c := metav1.Condition{Type: infrav1.MachineReadyCondition, Status: metav1.ConditionFalse}
	switch {
	case v.hold != nil:
		c.Reason, c.Message = v.hold.reason, v.hold.message
	case !m.DeletionTimestamp.IsZero():
		c.Reason, c.Message = infrav1.MachineReleasingReason, "no host to release"
		if v.host != nil {
			c.Message = fmt.Sprintf("host %s/%s, %s: %s", v.host.Namespace, v.host.Name, v.host.Status.State,
				conditions.GetMessage(v.host, infrav1.HostReadyCondition))
		}
	case claimed.Status != metav1.ConditionTrue:
		c.Reason, c.Message = claimed.Reason, claimed.Message
	case provisioned.Status == metav1.ConditionTrue:
		c.Status, c.Reason = metav1.ConditionTrue, clusterv1.ReadyReason
	case ptr.Deref(m.Status.Initialization.Provisioned, false) && !final(provisioned.Reason):
		// The host's status was lost in a move and is being read back from the host; the node runs all the while.
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, clusterv1.ReadyReason, provisioned.Message
	default:
		c.Reason, c.Message = provisioned.Reason, provisioned.Message
	}
	return c
}

func conditionsOf(m *infrav1.QuoinMachine, all ...metav1.Condition) {
	for _, c := range all {
		c.ObservedGeneration = m.Generation
		conditions.Set(m, c)
	}
}

// addressesOf are the node's: its addresses, and the name it registers with.
func addressesOf(host *infrav1.QuoinHost) []clusterv1.MachineAddress {
	facts := host.Status.Facts
	if facts == nil {
		return nil
	}
	var out []clusterv1.MachineAddress
	for _, text := range facts.NodeAddresses {
		if _, err := netip.ParseAddr(text); err == nil {
			out = append(out, clusterv1.MachineAddress{Type: clusterv1.MachineInternalIP, Address: text})
		}
	}
	if facts.Hostname != "" {
		out = append(out, clusterv1.MachineAddress{Type: clusterv1.MachineHostName, Address: facts.Hostname})
	}
	return out
}

func patchMachine(ctx context.Context, helper *objectpatch.Helper, m *infrav1.QuoinMachine) error {
	err := helper.Patch(ctx, m,
		infrav1.MachineReadyCondition, infrav1.MachineHostClaimedCondition, infrav1.MachineHostProvisionedCondition,
		infrav1.MachineAddonImagesCondition, infrav1.MachineDrainableCondition, infrav1.MachineDrainedCondition,
		infrav1.MachineTerminableCondition, clusterv1.PausedCondition,
	)
	if err != nil {
		return fmt.Errorf("patching QuoinMachine %s/%s: %w", m.Namespace, m.Name, err)
	}
	return nil
}
