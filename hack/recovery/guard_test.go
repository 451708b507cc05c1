// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package recovery

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"sigs.k8s.io/yaml"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/recovery"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/run"
)

// alone is a host without a cluster yet.
func alone(t *testing.T) *host {
	t.Helper()
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		t.Skip("KUBEBUILDER_ASSETS does not say where etcd is")
	}
	h := newHost(t, "a")
	NewWithT(t).Expect(os.MkdirAll(filepath.Join(h.root, "var/lib/quoin"), 0o700)).To(Succeed())
	ctx, cancel := context.WithCancel(context.Background())
	var kubelet sync.WaitGroup
	t.Cleanup(func() { cancel(); kubelet.Wait() })
	kubelet.Go(func() { h.kubelet(ctx) })
	return h
}

// init has the member begin a cluster as kubeadm init does: with the patches that lie in its directory.
func (h *host) init(t *testing.T, extra ...string) {
	t.Helper()
	g := NewWithT(t)
	manifest := h.manifest("a=" + h.peerURL)
	for _, argument := range extra {
		manifest = strings.Replace(manifest, "    - etcd\n", "    - etcd\n    - "+argument+"\n", 1)
	}
	pod, err := yaml.YAMLToJSON([]byte(manifest))
	g.Expect(err).NotTo(HaveOccurred())
	patches, err := filepath.Glob(h.path("/etc/kubernetes/quoin/patches/etcd*+strategic.yaml"))
	g.Expect(err).NotTo(HaveOccurred())
	for _, name := range patches {
		content, err := os.ReadFile(name)
		g.Expect(err).NotTo(HaveOccurred())
		patch, err := yaml.YAMLToJSON(content)
		g.Expect(err).NotTo(HaveOccurred())
		pod, err = strategicpatch.StrategicMergePatch(pod, patch, corev1.Pod{})
		g.Expect(err).NotTo(HaveOccurred())
	}
	content, err := yaml.JSONToYAML(pod)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(os.WriteFile(h.manifestPath(), content, 0o600)).To(Succeed())
	h.fill(t)
}

func (h *host) path(path string) string { return filepath.Join(h.root, path) }

// do runs a step, twice as after a kill.
func (h *host) do(t *testing.T, step run.Step) {
	t.Helper()
	for range 2 {
		output, err := h.step(step)
		NewWithT(t).Expect(err).NotTo(HaveOccurred(), output)
	}
}

// restart has the kubelet start etcd again, after something was done to the data.
func (h *host) restart(t *testing.T, meanwhile func()) {
	t.Helper()
	manifest, err := os.ReadFile(h.manifestPath())
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	h.kill()
	meanwhile()
	NewWithT(t).Expect(os.WriteFile(h.manifestPath(), append(manifest, '\n'), 0o600)).To(Succeed())
}

// started is how often etcd was started, and how often the kubelet or the runtime refused to.
func (h *host) started() (starts, refusals int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.starts), h.refused
}

// staysOut expects that etcd is not started without its data, however often that is tried.
func (h *host) staysOut(t *testing.T, meanwhile func()) {
	t.Helper()
	g := NewWithT(t)
	starts, refusals := h.started()
	h.restart(t, meanwhile)
	g.Eventually(func() int { _, again := h.started(); return again }, time.Minute, 20*time.Millisecond).Should(BeNumerically(">", refusals+3))
	again, _ := h.started()
	g.Expect(again).To(Equal(starts), "it started without its data")
	g.Expect(h.putter(t)("anew")).NotTo(Succeed())
}

// emptied removes what is in a directory, and leaves the directories in it when only files are to go.
func emptied(t *testing.T, directory string, onlyFiles bool) {
	t.Helper()
	NewWithT(t).Expect(filepath.WalkDir(directory, func(path string, entry os.DirEntry, err error) error {
		if err != nil || path == directory || entry.IsDir() && onlyFiles {
			return err
		}
		if err := os.RemoveAll(path); err != nil || !entry.IsDir() {
			return err
		}
		return filepath.SkipDir
	})).To(Succeed())
}

// The control: as kubeadm init leaves it, the first member begins an empty cluster when its data are gone.
func TestAFirstMemberWithoutAGuardBeginsAnew(t *testing.T) {
	g := NewWithT(t)
	a := alone(t)
	a.init(t)
	a.restart(t, func() { emptied(t, a.path("/var/lib/etcd"), false) })
	g.Eventually(func() error { return a.putter(t)("anew") }, time.Minute, 200*time.Millisecond).Should(Succeed(), "the danger is gone: etcd refuses by itself")
}

// The steps around kubeadm init, with a real shell and real etcd: nothing is started again, and etcd does not start without its
// data, whichever way they went; with them it starts as before, also when they were away for a while.
func TestAFirstMemberThatLostItsDataDoesNotBeginAnew(t *testing.T) {
	g := NewWithT(t)
	a := alone(t)
	before, after := recovery.GuardSteps(recovery.PatchesDirectory)
	a.do(t, before)
	a.init(t)
	a.do(t, after)
	starts, refusals := a.started()
	g.Expect(starts).To(Equal(1), "nothing is started again")
	g.Expect(refusals).To(BeZero())
	data, away := a.path("/var/lib/etcd"), a.path("/away")

	a.restart(t, func() {})
	g.Eventually(func() error { return a.putter(t)("again") }, time.Minute, 200*time.Millisecond).Should(Succeed())

	a.staysOut(t, func() { g.Expect(os.Rename(data, away)).To(Succeed()) })
	g.Expect(os.Mkdir(data, 0o700)).To(Succeed())
	a.staysOut(t, func() {})
	g.Expect(os.Remove(data)).To(Succeed())
	g.Expect(os.Rename(away, data)).To(Succeed())
	g.Eventually(func() error { return a.putter(t)("back") }, time.Minute, 200*time.Millisecond).Should(Succeed(), "its disk is mounted again")
	found, err := a.client(t).Get(t.Context(), "again")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(found.Kvs).To(HaveLen(1))

	g.Expect(os.CopyFS(away, os.DirFS(data))).To(Succeed())
	a.staysOut(t, func() { emptied(t, data, true) })
	g.Expect(filepath.Join(data, "member/wal")).To(BeADirectory(), "only files went")
	a.staysOut(t, func() { emptied(t, data, false) })
}

// The log of etcd may have a disk of its own.
func TestAFirstMemberThatLostItsLogDoesNotBeginAnew(t *testing.T) {
	g := NewWithT(t)
	a := alone(t)
	before, after := recovery.GuardSteps(recovery.PatchesDirectory)
	a.do(t, before)
	log := a.path("/var/log-of-etcd")
	g.Expect(os.Mkdir(log, 0o700)).To(Succeed())
	a.init(t, "--wal-dir="+log)
	a.do(t, after)
	a.staysOut(t, func() { emptied(t, log, false) })
}

// What kubeadm's patches have made of the manifest is looked at, and where they come from.
func TestAGuardThatIsNotInPlaceIsRefused(t *testing.T) {
	g := NewWithT(t)
	a := alone(t)
	theirs := a.path("/theirs")
	before, after := recovery.GuardSteps(theirs)
	output, err := a.step(before)
	g.Expect(err).To(HaveOccurred())
	g.Expect(output).To(ContainSubstring(theirs + ", which does not exist"))
	g.Expect(os.Mkdir(theirs, 0o750)).To(Succeed())
	a.do(t, before)
	g.Expect(filepath.Glob(theirs + "/etcd*")).To(HaveLen(1))
	created, err := os.ReadFile(a.path("/var/lib/quoin/created"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(created)).To(ContainSubstring("file "+theirs+"/etcd"), "the reset takes it away again")

	a.do(t, after)
	// Without the patch, as when the user's own removed the volume.
	a.init(t)
	output, err = a.step(after)
	g.Expect(err).To(HaveOccurred())
	g.Expect(output).To(ContainSubstring("does not mount"))
}

// So does the script, which knows no more of the guard than the manifest says, and which may have been run in vain before.
func TestTheScriptGoesOnWithTheGuard(t *testing.T) {
	g := NewWithT(t)
	a := alone(t)
	before, after := recovery.GuardSteps(recovery.PatchesDirectory)
	a.do(t, before)
	a.init(t)
	a.do(t, after)
	a.kill()
	g.Expect(os.Remove(a.path("/var/lib/etcd/member/wal/quoin-began-here"))).To(Succeed(), "a person put the data there")
	output, err := a.survive("a", "--others-are-off")
	g.Expect(err).NotTo(HaveOccurred(), output)
	g.Expect(a.keys(t).Count).To(BeNumerically(">=", 49), "the last one may not have been known as agreed on")
	g.Expect(a.putter(t)("afterwards")).To(Succeed())
	a.staysOut(t, func() { emptied(t, a.path("/var/lib/etcd"), false) })
}

// A recovery puts other data in the place of those that were lost, and the guard lets etcd start with them.
func TestARecoveryGoesOnWithTheGuard(t *testing.T) {
	g := NewWithT(t)
	a := alone(t)
	before, after := recovery.GuardSteps(recovery.PatchesDirectory)
	a.do(t, before)
	a.init(t)
	a.do(t, after)
	copied := a.path("/copied")
	a.kill()
	g.Expect(os.CopyFS(copied, os.DirFS(a.path("/var/lib/etcd")))).To(Succeed())
	g.Expect(os.Remove(filepath.Join(copied, "member/wal/quoin-began-here"))).To(Succeed())
	a.staysOut(t, func() { emptied(t, a.path("/var/lib/etcd"), false) })

	// As a person puts them there, who knows no mark.
	g.Expect(os.CopyFS(a.path("/var/lib/etcd"), os.DirFS(copied))).To(Succeed())
	output, err := a.carryOut(recovery.Order{ID: "recover-r1", Action: recovery.Survive, Member: "a"})
	g.Expect(err).NotTo(HaveOccurred(), output)
	g.Expect(a.putter(t)("afterwards")).To(Succeed())
	a.staysOut(t, func() { emptied(t, a.path("/var/lib/etcd"), false) })
}
