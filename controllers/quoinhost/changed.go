// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinhost

import (
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/firmware"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/placement"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/text"
)

// A host key proves who may speak for a host, not which machine speaks: it is on a disk, which is moved to another
// machine, and in an image or a backup, from which the host is installed anew. So a host is compared with its own facts
// of before. What one of the two does not say, as facts of an older Quoin, is no difference.

// machineReplacedWord is the value of a retry by which a person confirms a machine that was replaced. One without it is
// asked for in many messages, and says nothing about the machine.
const machineReplacedWord = "machine-replaced"

// changed says in what a host is another one than before, the gravest reason first; an empty reason when in nothing.
func changed(before, now *infrav1.HostFacts) (reason, message string) {
	if before == nil || now == nil {
		return "", ""
	}
	var found []string
	note := func(kind, what string) {
		if what == "" {
			return
		}
		if reason == "" {
			reason = kind
		}
		found = append(found, what)
	}
	note(infrav1.HostMachineReplacedReason, anotherMachine(before, now))
	if was, is := placement.MachineID(before), placement.MachineID(now); was != "" && is != "" && was != is {
		note(infrav1.HostReinstalledReason, fmt.Sprintf("the machine-id was %s and is %s: the host was "+
			"installed anew, or was given another machine-id", was, is))
	}
	for _, what := range otherDisks(before.Disks, now.Disks) {
		note(infrav1.HostDiskReplacedReason, what)
	}
	return reason, text.Shorten(strings.Join(found, "; "), maxCause)
}

// anotherMachine goes by what a BMC is compared with as well: the UUIDs, and the serial numbers, which tell boards of a
// make with one UUID apart.
func anotherMachine(before, now *infrav1.HostFacts) string {
	for _, known := range []struct {
		kind    string
		was, is string
		same    func(a, b string) bool
	}{
		{"product UUID", firmware.UUID(before.ProductUUID), firmware.UUID(now.ProductUUID), firmware.SameUUID},
		{"serial number", firmware.Serial(before.SerialNumber), firmware.Serial(now.SerialNumber), firmware.SameSerial},
	} {
		if known.was != "" && known.is != "" && !known.same(known.was, known.is) {
			return fmt.Sprintf("the %s was %s and is %s: another machine answers at the address, or the board was replaced",
				known.kind, known.was, known.is)
		}
	}
	return ""
}

// otherDisks names the disks that are gone, and what is in their place. One that has no name of its own but the
// kernel's, which move at a boot, is not known again.
func otherDisks(before, now []infrav1.Disk) (found []string) {
	if len(now) == 0 {
		return nil
	}
	for _, was := range before {
		if was.ID == was.Name || hasDisk(now, was.ID) {
			continue
		}
		what := fmt.Sprintf("disk %s (%s) is gone", was.ID, was.Name)
		for _, is := range now {
			if is.Name == was.Name && is.ID != is.Name && !hasDisk(before, is.ID) {
				what += fmt.Sprintf(", and %s is disk %s", is.Name, is.ID)
			}
		}
		found = append(found, what)
	}
	return found
}

func hasDisk(disks []infrav1.Disk, id string) bool {
	return slices.ContainsFunc(disks, func(d infrav1.Disk) bool { return d.ID == id })
}

// noteReboot compares a host that nobody inspects, because it serves its claim, and keeps what it says it is. Disks
// that came are not noted: those of volumes come and go with pods.
func (r *reconciliation) noteReboot(probed ProbeResult) {
	facts := r.host.Status.Facts
	facts.BootID = fact(probed.BootID)
	if probed.Facts == nil {
		return
	}
	read := &infrav1.HostFacts{MachineID: fact(probed.Facts.MachineID), ProductUUID: fact(probed.Facts.ProductUUID),
		SerialNumber: fact(probed.Facts.SerialNumber), Disks: disksOf(probed.Facts)}
	r.noteChanged(read)
	facts.MachineID, facts.ProductUUID, facts.SerialNumber = read.MachineID, read.ProductUUID, read.SerialNumber
	if len(read.Disks) > 0 {
		facts.Disks = slices.DeleteFunc(facts.Disks, func(d infrav1.Disk) bool { return !hasDisk(read.Disks, d.ID) })
	}
}

// noteChanged says in what the host is not what its facts say, which are about to be read anew. Nothing is done to it
// for that. The facts are kept as they are now: a BMC of the machine before is then no longer that of this host, and to
// have powered it off proves nothing about this one.
func (r *reconciliation) noteChanged(now *infrav1.HostFacts) {
	reason, message := changed(r.host.Status.Facts, now)
	if reason == "" {
		return
	}
	if reason == infrav1.HostMachineReplacedReason && r.host.Status.Power != nil {
		// Whether the BMC is this machine's shows before somebody needs it.
		r.host.Status.Power.AskedAt = nil
	}
	r.event("Warning", reason, "%s", message)
	if r.host.MachineReplaced() && reason != infrav1.HostMachineReplacedReason {
		return
	}
	if ref := r.host.Spec.ConsumerRef; ref != nil {
		message += fmt.Sprintf(". Nothing is done to the host; if its node does not work, delete Machine %s/%s",
			ref.Namespace, ref.Machine)
	} else {
		message += ". The host was inspected anew, and counts as what it is now"
	}
	word := ""
	if reason == infrav1.HostMachineReplacedReason {
		word = machineReplacedWord
		if r.host.Spec.BMC != nil {
			message += ". See that spec.bmc is the BMC of this machine"
		}
	}
	r.setFalse(infrav1.HostUnchangedCondition, reason, message+". When this is known and right: "+
		annotate(r.host, infrav1.RetryAnnotation, word))
}

// acceptChanged ends what noteChanged said, at a person's word.
func (r *reconciliation) acceptChanged() {
	if !r.host.MachineReplaced() || r.word == machineReplacedWord {
		conditions.Delete(r.host, infrav1.HostUnchangedCondition)
	}
}
