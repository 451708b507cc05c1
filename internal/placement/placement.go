// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package placement picks a host for a machine. It is pure: the same request and hosts, in any order, give the same result.
package placement

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
)

// StateAvailable is the state of a host that may be claimed.
const StateAvailable = "Available"

// AnyNamespace in Host.ConsumerNamespaces offers the host to every namespace.
const AnyNamespace = "*"

// Request is what a machine asks for.
type Request struct {
	// Namespace of the machine.
	Namespace string
	// Selector over the hosts' labels; nil selects every host.
	Selector labels.Selector
	// FailureDomain the host must be in; empty for any.
	FailureDomain string
	// Members counts, by failure domain, the hosts that the machine's peers have. Without a wanted failure domain the
	// emptiest one comes first, so that members share no fate.
	Members map[string]int
}

// Host is what placement needs to know of a host.
type Host struct {
	Namespace, Name string
	Labels          map[string]string
	// State of the host, StateAvailable among others.
	State string
	// Ready says that the host is reachable and trusted.
	Ready bool
	// InUse says that the host has a consumer.
	InUse bool
	// Leaving says that the host is being deleted or is paused.
	Leaving       bool
	FailureDomain string
	// ConsumerNamespaces that may claim the host; its own one when empty.
	ConsumerNamespaces []string
}

// Reason says in a few words why a host was not chosen. It reads well after a count: "2 in use".
type Reason string

// Reasons that are not a state's name.
const (
	InUse     Reason = "in use"
	Leaving   Reason = "being deleted or paused"
	NotReady  Reason = "not ready"
	NotPlaced Reason = "not registered yet"
)

// Result is the outcome of Select.
type Result struct {
	// Chosen host; nil when none is free.
	Chosen *Host
	// Reasons why the other hosts were not eligible. A host counts once, under the reason that is the hardest to change.
	Reasons map[Reason]int

	order []Reason
}

// Select picks the host for request: among the eligible ones that of the emptiest failure domain, then by namespace (the
// machine's own first) and name.
func Select(request Request, hosts []Host) Result {
	result := Result{Reasons: map[Reason]int{}}
	var free []Host
	for _, h := range hosts {
		if reason, rank := obstacle(request, h); reason != "" {
			result.count(reason, rank)
			continue
		}
		free = append(free, h)
	}
	result.sortReasons()
	if len(free) == 0 {
		return result
	}
	chosen := slices.MinFunc(free, func(a, b Host) int {
		return cmp.Or(
			cmp.Compare(request.Members[a.FailureDomain], request.Members[b.FailureDomain]),
			-cmpBool(a.Namespace == request.Namespace, b.Namespace == request.Namespace),
			strings.Compare(a.Namespace, b.Namespace),
			strings.Compare(a.Name, b.Name),
		)
	})
	result.Chosen = &chosen
	return result
}

// Offered says whether a machine of namespace may claim the host at all.
func Offered(h Host, namespace string) bool {
	if len(h.ConsumerNamespaces) == 0 {
		return h.Namespace == namespace
	}
	return slices.Contains(h.ConsumerNamespaces, namespace) || slices.Contains(h.ConsumerNamespaces, AnyNamespace)
}

// Ranks order the reasons in a message: what frees itself first comes first.
const (
	rankInUse = iota
	rankState
	rankReady
	rankDomain
	rankSelector
	rankNamespace
)

func obstacle(request Request, h Host) (Reason, int) {
	switch {
	case !Offered(h, request.Namespace):
		return Reason("not offered to namespace " + request.Namespace), rankNamespace
	case request.Selector != nil && !request.Selector.Matches(labels.Set(h.Labels)):
		return Reason("not selected by " + request.Selector.String()), rankSelector
	case request.FailureDomain != "" && h.FailureDomain != request.FailureDomain:
		return Reason("not in failure domain " + request.FailureDomain), rankDomain
	case h.InUse:
		return InUse, rankInUse
	case h.Leaving:
		return Leaving, rankState
	case h.State == "":
		return NotPlaced, rankState
	case h.State != StateAvailable:
		return Reason(h.State), rankState
	case !h.Ready:
		return NotReady, rankReady
	}
	return "", 0
}

func (r *Result) count(reason Reason, rank int) {
	if r.Reasons[reason] == 0 {
		// The rank travels in front of the reason while sorting, so that equal ranks come in the order of their text.
		r.order = append(r.order, Reason(fmt.Sprintf("%d%s", rank, reason)))
	}
	r.Reasons[reason]++
}

func (r *Result) sortReasons() {
	slices.Sort(r.order)
	for i := range r.order {
		r.order[i] = r.order[i][1:]
	}
}

// Message is a sentence for people, such as "no free host matches: 2 in use, 1 Quarantined, 3 not selected by role=worker".
// Empty when a host was chosen.
func (r Result) Message() string {
	if r.Chosen != nil {
		return ""
	}
	if len(r.order) == 0 {
		return "no free host matches: there are no QuoinHosts; register one"
	}
	parts := make([]string, 0, len(r.order))
	for _, reason := range r.order {
		parts = append(parts, fmt.Sprintf("%d %s", r.Reasons[reason], reason))
	}
	return "no free host matches: " + strings.Join(parts, ", ")
}

func cmpBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}
