// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Owner is who could make a phase shorter.
type Owner string

// Those that time goes to.
const (
	// ByHosts: kubeadm, kubelet, etcd and the pods that end there among it.
	ByHosts      Owner = "host"
	ByUs         Owner = "ours"
	ByClusterAPI Owner = "Cluster API"
	// ByKills are the test's own.
	ByKills Owner = "kills"
)

// Phase of an upgrade.
type Phase struct {
	Name  string
	Owner Owner
}

// Phases of the way of a Machine to its Node and back, and of an upgrade.
var (
	Kubeadm   = Phase{"kubeadm", ByHosts}
	Artifacts = Phase{"artifacts", ByHosts}
	NodeStart = Phase{"Node Ready", ByHosts}
	Voter     = Phase{"etcd voter", ByHosts}
	Drain     = Phase{"drain", ByHosts}
	Killed    = Phase{"managers away", ByKills}
	Drained   = Phase{"drain is noticed", ByClusterAPI}
	Connect   = Phase{"plan is started", ByUs}
	Healthy   = Phase{"healthy, soaked", ByUs}
	Hold      = Phase{"hold before the drain", ByUs}
	Member    = Phase{"member removal", ByUs}
	Release   = Phase{"host is asked for", ByClusterAPI}
	Reset     = Phase{"reset", ByHosts}
	Verify    = Phase{"verification", ByUs}
	Claim     = Phase{"claim", ByUs}
	Gone      = Phase{"Machine goes", ByClusterAPI}
	Addons    = Phase{"add-ons", ByUs}
	Health    = Phase{"health", ByUs}
	Decision  = Phase{"decision", ByUs}
)

// ranks says which of several phases at a time has the second: what hosts do that others wait for, then what somebody
// could do sooner. That a member votes is told by managers, so it is theirs to be away. A reset delays nobody but who
// waits for that host, and for want of anything else a decision is due.
var ranks = []Phase{Kubeadm, Artifacts, NodeStart, Drain, Killed, Voter, Drained, Connect, Healthy, Hold, Member,
	Release, Reset, Verify, Claim, Gone, Addons, Health}

// Span is a phase under way.
type Span struct {
	Phase
	From, To time.Time
}

// Life is what was seen of a Machine and when; what was not has no time.
type Life struct {
	// Name of the Machine, its host, and what tells the plans of its claim from those of others.
	Name, Host, Claim string
	// Staged: the host had the Machine's version before it was claimed.
	Staged bool
	// Created and what follows is its way to a Node that counts.
	Created, Claimed, NodeReady, Votes, Available time.Time
	// And back: Empty is a cordoned Node without pods that a drain would move.
	Deleting, Drainable, Empty, Drained, Terminable, Cleaning, Free, Gone time.Time
}

// Spans are the phases of a Machine one after another; each lasts until the next mark that was seen.
func (l Life) Spans(plans []Plan) []Span {
	var spans []Span
	at := l.Created
	until := func(phase Phase, to time.Time) {
		if at.IsZero() || !to.After(at) {
			return
		}
		spans, at = append(spans, Span{phase, at, to}), to
	}
	until(Claim, l.Claimed)
	if plan, found := l.plan(plans, "provision-"); found {
		until(Connect, plan.Began)
		for _, step := range plan.Steps {
			phase := Artifacts
			if strings.HasPrefix(step.Name, "kubeadm-") {
				phase = Kubeadm
			}
			until(phase, step.Ended)
		}
	}
	until(NodeStart, l.NodeReady)
	until(Voter, l.Votes)
	until(Healthy, l.Available)
	at = l.Deleting
	until(Hold, l.Drainable)
	until(Drain, l.Empty)
	until(Drained, l.Drained)
	until(Member, l.Terminable)
	if plan, found := l.plan(plans, "reset-"); found {
		until(Release, plan.Began)
		until(Reset, plan.Began.Add(plan.Took))
	}
	until(Verify, l.Free)
	until(Gone, l.Gone)
	return spans
}

// Joins are what hosts took to bring what a control plane's Machine is made of, and for all steps until it joined: the
// mean of several.
type Joins struct {
	Number           int
	Artifacts, Whole time.Duration
}

// JoinsOf are those that were staged ahead, or those that were not.
func JoinsOf(lives []Life, plans []Plan, staged bool) (joins Joins) {
	for _, life := range lives {
		plan, joined := life.plan(plans, "provision-")
		if !joined || life.Votes.IsZero() || life.Staged != staged { // workers have less to bring and to do
			continue
		}
		joins.Number++
		joins.Whole += plan.Took
		for _, span := range life.Spans(plans) {
			if span.Phase == Artifacts {
				joins.Artifacts += span.To.Sub(span.From)
			}
		}
	}
	joins.Artifacts /= time.Duration(max(joins.Number, 1))
	joins.Whole /= time.Duration(max(joins.Number, 1))
	return joins
}

func (j Joins) String() string {
	return fmt.Sprintf("%d joins: artifacts %s, all steps %s", j.Number, j.Artifacts.Round(time.Second/10),
		j.Whole.Round(time.Second/10))
}

// plan is the last of a kind that ran for the Machine.
func (l Life) plan(plans []Plan, kind string) (found Plan, is bool) {
	for _, plan := range plans {
		if l.Claim != "" && strings.HasPrefix(plan.ID, kind+l.Claim) {
			found, is = plan, true
		}
	}
	return found, is
}

// Share is what a phase has of a time.
type Share struct {
	Phase
	Took time.Duration
}

// Part gives every moment of a time to one phase, the highest in rank of those under way; the shares add up to the
// whole.
func Part(from, to time.Time, spans []Span) []Share {
	cuts := []time.Time{from, to}
	for _, span := range spans {
		for _, cut := range []time.Time{span.From, span.To} {
			if cut.After(from) && cut.Before(to) {
				cuts = append(cuts, cut)
			}
		}
	}
	slices.SortFunc(cuts, time.Time.Compare)
	took := map[Phase]time.Duration{}
	for i := range cuts[1:] {
		phase, best := Decision, len(ranks)
		for _, span := range spans {
			rank := slices.Index(ranks, span.Phase)
			if rank >= 0 && rank < best && !span.From.After(cuts[i]) && !span.To.Before(cuts[i+1]) {
				phase, best = span.Phase, rank
			}
		}
		took[phase] += cuts[i+1].Sub(cuts[i])
	}
	var shares []Share
	for phase, of := range took {
		if of > 0 {
			shares = append(shares, Share{phase, of})
		}
	}
	slices.SortFunc(shares, func(a, b Share) int {
		return cmp.Or(cmp.Compare(b.Took, a.Took), cmp.Compare(a.Name, b.Name))
	})
	return shares
}

// Of is what an owner has of a time. That of the hosts is what they have to do one after another, whoever waits for
// them.
func Of(shares []Share, owner Owner) (sum time.Duration) {
	for _, share := range shares {
		if share.Owner == owner {
			sum += share.Took
		}
	}
	return sum
}

// Table is a line for each Machine, and one for each share.
func Table(lives []Life, plans []Plan, shares []Share) string {
	var text strings.Builder
	for _, life := range lives {
		_, _ = fmt.Fprintf(&text, "  %s on %s", life.Name, life.Host)
		if life.Staged {
			text.WriteString(", staged")
		}
		for _, span := range life.Spans(plans) {
			_, _ = fmt.Fprintf(&text, "; %s %s %s", span.From.Format(time.TimeOnly), span.Name,
				span.To.Sub(span.From).Round(time.Second/10))
		}
		text.WriteByte('\n')
	}
	for _, share := range shares {
		_, _ = fmt.Fprintf(&text, "  %-22s %-12s %8s\n", share.Name, share.Owner, share.Took.Round(time.Second/10))
	}
	return text.String()
}
