// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"testing"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim/kube"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim/machine"
)

// corners of a host that is another one under the same host key.
var corners = map[string]struct {
	reason string
	change func(*testing.T, *machine.Machine)
}{
	"reimaged": {infrav1.HostReinstalledReason, func(t *testing.T, m *machine.Machine) {
		if err := m.FS().WriteFile("/etc/machine-id", machine.File{Mode: 0o444, Content: []byte("0123456789abcdef0123456789abcdef\n")}); err != nil {
			t.Error(err)
		}
		// It went with the old system, where there was one.
		const record = "/var/lib/quoin/owner.json"
		if m.FS().Exists(record) {
			if err := m.FS().Remove(record); err != nil {
				t.Error(err)
			}
		}
	}},
	"machine": {infrav1.HostMachineReplacedReason, func(_ *testing.T, m *machine.Machine) {
		m.SetFirmware("4c4c4544-0042-3510-8053-b4c04f4a4e32", "SN-1002")
	}},
	"disk": {infrav1.HostDiskReplacedReason, func(_ *testing.T, m *machine.Machine) {
		m.ReplaceDisk("sdb", machine.Disk{Name: "sdb", WWN: "0x5000000000000003", Bytes: 1 << 40})
	}},
}

// identified is a lab that has a host whose firmware names it, with two disks.
func identified(t *testing.T, name string) *lab {
	t.Helper()
	fleet := newFleet(t, kube.Options{}, func(o *sim.Options) {
		o.Machine = func(o *machine.Options) {
			o.ProductUUID, o.Serial = "4c4c4544-0042-3510-8053-b4c04f4a4e31", "SN-1001"
			o.Disks = []machine.Disk{{Name: "sda", WWN: "0x5000000000000001", Bytes: 100 << 30, System: true},
				{Name: "sdb", WWN: "0x5000000000000002", Bytes: 1 << 40}}
		}
	})
	return newLab(t, fleet, name)
}

// TestAFreeHostThatIsAnotherOneIsNamed swaps a disk, images a host anew, and puts another machine at its address, each
// under the same host key, while nobody has the host.
func TestAFreeHostThatIsAnotherOneIsNamed(t *testing.T) {
	t.Parallel()
	for name, c := range corners {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := NewWithT(t)
			l := identified(t, "free-"+name)
			l.untilState(infrav1.HostStateAvailable)
			l.host.Reboot()
			l.until("read anew", func(h *infrav1.QuoinHost) bool {
				return h.Status.State == infrav1.HostStateAvailable && h.Status.Facts.BootID == l.host.Machine.BootID()
			})
			g.Expect(conditions.Has(l.object(), infrav1.HostUnchangedCondition)).To(BeFalse(), "a reboot is no other host")

			c.change(t, l.host.Machine)
			l.host.Reboot()
			host := l.until("named and free", func(h *infrav1.QuoinHost) bool {
				return h.Status.State == infrav1.HostStateAvailable && conditions.Has(h, infrav1.HostUnchangedCondition)
			})
			g.Expect(conditions.GetReason(host, infrav1.HostUnchangedCondition)).To(Equal(c.reason), l.describe())
			g.Expect(conditions.IsTrue(host, infrav1.HostReadyCondition)).To(BeTrue(), l.describe())
			g.Expect(l.host.Machine.Unknown()).To(BeEmpty())
		})
	}
}

// TestANodeWhoseHostIsAnotherOneIsNamed does the same to the host of a node, and nothing else happens to it.
func TestANodeWhoseHostIsAnotherOneIsNamed(t *testing.T) {
	t.Parallel()
	for name, c := range corners {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := NewWithT(t)
			l := identified(t, "node-"+name)
			l.untilState(infrav1.HostStateAvailable)
			l.addMachine()
			g.Expect(l.untilProvisioned()).To(Equal(infrav1.HostProvisionedReason), l.describe())
			l.untilState(infrav1.HostStateProvisioned)
			l.host.Reboot()
			l.until("seen again", func(h *infrav1.QuoinHost) bool { return h.Status.Facts.BootID == l.host.Machine.BootID() })
			g.Expect(conditions.Has(l.object(), infrav1.HostUnchangedCondition)).To(BeFalse(), "a reboot is no other host")

			l.settled()
			c.change(t, l.host.Machine)
			l.host.Reboot()
			host := l.until("named", func(h *infrav1.QuoinHost) bool { return conditions.Has(h, infrav1.HostUnchangedCondition) })
			g.Expect(conditions.GetReason(host, infrav1.HostUnchangedCondition)).To(Equal(c.reason), l.describe())
			g.Expect(host.Status.State).To(Equal(infrav1.HostStateProvisioned))
			g.Expect(l.host.Machine.Unknown()).To(BeEmpty())
		})
	}
}
