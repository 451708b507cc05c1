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
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/recovery"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/run"
)

// carryOut runs the steps of a plan in this machine's own shell, with the host's directory as its root, until one fails.
func (h *host) carryOut(order recovery.Order) (string, error) {
	for _, step := range recovery.Plan(order).Steps {
		script := strings.ReplaceAll(step.Script, "/etc/kubernetes", filepath.Join(h.root, "etc/kubernetes"))
		command := exec.Command("/bin/sh", "-c", run.Prelude+script) //nolint:gosec // the script is the plan's own
		command.Env = append(os.Environ(), "QUOIN_ROOT="+filepath.Join(h.root, "var/lib/quoin"), "QUOIN_RUN_DIR="+h.root)
		if output, err := command.CombinedOutput(); err != nil {
			return string(output), fmt.Errorf("step %s: %w", step.Name, err)
		}
	}
	return "", nil
}

// The plans that the QuoinHost controller starts, with real etcd and a real shell: nobody is stopped while a quorum lives; the
// members that are given up never start again; the survivor has every key, a manifest without the flag, and a copy.
func TestThePlansOfARecovery(t *testing.T) {
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		t.Skip("KUBEBUILDER_ASSETS does not say where etcd is")
	}
	g := NewWithT(t)
	ctx, cancel := context.WithCancel(context.Background())
	hosts := []*host{newHost(t, "a"), newHost(t, "b"), newHost(t, "c")}
	var initial []string
	for _, h := range hosts {
		initial = append(initial, h.name+"="+h.peerURL)
		g.Expect(os.MkdirAll(filepath.Join(h.root, "var/lib/quoin"), 0o700)).To(Succeed())
	}
	var kubelets sync.WaitGroup
	t.Cleanup(func() { cancel(); kubelets.Wait() })
	for _, h := range hosts {
		g.Expect(os.WriteFile(h.manifestPath(), []byte(h.manifest(strings.Join(initial, ","))), 0o600)).To(Succeed())
		kubelets.Go(func() { h.kubelet(ctx) })
	}
	a, b, c := hosts[0], hosts[1], hosts[2]
	client := a.client(t)
	put := func(key string) error {
		ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
		defer cancel()
		_, err := client.Put(ctx, key, "acknowledged")
		return err
	}
	g.Eventually(func() error { return put("first") }, time.Minute, 200*time.Millisecond).Should(Succeed())
	for i := range 50 {
		g.Expect(put(fmt.Sprintf("key-%d", i))).To(Succeed())
	}
	stop, survive := recovery.Order{ID: "recover-r1", Action: recovery.Stop}, recovery.Order{ID: "recover-r1", Action: recovery.Survive, Member: "a"}
	for _, refused := range []recovery.Order{stop, survive} {
		output, err := a.carryOut(refused)
		g.Expect(err).To(HaveOccurred())
		g.Expect(output).To(ContainSubstring("answers with a quorum"))
	}

	g.Expect(os.Rename(c.manifestPath(), filepath.Join(c.root, "etcd.yaml"))).To(Succeed())
	g.Expect(os.Rename(b.manifestPath(), filepath.Join(b.root, "etcd.yaml"))).To(Succeed())
	g.Eventually(func() error { return put("none") }, time.Minute, 200*time.Millisecond).ShouldNot(Succeed())
	a.kill()
	g.Expect(os.Rename(a.manifestPath(), filepath.Join(a.root, "etcd.yaml"))).To(Succeed())
	// Another one comes back, and is alone.
	g.Expect(os.Rename(filepath.Join(b.root, "etcd.yaml"), b.manifestPath())).To(Succeed())
	output, err := b.carryOut(stop)
	g.Expect(err).NotTo(HaveOccurred(), output)
	g.Expect(b.manifestPath()).NotTo(BeAnExistingFile())
	output, err = b.carryOut(stop)
	g.Expect(err).NotTo(HaveOccurred(), "again: %s", output)
	g.Expect(os.Rename(filepath.Join(a.root, "etcd.yaml"), a.manifestPath())).To(Succeed())

	before, err := os.ReadFile(a.manifestPath())
	g.Expect(err).NotTo(HaveOccurred())
	output, err = a.carryOut(recovery.Order{ID: "recover-r1", Action: recovery.Survive, Member: "b"})
	g.Expect(err).To(HaveOccurred())
	g.Expect(output).To(ContainSubstring("is a, not b"))
	output, err = a.carryOut(survive)
	g.Expect(err).NotTo(HaveOccurred(), output)
	after, err := os.ReadFile(a.manifestPath())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(after).To(Equal(before), "the flag is gone again")
	list, err := client.MemberList(ctx)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(list.Members).To(ConsistOf(HaveField("Name", "a")))
	keys, err := client.Get(ctx, "key-", clientv3.WithPrefix(), clientv3.WithCountOnly())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(keys.Count).To(BeEquivalentTo(50))
	g.Expect(put("afterwards")).To(Succeed())
	g.Expect(filepath.Join(a.root, "var/lib/quoin/recovery/data-recover-r1/member")).To(BeADirectory())
	for _, silent := range []*host{b, c} {
		g.Expect(silent.manifestPath()).NotTo(BeAnExistingFile())
	}
}
