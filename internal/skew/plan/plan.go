// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package plan finds the way of a cluster to another version of Kubernetes: the shortest sequence of steps of which
// none, at no time, brings versions together that a policy of package skew does not allow. It is pure: the same
// question has the same answer, whoever asks.
//
// A control plane goes one minor at a time (R8, S1-14), its add-ons follow it by themselves, and a pool of workers is
// raised when the next minor of the control plane would leave its kubelets too old (R9, S1-17), or else once, at the
// end (S1-12, R10). So a chain of hops costs workers as few replacements as skew allows (C3).
package plan

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew"
)

// Part of a cluster that gets a version of its own.
type Part string

const (
	// ControlPlane are the nodes of the control plane: API server, controller-manager, scheduler and kubelet of each.
	ControlPlane Part = "control plane"
	// Addons are what kubeadm installs, kube-proxy and CoreDNS. They follow the control plane without being told.
	Addons Part = "add-ons"
	// Workers are the kubelets of one pool.
	Workers Part = "workers"
)

// Step gives one part one version. It begins when the step before it is done with.
type Step struct {
	Raises Part
	// Pool is which workers, for people ("MachineDeployment blue"); empty for the other parts.
	Pool string
	// From are the versions that run before, from the oldest; a rollout that was not finished leaves more than one. It is
	// empty of add-ons that nobody has seen.
	From []string
	To   string
	// Rule is the rule that puts the step where it is.
	Rule skew.Rule
	// Why is that rule in words that follow the step's own.
	Why string
}

// String reads like a line of a plan: "control plane v1.35.4 -> v1.36.3: one minor at a time (R8)".
func (s Step) String() string {
	from := strings.Join(s.From, ", ")
	if from != "" {
		from += " "
	}
	return fmt.Sprintf("%s %s-> %s: %s (%s)", cmp.Or(s.Pool, string(s.Raises)), from, s.To, s.Why, s.Rule)
}

// Plan is a way to a version. One without steps is of a cluster that is there.
type Plan struct {
	Target string
	// Hops are the versions that the control plane gets, one after another; the last is the target.
	Hops []string
	// AnyPatch says that nobody knew which versions there are. The first patch of a minor then stands for any, in all hops
	// but the last.
	AnyPatch bool
	Steps    []Step
	// Advice is what would be better and is not necessary.
	Advice []string
}

// Route is what to set, one after another: "v1.35.4 first, then v1.36.3".
func (p Plan) Route() string {
	text := ""
	for i, hop := range p.Hops {
		if version, err := skew.Parse(hop); err == nil && p.AnyPatch && i+1 < len(p.Hops) {
			hop = fmt.Sprintf("v%d.%d", version.Major(), version.Minor())
		}
		switch i {
		case 0:
			text = hop
		case 1:
			text += " first, then " + hop
		default:
			text += ", then " + hop
		}
	}
	return text
}

// Way is what has to be raised before the control plane may be: "raise MachineDeployment blue to v1.36.3 first, then
// the control plane to v1.37.0"; empty when nothing has.
func (p Plan) Way() string {
	var first []string
	for _, step := range p.Steps {
		if step.Raises != ControlPlane {
			first = append(first, cmp.Or(step.Pool, string(step.Raises))+" to "+step.To)
			continue
		}
		if len(first) == 0 {
			return ""
		}
		text := strings.Join(first[:min(len(first), most)], ", ")
		if more := len(first) - most; more > 0 {
			text += fmt.Sprintf(" and %d more", more)
		}
		return fmt.Sprintf("raise %s first, then the control plane to %s", text, step.To)
	}
	return ""
}

// most is how many pools a way names.
const most = 3

// Onward is the Way to the target as the end of a refusal that has none; empty when no plan leads there.
func (s State) Onward(policies []skew.Policy, target string) string {
	p, err := For(Request{State: s, Target: target, Policies: policies})
	if err != nil || p.Way() == "" {
		return ""
	}
	return "; " + p.Way()
}

// String is the plan for people, a line for each step.
func (p Plan) String() string {
	var text strings.Builder
	switch {
	case len(p.Steps) == 0:
		fmt.Fprintf(&text, "nothing is left to do for %s\n", p.Target)
	case len(p.Hops) < 2:
		fmt.Fprintf(&text, "to %s in %s\n", p.Target, count(len(p.Steps), "step"))
	default:
		between := ""
		if p.AnyPatch {
			between = ", by any patch of the minors between"
		}
		hops, steps := count(len(p.Hops), "hop"), count(len(p.Steps), "step")
		fmt.Fprintf(&text, "to %s in %s and %s%s\n", p.Target, hops, steps, between)
	}
	for i, step := range p.Steps {
		fmt.Fprintf(&text, "%3d. %s\n", i+1, step)
	}
	for _, advice := range p.Advice {
		fmt.Fprintf(&text, "better: %s\n", advice)
	}
	return text.String()
}

func count(n int, of string) string {
	if n == 1 {
		return "1 " + of
	}
	return fmt.Sprintf("%d %ss", n, of)
}

// RuleUnknown means: what the answer rests on is not known, the versions of the API servers or the artifacts of a
// version.
const RuleUnknown skew.Rule = "Unknown"

// RefusedError says that no plan leads to the version.
type RefusedError struct {
	// Rule is the first rule that every way would break.
	Rule skew.Rule
	// Hops are versions to ask for instead, one after another, where that helps; those of Plan.Hops.
	Hops    []string
	message string
}

// Error says what stands in the way, by which rule, and what would clear it.
func (r *RefusedError) Error() string { return r.message }

func refuse(rule skew.Rule, format string, args ...any) *RefusedError {
	return &RefusedError{Rule: rule, message: fmt.Sprintf(format, args...)}
}
