// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	. "github.com/onsi/gomega"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// Proves: S2-10
//
// testdata/remediation*.txt asks what is done about Machines that are ill. Lines are those of
// testdata/scripts/decide.txt; words with a + tell of the Machine's health, and a duration there is how long ago
// something began, from noon on.
func TestRemediationScripts(t *testing.T) {
	for _, file := range []string{"remediation.txt", "remediation_members.txt", "remediation_together.txt",
		"remediation_beside_leavers.txt", "remediation_edges.txt", "corner_cases.txt"} {
		datadriven.RunTest(t, "testdata/"+file, func(t *testing.T, d *datadriven.TestData) string {
			s := parseHealth(t, d)
			var lines strings.Builder
			for _, target := range Assess(s).Unhealthy {
				fmt.Fprintf(&lines, "ill: %s (%s)\n", target.Machine.Name, target.Reason)
			}
			if loss := Assess(s).QuorumLoss; loss != nil {
				fmt.Fprintf(&lines, "lost: for good=%t\n", loss.ForGood)
			}
			step := Assess(s).Step
			fmt.Fprintln(&lines, answer(t, step))
			if step.Attempt != nil {
				fmt.Fprintf(&lines, "attempt: for %s, retry %d\n", step.Attempt.Machine, step.Attempt.RetryCount)
			}
			return lines.String()
		})
	}
}

func ago(t *testing.T, text string) time.Time {
	t.Helper()
	duration, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	return noon.Add(-duration)
}

func parsePeriod(t *testing.T, text string) *time.Duration {
	t.Helper()
	period := noon.Sub(ago(t, text))
	return &period
}

// parseAttempt reads machine/retries/age.
func parseAttempt(t *testing.T, text string) *controlplane.Attempt {
	t.Helper()
	parts := strings.Split(text, "/")
	retries, err := strconv.Atoi(parts[1])
	if err != nil {
		t.Fatal(err)
	}
	return &controlplane.Attempt{Machine: parts[0], RetryCount: retries, Time: ago(t, parts[2])}
}

func parseHealth(t *testing.T, d *datadriven.TestData) controlplane.State {
	t.Helper()
	terms, spare := controlplane.Remediation{Now: noon}, controlplane.Spare{}
	ours := func(arg datadriven.CmdArg) bool {
		value := strings.Join(arg.Vals, ",")
		switch arg.Key {
		case "spare":
			spare.Free = 1
		case "coming":
			spare.Pending = 1
		case "returning":
			spare.Returning = 1
		case "max-retry":
			retries, err := strconv.Atoi(value)
			if err != nil {
				t.Fatal(err)
			}
			terms.MaxRetry = &retries
		case "retry-period":
			terms.RetryPeriod = parsePeriod(t, value)
		case "healthy-period":
			terms.MinHealthyPeriod = parsePeriod(t, value)
		case "pending":
			terms.Pending = parseAttempt(t, value)
		case "deferred":
			terms.Deferred = "the topology hands down another version"
		default:
			return false
		}
		return true
	}
	d.CmdArgs = slices.DeleteFunc(d.CmdArgs, ours)
	health, unstarted := map[string]controlplane.Health{}, map[string]bool{}
	var plain []string
	for _, line := range strings.Split(d.Input, "\n") {
		words := strings.Fields(line)
		var kept []string
		long := noon.Add(-240 * time.Hour)
		h := controlplane.Health{Born: long, AnswersSince: long.Add(time.Minute), NodeReadySince: long.Add(time.Minute)}
		for _, word := range words {
			if !strings.HasPrefix(word, "+") {
				kept = append(kept, word)
				continue
			}
			key, value, _ := strings.Cut(word[1:], "=")
			switch key {
			case "marked":
				h.Marked = "its Node does not report"
			case "by-hand":
				h.ByHand = true
			case "spared":
				h.Spared = "annotation cluster.x-k8s.io/skip-remediation"
			case "failed":
				h.Final = "kubeadm failed on its host"
			case "infra-deleted":
				h.InfrastructureGone = true
			case "ill":
				h.MemberIllSince = ago(t, value)
			case "silent":
				h.SilentSince, h.AnswersSince = ago(t, value), time.Time{}
			case "answers":
				h.AnswersSince = ago(t, value)
			case "node-lost":
				h.NodeLostSince, h.NodeReadySince = ago(t, value), time.Time{}
			case "node-ready":
				h.NodeReadySince = ago(t, value)
			case "born":
				h.Born = ago(t, value)
			case "unstarted":
				unstarted[words[1]] = true
			case "domain-lost":
				h.DomainLost = "failure domain r1 is lost: 9 of 10 hosts fell silent together"
			case "replaces":
				h.Replaces = parseAttempt(t, value)
			default:
				t.Fatalf("%s: unknown word %s", d.Pos, word)
			}
		}
		if len(words) > 1 && words[0] == "machine" {
			health[words[1]] = h
		}
		plain = append(plain, strings.Join(kept, " "))
	}
	d.Input = strings.Join(plain, "\n")
	s := parse(t, d)
	for i := range s.Machines {
		s.Machines[i].Health = health[s.Machines[i].Name]
	}
	for i := range s.Etcd.Members {
		if member := &s.Etcd.Members[i]; unstarted[member.Machine] {
			member.Name, member.Learner, member.Healthy, member.Problem = "", true, false, "it has not started"
		}
	}
	s.Remediation, s.Spare = terms, spare
	return s
}

// What is ill and casts no vote goes even while the housekeeping fails; a voter that a person wants replaced stays.
func TestRemediationThatMayProceed(t *testing.T) {
	g, s := NewWithT(t), ofThree()
	s.Machines[0].Health.ByHand = true
	g.Expect(remediate(facts{s}).MayProceed).To(BeFalse())
	s.Etcd.Members[0].Healthy, s.Etcd.Members[0].Silent = false, time.Hour
	s.Machines[0].Healthy, s.Machines[0].Serving = false, false
	g.Expect(remediate(facts{s}).MayProceed).To(BeTrue())
}
