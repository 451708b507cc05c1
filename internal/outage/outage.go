// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package outage tells the death of a host from the loss of its failure domain. A rack whose switch fails takes every
// host of it away at once: their nodes may run on, and to replace all of them would do more harm than to wait.
package outage

import (
	"fmt"
	"slices"
	"time"
)

// Window within which hosts fall silent together. It is longer than the time that a controller needs to notice the
// silence of a host which nothing happens to.
const Window = 10 * time.Minute

// fewest hosts that make an outage: one alone is dead.
const fewest = 2

// Host is what is known of the silence of one host.
type Host struct {
	// Domain is the failure domain; hosts without one count as those of one domain, because nothing is known of their
	// fate.
	Domain string
	// SilentSince is when it stopped to answer; zero while it answers.
	SilentSince time.Time
}

// Verdict says whether a failure domain is lost.
type Verdict struct {
	Lost bool
	// Silent hosts fell silent together, the first of them at Since, out of Hosts that answered until then.
	Silent, Hosts int
	Since         time.Time
}

// String is the verdict in words.
func (v Verdict) String() string {
	if v.Silent == 0 {
		return "no host fell silent"
	}
	text := fmt.Sprintf("%d of %d hosts fell silent together from %s on", v.Silent, v.Hosts, v.Since.UTC().
		Format(time.RFC3339))
	if v.Lost {
		return "lost: " + text
	}
	return "not lost: " + text
}

// Judge looks at one domain: it is lost when at least two hosts, and at least half of those that answered until then,
// fell silent within one window. Hosts that were silent before do not count, for they can say nothing about the others;
// so a rack with a dead host in it can still be lost, and one that lost its hosts one by one over days is not.
func Judge(domain string, hosts []Host) Verdict {
	var times []time.Time
	answering := 0
	for _, h := range hosts {
		switch {
		case h.Domain != domain:
		case h.SilentSince.IsZero():
			answering++
		default:
			times = append(times, h.SilentSince)
		}
	}
	slices.SortFunc(times, time.Time.Compare)
	var worst Verdict
	for first, since := range times {
		last := first
		for last < len(times) && times[last].Sub(since) <= Window {
			last++
		}
		v := Verdict{Silent: last - first, Hosts: answering + len(times) - first, Since: since}
		v.Lost = v.Silent >= fewest && 2*v.Silent >= v.Hosts
		// A loss before a mere silence, the larger before the smaller, the later before the earlier.
		if v.Lost && (!worst.Lost || v.Silent >= worst.Silent) || !worst.Lost && v.Silent > worst.Silent {
			worst = v
		}
	}
	return worst
}
