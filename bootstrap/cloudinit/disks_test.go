// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudinit_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/cloudinit"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/run"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/programtest"
)

// disk is a loop device that a test may destroy. It has the name quoin-disk below a by-id directory of its own.
type disk struct {
	t            *testing.T
	dir, device  string
	root, runDir string
}

func newDisk(t *testing.T) *disk {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root to attach loop devices")
	}
	for _, program := range []string{"losetup", "sfdisk", "mkfs.ext4", "wipefs", "blkid", "lsblk"} {
		programtest.Need(t, program)
	}
	d := &disk{t: t, dir: t.TempDir()}
	image := filepath.Join(d.dir, "image")
	if err := exec.Command("truncate", "-s", "48M", image).Run(); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("losetup", "--find", "--show", image).CombinedOutput()
	if err != nil {
		t.Skipf("needs loop devices: %s", out)
	}
	d.device = strings.TrimSpace(string(out))
	t.Cleanup(func() {
		// Partitions that the kernel does not make, the stub of partx makes from further loop devices.
		links, _ := filepath.Glob(d.device + "p*")
		for _, link := range links {
			if target, err := os.Readlink(link); err == nil {
				_ = exec.Command("losetup", "--detach", target).Run()
				_ = os.Remove(link)
			}
		}
		_ = exec.Command("losetup", "--detach", d.device).Run()
	})
	for _, sub := range []string{"by-id", "bin", "root/runs/p"} {
		if err := os.MkdirAll(filepath.Join(d.dir, sub), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	d.root, d.runDir = filepath.Join(d.dir, "root"), filepath.Join(d.dir, "root/runs/p")
	if err := os.Symlink(d.device, filepath.Join(d.dir, "by-id", "quoin-disk")); err != nil {
		t.Fatal(err)
	}
	d.stub("partx", fmt.Sprintf(`[ ! -b %[1]sp1 ] || [ -L %[1]sp1 ] || exit 0
sfdisk --dump %[1]s 2>/dev/null | sed -n 's/^\([^ ]*\) : start= *\([0-9]*\), size= *\([0-9]*\).*/\1 \2 \3/p' | while read -r node start size; do
	[ -e "$node" ] || ln -s "$(losetup --find --show --offset $((start * 512)) --sizelimit $((size * 512)) %[1]s)" "$node"
done`, d.device))
	return d
}

func (d *disk) stub(name, body string) {
	d.t.Helper()
	if err := os.WriteFile(filepath.Join(d.dir, "bin", name), []byte("#!/bin/sh\n"+body+"\n"), 0o755); err != nil {
		d.t.Fatal(err)
	}
}

// sh runs a command on the disk, $D.
func (d *disk) sh(script string) string {
	d.t.Helper()
	cmd := exec.Command("/bin/sh", "-c", "set -e\nD="+d.device+"\n"+script)
	out, err := cmd.CombinedOutput()
	if err != nil {
		d.t.Fatalf("%s: %v\n%s", script, err, out)
	}
	return strings.TrimSpace(string(out))
}

// setUp runs the disk steps of a cloud-config as the runner does, and returns what they print.
func (d *disk) setUp(role cloudinit.Role, config string) (string, error) {
	d.t.Helper()
	var disks []cloudinit.DiskRole
	if role != "" {
		disks = []cloudinit.DiskRole{{ID: "some-other", Role: cloudinit.RoleData}, {ID: "quoin-disk", Role: role}}
	}
	parsed, err := cloudinit.Parse([]byte("#cloud-config\n"+strings.ReplaceAll(config, "$D", d.device)), nil)
	if err != nil {
		return "", err
	}
	_, steps, err := parsed.Steps(cloudinit.Options{Disks: disks})
	if err != nil {
		return "", err
	}
	var all strings.Builder
	for _, step := range steps {
		script := run.Prelude + strings.ReplaceAll(step.Script, "/dev/disk/by-id", filepath.Join(d.dir, "by-id"))
		cmd := exec.Command("/bin/sh", "-c", script)
		cmd.Env = append(os.Environ(), "QUOIN_ROOT="+d.root, "QUOIN_RUN_DIR="+d.runDir,
			"PATH="+filepath.Join(d.dir, "bin")+":"+os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		all.Write(out)
		if err != nil {
			return all.String(), err
		}
	}
	return all.String(), nil
}

// another plan knows nothing of what the first one intended.
func (d *disk) anotherPlan() {
	d.t.Helper()
	if err := os.RemoveAll(d.runDir); err != nil {
		d.t.Fatal(err)
	}
	if err := os.MkdirAll(d.runDir, 0o700); err != nil {
		d.t.Fatal(err)
	}
}

const twoPartitions = `disk_setup:
  /dev/disk/by-id/quoin-disk:
    table_type: gpt
    layout:
      - 50
      - [50, 83]
fs_setup:
  - {label: first, filesystem: ext4, device: /dev/disk/by-id/quoin-disk, partition: 1}
  - {label: second, filesystem: ext4, device: $D, partition: 2, extra_opts: [-m, "0"]}
`

func TestADiskIsPartitionedAndFormattedOnceAndKept(t *testing.T) {
	g := NewWithT(t)
	d := newDisk(t)
	out, err := d.setUp(cloudinit.RoleData, twoPartitions)
	g.Expect(err).NotTo(HaveOccurred(), out)
	g.Expect(out).To(And(ContainSubstring("has 2 new partitions"), ContainSubstring("p2 holds a new ext4")))
	g.Expect(d.sh("blkid -p -s LABEL -o value ${D}p1; blkid -p -s LABEL -o value ${D}p2; blkid -p -s PTTYPE -o value $D")).
		To(Equal("first\nsecond\ngpt"))
	d.sh("echo precious | dd of=${D}p2 bs=1 seek=9000000 conv=notrunc 2>/dev/null; sync")
	before := d.sh("sha256sum <$D")

	for range 2 {
		out, err = d.setUp(cloudinit.RoleData, strings.ReplaceAll(twoPartitions, "device:", "overwrite: true, device:"))
		g.Expect(err).NotTo(HaveOccurred(), out)
		g.Expect(out).To(And(ContainSubstring("has its 2 partitions"), ContainSubstring("p2 holds ext4 already and is kept")))
		g.Expect(d.sh("sha256sum <$D")).To(Equal(before))
		d.anotherPlan()
	}
}

func TestWhatIsOnADataDiskIsNeverFormatted(t *testing.T) {
	const whole = "fs_setup:\n- {label: data, filesystem: ext4, device: /dev/disk/by-id/quoin-disk, overwrite: true, " +
		"replace_fs: xfs}\n"
	const table = "disk_setup: {/dev/disk/by-id/quoin-disk: {layout: true, overwrite: true}}\n"
	for name, tc := range map[string]struct{ content, config, want string }{
		"another label": {"mkfs.ext4 -q -L other $D", whole,
			"holds ext4 with the label other and is not formatted: wanted is ext4 with the label data"},
		"another file system": {"mkfs.ext2 -q -L data $D", whole,
			"holds ext2 with the label data and is not formatted"},
		"swap":                            {"mkswap $D", whole, "holds swap and is not formatted"},
		"a table":                         {"echo , | sfdisk --quiet --label gpt $D", whole, "and is not formatted"},
		"a file system to be partitioned": {"mkfs.ext4 -q -L data $D", table, "holds ext4 and is not partitioned"},
		"another table":                   {"echo , | sfdisk --quiet --label gpt $D", table, "and is not partitioned"},
		"more partitions": {"printf 'size=9M\\n,\\n' | sfdisk --quiet --label dos $D", table,
			"holds dos and is not partitioned"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			d := newDisk(t)
			d.sh(tc.content)
			before := d.sh("sha256sum <$D")
			out, err := d.setUp(cloudinit.RoleData, tc.config)
			g.Expect(err).To(HaveOccurred(), out)
			g.Expect(out).To(ContainSubstring(tc.want))
			g.Expect(d.sh("sha256sum <$D")).To(Equal(before))
		})
	}
}

func TestADiskOfOneClaimIsReplacedOnlyWhenTheDataSaySo(t *testing.T) {
	g := NewWithT(t)
	d := newDisk(t)
	d.sh("mkfs.ext4 -q -L other $D")
	const config = "fs_setup:\n- {label: data, filesystem: ext4, device: $D%s}\n"
	out, err := d.setUp(cloudinit.RoleWipe, fmt.Sprintf(config, ""))
	g.Expect(err).To(HaveOccurred())
	g.Expect(out).To(ContainSubstring("is not formatted"))
	out, err = d.setUp(cloudinit.RoleWipe, fmt.Sprintf(config, ", replace_fs: ext4"))
	g.Expect(err).NotTo(HaveOccurred(), out)
	g.Expect(d.sh("blkid -p -s LABEL -o value $D")).To(Equal("data"))
	// What this plan made, it does not make again.
	before := d.sh("sha256sum <$D")
	out, err = d.setUp(cloudinit.RoleWipe, fmt.Sprintf(config, ", overwrite: true"))
	g.Expect(err).NotTo(HaveOccurred(), out)
	g.Expect(d.sh("sha256sum <$D")).To(Equal(before))
	d.anotherPlan()
	out, err = d.setUp(cloudinit.RoleWipe, fmt.Sprintf(config, ", overwrite: true"))
	g.Expect(err).NotTo(HaveOccurred(), out)
	g.Expect(out).To(ContainSubstring("holds a new ext4"))
}

func TestACutBetweenTableAndFileSystemIsTakenUp(t *testing.T) {
	g := NewWithT(t)
	d := newDisk(t)
	// The power goes while the table is written, then while the file system is.
	d.stub("sfdisk", `case $* in *--dump*) exec `+d.sh("command -v sfdisk")+` "$@";; esac
[ -e `+d.dir+`/once ] && exec `+d.sh("command -v sfdisk")+` "$@"
touch `+d.dir+`/once; printf '\125\252' | dd of=`+d.device+` bs=1 seek=510 conv=notrunc 2>/dev/null
echo , | `+d.sh("command -v sfdisk")+` --quiet --label dos `+d.device+`; kill -KILL $PPID`)
	_, err := d.setUp(cloudinit.RoleData, twoPartitions)
	g.Expect(err).To(HaveOccurred())
	g.Expect(d.sh("wipefs -n $D")).NotTo(BeEmpty(), "half a table is there")
	d.stub("mkfs.ext4", `[ -e `+d.dir+`/twice ] && exec `+d.sh("command -v mkfs.ext4")+` "$@"
touch `+d.dir+`/twice; mkfs.ext2 -q -F -L torn `+d.device+`p1; kill -KILL $PPID`)
	out, err := d.setUp(cloudinit.RoleData, twoPartitions)
	g.Expect(err).To(HaveOccurred(), out)
	out, err = d.setUp(cloudinit.RoleData, twoPartitions)
	g.Expect(err).NotTo(HaveOccurred(), out)
	g.Expect(d.sh("blkid -p -s LABEL -o value ${D}p1; blkid -p -s LABEL -o value ${D}p2")).To(Equal("first\nsecond"))
	// The same content under another plan is somebody's.
	d.sh("mkfs.ext2 -q -F -L torn ${D}p1")
	d.anotherPlan()
	out, err = d.setUp(cloudinit.RoleData, twoPartitions)
	g.Expect(err).To(HaveOccurred())
	g.Expect(out).To(ContainSubstring("is not formatted"))
}

func TestOnlyDisksWithARoleAreSetUp(t *testing.T) {
	const byID = "fs_setup:\n- {label: x, filesystem: ext4, device: /dev/disk/by-id/quoin-disk-part1}\n"
	const byName = "fs_setup:\n- {label: x, filesystem: ext4, device: $D}\n"
	t.Run("named by id, nothing runs", func(t *testing.T) {
		g := NewWithT(t)
		d := &disk{t: t}
		_, err := d.setUp("", byID)
		g.Expect(err).To(MatchError(ContainSubstring("is not among spec.disks of the QuoinHost, so nothing was done")))
		_, err = d.setUp(cloudinit.RoleSystem, byID)
		g.Expect(err).To(MatchError(ContainSubstring("has the role System")))
	})
	t.Run("named by the kernel", func(t *testing.T) {
		g := NewWithT(t)
		d := newDisk(t)
		out, err := d.setUp("", byName)
		g.Expect(err).To(HaveOccurred())
		g.Expect(out).To(ContainSubstring("which spec.disks of the QuoinHost does not list"))
		out, err = d.setUp(cloudinit.RoleSystem, byName)
		g.Expect(err).To(HaveOccurred())
		g.Expect(out).To(ContainSubstring("is a system disk"))
		d.stub("lsblk", "echo /boot")
		out, err = d.setUp(cloudinit.RoleWipe, byName)
		g.Expect(err).To(HaveOccurred())
		g.Expect(out).To(ContainSubstring("carries /boot of the running system"))
		d.stub("lsblk", "exit 32")
		out, err = d.setUp(cloudinit.RoleWipe, byName)
		g.Expect(err).To(HaveOccurred())
		g.Expect(out).To(ContainSubstring("cannot be read (lsblk)"))
		g.Expect(d.sh("wipefs -n $D")).To(BeEmpty())
	})
}

func TestAPartitionIsChosen(t *testing.T) {
	g := NewWithT(t)
	d := newDisk(t)
	d.sh("printf 'size=10M\\nsize=10M\\n,\\n' | sfdisk --quiet --label gpt $D; PATH=" + d.dir +
		"/bin:$PATH partx; mkfs.ext4 -q -L one ${D}p1")
	d.stub("lsblk", `case $* in *TYPE*) for p in `+d.device+`p*; do echo "$p part"; done;; esac`)
	out, err := d.setUp(cloudinit.RoleData, "fs_setup:\n- {label: two, filesystem: ext4, device: $D, partition: auto}\n")
	g.Expect(err).NotTo(HaveOccurred(), out)
	g.Expect(out).To(ContainSubstring("p2 holds a new ext4"))
	d.anotherPlan()
	out, err = d.setUp(cloudinit.RoleData, "fs_setup:\n- {label: two, filesystem: ext4, device: $D, partition: "+
		"auto|any}\n- {label: x, filesystem: ext4, device: $D, partition: any}\n")
	g.Expect(err).NotTo(HaveOccurred(), out)
	g.Expect(out).To(And(ContainSubstring("p2 holds ext4 already"), ContainSubstring("p1 holds ext4 already")))
}

func TestDiskSetupThatCannotBeCarriedOut(t *testing.T) {
	for config, want := range map[string]string{
		"disk_setup: {sdb: {layout: true}}":         "not a path below /dev",
		"disk_setup: {/dev/../etc: {layout: true}}": "not a path below /dev",
		"disk_setup: {/dev/sdb: {layout: <nil>}}": "neither that it is one " +
			"partition",
		"disk_setup: {/dev/sdb: {layout: [60, 50]}}":                            "more than 100 percent",
		"disk_setup: {/dev/sdb: {layout: [0]}}":                                 "from 1 to 100",
		"disk_setup: {/dev/sdb: {layout: [1,1,1,1,1]}}":                         "at most 4 partitions",
		"disk_setup: {/dev/sdb: {table_type: gpt, layout: [[10, 85]]}}":         "partition type \"85\"",
		"disk_setup: {/dev/sdb: {table_type: bsd, layout: true}}":               "use gpt or mbr",
		"fs_setup: [{device: /dev/sdb, filesystem: swap}]":                      "use ext4, xfs or btrfs",
		"fs_setup: [{device: /dev/sdb, filesystem: xfs, label: thirteen-long}]": "longer than the 12 letters",
		"fs_setup: [{device: /dev/sdb, filesystem: ext4, partition: first}]": "neither none, auto, any nor " +
			"a number",
		"fs_setup: [{device: /dev/sdb, filesystem: ext4, cmd: mkfs}]":         "cmd not found",
		"disk_setup: {/dev/sdb: {layout: true}, /dev/sdb: {layout: false}}":   "is listed twice",
		"fs_setup: [{device: /dev/sdb, filesystem: ext4, replace_fs: 'a b'}]": "not the name of a file system",
		"disk_setup: {/dev/sdb: {table_type: mbr, layout: [[10, 0FC63DAF-8483-4772-8E79]]}}": "not known for this kind of " +
			"table",
	} {
		_, err := cloudinit.Parse([]byte("#cloud-config\n"+config+"\n"), nil)
		NewWithT(t).Expect(err).To(MatchError(ContainSubstring(want)), config)
	}
}
