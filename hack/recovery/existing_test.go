// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package recovery

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/recovery"
)

// alone is host a, whose member has begun a cluster as kubeadm init has it begin one.
func alone(t *testing.T) *host {
	t.Helper()
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		t.Skip("KUBEBUILDER_ASSETS does not say where etcd is")
	}
	a := newHost(t, "a")
	NewWithT(t).Expect(os.WriteFile(a.manifestPath(), []byte(a.manifest("a="+a.peerURL)), 0o600)).To(Succeed())
	ctx, cancel := context.WithCancel(context.Background())
	var kubelet sync.WaitGroup
	t.Cleanup(func() { cancel(); kubelet.Wait() })
	kubelet.Go(func() { a.kubelet(ctx) })
	a.fill(t)
	return a
}

// loseData takes the data away under etcd and has it start again.
func (h *host) loseData(t *testing.T) {
	t.Helper()
	g := NewWithT(t)
	h.kill()
	g.Expect(os.RemoveAll(filepath.Join(h.root, "var/lib/etcd/member"))).To(Succeed())
	manifest, err := os.ReadFile(h.manifestPath())
	g.Expect(err).NotTo(HaveOccurred())
	h.mu.Lock()
	before := len(h.starts)
	h.mu.Unlock()
	g.Expect(os.WriteFile(h.manifestPath(), append(manifest, '\n'), 0o600)).To(Succeed())
	g.Eventually(func() int {
		h.mu.Lock()
		defer h.mu.Unlock()
		return len(h.starts)
	}, time.Minute, 50*time.Millisecond).Should(BeNumerically(">", before))
}

// The control: as kubeadm init leaves it, the first member begins an empty cluster when its data are gone. After the step it does
// not start without them, and a start with them is as before.
func TestAFirstMemberThatLostItsDataDoesNotBeginAnew(t *testing.T) {
	g := NewWithT(t)
	untold := alone(t)
	untold.loseData(t)
	g.Eventually(func() error { return untold.putter(t)("anew") }, time.Minute, 200*time.Millisecond).Should(Succeed(), "the danger is gone: etcd refuses by itself")

	a := alone(t)
	server := a.apiServer(t)
	a.paused(2500 * time.Millisecond)
	for range 2 {
		output, err := a.step(recovery.ExistingStep())
		g.Expect(err).NotTo(HaveOccurred(), output)
	}
	a.paused(0)
	g.Eventually(server, time.Minute).Should(BeClosed(), "without etcd it would hold the kubelet up")
	g.Expect(a.starts).To(HaveLen(2), "again changes nothing")
	manifest, err := os.ReadFile(a.manifestPath())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(manifest)).To(ContainSubstring("    - etcd\n    - --initial-cluster-state=existing\n    - --advertise-client-urls="))
	found, err := a.client(t).Get(t.Context(), "key-49")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(found.Kvs).To(HaveLen(1))

	a.loseData(t)
	g.Eventually(func() bool { return ended(a) }, time.Minute, 50*time.Millisecond).Should(BeTrue(), "it serves without its data")
	g.Expect(a.putter(t)("anew")).NotTo(Succeed())
}

// paused has the kubelet take its time from now on.
func (h *host) paused(pause time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pause = pause
}

// apiServerOf is the name of the process that stands for the API server of the host.
func apiServerOf(h *host) string { return "api-" + h.peerURL[strings.LastIndex(h.peerURL, ":")+1:] }

// apiServer starts that process. The channel is closed at its end.
func (h *host) apiServer(t *testing.T) <-chan struct{} {
	t.Helper()
	g := NewWithT(t)
	sleep, err := exec.LookPath("sleep")
	g.Expect(err).NotTo(HaveOccurred())
	content, err := os.ReadFile(sleep)
	g.Expect(err).NotTo(HaveOccurred())
	program := filepath.Join(t.TempDir(), apiServerOf(h))
	g.Expect(os.WriteFile(program, content, 0o700)).To(Succeed())
	process := exec.CommandContext(t.Context(), program, "600")
	g.Expect(process.Start()).To(Succeed())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = process.Wait()
	}()
	return done
}

// ended says that the process of the last start is over.
func ended(h *host) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", h.process.Process.Pid))
	return err != nil || strings.Contains(string(stat), ") Z ")
}
