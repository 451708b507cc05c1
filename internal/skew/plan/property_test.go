// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew"
)

// question is a legal cluster with a target.
type question struct {
	cluster  cluster
	policies []skew.Policy
	known    []string
	target   string
}

func (q question) request() Request {
	return Request{State: q.cluster.state(), Target: q.target, Known: q.known, Policies: q.policies}
}

// drawn are questions on both sides of v1.25, where bounds change, about clusters that are legal whatever is drawn.
func drawn(t *rapid.T) question {
	q := question{}
	var err error
	names := rapid.SampledFrom([]string{"", "", "Kubernetes-1.24"}).Draw(t, "policies")
	if q.policies, err = skew.Policies(names); err != nil {
		t.Fatal(err)
	}
	low := rapid.IntRange(22, 28).Draw(t, "minor")
	version := func(minor int) string { return fmt.Sprintf("v1.%d.%d", minor, rapid.IntRange(0, 2).Draw(t, "patch")) }
	ahead := rapid.IntRange(0, 1).Draw(t, "mixed")
	c := cluster{}
	for i := range rapid.IntRange(1, 3).Draw(t, "members") {
		c.control = append(c.control, node{kubelet: version(low + ahead*(i%2))})
	}
	for range rapid.IntRange(0, 2).Draw(t, "pools") {
		var pool []node
		for range rapid.IntRange(1, 2).Draw(t, "workers") {
			pool = append(pool, node{kubelet: version(low - rapid.IntRange(0, 3).Draw(t, "behind"))})
		}
		c.pools, c.stays = append(c.pools, pool), append(c.stays, rapid.Bool().Draw(t, "stays"))
		if c.illegal(q.policies) != "" {
			c.pools[len(c.pools)-1] = []node{{kubelet: version(low)}}
		}
	}
	for range rapid.SampledFrom([]int{0, 0, 1, 2}).Draw(t, "of no pool") {
		c.others = append(c.others, node{kubelet: version(low - rapid.IntRange(0, 3).Draw(t, "behind"))})
		if c.illegal(q.policies) != "" {
			c.others[len(c.others)-1] = node{kubelet: version(low)}
		}
	}
	if rapid.Bool().Draw(t, "proxy") {
		proxied := c.clone()
		proxied.proxy = version(low - rapid.IntRange(0, 2).Draw(t, "proxy behind"))
		for _, nodes := range proxied.nodes() {
			for i := range nodes {
				nodes[i].proxy = proxied.proxy
			}
		}
		if proxied.illegal(q.policies) == "" {
			c = proxied
		}
	}
	q.cluster = c
	q.target = version(low + rapid.IntRange(0, 4).Draw(t, "further"))
	for minor := low; minor <= low+4; minor++ {
		for range rapid.SampledFrom([]int{1, 1, 1, 1, 2, 0}).Draw(t, "known") {
			q.known = append(q.known, version(minor))
		}
	}
	q.known = append(q.known, q.target)
	if why := c.illegal(q.policies); why != "" {
		t.Fatalf("the world is illegal to begin with: %s", why)
	}
	return q
}

// follow runs a plan to its end, node by node, and fails when something on the way is illegal.
func (q question) follow(t *rapid.T, p Plan) cluster {
	c := q.cluster.clone()
	for _, step := range p.Steps {
		if why := c.run(q.policies, step, rapid.Bool().Draw(t, "surge")); why != "" {
			t.Fatalf("%s: %s\n%s", step, why, p)
		}
		if slices.Contains(step.From, step.To) && len(step.From) == 1 {
			t.Fatalf("%s raises nothing\n%s", step, p)
		}
	}
	return c
}

// No sequence of steps of any plan from any legal state passes through an illegal skew, also not while nodes of a step
// are replaced; every plan ends at the target; none is longer than the shortest, and where there is none, there is
// none.
func TestPlansAreLegalEndAndAreShortest(t *testing.T) {
	planned, refused := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		q := drawn(t)
		request := q.request()
		p, err := For(request)
		versions := append(slices.Clone(q.known), q.cluster.state().APIServers...)
		if err != nil {
			refused++
			if found := q.cluster.shortest(q.policies, versions, q.target, 20); found >= 0 {
				t.Fatalf("%s, although %d steps lead there", err, found)
			}
			return
		}
		planned++
		if again, _ := For(request); again.String() != p.String() {
			t.Fatalf("two answers: %s and %s", p, again)
		}
		if end := q.follow(t, p); !end.there(q.target) {
			t.Fatalf("the plan ends at %v:\n%s", end, p)
		}
		length := 0
		for _, step := range p.Steps {
			if step.Raises != Addons {
				length++
			}
		}
		if found := q.cluster.shortest(q.policies, versions, q.target, length); found >= 0 {
			t.Fatalf("%d steps, where %d would do:\n%s", length, found, p)
		}
	})
	if planned == 0 || refused == 0 {
		t.Fatalf("%d planned and %d refused: the one or the other was not tried", planned, refused)
	}
}

// What Cluster API would do is legal when it is not refused, and a refusal that names other versions names some that
// are not.
func TestTopologiesAreLegalOrSentAnotherWay(t *testing.T) {
	planned, sent := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		q := drawn(t)
		if rapid.Bool().Draw(t, "unlisted") {
			q.known = nil
		}
		p, err := OfTopology(q.request())
		var refused *RefusedError
		switch {
		case err == nil:
			planned++
			if end := q.follow(t, p); !end.there(q.target) {
				t.Fatalf("the plan ends at %v:\n%s", end, p)
			}
		case !errors.As(err, &refused):
			t.Fatalf("%T: %s", err, err)
		case len(refused.Hops) > 0:
			sent++
			for _, hop := range refused.Hops {
				q.target = hop
				p, err := OfTopology(q.request())
				if err != nil {
					t.Fatalf("sent to %v, of which %s is refused too: %s", refused.Hops, hop, err)
				}
				q.cluster = q.follow(t, p)
			}
		}
	})
	if planned == 0 || sent == 0 {
		t.Fatalf("%d planned and %d sent another way: the one or the other was not tried", planned, sent)
	}
}
