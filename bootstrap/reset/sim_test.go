// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package reset_test

import (
	"context"
	"net/netip"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/cloudinit"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/reset"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/run"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim/machine"
)

func end(t *testing.T, host *machine.Host, id string) run.Status {
	t.Helper()
	var status run.Status
	NewWithT(t).Eventually(func() bool {
		var err error
		status, err = run.Runner{}.Poll(t.Context(), host, id)
		return err == nil && status.Phase.Final()
	}, "60s", "10ms").Should(BeTrue(), "%+v", &status)
	return status
}

// The same scripts as on a real host, on a simulated machine: a worker with a data disk and one of its own, then the
// reset.
func TestAClaimWithDisksOnASimulatedMachine(t *testing.T) {
	g := NewWithT(t)
	m := machine.New(machine.Options{Hostname: "host-1", Addresses: []netip.Prefix{netip.MustParsePrefix("10.0.0.11/24")},
		Disks: []machine.Disk{{Name: "sda", WWN: "0x1", Bytes: 100 << 30}, {Name: "sdb", WWN: "0x2", Bytes: 1 << 40},
			{Name: "sdc", WWN: "0x3", Bytes: 1 << 40}},
		Programs: map[string]machine.Program{
			"kubeadm": func(context.Context, *machine.Process) int { return 0 },
			"ctr":     func(context.Context, *machine.Process) int { return 0 },
		}})
	t.Cleanup(m.PowerOff)
	host := &machine.Host{Machine: m}
	config, err := cloudinit.Parse([]byte(`#cloud-config
write_files:
- {path: /run/kubeadm/kubeadm-join-config.yaml, content: secret}
fs_setup:
- {label: data, filesystem: ext4, device: /dev/disk/by-id/wwn-0x2}
- {label: own, filesystem: ext4, device: /dev/sdc}
mounts:
- [LABEL=data, /data]
- [LABEL=own, /own]
runcmd:
- echo precious >>/data/precious
- kubeadm join --config /run/kubeadm/kubeadm-join-config.yaml
`), nil)
	g.Expect(err).NotTo(HaveOccurred())
	claim := func(id, want string) {
		files, steps, err := config.Steps(cloudinit.Options{
			Disks: []cloudinit.DiskRole{{ID: "wwn-0x2", Role: cloudinit.RoleData}, {ID: "wwn-0x3", Role: cloudinit.RoleWipe}}})
		g.Expect(err).NotTo(HaveOccurred())
		steps = append([]run.Step{cloudinit.GuardStep(), reset.BeforeStep()}, steps...)
		g.Expect(run.Runner{}.Start(t.Context(), host, run.Plan{ID: id, Files: files, Steps: steps})).To(Succeed())
		status := end(t, host, id)
		g.Expect(status.Phase).To(Equal(run.Succeeded), "%+v", status)
		g.Expect(m.FS().Exists("/run/kubeadm/kubeadm-join-config.yaml")).To(BeFalse())
		g.Expect(m.FS().Text("/data/precious")).To(Equal(want))
	}
	options := reset.Options{WipeDisks: []string{"wwn-0x3"}, DataDisks: []string{"wwn-0x2"}, IgnoreChanges: true}
	claim("first", "precious\n")
	verified, err := reset.Verify(t.Context(), host, options)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(verified.Findings).NotTo(BeEmpty())
	g.Expect(run.Runner{}.Start(t.Context(), host, reset.Plan("reset", options))).To(Succeed())
	status := end(t, host, "reset")
	g.Expect(status.Phase).To(Equal(run.Succeeded), "%+v", status)
	g.Expect(m.FS().Exists("/data/precious")).To(BeFalse(), "it is not mounted any more")
	verified, err = reset.Verify(t.Context(), host, options)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(verified.Findings).To(BeEmpty())
	claim("second", "precious\nprecious\n")
	g.Expect(m.Unknown()).To(BeEmpty())
}
