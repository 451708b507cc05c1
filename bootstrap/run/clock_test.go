// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package run_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/run"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sshtest"
)

func clockPlan(scripts ...string) run.Plan {
	plan := run.Plan{ID: "p"}
	for i, script := range scripts {
		plan.Steps = append(plan.Steps, run.Step{Name: []string{"a", "b", "c"}[i], Script: script})
	}
	plan.Steps = append(plan.Steps, run.ClockStep(), run.Step{Name: "kubeadm-join", Once: true,
		Script: `echo x >>"$QUOIN_ROOT/once"`})
	return plan
}

func TestAWrongClockIsRefusedBeforeTheHostIsTouched(t *testing.T) {
	for name, tc := range map[string]struct {
		off  time.Duration
		want string
	}{
		"ahead":  {-2 * time.Hour, "the host's clock is 2h0m0s ahead of the manager's"},
		"behind": {45 * time.Second, "the host's clock is 45s behind the manager's"},
		"right":  {20 * time.Second, ""},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			l := newLab(t)
			l.runner.Now = func() time.Time { return time.Now().Add(tc.off) }
			err := l.runner.Start(t.Context(), l.host, clockPlan())
			if tc.want == "" {
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(l.wait("p", final).Phase).To(Equal(run.Succeeded))
				return
			}
			var wrong *run.ClockError
			g.Expect(errors.As(err, &wrong)).To(BeTrue())
			g.Expect(err).To(MatchError(ContainSubstring(tc.want)))
			g.Expect(l.root).NotTo(BeADirectory())
		})
	}
	g := NewWithT(t)
	l := newLab(t)
	l.runner.Now = func() time.Time { return time.Now().Add(time.Hour) }
	l.start(run.Plan{ID: "p", Steps: []run.Step{{Name: "a", Script: "true"}}})
	g.Expect(l.wait("p", final).Phase).To(Equal(run.Succeeded), "a plan without the step does not care")
}

// A way that takes a minute says nothing about half of it.
func TestASlowAnswerIsNoWrongClock(t *testing.T) {
	g := NewWithT(t)
	l := newLab(t)
	asked := 0
	l.runner.Now = func() time.Time {
		asked++
		return time.Now().Add(time.Duration(asked-1) * 90 * time.Second)
	}
	l.start(clockPlan())
	g.Expect(l.wait("p", final).Phase).To(Equal(run.Succeeded))
}

// The clock is set while the plan runs: date is one that somebody turned.
func TestAClockThatGoesWrongOnTheWayEndsThePlanBeforeKubeadm(t *testing.T) {
	g := NewWithT(t)
	l := newLab(t)
	bin := t.TempDir()
	g.Expect(os.WriteFile(filepath.Join(bin, "date"),
		[]byte("#!/bin/sh\n[ -e '"+bin+"/turned' ] && [ \"$*\" = +%s ] && exec echo 1700000000\nexec /bin/date \"$@\"\n"),
		0o755)).To(Succeed())
	l.host.Env = []string{"PATH=" + bin + ":" + os.Getenv("PATH")}
	l.start(clockPlan("touch '" + bin + "/turned'"))
	status := l.wait("p", final)
	g.Expect(status.Phase).To(Equal(run.Failed))
	g.Expect(status.Step).To(Equal("check-clock"))
	g.Expect(status.Message).
		To(
			MatchRegexp(
				`the host's clock is \d+ s behind the manager's, so certificates and tokens would not be valid; let both follow a time server$`))
	g.Expect(l.lines("once")).To(BeEmpty())
}

// After a reboot the uptime begins anew: the pair of the boot before is not used, and whoever resumes brings one.
func TestTheClockIsBroughtAnewAfterAReboot(t *testing.T) {
	g := NewWithT(t)
	l := newLab(t)
	l.start(clockPlan(`touch "$QUOIN_ROOT/waits"; while ! [ -e "$QUOIN_ROOT/go" ]; do sleep 0.02; done`))
	l.wait("p", func(run.Status) bool { return l.exists("waits") })
	l.kill("p")
	clock := filepath.Join(l.root, "runs", "p", "clock")
	before, err := os.ReadFile(clock)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(before)).To(HavePrefix("boot-1 "))
	// Long ago, by a controller that is right no more.
	l.write(clock, "boot-1 5 1000000000 1\n")
	l.write(l.boot, "boot-2\n")
	l.write(filepath.Join(l.root, "go"), "")
	g.Expect(l.runner.Resume(t.Context(), l.host, "p")).To(Succeed())
	g.Expect(l.wait("p", final).Phase).To(Equal(run.Succeeded))
	after, err := os.ReadFile(clock)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(after)).To(HavePrefix("boot-2 "))
	g.Expect(strings.Fields(string(after))).To(HaveLen(4))
}

// The pair of another boot says nothing: the uptime began anew.
func TestThePairOfAnotherBootIsNotUsed(t *testing.T) {
	g := NewWithT(t)
	dir := t.TempDir()
	g.Expect(os.WriteFile(filepath.Join(dir, "clock"), []byte("boot-1 5 1000000000 1\n"), 0o600)).To(Succeed())
	for boot, fails := range map[string]bool{"boot-1": true, "boot-2": false} {
		host := &sshtest.Local{Env: []string{"QUOIN_RUN_DIR=" + dir, "QUOIN_BOOT_ID=" + boot}}
		_, err := host.Run(t.Context(), ssh.Command{Script: run.Prelude + run.ClockStep().Script})
		g.Expect(err != nil).To(Equal(fails), boot)
	}
}
