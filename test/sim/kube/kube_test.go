// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package kube_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/artifacts"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim/kube"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim/machine"
)

const version = "v1.36.3"

// node is a machine on which the version is installed, as our plan does it.
func node(t *testing.T, o kube.Options) (*kube.Cluster, *machine.Machine) {
	t.Helper()
	o.Versions = []string{version}
	cluster, err := kube.New(o)
	if err != nil {
		t.Fatal(err)
	}
	m := machine.New(machine.Options{Hostname: "node", Image: cluster.Image()})
	t.Cleanup(m.PowerOff)
	dir := "/opt/quoin/bundles/" + version
	for _, line := range []string{
		"until ctr version >/dev/null 2>&1; do sleep 0.1; done",
		"for name in kubeadm kubelet; do cp " + dir + "/bin/$name /usr/bin/$name && chmod 0755 /usr/bin/$name || exit 1; done",
		"mkdir -p /etc/systemd/system/kubelet.service.d && cp " + dir + "/units/kubelet.service /etc/systemd/system/ && cp " + dir + "/units/10-kubeadm.conf /etc/systemd/system/kubelet.service.d/",
		"systemctl daemon-reload && echo 1 >/proc/sys/net/ipv4/ip_forward",
		"mkdir -p /run/kubeadm && printf '%s\\n' 'kind: JoinConfiguration' 'discovery:' '  bootstrapToken:' '    token: abcdef.0123456789abcdef' '    apiServerEndpoint: 192.0.2.1:6443' '    unsafeSkipCAVerification: true' >/run/kubeadm/join.yaml",
	} {
		if out, code := run(t, m, line); code != 0 {
			t.Fatalf("%s: %s", line, out)
		}
	}
	return cluster, m
}

func run(t *testing.T, m *machine.Machine, command string) (string, int) {
	t.Helper()
	var out bytes.Buffer
	code, err := m.Run(t.Context(), machine.Session{Command: command, Stdout: &out, Stderr: &out})
	if err != nil {
		return err.Error(), -1
	}
	return out.String(), code
}

const join = "kubeadm join --config /run/kubeadm/join.yaml"

func TestTheUnitsAreThoseOfRealBundles(t *testing.T) {
	g := NewWithT(t)
	for _, name := range []string{"kubelet.service", "10-kubeadm.conf"} {
		original, err := os.ReadFile(filepath.Join("..", "..", "..", "hack", "bundle", "units", name))
		g.Expect(err).NotTo(HaveOccurred())
		copied, err := os.ReadFile(filepath.Join("units", name))
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(string(copied)).To(Equal(string(original)), "copy hack/bundle/units to test/sim/kube/units")
	}
}

func TestTheBundleIsOne(t *testing.T) {
	g := NewWithT(t)
	manifest, err := artifacts.ParseManifest(kube.Bundle(version)["/opt/quoin/bundles/"+version+"/manifest.json"].Content)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(manifest.For(artifacts.Worker)).NotTo(BeEmpty())
}

func TestJoinLeavesWhatARealOneLeaves(t *testing.T) {
	g := NewWithT(t)
	cluster, m := node(t, kube.Options{})
	out, code := run(t, m, join)
	g.Expect(code).To(Equal(0), out)
	g.Expect(out).To(ContainSubstring("This node has joined the cluster"))
	g.Expect(m.FS().List("/etc/kubernetes")).To(ConsistOf("/etc/kubernetes/kubelet.conf", "/etc/kubernetes/pki/ca.crt"))
	g.Expect(m.FS().List("/var/lib/kubelet")).To(ContainElements("/var/lib/kubelet/config.yaml", "/var/lib/kubelet/kubeadm-flags.env"))
	g.Expect(cluster.Joins(m)).To(Equal(1))

	out, code = run(t, m, join)
	g.Expect(code).To(Equal(1))
	g.Expect(out).To(ContainSubstring("[ERROR FileAvailable--etc-kubernetes-kubelet.conf]: /etc/kubernetes/kubelet.conf already exists"))
	g.Expect(cluster.Joins(m)).To(Equal(1))

	out, code = run(t, m, "kubeadm reset --force")
	g.Expect(code).To(Equal(0), out)
	g.Expect(m.FS().List("/etc/kubernetes")).To(BeEmpty())
	g.Expect(m.FS().List("/var/lib/kubelet")).To(BeEmpty())
	out, code = run(t, m, join)
	g.Expect(code).To(Equal(0), out)
	g.Expect(m.Unknown()).To(BeEmpty())
}

// TestAJoinThatIsCutLeavesHalfANode reboots the machine in each phase: what is there afterwards is refused by the next one.
func TestAJoinThatIsCutLeavesHalfANode(t *testing.T) {
	for phase, left := range map[string]string{"tls-bootstrap": "/etc/kubernetes/bootstrap-kubelet.conf", "done": "/etc/kubernetes/kubelet.conf"} {
		t.Run(phase, func(t *testing.T) {
			g := NewWithT(t)
			cut := false
			_, m := node(t, kube.Options{OnPhase: func(m *machine.Machine, verb, at string) {
				if verb == "join" && at == phase && !cut {
					cut = true
					m.Reboot()
				}
			}})
			_, code := run(t, m, join)
			g.Expect(code).To(Equal(-1))
			g.Expect(m.FS().Exists(left)).To(BeTrue(), strings.Join(m.FS().List("/etc/kubernetes"), " "))
			_, code = run(t, m, "mkdir -p /run/kubeadm; printf 'kind: JoinConfiguration\\ndiscovery: {file: {kubeConfigPath: /x}}\\n' >/run/kubeadm/join.yaml; "+join)
			g.Expect(code).To(Equal(1))
		})
	}
}

func TestImagesOutliveAReboot(t *testing.T) {
	g := NewWithT(t)
	_, m := node(t, kube.Options{})
	out, code := run(t, m, "ctr -n k8s.io images import /opt/quoin/bundles/"+version+"/images/pause.tar && ctr -n k8s.io images label quoin.test/pause:3.10 io.cri-containerd.pinned=pinned")
	g.Expect(code).To(Equal(0), out)
	m.Reboot()
	out, code = run(t, m, "until ctr version >/dev/null 2>&1; do sleep 0.1; done; ctr -n k8s.io images ls")
	g.Expect(code).To(Equal(0), out)
	g.Expect(out).To(MatchRegexp(`(?m)^quoin.test/pause:3.10 .*io.cri-containerd.pinned=pinned`))
}
