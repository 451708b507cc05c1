// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package run_test

import (
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/run"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sshtest"
)

// waiting holds the last byte of the standard input back, as a session does whose network went but whose script lives
// on.
type waiting struct {
	*sshtest.Local
	most chan struct{}
	rest chan struct{}
}

func newWaiting(host *sshtest.Local) waiting {
	return waiting{Local: host, most: make(chan struct{}), rest: make(chan struct{})}
}

func (w waiting) Run(ctx context.Context, command ssh.Command) (ssh.Result, error) {
	content, _ := io.ReadAll(command.Stdin)
	reader, writer := io.Pipe()
	command.Stdin = reader
	go func() {
		_, _ = writer.Write(content[:len(content)-1])
		close(w.most)
		<-w.rest
		_, _ = writer.Write(content[len(content)-1:])
		_ = writer.Close()
	}()
	defer reader.Close()
	return w.Local.Run(ctx, command)
}

func onceUntilGo(l *lab, id string) run.Plan {
	// The plan ends with the test, whatever else fails.
	l.t.Cleanup(func() { _ = l.runner.Stop(context.Background(), l.host, id) })
	return run.Plan{ID: id, Files: []run.File{{Name: "f", Content: []byte("content")}}, Steps: []run.Step{
		{Name: "kubeadm-init", Once: true,
			Script: `echo x >>"$QUOIN_ROOT/once"; while ! [ -e "$QUOIN_ROOT/go" ]; do sleep 0.02; done`},
		{Name: "after", Script: `cat "$QUOIN_RUN_DIR/files/f" >"$QUOIN_ROOT/after"`},
	}}
}

func TestAnUploadThatComesSecondLeavesTheRunningPlanAlone(t *testing.T) {
	g := NewWithT(t)
	l := newLab(t)
	plan := onceUntilGo(l, "p")
	late := newWaiting(l.host)
	ended := make(chan error, 1)
	go func() { ended <- l.runner.Start(context.Background(), late, plan) }()
	<-late.most

	l.start(plan)
	l.wait("p", func(run.Status) bool { return len(l.lines("once")) == 1 })
	before, err := os.Stat(filepath.Join(l.root, "runs", "p", "journal"))
	g.Expect(err).NotTo(HaveOccurred())
	close(late.rest)
	g.Expect(<-ended).To(Succeed())
	after, err := os.Stat(filepath.Join(l.root, "runs", "p", "journal"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(os.SameFile(before, after)).To(BeTrue(), "the journal is the one that the runner writes")

	l.write(filepath.Join(l.root, "go"), "")
	g.Expect(l.wait("p", final).Phase).To(Equal(run.Succeeded))
	g.Expect(l.lines("once")).To(HaveLen(1))
	g.Expect(l.lines("after")).To(Equal([]string{"content"}))
	left, _ := filepath.Glob(filepath.Join(l.root, "runs", ".upload.*"))
	g.Expect(left).To(BeEmpty())
}

func TestManyStartsAtOnceAreOne(t *testing.T) {
	g := NewWithT(t)
	l := newLab(t)
	plan := onceUntilGo(l, "p")
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if err := l.runner.Start(context.Background(), l.host, plan); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	l.write(filepath.Join(l.root, "go"), "")
	g.Expect(l.wait("p", final).Phase).To(Equal(run.Succeeded))
	g.Expect(l.lines("once")).To(HaveLen(1))
}

func TestWhatWasOnItsWayDoesNotBeginAfterAStop(t *testing.T) {
	for name, stop := range map[string]func(l *lab) error{
		"the others are stopped": func(l *lab) error { return l.runner.StopOthers(context.Background(), l.host, "reset") },
		"another one is alone": func(l *lab) error {
			alone := l.runner
			alone.Alone = true
			return alone.Start(context.Background(), l.host, run.Plan{ID: "q", Steps: []run.Step{{Name: "a", Script: "true"}}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			l := newLab(t)
			late := newWaiting(l.host)
			ended := make(chan error, 1)
			go func() { ended <- l.runner.Start(context.Background(), late, onceUntilGo(l, "p")) }()
			<-late.most
			g.Eventually(func() []string {
				left, _ := filepath.Glob(filepath.Join(l.root, "runs", ".upload.*", "runner.sh"))
				return left
			}, "1m").Should(HaveLen(1))
			g.Expect(stop(l)).To(Succeed())
			close(late.rest)
			g.Expect(<-ended).To(HaveOccurred())
			g.Expect(l.poll("p").Phase).To(Equal(run.NotStarted))
			g.Expect(l.lines("once")).To(BeEmpty())
		})
	}
}

func TestTheUploadOfACutSessionIsCleared(t *testing.T) {
	g := NewWithT(t)
	l := newLab(t)
	left := filepath.Join(l.root, "runs", ".upload.AbCdEf")
	g.Expect(os.MkdirAll(left, 0o700)).To(Succeed())
	l.write(filepath.Join(l.root, "go"), "")
	l.start(onceUntilGo(l, "p"))
	g.Expect(left).NotTo(BeADirectory())
	g.Expect(l.wait("p", final).Phase).To(Equal(run.Succeeded))
}

func TestARunningPlanDoesNotHoldTheLock(t *testing.T) {
	g := NewWithT(t)
	l := newLab(t)
	l.start(onceUntilGo(l, "p"))
	l.wait("p", func(run.Status) bool { return len(l.lines("once")) == 1 })
	g.Expect(exec.Command("flock", "-n", filepath.Join(l.root, "runs.lock"), "true").Run()).To(Succeed())
}

func TestEveryChangeWaitsForTheLock(t *testing.T) {
	g := NewWithT(t)
	l := newLab(t)
	plan := onceUntilGo(l, "p")
	l.start(plan)
	for name, change := range map[string]func(context.Context) error{
		"start":       func(ctx context.Context) error { return l.runner.Start(ctx, l.host, plan) },
		"resume":      func(ctx context.Context) error { return l.runner.Resume(ctx, l.host, "p") },
		"stop":        func(ctx context.Context) error { return l.runner.Stop(ctx, l.host, "q") },
		"stop others": func(ctx context.Context) error { return l.runner.StopOthers(ctx, l.host, "p") },
	} {
		holder := exec.Command("flock", filepath.Join(l.root, "runs.lock"), "sh", "-c", "echo held; exec cat")
		input, _ := holder.StdinPipe()
		output, _ := holder.StdoutPipe()
		g.Expect(holder.Start()).To(Succeed())
		_, _ = output.Read(make([]byte, 5))
		ended := make(chan error, 1)
		go func() { ended <- change(context.Background()) }()
		g.Consistently(ended, 200*time.Millisecond).ShouldNot(Receive(), name)
		_ = input.Close()
		g.Eventually(ended, "1m").Should(Receive(BeNil()), name)
		_ = holder.Wait()
	}
}

func TestAJournalIsNeverDeleted(t *testing.T) {
	g := NewWithT(t)
	l := newLab(t)
	plan := onceUntilGo(l, "p")
	l.start(plan)
	l.wait("p", func(run.Status) bool { return len(l.lines("once")) == 1 })
	l.kill("p")
	l.wait("p", func(s run.Status) bool { return s.Lost })
	g.Expect(os.Remove(filepath.Join(l.root, "runs", "p", "complete"))).To(Succeed())
	g.Expect(l.runner.Start(context.Background(), l.host, plan)).To(MatchError(ContainSubstring("has a journal")))
	g.Expect(l.runner.StopOthers(context.Background(), l.host, "reset")).To(Succeed())
	status := l.poll("p")
	g.Expect(status.Phase).To(Equal(run.Interrupted))
	journal, _ := os.ReadFile(filepath.Join(l.root, "runs", "p", "journal"))
	g.Expect(strings.Count(string(journal), "kubeadm-init start")).To(Equal(1))
}
