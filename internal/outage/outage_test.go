// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package outage

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	. "github.com/onsi/gomega"
)

var midnight = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// TestJudge plays testdata/*: each line of a case is "<domain> <hosts that answer> [silent since hh:mm ...]".
func TestJudge(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			var hosts []Host
			for _, line := range strings.Split(d.Input, "\n") {
				fields := strings.Fields(line)
				var answering int
				if _, err := fmt.Sscan(fields[1], &answering); err != nil {
					d.Fatalf(t, "%q: %v", line, err)
				}
				for range answering {
					hosts = append(hosts, Host{Domain: fields[0]})
				}
				for _, text := range fields[2:] {
					at, err := time.Parse("15:04", text)
					if err != nil {
						d.Fatalf(t, "%q: %v", line, err)
					}
					hosts = append(hosts, Host{Domain: fields[0], SilentSince: midnight.Add(time.Duration(at.Hour())*time.Hour +
						time.Duration(at.Minute())*time.Minute)})
				}
			}
			return Judge(d.CmdArgs[0].Key, hosts).String() + "\n"
		})
	})
}

func TestTheOrderOfHostsDoesNotMatter(t *testing.T) {
	g := NewWithT(t)
	random := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		var hosts []Host
		for range random.IntN(12) {
			h := Host{}
			if random.IntN(3) > 0 {
				h.SilentSince = midnight.Add(time.Duration(random.IntN(60)) * time.Minute)
			}
			hosts = append(hosts, h)
		}
		want := Judge("", hosts)
		shuffled := slices.Clone(hosts)
		random.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		g.Expect(Judge("", shuffled)).To(Equal(want))
		// One more that answers never makes a loss of what was none.
		g.Expect(!want.Lost && Judge("", append(shuffled, Host{})).Lost).To(BeFalse())
	}
}
