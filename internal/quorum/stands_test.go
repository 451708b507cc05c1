// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quorum

import (
	"testing"

	. "github.com/onsi/gomega"
)

func TestWhetherAQuorumStandsWithoutTheHostOfAMachine(t *testing.T) {
	voter := func(machine string, healthy bool) Member {
		return Member{Name: "n" + machine, Machine: machine, Healthy: healthy}
	}
	learner := Member{Machine: "d", Learner: true, Healthy: true}
	leaves := voter("b", true)
	leaves.Departing = true
	dead := voter("a", false)
	dead.Silent = Forever
	held := leaves
	held.Held = true
	for why, c := range map[string]struct {
		members []Member
		agreed  bool
		want    bool
	}{
		"another one was let go": {[]Member{voter("a", true), leaves, voter("c", true)}, true, false},
		"another one is kept":    {[]Member{voter("a", true), held, voter("c", true)}, true, true},
		"another one was let go, and nobody reaches its own": {[]Member{voter("a", false), leaves, voter("c", true)}, true,
			false},
		"another one was let go, and its own is dead": {[]Member{dead, leaves, voter("c", true)}, true, true},
		"two others are a quorum of three":            {[]Member{voter("a", true), voter("b", true), voter("c", true)}, true, true},
		"one other is none of three":                  {[]Member{voter("a", true), voter("b", true), voter("c", false)}, true, false},
		"its own vote is not cast":                    {[]Member{voter("a", false), voter("b", true), voter("c", true)}, true, true},
		"one other is none of two":                    {[]Member{voter("a", true), voter("b", true)}, true, false},
		"a learner is no vote":                        {[]Member{voter("a", true), voter("b", true), learner}, true, false},
		"nobody agreed":                               {[]Member{voter("a", true), voter("b", true), voter("c", true)}, false, false},
		"it has no member":                            {[]Member{voter("b", true), voter("c", true)}, true, true},
		"one of nobody may be its own":                {[]Member{voter("", true), voter("b", true), voter("c", false)}, true, false},
		"one of nobody may be its own, or three":      {[]Member{voter("", true), voter("b", true), voter("c", true)}, true, true},
		"one of nobody is another one":                {[]Member{voter("a", false), voter("", true), voter("c", true)}, true, true},
		"nothing is known":                            {nil, false, false},
	} {
		NewWithT(t).Expect(Membership{Known: true, Agreed: c.agreed, Members: c.members}.StandsWithout("a")).
			To(Equal(c.want), why)
	}
}
