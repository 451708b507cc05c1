// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

// node is a directory with what the script looks at, and the real shell.
type node struct {
	g         *WithT
	etc, proc string
}

func newNode(t *testing.T) node {
	n := node{g: NewWithT(t), etc: filepath.Join(t.TempDir(), "kubernetes"), proc: t.TempDir()}
	n.g.Expect(os.MkdirAll(filepath.Join(n.etc, "manifests"), 0o700)).To(Succeed())
	for _, name := range []string{"etcd", "kube-apiserver"} {
		n.write(filepath.Join(n.etc, "manifests", name+".yaml"), name)
	}
	n.process("7", "etcd", "S (sleeping)")
	return n
}

func (n node) write(name, content string) {
	n.g.Expect(os.MkdirAll(filepath.Dir(name), 0o700)).To(Succeed())
	n.g.Expect(os.WriteFile(name, []byte(content), 0o600)).To(Succeed())
}

func (n node) process(pid, comm, state string) {
	n.write(filepath.Join(n.proc, pid, "comm"), comm+"\n")
	n.write(filepath.Join(n.proc, pid, "status"), "Name:\t"+comm+"\nState:\t"+state+"\n")
}

func (n node) command(longest time.Duration) *exec.Cmd {
	command := exec.Command("/bin/sh", "-eu")
	command.Stdin = strings.NewReader(script(n.etc, n.proc, longest))
	return command
}

func (n node) manifests() []string {
	entries, err := os.ReadDir(filepath.Join(n.etc, "manifests"))
	n.g.Expect(err).NotTo(HaveOccurred())
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

func TestTheManifestLeavesTheDirectoryAndTheEndIsAwaited(t *testing.T) {
	n := newNode(t)
	n.process("8", "kube-apiserver", "S (sleeping)")
	command := n.command(time.Minute)
	n.g.Expect(command.Start()).To(Succeed())
	ended := make(chan error, 1)
	go func() { ended <- command.Wait() }()
	n.g.Eventually(n.manifests, "30s").Should(ConsistOf("etcd.yaml"))
	n.g.Expect(ended).NotTo(Receive(), "while the API server serves")
	// It ended, and nobody has collected it.
	n.process("8", "kube-apiserver", "Z (zombie)")
	n.g.Eventually(ended, "30s").Should(Receive(BeNil()))
	n.g.Expect(filepath.Join(n.etc, "quoin-kube-apiserver.yaml")).
		To(BeAnExistingFile(), "for whoever looks; the reset empties the directory")
	// Cut off and begun again, or asked twice.
	out, err := n.command(time.Minute).CombinedOutput()
	n.g.Expect(err).NotTo(HaveOccurred(), string(out))
	n.g.Expect(n.manifests()).To(ConsistOf("etcd.yaml"))
}

// The manager died between the move and the end.
func TestAStopThatWasCutOffIsAwaited(t *testing.T) {
	n := newNode(t)
	n.process("8", "kube-apiserver", "S (sleeping)")
	n.g.Expect(os.Remove(filepath.Join(n.etc, "manifests", "kube-apiserver.yaml"))).To(Succeed())
	out, err := n.command(time.Second).CombinedOutput()
	n.g.Expect(err).To(HaveOccurred())
	n.g.Expect(string(out)).To(ContainSubstring("systemctl status kubelet"))
}

func TestAHostWithoutAnAPIServerIsDoneAtOnce(t *testing.T) {
	n := newNode(t)
	n.g.Expect(os.RemoveAll(n.etc)).To(Succeed())
	out, err := n.command(0).CombinedOutput()
	n.g.Expect(err).NotTo(HaveOccurred(), string(out))
	n.g.Expect(n.etc).NotTo(BeADirectory())
}

func TestAManifestThatCannotBeMovedIsSaid(t *testing.T) {
	n := newNode(t)
	// Not even root can replace a directory by a file.
	n.g.Expect(os.Mkdir(filepath.Join(n.etc, "quoin-kube-apiserver.yaml"), 0o700)).To(Succeed())
	out, err := n.command(0).CombinedOutput()
	n.g.Expect(err).To(HaveOccurred())
	n.g.Expect(string(out)).To(ContainSubstring("kube-apiserver.yaml"))
	n.g.Expect(n.manifests()).To(ContainElement("kube-apiserver.yaml"))
}
