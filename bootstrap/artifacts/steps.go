// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package artifacts

import (
	_ "embed"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/run"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
)

//go:embed install.sh
var rawLibrary string

// library is what the install steps call.
var library = strings.ReplaceAll(rawLibrary, "@CURL@", curlFlags)

// InstallSteps fetches, verifies and installs what role needs, and imports and pins its images. Every step may run again;
// on a host that already holds the version they take a moment. Images come before the units, so that no kubelet starts
// without its pause image. The kernel comes first of all: what a host may not do is better known before a gigabyte is copied.
func InstallSteps(m *Manifest, source Source, role Role) ([]run.Step, error) {
	if role != ControlPlane && role != Worker {
		return nil, fmt.Errorf("role %q installs nothing by itself; use AddonSteps", role)
	}
	files := m.For(role)
	if len(files) == 0 {
		return nil, fmt.Errorf("the bundle of Kubernetes %s holds nothing for role %s; make the bundle again", m.KubernetesVersion, role)
	}
	steps := []run.Step{arch(m), kernelStep(hostKernel)}
	for _, kind := range []Kind{Image, Binary, Unit} {
		steps = append(steps, stepsFor(m, source, kind, files)...)
	}
	var units []string
	for _, file := range files {
		// A drop-in (kubelet.service.d/10-kubeadm.conf) is no unit of its own.
		if file.Kind == Unit && !strings.HasSuffix(path.Dir(file.Install), ".d") {
			units = append(units, path.Base(file.Install))
		}
	}
	if slices.ContainsFunc(files, func(f File) bool { return f.Kind == Unit }) {
		script := "set -eu\nsystemctl daemon-reload\n"
		for _, unit := range units {
			script += fmt.Sprintf("quoin_record %s\nsystemctl enable %s\n", ssh.Quote("unit "+unit), ssh.Quote(unit))
		}
		steps = append(steps, run.Step{Name: "enable-units", Script: script})
	}
	return steps, nil
}

// AddonSteps imports and pins only the images with role Addon.
func AddonSteps(m *Manifest, source Source) ([]run.Step, error) {
	files := m.For(Addon)
	if len(files) == 0 {
		return nil, fmt.Errorf("the bundle of Kubernetes %s holds no image with role %s; make the bundle again", m.KubernetesVersion, Addon)
	}
	return append([]run.Step{arch(m)}, stepsFor(m, source, Image, files)...), nil
}

// uname names architectures by another word than Go does.
var uname = map[string]string{"amd64": "x86_64", "arm64": "aarch64", "ppc64le": "ppc64le", "s390x": "s390x", "riscv64": "riscv64"}

func arch(m *Manifest) run.Step {
	want := uname[m.Architecture]
	return run.Step{Name: "check-bundle", Script: fmt.Sprintf(`is=$(uname -m)
[ "$is" = %s ] || quoin_fail "the bundle of Kubernetes %s is for %s (%s), but this host is $is; use a bundle for its architecture, or select other hosts"
# Pods will bring network configurations; cleaning keeps those that were there before.
[ -e "$QUOIN_ROOT/cni-before" ] || ls -A /etc/cni/net.d >"$QUOIN_ROOT/cni-before" 2>/dev/null || :
`, ssh.Quote(want), m.KubernetesVersion, m.Architecture, want)}
}

func stepsFor(m *Manifest, source Source, kind Kind, files []File) []run.Step {
	var steps []run.Step
	used := map[string]int{}
	for _, file := range files {
		if file.Kind != kind {
			continue
		}
		from := ssh.Quote(source.At(m.KubernetesVersion) + "/" + file.Path)
		var verb, call string
		if kind == Image {
			verb = "image"
			call = fmt.Sprintf("quoin_image %s %s %d %s", from, file.SHA256, file.Size, strings.Join(quoted(file.Images), " "))
		} else {
			verb = "install"
			call = fmt.Sprintf("quoin_install %s %s %d %s %s", from, file.SHA256, file.Size, ssh.Quote(file.Install), file.Mode)
		}
		steps = append(steps, run.Step{Name: stepName(used, verb+"-"+path.Base(file.Path)), Script: library + call + "\n"})
	}
	return steps
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
	return run.Step{Name: "kubelet-args", Script: fmt.Sprintf(`set -eu
printf '%%s\n' %s >"$QUOIN_ROOT/kubelet.env.part"
sync "$QUOIN_ROOT/kubelet.env.part"
mv -f "$QUOIN_ROOT/kubelet.env.part" "$QUOIN_ROOT/kubelet.env"
`, ssh.Quote(line))}
}
