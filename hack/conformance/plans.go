// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/run"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
)

// wait is a step that ends when it is told to, so that it can be disturbed at leisure. It may run again.
const wait = `echo waiting
n=0
until [ -e "$QUOIN_ROOT/go" ]; do
	n=$((n + 1))
	[ "$n" -lt 120 ] || quoin_fail "nobody ended the wait"
	sleep 1
done
`

// count is a step that leaves a trace of each of its runs.
func count(name string) run.Step {
	return run.Step{Name: name, Script: `echo run >>"$QUOIN_ROOT/count.` + name + "\"\n"}
}

// plainPlan is started detached and followed to its end.
func plainPlan(ctx context.Context, s *session) (string, error) {
	const id = "conformance-plain"
	plan := run.Plan{
		ID:    id,
		Files: []run.File{{Name: "greeting", Content: []byte("good morning\n")}},
		Steps: []run.Step{
			count("first"),
			{Name: "read", Script: `[ "$(cat "$QUOIN_RUN_DIR/files/greeting")" = "good morning" ] || quoin_fail "the file did not arrive"` + "\n"},
			{Name: "only-once", Once: true, Script: "date\n"},
			count("last"),
		},
	}
	status, err := s.follow(ctx, plan, run.Phase.Final)
	if err != nil {
		return "", err
	}
	if status.Phase != run.Succeeded {
		return "", errors.New(status.Message)
	}
	return status.Message, s.ranOnce(ctx, id, "first", "read", "only-once", "last")
}

// cutConnection drops the connection in the middle of a step: the plan must not notice.
func cutConnection(ctx context.Context, s *session) (string, error) {
	const id = "conformance-cut"
	if err := s.untilWaiting(ctx, id, false); err != nil {
		return "", err
	}
	conn, err := s.conn(ctx)
	if err != nil {
		return "", err
	}
	_ = conn.Close()
	status, err := s.poll(ctx, id)
	if err != nil {
		return "", err
	}
	if status.Lost || status.Phase != run.Running {
		return "", fmt.Errorf("the plan did not outlive its connection: %s; does systemd-logind end a user's processes (KillUserProcesses)?", status.Message)
	}
	if status, err = s.end(ctx, id); err != nil {
		return "", err
	}
	if status.Phase != run.Succeeded {
		return "", errors.New(status.Message)
	}
	return "the plan went on without its connection, and was found again", s.ranOnce(ctx, id, "first", "wait", "last")
}

// resume kills the plan on the host, as a reboot would, and takes it up again.
func resume(ctx context.Context, s *session) (string, error) {
	const id = "conformance-resume"
	if err := s.untilWaiting(ctx, id, false); err != nil {
		return "", err
	}
	if err := s.kill(ctx, id); err != nil {
		return "", err
	}
	status, err := s.resumed(ctx, id)
	if err != nil {
		return "", err
	}
	if status.Phase != run.Succeeded {
		return "", errors.New(status.Message)
	}
	if err := s.ranOnce(ctx, id, "first", "last"); err != nil {
		return "", err
	}
	return "the step that was cut off ran again, the finished one did not", nil
}

// once kills the plan within a step that must not run twice.
func once(ctx context.Context, s *session) (string, error) {
	const id = "conformance-once"
	if err := s.untilWaiting(ctx, id, true); err != nil {
		return "", err
	}
	if err := s.kill(ctx, id); err != nil {
		return "", err
	}
	status, err := s.resumed(ctx, id)
	if err != nil {
		return "", err
	}
	if status.Phase != run.Interrupted {
		return "", fmt.Errorf("a step that must not run twice was cut off, and the plan is %s: %s", status.Phase, status.Message)
	}
	journal, err := s.journal(ctx, id)
	if err != nil {
		return "", err
	}
	if starts := journal["wait"]["start"]; starts != 1 {
		return "", fmt.Errorf("a step that must not run twice was started %d times", starts)
	}
	return "a step that must not run twice was cut off, and did not run again", nil
}

// secrets looks for one on the host when its plan has ended.
func secrets(ctx context.Context, s *session) (string, error) {
	const id, marker = "conformance-secrets", "correct-horse-battery-staple"
	status, err := s.follow(ctx, run.Plan{
		ID:    id,
		Files: []run.File{{Name: "password", Content: []byte(marker)}},
		Steps: []run.Step{{Name: "tell", Secret: true, Script: "cat \"$QUOIN_RUN_DIR/files/password\"\n"}},
	}, run.Phase.Final)
	if err != nil {
		return "", err
	}
	if status.Phase != run.Succeeded {
		return "", errors.New(status.Message)
	}
	out, err := s.run(ctx, fmt.Sprintf("grep -rlF %s %[2]s || :\nstat -c %%a %[2]s", marker, ssh.Quote(s.runner.Root)))
	if err != nil {
		return "", err
	}
	if out != "700" {
		return "", fmt.Errorf("after the plan, the secret or a way to it is left (files, then the mode of %s): %s", s.runner.Root, out)
	}
	return "nothing of a plan's secret files and output is left", nil
}

// follow starts a plan and polls it.
func (s *session) follow(ctx context.Context, plan run.Plan, until func(run.Phase) bool) (run.Status, error) {
	conn, err := s.conn(ctx)
	if err != nil {
		return run.Status{}, err
	}
	s.dirty = true
	if err := s.runner.Start(ctx, conn, plan); err != nil {
		return run.Status{}, err
	}
	return s.await(ctx, plan.ID, func(status run.Status) bool { return until(status.Phase) })
}

// await polls a plan as the controllers do, until it is as wanted or final.
func (s *session) await(ctx context.Context, id string, wanted func(run.Status) bool) (run.Status, error) {
	for {
		status, err := s.poll(ctx, id)
		if err != nil || wanted(status) || status.Phase.Final() {
			return status, err
		}
		select {
		case <-ctx.Done():
			return status, fmt.Errorf("%w, and the plan stands at: %s", ctx.Err(), status.Message)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

func (s *session) poll(ctx context.Context, id string) (run.Status, error) {
	conn, err := s.conn(ctx)
	if err != nil {
		return run.Status{}, err
	}
	return s.runner.Poll(ctx, conn, id)
}

// untilWaiting starts a plan of three steps and returns when the second one waits.
func (s *session) untilWaiting(ctx context.Context, id string, once bool) error {
	if _, err := s.run(ctx, "rm -f "+ssh.Quote(s.runner.Root+"/go")); err != nil {
		return err
	}
	plan := run.Plan{ID: id, Steps: []run.Step{count("first"), {Name: "wait", Script: wait, Once: once}, count("last")}}
	conn, err := s.conn(ctx)
	if err != nil {
		return err
	}
	if err := s.runner.Start(ctx, conn, plan); err != nil {
		return err
	}
	status, err := s.await(ctx, id, func(status run.Status) bool { return status.Step == "wait" })
	if err != nil {
		return err
	}
	if status.Phase != run.Running {
		return fmt.Errorf("the plan should wait, but: %s", status.Message)
	}
	return nil
}

// end lets the waiting step end.
func (s *session) end(ctx context.Context, id string) (run.Status, error) {
	if _, err := s.run(ctx, ": >"+ssh.Quote(s.runner.Root+"/go")); err != nil {
		return run.Status{}, err
	}
	return s.await(ctx, id, func(run.Status) bool { return false })
}

// kill ends what runs the plan, without a word in the journal.
func (s *session) kill(ctx context.Context, id string) error {
	var starter run.Starter = run.Systemd{}
	if s.runner.Starter != nil {
		starter = s.runner.Starter
	}
	if _, err := s.run(ctx, starter.Stop("quoin-run-"+id)); err != nil {
		return err
	}
	status, err := s.poll(ctx, id)
	if err == nil && !status.Lost {
		err = fmt.Errorf("the plan was killed, but the host says: %s", status.Message)
	}
	return err
}

func (s *session) resumed(ctx context.Context, id string) (run.Status, error) {
	conn, err := s.conn(ctx)
	if err != nil {
		return run.Status{}, err
	}
	if _, err := s.run(ctx, ": >"+ssh.Quote(s.runner.Root+"/go")); err != nil {
		return run.Status{}, err
	}
	if err := s.runner.Resume(ctx, conn, id); err != nil {
		return run.Status{}, err
	}
	return s.await(ctx, id, func(run.Status) bool { return false })
}

// journal counts the words of each step.
func (s *session) journal(ctx context.Context, id string) (map[string]map[string]int, error) {
	out, err := s.run(ctx, "cat "+ssh.Quote(s.runner.Root+"/runs/"+id+"/journal"))
	if err != nil {
		return nil, fmt.Errorf("reading the journal of plan %s: %w", id, err)
	}
	steps := map[string]map[string]int{}
	for line := range strings.Lines(out) {
		if fields := strings.Fields(line); len(fields) > 3 {
			if steps[fields[2]] == nil {
				steps[fields[2]] = map[string]int{}
			}
			steps[fields[2]][fields[3]]++
		}
	}
	return steps, nil
}

// ranOnce reads in the journal that steps began once and ended once.
func (s *session) ranOnce(ctx context.Context, id string, names ...string) error {
	steps, err := s.journal(ctx, id)
	if err != nil {
		return err
	}
	for _, name := range names {
		if steps[name]["start"] != 1 || steps[name]["done"] != 1 {
			return fmt.Errorf("step %s of plan %s was started %d times and done %d times", name, id, steps[name]["start"], steps[name]["done"])
		}
	}
	return nil
}
