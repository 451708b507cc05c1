// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package artifacts

import (
	_ "embed"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/run"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
)

var (
	//go:embed fetch.sh
	fetchLibrary string
	// ImageFunctions say which images came with an archive, by digest.
	//
	//go:embed images.sh
	ImageFunctions string
	//go:embed install.sh
	installLibrary string
)

// authoritiesFile is the name of the plan's file with the certificate authorities.
const authoritiesFile = "artifacts-ca.pem"

// bundlePlan fetches, verifies and installs what role needs, and imports and pins its images. Images come before the
// units, so that no kubelet starts without its pause image. The kernel comes first of all: what a host may not do is
// better known before a gigabyte is copied.
func (s *Supply) bundlePlan(role Role) ([]run.Step, []run.File, error) {
	m := s.manifest
	files := m.For(role)
	if len(files) == 0 {
		return nil, nil, fmt.Errorf("the bundle of Kubernetes %s holds nothing for role %s; make the bundle again",
			m.KubernetesVersion, role)
	}
	steps := []run.Step{arch(m)}
	if role != Addon {
		steps = append(steps, kernelStep(hostKernel))
	}
	steps = append(steps, s.room(files))
	for _, kind := range []Kind{Image, Binary, Unit} {
		steps = append(steps, s.stepsFor(kind, files)...)
	}
	if slices.ContainsFunc(files, func(f File) bool { return f.Kind == Unit }) {
		steps = append(steps, enableUnits(files))
	}
	steps = append(steps, s.tidy(role, files))
	return steps, s.uploads(), nil
}

// uploads are the files that the steps of a bundle read.
func (s *Supply) uploads() []run.File {
	if authorities := s.wanted.Bundle.CertificateAuthorities; authorities != "" {
		return []run.File{{Name: authoritiesFile, Content: []byte(authorities)}}
	}
	return nil
}

func enableUnits(files []File) run.Step {
	script := "set -eu\nsystemctl daemon-reload\n"
	for _, file := range files {
		// A drop-in (kubelet.service.d/10-kubeadm.conf) is no unit of its own.
		if file.Kind == Unit && !strings.HasSuffix(path.Dir(file.Install), ".d") {
			unit := path.Base(file.Install)
			script += fmt.Sprintf("quoin_record %s\nsystemctl enable %s\n", ssh.Quote("unit "+unit), ssh.Quote(unit))
		}
	}
	return run.Step{Name: "enable-units", Script: script}
}

// library is what the steps of this bundle call.
func (s *Supply) library() string {
	return curlFunction(s.wanted.Bundle, `"$QUOIN_RUN_DIR/files/`+authoritiesFile+`"`,
		`"$QUOIN_RUN_DIR/no-authorities"`) +
		"quoin_containerd=" + ssh.Quote(containerdRoot) + "\n" + fetchLibrary + ImageFunctions + installLibrary
}

// containerdRoot is where images go, unless containerd was told otherwise: then the check of its room is about another
// disk.
var containerdRoot = "/var/lib/containerd"

// room tells before the first byte is fetched that not everything will fit. What is there already needs no more: an
// image that has a mark, a file that has the right size.
func (s *Supply) room(files []File) run.Step {
	return run.Step{Name: "check-room", Script: s.library() + s.roomScript(files, false)}
}

// roomScript fails when not everything fits; with cached, what is to be pushed counts as well.
func (s *Supply) roomScript(files []File, cached bool) string {
	var script strings.Builder
	script.WriteString("{\n")
	onTheWay := s.location.Remote() && !s.wanted.Bundle.Push
	var largest int64
	for _, file := range files {
		if file.Kind == Image {
			fmt.Fprintf(&script, "quoin_marked %s || echo %d %s\n", file.SHA256, 2*file.Size,
				ssh.Quote(containerdRoot))
		} else {
			fmt.Fprintf(&script, "[ \"$(quoin_size %[1]s)\" = %[2]d ] || echo %[2]d %[3]s\n", ssh.Quote(file.Install), file.Size,
				ssh.Quote(path.Dir(file.Install)))
		}
		if cached {
			fmt.Fprintf(&script, "[ \"$(quoin_size \"$QUOIN_ROOT/cache/%[1]s\")\" = %[2]d ] || echo %[2]d \"$QUOIN_ROOT\"\n",
				file.SHA256, file.Size)
		}
		largest = max(largest, file.Size)
	}
	if onTheWay {
		fmt.Fprintf(&script, "echo %d \"$QUOIN_ROOT\"\n", largest)
	}
	script.WriteString("} | quoin_whole\n")
	return script.String()
}

// tidy notes what this version has on the host, and after an installation removes what other versions left.
func (s *Supply) tidy(role Role, files []File) run.Step {
	version := s.wanted.Version
	held := map[string][]string{version: nil}
	for _, file := range files {
		if file.Kind == Image {
			of := file.of(version)
			held[of] = append(held[of], file.SHA256)
			for _, name := range file.Images {
				held[of] = append(held[of], "image "+name)
			}
		}
	}
	script := s.library()
	for _, of := range slices.Sorted(maps.Keys(held)) {
		script += "quoin_hold " + strings.Join(quoted(append([]string{of}, held[of]...)), " ") + "\n"
	}
	if role == Addon {
		// The version that this host runs is another one.
		return run.Step{Name: "note-images", Script: script}
	}
	return run.Step{Name: "remove-old-versions", Script: script +
		"quoin_prune " + strings.Join(quoted(append([]string{version}, s.wanted.AddonVersions...)), " ") + "\n"}
}

// uname names architectures by another word than Go does.
var uname = map[string]string{"amd64": "x86_64", "arm64": "aarch64", "ppc64le": "ppc64le", "s390x": "s390x",
	"riscv64": "riscv64"}

func arch(m *Manifest) run.Step {
	return run.Step{Name: "check-bundle", Script: archScript(m) + noteNetworks}
}

func archScript(m *Manifest) string {
	want := uname[m.Architecture]
	return fmt.Sprintf(`is=$(uname -m)
[ "$is" = %s ] || quoin_fail "the bundle of Kubernetes %s is for %s (%s), but this host is $is; use a bundle for its architecture, or select other hosts"
`, ssh.Quote(want), m.KubernetesVersion, m.Architecture, want)
}

// noteNetworks is for the cleaning: pods will bring network configurations, and those that were there before stay.
const noteNetworks = `[ -e "$QUOIN_ROOT/cni-before" ] || ls -A /etc/cni/net.d >"$QUOIN_ROOT/cni-before" 2>/dev/null || :
`

func (s *Supply) stepsFor(kind Kind, files []File) []run.Step {
	var steps []run.Step
	used := map[string]int{}
	for _, file := range files {
		if file.Kind != kind {
			continue
		}
		from := ssh.Quote(s.from(file))
		var verb, call string
		if kind == Image {
			verb = "image"
			call = fmt.Sprintf("quoin_image %s %s %d %s", from, file.SHA256, file.Size, strings.Join(quoted(file.Images), " "))
		} else {
			verb = "install"
			call = fmt.Sprintf("quoin_install %s %s %d %s %s", from, file.SHA256, file.Size, ssh.Quote(file.Install), file.Mode)
		}
		steps = append(steps, run.Step{Name: stepName(used, verb+"-"+path.Base(file.Path)), Script: s.library() + call + "\n",
			Timeout: s.timeoutOf(file)})
	}
	return steps
}

// from is where a step finds a file: a path, a URL, or what was pushed.
func (s *Supply) from(file File) string {
	if s.wanted.Bundle.Push {
		return "pushed:" + file.Path
	}
	return s.location.At(file.of(s.wanted.Version)) + "/" + file.Path
}

// timeoutOf is the time that a file may take: a rate that was asked for must not end in a timeout.
func (s *Supply) timeoutOf(file File) time.Duration {
	if s.wanted.Bundle.BytesPerSecond == 0 {
		return 0
	}
	return run.DefaultTimeout + 2*time.Duration(file.Size/s.wanted.Bundle.BytesPerSecond)*time.Second
}

// stepName makes a name for package run of a file's name, unique among the used ones.
func stepName(used map[string]int, name string) string {
	name = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '.' || r == '-' {
			return r
		}
		return '-'
	}, strings.ToLower(strings.TrimSuffix(name, ".tar")))
	if len(name) > 56 {
		name = name[:56]
	}
	used[name]++
	if used[name] > 1 {
		return fmt.Sprintf("%s-%d", name, used[name])
	}
	return name
}

func quoted(words []string) []string {
	out := make([]string, 0, len(words))
	for _, w := range words {
		out = append(out, ssh.Quote(w))
	}
	return out
}

// KubeletArgsStep writes the arguments that the bundle's kubelet unit reads besides kubeadm's own, such as
// --provider-id=... and --node-ip=... It belongs before the kubeadm step. No argument may hold white space.
func KubeletArgsStep(args []string) run.Step {
	line := "QUOIN_KUBELET_ARGS=" + strings.Join(args, " ")
	return run.Step{Name: "kubelet-environment", Script: fmt.Sprintf(`set -eu
umask 077
printf '%%s\n' %s >"$QUOIN_ROOT/kubelet.env.part"
sync "$QUOIN_ROOT/kubelet.env.part"
mv -f "$QUOIN_ROOT/kubelet.env.part" "$QUOIN_ROOT/kubelet.env"
`, ssh.Quote(line))}
}
