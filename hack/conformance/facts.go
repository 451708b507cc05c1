// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strings"
	"time"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/inspect"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/owner"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/suitability"
)

//go:embed traits.sh
var traits string

// inspection reads the facts that the controllers read, and what else tells one system from another.
func inspection(ctx context.Context, s *session) (string, error) {
	conn, err := s.conn(ctx)
	if err != nil {
		return "", err
	}
	if s.facts, err = inspect.Collect(ctx, conn); err != nil {
		return "", err
	}
	f := s.facts
	s.report.fact("operating system", f.OS.PrettyName)
	s.report.fact("kernel", f.Kernel)
	s.report.fact("architecture", f.Architecture)
	s.report.fact("cgroup", fmt.Sprintf("v%d", f.CgroupVersion))
	s.report.fact("container runtime", strings.TrimSpace(f.ContainerRuntime.Name+" "+f.ContainerRuntime.Version))
	out, err := s.run(ctx, traits)
	if err != nil {
		return "", fmt.Errorf("reading the versions of its programs: %w", err)
	}
	for line := range strings.Lines(out) {
		name, value, _ := strings.Cut(line, "\t")
		s.report.fact(name, value)
	}
	return fmt.Sprintf("%s, %d processors, %d disks, %d addresses", f.OS.PrettyName, f.CPUs, len(f.Disks), len(f.Addresses)), nil
}

// suitable is the verdict that a QuoinHost's Inspected condition shows.
func suitable(_ context.Context, s *session) (string, error) {
	problems, hints := suitability.Assess(s.facts, infrav1.NodeNetwork{})
	if len(problems) > 0 {
		return "", errors.New(strings.Join(append(problems, hints...), "\n"))
	}
	detail := []string{fmt.Sprintf("a node could run here; the clock is off by %s", s.facts.ClockOffset.Round(time.Millisecond))}
	return strings.Join(append(detail, hints...), "\n"), nil
}

// unused guards machines that do something already.
func unused(_ context.Context, s *session) (string, error) {
	used := strings.Join(s.uses(), ", ")
	switch {
	case used == "":
		return "neither Kubernetes nor an owner is on it", nil
	case s.force:
		return used + "; it is not reset", nil
	}
	return "", fmt.Errorf("the machine is in use: %s. Take another one; --force tries everything but the reset", used)
}

// uses says what the machine does already.
func (s *session) uses() []string {
	uses := append([]string(nil), s.facts.KubernetesPresent...)
	if s.facts.OwnerRecord == "" {
		return uses
	}
	record, err := owner.Parse(s.facts.OwnerRecord)
	switch {
	case err != nil:
		uses = append(uses, err.Error())
	case !record.Released():
		uses = append(uses, "it serves QuoinMachine "+record.Machine)
	}
	return uses
}
