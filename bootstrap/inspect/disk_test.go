// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package inspect_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/inspect"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/programtest"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sshtest"
)

func TestADiskIsFoundByItsStableNamesOnly(t *testing.T) {
	g := NewWithT(t)
	dir := t.TempDir()
	for path, content := range map[string]string{
		"block/sda/device/wwid": " t10.ATA     QEMU  0001  \n", "block/sdb/device/serial": "S-1\n",
		"block/sdc/device/serial": "same\n", "block/sdd/serial": "same\n",
		"block/nvme0n1/wwid": "eui.7\n", "block/nvme0n1/device/serial": "eui.7\n",
		"block/nvme0c0n1/wwid": "eui.7\n", "block/nvme0c0n1/hidden": "1\n", "block/nvme0n1/hidden": "0\n",
	} {
		g.Expect(os.MkdirAll(filepath.Dir(filepath.Join(dir, path)), 0o755)).To(Succeed())
		g.Expect(os.WriteFile(filepath.Join(dir, path), []byte(content), 0o600)).To(Succeed())
	}
	g.Expect(os.MkdirAll(filepath.Join(dir, "by-id"), 0o755)).To(Succeed())
	g.Expect(os.Symlink("../dev/sda", filepath.Join(dir, "by-id/wwn-1"))).To(Succeed())
	g.Expect(os.Symlink("../dev/sda1", filepath.Join(dir, "by-id/wwn-1-part1"))).To(Succeed())
	g.Expect(os.MkdirAll(filepath.Join(dir, "dev"), 0o755)).To(Succeed())
	for id, want := range map[string]string{"wwn-1": dir + "/dev/sda", "wwn-1-part1": "", "t10.ATA_QEMU_0001": "/dev/sda",
		"S-1": "/dev/sdb", "same": "", "sda": "", "gone": "", "eui.7": "/dev/nvme0n1"} {
		script := strings.NewReplacer("/dev/disk/by-id", dir+"/by-id", "/sys/block/", dir+"/block/").
			Replace(inspect.DiskFunctions) + "quoin_disk " + ssh.Quote(id) + " || :\n"
		result, err := (&sshtest.Local{}).Run(t.Context(), ssh.Command{Script: script})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(strings.TrimSpace(result.Stdout)).To(Equal(want), id)
	}
}

func TestWhatIsOnADiskIsTold(t *testing.T) {
	g := NewWithT(t)
	if os.Getuid() != 0 {
		t.Skip("needs root to attach loop devices")
	}
	for _, program := range []string{"mkfs.ext4", "losetup"} {
		programtest.Need(t, program)
	}
	image := filepath.Join(t.TempDir(), "image")
	g.Expect(exec.Command("truncate", "-s", "8M", image).Run()).To(Succeed())
	g.Expect(exec.Command("mkfs.ext4", "-q", "-L", "a label", image).Run()).To(Succeed())
	out, err := exec.Command("losetup", "--find", "--show", image).Output()
	if err != nil {
		t.Skip("needs loop devices")
	}
	device := strings.TrimSpace(string(out))
	t.Cleanup(func() { _ = exec.Command("losetup", "--detach", device).Run() })
	// Loop devices are no disks, but here they stand for one.
	script := strings.ReplaceAll(inspect.Script, "loop* |", "")
	g.Expect(script).NotTo(Equal(inspect.Script))
	result, err := (&sshtest.Local{}).Run(t.Context(), ssh.Command{Script: script})
	g.Expect(err).NotTo(HaveOccurred())
	facts, err := inspect.Parse(result.Stdout)
	g.Expect(err).NotTo(HaveOccurred())
	for _, disk := range facts.Disks {
		if "/dev/"+disk.Name == device {
			g.Expect(disk.Content).To(Equal("ext4"))
			if len(disk.Volumes) > 0 {
				g.Expect(disk.Volumes[0].Name).To(Equal(disk.Name))
			}
			return
		}
	}
	t.Fatalf("%s is not in %+v", device, facts.Disks)
}
