// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package reset

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/cloudinit"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/inspect"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/run"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/programtest"
)

// disks are loop devices that a test may destroy, with names below a by-id directory of its own.
type disks struct {
	t     *testing.T
	byID  string
	paths map[string]string
}

func newDisks(t *testing.T, names ...string) *disks {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root to attach loop devices")
	}
	for _, program := range []string{"losetup", "mkfs.ext4", "wipefs", "lsblk"} {
		programtest.Need(t, program)
	}
	d := &disks{t: t, byID: t.TempDir(), paths: map[string]string{}}
	for _, name := range names {
		image := filepath.Join(t.TempDir(), "image")
		if out, err := exec.Command("truncate", "-s", "24M", image).CombinedOutput(); err != nil {
			t.Fatalf("%s", out)
		}
		out, err := exec.Command("losetup", "--find", "--show", image).CombinedOutput()
		if err != nil {
			t.Skipf("needs loop devices: %s", out)
		}
		device := strings.TrimSpace(string(out))
		t.Cleanup(func() { _ = exec.Command("losetup", "--detach", device).Run() })
		if err := os.Symlink(device, filepath.Join(d.byID, name)); err != nil {
			t.Fatal(err)
		}
		d.paths[name] = device
	}
	return d
}

// newSteps is for tests that need no disk.
func newSteps(t *testing.T) *disks {
	t.Helper()
	return &disks{t: t, byID: t.TempDir()}
}

// steps is a shell function that runs each step in a shell of its own, as the runner does.
func (d *disks) steps(name string, steps []run.Step) string {
	d.t.Helper()
	dir := d.t.TempDir()
	var all strings.Builder
	all.WriteString(name + "() {\n")
	for _, step := range steps {
		path := filepath.Join(dir, step.Name)
		if err := os.WriteFile(path, []byte(run.Prelude+strings.ReplaceAll(step.Script, "/dev/disk/by-id", d.byID)),
			0o600); err != nil {
			d.t.Fatal(err)
		}
		fmt.Fprintf(&all, "/bin/sh %s || { echo STEP %s FAILED; return 1; }\n", path, step.Name)
	}
	all.WriteString("}\n")
	return all.String()
}

// functions are those that Verify sends along.
func (d *disks) functions() string {
	return strings.ReplaceAll(inspect.DiskFunctions, "/dev/disk/by-id", d.byID)
}

func (d *disks) provision(name, config string, roles ...cloudinit.DiskRole) string {
	d.t.Helper()
	parsed, err := cloudinit.Parse([]byte("#cloud-config\n"+config), nil)
	if err != nil {
		d.t.Fatal(err)
	}
	_, steps, err := parsed.Steps(cloudinit.Options{Disks: roles})
	if err != nil {
		d.t.Fatal(err)
	}
	return d.steps(name, steps)
}

const ours = `
mkdir -p "$QUOIN_ROOT/runs/first" "$QUOIN_ROOT/runs/reset" "$QUOIN_ROOT/runs/second"
claim() { QUOIN_RUN_DIR=$QUOIN_ROOT/runs/$1; export QUOIN_RUN_DIR; mkdir -p "$QUOIN_RUN_DIR"; }
touch /etc/fstab
set +e
`

// The disk is mounted in the middle of what a reset deletes, kubeadm's own reset deletes there too, and the next claim
// comes with another idea of the disk.
func TestADataDiskSurvivesResetReuseAndAnotherStrategy(t *testing.T) {
	g := NewWithT(t)
	d := newDisks(t, "data-1")
	role := cloudinit.DiskRole{ID: "data-1", Role: cloudinit.RoleData}
	const device = "/dev/disk/by-id/data-1"
	mounted := "fs_setup:\n- {label: data, filesystem: ext4, device: " + device + "%s}\nmounts:\n- [" + d.paths["data-1"] +
		", /var/lib/kubelet/pods/volumes]\n- [" + d.paths["data-1"] + ", /var/lib/etcd]\n"
	out := sandbox(t, d.provision("first", fmt.Sprintf(mounted, ""), role)+
		d.provision("second", fmt.Sprintf(mounted, ", overwrite: true, replace_fs: ext4"), role)+
		d.provision("third", "disk_setup:\n  "+device+": {table_type: gpt, layout: true, overwrite: true}\n", role)+
		d.steps("reset", Plan("reset", Options{DataDisks: []string{"data-1"}}).Steps)+ours+`
printf '#!/bin/sh\nrm -rf /var/lib/kubelet/* /var/lib/etcd/*; exit 0\n' >$D/kubeadm
device=`+d.paths["data-1"]+`
claim first; first
mkdir -p /etc/kubernetes && touch /etc/kubernetes/x
dd if=/dev/urandom of=/var/lib/etcd/precious bs=1M count=3 2>/dev/null
sync; sum=$(sha256sum </var/lib/etcd/precious)
claim reset; reset; reset
grep $device /proc/self/mounts && echo STILL MOUNTED
disk=$(sha256sum <$device)
claim third; third
[ "$(sha256sum <$device)" = "$disk" ] && echo "UNTOUCHED"
claim reset; reset
claim second; second
[ "$(sha256sum </var/lib/etcd/precious)" = "$sum" ] && echo "KEPT"
claim reset; reset
[ -e /var/lib/etcd/precious ] || echo "AWAY"
`)
	t.Log(out)
	g.Expect(out).To(And(ContainSubstring("holds a new ext4"), ContainSubstring("STEP disk-setup FAILED"),
		ContainSubstring("UNTOUCHED\n"),
		ContainSubstring("holds ext4 already and is kept"), ContainSubstring("KEPT\n"), ContainSubstring("AWAY\n")))
	g.Expect(out).NotTo(ContainSubstring("STILL MOUNTED"))
	g.Expect(strings.Count(out, "FAILED")).To(Equal(1))
}

// Between two steps the host may boot, and what stands in fstab is mounted again; a slow disk even while a step runs.
func TestADataDiskThatABootMountsAgainSurvives(t *testing.T) {
	g := NewWithT(t)
	d := newDisks(t, "data-1")
	role := cloudinit.DiskRole{ID: "data-1", Role: cloudinit.RoleData}
	device := d.paths["data-1"]
	plan := Plan("reset", Options{DataDisks: []string{"data-1"}}).Steps
	at := slices.IndexFunc(plan, func(s run.Step) bool { return s.Name == "unmount" }) + 1
	g.Expect(at).To(BeNumerically(">", 0))
	out := sandbox(t, d.provision("first", "fs_setup:\n- {filesystem: ext4, device: /dev/disk/by-id/data-1}\nmounts:\n- "+
		"["+device+", /var/lib/etcd/]\n- ["+device+", /var/lib/theirs]\n", role)+
		d.steps("begin", plan[:at])+d.steps("kubeadm", plan[at:at+1])+d.steps("rest", plan[at+1:])+ours+`
printf '#!/bin/sh\nrm -rf /var/lib/kubelet/* /var/lib/etcd/*; exit 0\n' >$D/kubeadm
mkdir -p /var/lib/theirs && mount -t tmpfs none /var/lib/theirs
printf 'none /mnt/theirs tmpfs noauto 0 0' >/etc/fstab
claim first; first; first
sed 's/^/FSTAB /' /etc/fstab
echo 'none /mnt/since tmpfs noauto 0 0' >>/etc/fstab
mkdir -p /etc/kubernetes && touch /etc/kubernetes/x
echo precious >/var/lib/etcd/precious
boot() { mkdir -p /var/lib/etcd; mount `+device+` /var/lib/etcd; }
claim reset; begin; boot; kubeadm; boot; rest
sed 's/^/AFTER /' /etc/fstab
grep -q ' /var/lib/theirs ' /proc/self/mounts && echo THEIRS STAYS
boot; echo "DISK $(cat /var/lib/etcd/precious)"
`)
	t.Log(out)
	g.Expect(out).To(And(ContainSubstring("FSTAB none /mnt/theirs tmpfs noauto 0 0\n"),
		ContainSubstring("FSTAB "+device+"\t/var/lib/etcd\tauto\tdefaults,nofail\t0\t2\n")))
	g.Expect(strings.Count(out, "FSTAB")).To(Equal(2))
	g.Expect(out).To(ContainSubstring("AFTER none /mnt/theirs tmpfs noauto 0 0\nAFTER none /mnt/since tmpfs noauto 0 0\n"))
	g.Expect(strings.Count(out, "AFTER")).To(Equal(2))
	g.Expect(out).To(And(ContainSubstring("something was mounted at /var/lib/theirs before"),
		ContainSubstring("THEIRS STAYS"), ContainSubstring("DISK precious")))
	g.Expect(out).NotTo(ContainSubstring("FAILED"))
}

// -xdev goes on where the same file system is mounted again; and a link to another place is what an administrator makes
// of a directory that got too big.
func TestNothingIsDeletedAcrossAMountOrMissedBehindALink(t *testing.T) {
	g := NewWithT(t)
	d := newSteps(t)
	out := sandbox(t, d.steps("clean", Plan("reset", Options{}).Steps)+ours+`
verify() { /bin/sh -s -- /var/lib/quoin -- -- -- <<'VERIFY'
`+verifyFunctions+verifyScript+`echo end
VERIFY
}
mkdir -p /var/lib/precious /var/lib/etcd/backup /var/lib/big/kubelet/pods/a /var/lib/volume
touch /var/lib/precious/file /var/lib/volume/file /var/lib/big/kubelet/config.yaml
mount --bind /var/lib/precious /var/lib/etcd/backup
ln -s big/kubelet /var/lib/kubelet; mount --bind /var/lib/volume /var/lib/kubelet/pods/a
verify
claim reset; clean
umount /var/lib/etcd/backup; clean
ls /var/lib/precious/file /var/lib/volume/file
echo AGAIN; find /var/lib/big /var/lib/etcd; verify
`)
	t.Log(out)
	before, after, _ := strings.Cut(out, "AGAIN\n")
	g.Expect(before).To(And(ContainSubstring("found /var/lib/kubelet is not empty"),
		ContainSubstring("found mounts remain: /var/lib/big/kubelet/pods/a")))
	g.Expect(before).To(And(ContainSubstring("mounts remain below /var/lib/etcd, and nothing is deleted there: "+
		"/var/lib/etcd/backup"), ContainSubstring("STEP remove-files FAILED")))
	g.Expect(before).To(ContainSubstring("/var/lib/precious/file\n/var/lib/volume/file\n"))
	g.Expect(after).NotTo(Or(ContainSubstring("config.yaml"), ContainSubstring("found")))
}

func TestOnlyDisksOfTheClaimAreWiped(t *testing.T) {
	g := NewWithT(t)
	d := newDisks(t, "wipe-1", "data-1", "busy-1")
	g.Expect(os.Symlink(d.paths["data-1"], filepath.Join(d.byID, "data-alias"))).To(Succeed())
	wipe := func(name string, o Options) string { return d.steps(name, Plan("reset", o).Steps) }
	verify := func(o Options) string {
		return "/bin/sh -s -- /var/lib/quoin -- -- " + strings.Join(o.WipeDisks, " ") + " -- <<'VERIFY'\n" + d.functions() +
			verifyFunctions + verifyScript + "echo end\nVERIFY\n"
	}
	clean := Options{WipeDisks: []string{"wipe-1"}, DataDisks: []string{"data-1"}}
	wrong := Options{WipeDisks: []string{"data-alias", "busy-1", "gone-1", "wipe-1"}, DataDisks: []string{"data-1"}}
	out := sandbox(t, wipe("clean", clean)+wipe("wrong", wrong)+ours+`
for disk in `+d.paths["wipe-1"]+" "+d.paths["data-1"]+" "+d.paths["busy-1"]+`; do mkfs.ext4 -q -F -L claim $disk; done
mkdir /mnt/busy-quoin 2>/dev/null; mount `+d.paths["busy-1"]+` /mnt/busy-quoin
data=$(sha256sum <`+d.paths["data-1"]+`)
echo BEFORE; `+verify(clean)+`
claim reset; wrong
[ "$(sha256sum <`+d.paths["data-1"]+`)" = "$data" ] && echo DATA KEPT
[ -n "$(wipefs -n `+d.paths["busy-1"]+`)" ] && echo BUSY KEPT
umount /mnt/busy-quoin; rmdir /mnt/busy-quoin
mkfs.ext4 -q -F -L claim `+d.paths["wipe-1"]+`
clean; clean
[ "$(head -c 1048576 `+d.paths["wipe-1"]+` | tr -d '\0' | wc -c)$(tail -c 1048576 `+d.paths["wipe-1"]+` | tr -d '\0' | wc -c)" = 00 ] && echo ZERO
echo AFTER; `+verify(clean)+verify(wrong))
	t.Log(out)
	before, after, _ := strings.Cut(out, "AFTER\n")
	g.Expect(before).To(ContainSubstring("found disk wipe-1 (" + d.paths["wipe-1"] + ") still holds ext4"))
	g.Expect(before).To(And(ContainSubstring("data-alias is the same disk as data-1"),
		ContainSubstring("busy-1 ("+d.paths["busy-1"]+") is mounted at /mnt/busy-quoin"),
		ContainSubstring("no disk of this host has the id gone-1"), ContainSubstring("STEP wipe-disks FAILED")))
	g.Expect(before).To(And(ContainSubstring("DATA KEPT"), ContainSubstring("BUSY KEPT"), ContainSubstring("ZERO")))
	first, second, _ := strings.Cut(after, "end\n")
	g.Expect(first).NotTo(ContainSubstring("found"))
	g.Expect(second).To(ContainSubstring("found no disk of this host has the id gone-1"))
}

// A mount in a namespace of somebody's stands for all that lsblk does not show: an array, a pool, another disk's btrfs.
func TestADiskThatSomebodyHoldsUnseenIsNotWiped(t *testing.T) {
	g := NewWithT(t)
	d := newDisks(t, "held-1")
	disk := d.paths["held-1"]
	out := sandbox(t, d.steps("clean", Plan("reset", Options{WipeDisks: []string{"held-1"}}).Steps)+ours+`
mkfs.ext4 -q -F `+disk+`; mkdir /run/held
unshare --mount --propagation private sh -c 'mount `+disk+` /run/held && touch /run/mounted; exec sleep 60' & holder=$!
until [ -e /run/mounted ]; do sleep 0.05; done
echo "SEEN $(lsblk -nro MOUNTPOINT `+disk+`)."
claim reset; clean
[ -n "$(wipefs -n `+disk+`)" ] && echo KEPT
kill $holder; wait $holder
claim reset; clean
[ -z "$(wipefs -n `+disk+`)" ] && echo WIPED
`)
	t.Log(out)
	g.Expect(out).To(And(ContainSubstring("SEEN ."), ContainSubstring("held-1 ("+disk+") is in use"),
		ContainSubstring("STEP wipe-disks FAILED"), ContainSubstring("KEPT\n"), ContainSubstring("WIPED\n")))
}

func TestTheDiskOfTheSystemIsNotWiped(t *testing.T) {
	g := NewWithT(t)
	d := newDisks(t, "root-1")
	out := sandbox(t, d.steps("clean", Plan("reset", Options{WipeDisks: []string{"root-1"}}).Steps)+ours+`
mkfs.ext4 -q `+d.paths["root-1"]+`
printf '#!/bin/sh\necho; echo /boot\n' >$D/lsblk; chmod +x $D/lsblk
claim reset; clean
printf '#!/bin/sh\nexit 1\n' >$D/lsblk; clean
[ -n "$(wipefs -n `+d.paths["root-1"]+`)" ] && echo KEPT
`)
	g.Expect(out).To(And(ContainSubstring("carries /boot of the running system"),
		ContainSubstring("cannot be read (lsblk)"), ContainSubstring("KEPT")))
}
