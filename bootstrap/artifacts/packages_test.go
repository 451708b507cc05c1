// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package artifacts_test

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/artifacts"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/run"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sshtest"
)

// debian is a host whose apt and dpkg are the real ones, on a root of their own, with a repository that a key signed.
func debian(t *testing.T) (*lab, artifacts.Wanted) {
	t.Helper()
	for _, tool := range []string{"apt-get", "dpkg-deb", "dpkg-scanpackages", "gpg"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("needs %s", tool)
		}
	}
	if os.Getuid() != 0 {
		t.Skip("needs root, as dpkg does")
	}
	l, wanted := installed(t)
	for _, name := range []string{"kubeadm", "kubelet", "kubectl"} {
		l.g.Expect(os.Remove(filepath.Join(l.dir, "bin", name))).To(Succeed())
	}
	for _, dir := range []string{"scratch/var/lib/dpkg/info", "scratch/var/lib/dpkg/updates", "state/lists/partial",
		"cache/archives/partial", "log", "etc/apt/sources.list.d", "etc/apt/preferences.d"} {
		l.g.Expect(os.MkdirAll(filepath.Join(l.dir, dir), 0o755)).To(Succeed())
	}
	l.write("scratch/var/lib/dpkg/status", "", 0o644)
	l.write("apt.conf", strings.ReplaceAll(`Dir::State "@/state"; Dir::State::status "@/scratch/var/lib/dpkg/status"; Dir::Cache "@/cache";
Dir::Etc "@/etc/apt"; Dir::Log "@/log"; APT::Sandbox::User "root"; DPkg::Options { "--root=@/scratch"; "--force-not-root"; "--log=/dev/null"; };
Acquire::Retries "0"; DPkg::Post-Invoke { }; APT::Update::Post-Invoke-Success { };
`, "@", l.dir), 0o644)
	l.host.Env = []string{"PATH=" + l.dir + "/scratch/usr/bin:" + l.dir + "/bin:" + os.Getenv("PATH"),
		"APT_CONFIG=" + l.dir + "/apt.conf", "DPKG_ROOT=" + l.dir + "/scratch"}
	repository, key := sharedRepository(t)
	l.shell("cp -r " + repository + " " + l.dir + "/debs")
	wanted.Preinstalled, wanted.Packages = nil, &artifacts.Packages{Repository: "deb [arch={{arch}}] file://" + l.dir +
		"/debs/{{minor}}/ /", SigningKey: key}
	return l, wanted
}

// shared is made by the first test that needs it, for building and signing packages takes longer than installing them.
var shared struct{ dir, key string }

// TestMain removes what the tests share.
func TestMain(m *testing.M) {
	code := m.Run()
	if shared.dir != "" {
		_ = os.RemoveAll(shared.dir)
	}
	os.Exit(code)
}

// sharedRepository is a folder of packages, with the key that signed it.
func sharedRepository(t *testing.T) (dir, key string) {
	t.Helper()
	if shared.key != "" {
		return shared.dir + "/debs", shared.key
	}
	g := NewWithT(t)
	var err error
	shared.dir, err = os.MkdirTemp("", "quoin-debs-")
	g.Expect(err).NotTo(HaveOccurred())
	l := &lab{t: t, g: g, dir: shared.dir, host: &sshtest.Local{}}
	for _, v := range []string{"v1.35.1", version} {
		for name, body := range stubs(v) {
			depends := ""
			if name == "kubelet" {
				depends = "Depends: kubernetes-cni, conntrack\n"
			}
			l.deb(name, strings.TrimPrefix(v, "v")+"-1.1", depends, "usr/bin/"+name, body)
		}
	}
	l.deb("kubernetes-cni", "1.8-1.1", "", "opt/cni/bin/loopback", "")
	l.deb("conntrack", "1.4", "", "usr/sbin/conntrack", "")
	l.deb("firewall", "1.0", "Depends: conntrack\n", "usr/sbin/firewall", "")
	shared.key = l.repository()
	return shared.dir + "/debs", shared.key
}

// deb builds a package with one file.
func (l *lab) deb(name, version, more, file, content string) {
	l.t.Helper()
	tree := "trees/" + name + "-" + version
	l.write(tree+"/"+file, content, 0o755)
	l.write(tree+"/DEBIAN/control", "Package: "+name+"\nVersion: "+version+"\nArchitecture: all\nMaintainer: nobody "+
		"<nobody@example.com>\n"+
		more+"Description: test\n", 0o644)
	l.g.Expect(os.MkdirAll(filepath.Join(l.dir, "debs/v1.36"), 0o755)).To(Succeed())
	l.shell("dpkg-deb --root-owner-group --build " + l.dir + "/" + tree + " " + l.dir + "/debs/v1.36/")
}

func (l *lab) shell(script string) string {
	l.t.Helper()
	cmd := exec.Command("/bin/sh", "-c", script)
	cmd.Env = append(os.Environ(), l.host.Env...)
	output, err := cmd.CombinedOutput()
	l.g.Expect(err).NotTo(HaveOccurred(), "%s\n%s", script, output)
	return string(output)
}

// repository describes and signs the packages, and returns the key.
func (l *lab) repository() string {
	l.t.Helper()
	l.shell("cd " + l.dir + "/debs/v1.36 && dpkg-scanpackages --multiversion . >Packages 2>/dev/null")
	text := l.read("debs/v1.36/Packages")
	l.write("debs/v1.36/Release", fmt.Sprintf("Origin: test\nSuite: stable\nDate: Sat, 01 Jan 2022 00:00:00 "+
		"UTC\nSHA256:\n %x %d Packages\n", sha256.Sum256([]byte(text)), len(text)), 0o644)
	gpg := "gpg --homedir " + l.dir + "/gnupg --batch --quiet --pinentry-mode loopback --passphrase '' "
	l.g.Expect(os.MkdirAll(filepath.Join(l.dir, "gnupg"), 0o700)).To(Succeed())
	l.shell(gpg + "--quick-generate-key test@example.com rsa2048 sign never")
	l.t.Cleanup(func() { _ = exec.Command("gpgconf", "--homedir", l.dir+"/gnupg", "--kill", "all").Run() })
	l.shell(gpg + "--clearsign --digest-algo SHA256 --output " + l.dir + "/debs/v1.36/InRelease " + l.dir +
		"/debs/v1.36/Release")
	return l.shell(gpg + "--armor --export test@example.com")
}

// status of every package that dpkg knows.
func (l *lab) packages() map[string]string {
	l.t.Helper()
	found := map[string]string{}
	for line := range strings.Lines(l.shell("dpkg-query -W -f '${Package} ${Version} ${Status}\\n'")) {
		name, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		found[name] = rest
	}
	return found
}

func TestPackagesOfAVersionAreInstalledHeldAndTakenBack(t *testing.T) {
	l, wanted := debian(t)
	g := l.g
	var created string
	for range 2 {
		status := l.install(wanted, artifacts.Worker)
		g.Expect(status.Phase).To(Equal(run.Succeeded), "%+v", status)
		g.Expect(l.packages()).To(Equal(map[string]string{
			"kubeadm": "1.36.3-1.1 hold ok installed", "kubelet": "1.36.3-1.1 hold ok installed",
			"kubectl":        "1.36.3-1.1 hold ok installed",
			"kubernetes-cni": "1.8-1.1 hold ok installed", "conntrack": "1.4 install ok installed",
		}))
		if created != "" {
			g.Expect(l.read("root/created")).To(Equal(created))
		}
		created = l.read("root/created")
	}
	g.Expect(created).To(And(ContainSubstring("package conntrack\n"), ContainSubstring("hold kubernetes-cni\n"),
		ContainSubstring("file "+l.dir+"/etc/apt/keyrings/quoin-kubernetes.asc\n"),
		ContainSubstring("file "+l.dir+"/etc/apt/sources.list.d/quoin-kubernetes.list\n")))
	g.Expect(l.read("etc/apt/sources.list.d/quoin-kubernetes.list")).To(MatchRegexp(
		`^deb \[signed-by=%s/etc/apt/keyrings/quoin-kubernetes.asc arch=[a-z0-9]+\] file://%s/debs/v1.36/ /\n$`, l.dir,
		l.dir))
	g.Expect(l.read("systemctl.log")).To(ContainSubstring("disable --now kubelet.service"))
	g.Expect(l.read("etc/systemd/system/kubelet.service.d/20-quoin.conf")).To(ContainSubstring("$QUOIN_KUBELET_ARGS"))

	// Somebody needs one of them by now.
	l.shell("apt-get -y install firewall")
	status := l.run(artifacts.ReleaseSteps(), nil, nil)
	g.Expect(status.Phase).To(Equal(run.Succeeded), "%+v", status)
	g.Expect(l.packages()).To(Equal(map[string]string{"conntrack": "1.4 install ok installed",
		"firewall": "1.0 install ok installed"}))
	g.Expect(l.run(artifacts.ReleaseSteps(), nil, nil).Phase).To(Equal(run.Succeeded), "once more changes nothing")
}

func TestPackagesThatWereThereBeforeStay(t *testing.T) {
	l, wanted := debian(t)
	g := l.g
	l.write("etc/apt/sources.list", "deb [trusted=yes] file://"+l.dir+"/own/ /\n", 0o644)
	l.shell("cp -r " + l.dir + "/debs/v1.36 " + l.dir +
		"/own && apt-get update && apt-get -y install conntrack kubectl=1.35.1-1.1 && apt-mark hold kubectl")
	status := l.install(wanted, artifacts.Worker)
	g.Expect(status.Phase).To(Equal(run.Succeeded), "%+v", status)
	g.Expect(l.packages()).To(HaveKeyWithValue("kubectl", "1.36.3-1.1 hold ok installed"))
	g.Expect(l.run(artifacts.ReleaseSteps(), nil, nil).Phase).To(Equal(run.Succeeded))
	g.Expect(l.packages()).To(Equal(map[string]string{"conntrack": "1.4 install ok installed",
		"kubectl": "1.36.3-1.1 hold ok installed"}))
}

func TestAPTSaysWhatIsWrong(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*lab, *artifacts.Wanted)
		step   string
		want   []string
	}{
		"a version that nobody has": {func(_ *lab, w *artifacts.Wanted) { w.Version = "v1.36.9" }, "install-packages",
			[]string{"no repository of this host has kubeadm 1.36.9", "1.36.3-1.1, 1.35.1-1.1"}},
		"a repository that is not there": {func(_ *lab, w *artifacts.Wanted) { w.Version = "v1.37.0" }, "install-packages",
			[]string{"cannot be read", "v1.37", "check its address"}},
		"a key of another": {func(l *lab, w *artifacts.Wanted) {
			w.Packages.SigningKey = "-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nxx\n-----END PGP PUBLIC KEY BLOCK-----"
		}, "install-packages", []string{"cannot be read", "signing key"}},
		"a repository of dnf": {func(_ *lab, w *artifacts.Wanted) {
			w.Packages.Repository = "https://x.example.com/{{minor}}/rpm/"
		}, "package-repository",
			[]string{"this host has apt", "give a deb line"}},
	} {
		t.Run(name, func(t *testing.T) {
			l, wanted := debian(t)
			l.write("bin/sleep", "#!/bin/sh\n", 0o755)
			c.change(l, &wanted)
			status := l.install(wanted, artifacts.Worker)
			l.g.Expect(status.Phase).To(Equal(run.Failed), "%+v", status)
			l.g.Expect(status.Step).To(Equal(c.step))
			for _, want := range c.want {
				l.g.Expect(status.Message).To(ContainSubstring(want))
			}
			l.g.Expect(l.packages()).To(BeEmpty())
		})
	}
}

func TestRepositoriesAreCheckedBeforeAnyHostIsAsked(t *testing.T) {
	g := NewWithT(t)
	const key = "-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nx\n-----END PGP PUBLIC KEY BLOCK-----\n"
	for repository, fine := range map[string]bool{
		"": true,
		"deb https://p.example.com/{{minor}}/deb/ /":                      true,
		"deb [signed-by=/etc/k.gpg arch={{arch}}] https://p/{{minor}}/ /": true,
		"deb https://p.example.com/ stable main":                          true,
		"https://p.example.com/{{version}}/{{arch}}/rpm/":                 true,
		"deb https://p.example.com/ stable":                               false,
		"deb p.example.com /":                                             false,
		"deb https://p.example.com/{{patch}}/ /":                          false,
		"deb https://p/ /\ndeb https://q/ /":                              false,
		"ftp://p.example.com/":                                            false,
		"p.example.com":                                                   false,
	} {
		err := artifacts.Source{Packages: &artifacts.Packages{Repository: repository}}.Check()
		g.Expect(err == nil).To(Equal(fine), "%s: %v", repository, err)
	}
	for _, repository := range []string{"deb https://me:hunter2@p.example.com/{{minor}}/ /",
		"deb [arch={{arch}}] https://hunter2@p/ stable main", "https://me:hunter2@p.example.com/rpm/"} {
		err := artifacts.Source{Packages: &artifacts.Packages{Repository: repository}}.Check()
		g.Expect(err).To(MatchError(And(ContainSubstring("carries a password"), ContainSubstring("auth.conf.d"),
			Not(ContainSubstring("hunter2")))))
	}
	for _, p := range []artifacts.Packages{{SigningKey: key}, {Repository: "https://p/", SigningKey: "x"},
		{Repository: "deb [signed-by=/k] https://p/ /", SigningKey: key}} {
		g.Expect(artifacts.Source{Packages: &p}.Check()).NotTo(Succeed(), "%+v", p)
	}
	g.Expect(artifacts.Source{Packages: &artifacts.Packages{Repository: "https://p/", SigningKey: key}}.Check()).
		To(Succeed())
}
