// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
)

// everyKill is how many changes kill whatever they are, before those of a kind that has killed often are spared.
const everyKill = 40

// machineName is that of any Machine.
var machineName = regexp.MustCompile(`\bc-[a-z0-9]{5}\b`)

// The controllers die after every single change that they make, before every line that a host's journal gets, and at the
// beginning of every command on a host: each manager lives for one event. A command is repeated until it ran once, so the
// same one kills only once on each host. A Machine whose objects are half made is made anew, so where every change kills no
// Machine would ever be whole: after the first changes each kind kills a few times and no more. What became of each is printed
// as a table, and kept in `_artifacts`.
func TestEveryEventOfARolloutSurvivesAKill(t *testing.T) {
	needsTime(t)
	for _, c := range []struct {
		replicas int32
		strategy controlplanev1.RolloutStrategyType
		spare    int
	}{
		{3, surge, 1}, {1, surge, 1}, {1, auto, 1}, {3, removeFirst, 0}, {3, auto, 0}, {5, surge, 1}, {5, removeFirst, 0}, {5, auto, 0},
	} {
		name := fmt.Sprintf("each-%d-%s", c.replicas, strings.ToLower(string(c.strategy)))
		t.Run(name, func(t *testing.T) {
			court := newCourt(t, courtOptions{name: name, replicas: c.replicas, hosts: int(c.replicas) + c.spare, domains: 3, strategy: c.strategy, admission: true})
			court.patience = time.Hour
			court.untilWhole("coming up")
			judge, writer := court.watchMembers(rollout{strategy: c.strategy}.floor(c.replicas)), court.write()
			judge.quiet = true
			killer := &assassin{court: court, lives: func() int { return 1 }}
			changes, others, seen, kinds := 0, 0, map[string]bool{}, map[string]int32{}
			killer.spares = func(e event) bool {
				if e.manager != nil {
					kind := machineName.ReplaceAllString(e.String(), "c-*")
					if kinds[kind]++; changes >= everyKill && kinds[kind] > 3*c.replicas {
						return true
					}
					changes++
					return false
				}
				if e.where == "command" && seen[e.what] {
					return true
				}
				seen[e.what] = true
				others++
				return false
			}
			court.listen(killer.hear)
			court.roll("a rollout whose controllers die at every event")
			court.listen(nil)
			kills := killer.end()
			text := drawKills(kills)
			t.Log("\n" + text)
			if err := os.WriteFile(filepath.Join(thePlane.Root(), "_artifacts", "kills-"+name+".txt"), []byte(text), 0o644); err != nil {
				t.Error(err)
			}
			if changes < everyKill || others < everyKill {
				t.Errorf("only %d kills after changes and %d at events of hosts", changes, others)
			}
			writer.end()
			judge.end()
		})
	}
}

// drawKills makes the table.
func drawKills(kills []kill) string {
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\twhere\tevent at which the controllers die\tnext change of the next ones")
	for i, k := range kills {
		result := "none before the next kill"
		if i == len(kills)-1 {
			result = "none needed"
		}
		if k.again > 0 {
			result = "after " + k.again.Round(10*time.Millisecond).String()
		}
		what := strings.Join(strings.Fields(k.event.what), " ")
		if len(what) > 100 {
			what = what[:30] + "..." + what[len(what)-70:]
		}
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\n", i+1, k.event.where, what, result)
	}
	_ = w.Flush()
	return text.String()
}
