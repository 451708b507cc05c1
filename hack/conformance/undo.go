// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/cloudinit"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/reset"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/run"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
)

// What the reset check puts on the host.
const (
	oldFile = "/etc/quoin-conformance.old"
	newDir  = "/etc/quoin-conformance"
	unit    = "quoin-conformance.service"
)

// bootstrapData is what a user's Machine might carry, without Kubernetes.
const bootstrapData = `#cloud-config
write_files:
- path: ` + newDir + `/deep/new
  permissions: "0640"
  content: new
- path: ` + oldFile + `
  permissions: "0600"
  content: changed
- path: /etc/systemd/system/` + unit + `
  permissions: "0644"
  content: |
    [Unit]
    Description=Left by a conformance run of Quoin
    [Service]
    Type=oneshot
    RemainAfterExit=yes
    ExecStart=/bin/true
    [Install]
    WantedBy=multi-user.target
runcmd:
- test "$(cat ` + newDir + `/deep/new)" = new
`

// prepare makes a file that was there before us.
const prepare = `set -eu
umask 022
echo old >` + oldFile + `
chmod 0604 ` + oldFile + `
`

// enable is what our own steps do with a unit.
const enable = `set -eu
quoin_record "unit ` + unit + `"
systemctl daemon-reload
systemctl enable --now ` + unit + `
systemctl is-active ` + unit + `
`

// network prints what a reset must not change.
const network = `ip -o link | sed 's/^[0-9]*: //; s/ state [A-Z]*//; s/ qdisc [a-z_]*//' | sort
ip route show table all 2>/dev/null | grep -v ' expires ' | sort
ip rule 2>/dev/null
for save in iptables-save ip6tables-save; do
	! command -v $save >/dev/null || $save 2>/dev/null | sed '/^#/d; s/\[[0-9:]*\]//'
done
command -v containerd >/dev/null && systemctl is-active containerd
command -v docker >/dev/null && systemctl is-active docker
true
`

// foreign prints what a reset would take for the cluster's: other programs use containerd and CNI plugins too.
const foreign = `
[ -z "$(find /var/lib/cni -type f 2>/dev/null | head -n 1)" ] || echo "/var/lib/cni is in use"
for link in cni0 flannel.1 nodelocaldns kube-ipvs0; do [ ! -e "/sys/class/net/$link" ] || echo "there is a link $link"; done
for save in iptables-save ip6tables-save; do
	! command -v $save >/dev/null || ! $save 2>/dev/null | grep -qE '^:(KUBE|CNI)-' || echo "$save shows chains of CNI plugins"
done
! command -v ctr >/dev/null || [ -z "$(ctr -n k8s.io containers ls -q 2>/dev/null)" ] || echo "there are containers in the namespace k8s.io"
! systemctl is-enabled kubelet.service >/dev/null 2>&1 || echo "kubelet.service is enabled"
true
`

// remains looks for what the plan made; it is not the code that takes it back.
const remains = `
[ "$(cat ` + oldFile + `) $(stat -c '%a %U %G' ` + oldFile + `)" = "old 604 root root" ] || echo "` + oldFile + ` is not as it was"
for path in ` + newDir + ` /etc/systemd/system/` + unit + ` /etc/systemd/system/multi-user.target.wants/` + unit + `; do
	[ ! -e "$path" ] && [ ! -L "$path" ] || echo "$path is left"
done
! systemctl is-active ` + unit + ` >/dev/null 2>&1 || echo "` + unit + ` runs"
`

// resetAndVerify carries out bootstrap data, resets the host with the plan that a release uses, and looks what is left.
func resetAndVerify(ctx context.Context, s *session) (string, error) {
	if used := s.uses(); len(used) > 0 {
		return "", &skipped{"the machine is in use: " + strings.Join(used, ", ")}
	}
	if out, err := s.run(ctx, foreign); err != nil || out != "" {
		if err == nil {
			err = &skipped{"a reset would disturb other programs of this machine:\n" + out}
		}
		return "", err
	}
	before, err := s.run(ctx, network)
	if err != nil {
		return "", err
	}
	plan, err := madePlan()
	if err != nil {
		return "", err
	}
	s.made = true
	if _, err := s.run(ctx, prepare); err != nil {
		return "", err
	}
	for _, plan := range []run.Plan{plan, reset.Plan("conformance-reset", reset.Options{})} {
		status, err := s.follow(ctx, plan, run.Phase.Final)
		if err != nil {
			return "", err
		}
		if status.Phase != run.Succeeded {
			return "", fmt.Errorf("plan %s: %s", plan.ID, status.Message)
		}
	}
	return s.verify(ctx, before)
}

func madePlan() (run.Plan, error) {
	config, err := cloudinit.Parse([]byte(bootstrapData), nil)
	if err != nil {
		return run.Plan{}, err
	}
	files, steps, err := config.Steps(cloudinit.Options{})
	if err != nil {
		return run.Plan{}, err
	}
	return run.Plan{ID: "conformance-make", Files: files, Steps: append(steps, run.Step{Name: "enable", Script: enable})}, nil
}

func (s *session) verify(ctx context.Context, before string) (string, error) {
	conn, err := s.conn(ctx)
	if err != nil {
		return "", err
	}
	verified, err := reset.Verify(ctx, conn, reset.Options{IgnoreChanges: true})
	if err != nil {
		return "", err
	}
	var wrong []string
	for _, finding := range verified.Findings {
		wrong = append(wrong, finding.String())
	}
	left, err := s.run(ctx, remains)
	if err != nil {
		return "", err
	}
	if left != "" {
		wrong = append(wrong, left)
	}
	after, err := s.run(ctx, network)
	if err != nil {
		return "", err
	}
	if lines := difference(before, after); len(lines) > 0 {
		wrong = append(wrong, "links, routes, rules or runtimes are not as before:\n"+strings.Join(lines, "\n"))
	}
	if len(wrong) > 0 {
		return "", errors.New(strings.Join(wrong, "\n"))
	}
	return "files, directories, a unit and a changed file were taken back; nothing else changed", nil
}

// difference are the lines that only one of two texts has.
func difference(before, after string) []string {
	counts := map[string]int{}
	for line := range strings.SplitSeq(before, "\n") {
		counts[line]++
	}
	var lines []string
	for line := range strings.SplitSeq(after, "\n") {
		if counts[line]--; counts[line] < 0 {
			lines = append(lines, "+ "+line)
		}
	}
	for line := range strings.SplitSeq(before, "\n") {
		if counts[line] > 0 {
			counts[line]--
			lines = append(lines, "- "+line)
		}
	}
	return lines
}

// nothingLeft removes what the run made and looks whether it is gone. It comes last, whatever failed before.
func nothingLeft(ctx context.Context, s *session) (string, error) {
	if !s.dirty {
		return "", &skipped{"nothing was put on the machine"}
	}
	conn, err := s.conn(ctx)
	if err != nil {
		return "", err
	}
	if err := s.runner.StopOthers(ctx, conn, "none"); err != nil {
		return "", err
	}
	paths := ssh.Quote(s.runner.Root)
	if s.made {
		paths += " " + strings.Join([]string{newDir, oldFile, "/etc/systemd/system/" + unit}, " ")
		if _, err := s.run(ctx, "systemctl disable --now "+unit+" >/dev/null 2>&1 || :"); err != nil {
			return "", err
		}
	}
	out, err := s.run(ctx, fmt.Sprintf(`rm -rf %[1]s
for path in %[1]s; do [ ! -e "$path" ] || echo "$path"; done
! command -v systemctl >/dev/null || {
	systemctl daemon-reload
	systemctl list-units --all --no-legend --plain 'quoin-run-conformance-*' | sed 's/ .*//'
} 2>/dev/null
true
`, paths))
	if err != nil {
		return "", err
	}
	if out != "" {
		return "", fmt.Errorf("left on the machine, to be removed by hand: %s", out)
	}
	return "the machine is as it was", nil
}
