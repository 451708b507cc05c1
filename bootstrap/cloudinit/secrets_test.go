// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudinit_test

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	capi "sigs.k8s.io/cluster-api/bootstrap/kubeadm/pkg/cloudinit"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/cloudinit"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/redact"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/run"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sshtest"
)

const token = "abcdef.0123456789abcdef"

// holders are the files below a directory that hold the token; readable are those that anybody could read.
func holders(t *testing.T, dir string) (all, readable []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil || !strings.Contains(string(content), token) {
			return err
		}
		all = append(all, path)
		if info, err := entry.Info(); err == nil && info.Mode()&0o007 != 0 {
			readable = append(readable, path)
		}
		return nil
	})
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return all, readable
}

// After every single step the whole tree is looked through for the token.
func TestTheTokenIsReadByNobodyAndGoneAtTheEnd(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("files are given to root")
	}
	for name, own := range map[string]string{"in a file of the provider": "", "in a file of the user": "/etc/own.yaml"} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			dir := t.TempDir()
			in := &capi.NodeInput{JoinConfiguration: "kind: JoinConfiguration\ntoken: " + token, BaseUserData: capi.BaseUserData{
				PreKubeadmCommands:  []string{"export JOIN_TOKEN=" + token, "PATH=@:$PATH"},
				PostKubeadmCommands: []string{"test -n \"$JOIN_TOKEN\""}}}
			if own != "" {
				in.AdditionalFiles = []bootstrapv1.File{{Path: "@" + own, Content: "token: " + token}}
			}
			data, err := capi.NewNode(in)
			g.Expect(err).NotTo(HaveOccurred())
			text := strings.NewReplacer("@", dir, "/run/kubeadm", dir+"/run/kubeadm", "/run/cluster-api",
				dir+"/run/cluster-api").Replace(string(data))
			config := dir + "/run/kubeadm/kubeadm-join-config.yaml"
			if own != "" {
				text = strings.Replace(text, "--config "+config, "-v=5 --config="+dir+own, 1)
				// The provider's own file is then nobody's.
				text = strings.Replace(text, "kind: JoinConfiguration\n      token: "+token, "kind: JoinConfiguration", 1)
				config = dir + own
			}
			g.Expect(os.WriteFile(filepath.Join(dir, "kubeadm"),
				[]byte("#!/bin/sh\ngrep -q token "+config+" && touch "+dir+"/joined\n"), 0o755)).To(Succeed())
			parsed, err := cloudinit.Parse([]byte(text), host)
			g.Expect(err).NotTo(HaveOccurred())
			files, steps, err := parsed.Steps(cloudinit.Options{})
			g.Expect(err).NotTo(HaveOccurred())

			plan := run.Plan{ID: "p", Files: files}
			for i, step := range steps {
				wait := fmt.Sprintf(`touch %[1]s/at-%[2]d; while ! [ -e %[1]s/go-%[2]d ]; do sleep 0.01; done`, dir, i)
				plan.Steps = append(plan.Steps, step, run.Step{Name: fmt.Sprintf("look-%d", i), Script: wait})
			}
			runner := run.Runner{Root: filepath.Join(dir, "root"), Starter: sshtest.Setsid{Dir: dir}}
			local := &sshtest.Local{}
			g.Expect(runner.Start(t.Context(), local, plan)).To(Succeed())
			t.Cleanup(func() { _ = runner.Stop(context.Background(), local, "p") })
			for i, step := range steps {
				g.Eventually(filepath.Join(dir, fmt.Sprintf("at-%d", i)), "1m", "10ms").Should(BeAnExistingFile(), step.Name)
				all, readable := holders(t, dir)
				g.Expect(all).NotTo(BeEmpty(), "the plan itself holds it, so the look finds something")
				g.Expect(readable).To(BeEmpty(), "after %s", step.Name)
				if step.Name == "forget-secrets" {
					g.Expect(config).NotTo(BeAnExistingFile())
				}
				g.Expect(os.WriteFile(filepath.Join(dir, fmt.Sprintf("go-%d", i)), nil, 0o600)).To(Succeed())
			}
			g.Eventually(func() run.Phase {
				status, err := runner.Poll(t.Context(), local, "p")
				g.Expect(err).NotTo(HaveOccurred())
				return status.Phase
			}, "1m", "20ms").Should(Equal(run.Succeeded))
			g.Expect(filepath.Join(dir, "joined")).To(BeAnExistingFile())
			all, _ := holders(t, dir)
			g.Expect(all).To(BeEmpty())
		})
	}
}

func names(steps []run.Step) []string {
	var out []string
	for _, step := range steps {
		out = append(out, step.Name)
	}
	return out
}

func TestWhatLaterCommandsReadStaysUntilThen(t *testing.T) {
	g := NewWithT(t)
	parsed, err := cloudinit.Parse([]byte(`#cloud-config
write_files:
- {path: /run/kubeadm/kubeadm.yaml, content: x}
- {path: /run/kubeadm/other.yaml, content: y}
runcmd:
- kubeadm init --config /run/kubeadm/kubeadm.yaml
- kubeadm init phase upload-certs --config /run/kubeadm/kubeadm.yaml
`), nil)
	g.Expect(err).NotTo(HaveOccurred())
	_, steps, err := parsed.Steps(cloudinit.Options{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(names(steps)).To(Equal([]string{"write-files", "check-clock", "kubeadm-init", "forget-secrets",
		"post-kubeadm", "forget-secrets-2"}))
	g.Expect(steps[3].Script).To(Equal("rm -f '/run/kubeadm/other.yaml'\n"))
	g.Expect(steps[5].Script).To(Equal("rm -f '/run/kubeadm/kubeadm.yaml'\n"))
	g.Expect(steps[4].Script).NotTo(ContainSubstring("other.yaml"), "what is forgotten is not brought back")
}

func TestCloudInitIsGuardedWhereItIsEnabled(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("files are given to root")
	}
	g := NewWithT(t)
	dir := t.TempDir()
	guard := func() {
		script := run.Prelude + strings.NewReplacer("/etc/cloud", dir+"/cloud", "/proc/cmdline", dir+"/cmdline").
			Replace(cloudinit.GuardStep().Script)
		cmd := exec.Command("/bin/sh", "-c", script)
		cmd.Env = append(os.Environ(), "QUOIN_ROOT="+dir, "QUOIN_RUN_DIR="+dir, "PATH="+dir+":"+os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		g.Expect(err).NotTo(HaveOccurred(), "%s", out)
	}
	file := filepath.Join(dir, "cloud/cloud.cfg.d/99-quoin.cfg")
	guard()
	g.Expect(file).NotTo(BeAnExistingFile(), "there is no cloud-init")
	g.Expect(os.WriteFile(filepath.Join(dir, "cloud-init"), []byte("#!/bin/sh\n"), 0o755)).To(Succeed())
	for _, off := range []string{"cloud/cloud-init.disabled", "cmdline"} {
		g.Expect(os.MkdirAll(filepath.Join(dir, "cloud"), 0o755)).To(Succeed())
		g.Expect(os.WriteFile(filepath.Join(dir, off), []byte("ro cloud-init=disabled\n"), 0o600)).To(Succeed())
		guard()
		g.Expect(file).NotTo(BeAnExistingFile(), off)
		g.Expect(os.Remove(filepath.Join(dir, off))).To(Succeed())
	}
	guard()
	guard()
	content, err := os.ReadFile(file)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(content)).To(And(ContainSubstring("preserve_hostname: true"),
		ContainSubstring("ssh_deletekeys: false"), ContainSubstring("network: {config: disabled}")))
	created, err := os.ReadFile(filepath.Join(dir, "created"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(strings.Count(string(created), "file "+file)).To(Equal(1))
}

// The script runs as the runner has it run, and all that it prints is read.
func TestWhatAMarkedCommandPrintsIsKeptNowhere(t *testing.T) {
	const say = `sh -c 'echo letmein; echo letmein >&2; exit 3'`
	for name, c := range map[string]struct {
		commands string
		shown    []string
		hidden   bool
	}{
		"it fails": {"- echo before\n- quoin_secret " + say + "\n- echo after\n",
			[]string{"before", "command 2 of 3 in preKubeadmCommands ended with code 3"}, true},
		"it is a list": {"- [quoin_secret, sh, -c, echo letmein; exit 5]\n",
			[]string{"command 1 of 1 in preKubeadmCommands ended with code 5"}, true},
		"it may fail": {"- quoin_secret " + say + " || true\n- exit 3\n", nil, true},
		"it is a function, and the shell goes on": {"- f() { echo letmein; A=here; }; quoin_secret f\n- echo after $A\n- exit 3\n",
			[]string{"after here"}, true},
		"it is not marked": {"- " + say + "\n", []string{"letmein"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			parsed, err := cloudinit.Parse([]byte("#cloud-config\nruncmd:\n"+c.commands), nil)
			g.Expect(err).NotTo(HaveOccurred())
			_, steps, err := parsed.Steps(cloudinit.Options{})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(steps).To(HaveLen(1))
			dir := t.TempDir()
			g.Expect(os.WriteFile(filepath.Join(dir, "prelude"), []byte(run.Prelude), 0o600)).To(Succeed())
			g.Expect(os.WriteFile(filepath.Join(dir, "script"), []byte(steps[0].Script), 0o600)).To(Succeed())
			cmd := exec.Command("/bin/sh", "-c", `. "$0"; . "$1"`, filepath.Join(dir, "prelude"), filepath.Join(dir, "script"))
			cmd.Env = append(os.Environ(), "QUOIN_ROOT="+dir, "QUOIN_RUN_DIR="+dir)
			out, err := cmd.CombinedOutput()
			g.Expect(err).To(HaveOccurred())
			for _, text := range c.shown {
				g.Expect(string(out)).To(ContainSubstring(text))
			}
			if c.hidden {
				g.Expect(string(out)).NotTo(ContainSubstring("letmein"))
			}
		})
	}
}

func TestSecretsAreWhatOfBootstrapDataNobodyMayBeTold(t *testing.T) {
	g := NewWithT(t)
	data := []byte(`## template: jinja
#cloud-config
write_files:
- {path: /etc/a, encoding: base64, content: aHVudGVyMmh1bnRlcg==}
runcmd:
- systemctl restart containerd.service
- 'kubeadm join --token abcdef.0123456789abcdef --node-name {{ ds.meta_data.local_hostname }}'
users:
- {name: ops, passwd: plainpassword}
`)
	variables := cloudinit.InstanceData("node-7f8a9b0c1d2e3f4a", "quoin://hosts/h1/0123abcd", "")
	secrets := cloudinit.Secrets(data, variables)
	g.Expect(secrets).To(ContainElements("hunter2hunter", "abcdef.0123456789abcdef", "0123456789abcdef", "plainpassword",
		"systemctl restart containerd.service"))
	hide := redact.New(secrets...)
	for _, public := range []string{"containerd.service failed", "node node-7f8a9b0c1d2e3f4a is not ready",
		"error execution phase preflight: couldn't validate the identity of the API Server"} {
		g.Expect(hide.Text(public)).To(Equal(public))
	}
	g.Expect(redact.New(cloudinit.Secrets([]byte("no YAML:\n\tits one line"), nil)...).Text("x its one line")).
		To(Equal("x " + redact.Mark))
}
