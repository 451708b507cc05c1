// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

// roleVariable makes the test binary play the test process that is killed.
const roleVariable = "QUOIN_RIG_VICTIM"

// TestAKilledTestLeavesNothingBehind kills a test process that has started children in the two ways a rig does, and
// looks for what is left.
func TestAKilledTestLeavesNothingBehind(t *testing.T) {
	if folder := os.Getenv(roleVariable); folder != "" {
		victim(t, folder)
	}
	g := NewWithT(t)
	folder := t.TempDir()
	command := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	command.Env = append(os.Environ(), roleVariable+"="+folder)
	g.Expect(command.Start()).To(Succeed())
	scratch := ""
	g.Eventually(func() error {
		content, err := os.ReadFile(filepath.Join(folder, "ready"))
		scratch = string(content)
		return err
	}).WithTimeout(time.Minute).Should(Succeed())
	// A shell that has forked, and whose child is not another program yet, looks like two.
	g.Eventually(func() []string { return marked(t, scratch) }).WithTimeout(10 * time.Second).Should(HaveLen(2))

	g.Expect(command.Process.Signal(syscall.SIGKILL)).To(Succeed())
	_ = command.Wait()
	g.Eventually(func() []string { return marked(t, scratch) }).WithTimeout(10 * time.Second).Should(BeEmpty())
	g.Eventually(scratch).WithTimeout(10 * time.Second).ShouldNot(BeADirectory())
}

// victim starts a child of its own and, through a wrapper, one that knows nothing of the mark; both ignore SIGTERM.
func victim(t *testing.T, folder string) {
	g := NewWithT(t)
	r := &Rig{Dir: folder}
	g.Expect(r.startReaper(t.Context())).To(Succeed())
	stubborn := []string{"-c", "trap '' TERM; while :; do sleep 0.1; done"}
	_, err := r.startProcess("child", nil, "/bin/sh", stubborn...)
	g.Expect(err).NotTo(HaveOccurred())
	wrapped, err := r.reaper.wrap("/bin/sh")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(exec.Command(wrapped, stubborn...).Start()).To(Succeed())
	g.Eventually(func() []string { return marked(t, r.reaper.scratch) }).WithTimeout(time.Minute).Should(HaveLen(2))
	g.Expect(os.WriteFile(filepath.Join(folder, "ready.new"), []byte(r.reaper.scratch), 0o600)).To(Succeed())
	g.Expect(os.Rename(filepath.Join(folder, "ready.new"), filepath.Join(folder, "ready"))).To(Succeed())
	select {}
}

// marked lists the shells of a rig; their short-lived children carry the mark too.
func marked(t *testing.T, scratch string) []string {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, file := range files {
		environment, _ := os.ReadFile(file)
		name, _ := os.ReadFile(filepath.Join(filepath.Dir(file), "comm"))
		if string(name) != "sleep\n" && slices.Contains(strings.Split(string(environment), "\x00"), markVariable+"="+scratch) {
			found = append(found, filepath.Dir(file))
		}
	}
	return found
}
