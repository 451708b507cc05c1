// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package run executes a plan on a host without staying connected to it: the plan is uploaded once, started detached,
// and journals each step on the host; SSH only polls. A dropped connection or a restarted controller changes nothing; a
// finished step never runs again; a step that must not run twice and was interrupted ends the plan for good.
package run

import (
	"fmt"
	"regexp"
	"time"
)

// Plan is an ordered list of steps with the files that they need.
type Plan struct {
	// ID names the plan on the host, [a-z0-9.-], at most 63 characters. Two plans with one ID are the same plan: what was
	// uploaded first counts. Put the machine's UID and an attempt number into it.
	ID string
	// Files are uploaded with mode 0600 to "$QUOIN_RUN_DIR/files/<name>" and removed when the plan ends.
	Files []File
	// Steps run in order; the first that fails ends the plan.
	Steps []Step
}

// Step is one POSIX sh script. It runs as root with QUOIN_ROOT, QUOIN_RUN_DIR and QUOIN_BOOT_ID set and the functions
// of the prelude (see Prelude) at hand. Unless Once is set it must be idempotent: after a reboot an unfinished step
// runs again.
type Step struct {
	// Name is unique in the plan, [a-z0-9.-]; it is what a person sees as progress.
	Name string
	// Script is the body. No NUL bytes.
	Script string
	// Once marks a step that must never start twice (kubeadm init, kubeadm join). Interrupted, it ends the plan.
	Once bool
	// Secret marks a step whose output is neither kept nor shown.
	Secret bool
	// Timeout ends the step with everything it started, and the plan is Failed: whoever waits for a person or for a dead
	// server would else hold the host for good. Rounded up to seconds; 0 means DefaultTimeout.
	Timeout time.Duration
}

// DefaultTimeout of a step is longer than anything that ends by itself, such as an image that comes over a slow line.
const DefaultTimeout = 30 * time.Minute

func (s Step) seconds() int64 {
	if s.Timeout == 0 {
		return int64(DefaultTimeout / time.Second)
	}
	return int64((s.Timeout + time.Second - 1) / time.Second)
}

// File is content that steps read.
type File struct {
	// Name is a plain file name, [A-Za-z0-9._-], unique in the plan.
	Name    string
	Content []byte
}

// Phase is where a plan stands.
type Phase string

const (
	// NotStarted means: the host does not hold the complete plan, or nothing of it ran yet.
	NotStarted Phase = "NotStarted"
	// Running means: started, and neither finished nor given up. See Status.Lost.
	Running Phase = "Running"
	// Succeeded means: every step is done. Final.
	Succeeded Phase = "Succeeded"
	// Failed means: a step failed. Final; try again under another ID after cleaning.
	Failed Phase = "Failed"
	// Interrupted means: a Once step was cut off, or the plan was stopped. Final; the host must be reset.
	Interrupted Phase = "Interrupted"
)

// Final says that the plan will never change its phase again.
func (p Phase) Final() bool { return p == Succeeded || p == Failed || p == Interrupted }

// Status is what Poll read from the host.
type Status struct {
	Phase Phase
	// Step is the current step, or the one that failed or was interrupted.
	Step string
	// StepIndex is the position of Step from 1, StepCount the number of steps; 0 when unknown.
	StepIndex, StepCount int
	// Since is when Step began, by the host's clock. Zero when nothing ran.
	Since time.Time
	// HostTime is the host's clock at the poll.
	HostTime time.Time
	// Message is a sentence for people, without secrets.
	Message string
	// Tail is the end of what the failing step printed; empty for Secret steps. It
	// went through package redact.
	Tail string
	// Lost says that the plan is unfinished but nothing runs it, for example after a reboot: call Resume.
	Lost bool
	// ExitCode of the failed step.
	ExitCode int

	// exceeded is the time that the failed step was given and did not end in.
	exceeded time.Duration
}

// WithoutTail is the status without anything that a step printed.
func (s Status) WithoutTail() Status {
	if s.Tail != "" {
		s.Tail = ""
		s.Message = s.sentence()
	}
	return s
}

var (
	planID   = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{0,62}$`)
	stepName = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{0,62}$`)
	fileName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,126}$`)
)

// Validate says why a plan cannot be run.
func (p Plan) Validate() error {
	if !planID.MatchString(p.ID) {
		return fmt.Errorf("plan ID %q must match %s", p.ID, planID)
	}
	if len(p.Steps) == 0 {
		return fmt.Errorf("plan %s has no steps", p.ID)
	}
	seen := map[string]bool{}
	for _, s := range p.Steps {
		switch {
		case !stepName.MatchString(s.Name):
			return fmt.Errorf("plan %s: step name %q must match %s", p.ID, s.Name, stepName)
		case seen[s.Name]:
			return fmt.Errorf("plan %s has two steps named %q", p.ID, s.Name)
		case containsNUL(s.Script):
			return fmt.Errorf("plan %s: step %s contains a NUL byte", p.ID, s.Name)
		case s.Timeout < 0:
			return fmt.Errorf("plan %s: step %s has the negative timeout %s", p.ID, s.Name, s.Timeout)
		}
		seen[s.Name] = true
	}
	seen = map[string]bool{}
	for _, f := range p.Files {
		switch {
		case !fileName.MatchString(f.Name):
			return fmt.Errorf("plan %s: file name %q must match %s", p.ID, f.Name, fileName)
		case seen[f.Name]:
			return fmt.Errorf("plan %s has two files named %q", p.ID, f.Name)
		}
		seen[f.Name] = true
	}
	return nil
}

func containsNUL(s string) bool {
	for i := range len(s) {
		if s[i] == 0 {
			return true
		}
	}
	return false
}
