// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package run_test

import (
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/run"
)

func TestAStepThatDoesNotEndFailsThePlanForGood(t *testing.T) {
	g := NewWithT(t)
	l := newLab(t)
	// The child ignores what timeout sends; the shell that waits for it does not.
	plan := run.Plan{ID: "p", Steps: []run.Step{
		{Name: "kubeadm-init", Once: true, Timeout: 1500 * time.Millisecond, Script: `echo x >>"$QUOIN_ROOT/once"
echo "waiting for the API server"
sh -c 'trap "" TERM; while :; do echo x >>"$QUOIN_ROOT/alive"; sleep 0.05; done'`},
		{Name: "after", Script: `echo x >>"$QUOIN_ROOT/after"`},
	}}
	l.start(plan)
	status := l.wait("p", final)
	g.Expect(status.Phase).To(Equal(run.Failed))
	g.Expect(status.Step).To(Equal("kubeadm-init"))
	g.Expect(status.ExitCode).To(Equal(124))
	g.Expect(status.Message).To(Equal("step kubeadm-init did not end within 2s: waiting for the API server"))
	alive := len(l.lines("alive"))
	g.Expect(alive).To(BeNumerically(">", 0))
	l.start(plan)
	time.Sleep(200 * time.Millisecond)
	g.Expect(l.lines("alive")).To(HaveLen(alive), "what the step started ended with it")
	g.Expect(l.lines("once")).To(HaveLen(1))
	g.Expect(l.lines("after")).To(BeEmpty())
	g.Expect(l.poll("p").Phase).To(Equal(run.Failed))
}

func TestTheCodeOfATimeoutInAScriptIsTheScriptsOwn(t *testing.T) {
	g := NewWithT(t)
	l := newLab(t)
	l.start(run.Plan{ID: "p", Steps: []run.Step{{Name: "a", Script: "exit 124"}}})
	g.Expect(l.wait("p", final).Message).To(Equal("step 1 of 1, a, failed with code 124"))
}

// The result was cut off: the journal holds the sentence too.
func TestADeadlineIsRememberedByTheJournal(t *testing.T) {
	g := NewWithT(t)
	l := newLab(t)
	plan := run.Plan{ID: "p", Steps: []run.Step{{Name: "a", Secret: true, Timeout: time.Second,
		Script: "echo hush; sleep 60"}}}
	l.start(plan)
	l.wait("p", final)
	l.write(filepath.Join(l.root, "runs", "p", "result"), "")
	// The runner that wrote the result may not have ended yet, and keeps another one out until it has.
	l.wait("p", func(s run.Status) bool { return s.Lost })
	l.start(plan)
	g.Expect(l.wait("p", final).Message).To(Equal("step a did not end within 1s"))
}

func TestEveryStepHasADeadline(t *testing.T) {
	g := NewWithT(t)
	l := newLab(t)
	l.start(run.Plan{ID: "p", Steps: []run.Step{{Name: "a", Script: "true"},
		{Name: "b", Script: "true", Timeout: time.Hour}}})
	g.Expect(l.wait("p", final).Phase).To(Equal(run.Succeeded))
	g.Expect(l.lines("runs/p/steps")).To(Equal([]string{"a", "0", "0", "1800", "b", "0", "0", "3600"}))
	g.Expect(run.Plan{ID: "p", Steps: []run.Step{{Name: "a", Timeout: -1}}}.Validate()).
		To(MatchError(ContainSubstring("negative timeout")))
}
