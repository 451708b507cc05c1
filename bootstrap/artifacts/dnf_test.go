// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package artifacts_test

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/artifacts"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/run"
)

// fedora is a host with stubs that remember what is installed, as dnf and rpm would say it.
func fedora(t *testing.T) (*lab, artifacts.Wanted) {
	t.Helper()
	l, wanted := installed(t)
	// This machine's own apt is on the PATH of every plan.
	l.write("bin/dpkg", "#!/bin/sh\nexit 1\n", 0o755)
	l.write("bin/apt-get", "#!/bin/sh\nexit 1\n", 0o755)
	l.write("rpms", "bash\nkubectl\n", 0o644)
	l.write("bin/dnf", `#!/bin/sh
echo "$*" >>`+l.dir+`/dnf.log
case "$*" in
*"list --showduplicates "*)
	echo "Available Packages"
	for v in 1.35.1-150500.1.1 1.36.3-150500.1.1 1.36.3-150500.2.1; do echo "${6}.x86_64   $v   quoin-kubernetes"; done ;;
*" install "*) printf 'kubeadm\nkubelet\nkubernetes-cni\nsocat\n' >>`+l.dir+`/rpms ;;
*"versionlock list"*) cat `+l.dir+`/locks 2>/dev/null ;;
*"versionlock add "*) echo "$6-*" >>`+l.dir+`/locks ;;
*"versionlock delete "*) grep -v "^$6-" `+l.dir+`/locks >`+l.dir+`/locks.new; mv `+l.dir+`/locks.new `+l.dir+`/locks ;;
esac
`, 0o755)
	l.write("bin/rpm", `#!/bin/sh
case "$1" in
-qa) cat `+l.dir+`/rpms ;;
-q) grep -qxF "$2" `+l.dir+`/rpms ;;
-e) shift
	# Something else needs socat.
	case "$*" in socat) exit 1 ;; *" socat"*) exit 1 ;; esac
	for n in "$@"; do grep -vxF "$n" `+l.dir+`/rpms >`+l.dir+`/rpms.new; mv `+l.dir+`/rpms.new `+l.dir+`/rpms; done ;;
esac
`, 0o755)
	wanted.Preinstalled, wanted.Packages = nil, &artifacts.Packages{}
	return l, wanted
}

func TestADNFHostGetsThePackagesAndGivesThemBack(t *testing.T) {
	l, wanted := fedora(t)
	g := l.g
	wanted.Packages = &artifacts.Packages{Repository: "https://p.example.com/{{minor}}/{{arch}}/rpm/",
		SigningKey: "-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nx\n-----END PGP PUBLIC KEY BLOCK-----\n"}
	for range 2 {
		status := l.install(wanted, artifacts.Worker)
		g.Expect(status.Phase).To(Equal(run.Succeeded), "%+v", status)
	}
	g.Expect(l.read("dnf.log")).To(ContainSubstring("disable_excludes=* install kubeadm-1.36.3-150500.2.1 " +
		"kubelet-1.36.3-150500.2.1 kubectl-1.36.3-150500.2.1\n"))
	g.Expect(l.read("dnf.log")).NotTo(ContainSubstring("versionlock"), "the repository's own list excludes them")
	g.Expect(l.read("etc/yum.repos.d/quoin-kubernetes.repo")).
		To(And(MatchRegexp(`baseurl=https://p.example.com/v1.36/[a-z0-9_]+/rpm/\n`),
			ContainSubstring("gpgcheck=1\ngpgkey=file://"+l.dir+"/etc/pki/rpm-gpg/"),
			ContainSubstring("\nexclude=kubelet kubeadm")))
	g.Expect(strings.Split(l.read("root/created"), "\n")).
		To(ContainElements("package kubeadm", "package kubelet", "package socat"))
	g.Expect(l.read("root/created")).NotTo(ContainSubstring("package kubectl"), "it was there before")

	status := l.run(artifacts.ReleaseSteps(), nil, nil)
	g.Expect(status.Phase).To(Equal(run.Succeeded), "%+v", status)
	g.Expect(strings.Fields(l.read("rpms"))).To(ContainElements("bash", "kubectl", "socat"))
	g.Expect(strings.Fields(l.read("rpms"))).NotTo(ContainElement("kubeadm"))
}

func TestWithoutARepositoryOfItsOwnPackagesAreLocked(t *testing.T) {
	l, wanted := fedora(t)
	g := l.g
	l.write("locks", "kubectl-*\n", 0o644)
	status := l.install(wanted, artifacts.Worker)
	g.Expect(status.Phase).To(Equal(run.Succeeded), "%+v", status)
	g.Expect(strings.Fields(l.read("locks"))).To(ConsistOf("kubectl-*", "kubeadm-*", "kubelet-*", "kubernetes-cni-*"))
	g.Expect(l.run(artifacts.ReleaseSteps(), nil, nil).Phase).To(Equal(run.Succeeded))
	g.Expect(strings.Fields(l.read("locks"))).To(Equal([]string{"kubectl-*"}), "what was locked before stays so")
}

func TestADNFHostSaysWhatIsWrong(t *testing.T) {
	l, wanted := fedora(t)
	wanted.Version = "v1.36.4"
	status := l.install(wanted, artifacts.Worker)
	l.g.Expect(status.Message).To(ContainSubstring("no repository of this host has kubeadm 1.36.4"))
	wanted.Packages.Repository = "deb https://p.example.com/ /"
	status = l.install(wanted, artifacts.Worker)
	l.g.Expect(status.Message).To(And(ContainSubstring("this host has dnf"), ContainSubstring("give the base URL")))
}

func TestWhatAPersonInstallsAfterAFailureStays(t *testing.T) {
	l, wanted := fedora(t)
	g := l.g
	dnf := l.read("bin/dnf")
	l.write("bin/dnf", strings.Replace(dnf, `*" install "*)`,
		`*" install "*) echo kubelet >>`+l.dir+`/rpms; exit 1 ;; *" never "*)`, 1), 0o755)
	status := l.install(wanted, artifacts.Worker)
	g.Expect(status.Phase).To(Equal(run.Failed))
	g.Expect(status.Message).To(ContainSubstring("dnf could not install"))
	l.write("rpms", l.read("rpms")+"strace\n", 0o644)
	g.Expect(l.run(artifacts.ReleaseSteps(), nil, nil).Phase).To(Equal(run.Succeeded))
	g.Expect(strings.Fields(l.read("rpms"))).To(ConsistOf("bash", "kubectl", "strace"),
		"half an installation goes, and nothing else")
}
