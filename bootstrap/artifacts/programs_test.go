// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package artifacts_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/artifacts"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/run"
)

const (
	imageList = "r/kube-apiserver:v1.36.3\nr/kube-controller-manager:v1.36.3\nr/kube-scheduler:v1.36.3\nr/kube-proxy:v1.36.3\nr/coredns/coredns:v1.14\nr/pause:3.10\nr/etcd:3.6"
	unit      = "[Service]\nExecStart=\nExecStart=/usr/bin/kubelet $KUBELET_KUBECONFIG_ARGS $KUBELET_EXTRA_ARGS\n"
)

// programs puts stubs of one version where plans find them.
func (l *lab) programs(dir, version string) {
	l.t.Helper()
	for name, body := range stubs(version) {
		l.write(dir+"/"+name, body, 0o755)
	}
}

func stubs(version string) map[string]string {
	return map[string]string{
		"kubeadm": `#!/bin/sh
repository=r
case "$*" in *--image-repository*) repository=${*##* } ;; esac
case "$*" in
"version -o short") echo ` + version + `;;
"config images list --kubernetes-version v"*) echo "` + imageList + `" | sed "s|^r/|$repository/|" ;;
*) exit 1 ;;
esac
`,
		"kubelet": "#!/bin/sh\necho Kubernetes " + version + "\n",
		"kubectl": "#!/bin/sh\necho 'Client Version: " + version + "'; echo 'Kustomize Version: v5'\n",
	}
}

// installed is a host on which somebody installed a version.
func installed(t *testing.T) (*lab, artifacts.Wanted) {
	t.Helper()
	l := newLab(t)
	l.programs("bin", version)
	l.write("opt/cni/bin/bridge", "", 0o755)
	t.Cleanup(artifacts.SetCNIPlugins(filepath.Join(l.dir, "opt/cni/bin")))
	l.write("unit", unit, 0o644)
	l.write("bin/systemctl", `#!/bin/sh
echo "$*" >>`+l.dir+`/systemctl.log
case "$*" in "cat kubelet.service") cat `+l.dir+`/unit `+l.dir+`/etc/systemd/system/kubelet.service.d/*.conf 2>/dev/null; [ -f `+l.dir+`/unit ] ;; esac
`, 0o755)
	return l, artifacts.Wanted{Version: version, Source: artifacts.Source{Preinstalled: &artifacts.Preinstalled{}}}
}

// images are what containerd of the lab holds.
func (l *lab) images(names ...string) {
	l.t.Helper()
	for _, name := range names {
		l.write("store/"+strings.TrimPrefix(name, "x/"), "", 0o644)
	}
}

func TestAPreinstalledVersionIsLookedAtAndOnlyItsUnitIsExtended(t *testing.T) {
	l, wanted := installed(t)
	g := l.g
	for range 2 {
		status := l.install(wanted, artifacts.Worker)
		g.Expect(status.Phase).To(Equal(run.Succeeded), "%+v", status)
		g.Expect(l.read("etc/systemd/system/kubelet.service.d/20-quoin.conf")).To(ContainSubstring(
			"EnvironmentFile=-" + l.dir + "/root/kubelet.env\nExecStart=\nExecStart=/usr/bin/kubelet $KUBELET_KUBECONFIG_ARGS " +
				"$KUBELET_EXTRA_ARGS $QUOIN_KUBELET_ARGS\n"))
	}
	for line := range strings.SplitSeq(strings.TrimSpace(l.read("root/created")), "\n") {
		g.Expect(line).To(Or(ContainSubstring("/etc/systemd"), ContainSubstring("/etc/modules-load.d"),
			ContainSubstring("/etc/sysctl.d"), Equal("dir "+l.dir+"/etc")),
			"cleaning must not remove what is not ours")
	}
}

func TestAVersionThatIsNotThereIsSaidWhole(t *testing.T) {
	l, wanted := installed(t)
	l.programs("bin", "v1.35.1")
	for _, gone := range []string{"opt/cni/bin", "unit"} {
		l.g.Expect(os.RemoveAll(filepath.Join(l.dir, gone))).To(Succeed())
	}
	l.write("bin/ctr", "#!/bin/sh\nexit 1\n", 0o755)
	status := l.install(wanted, artifacts.Worker)
	l.g.Expect(status.Phase).To(Equal(run.Failed))
	l.g.Expect(status.Step).To(Equal("check-version"))
	for _, want := range []string{"carries Kubernetes v1.36.3, but",
		"kubeadm is v1.35.1, kubelet is v1.35.1, kubectl is v1.35.1", "containerd does not answer",
		"no CNI plugins", "no kubelet.service", "or select other hosts"} {
		l.g.Expect(status.Message).To(ContainSubstring(want))
	}
	l.g.Expect(filepath.Join(l.dir, "etc")).NotTo(BeADirectory(), "nothing is changed before that is known")
}

func TestRequiredImagesAreThereAndStay(t *testing.T) {
	l, wanted := installed(t)
	g := l.g
	wanted.Preinstalled.ImagesRequired = true
	l.images("x/kube-proxy:v1.36.3", "x/pause:3.10", "x/other:1")
	status := l.install(wanted, artifacts.Worker)
	g.Expect(status.Phase).To(Equal(run.Failed))
	g.Expect(status.Message).To(And(ContainSubstring("lacks images of Kubernetes v1.36.3: x/coredns/coredns:v1.14;"),
		ContainSubstring("Pullable")))
	g.Expect(status.Message).NotTo(ContainSubstring("apiserver"), "a worker needs none")

	l.images("x/coredns:v1.14")
	status = l.install(wanted, artifacts.Worker)
	g.Expect(status.Phase).To(Equal(run.Succeeded), "%+v", status)
	for _, name := range []string{"kube-proxy:v1.36.3", "pause:3.10", "coredns:v1.14"} {
		g.Expect(l.read("store/"+name)).To(ContainSubstring("pinned"), name)
	}
	g.Expect(l.read("store/other:1")).To(BeEmpty())
	g.Expect(l.read("ctr.log")).NotTo(ContainSubstring("pull"))
	g.Expect(l.read("ctr.log")).NotTo(ContainSubstring("images rm"))

	status = l.install(wanted, artifacts.ControlPlane)
	g.Expect(status.Phase).To(Equal(run.Failed))
	g.Expect(status.Message).To(And(ContainSubstring("kube-apiserver:v1.36.3"), ContainSubstring("etcd:3.6")))
	g.Expect(l.install(wanted, artifacts.Addon).Phase).To(Equal(run.Succeeded), "an older host needs the add-ons only")
}

func TestImagesArePulledAheadPinnedAndForgottenWithTheirVersion(t *testing.T) {
	l, wanted := installed(t)
	g := l.g
	l.write("bin/crictl", `#!/bin/sh
echo "$*" >>`+l.dir+`/crictl.log
case "$4" in *coredns*) exit 1 ;; esac
: >`+l.dir+`/store/${4#x/}
`, 0o755)
	// The repository is that of the cluster that the host belongs to.
	l.images("x/kube-proxy:v1.35.1")
	status := l.install(wanted, artifacts.Addon)
	g.Expect(status.Phase).To(Equal(run.Succeeded), "what cannot be pulled ahead is left to the kubelet: %+v", status)
	g.Expect(l.read("crictl.log")).To(And(ContainSubstring("pull x/kube-proxy:v1.36.3"),
		ContainSubstring("pull x/pause:3.10"), Not(ContainSubstring("apiserver"))))
	g.Expect(l.read("store/kube-proxy:v1.36.3")).To(ContainSubstring("pinned"))
	g.Expect(l.read("store/kube-proxy:v1.35.1")).To(BeEmpty())
	pulls := strings.Count(l.read("crictl.log"), "kube-proxy")
	g.Expect(l.install(wanted, artifacts.Worker).Phase).To(Equal(run.Succeeded))
	g.Expect(strings.Count(l.read("crictl.log"), "kube-proxy")).To(Equal(pulls))
	g.Expect(filepath.Join(l.dir, "store/kube-proxy:v1.36.3")).To(BeAnExistingFile())

	// Another version is installed: what we pulled goes, what others brought stays.
	wanted.Version = "v1.37.0"
	l.programs("bin", "v1.37.0")
	status = l.install(wanted, artifacts.Worker)
	g.Expect(status.Phase).To(Equal(run.Succeeded), "%+v", status)
	g.Expect(filepath.Join(l.dir, "store/kube-proxy:v1.35.1")).To(BeAnExistingFile())
}

func TestTheKubeletsUnitMustBeReadable(t *testing.T) {
	for name, c := range map[string]struct{ unit, want string }{
		"an ExecStart over two lines": {"[Service]\nExecStart=/usr/bin/kubelet \\\n --v=2\n", "write it on one line"},
		"no ExecStart":                {"[Service]\n", "write it on one line"},
		"our own variable already":    {"[Service]\nExecStart=/usr/bin/kubelet $QUOIN_KUBELET_ARGS\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			l, wanted := installed(t)
			l.write("unit", c.unit, 0o644)
			status := l.install(wanted, artifacts.Worker)
			l.g.Expect(status.Message).To(ContainSubstring(c.want))
			l.g.Expect(status.Phase == run.Succeeded).To(Equal(c.want == ""), "%+v", status)
			l.g.Expect(filepath.Join(l.dir, "etc/systemd")).NotTo(BeADirectory())
		})
	}
}

func TestExactlyOneSourceIsGiven(t *testing.T) {
	g := NewWithT(t)
	for _, source := range []artifacts.Source{{},
		{Packages: &artifacts.Packages{}, Preinstalled: &artifacts.Preinstalled{}}} {
		_, err := artifacts.Find(context.Background(), nil, artifacts.Wanted{Version: version, Source: source})
		g.Expect(err).To(MatchError(ContainSubstring("exactly one")))
	}
}
