// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package inspect_test

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/inspect"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sshtest"
)

func TestAZombieMakesNoNode(t *testing.T) {
	g := NewWithT(t)
	sleep, err := exec.LookPath("sleep")
	g.Expect(err).NotTo(HaveOccurred())
	content, err := os.ReadFile(sleep)
	g.Expect(err).NotTo(HaveOccurred())
	// Other tests may run beside this one, and this machine may hold a cluster: a name that only this test has.
	const name = "quoin-zombie"
	stub := filepath.Join(t.TempDir(), name)
	g.Expect(os.WriteFile(stub, content, 0o755)).To(Succeed())
	script := strings.ReplaceAll(inspect.Script, "kubelet | etcd |", name+" | kubelet | etcd |")
	g.Expect(script).NotTo(Equal(inspect.Script))
	found := func() string {
		result, err := (&sshtest.Local{}).Run(t.Context(), ssh.Command{Script: script})
		g.Expect(err).NotTo(HaveOccurred())
		return result.Stdout
	}

	process := exec.Command(stub, "60")
	g.Expect(process.Start()).To(Succeed())
	g.Eventually(found, "1m").Should(ContainSubstring("kubernetes process " + name))
	// Nobody has waited for it.
	g.Expect(process.Process.Kill()).To(Succeed())
	g.Eventually(found, "1m").ShouldNot(ContainSubstring(name))
	g.Expect(process.Process.Signal(os.Interrupt)).To(Succeed(), "it is still there, as a zombie")
	_ = process.Wait()
}

func TestASlowContainerdIsAskedAgain(t *testing.T) {
	g := NewWithT(t)
	dir := t.TempDir()
	socket := filepath.Join(dir, "s")
	listener, err := net.Listen("unix", socket)
	g.Expect(err).NotTo(HaveOccurred())
	defer listener.Close()
	script := strings.ReplaceAll(inspect.Script, "/run/containerd/containerd.sock", socket)
	for name, body := range map[string]string{"ctr": "echo Server:",
		"timeout": `[ ! -e "$0.slow" ] || exit 124; shift 3; exec "$@"`} {
		g.Expect(os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+body+"\n"), 0o755)).To(Succeed())
	}
	host := &sshtest.Local{Env: []string{"PATH=" + dir + ":" + os.Getenv("PATH")}}
	result, err := host.Run(t.Context(), ssh.Command{Script: script})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(result.Stdout).To(ContainSubstring("runtime.socket yes"))

	g.Expect(os.WriteFile(filepath.Join(dir, "timeout.slow"), nil, 0o600)).To(Succeed())
	_, err = host.Run(t.Context(), ssh.Command{Script: script})
	var exit *ssh.ExitError
	g.Expect(errors.As(err, &exit)).To(BeTrue())
	g.Expect(exit.Stderr).To(ContainSubstring("has not answered within 30 s"))
}

func TestAnOddDiskIsLeftOut(t *testing.T) {
	g := NewWithT(t)
	odd := "disk sdb\ndisk sdc many 0 x\ndisk sdd 8 0 two words\ndisk  0 x\n"
	facts, err := inspect.Parse(odd + "disk sda 2097152 1 wwn-1\nend ok\n")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(facts.Disks).To(Equal([]inspect.Disk{{ID: "wwn-1", Name: "sda", SizeBytes: 1 << 30, Rotational: true}}))
}

func TestAnIdentityIsWhatAnInspectionReads(t *testing.T) {
	g := NewWithT(t)
	whole, err := inspect.Collect(t.Context(), &sshtest.Local{})
	g.Expect(err).NotTo(HaveOccurred())
	script := "set -e\n" + inspect.IdentityScript + "echo later\n"
	result, err := (&sshtest.Local{}).Run(t.Context(), ssh.Command{Script: script})
	g.Expect(err).NotTo(HaveOccurred())
	identity, rest := inspect.SplitIdentity(result.Stdout)
	g.Expect(rest).To(Equal("later\n"))
	facts, err := inspect.Parse(identity)
	g.Expect(err).NotTo(HaveOccurred())
	for i := range whole.Disks {
		d := whole.Disks[i]
		whole.Disks[i] = inspect.Disk{ID: d.ID, Name: d.Name, SizeBytes: d.SizeBytes, Rotational: d.Rotational}
	}
	g.Expect(*facts).To(Equal(inspect.Facts{BootID: whole.BootID, MachineID: whole.MachineID,
		ProductUUID: whole.ProductUUID, SerialNumber: whole.SerialNumber, Disks: whole.Disks}))
}

func TestWhiteSpaceInAnIdentityIsSqueezed(t *testing.T) {
	g := NewWithT(t)
	dir := t.TempDir()
	device := filepath.Join(dir, "quoindisk")
	g.Expect(os.MkdirAll(filepath.Join(device, "device"), 0o755)).To(Succeed())
	g.Expect(os.WriteFile(filepath.Join(device, "size"), []byte("2097152\n"), 0o600)).To(Succeed())
	g.Expect(os.WriteFile(filepath.Join(device, "device", "wwid"), []byte(" t10.ATA     QEMU\tHARDDISK \t 0001   \n"),
		0o600)).To(Succeed())
	script := strings.ReplaceAll(inspect.Script, "/sys/block/", dir+"/")
	result, err := (&sshtest.Local{}).Run(t.Context(), ssh.Command{Script: script})
	g.Expect(err).NotTo(HaveOccurred())
	facts, err := inspect.Parse(result.Stdout)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(facts.Disks).To(Equal([]inspect.Disk{{ID: "t10.ATA_QEMU_HARDDISK_0001", Name: "quoindisk", SizeBytes: 1 << 30,
		WWN: "t10.ATA_QEMU_HARDDISK_0001"}}))
}

func TestANodeBehindALinkIsSeen(t *testing.T) {
	g := NewWithT(t)
	dir := t.TempDir()
	g.Expect(os.MkdirAll(filepath.Join(dir, "big", "pki"), 0o755)).To(Succeed())
	g.Expect(os.Symlink("big", filepath.Join(dir, "kubelet"))).To(Succeed())
	script := strings.ReplaceAll(inspect.Script, "/var/lib/kubelet", filepath.Join(dir, "kubelet"))
	found := func() string {
		result, err := (&sshtest.Local{}).Run(t.Context(), ssh.Command{Script: script})
		g.Expect(err).NotTo(HaveOccurred())
		return result.Stdout
	}
	g.Expect(found()).NotTo(ContainSubstring("kubernetes " + dir))
	g.Expect(os.WriteFile(filepath.Join(dir, "big", "pki", "kubelet.crt"), nil, 0o600)).To(Succeed())
	g.Expect(found()).To(ContainSubstring("kubernetes " + filepath.Join(dir, "kubelet") + " is not empty"))
}

// A look into what a server that is gone exports never ends.
func TestWhatOtherMachinesExportIsNotLookedAt(t *testing.T) {
	g := NewWithT(t)
	root := t.TempDir()
	for _, dir := range []string{"mnt/local", "mnt/backup", "mnt/a b", "srv/data", "opt/a", "opt/b ["} {
		g.Expect(os.MkdirAll(filepath.Join(root, dir), 0o755)).To(Succeed())
	}
	mounts := filepath.Join(root, "mounts")
	g.Expect(os.WriteFile(mounts, []byte("/dev/sda1 / ext4 rw 0 0\nnas:/backup "+root+"/mnt/backup nfs4 rw 0 0\n"+
		"nas:/data "+root+"/srv nfs rw 0 0\nnas:/ab "+root+"/mnt/a\\040b nfs rw 0 0\n/dev/sdb1 "+root+"/opt/a ext4 rw 0 0\n"), 0o600)).To(Succeed())
	functions := strings.NewReplacer("/proc/self/mounts", mounts, "in '' /opt /srv /mnt /var/local",
		"in "+root+"/opt "+root+"/srv "+root+"/mnt").Replace(inspect.TraceFunctions)
	out, err := exec.CommandContext(t.Context(), "/bin/sh", "-c", functions+"\nquoin_trace_data").Output()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(out)).To(And(ContainSubstring(root+"/mnt/local"), ContainSubstring(root+"/opt/a"), ContainSubstring(root+"/opt/b ["),
		HaveSuffix("traced data\n")))
	g.Expect(string(out)).NotTo(Or(ContainSubstring("backup"), ContainSubstring("srv"), ContainSubstring("a b")))
}

// A mount hides the keys and units of those whose homes are there, so that they were not looked at is said, once.
func TestAHomeOnAnotherMachineIsNamed(t *testing.T) {
	g := NewWithT(t)
	root := t.TempDir()
	mounts, passwd := filepath.Join(root, "mounts"), filepath.Join(root, "passwd")
	g.Expect(os.WriteFile(mounts, []byte("/dev/sda1 / ext4 rw 0 0\nevil:/x /home/a\\040b nfs4 rw 0 0\nauto /net autofs rw 0 0\n"+
		"nas:/y /net/nas nfs rw 0 0\ntmpfs /run/user/7 tmpfs rw 0 0\n"), 0o600)).To(Succeed())
	g.Expect(os.WriteFile(passwd, []byte("a:x:1:1::/home/a b/a:/bin/sh\nb:x:2:2::/home/a b/b:/bin/sh\n"), 0o600)).To(Succeed())
	functions := strings.NewReplacer("/proc/self/mounts", mounts, "/etc/passwd", passwd).Replace(inspect.TraceFunctions)
	out, err := exec.CommandContext(t.Context(), "/bin/sh", "-c", functions+"\nquoin_trace_users; quoin_trace_mounts").Output()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(strings.Count(string(out), "skipped ")).To(Equal(1))
	g.Expect(string(out)).To(And(ContainSubstring("skipped keys, settings and units of users whose homes are below /home/a b: "),
		ContainSubstring("trace mount\t/\tdisk ext4\n"), ContainSubstring("trace mount\t/home/a\\040b\tevil:/x nfs4\n"),
		ContainSubstring("trace mount\t/net\tauto autofs\n"), HaveSuffix("traced mount\n")))
	g.Expect(string(out)).NotTo(Or(ContainSubstring("/net/nas"), ContainSubstring("/run/user")))
}

// ends is a host whose answer to an inspection is cut off: by the word that ends no answer, or by its length.
type ends struct {
	ssh.Host
	truncated bool
}

func (e ends) Run(_ context.Context, command ssh.Command) (ssh.Result, error) {
	if !e.truncated {
		return ssh.Result{Stdout: answer}, nil
	}
	lines := strings.Split(strings.TrimSpace(command.Script), "\n")
	return ssh.Result{Stdout: answer + strings.TrimPrefix(lines[len(lines)-1], "say ") + "\n", Truncated: true}, nil
}

// What follows was not read, and a baseline of the rest would know less than the host has.
func TestAnInspectionThatIsCutOffIsNone(t *testing.T) {
	g := NewWithT(t)
	_, err := inspect.Collect(t.Context(), ends{})
	g.Expect(err).To(MatchError(ContainSubstring("cut off")))
	_, err = inspect.Collect(t.Context(), ends{truncated: true})
	g.Expect(err).To(MatchError(inspect.ErrTooMuch))
}

// A value of many lines is one fact: a name of the host's own makes no other.
func TestAFactIsOneLine(t *testing.T) {
	g := NewWithT(t)
	dir := t.TempDir()
	release := filepath.Join(dir, "os-release")
	g.Expect(os.WriteFile(release, []byte("PRETTY_NAME='a\ntrace user\tx\ty\nend ok'\n"), 0o600)).To(Succeed())
	script := strings.ReplaceAll(inspect.Script, "/etc/os-release", release)
	result, err := (&sshtest.Local{}).Run(t.Context(), ssh.Command{Script: script})
	g.Expect(err).NotTo(HaveOccurred())
	forged, err := inspect.Parse(result.Stdout)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(forged.OS.PrettyName).To(Equal("a trace user\tx\ty end ok"))
	g.Expect(forged.Traces.All).NotTo(ContainElement(HaveField("Name", "x")))
}
