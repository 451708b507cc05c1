// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package artifacts_test

import (
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/artifacts"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/run"
)

func (l *lab) kernel() run.Status {
	l.t.Helper()
	return l.run([]run.Step{artifacts.KernelStep(filepath.Join(l.dir, "etc"), filepath.Join(l.dir, "proc"))}, nil, nil)
}

func TestAFreshHostLearnsToForward(t *testing.T) {
	l := newLab(t)
	l.write("proc/sys/net/bridge/bridge-nf-call-iptables", "0\n", 0o644)
	l.write("proc/sys/net/ipv6/conf/all/forwarding", "0\n", 0o644)
	for range 2 {
		status := l.kernel()
		l.g.Expect(status.Phase).To(Equal(run.Succeeded), "%+v", status)
	}
	l.g.Expect(l.read("proc/sys/net/ipv4/ip_forward")).To(Equal("1\n"))
	l.g.Expect(l.read("proc/sys/net/bridge/bridge-nf-call-iptables")).To(Equal("1\n"))
	l.g.Expect(l.read("proc/sys/net/ipv6/conf/all/forwarding")).
		To(Equal("0\n"), "a host that forwards IPv6 hears no router any more")
	l.g.Expect(l.read("etc/sysctl.d/90-quoin.conf")).
		To(Equal("net.ipv4.ip_forward=1\nnet.bridge.bridge-nf-call-iptables=1\n"))
	l.g.Expect(l.read("etc/modules-load.d/quoin.conf")).To(Equal("overlay\nbr_netfilter\n"))
	l.g.Expect(l.read("modprobe.log")).To(HavePrefix("overlay\nbr_netfilter\n"))
	// Cleaning takes back what this list holds.
	for _, file := range []string{"sysctl.d/90-quoin.conf", "modules-load.d/quoin.conf"} {
		l.g.Expect(l.read("root/created")).To(ContainSubstring("file " + l.dir + "/etc/" + file + "\n"))
	}
}

func TestAContainerThatMayNotLoadModulesIsFine(t *testing.T) {
	l := newLab(t)
	l.write("bin/modprobe", "#!/bin/sh\nexit 1\n", 0o755)
	l.write("proc/sys/net/ipv4/ip_forward", "1\n", 0o644)
	status := l.kernel()
	l.g.Expect(status.Phase).To(Equal(run.Succeeded), "%+v", status)
	l.g.Expect(l.read("etc/sysctl.d/90-quoin.conf")).To(Equal("net.ipv4.ip_forward=1\n"))
	l.g.Expect(l.read("root/runs/p1/log/kernel-settings")).
		To(And(ContainSubstring("module overlay was not loaded"), ContainSubstring("no br_netfilter")))
}

func TestAHostThatCannotForwardIsRefused(t *testing.T) {
	l := newLab(t)
	// As a read-only /proc/sys answers: the write fails.
	file := filepath.Join(l.dir, "proc/sys/net/ipv4/ip_forward")
	l.g.Expect(os.Remove(file)).To(Succeed())
	l.g.Expect(os.Mkdir(file, 0o755)).To(Succeed())
	status := l.kernel()
	l.g.Expect(status.Phase).To(Equal(run.Failed))
	l.g.Expect(status.Message).To(ContainSubstring("net.ipv4.ip_forward is not 1 and cannot be set"))
}

func TestEveryProvisionPreparesTheKernel(t *testing.T) {
	l := newLab(t)
	l.bundle(version, nil)
	source := l.bundleAt(l.bundles)
	status := l.install(source, artifacts.Worker)
	l.g.Expect(status.Phase).To(Equal(run.Succeeded), "%+v", status)
	l.g.Expect(l.read("proc/sys/net/ipv4/ip_forward")).To(Equal("1\n"))
}
