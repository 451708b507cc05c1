// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quorum

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
)

// Proves: S2-24, S2-28, S2-30, S2-33, C11
//
// Each file of testdata tells scenarios: a membership, what is to be done to it, and the verdict. A membership is drawn
// with a healthy voter as [a], one that does not answer as [x a], a learner as (a), one that has not started as [? a];
// * leads, ~12 is 12 entries behind, > was let go, ! is held, @ has a failure domain. Without a membership of its own,
// a command goes on with the one before. "do" also does what is allowed. Run with -rewrite to write down new answers,
// then read them.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		if strings.HasSuffix(path, ".fail") {
			return // a history that a property left there
		}
		var m Membership
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			if strings.TrimSpace(d.Input) != "" {
				m = parse(t, d.Input)
			}
			if d.Cmd == "show" {
				return draw(m) + "\n"
			}
			op, terms := asked(t, d, m)
			verdict := Judge(m, op, terms)
			told := draw(m) + "\n" + tell(verdict)
			if d.Cmd == "do" && verdict.Allowed {
				m = m.After(op)
				told += draw(m) + "\n"
			}
			return told
		})
	})
}

// asked reads an operation and its terms, such as "depart=(a,b) desired=3 spare".
func asked(t *testing.T, d *datadriven.TestData, m Membership) (Operation, Terms) {
	t.Helper()
	var op Operation
	var terms Terms
	for _, arg := range d.CmdArgs {
		number := func() int {
			n, err := strconv.Atoi(arg.Vals[0])
			if err != nil {
				d.Fatalf(t, "%s: %v", arg.Key, err)
			}
			return n
		}
		members := func(kind Kind) {
			op.Kind = kind
			for _, name := range arg.Vals {
				op.Members = append(op.Members, idOf(name))
			}
		}
		switch arg.Key {
		case "add-learner":
			members(AddLearner)
			if len(arg.Vals) == 0 {
				op.Members = []uint64{idOf("new")}
			}
		case "remove":
			members(Remove)
		case "depart":
			members(Depart)
		case "desired":
			terms.Desired = number()
		case "spare":
			terms.Spare = true
		case "lowered":
			terms.Lowered = true
		case "all":
			terms.All = true
		case "patience":
			terms.DeadMemberTimeout = time.Duration(number()) * time.Second
		case "max-age":
			terms.MaxAge = time.Duration(number()) * time.Second
		default:
			d.Fatalf(t, "unknown argument %s", arg.Key)
		}
	}
	return op, terms
}

// idOf gives a name an ID, the same in each scenario.
func idOf(name string) uint64 {
	var id uint64
	for _, r := range name {
		id = id*128 + uint64(r)
	}
	return id
}

// parse reads a membership: a line for each member, its name and what is not usual about it.
func parse(t *testing.T, input string) Membership {
	t.Helper()
	m := Membership{Known: true, Agreed: true}
	disagree, agree := false, false
	for _, line := range strings.Split(strings.TrimSpace(input), "\n") {
		words := strings.Fields(line)
		if words[0] == "-" {
			for _, word := range words[1:] {
				switch {
				case word == "unknown":
					m = Membership{Problem: "no host answered"}
				case word == "disagree":
					disagree = true
				case word == "agree":
					agree = true
				case strings.HasPrefix(word, "age="):
					seconds, err := strconv.Atoi(strings.TrimPrefix(word, "age="))
					if err != nil {
						t.Fatal(err)
					}
					m.Age = time.Duration(seconds) * time.Second
				default:
					t.Fatalf("unknown word %s", word)
				}
			}
			continue
		}
		member := Member{ID: idOf(words[0]), Name: words[0], Machine: words[0], Healthy: true, Size: 1 << 20}
		for _, word := range words[1:] {
			switch {
			case word == "leader":
				member.Leader = true
			case word == "learner":
				member.Learner = true
			case word == "dead", word == "silent":
				member.Healthy, member.Problem = false, "it was not reached"
				if word == "dead" {
					member.Silent = time.Hour
				}
			case word == "alarm":
				member.Healthy, member.Full, member.Problem = false, true, "alarm NOSPACE"
			case word == "unstarted":
				member.Name, member.Healthy, member.Problem = "", false, "it was not reached"
			case word == "stray":
				member.Machine = ""
			case word == "leaving":
				member.Departing = true
			case word == "held":
				member.Departing, member.Held = true, true
			case strings.HasPrefix(word, "lag="):
				lag, err := strconv.ParseUint(strings.TrimPrefix(word, "lag="), 10, 64)
				if err != nil {
					t.Fatal(err)
				}
				member.Lag = lag
			case strings.HasPrefix(word, "@"):
				member.FailureDomain = word[1:]
			default:
				t.Fatalf("unknown word %s", word)
			}
		}
		m.Members = append(m.Members, member)
	}
	m.Agreed = m.Known && (m.Count().Quorate() || agree) && !disagree
	return m
}

func draw(m Membership) string {
	if !m.Known {
		return "?"
	}
	var drawn []string
	for _, member := range m.Members {
		name := member.Machine
		if name == "" {
			name = member.Name
		}
		if name == "" {
			name = "new"
		}
		var marks string
		switch {
		case !member.Started():
			marks = "? "
		case !member.Healthy:
			marks = "x "
		}
		if member.Leader {
			name += "*"
		}
		if member.Lag > 0 {
			name += fmt.Sprintf("~%d", member.Lag)
		}
		if member.FailureDomain != "" {
			name += "@" + member.FailureDomain
		}
		switch {
		case member.Held:
			name += "!"
		case member.Departing:
			name += ">"
		}
		if member.Learner {
			drawn = append(drawn, "("+marks+name+")")
		} else {
			drawn = append(drawn, "["+marks+name+"]")
		}
	}
	count := m.Count()
	line := fmt.Sprintf("%s  %v", strings.Join(drawn, " "), count)
	if !m.Agreed {
		return line + ", no quorum"
	}
	return line + fmt.Sprintf(", tolerates %d", count.Tolerates())
}

func tell(v Verdict) string {
	answer := "no"
	if v.Allowed {
		answer = "yes"
	}
	line := fmt.Sprintf("%s, %v -> %v", answer, v.Before, v.After)
	if v.Reason != "" {
		line += fmt.Sprintf("\n  %s: %s", v.Reason, v.Message)
	}
	if v.WayOut != "" {
		line += "\n  > " + v.WayOut
	}
	return line + "\n"
}

func TestAfterLeavesTheMembershipAlone(t *testing.T) {
	m := parse(t, "a leader @x\nb learner\nc @x")
	before := slices.Clone(m.Members)
	for _, op := range []Operation{{Kind: AddLearner}, {Kind: Remove, Members: []uint64{idOf("a")}},
		{Kind: Depart, Members: []uint64{idOf("a")}}} {
		m.After(op)
		Judge(m, op, Terms{Desired: 3})
		if !slices.Equal(m.Members, before) {
			t.Fatalf("%s changed what it was asked about", op.Kind)
		}
	}
}
