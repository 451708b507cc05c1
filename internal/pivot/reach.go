// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package pivot

import (
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
)

// SkipHosts is the name by which a person leaves out the question from the target.
const SkipHosts = "hosts"

// Reach is what a management cluster reaches of what moves there.
type Reach struct {
	Ways []Way
	// Manager is the Deployment beside which is asked; nil where the target has none.
	Manager *appsv1.Deployment
	// Answer is nil where nobody was asked, which Unasked says why.
	Answer  *Answer
	Unasked string
}

// checks are one of hosts, which a pivot is for, and one of what managers can do without for a while.
func (r Reach) checks() []Check {
	hosts := len(r.Ways)
	if other := slices.IndexFunc(r.Ways, func(w Way) bool { return !w.Host }); other >= 0 {
		hosts = other
	}
	return []Check{
		r.check("Hosts are reached from the target", 0, hosts),
		r.check("BMCs, bundle servers and object stores are reached from the target", hosts, len(r.Ways)),
	}
}

// check of the ways from one number up to another.
func (r Reach) check(name string, from, to int) Check {
	c := Check{Name: name, Result: Passed, Message: "there are none"}
	switch {
	case from == to:
		return c
	case r.Answer == nil:
		c.Result, c.Message = Warning, "not asked: "+r.Unasked
		return c
	}
	why := r.Answer.why()
	last := -1
	for look := range why {
		last = max(last, look)
	}
	// Where not all are named, those that come first are.
	unnamed := max(0, min(r.Answer.Failed-len(why), to-max(from, last+1)))
	var fatal, other []string
	for i := from; i < to; i++ {
		line := fmt.Sprintf("%s: %s", r.Ways[i], why[i])
		switch {
		case why[i] == "":
		case r.Ways[i].Host && r.Ways[i].Answers:
			fatal = append(fatal, line)
		case r.Ways[i].Host:
			other = append(other, line+", and the source does not reach it either")
		default:
			other = append(other, line)
		}
	}
	failed := len(fatal) + len(other) + unnamed
	if failed == 0 {
		c.Message = fmt.Sprintf("all are, by %d addresses", to-from)
		return c
	}
	const shown = 5
	lines := slices.Concat(fatal, other)
	lines = lines[:min(shown, len(lines))]
	if more := failed - len(lines); more > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", more))
	}
	c.Result = Warning
	c.Message = fmt.Sprintf("%d of %d addresses are not: %s", failed, to-from, strings.Join(lines, "; "))
	if len(fatal) > 0 || unnamed > 0 && r.Ways[from].Host {
		c.Result = Failed
		c.Message += "; let the managers of the target reach them, or leave the question out with --skip " + SkipHosts +
			"=<why that is right>"
	}
	return c
}
