// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinhost

import (
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/inspect"
)

const (
	uuidA = "4c4c4544-0042-3510-8053-b4c04f4a4e31"
	uuidB = "4c4c4544-0042-3510-8053-b4c04f4a4e32"
	// uuidASwapped is uuidA with its first three fields in the other byte order.
	uuidASwapped = "44454c4c-4200-1035-8053-b4c04f4a4e31"
	idA          = "0123456789abcdef0123456789abcdef"
	idB          = "fedcba9876543210fedcba9876543210"
)

func TestAHostIsComparedWithItsOwnEarlierFacts(t *testing.T) {
	disks := func(ids ...string) (all []infrav1.Disk) {
		for i, id := range ids {
			all = append(all, infrav1.Disk{ID: id, Name: "sd" + string(rune('a'+i))})
		}
		return all
	}
	type facts = infrav1.HostFacts
	for name, c := range map[string]struct {
		before, now *infrav1.HostFacts
		reason      string
		says        []string
	}{
		"a first inspection": {nil, &facts{MachineID: idA, ProductUUID: uuidA}, "", nil},
		"nothing": {&facts{MachineID: idA, ProductUUID: uuidA},
			&facts{MachineID: idA, ProductUUID: uuidA}, "", nil},
		"facts of an older Quoin": {&facts{Hostname: "h1", BootID: "1"},
			&facts{MachineID: idA, ProductUUID: uuidA, SerialNumber: "SN-1001", Disks: disks("wwn-1")}, "", nil},
		"what cannot be read now": {
			&facts{MachineID: idA, ProductUUID: uuidA, SerialNumber: "SN-1001", Disks: disks("wwn-1")}, &facts{}, "", nil},
		"another machine-id": {&facts{MachineID: idA}, &facts{MachineID: idB}, infrav1.HostReinstalledReason,
			[]string{idA, idB, "installed anew"}},
		"a machine-id that is none yet": {&facts{MachineID: idA}, &facts{MachineID: "uninitialized"}, "", nil},
		"another product UUID": {&facts{ProductUUID: uuidA}, &facts{ProductUUID: uuidB}, infrav1.HostMachineReplacedReason,
			[]string{uuidA, uuidB, "another machine answers"}},
		"the other byte order": {&facts{ProductUUID: uuidA}, &facts{ProductUUID: uuidASwapped}, "", nil},
		"a placeholder": {&facts{ProductUUID: "00000000-0000-0000-0000-000000000000"}, &facts{ProductUUID: uuidA},
			"", nil},
		"another placeholder": {&facts{ProductUUID: uuidA, SerialNumber: "To be filled by O.E.M."},
			&facts{ProductUUID: "FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF", SerialNumber: "Default string"}, "", nil},
		"another serial number, where no UUID is known": {
			&facts{ProductUUID: "03000200-0400-0500-0006-000700080009", SerialNumber: "SN-1001"},
			&facts{ProductUUID: "03000200-0400-0500-0006-000700080009", SerialNumber: "SN-1002"},
			infrav1.HostMachineReplacedReason, []string{"serial number was SN-1001 and is SN-1002"}},
		"another serial number, where the UUID is the same": {&facts{ProductUUID: uuidA, SerialNumber: "SN-1001"},
			&facts{ProductUUID: uuidA, SerialNumber: "SN-1002"}, infrav1.HostMachineReplacedReason,
			[]string{"serial number was SN-1001 and is SN-1002"}},
		"a serial number that is none any more": {&facts{ProductUUID: uuidA, SerialNumber: "SN-1001"},
			&facts{ProductUUID: uuidA, SerialNumber: "Default string"}, "", nil},
		"a disk that is gone": {&facts{Disks: disks("wwn-1", "wwn-2")}, &facts{Disks: disks("wwn-1")},
			infrav1.HostDiskReplacedReason, []string{"disk wwn-2 (sdb) is gone"}},
		"another disk in its place": {&facts{Disks: disks("wwn-1", "wwn-2")}, &facts{Disks: disks("wwn-1", "wwn-3")},
			infrav1.HostDiskReplacedReason, []string{"disk wwn-2 (sdb) is gone, and sdb is disk wwn-3"}},
		"disks that changed names": {&facts{Disks: disks("wwn-1", "wwn-2")},
			&facts{Disks: disks("wwn-2", "wwn-1")}, "", nil},
		"a disk more":                      {&facts{Disks: disks("wwn-1")}, &facts{Disks: disks("wwn-1", "wwn-2")}, "", nil},
		"a disk without a name of its own": {&facts{Disks: disks("wwn-1", "sdb")}, &facts{Disks: disks("wwn-1")}, "", nil},
		"a disk that has no such name now": {&facts{Disks: disks("wwn-1")}, &facts{Disks: disks("sda")},
			infrav1.HostDiskReplacedReason, []string{"disk wwn-1 (sda) is gone"}},
		"everything, the machine first": {&facts{MachineID: idA, ProductUUID: uuidA, Disks: disks("wwn-1")},
			&facts{MachineID: idB, ProductUUID: uuidB, Disks: disks("wwn-2")}, infrav1.HostMachineReplacedReason,
			[]string{uuidB, idB, "sda is disk wwn-2"}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			reason, message := changed(c.before, c.now)
			g.Expect(reason).To(Equal(c.reason), message)
			g.Expect(message == "").To(Equal(c.reason == ""))
			for _, says := range c.says {
				g.Expect(message).To(ContainSubstring(says))
			}
		})
	}
}

// known gives the room an identity.
func known(w *world) *world {
	w.room.facts.MachineID, w.room.facts.ProductUUID = idA, uuidA
	w.room.facts.Disks = []inspect.Disk{{ID: "wwn-1", Name: "sda", SizeBytes: 1 << 40}}
	return w
}

// boots starts the room's host again, changed.
func boots(w *world, change func(*inspect.Facts)) {
	w.room.set(func() {
		w.room.facts.BootID += "1"
		change(&w.room.facts)
	})
}

// others are changes that make another one of a host, by their reason.
var others = map[string]func(*inspect.Facts){
	infrav1.HostReinstalledReason:     func(f *inspect.Facts) { f.MachineID = idB },
	infrav1.HostMachineReplacedReason: func(f *inspect.Facts) { f.ProductUUID = uuidB },
	infrav1.HostDiskReplacedReason: func(f *inspect.Facts) {
		f.Disks = []inspect.Disk{{ID: "wwn-2", Name: "sda", SizeBytes: 1}}
	},
}

func unchanged(h *infrav1.QuoinHost) *metav1.Condition {
	return condition1(h, infrav1.HostUnchangedCondition)
}

func TestAFreeHostThatIsAnotherOneIsNamedAndReadAnew(t *testing.T) {
	for reason, change := range others {
		t.Run(reason, func(t *testing.T) {
			w := known(newWorld(t, newHost()))
			w.untilState(infrav1.HostStateAvailable)
			boots(w, func(*inspect.Facts) {})
			w.until("read anew", func(h *infrav1.QuoinHost) bool { return h.Status.Facts.BootID == "boot-11" })
			w.g.Expect(unchanged(w.host())).To(BeNil(), "a boot changes nothing")

			boots(w, change)
			found := w.untilReason(infrav1.HostUnchangedCondition, reason)
			w.g.Expect(found.Message).To(And(ContainSubstring("The host was inspected anew"),
				ContainSubstring(infrav1.RetryAnnotation)))
			host := w.untilState(infrav1.HostStateAvailable)
			ready := condition1(host, infrav1.HostReadyCondition)
			w.g.Expect(ready.Status).To(Equal(metav1.ConditionTrue), "what it is now is clean")
			w.g.Expect(ready.Message).To(Equal(found.Message))

			boots(w, func(*inspect.Facts) {})
			w.until("read anew", func(h *infrav1.QuoinHost) bool { return h.Status.Facts.BootID == "boot-1111" })
			w.g.Expect(unchanged(w.host())).NotTo(BeNil(), "a person has not seen it yet")
			word := ""
			if reason == infrav1.HostMachineReplacedReason {
				word = machineReplacedWord
			}
			w.annotate(infrav1.RetryAnnotation, word)
			w.until("accepted", func(h *infrav1.QuoinHost) bool { return unchanged(h) == nil })
			w.linger(3)
			w.g.Expect(unchanged(w.host())).To(BeNil())
		})
	}
}

func TestANodeWhoseHostIsAnotherOneIsNamedAndLeftAlone(t *testing.T) {
	for reason, change := range others {
		t.Run(reason, func(t *testing.T) {
			w := known(claimedWorld(t, false))
			w.untilState(infrav1.HostStateProvisioned)
			w.linger(2)
			orders, inspections := len(w.room.changed), w.room.count("inspect")
			boots(w, change)
			if reason == infrav1.HostReinstalledReason {
				w.room.set(func() { w.room.record = nil })
			}
			found := w.untilReason(infrav1.HostUnchangedCondition, reason)
			w.g.Expect(found.Message).To(And(ContainSubstring("Nothing is done to the host"),
				ContainSubstring("delete Machine team/m1"), ContainSubstring(infrav1.RetryAnnotation)))
			w.linger(10)
			host := w.host()
			w.g.Expect(host.Status.State).To(Equal(infrav1.HostStateProvisioned))
			w.g.Expect(w.room.changed).To(HaveLen(orders))
			w.g.Expect(w.room.count("inspect")).To(Equal(inspections))
			w.g.Expect(host.Status.Facts.MachineID).To(Equal(w.room.facts.MachineID))
			w.g.Expect(host.Status.Facts.ProductUUID).To(Equal(w.room.facts.ProductUUID))
			w.g.Expect(host.Status.Facts.Hostname).To(Equal("h1"))

			boots(w, func(*inspect.Facts) {})
			w.until("seen again", func(h *infrav1.QuoinHost) bool { return h.Status.Facts.BootID == "boot-111" })
			w.g.Expect(*unchanged(w.host())).To(HaveField("Message", found.Message))
		})
	}
}

// Disks of volumes come and go with the pods of a node.
func TestADiskThatCameWithANodeIsNotMissedAtItsNextBoot(t *testing.T) {
	w := known(claimedWorld(t, false))
	w.untilState(infrav1.HostStateProvisioned)
	own := w.room.facts.Disks
	boots(w, func(f *inspect.Facts) {
		f.Disks = slices.Concat(own, []inspect.Disk{{ID: "wwn-9", Name: "sdb", SizeBytes: 1}})
	})
	w.until("seen", func(h *infrav1.QuoinHost) bool { return h.Status.Facts.BootID == "boot-11" })
	boots(w, func(f *inspect.Facts) { f.Disks = own })
	w.until("seen", func(h *infrav1.QuoinHost) bool { return h.Status.Facts.BootID == "boot-111" })
	w.g.Expect(unchanged(w.host())).To(BeNil())
}

// What a retry is asked for in a hurry must not say that a BMC is the right one.
func TestAMachineThatWasReplacedIsConfirmedByItsOwnWordAlone(t *testing.T) {
	w := known(claimedWorld(t, false))
	w.update(func(h *infrav1.QuoinHost) { h.Spec.BMC = &infrav1.BMC{Address: "https://192.0.2.111"} })
	w.untilReason(infrav1.HostBMCVerifiedCondition, infrav1.HostBMCVerifiedReason)
	w.untilState(infrav1.HostStateProvisioned)
	w.linger(3)
	asked := w.host().Status.Power.AskedAt
	w.now = w.now.Add(time.Minute)
	boots(w, func(f *inspect.Facts) { f.ProductUUID = uuidB })
	found := w.untilReason(infrav1.HostUnchangedCondition, infrav1.HostMachineReplacedReason)
	w.g.Expect(found.Message).To(ContainSubstring("that spec.bmc is the BMC of this machine"))
	w.until("asked at once", func(h *infrav1.QuoinHost) bool {
		return h.Status.Power.AskedAt != nil && !h.Status.Power.AskedAt.Equal(asked)
	})

	boots(w, func(f *inspect.Facts) { f.MachineID = idB })
	w.until("seen", func(h *infrav1.QuoinHost) bool { return h.Status.Facts.MachineID == idB })
	w.annotate(infrav1.RetryAnnotation, "")
	w.linger(3)
	w.g.Expect(w.host().MachineReplaced()).To(BeTrue())
	w.annotate(infrav1.RetryAnnotation, machineReplacedWord)
	w.until("confirmed", func(h *infrav1.QuoinHost) bool { return unchanged(h) == nil })
}
