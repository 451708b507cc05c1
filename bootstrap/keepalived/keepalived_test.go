// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package keepalived_test

import (
	"context"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/keepalived"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/run"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sshtest"
)

var config = keepalived.Config{Interface: "eth0", VirtualRouterID: 51, Port: 6443,
	Addresses: []netip.Prefix{netip.MustParsePrefix("10.0.0.100/32"), netip.MustParsePrefix("fd00::100/128")}}

func TestRender(t *testing.T) {
	g := NewWithT(t)
	text, err := config.Render()
	g.Expect(err).NotTo(HaveOccurred())
	for _, want := range []string{"state BACKUP", "virtual_router_id 51", "priority 100", "weight 50", "weight 20",
		"/usr/bin/test ! -e /etc/keepalived/quoin-leaving", "garp_master_delay 1", "garp_lower_prio_delay 1",
		"virtual_ipaddress {\n    10.0.0.100/32 dev eth0\n  }",
		"virtual_ipaddress_excluded {\n    fd00::100/128 dev eth0\n  }"} {
		g.Expect(text).To(ContainSubstring(want))
	}
	if path, err := exec.LookPath("keepalived"); err == nil {
		file := filepath.Join(t.TempDir(), "k.conf")
		g.Expect(os.WriteFile(file, []byte(text), 0o600)).To(Succeed())
		out, _ := exec.Command(path, "-t", "-f", file).CombinedOutput()
		g.Expect(string(out)).NotTo(ContainSubstring("Unknown keyword"))
	}
	for _, bad := range []keepalived.Config{
		{}, {Interface: "a b", VirtualRouterID: 1, Port: 1, Addresses: config.Addresses},
		{Interface: "eth0", VirtualRouterID: 256, Port: 1, Addresses: config.Addresses},
		{Interface: "eth0", VirtualRouterID: 1, Port: 1, Addresses: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/8")}},
	} {
		_, err := bad.Render()
		g.Expect(err).To(HaveOccurred())
	}
}

// names and syntax of the steps.
func names(t *testing.T, steps []run.Step) []string {
	t.Helper()
	var out []string
	for _, s := range steps {
		out = append(out, s.Name)
		cmd := exec.Command("/bin/sh", "-n")
		cmd.Stdin = strings.NewReader(s.Script)
		if text, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %s", s.Name, text)
		}
	}
	return out
}

func TestTheProbeIsLeftOutOnlyForOurOwnAddress(t *testing.T) {
	g := NewWithT(t)
	steps, err := keepalived.InstallSteps(config, keepalived.Ownership{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(names(t, steps)).To(Equal([]string{"keepalived-check", "keepalived-probe", "keepalived-start",
		"keepalived-wait"}))
	steps, err = keepalived.InstallSteps(config, keepalived.Ownership{ClaimedByUs: true})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(names(t, steps)).To(Equal([]string{"keepalived-check", "keepalived-start"}))
	g.Expect(names(t, keepalived.ReleaseSteps(config.Addresses))).To(HaveLen(1))
}

// Some distributions bring an example, which nobody runs; one that runs, or would after a boot, serves somebody.
func TestAConfigurationThatServesSomebodyIsNotReplaced(t *testing.T) {
	steps, err := keepalived.InstallSteps(config, keepalived.Ownership{})
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	for name, tc := range map[string]struct {
		conf, active, enabled string
		refused               bool
	}{
		"none":             {"", "inactive", "enabled", false},
		"an example":       {"router_id LVS_DEVEL\n", "inactive", "disabled", false},
		"one that runs":    {"router_id a\n", "active", "disabled", true},
		"one that starts":  {"router_id a\n", "activating", "disabled", true},
		"one that is kept": {"router_id a\n", "failed", "enabled", true},
		"our own": {"# Written by Quoin. Do not edit: cleaning the host removes this file.\n", "active", "enabled",
			false},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			dir := t.TempDir()
			for command, body := range map[string]string{"ip": "", "keepalived": "",
				"systemctl": "case $1 in is-active) echo " + tc.active + " ;; is-enabled) echo " + tc.enabled + " ;; esac"} {
				g.Expect(os.WriteFile(filepath.Join(dir, command), []byte("#!/bin/sh\n"+body+"\n"), 0o755)).To(Succeed())
			}
			conf := filepath.Join(dir, "keepalived.conf")
			if tc.conf != "" {
				g.Expect(os.WriteFile(conf, []byte(tc.conf), 0o600)).To(Succeed())
			}
			host := &sshtest.Local{Env: []string{"PATH=" + dir + ":" + os.Getenv("PATH")}}
			_, err := host.Run(context.Background(),
				ssh.Command{Script: run.Prelude + strings.ReplaceAll(steps[0].Script, "/etc/keepalived/keepalived.conf", conf)})
			if tc.refused {
				g.Expect(err).To(MatchError(ContainSubstring("keepalived runs or is enabled")))
			} else {
				g.Expect(err).NotTo(HaveOccurred())
			}
		})
	}
}

func TestProbe(t *testing.T) {
	for name, tc := range map[string]struct {
		ip, ping, curl string
		want           string
	}{
		"free":          {"", "exit 1", "exit 7", ""},
		"our own":       {`[ "$2" = address ] && echo "1: eth0 inet 10.0.0.100/32"`, "exit 0", "exit 0", ""},
		"an API server": {"", "exit 1", "exit 0", "something answers at https://10.0.0.100:6443/livez"},
		"a host":        {"", "exit 0", "exit 7", "a host answers ping at 10.0.0.100"},
		"a silent holder": {`[ "$1 $2" = "neighbor show" ] && echo "10.0.0.100 lladdr 02:42:ac:1e:00:0b STALE"`, "exit 1",
			"exit 28", "the network interface 02:42:ac:1e:00:0b answers for 10.0.0.100"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			dir := t.TempDir()
			for command, body := range map[string]string{"ip": tc.ip, "ping": tc.ping, "curl": tc.curl} {
				g.Expect(os.WriteFile(filepath.Join(dir, command), []byte("#!/bin/sh\n"+body+"\n"), 0o755)).To(Succeed())
			}
			host := &sshtest.Local{Env: []string{"PATH=" + dir + ":" + os.Getenv("PATH")}}
			who, err := keepalived.Probe(context.Background(), host, "eth0", netip.MustParseAddr("10.0.0.100"), 6443)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(who).To(Equal(tc.want))
		})
	}
}
