// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package artifacts

import (
	_ "embed"
	"fmt"
	"strings"
	"time"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/run"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
)

var (
	//go:embed version.sh
	versionLibrary string
	//go:embed apt.sh
	aptLibrary string
	//go:embed dnf.sh
	dnfLibrary string
)

const (
	// repositoryKeyFile is the name of the plan's file with the repository's signing key.
	repositoryKeyFile = "artifacts-repository-key.asc"
	// packageTime is what a package manager may take: it waits for others, and for mirrors.
	packageTime = 30 * time.Minute
	// imageTime is for some ten images, each of which may take its ten minutes.
	imageTime = 2 * time.Hour
)

// cniPlugins are where containerd looks for the plugins, on one distribution or another. Replaced by tests alone.
var cniPlugins = []string{"/opt/cni/bin", "/usr/lib/cni", "/usr/libexec/cni"}

// packagesPlan installs the version with the host's package manager, holds it, and pulls its images ahead.
func (s *Supply) packagesPlan(role Role) ([]run.Step, []run.File, error) {
	if role == Addon {
		return []run.Step{s.pullImages(role)}, nil, nil
	}
	packages := s.wanted.Packages
	version := strings.TrimPrefix(s.wanted.Version, "v")
	steps := []run.Step{beforeNetwork(), kernelStep(hostKernel)}
	var files []run.File
	if packages.Repository != "" {
		key := "''"
		if packages.SigningKey != "" {
			key = `"$QUOIN_RUN_DIR/files/` + repositoryKeyFile + `"`
			files = append(files, run.File{Name: repositoryKeyFile, Content: []byte(strings.TrimSpace(packages.SigningKey) +
				"\n")})
		}
		steps = append(steps, run.Step{Name: "package-repository", Script: manager(packages) +
			fmt.Sprintf("quoin_${kind}_repository %s %s %s\n",
				ssh.Quote(hostKernel.etc), ssh.Quote(packages.repository(s.wanted.Version)), key)})
	}
	return append(steps,
		run.Step{Name: "install-packages", Timeout: packageTime, Script: manager(packages) + fmt.Sprintf(`[ "$kind" != apt ] || quoin_apt_update %[1]s
quoin_${kind}_install %[2]s %[1]s || exit 1
# The packages start the kubelet; that is for the end of the plan.
systemctl disable --now kubelet.service
`, ssh.Quote(hostKernel.etc), ssh.Quote(version))},
		s.checkPrograms("the packages that were installed should be", "look which program of this name comes first in PATH"),
		kubeletUnit(), s.pullImages(role), s.forgetOthers(),
	), files, nil
}

// preinstalledPlan changes nothing of what is installed: it looks whether that is what the Machine wants.
func (s *Supply) preinstalledPlan(role Role) []run.Step {
	if role == Addon {
		return []run.Step{s.images(role)}
	}
	return []run.Step{
		beforeNetwork(),
		s.checkPrograms("spec.artifacts.preinstalled says that this host carries",
			"install that version, or select other hosts"),
		kernelStep(hostKernel), kubeletUnit(), s.images(role), s.forgetOthers(),
	}
}

// manager finds the package manager, and refuses a repository of another one.
func manager(packages *Packages) string {
	wrong := ""
	switch {
	case packages.Repository == "":
	case packages.deb():
		wrong = `[ "$kind" = apt ] || quoin_fail "spec.artifacts.packages.repository is a deb line, but this host has $dnf; give the base URL of a dnf repository, or select other hosts"` + "\n"
	default:
		wrong = `[ "$kind" = dnf ] || quoin_fail "spec.artifacts.packages.repository is the URL of a dnf repository, but this host has apt; give a deb line, or select other hosts"` + "\n"
	}
	return fetchLibrary + installLibrary + versionLibrary + aptLibrary + dnfLibrary + `
if quoin_has_apt; then kind=apt
elif command -v dnf >/dev/null; then kind=dnf dnf=dnf
elif command -v yum >/dev/null; then kind=dnf dnf=yum
else quoin_fail "this host has neither apt nor dnf, so no packages can be installed; use a bundle, or select other hosts"
fi
` + wrong
}

// repository with the version in it; the architecture is the host's to fill in, for each manager has its own names.
func (p *Packages) repository(version string) string {
	parts := strings.SplitN(version, ".", 3)
	return strings.NewReplacer("{{version}}", version, "{{minor}}", parts[0]+"."+parts[1]).Replace(p.Repository)
}

// beforeNetwork notes which network configurations were there before any pod; cleaning keeps those.
func beforeNetwork() run.Step {
	return run.Step{Name: "check-host", Script: noteNetworks}
}

// checkPrograms says all that is wrong at once.
func (s *Supply) checkPrograms(but, todo string) run.Step {
	return run.Step{Name: "check-version", Script: versionLibrary + fmt.Sprintf(`wrong=$(
	quoin_programs %[1]s
	if ! command -v ctr >/dev/null; then echo "containerd is not installed"
	elif ! timeout 20 ctr version >/dev/null 2>&1; then echo "containerd does not answer"; fi
	for plugins in %[2]s ''; do [ -d "$plugins" ] && break; done
	[ -n "$plugins" ] || echo "no CNI plugins are in %[3]s"
	systemctl cat kubelet.service >/dev/null 2>&1 || echo "there is no kubelet.service"
)
[ -z "$wrong" ] || quoin_fail "%[4]s Kubernetes %[1]s, but $(printf '%%s\n' "$wrong" | quoin_list); %[5]s"
`, s.wanted.Version, strings.Join(quoted(cniPlugins), " "), strings.Join(cniPlugins, " or "), but, todo)}
}

func kubeletUnit() run.Step {
	return run.Step{Name: "kubelet-unit", Script: versionLibrary + "quoin_kubelet_unit " + ssh.Quote(hostKernel.etc) +
		"\n"}
}

func (s *Supply) images(role Role) run.Step {
	if !s.wanted.Preinstalled.ImagesRequired {
		return s.pullImages(role)
	}
	return run.Step{Name: "check-images", Script: fetchLibrary + installLibrary + versionLibrary +
		fmt.Sprintf("quoin_require_images %s %s\n", ssh.Quote(s.wanted.Version), ssh.Quote(string(role)))}
}

func (s *Supply) pullImages(role Role) run.Step {
	return run.Step{Name: "pull-images", Timeout: imageTime, Script: fetchLibrary + installLibrary + versionLibrary +
		fmt.Sprintf("quoin_pull_images %s %s\n", ssh.Quote(s.wanted.Version), ssh.Quote(string(role)))}
}

func (s *Supply) forgetOthers() run.Step {
	return run.Step{Name: "remove-old-versions", Script: installLibrary +
		"quoin_prune " + strings.Join(quoted(append([]string{s.wanted.Version}, s.wanted.AddonVersions...)), " ") + "\n"}
}

// ReleaseSteps take back what packages were installed and held, from the list that the installation kept. They belong
// after kubeadm's own reset, which is one of these programs, and before the list goes. Where nothing was installed they
// do nothing.
func ReleaseSteps() []run.Step {
	return []run.Step{{Name: "remove-packages", Timeout: packageTime, Script: versionLibrary + aptLibrary + dnfLibrary + `
grep -q -e '^package ' -e '^hold ' "$QUOIN_ROOT/created" 2>/dev/null || [ -s "$QUOIN_ROOT/packages-before" ] || exit 0
if quoin_has_apt; then quoin_apt_release
elif command -v dnf >/dev/null; then dnf=dnf && quoin_dnf_release
elif command -v yum >/dev/null; then dnf=yum && quoin_dnf_release
fi
`}}
}
