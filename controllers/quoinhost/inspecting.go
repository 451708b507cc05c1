// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinhost

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/inspect"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/owner"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/hostaccess"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/suitability"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/text"
)

// inspecting reads the facts and judges them. A host that nobody has must be clean to become Available; what is found
// on a claimed one is its claim's business.
func (r *reconciliation) inspecting(ctx context.Context) (result, error) {
	facts, o := call(ctx, r, callInspect, shortCall, r.controller.Provisioner.Inspect)
	if o.pending {
		return o.result, nil
	}
	read := hostFacts(facts, r.host, r.virtualAddresses(), r.now)
	r.noteChanged(read)
	r.host.Status.Facts = read
	if r.claim.status == unclaimed {
		// A record that cannot be read is a leftover, below.
		record, _ := recordOf(facts.OwnerRecord)
		if raised, err := r.syncToken(ctx, record); err != nil || raised {
			return after(0), err
		}
	}
	problems, hints := suitability.Assess(facts, r.host.Spec.NodeNetwork)
	if hint := r.unrecorded(&facts.Traces); hint != "" {
		hints = append([]string{hint}, hints...)
	}
	if len(problems) > 0 {
		message := strings.Join(problems, "; ")
		r.warn(infrav1.HostInspectedCondition, infrav1.HostUnsuitableReason, message)
		if r.claim.status == unclaimed {
			r.host.Status.NextAttempt = &metav1.Time{Time: r.now.Add(r.timings().Inspect)}
			return after(r.timings().Inspect), nil
		}
	} else {
		r.condition(infrav1.HostInspectedCondition, metav1.ConditionTrue, infrav1.HostInspectedReason,
			strings.Join(hints, "; "))
	}
	if r.claim.status != unclaimed {
		if record, err := recordOf(facts.OwnerRecord); err == nil && r.quarantinedBy(record) {
			return after(0), nil
		}
		return r.moveTo(infrav1.HostStateClaimed), nil
	}
	if reason, message := leftovers(facts, r.host); reason != "" {
		r.setFalse(infrav1.HostCleanCondition, reason, message)
		r.event("Warning", reason, "%s", message)
		return r.moveTo(infrav1.HostStateQuarantined), nil
	}
	r.baseline = ptr.To(facts.Traces.Encode())
	r.setTrue(infrav1.HostCleanCondition, infrav1.HostCleanReason)
	r.setFalse(infrav1.HostProvisionedCondition, infrav1.HostNotClaimedReason, "the host is free")
	return r.moveTo(infrav1.HostStateAvailable), nil
}

// unrecorded says, long before the release that cannot do it, that nothing is there to compare a shared host with.
func (r *reconciliation) unrecorded(now *inspect.Traces) string {
	record, why := now.Encode(), ""
	if r.claim.status != unclaimed {
		record = r.host.Spec.Baseline
	} else if len(now.All) > inspect.MaxTraces {
		why = fmt.Sprintf(" (it has %d users, files, images and others, and %d are the most)", len(now.All),
			inspect.MaxTraces)
	}
	if record != "" || ignoresChanges(r.host) {
		return ""
	}
	hint := "nothing is on record of what the host has before a claim" + why +
		", so its release will keep it Quarantined; set spec.cleaning.ignoreChanges, or share it with no other namespace"
	if !strings.HasPrefix(conditions.GetMessage(r.host, infrav1.HostInspectedCondition), hint) {
		r.event("Warning", "NothingToCompare", "%s", hint)
	}
	return hint
}

// leftovers says why a host that nobody has is not clean; an empty reason means that it is.
func leftovers(facts *inspect.Facts, host *infrav1.QuoinHost) (reason, message string) {
	retry := annotate(host, infrav1.RetryAnnotation, "")
	record, err := recordOf(facts.OwnerRecord)
	if err != nil {
		return infrav1.HostOwnedByOtherReason, err.Error() + "; then run: " + retry
	}
	if record != nil && record.Generation > hostaccess.Generation(host) {
		ours := owner.Record{Generation: hostaccess.Generation(host)}
		return infrav1.HostStaleClaimReason, staleMessage(&owner.StaleError{Ours: ours, Holder: *record}, host)
	}
	named := record != nil && record.Namespace == host.Namespace && record.Host == host.Name
	if record != nil && record.Quarantine.Reason != "" && (named || record.Released()) {
		return record.Quarantine.Reason, remembered(record, host, false)
	}
	if record != nil && !record.Released() {
		if !named {
			return infrav1.HostOwnedByOtherReason, fmt.Sprintf("the host says that it serves QuoinMachine %s as QuoinHost "+
				"%s/%s, which is not this one; register a host once only. When that owner is gone for good, remove "+
				"/var/lib/quoin/owner.json on the host and run: %s", record.Machine, record.Namespace, record.Host, retry)
		}
		return infrav1.HostNotCleanReason, fmt.Sprintf("the host still serves QuoinMachine %s (claim %s), which nobody "+
			"released; to reset it: %s", record.Machine, record.UID, retry)
	}
	if len(facts.KubernetesPresent) > 0 {
		return infrav1.HostNotCleanReason, fmt.Sprintf("an earlier Kubernetes is on the host: %s; look whether it is still "+
			"needed", text.Shorten(strings.Join(facts.KubernetesPresent, ", "), maxCause)) + waysOut(host, false)
	}
	return "", ""
}

const (
	// maxFact and maxKernelName bound what a host can bring into the status, beside how many of each Parse takes: one that
	// says more than real ones do must not keep its own status, and why it waits, from being written.
	maxFact       = 256
	maxKernelName = 32
)

func fact(said string) string { return text.Shorten(said, maxFact) }

// kernelName is that of an interface or of a disk.
func kernelName(said string) string { return text.Shorten(said, maxKernelName) }

// hostFacts is what the status shows of an inspection.
func hostFacts(facts *inspect.Facts, host *infrav1.QuoinHost, virtual []netip.Prefix,
	now time.Time) *infrav1.HostFacts {
	out := &infrav1.HostFacts{
		InspectedAt:          &metav1.Time{Time: now},
		Hostname:             fact(facts.Hostname),
		OSImage:              fact(facts.OS.PrettyName),
		OSID:                 fact(facts.OS.ID),
		KernelVersion:        fact(facts.Kernel),
		Architecture:         fact(facts.Architecture),
		BootID:               fact(facts.BootID),
		MachineID:            fact(facts.MachineID),
		ProductUUID:          fact(facts.ProductUUID),
		SerialNumber:         fact(facts.SerialNumber),
		CPUs:                 int32(facts.CPUs), //nolint:gosec // a host has fewer processors than that
		Memory:               resource.NewQuantity(facts.MemoryBytes, resource.BinarySI),
		DefaultInterface:     kernelName(facts.DefaultInterface),
		CgroupVersion:        int32(facts.CgroupVersion), //nolint:gosec // 1 or 2
		KubeletOnCgroupV1:    facts.KubeletOnCgroupV1,
		ClockOffset:          &metav1.Duration{Duration: facts.ClockOffset.Round(time.Millisecond)},
		CloudInitEnabled:     ptr.To(facts.CloudInitEnabled),
		TCPForwardingAllowed: facts.TCPForwardingAllowed,
		Disks:                disksOf(facts),
	}
	if facts.ContainerRuntime.Name != "" {
		out.ContainerRuntime = fact(facts.ContainerRuntime.Name + "://" + facts.ContainerRuntime.Version)
	}
	for _, a := range facts.Addresses {
		out.Addresses = append(out.Addresses, infrav1.InterfaceAddress{Interface: kernelName(a.Interface),
			Address: netip.PrefixFrom(a.Address, a.Prefix).String()})
	}
	// What is wrong with them, suitability.Assess says.
	out.NodeAddresses, _ = suitability.NodeAddresses(facts, host.Spec.NodeNetwork, virtual)
	return out
}

func disksOf(facts *inspect.Facts) (out []infrav1.Disk) {
	for _, d := range facts.Disks {
		out = append(out, infrav1.Disk{ID: fact(d.ID), Name: kernelName(d.Name), Size: resource.NewQuantity(d.SizeBytes,
			resource.BinarySI), Rotational: ptr.To(d.Rotational)})
	}
	return out
}
