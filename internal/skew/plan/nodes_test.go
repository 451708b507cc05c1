// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew"
)

// cluster is a model of one, node by node. Nothing of it is shared with what makes plans.
type cluster struct {
	control []node
	pools   [][]node
	stays   []bool
	others  []node // of no pool; nothing raises them
	proxy   string // of the DaemonSet; empty without one
	// forbids is what a distribution has against it; nil without one.
	forbids func(cluster) string
}

type node struct{ kubelet, proxy string }

func (c cluster) clone() cluster {
	c.control, c.pools, c.others = slices.Clone(c.control), slices.Clone(c.pools), slices.Clone(c.others)
	for i := range c.pools {
		c.pools[i] = slices.Clone(c.pools[i])
	}
	return c
}

// state is the cluster as a request sees it.
func (c cluster) state() State {
	state := State{}
	for _, n := range c.control {
		state.APIServers = append(state.APIServers, n.kubelet)
	}
	for i, pool := range c.pools {
		seen := Pool{Object: fmt.Sprint("pool ", i), Stays: c.stays[i]}
		for _, n := range pool {
			seen.Versions = append(seen.Versions, n.kubelet)
		}
		state.Pools = append(state.Pools, seen)
	}
	for _, n := range c.others {
		state.Others = append(state.Others, skew.Running{Component: skew.Kubelet, Version: n.kubelet, Object: "Machine lone"})
	}
	if c.proxy != "" {
		state.KubeProxy = []string{c.proxy}
	}
	return state
}

// illegal is what the policies do not allow now.
func (c cluster) illegal(policies []skew.Policy) string {
	if c.forbids != nil {
		if why := c.forbids(c); why != "" {
			return why
		}
	}
	world := skew.World{}
	run := func(running skew.Running) { world.Components = append(world.Components, running) }
	for _, n := range c.control {
		world.APIServers = append(world.APIServers, n.kubelet)
		for _, local := range []skew.Component{skew.Kubelet, skew.ControllerManager, skew.Scheduler} {
			run(skew.Running{Component: local, Version: n.kubelet, APIServer: n.kubelet, Object: "control"})
		}
	}
	for _, n := range slices.Concat(append(slices.Clone(c.pools), c.others)...) {
		run(skew.Running{Component: skew.Kubelet, Version: n.kubelet, Object: "worker"})
	}
	for _, n := range slices.Concat(c.nodes()...) {
		if n.proxy != "" {
			run(skew.Running{Component: skew.KubeProxy, Version: n.proxy, Kubelet: n.kubelet, Object: "node"})
		}
	}
	for _, policy := range policies {
		if violations := policy.Check(world); len(violations) > 0 {
			return skew.Summary(violations)
		}
	}
	return ""
}

// nodes are all, each by its place.
func (c cluster) nodes() [][]node { return append(slices.Clone(c.pools), c.control, c.others) }

// roll replaces nodes one by one, with a spare first or by removing first, and tells what was illegal on the way.
func (c *cluster) roll(policies []skew.Policy, nodes *[]node, to string, surge bool) string {
	news := []node(nil)
	for olds := slices.Clone(*nodes); len(olds) > 0; olds = olds[1:] {
		if surge || len(olds)+len(news) == 1 { // the only API server is never removed first
			*nodes = append(slices.Clone(olds), append(news, node{to, c.proxy})...)
			if why := c.illegal(policies); why != "" {
				return why
			}
		}
		news = append(news, node{to, c.proxy})
		*nodes = append(slices.Clone(olds[1:]), news...)
		if why := c.illegal(policies); why != "" {
			return why
		}
	}
	return ""
}

// run does a step, node by node.
func (c *cluster) run(policies []skew.Policy, step Step, surge bool) string {
	switch step.Raises {
	case ControlPlane:
		for _, n := range c.control {
			if err := skew.ControlPlaneStep(n.kubelet, step.To); err != nil {
				return err.Error()
			}
		}
		return c.roll(policies, &c.control, step.To, surge)
	case Workers:
		at := 0
		if _, err := fmt.Sscanf(step.Pool, "pool %d", &at); err != nil {
			return err.Error()
		}
		return c.roll(policies, &c.pools[at], step.To, surge)
	}
	if c.proxy == "" {
		return ""
	}
	c.proxy = step.To
	for _, nodes := range c.nodes() {
		for i := range nodes {
			nodes[i].proxy = step.To
			if why := c.illegal(policies); why != "" {
				return why
			}
		}
	}
	return ""
}

// there reports whether all that has to run the target does.
func (c cluster) there(target string) bool {
	for _, n := range c.control {
		if n.kubelet != target {
			return false
		}
	}
	if c.proxy != "" && c.proxy != target {
		return false
	}
	for i, pool := range c.pools {
		for _, n := range pool {
			if !c.stays[i] && skew.Older(n.kubelet, target) {
				return false
			}
		}
	}
	return true
}

// key tells states apart as far as moves can.
func (c cluster) key() string {
	texts := []string{c.proxy}
	for _, nodes := range append([][]node{c.control}, c.pools...) {
		var versions []string
		for _, n := range nodes {
			versions = append(versions, n.kubelet)
		}
		slices.Sort(versions)
		texts = append(texts, strings.Join(slices.Compact(versions), "+"))
	}
	return strings.Join(texts, " ")
}

// shortest is how many steps of control plane and workers the target takes, found by trying all of them; -1 when none
// leads there in fewer than most. Kubelets that go back are not tried: they would only have to come again.
func (c cluster) shortest(policies []skew.Policy, known []string, target string, most int) int {
	frontier, seen := []cluster{c}, map[string]bool{}
	lagging := c.clone()
	if lagging.run(policies, Step{Raises: Addons, To: lagging.control[0].kubelet}, true) == "" {
		frontier = append(frontier, lagging)
	}
	for length := 0; length < most && len(frontier) > 0; length++ {
		var next []cluster
		for _, now := range frontier {
			if now.there(target) {
				return length
			}
			for _, then := range now.moves(policies, known) {
				if key := then.key(); !seen[key] {
					seen[key] = true
					next = append(next, then)
				}
			}
		}
		frontier = next
	}
	return -1
}

// moves are the states that one legal step leads to.
func (c cluster) moves(policies []skew.Policy, known []string) []cluster {
	var all []cluster
	try := func(steps ...Step) {
		then := c.clone()
		for _, step := range steps {
			if then.run(policies, step, true) != "" {
				return
			}
		}
		all = append(all, then)
	}
	for _, version := range known {
		try(Step{Raises: ControlPlane, To: version}, Step{Raises: Addons, To: version})
		for i, pool := range c.pools {
			if slices.ContainsFunc(pool, func(n node) bool { return skew.Older(n.kubelet, version) }) {
				try(Step{Raises: Workers, Pool: fmt.Sprint("pool ", i), To: version})
			}
		}
	}
	return all
}
