// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package artifacts_test

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/artifacts"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/run"
)

func (l *lab) stage(wanted artifacts.Wanted, role artifacts.Role) run.Status {
	l.t.Helper()
	supply, err := l.find(wanted)
	l.g.Expect(err).NotTo(HaveOccurred())
	return l.run(supply.Stage(role))
}

// kubeadmCached is where the file kubeadm waits.
var kubeadmCached = "root/cache/" + sumOf("kubeadm "+version)

func TestWhatIsStagedIsNotFetchedAgain(t *testing.T) {
	l, s, wanted := serve(t, nil)
	for range 2 {
		status := l.stage(wanted, artifacts.ControlPlane)
		l.g.Expect(status.Phase).To(Equal(run.Succeeded), "%+v", status)
	}
	l.g.Expect(l.read(kubeadmCached)).To(Equal("kubeadm " + version))
	l.g.Expect(l.read("store/apiserver:" + version)).To(HaveSuffix("\nio.cri-containerd.pinned=pinned\n"))
	for _, absent := range []string{"usr/bin/kubeadm", "etc", "root/created", "root/cni-before", "root/versions",
		"systemctl.log", "modprobe.log"} {
		l.g.Expect(filepath.Join(l.dir, absent)).NotTo(BeAnExistingFile(), "a host that nobody has stays as it is")
	}
	imports := strings.Count(l.read("ctr.log"), "import")
	l.g.Expect(imports).To(Equal(2))

	status := l.install(wanted, artifacts.ControlPlane)
	l.g.Expect(status.Phase).To(Equal(run.Succeeded), "%+v", status)
	l.g.Expect(l.read("usr/bin/kubeadm")).To(Equal("kubeadm " + version))
	for _, file := range []string{"kubeadm", "apiserver.tar", "proxy.tar", "kubelet.service"} {
		l.g.Expect(s.asked(file)).To(HaveLen(1), file)
	}
	l.g.Expect(strings.Count(l.read("ctr.log"), "import")).To(Equal(imports))
	l.g.Expect(l.read("root/versions/" + version)).To(ContainSubstring("image x/apiserver:" + version))
}

// Whoever had the host before, or a disk that fails, decides nothing about what is installed.
func TestAStagedFileThatIsWrongIsFetchedAnew(t *testing.T) {
	for name, spoiled := range map[string]string{
		"as long": strings.Repeat("x", len("kubeadm "+version)), "too short": "kube", "too long": strings.Repeat("x", 99),
	} {
		t.Run(name, func(t *testing.T) {
			l, s, wanted := serve(t, nil)
			l.g.Expect(l.stage(wanted, artifacts.Worker).Phase).To(Equal(run.Succeeded))
			l.write(kubeadmCached, spoiled, 0o600)
			status := l.install(wanted, artifacts.Worker)
			l.g.Expect(status.Phase).To(Equal(run.Succeeded), "%+v", status)
			l.g.Expect(l.read("usr/bin/kubeadm")).To(Equal("kubeadm " + version))
			l.g.Expect(len(s.asked("kubeadm"))).To(BeNumerically(">", 1))
		})
	}
}

// An image that another archive brought under the name of a staged one is none of ours.
func TestAStagedImageCountsByTheArchiveItCameFrom(t *testing.T) {
	l := newLab(t)
	l.bundle(version, nil)
	l.g.Expect(l.stage(l.bundleAt(l.bundles), artifacts.Worker).Phase).To(Equal(run.Succeeded))
	l.write("bundles/"+version+"/images/proxy.tar", "x/proxy:"+version+"\nx/more\n", 0o644)
	l.bundle(version, func(m *artifacts.Manifest) {
		m.Files[2].SHA256, m.Files[2].Size = sumOf("x/proxy:"+version+"\nx/more\n"), 22
	})
	l.write("bundles/"+version+"/images/proxy.tar", "x/proxy:"+version+"\nx/more\n", 0o644)
	status := l.install(l.bundleAt(l.bundles), artifacts.Worker)
	l.g.Expect(status.Phase).To(Equal(run.Succeeded), "%+v", status)
	l.g.Expect(strings.Count(l.read("ctr.log"), "import")).To(Equal(2))
}

func TestStagingThatWasCutIsGoneOnWith(t *testing.T) {
	l, s, wanted := serve(t, once("kubeadm", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	supply, err := l.find(wanted)
	l.g.Expect(err).NotTo(HaveOccurred())
	steps, files, err := supply.Stage(artifacts.Worker)
	l.g.Expect(err).NotTo(HaveOccurred())
	l.g.Expect(l.runner.Start(context.Background(), l.host, run.Plan{ID: "stage", Steps: steps, Files: files})).To(Succeed())
	l.g.Eventually(func() []string { return s.asked("kubeadm") }, "2m", "10ms").Should(HaveLen(1))

	l.runner.Alone = true
	status := l.install(wanted, artifacts.Worker)
	l.g.Expect(status.Phase).To(Equal(run.Succeeded), "%+v", status)
	l.g.Expect(len(s.asked("kubeadm"))).To(BeNumerically(">=", 2), "the one that hung, and another")
	l.g.Expect(s.asked("proxy.tar")).To(HaveLen(1))
	ended, err := l.runner.Poll(context.Background(), l.host, "stage")
	l.g.Expect(err).NotTo(HaveOccurred())
	l.g.Expect(ended.Phase).To(Equal(run.Interrupted))
}

func TestStagingLeavesHalfOfWhatIsFree(t *testing.T) {
	l := newLab(t)
	var disk syscall.Statfs_t
	l.g.Expect(syscall.Statfs(l.dir, &disk)).To(Succeed())
	free := int64(disk.Bavail) * disk.Bsize //nolint:gosec // a disk has fewer blocks than that
	// Packed and unpacked it would fit.
	l.bundle(version, func(m *artifacts.Manifest) { m.Files[2].Size = free * 3 / 10 })
	status := l.stage(l.bundleAt(l.bundles), artifacts.Worker)
	l.g.Expect(status.Phase).To(Equal(run.Failed))
	l.g.Expect(status.Message).To(ContainSubstring("make room there"))
	l.g.Expect(l.read("ctr.log")).NotTo(ContainSubstring("import"))
}

func TestOnlyABundleThatHostsReadIsStaged(t *testing.T) {
	for want, source := range map[string]artifacts.Source{
		"": {Bundle: &artifacts.Bundle{Location: "/b/{{version}}"}},
		"a bundle that the manager sends is not sent ahead": {Bundle: &artifacts.Bundle{Location: "/b/{{version}}", Push: true}},
		"packages are not brought ahead":                    {Packages: &artifacts.Packages{}},
		"the host carries its version already":              {Preinstalled: &artifacts.Preinstalled{}},
	} {
		NewWithT(t).Expect(source.Stageable()).To(Equal(want))
	}
	l := newLab(t)
	supply, err := l.find(artifacts.Wanted{Version: version, Source: artifacts.Source{Packages: &artifacts.Packages{}}})
	l.g.Expect(err).NotTo(HaveOccurred())
	_, _, err = supply.Stage(artifacts.Worker)
	l.g.Expect(err).To(MatchError(ContainSubstring("cannot be staged")))
	_, err = os.Stat(filepath.Join(l.dir, "root"))
	l.g.Expect(err).To(HaveOccurred())
}
