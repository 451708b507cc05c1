// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/inspect"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/owner"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/run"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
)

// scratch takes the place of run.DefaultRoot, so that a host in use is not disturbed.
const scratch = "/var/lib/quoin-conformance"

// perCheck bounds one check: a machine that hangs is a result too.
const perCheck = 3 * time.Minute

// session is one run against one machine.
type session struct {
	options
	pool   *ssh.Pool
	runner run.Runner
	store  owner.Store
	report *Report
	facts  *inspect.Facts
	// dirty: something was put below the scratch root. made: and below /etc.
	dirty, made bool
}

func newSession(o options) *session {
	return &session{
		options: o, pool: ssh.NewPool(ssh.PoolOptions{}),
		runner: run.Runner{Root: scratch}, store: owner.Store{Root: scratch},
		report: newReport(access(o.target), time.Now()),
	}
}

// access says how the machine was logged in to, without saying where it is.
func access(t ssh.Target) string {
	how := "a user with sudo"
	switch {
	case t.User == "root":
		how = "root"
	case t.SudoCommand != "":
		how = "a user whose sudo is limited to one program"
	}
	if t.Bastion != nil {
		how += ", through a jump host"
	}
	return how
}

// conn is the one pooled connection; it is made anew when the last one is gone.
func (s *session) conn(ctx context.Context) (*ssh.Conn, error) {
	return s.pool.Get(ctx, "host", s.target)
}

// run executes a script as root.
func (s *session) run(ctx context.Context, script string) (string, error) {
	conn, err := s.conn(ctx)
	if err != nil {
		return "", err
	}
	result, err := conn.Run(ctx, ssh.Command{Script: script, Sudo: true})
	return strings.TrimSpace(result.Stdout), err
}

// check is one line of the report.
type check struct {
	name string
	// needs are checks without whose success this one says nothing.
	needs []string
	// run returns what is worth knowing; an error is what is wrong.
	run func(ctx context.Context, s *session) (string, error)
}

// skipped ends a check that cannot be tried here.
type skipped struct{ why string }

func (e *skipped) Error() string { return e.why }

func checks() []check {
	return []check{
		{"bastion", nil, bastion},
		{"host-key", nil, hostKey},
		{"other-host-key", []string{"host-key"}, otherHostKey},
		{"root", []string{"host-key"}, becomeRoot},
		{"exit-code", []string{"root"}, exitCode},
		{"inspection", []string{"root"}, inspection},
		{"suitable", []string{"inspection"}, suitable},
		{"unused", []string{"inspection"}, unused},
		{"upload", []string{"unused"}, upload},
		{"sessions", []string{"root"}, sessions},
		{"forwarding", []string{"root"}, forwarding},
		{"noexec-tmp", []string{"root"}, noexecTmp},
		{"owner", []string{"unused"}, ownership},
		{"plan", []string{"unused"}, plainPlan},
		{"cut-connection", []string{"plan"}, cutConnection},
		{"resume", []string{"plan"}, resume},
		{"once", []string{"plan"}, once},
		{"secrets", []string{"plan"}, secrets},
		{"reset", []string{"plan", "suitable"}, resetAndVerify},
		{"nothing-left", []string{"unused"}, nothingLeft},
	}
}

// try runs the checks in order, printing each as it comes.
func try(ctx context.Context, s *session, out io.Writer) *Report {
	defer s.pool.Close()
	fmt.Fprintf(out, "Trying %s@%s (%s)\n\n", s.target.User, s.target.Endpoint(), s.report.Access)
	passed := map[string]bool{}
	for _, c := range checks() {
		outcome := Outcome{Check: c.name, Result: Skip}
		missing := slices.IndexFunc(c.needs, func(name string) bool { return !passed[name] })
		switch {
		case ctx.Err() != nil:
			outcome.Detail = "the run was stopped"
		case slices.Contains(s.skip, c.name):
			outcome.Detail = "left out by --skip"
		case missing >= 0:
			outcome.Detail = fmt.Sprintf("check %q comes first", c.needs[missing])
		default:
			outcome = c.try(ctx, s)
		}
		passed[c.name] = outcome.Result == OK
		s.report.Outcomes = append(s.report.Outcomes, outcome)
		outcome.print(out)
	}
	if ctx.Err() != nil && s.dirty {
		// Stopped by a person: what was made still goes.
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
		defer cancel()
		_, _ = nothingLeft(last, s)
	}
	return s.report
}

func (c check) try(ctx context.Context, s *session) Outcome {
	ctx, cancel := context.WithTimeout(ctx, perCheck)
	defer cancel()
	began := time.Now()
	detail, err := c.run(ctx, s)
	outcome := Outcome{Check: c.name, Result: OK, Detail: detail, Seconds: time.Since(began).Seconds()}
	var skip *skipped
	switch {
	case errors.As(err, &skip):
		outcome.Result, outcome.Detail = Skip, skip.why
	case err != nil:
		outcome.Result, outcome.Detail = Fail, err.Error()
	}
	return outcome
}
