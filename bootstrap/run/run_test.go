// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package run_test

import (
	"context"
	"fmt"
	"math/rand"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/redact"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/run"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sshtest"
)

// lab is a host below a temporary directory: the real runner, started by setsid in place of systemd.
type lab struct {
	t      *testing.T
	root   string
	boot   string
	host   *sshtest.Local
	runner run.Runner
}

func newLab(t *testing.T) *lab {
	t.Helper()
	dir := t.TempDir()
	l := &lab{t: t, root: filepath.Join(dir, "it's root"), boot: filepath.Join(dir, "boot_id"), host: &sshtest.Local{}}
	l.write(l.boot, "boot-1\n")
	l.runner = run.Runner{Root: l.root, BootIDPath: l.boot, Starter: sshtest.Setsid{Dir: dir}}
	t.Cleanup(l.settle)
	return l
}

func (l *lab) write(path, content string) {
	l.t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		l.t.Fatal(err)
	}
}

func (l *lab) start(plan run.Plan) {
	l.t.Helper()
	if err := l.runner.Start(context.Background(), l.host, plan); err != nil {
		l.t.Fatal(err)
	}
}

func (l *lab) poll(id string) run.Status {
	l.t.Helper()
	status, err := l.runner.Poll(context.Background(), l.host, id)
	if err != nil {
		l.t.Fatal(err)
	}
	return status
}

func (l *lab) wait(id string, until func(run.Status) bool) run.Status {
	l.t.Helper()
	var status run.Status
	NewWithT(l.t).Eventually(func() bool {
		status = l.poll(id)
		return until(status)
	}, "1m", "10ms").Should(BeTrue(), "last: %+v", &status)
	return status
}

func final(s run.Status) bool { return s.Phase.Final() && !s.Lost }

// kill ends the runner and its steps the hard way.
func (l *lab) kill(id string) {
	l.t.Helper()
	if _, err := l.host.Run(context.Background(),
		ssh.Command{Script: l.runner.Starter.Stop("quoin-run-" + id)}); err != nil {
		l.t.Fatal(err)
	}
}

// settle has no runner write any more, for the directory goes next.
func (l *lab) settle() {
	plans, _ := filepath.Glob(filepath.Join(l.root, "runs", "*", "steps"))
	for _, plan := range plans {
		if dir := filepath.Dir(plan); !l.exists("runs", filepath.Base(dir), "result") {
			l.kill(filepath.Base(dir))
		}
	}
}

func (l *lab) lines(name string) []string {
	content, _ := os.ReadFile(filepath.Join(l.root, name))
	return strings.Fields(string(content))
}

func (l *lab) exists(parts ...string) bool {
	_, err := os.Stat(filepath.Join(append([]string{l.root}, parts...)...))
	return err == nil
}

func TestStepsRunInOrderWithTheirFiles(t *testing.T) {
	g := NewWithT(t)
	l := newLab(t)
	secret := "a secret \x00 with a NUL\n"
	l.start(run.Plan{ID: "p", Files: []run.File{{Name: "key.pem", Content: []byte(secret)}}, Steps: []run.Step{
		{Name: "one",
			Script: `cat "$QUOIN_RUN_DIR/files/key.pem" >"$QUOIN_ROOT/copy"; stat -c %a "$QUOIN_RUN_DIR/files/key.pem" >"$QUOIN_ROOT/mode"; echo one >>"$QUOIN_ROOT/order"`},
		{Name: "two", Script: `echo two >>"$QUOIN_ROOT/order"`, Once: true},
	}})
	status := l.wait("p", final)
	g.Expect(status.Phase).To(Equal(run.Succeeded), "%+v", status)
	g.Expect(status.Message).To(Equal("all 2 steps are done"))
	g.Expect(l.lines("order")).To(Equal([]string{"one", "two"}))
	g.Expect(l.lines("mode")).To(Equal([]string{"600"}))
	g.Expect(os.ReadFile(filepath.Join(l.root, "copy"))).To(BeEquivalentTo(secret))
	for _, gone := range []string{"files", "scripts"} {
		g.Expect(l.exists("runs", "p", gone)).To(BeFalse(), gone)
	}
	g.Expect(l.exists("runs", "p", "journal")).To(BeTrue())
	info, _ := os.Stat(l.root)
	g.Expect(info.Mode().Perm()).To(Equal(os.FileMode(0o700)))
}

// The host answers when there is news: a look that comes later costs whoever waits for it.
func TestAwaitAnswersWhenThereIsNews(t *testing.T) {
	g := NewWithT(t)
	l := newLab(t)
	until := func(file string) string { return `until [ -e "$QUOIN_ROOT/` + file + `" ]; do sleep 0.02; done` }
	let := func(file string) { l.write(filepath.Join(l.root, file), "") }
	const long, short = 15 * time.Second, 300 * time.Millisecond
	await := func(step string, within time.Duration) <-chan run.Status {
		answer := make(chan run.Status, 1)
		go func() {
			status, _ := l.runner.Await(context.Background(), l.host, "p", step, within)
			answer <- status
		}()
		return answer
	}
	g.Expect(<-await("b", long)).To(HaveField("Phase", run.NotStarted), "there is nothing to wait for")
	l.start(run.Plan{ID: "p", Steps: []run.Step{{Name: "a", Script: until("first")}, {Name: "b", Script: until("second")}}})

	g.Eventually(await("", short), "1m").Should(Receive(HaveField("Phase", run.Running)), "time is over")
	answer := await("b", long)
	g.Consistently(answer, "300ms").ShouldNot(Receive())
	let("first")
	g.Eventually(answer, "1m").Should(Receive(And(HaveField("Phase", run.Running), HaveField("Step", "b"))))
	answer = await("", long)
	g.Consistently(answer, "300ms").ShouldNot(Receive(), "a step that nobody asked for is no news")
	let("second")
	g.Eventually(answer, "1m").Should(Receive(HaveField("Phase", run.Succeeded)))
	g.Eventually(await("", long), "1m").Should(Receive(HaveField("Phase", run.Succeeded)), "it has ended")
}

func TestStartIsIdempotentAndNeverRestarts(t *testing.T) {
	g := NewWithT(t)
	l := newLab(t)
	plan := run.Plan{ID: "p", Steps: []run.Step{
		{Name: "count", Script: `echo x >>"$QUOIN_ROOT/count"`},
		{Name: "wait", Script: `while ! [ -e "$QUOIN_ROOT/go" ]; do sleep 0.02; done`},
	}}
	for range 3 {
		l.start(plan)
	}
	status := l.wait("p", func(s run.Status) bool { return s.Step == "wait" })
	g.Expect(status.Phase).To(Equal(run.Running))
	g.Expect(status.StepIndex).To(Equal(2))
	g.Expect(status.StepCount).To(Equal(2))
	g.Expect(status.Lost).To(BeFalse())
	g.Expect(time.Since(status.Since)).To(BeNumerically("<", time.Minute))
	l.start(plan)
	l.write(filepath.Join(l.root, "go"), "")
	l.wait("p", final)
	l.start(plan)
	g.Expect(l.runner.Resume(context.Background(), l.host, "p")).To(Succeed())
	time.Sleep(100 * time.Millisecond)
	g.Expect(l.poll("p").Phase).To(Equal(run.Succeeded))
	g.Expect(l.lines("count")).To(HaveLen(1))
}

func TestAnUploadCutShortLeavesNothing(t *testing.T) {
	g := NewWithT(t)
	l := newLab(t)
	plan := run.Plan{ID: "p", Files: []run.File{{Name: "f", Content: []byte(strings.Repeat("x", 100000))}},
		Steps: []run.Step{{Name: "one", Script: "true"}}}
	cut := cutting{Local: l.host, at: 50000}
	g.Expect(l.runner.Start(context.Background(), cut, plan)).To(MatchError(ContainSubstring("the plan arrived damaged")))
	g.Expect(l.poll("p").Phase).To(Equal(run.NotStarted))
	left, _ := filepath.Glob(filepath.Join(l.root, "runs", ".upload.*"))
	g.Expect(left).To(BeEmpty())
	g.Expect(l.runner.Resume(context.Background(), l.host, "p")).To(MatchError(ContainSubstring("does not hold plan p")))
	l.start(plan)
	g.Expect(l.wait("p", final).Phase).To(Equal(run.Succeeded))
}

// cutting loses the rest of the standard input, as a connection that drops does.
type cutting struct {
	*sshtest.Local
	at int64
}

func (c cutting) Run(ctx context.Context, command ssh.Command) (ssh.Result, error) {
	buf := make([]byte, c.at)
	n, _ := command.Stdin.Read(buf)
	command.Stdin = strings.NewReader(string(buf[:n]))
	return c.Local.Run(ctx, command)
}

func TestAFailingStepShowsItsTail(t *testing.T) {
	g := NewWithT(t)
	l := newLab(t)
	l.start(run.Plan{ID: "p", Steps: []run.Step{
		{Name: "bad", Script: `echo "token abcdef.0123456789abcdef"; quoin_fail "disk /dev/sdz is missing"`},
		{Name: "never", Script: `echo x >"$QUOIN_ROOT/never"`},
	}})
	status := l.wait("p", final)
	g.Expect(status.Phase).To(Equal(run.Failed))
	g.Expect(status.Step).To(Equal("bad"))
	g.Expect(status.ExitCode).To(Equal(1))
	g.Expect(status.Tail).To(ContainSubstring("disk /dev/sdz is missing"))
	g.Expect(status.Tail).NotTo(ContainSubstring("abcdef.0123456789abcdef"))
	g.Expect(status.Message).To(Equal("step 1 of 2, bad, failed with code 1: disk /dev/sdz is missing"))
	g.Expect(l.exists("never")).To(BeFalse())
	g.Expect(l.exists("runs", "p", "scripts")).To(BeFalse())
}

// The real runner prints a value in the middle of a line that its tail cuts, and again where the error is.
func TestAFailingStepTellsNoneOfTheValuesThatAreKnown(t *testing.T) {
	g := NewWithT(t)
	l := newLab(t)
	const value, lines = "correct horse battery staple", "first secret line\nsecond secret line"
	l.runner.Secrets = func(context.Context) *redact.Redactor { return redact.New(value, lines) }
	l.start(run.Plan{ID: "p", Steps: []run.Step{{Name: "bad", Script: `printf 'x%s' '` + value + `'
head -c 7960 /dev/zero | tr '\0' ' '
printf '\n%s\n' '` + lines + `'
quoin_fail 'error: ` + value + ` is wrong'`}}})
	status := l.wait("p", final)
	g.Expect(status.Message).To(HaveSuffix("error: " + redact.Mark + " is wrong"))
	g.Expect(status.WithoutTail().Message).To(Equal("step 1 of 1, bad, failed with code 1"))
	for _, text := range []string{"horse", "battery", "staple", "secret line"} {
		g.Expect(status.Tail + status.Message).NotTo(ContainSubstring(text))
		for _, file := range []string{"journal", "steps", "result"} {
			content, err := os.ReadFile(filepath.Join(l.root, "runs", "p", file))
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(string(content)).NotTo(ContainSubstring(text), file)
		}
	}
}

func TestTheMessageIsTheLineThatTells(t *testing.T) {
	g := NewWithT(t)
	l := newLab(t)
	l.start(run.Plan{ID: "p", Steps: []run.Step{{Name: "kubeadm-init", Once: true,
		Script: `echo "[init] begin"; echo "error: no API server" >&2; echo "To see the stack trace use --v=5" >&2; exit 1`}}})
	g.Expect(l.wait("p", final).Message).To(HaveSuffix("failed with code 1: error: no API server"))
}

func TestASecretStepShowsNothing(t *testing.T) {
	g := NewWithT(t)
	l := newLab(t)
	l.start(run.Plan{ID: "p", Steps: []run.Step{{Name: "hush", Script: `echo hunter2 >&2; exit 3`, Secret: true}}})
	status := l.wait("p", final)
	g.Expect(status.Phase).To(Equal(run.Failed))
	g.Expect(fmt.Sprintf("%+v", status)).NotTo(ContainSubstring("hunter2"))
	out, _ := exec.Command("grep", "-r", "hunter2", l.root).CombinedOutput()
	g.Expect(string(out)).To(BeEmpty(), "nothing on the host either")
}

func TestRebootResumesAfterTheFinishedSteps(t *testing.T) {
	g := NewWithT(t)
	l := newLab(t)
	l.start(run.Plan{ID: "p", Steps: []run.Step{
		{Name: "once", Script: `echo x >>"$QUOIN_ROOT/once"`, Once: true},
		{Name: "again", Script: `echo x >>"$QUOIN_ROOT/again"; while ! [ -e "$QUOIN_ROOT/go" ]; do sleep 0.02; done`},
		{Name: "after", Script: `echo x >>"$QUOIN_ROOT/after"`},
	}})
	l.wait("p", func(run.Status) bool { return len(l.lines("again")) == 1 })
	l.kill("p")
	l.write(l.boot, "boot-2\n")
	status := l.wait("p", func(s run.Status) bool { return s.Lost })
	g.Expect(status.Phase).To(Equal(run.Running))
	g.Expect(status.Message).To(ContainSubstring("may have rebooted"))
	l.write(filepath.Join(l.root, "go"), "")
	g.Expect(l.runner.Resume(context.Background(), l.host, "p")).To(Succeed())
	g.Expect(l.wait("p", final).Phase).To(Equal(run.Succeeded))
	g.Expect(l.lines("once")).To(HaveLen(1))
	g.Expect(l.lines("again")).To(HaveLen(2))
	g.Expect(l.lines("after")).To(HaveLen(1))
	journal, _ := os.ReadFile(filepath.Join(l.root, "runs", "p", "journal"))
	g.Expect(string(journal)).To(MatchRegexp(`(?m)^\d+ boot-1 again start$`))
	g.Expect(string(journal)).To(MatchRegexp(`(?m)^\d+ boot-2 again start$`))
}

func TestAnInterruptedOnceStepEndsThePlan(t *testing.T) {
	g := NewWithT(t)
	l := newLab(t)
	plan := run.Plan{ID: "p", Files: []run.File{{Name: "f"}}, Steps: []run.Step{
		{Name: "kubeadm-init", Script: `echo x >>"$QUOIN_ROOT/once"; while :; do sleep 0.02; done`, Once: true},
		{Name: "after", Script: `echo x >>"$QUOIN_ROOT/after"`},
	}}
	l.start(plan)
	l.wait("p", func(run.Status) bool { return len(l.lines("once")) == 1 })
	l.kill("p")
	l.wait("p", func(s run.Status) bool { return s.Lost })
	l.start(plan)
	status := l.wait("p", final)
	g.Expect(status.Phase).To(Equal(run.Interrupted))
	g.Expect(status.Step).To(Equal("kubeadm-init"))
	l.start(plan)
	time.Sleep(100 * time.Millisecond)
	g.Expect(l.lines("once")).To(HaveLen(1))
	g.Expect(l.lines("after")).To(BeEmpty())
	g.Expect(l.exists("runs", "p", "files")).To(BeFalse())
}

func TestATornJournalLineIsHarmless(t *testing.T) {
	g := NewWithT(t)
	l := newLab(t)
	plan := run.Plan{ID: "p", Steps: []run.Step{
		{Name: "first", Script: `echo x >>"$QUOIN_ROOT/first"; while ! [ -e "$QUOIN_ROOT/go" ]; do sleep 0.02; done`},
		{Name: "once", Script: `echo x >>"$QUOIN_ROOT/once"`, Once: true},
	}}
	l.start(plan)
	l.wait("p", func(run.Status) bool { return len(l.lines("first")) == 1 })
	l.kill("p")
	l.wait("p", func(s run.Status) bool { return s.Lost })
	f, err := os.OpenFile(filepath.Join(l.root, "runs", "p", "journal"), os.O_APPEND|os.O_WRONLY, 0)
	g.Expect(err).NotTo(HaveOccurred())
	_, _ = f.WriteString("1700000000 boot-1 once sta")
	_ = f.Close()
	l.write(filepath.Join(l.root, "go"), "")
	l.start(plan)
	g.Expect(l.wait("p", final).Phase).To(Equal(run.Succeeded), "the step that would have begun never did")
	g.Expect(l.lines("once")).To(HaveLen(1))
}

// Kills the runner again and again at random moments. Whatever happens: a Once step starts at most once, and the plan
// ends as a success with every step done, or as interrupted by that very step.
func TestKilledAtRandomMoments(t *testing.T) {
	rounds := 12
	if testing.Short() {
		rounds = 3
	}
	for round := range rounds {
		t.Run(strconv.Itoa(round), func(t *testing.T) {
			t.Parallel()
			g := NewWithT(t)
			l := newLab(t)
			random := rand.New(rand.NewSource(int64(round)))
			plan := run.Plan{ID: "p"}
			for i := range 6 {
				plan.Steps = append(plan.Steps, run.Step{Name: fmt.Sprintf("step-%d", i), Once: i%3 == 2,
					Script: fmt.Sprintf(`echo x >>"$QUOIN_ROOT/begun-%d"; sleep 0.05; echo x >>"$QUOIN_ROOT/ended-%d"`, i, i)})
			}
			l.start(plan)
			for range 6 {
				time.Sleep(time.Duration(random.Intn(120)) * time.Millisecond)
				if l.poll("p").Phase.Final() {
					break
				}
				l.kill("p")
				l.start(plan)
			}
			status := l.wait("p", func(s run.Status) bool {
				if s.Lost {
					l.start(plan)
				}
				return final(s)
			})
			last := len(plan.Steps)
			if status.Phase == run.Interrupted {
				g.Expect(status.Step).To(BeElementOf("step-2", "step-5"))
				last = status.StepIndex - 1
			} else {
				g.Expect(status.Phase).To(Equal(run.Succeeded), "%+v", status)
			}
			for i := range plan.Steps {
				begun, ended := len(l.lines(fmt.Sprintf("begun-%d", i))), len(l.lines(fmt.Sprintf("ended-%d", i)))
				if plan.Steps[i].Once {
					g.Expect(begun).To(BeNumerically("<=", 1), "once step %d", i)
				}
				if i < last {
					g.Expect(ended).To(BeNumerically(">=", 1), "step %d", i)
				} else if i > last {
					g.Expect(begun).To(BeZero(), "step %d", i)
				}
			}
			g.Expect(l.exists("runs", "p", "scripts")).To(BeFalse())
		})
	}
}

func TestStop(t *testing.T) {
	g := NewWithT(t)
	ctx := context.Background()
	l := newLab(t)
	g.Expect(l.runner.Stop(ctx, l.host, "unknown")).To(Succeed())
	for _, id := range []string{"a", "b", "c"} {
		l.start(run.Plan{ID: id, Steps: []run.Step{{Name: "hang", Script: "sleep 60"}}})
		l.wait(id, func(s run.Status) bool { return s.Step == "hang" })
	}
	g.Expect(l.runner.Stop(ctx, l.host, "a")).To(Succeed())
	g.Expect(l.poll("a").Phase).To(Equal(run.Interrupted))
	g.Expect(l.runner.StopOthers(ctx, l.host, "c")).To(Succeed())
	g.Expect(l.poll("b").Phase).To(Equal(run.Interrupted))
	g.Expect(l.poll("c").Phase).To(Equal(run.Running))
	g.Expect(l.runner.StopOthers(ctx, l.host, "")).To(Succeed())
	g.Expect(l.poll("c").Phase).To(Equal(run.Interrupted))
	g.Expect(l.runner.StopOthers(ctx, l.host, "")).To(Succeed())
}

func TestValidate(t *testing.T) {
	g := NewWithT(t)
	ok := run.Step{Name: "a", Script: "true"}
	g.Expect(run.Plan{ID: "p", Steps: []run.Step{ok}}.Validate()).To(Succeed())
	g.Expect(run.Plan{ID: "../p", Steps: []run.Step{ok}}.Validate()).NotTo(Succeed())
	g.Expect(run.Plan{ID: "p"}.Validate()).NotTo(Succeed())
	g.Expect(run.Plan{ID: "p", Steps: []run.Step{ok, ok}}.Validate()).To(MatchError(ContainSubstring("two steps named")))
	g.Expect(run.Plan{ID: "p", Steps: []run.Step{{Name: "a b"}}}.Validate()).NotTo(Succeed())
	g.Expect(run.Plan{ID: "p", Steps: []run.Step{{Name: "a", Script: "x\x00"}}}.Validate()).NotTo(Succeed())
	g.Expect(run.Plan{ID: "p", Steps: []run.Step{ok}, Files: []run.File{{Name: "../x"}}}.Validate()).NotTo(Succeed())
}

func TestPreludeRemembersWhatWeCreate(t *testing.T) {
	g := NewWithT(t)
	l := newLab(t)
	etc := filepath.Join(t.TempDir(), "etc")
	g.Expect(os.Mkdir(etc, 0o755)).To(Succeed())
	l.write(filepath.Join(etc, "theirs"), "before")
	put := fmt.Sprintf(`set -eu
quoin_put "$QUOIN_RUN_DIR/files/f" %[1]s/theirs 0644
quoin_put "$QUOIN_RUN_DIR/files/f" %[1]s/a/b/ours 0600
`, etc)
	l.start(run.Plan{ID: "p", Files: []run.File{{Name: "f", Content: []byte("after")}},
		Steps: []run.Step{{Name: "put", Script: put}, {Name: "put-again", Script: put}}})
	status := l.wait("p", final)
	g.Expect(status.Phase).To(Equal(run.Succeeded), "%+v", status)
	g.Expect(os.ReadFile(filepath.Join(etc, "theirs"))).To(BeEquivalentTo("after"))
	g.Expect(os.ReadFile(filepath.Join(l.root, "originals", etc, "theirs"))).To(BeEquivalentTo("before"))
	created, _ := os.ReadFile(filepath.Join(l.root, "created"))
	g.Expect(strings.Split(strings.TrimSpace(string(created)), "\n")).To(Equal([]string{
		"original " + etc + "/theirs", "file " + etc + "/a/b/ours", "dir " + etc + "/a", "dir " + etc + "/a/b",
	}))
}

// later makes a plan on the host one of a release of Quoin whose plans have a format that this one does not know.
func (l *lab) later(id string) {
	l.t.Helper()
	l.write(filepath.Join(l.root, "runs", id, "format"), "2\n")
}

// Nobody misreads a plan that a later release of Quoin began, takes it up or ends it; one that ended says no more than
// that it did.
func TestAPlanOfALaterFormatIsLeftAlone(t *testing.T) {
	g := NewWithT(t)
	ctx := context.Background()
	l := newLab(t)
	plan := run.Plan{ID: "p", Steps: []run.Step{{Name: "kubeadm-init", Once: true, Script: "sleep 600"}}}
	l.start(plan)
	t.Cleanup(func() { l.kill("p") })
	l.wait("p", func(s run.Status) bool { return s.Step == "kubeadm-init" })
	l.later("p")
	journal := l.lines("runs/p/journal")
	_, polling := l.runner.Poll(ctx, l.host, "p")
	alone := l.runner
	alone.Alone = true
	other := run.Plan{ID: "q", Steps: []run.Step{{Name: "a", Script: "true"}}}
	for verb, err := range map[string]error{"Poll": polling, "Start": l.runner.Start(ctx, l.host, plan),
		"Resume": l.runner.Resume(ctx, l.host, "p"), "Stop": l.runner.Stop(ctx, l.host, "p"),
		"StopOthers": l.runner.StopOthers(ctx, l.host, ""), "Start alone": alone.Start(ctx, l.host, other)} {
		g.Expect(err).To(MatchError(ContainSubstring("plan p on this host has format 2")), verb)
		g.Expect(err).To(MatchError(ContainSubstring("install that release again")), verb)
	}
	g.Expect(l.lines("runs/p/journal")).To(Equal(journal))
	g.Expect(l.exists("runs", "q", "journal")).To(BeFalse())

	// The release that began it goes on.
	g.Expect(os.Remove(filepath.Join(l.root, "runs", "p", "format"))).To(Succeed())
	g.Expect(l.poll("p").Phase).To(Equal(run.Running))
	g.Expect(l.runner.Stop(ctx, l.host, "p")).To(Succeed())
	l.later("p")
	g.Expect(l.runner.StopOthers(ctx, l.host, "")).To(Succeed(), "it has ended")
}

// A later release of Quoin may add words to the lines of a journal and of a list of steps.
func TestLinesOfALaterReleaseAreRead(t *testing.T) {
	g := NewWithT(t)
	l := newLab(t)
	l.start(run.Plan{ID: "p", Steps: []run.Step{{Name: "a", Script: "sleep 600"}}})
	t.Cleanup(func() { l.kill("p") })
	l.wait("p", func(s run.Status) bool { return s.Step == "a" })
	l.write(filepath.Join(l.root, "runs", "p", "journal"), "1700000000 boot-1 a start attempt=1\n")
	l.write(filepath.Join(l.root, "runs", "p", "steps"), "a 0 0 1800 parallel\n")
	status := l.poll("p")
	g.Expect(status.Phase).To(Equal(run.Running))
	g.Expect(status.Step).To(Equal("a"))
	g.Expect(status.StepIndex).To(Equal(1))
}
