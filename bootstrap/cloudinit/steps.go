// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudinit

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/run"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
)

// The names of the steps that run kubeadm.
const (
	InitStep = "kubeadm-init"
	JoinStep = "kubeadm-join"
)

// Steps renders the Config for package run: files to upload and steps in cloud-init's own order (bootcmd, write_files,
// disk_setup, fs_setup, mounts, hostname, users, ntp, runcmd). kubeadm steps are named InitStep or JoinStep and marked
// Once.
//
// Where cloud-init goes on after a command that failed, Quoin stops and names it: a node that joins half-prepared costs
// more than a clear end. A command that may fail says so itself ("... || true"). As in cloud-init, consecutive commands
// share one shell; exported variables reach the later steps too.
func (c *Config) Steps(o Options) ([]run.File, []run.Step, error) {
	var files []run.File
	var steps []run.Step
	if len(c.BootCommands) > 0 {
		steps = append(steps, run.Step{Name: "bootcmd", Script: commandGroup("bootcmd", c.BootCommands)})
	}
	if len(c.Files) > 0 {
		var script strings.Builder
		script.WriteString("set -eu\n")
		secret := c.secretPaths()
		for i, file := range c.Files {
			if slices.Contains(secret, file.Path) {
				// cloud-init's default is for all to read.
				file.Mode &^= 0o007
			}
			name := fmt.Sprintf("file-%03d", i)
			files = append(files, run.File{Name: name, Content: file.Content})
			script.WriteString(file.install(name))
		}
		steps = append(steps, run.Step{Name: "write-files", Script: script.String()})
	}
	disks, err := c.diskSteps(o.Disks)
	if err != nil {
		return nil, nil, err
	}
	steps = append(steps, disks...)
	if len(c.Mounts) > 0 {
		steps = append(steps, run.Step{Name: "mounts", Script: mountScript(c.Mounts)})
	}
	if c.Hostname != "" {
		steps = append(steps, run.Step{Name: "hostname",
			Script: "set -eu\nquoin_claim /etc/hostname\nhostnamectl set-hostname " + ssh.Quote(c.Hostname) + "\n"})
	}
	if len(c.Users) > 0 {
		steps = append(steps, run.Step{Name: "users", Script: userScript(c.Users), Secret: true})
	}
	if c.NTP != nil && c.NTP.Enabled && len(c.NTP.Servers) > 0 {
		steps = append(steps, run.Step{Name: "ntp", Script: ntpScript(c.NTP.Servers)})
	}
	steps = append(steps, c.commandSteps(o)...)
	plan := run.Plan{ID: "check", Files: files, Steps: steps}
	if len(steps) > 0 {
		if err := plan.Validate(); err != nil {
			return nil, nil, err
		}
	}
	return files, steps, nil
}

// commandSteps cuts runcmd at the kubeadm commands. Before each the clock is checked, for certificates and tokens begin
// and end with it; after each goes what held the token.
func (c *Config) commandSteps(o Options) []run.Step {
	var steps []run.Step
	var group []Command
	count := map[string]int{}
	add := func(step run.Step) {
		count[step.Name]++
		if n := count[step.Name]; n > 1 {
			step.Name = fmt.Sprintf("%s-%d", step.Name, n)
		}
		steps = append(steps, step)
	}
	forgotten := map[string]bool{}
	where, label := "pre-kubeadm", "preKubeadmCommands"
	flush := func() {
		if len(group) > 0 {
			add(run.Step{Name: where, Script: c.restoreVolatile(forgotten) + commandGroup(label, group)})
		}
		group = nil
	}
	forget := func(rest []Command) {
		var script strings.Builder
		for _, path := range c.secretPaths() {
			if !forgotten[path] && !mentions(rest, path) {
				forgotten[path] = true
				script.WriteString("rm -f " + ssh.Quote(path) + "\n")
			}
		}
		if script.Len() > 0 {
			add(run.Step{Name: "forget-secrets", Script: script.String()})
		}
	}
	joined := false
	for i, command := range c.Commands {
		if command.Kind == Plain {
			group = append(group, command)
			continue
		}
		flush()
		where, label = "post-kubeadm", "postKubeadmCommands"
		base := InitStep
		if command.Kind == KubeadmJoin {
			base = JoinStep
		}
		if !joined {
			steps = append(steps, run.ClockStep())
		}
		joined = true
		add(run.Step{Name: base, Once: true,
			Script: c.restoreVolatile(forgotten) + loadEnvironment + withArgs(command.Shell, o.KubeadmArgs) + "\n"})
		forget(c.Commands[i+1:])
	}
	flush()
	if joined {
		forget(nil)
	}
	return steps
}

// configArgument finds the file that kubeadm is given.
var configArgument = regexp.MustCompile(`\s--config[ =]['"]?(/[^\s'";&|]+)`)

// secretPaths are the files that carry the bootstrap token and, for a control plane, the certificate key: nothing needs
// them once the node has joined.
func (c *Config) secretPaths() []string {
	given := map[string]bool{}
	for _, command := range c.Commands {
		if command.Kind != Plain {
			for _, match := range configArgument.FindAllStringSubmatch(command.Shell, -1) {
				given[match[1]] = true
			}
		}
	}
	var paths []string
	for _, file := range c.Files {
		if (given[file.Path] || strings.HasPrefix(file.Path, "/run/kubeadm/") ||
			strings.HasPrefix(file.Path, "/var/run/kubeadm/")) && !slices.Contains(paths, file.Path) {
			paths = append(paths, file.Path)
		}
	}
	return paths
}

// install is the sh text that puts one file. Appending starts from a kept copy of the file as it was, so that a second
// run after an interruption does not append twice.
func (f File) install(name string) string {
	owner := f.Owner
	if owner == "" {
		owner = "root:root"
	}
	if !f.Append {
		return fmt.Sprintf("quoin_put \"$QUOIN_RUN_DIR/files/%s\" %s %04o %s\n", name, ssh.Quote(f.Path), uint32(f.Mode),
			ssh.Quote(owner))
	}
	return fmt.Sprintf(`base=$QUOIN_RUN_DIR/files/%[1]s.base
if ! [ -e "$base" ]; then
	if [ -e %[2]s ]; then cat %[2]s >"$base.part"; else : >"$base.part"; fi
	sync "$base.part"
	mv "$base.part" "$base"
fi
cat "$base" "$QUOIN_RUN_DIR/files/%[1]s" >"$base.full"
quoin_put "$base.full" %[2]s %04[3]o %[4]s
`, name, ssh.Quote(f.Path), uint32(f.Mode), ssh.Quote(owner))
}

// restoreVolatile brings back the files below /run and /tmp that a reboot between two steps took away: their step is
// done and does not run again. A file that the user's commands have changed since cannot be made again, so the plan
// ends there.
func (c *Config) restoreVolatile(forgotten map[string]bool) string {
	var script strings.Builder
	for i, file := range c.Files {
		if forgotten[file.Path] {
			continue
		}
		if !strings.HasPrefix(file.Path, "/run/") && !strings.HasPrefix(file.Path, "/var/run/") &&
			!strings.HasPrefix(file.Path, "/tmp/") {
			continue
		}
		action := strings.TrimSpace(file.install(fmt.Sprintf("file-%03d", i)))
		if c.changes(file.Path) {
			action = "quoin_fail " + ssh.Quote(fmt.Sprintf("%s is gone, the host rebooted meanwhile, and commands had worked "+
				"on it; replace the Machine", file.Path))
		}
		fmt.Fprintf(&script, "[ -e %s ] || {\n%s\n} || exit 1\n", ssh.Quote(file.Path), action)
	}
	return script.String()
}

func mentions(commands []Command, path string) bool {
	return slices.ContainsFunc(commands, func(c Command) bool { return strings.Contains(c.Shell, path) })
}

func (c *Config) changes(path string) bool {
	return slices.ContainsFunc(slices.Concat(c.BootCommands, c.Commands), func(command Command) bool {
		return command.Kind == Plain && strings.Contains(command.Shell, path)
	})
}

const (
	// The plan's own files are for root alone. What commands and kubeadm write has the modes it has elsewhere: a keyring
	// that apt's own user cannot read, or a /etc/kubernetes/pki closed to a static pod that is not root, breaks later.
	loadEnvironment = "umask 022\n[ -f \"$QUOIN_RUN_DIR/env\" ] && . \"$QUOIN_RUN_DIR/env\"\n"
	saveEnvironment = "umask 077\nexport -p >\"$QUOIN_RUN_DIR/env.part\" && mv \"$QUOIN_RUN_DIR/env.part\" " +
		"\"$QUOIN_RUN_DIR/env\"\n"
)

// commandGroup joins commands into one shell that stops at the first failure and says which it was; never its text,
// which may hold a secret.
func commandGroup(label string, commands []Command) string {
	var script strings.Builder
	script.WriteString(loadEnvironment + ":\n")
	for i, command := range commands {
		fmt.Fprintf(&script,
			"%s\nquoin_code=$?; [ $quoin_code = 0 ] || quoin_fail \"command %d of %d in %s ended with code $quoin_code\"\n",
			command.Shell, i+1, len(commands), label)
	}
	script.WriteString(saveEnvironment)
	return script.String()
}
