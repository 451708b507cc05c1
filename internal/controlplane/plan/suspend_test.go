// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/outage"
)

// hostsThat draws control-plane Machines, one letter for each: b came back, as a Node, and a as a host; g is gone, s
// stays, n never was there, y came up for the first time, l took
// longer than that may, and o came back long enough ago. By a clock that was ahead f came back, and w as a Node; by
// one that was a minute ahead e came back.
func hostsThat(letters string, now time.Time) facts {
	s := controlplane.State{Remediation: controlplane.Remediation{Now: now}}
	for i, letter := range letters {
		m := controlplane.Machine{Name: fmt.Sprintf("%c%d", letter, i), Node: "node"}
		m.Health.Born = now.Add(-24 * time.Hour)
		m.Health.NodeReadySince = now.Add(-23 * time.Hour)
		switch letter {
		case 'b':
			m.Health.NodeReadySince = now.Add(-5 * time.Minute)
		case 'a':
			m.Health.AnswersSince = now.Add(-5 * time.Minute)
		case 'g':
			m.Health.SilentSince = now.Add(-time.Hour)
		case 'n':
			m.Node, m.Health.NodeReadySince, m.Health.SilentSince = "", now.Add(-5*time.Minute), now.Add(-time.Hour)
		case 'y':
			m.Health.NodeReadySince = now.Add(-5 * time.Minute)
			m.Health.Born = m.Health.NodeReadySince.Add(-30 * time.Minute)
		case 'l':
			m.Health.NodeReadySince = now.Add(-5 * time.Minute)
			m.Health.Born = m.Health.NodeReadySince.Add(-30*time.Minute - time.Second)
		case 'o':
			m.Health.NodeReadySince = now.Add(-returnTime)
		case 'e':
			m.Health.NodeReadySince = now.Add(time.Minute)
		case 'f':
			m.Health.NodeReadySince = now.Add(time.Minute + time.Second)
			m.Health.AnswersSince = now.Add(6 * time.Hour)
		case 'w':
			m.Health.NodeReadySince, m.Health.AnswersSince = now.Add(6*time.Hour), now.Add(-5*time.Minute)
		}
		s.Machines = append(s.Machines, m)
	}
	return facts{s}
}

// Hosts that come back together get time to, when they are two or more and half of all, with those still away.
func TestHostsThatComeBackTogether(t *testing.T) {
	now := time.Date(2026, 11, 23, 8, 0, 0, 0, time.UTC)
	for letters, says := range map[string]string{
		"bss": "", "bbs": "2 of 3", "bgs": "1 of 3", "ggs": "", "bbss": "2 of 4", "bbsss": "", "ybs": "", "obs": "",
		"abs": "2 of 3", "nnbs": "", "lbs": "2 of 3",
		"bfs": "", "ffs": "", "bws": "2 of 3",
	} {
		if says != "" {
			says += " control-plane hosts came back a short while ago; until 2026-11-23T08:10:00Z the others get time to follow"
		}
		NewWithT(t).Expect(hostsThat(letters, now).returning()).To(Equal(says), letters)
	}
	NewWithT(t).Expect(hostsThat("bes", now).returning()).To(HavePrefix("2 of 3"))
}

// What never was there is not away, however many of those there are.
func TestWhatNeverWasThereIsNotAway(t *testing.T) {
	now := time.Date(2026, 11, 23, 8, 0, 0, 0, time.UTC)
	g := NewWithT(t)
	g.Expect(hostsThat("snn", now).suspended()).To(BeEmpty())
	g.Expect(hostsThat("sgg", now).suspended()).To(HavePrefix("2 of 3 control-plane hosts went away together"))
	g.Expect(hostsThat("bbs", now).suspended()).To(HavePrefix("2 of 3 control-plane hosts came back"))
}

// A failure domain is lost where there are two or more, and lost ones are named in their order.
func TestFailureDomainsThatAreLost(t *testing.T) {
	g := NewWithT(t)
	at := time.Date(2026, 11, 23, 8, 0, 0, 0, time.UTC)
	hosts := []outage.Host{{Domain: "x", SilentSince: at}, {Domain: "x", SilentSince: at}, {Domain: "y", SilentSince: at},
		{Domain: "y", SilentSince: at}, {Domain: "z"}}
	g.Expect(lostDomain(hosts, map[string]bool{"x": true})).To(BeEmpty())
	g.Expect(lostDomain(hosts, map[string]bool{"z": true, "": true})).To(BeEmpty())
	for range 20 {
		g.Expect(lostDomain(hosts, map[string]bool{"y": true, "x": true})).To(MatchRegexp("domain x went .* domain y went "))
	}
}
