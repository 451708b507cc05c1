// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package inspect_test

import (
	"context"
	"net/netip"
	"runtime"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/inspect"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sshtest"
)

const answer = `hostname node-1
os.id rocky
os.version 9.4
os.name Rocky Linux 9.4 (Blue Onyx)
kernel 5.14.0
machine aarch64
boot 1111-2222
machineid abcd
uuid 4c4c4544-0044-4a10-8054-b4c04f4d3132
serial S4EWNX0M
cpus 8
memory.kib 16384
swap yes
disk sda 2097152 1 wwn-0x5000c500
disk.wwn sda naa.5000c500
disk.serial sda _Z1 D3_
disk.content sda gpt
disk.volume sda NAME="sda" TYPE="disk" FSTYPE="" LABEL="" MOUNTPOINT=""
disk.volume sda NAME="sda1" TYPE="part" FSTYPE="ext4" LABEL="a b" MOUNTPOINT="/"
disk.volume sda NAME="sda2" TYPE="part" FSTYPE="" LABEL="" MOUNTPOINT=""
disk.content sdx ext4
disk nvme0n1 4194304 0 eui.0025
disk sdz 0 1 sdz
link eth0 52:54:00:12:34:56 1500 up
link odd
address eth0 10.0.0.11/24
address eth0 fd00::11/64
address tun0 10.9.0.1
default eth0
default6 eth1
cgroup 2
systemd yes
cloudinit yes
cloudinit.guarded yes
runtime containerd
runtime.version v2.2.1
runtime.socket yes
keepalived yes
missing conntrack
forwarding yes
forwarding no
kubernetes files below /etc/kubernetes
kubernetes process kubelet
owner {"uid":"a b"}
clock 1700000000.000000000
clock.end 1700000000.500000000
end ok
`

func TestParse(t *testing.T) {
	g := NewWithT(t)
	facts, err := inspect.Parse(answer)
	g.Expect(err).NotTo(HaveOccurred())
	no := false
	g.Expect(facts).To(Equal(&inspect.Facts{
		Hostname: "node-1", OS: inspect.OS{ID: "rocky", VersionID: "9.4", PrettyName: "Rocky Linux 9.4 (Blue Onyx)"},
		Kernel:       "5.14.0",
		Architecture: "arm64", BootID: "1111-2222", MachineID: "abcd", ProductUUID: "4c4c4544-0044-4a10-8054-b4c04f4d3132", SerialNumber: "S4EWNX0M", CPUs: 8,
		MemoryBytes: 16 << 20, SwapEnabled: true,
		Disks: []inspect.Disk{{ID: "wwn-0x5000c500", Name: "sda", SizeBytes: 1 << 30, Rotational: true, WWN: "naa.5000c500",
			Serial: "Z1 D3", Content: "gpt",
			Volumes: []inspect.Volume{{Name: "sda1", Type: "part", FileSystem: "ext4", Label: "a b", MountPoint: "/"},
				{Name: "sda2", Type: "part"}}}, {ID: "eui.0025", Name: "nvme0n1", SizeBytes: 2 << 30}},
		Addresses: []inspect.Address{{Interface: "eth0", Address: netip.MustParseAddr("10.0.0.11"), Prefix: 24},
			{Interface: "eth0", Address: netip.MustParseAddr("fd00::11"), Prefix: 64},
			{Interface: "tun0", Address: netip.MustParseAddr("10.9.0.1"), Prefix: 32}},
		Links:            []inspect.Link{{Name: "eth0", HardwareAddress: "52:54:00:12:34:56", MTU: 1500, State: "up"}},
		DefaultInterface: "eth0", CgroupVersion: 2, Systemd: true, CloudInitEnabled: true, CloudInitGuarded: true,
		ContainerRuntime:    inspect.ContainerRuntime{Name: "containerd", Version: "2.2.1", SocketOK: true},
		KeepalivedInstalled: true,
		CommandsMissing:     []string{"conntrack"}, TCPForwardingAllowed: &no,
		KubernetesPresent: []string{"files below /etc/kubernetes", "process kubelet"}, OwnerRecord: `{"uid":"a b"}`,
		Clock: time.Unix(1700000000, 250000000),
	}))
	for value, starts := range map[string]bool{"yes": true, "no": false} {
		facts, err = inspect.Parse("cgroup 1\nkubelet.cgroupv1 " + value + "\nend ok\n")
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(facts.KubeletOnCgroupV1).To(HaveValue(Equal(starts)))
	}
	_, err = inspect.Parse("hostname x\ncpus 4\n")
	g.Expect(err).To(MatchError(ContainSubstring("cut off")))
	_, err = inspect.Parse("cpus many\nend ok\n")
	g.Expect(err).To(HaveOccurred())
}

func TestThisMachine(t *testing.T) {
	g := NewWithT(t)
	facts, err := inspect.Collect(context.Background(), &sshtest.Local{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(facts.Architecture).To(Equal(runtime.GOARCH))
	g.Expect(facts.Hostname).NotTo(BeEmpty())
	g.Expect(facts.OS.ID).NotTo(BeEmpty())
	g.Expect(facts.CPUs).To(BeNumerically(">", 0))
	g.Expect(facts.MemoryBytes).To(BeNumerically(">", 1<<20))
	g.Expect(facts.BootID).NotTo(BeEmpty())
	g.Expect(facts.ClockOffset.Abs()).To(BeNumerically("<", 5*time.Second))
	g.Expect(facts.KubeletOnCgroupV1 == nil).To(Equal(facts.CgroupVersion == 2), "that is asked of cgroup v1")
	t.Logf("%+v", facts)
}
