// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

// TestRoutesFollowNodes shows that a route appears with its node, moves with
// the node's address, and leaves with the node.
func TestRoutesFollowNodes(t *testing.T) {
	cases := []struct {
		name string
		have string
		want map[string]string
		runs []string
	}{
		{
			name: "a node joined",
			want: map[string]string{"10.244.1.0/24": "172.30.0.12"},
			runs: []string{"ip -4 route replace 10.244.1.0/24 via 172.30.0.12 proto 99"},
		},
		{
			name: "nothing changed",
			have: "10.244.1.0/24 via 172.30.0.12 dev eth0 \n",
			want: map[string]string{"10.244.1.0/24": "172.30.0.12"},
		},
		{
			name: "a node came back with another address, which starts like the old one",
			have: "10.244.1.0/24 via 172.30.0.12 dev eth0 \n",
			want: map[string]string{"10.244.1.0/24": "172.30.0.1"},
			runs: []string{"ip -4 route replace 10.244.1.0/24 via 172.30.0.1 proto 99"},
		},
		{
			name: "a node left",
			have: "10.244.1.0/24 via 172.30.0.12 dev eth0 \n",
			want: map[string]string{},
			runs: []string{"ip -4 route del 10.244.1.0/24 proto 99"},
		},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			g := NewWithT(t)
			var runs []string
			n := &network{run: func(name string, arguments ...string) (string, error) {
				line := name + " " + strings.Join(arguments, " ")
				if strings.Contains(line, "route show") {
					return c.have, nil
				}
				runs = append(runs, line)
				return "", nil
			}}
			g.Expect(n.route(c.want)).To(Succeed())
			g.Expect(runs).To(Equal(c.runs))
		})
	}
}

// TestWaitsForPodRange shows that nothing is configured before the node has
// its pod range: a configuration without one would make the node Ready.
func TestWaitsForPodRange(t *testing.T) {
	g := NewWithT(t)
	n := &network{self: "here", run: func(string, ...string) (string, error) {
		t.Fatal("nothing may be changed yet")
		return "", nil
	}}
	g.Expect(n.apply([]node{{Name: "here"}, {Name: "there", PodCIDR: "10.244.1.0/24", Address: "172.30.0.12"}})).
		To(MatchError(ContainSubstring("no pod range")))
}
