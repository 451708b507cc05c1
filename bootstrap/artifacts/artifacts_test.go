// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package artifacts_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/artifacts"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/run"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sshtest"
)

const version = "v1.36.3"

// lab is a host with stubs for ctr and systemctl, and a bundle on its disk.
type lab struct {
	t       *testing.T
	g       *WithT
	dir     string
	host    *sshtest.Local
	runner  run.Runner
	plans   int
	bundles string
}

func newLab(t *testing.T) *lab {
	t.Helper()
	dir := t.TempDir()
	l := &lab{t: t, g: NewWithT(t), dir: dir, bundles: filepath.Join(dir, "bundles")}
	// Images are files of the stub, with a digest and labels; the names in an archive are its lines.
	l.write("bin/ctr", `#!/bin/sh
store=`+dir+`/store; mkdir -p $store; echo "$*" >>`+dir+`/ctr.log
case "$4 $5" in
"ls -q") for f in $store/*; do [ -f "$f" ] && echo "x/$(basename $f)"; done;;
"ls ") for f in $store/*; do [ -f "$f" ] && echo "x/$(basename $f) type $(head -n 1 $f) $(tail -n +2 $f)"; done;;
import*) sum=$(sha256sum <"$5"); while read -r n; do echo "sha256:${sum%% *}" >$store/${n#x/}; done <"$5";;
label*) echo "$6" >>$store/${5#x/};;
rm*) rm -f $store/${5#x/};;
esac
exit 0
`, 0o755)
	l.write("bin/modprobe", "#!/bin/sh\necho \"$*\" >>"+dir+"/modprobe.log\n", 0o755)
	l.write("proc/sys/net/ipv4/ip_forward", "0\n", 0o644)
	t.Cleanup(artifacts.SetKernel(filepath.Join(dir, "etc"), filepath.Join(dir, "proc")))
	t.Cleanup(artifacts.SetContainerd(dir))
	l.write("bin/systemctl", "#!/bin/sh\necho \"$*\" >>"+dir+"/systemctl.log\n", 0o755)
	l.host = &sshtest.Local{Env: []string{"PATH=" + dir + "/bin:" + os.Getenv("PATH")}}
	l.runner = run.Runner{Root: filepath.Join(dir, "root"), Starter: sshtest.Setsid{Dir: dir}}
	return l
}

func (l *lab) write(name, content string, mode os.FileMode) {
	l.t.Helper()
	path := filepath.Join(l.dir, name)
	l.g.Expect(os.MkdirAll(filepath.Dir(path), 0o755)).To(Succeed())
	l.g.Expect(os.WriteFile(path, []byte(content), mode)).To(Succeed())
}

func (l *lab) read(name string) string {
	data, _ := os.ReadFile(filepath.Join(l.dir, name))
	return string(data)
}

func sumOf(text string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(text))) }

func (l *lab) bundle(version string, change func(*artifacts.Manifest)) {
	l.t.Helper()
	content := map[string]string{"bin/kubeadm": "kubeadm " + version, "images/apiserver.tar": "x/apiserver:" + version +
		"\n",
		"images/proxy.tar": "x/proxy:" + version + "\n", "units/kubelet.service": "[Unit]\n",
		"units/10-kubeadm.conf": "[Service]\n"}
	file := func(path string, kind artifacts.Kind, install string, roles ...artifacts.Role) artifacts.File {
		text := content[path]
		l.write("bundles/"+version+"/"+path, text, 0o644)
		f := artifacts.File{Path: path, SHA256: sumOf(text), Size: int64(len(text)), Kind: kind, Roles: roles}
		if kind == artifacts.Image {
			f.Images = []string{strings.TrimSpace(text)}
		} else {
			f.Install = filepath.Join(l.dir, install)
		}
		return f
	}
	both := []artifacts.Role{artifacts.ControlPlane, artifacts.Worker}
	m := &artifacts.Manifest{KubernetesVersion: version, OS: "linux", Architecture: runtime.GOARCH,
		Files: []artifacts.File{
			file("bin/kubeadm", artifacts.Binary, "usr/bin/kubeadm", both...),
			file("images/apiserver.tar", artifacts.Image, "", artifacts.ControlPlane),
			file("images/proxy.tar", artifacts.Image, "", append(both, artifacts.Addon)...),
			file("units/kubelet.service", artifacts.Unit, "etc/kubelet.service", both...),
			file("units/10-kubeadm.conf", artifacts.Unit, "etc/kubelet.service.d/10-kubeadm.conf", both...),
		}}
	if change != nil {
		change(m)
	}
	data, err := json.Marshal(m)
	l.g.Expect(err).NotTo(HaveOccurred())
	l.write("bundles/"+version+"/manifest.json", string(data), 0o644)
}

func (l *lab) bundleAt(base string) artifacts.Wanted {
	return artifacts.Wanted{Version: version, Architecture: runtime.GOARCH,
		Source: artifacts.Source{Bundle: &artifacts.Bundle{Location: base + "/{{version}}"}}}
}

func (l *lab) find(wanted artifacts.Wanted) (*artifacts.Supply, error) {
	return artifacts.Find(context.Background(), l.host, wanted)
}

func (l *lab) run(steps []run.Step, files []run.File, err error) run.Status {
	l.t.Helper()
	l.g.Expect(err).NotTo(HaveOccurred())
	l.plans++
	id := fmt.Sprintf("p%d", l.plans)
	l.g.Expect(l.runner.Start(context.Background(), l.host, run.Plan{ID: id, Steps: steps, Files: files})).To(Succeed())
	var status run.Status
	// The host does the waiting: to ask it again and again takes longer than most plans.
	l.g.Eventually(func() bool {
		var err error
		status, err = l.runner.Await(context.Background(), l.host, id, "", 1500*time.Millisecond)
		return err == nil && status.Phase.Final()
	}, "10m", "20ms").Should(BeTrue())
	return status
}

func (l *lab) install(wanted artifacts.Wanted, role artifacts.Role) run.Status {
	l.t.Helper()
	supply, err := l.find(wanted)
	l.g.Expect(err).NotTo(HaveOccurred())
	return l.run(supply.Plan(role))
}

func TestInstallFromAPathIsQuickTheSecondTime(t *testing.T) {
	l := newLab(t)
	g := l.g
	l.bundle(version, nil)
	status := l.install(l.bundleAt(l.bundles), artifacts.Worker)
	g.Expect(status.Phase).To(Equal(run.Succeeded), "%+v", status)
	g.Expect(l.read("usr/bin/kubeadm")).To(Equal("kubeadm " + version))
	info, _ := os.Stat(filepath.Join(l.dir, "usr/bin/kubeadm"))
	g.Expect(info.Mode().Perm()).To(Equal(os.FileMode(0o755)))
	digest := "sha256:" + sumOf("x/proxy:"+version+"\n")
	g.Expect(l.read("store/proxy:" + version)).To(Equal(digest + "\nio.cri-containerd.pinned=pinned\n"))
	g.Expect(filepath.Join(l.dir, "store/apiserver:"+version)).NotTo(BeAnExistingFile(), "a worker needs no API server")
	g.Expect(l.read("systemctl.log")).To(Equal("daemon-reload\nenable kubelet.service\n"))
	created := l.read("root/created")
	for _, want := range []string{"file " + l.dir + "/usr/bin/kubeadm\n", "unit kubelet.service\n", "file " + l.dir +
		"/etc/kubelet.service.d/10-kubeadm.conf\n"} {
		g.Expect(created).To(ContainSubstring(want))
	}

	imports := strings.Count(l.read("ctr.log"), "import")
	status = l.install(l.bundleAt(l.bundles), artifacts.Worker)
	g.Expect(status.Phase).To(Equal(run.Succeeded), "%+v", status)
	g.Expect(strings.Count(l.read("ctr.log"), "import")).To(Equal(imports))
	g.Expect(l.read("root/created")).To(Equal(created))

	// An image that somebody removed comes back.
	g.Expect(os.Remove(filepath.Join(l.dir, "store/proxy:"+version))).To(Succeed())
	g.Expect(l.install(l.bundleAt(l.bundles), artifacts.Worker).Phase).To(Equal(run.Succeeded))
	g.Expect(strings.Count(l.read("ctr.log"), "import")).To(Equal(imports + 1))

	// So does one that is another image by now, pinned and under the same name; and one of which only the name is on
	// record, as earlier versions noted it.
	mark := "root/images/" + sumOf("x/proxy:"+version+"\n")
	g.Expect(l.read(mark)).To(Equal("x/proxy:" + version + " " + digest + "\n"))
	for i, spoil := range []func(){
		func() { l.write("store/proxy:"+version, "sha256:evil\nio.cri-containerd.pinned=pinned\n", 0o600) },
		func() { l.write(mark, "x/proxy:"+version+"\n", 0o600) },
	} {
		spoil()
		_, err := l.push(pushed(l), artifacts.Worker, time.Minute)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(l.read("root/cache/"+sumOf("x/proxy:"+version+"\n"))).NotTo(BeEmpty(), "a host is sent it again")
		g.Expect(l.install(l.bundleAt(l.bundles), artifacts.Worker).Phase).To(Equal(run.Succeeded))
		g.Expect(strings.Count(l.read("ctr.log"), "import")).To(Equal(imports + 2 + i))
		g.Expect(l.read("store/proxy:" + version)).To(HavePrefix(digest))
	}
}

// pushed is the bundle of a lab as the manager sends it.
func pushed(l *lab) artifacts.Wanted {
	l.t.Cleanup(artifacts.SetRoot(filepath.Join(l.dir, "root")))
	wanted := l.bundleAt(l.bundles)
	wanted.Bundle.Push = true
	return wanted
}

func TestInstallOverHTTP(t *testing.T) {
	l := newLab(t)
	g := l.g
	l.bundle(version, nil)
	var mu sync.Mutex
	requests := map[string]int{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		requests[r.URL.Path]++
		mu.Unlock()
		http.FileServer(http.Dir(l.bundles)).ServeHTTP(w, r)
	}))
	defer server.Close()
	for range 2 {
		status := l.install(l.bundleAt(server.URL), artifacts.ControlPlane)
		g.Expect(status.Phase).To(Equal(run.Succeeded), "%+v", status)
	}
	g.Expect(l.read("usr/bin/kubeadm")).To(Equal("kubeadm " + version))
	mu.Lock()
	defer mu.Unlock()
	g.Expect(requests["/"+version+"/bin/kubeadm"]).To(Equal(1))
	g.Expect(requests["/"+version+"/images/apiserver.tar"]).To(Equal(1))
	g.Expect(filepath.Join(l.dir, "root/cache")).NotTo(BeADirectory())
}

func TestAddonImagesOnly(t *testing.T) {
	l := newLab(t)
	l.bundle(version, nil)
	l.g.Expect(l.install(l.bundleAt(l.bundles), artifacts.Addon).Phase).To(Equal(run.Succeeded))
	l.g.Expect(filepath.Join(l.dir, "store/proxy:"+version)).To(BeAnExistingFile())
	l.g.Expect(filepath.Join(l.dir, "store/apiserver:"+version)).NotTo(BeAnExistingFile())
	l.g.Expect(filepath.Join(l.dir, "usr/bin/kubeadm")).NotTo(BeAnExistingFile())
}

func TestDamageIsNamedAndNothingIsInstalled(t *testing.T) {
	for name, tc := range map[string]struct {
		harm func(*lab)
		want []string
	}{
		"changed content": {func(l *lab) { l.write("bundles/"+version+"/bin/kubeadm", "evil", 0o644) },
			[]string{"bin/kubeadm has sha256", "manifest.json expects", "copy the bundle again"}},
		"missing file": {func(l *lab) { _ = os.Remove(filepath.Join(l.bundles, version, "bin/kubeadm")) },
			[]string{"bin/kubeadm is missing on this host"}},
		"image not in the archive": {func(l *lab) {
			l.bundle(version, func(m *artifacts.Manifest) { m.Files[2].Images = []string{"x/other:1"} })
		}, []string{"does not carry image x/other:1"}},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			l.bundle(version, nil)
			tc.harm(l)
			status := l.install(l.bundleAt(l.bundles), artifacts.ControlPlane)
			l.g.Expect(status.Phase).To(Equal(run.Failed))
			for _, want := range tc.want {
				l.g.Expect(status.Message).To(ContainSubstring(want))
			}
			l.g.Expect(filepath.Join(l.dir, "usr/bin/kubeadm")).NotTo(BeAnExistingFile())
		})
	}
}

func TestTheManifestIsCheckedBeforeAnythingElse(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*artifacts.Manifest)
		want   string
	}{
		"version": {func(m *artifacts.Manifest) {
			m.KubernetesVersion = "v1.35.0"
		}, "for Kubernetes v1.35.0, expected v1.36.3"},
		"architecture": {func(m *artifacts.Manifest) {
			m.Architecture = "s390x"
		}, "for architecture s390x, but the host is " + runtime.GOARCH},
		"traversal":    {func(m *artifacts.Manifest) { m.Files[0].Path = "../x" }, "plain path below the manifest"},
		"injection":    {func(m *artifacts.Manifest) { m.Files[0].Install = "/x;reboot" }, "plain absolute path"},
		"checksum":     {func(m *artifacts.Manifest) { m.Files[0].SHA256 = "abc" }, "no sha256"},
		"kind":         {func(m *artifacts.Manifest) { m.Files[0].Kind = "rpm" }, "kind \"rpm\""},
		"role":         {func(m *artifacts.Manifest) { m.Files[0].Roles = []artifacts.Role{"etcd"} }, "role \"etcd\""},
		"addon binary": {func(m *artifacts.Manifest) { m.Files[0].Roles = []artifacts.Role{"addon"} }, "only images may"},
		"twice":        {func(m *artifacts.Manifest) { m.Files[1].Path = m.Files[0].Path }, "twice"},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			l.bundle(version, tc.change)
			_, err := l.find(l.bundleAt(l.bundles))
			l.g.Expect(err).To(MatchError(ContainSubstring(tc.want)))
		})
	}
	l := newLab(t)
	_, err := l.find(l.bundleAt(l.bundles))
	l.g.Expect(err).To(MatchError(And(ContainSubstring("there is no bundle of Kubernetes v1.36.3"),
		ContainSubstring(l.bundles+"/v1.36.3/manifest.json"))))
	_, err = l.find(l.bundleAt("http://127.0.0.1:1"))
	l.g.Expect(err).To(MatchError(ContainSubstring("there is no bundle")))
}

func TestParseLocation(t *testing.T) {
	g := NewWithT(t)
	for _, bad := range []string{"", "/opt/bundles", "opt/{{version}}", "ftp://x/{{version}}", "http://u:p@x/{{version}}",
		"/a b/{{version}}", "/a/../{{version}}", "/{{arch}}/{{version}}", "/x'$(id)/{{version}}"} {
		_, err := artifacts.ParseLocation(bad)
		g.Expect(err).To(HaveOccurred(), bad)
	}
	for _, secret := range []string{"http://u:hunter2@x/b", "http://u:hunter2@x/{{version}}",
		"http://u:hunter2@x/{{arch}}/{{version}}"} {
		_, err := artifacts.ParseLocation(secret)
		g.Expect(err).To(MatchError(And(ContainSubstring("carries a password"), Not(ContainSubstring("hunter2")))))
	}
	s, err := artifacts.ParseLocation("https://[fd00::1]:8443/b/{{version}}/")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(s.At("v1.2.3")).To(Equal("https://[fd00::1]:8443/b/v1.2.3"))
	g.Expect(s.Remote()).To(BeTrue())
}

func TestKubeletArgs(t *testing.T) {
	l := newLab(t)
	step := artifacts.KubeletArgsStep([]string{"--provider-id=quoin://a/b/c", "--node-ip=10.0.0.1"})
	l.g.Expect(l.run([]run.Step{step}, nil, nil).Phase).To(Equal(run.Succeeded))
	l.g.Expect(l.read("root/kubelet.env")).To(Equal("QUOIN_KUBELET_ARGS=--provider-id=quoin://a/b/c --node-ip=10.0.0.1\n"))
}

// Proves: C17
//
// kubeadm joins API servers of its own minor, the kubelet may be older.
func TestANodeOfAnOlderVersionIsInstalledWithTheKubeadmOfItsControlPlane(t *testing.T) {
	const newer = "v1.37.1"
	for name, c := range map[string]struct{ served, pushed, addons bool }{
		"from a path": {}, "over HTTP": {served: true}, "pushed": {pushed: true}, "with its add-ons": {addons: true},
		"with its add-ons, over HTTP": {served: true, addons: true}, "with its add-ons, pushed": {pushed: true, addons: true},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			t.Cleanup(artifacts.SetRoot(filepath.Join(l.dir, "root")))
			l.bundle(version, nil)
			l.bundle(newer, nil)
			wanted := l.bundleAt(l.bundles)
			if c.served {
				server := httptest.NewServer(http.FileServer(http.Dir(l.bundles)))
				t.Cleanup(server.Close)
				wanted = l.bundleAt(server.URL)
			}
			wanted.Bundle.Push, wanted.Kubeadm = c.pushed, newer
			if c.addons {
				wanted.AddonVersions = []string{newer}
			}
			progress, err := artifacts.Push(t.Context(), l.host, wanted, artifacts.Worker, time.Minute)
			l.g.Expect(err).NotTo(HaveOccurred())
			l.g.Expect(progress.Done).To(BeTrue())
			status := l.install(wanted, artifacts.Worker)
			l.g.Expect(status.Phase).To(Equal(run.Succeeded), "%+v", status)
			l.g.Expect(l.read("usr/bin/kubeadm")).To(Equal("kubeadm " + newer))
			l.g.Expect(filepath.Join(l.dir, "store/proxy:"+version)).To(BeAnExistingFile(), "everything else is its own")
			if !c.addons {
				l.g.Expect(filepath.Join(l.dir, "store/proxy:"+newer)).NotTo(BeAnExistingFile())
				return
			}
			l.g.Expect(l.read("store/proxy:" + newer)).To(ContainSubstring("pinned"))
			l.g.Expect(filepath.Join(l.dir, "store/apiserver:"+newer)).NotTo(BeAnExistingFile())
			// Each version holds its own, so that what is no longer needed goes with its version.
			wanted.AddonVersions = nil
			status = l.install(wanted, artifacts.Worker)
			l.g.Expect(status.Phase).To(Equal(run.Succeeded), "%+v", status)
			l.g.Expect(filepath.Join(l.dir, "store/proxy:"+newer)).NotTo(BeAnExistingFile())
			l.g.Expect(filepath.Join(l.dir, "store/proxy:"+version)).To(BeAnExistingFile())
		})
	}
}

func TestAKubeadmThatCannotBeHadIsNamed(t *testing.T) {
	l := newLab(t)
	l.bundle(version, nil)
	wanted := l.bundleAt(l.bundles)
	wanted.Kubeadm = "v1.37.1"
	_, err := l.find(wanted)
	l.g.Expect(err).To(MatchError(ContainSubstring("there is no bundle of Kubernetes v1.37.1")))
	l.bundle("v1.37.1", func(m *artifacts.Manifest) { m.Files = m.Files[1:] })
	_, err = l.find(wanted)
	l.g.Expect(err).To(MatchError(ContainSubstring("the bundle of Kubernetes v1.37.1 holds no binary kubeadm")))
	wanted.Kubeadm, wanted.AddonVersions = "", []string{"v1.38.0"}
	_, err = l.find(wanted)
	l.g.Expect(err).NotTo(HaveOccurred(), "images of add-ons may come later")
	wanted.Kubeadm, wanted.AddonVersions = "latest", nil
	_, err = l.find(wanted)
	l.g.Expect(err).To(MatchError(ContainSubstring(`version "latest" is not of the form`)))
}
