// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"strconv"
	"strings"
)

func trapBuiltin(s *shell, args []string) int {
	args = args[1:]
	if len(args) > 0 && args[0] == "--" {
		args = args[1:]
	}
	if len(args) == 0 {
		for _, name := range sortedKeys(s.traps) {
			s.p.Printf("trap -- '%s' %s\n", strings.ReplaceAll(s.traps[name], "'", `'"'"'`), name)
		}
		return 0
	}
	action, names := args[0], args[1:]
	reset := action == "-"
	if len(names) == 0 {
		reset, names = true, args
	}
	s.p.enter()
	defer s.p.leave()
	for _, name := range names {
		name = signalName(name)
		if s.traps == nil {
			s.traps = map[string]string{}
		}
		delete(s.traps, name)
		ignored, caught := with(s.p.ignored), with(s.p.caught)
		delete(ignored, name)
		delete(caught, name)
		if !reset {
			s.traps[name] = action
			if action == "" {
				ignored[name] = true
			} else if name != "EXIT" {
				caught[name] = true
			}
		}
		s.p.ignored, s.p.caught = ignored, caught
	}
	return 0
}

func signalName(text string) string {
	text = strings.TrimPrefix(strings.ToUpper(text), "SIG")
	if n, err := strconv.Atoi(text); err == nil {
		if n == 0 {
			return "EXIT"
		}
		for name, number := range signals {
			if number == n {
				return name
			}
		}
	}
	return text
}

// attend runs the traps of the signals that came.
func (s *shell) attend() {
	if s.p.caught == nil {
		return
	}
	s.p.enter()
	pending := s.p.pending
	s.p.pending = nil
	s.p.leave()
	for _, name := range pending {
		if text := s.traps[name]; text != "" {
			status := s.status
			s.eval(text)
			if s.flow != exiting {
				s.status = status
			}
		}
	}
}

func waitBuiltin(s *shell, args []string) int {
	var jobs []*Process
	if len(args) == 1 {
		for _, p := range s.jobs {
			jobs = append(jobs, p)
		}
	}
	for _, arg := range args[1:] {
		pid, _ := strconv.Atoi(arg)
		p := s.jobs[pid]
		if p == nil {
			return 127
		}
		jobs = append(jobs, p)
	}
	status := 0
	for _, p := range jobs {
		for done := false; !done; {
			s.p.enter()
			if len(s.p.pending) > 0 {
				name := s.p.pending[0]
				s.p.leave()
				s.attend()
				return 128 + signals[name]
			}
			s.p.wake = make(chan struct{})
			wake := s.p.wake
			s.p.leave()
			select {
			case <-p.ended:
				done = true
			case <-wake:
			case <-s.p.ended:
				s.p.check()
			}
		}
		status = p.code
		p.reap()
		delete(s.jobs, p.PID)
	}
	if len(args) == 1 {
		return 0
	}
	return status
}
