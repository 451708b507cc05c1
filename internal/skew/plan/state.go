// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"
	"strings"

	"github.com/Masterminds/semver/v3"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew"
)

// State is what runs in a cluster, as far as a plan depends on it. Versions that are none are left out.
type State struct {
	// APIServers are the versions of all API servers. The kubelet beside each is of the same version and talks to no other
	// (R17), as do its controller-manager and scheduler.
	APIServers []string
	// Pools are the workers that a plan may raise, in the order in which they are raised.
	Pools []Pool
	// KubeProxy are the versions of kube-proxy, which is one DaemonSet on every node: more than one while that is rolled
	// out, none where there is no kube-proxy and where nobody looked.
	KubeProxy []string
	// ProxyWaits: kube-proxy, whose versions nobody looked for, waits for kubelets to be of the API servers' minor.
	ProxyWaits bool
	// Others keep their versions whatever the plan: kubelets of no pool, a cloud-controller-manager, a
	// kube-proxy that is left alone.
	Others []skew.Running
	// Estate is what distributions judge by the pools that a plan raises; nil where none holds and where nobody looked.
	Estate *skew.Estate
}

// Pool is workers of one template.
type Pool struct {
	// Object is the pool, for people: "MachineDeployment blue".
	Object string
	// Versions are those of its kubelets.
	Versions []string
	// Stays says that the pool is raised no sooner and no further than skew forces it (S0-31, S1-21).
	Stays bool
}

// StateOf is what runs in a Cluster by its Machines. Workers of a MachineDeployment are a pool, in the order of their
// names; those of none stay what they are. Whether there is a kube-proxy Machines do not tell.
func StateOf(machines []clusterv1.Machine) State {
	world, pools := skew.WorldOf(machines), map[string]int{}
	state, kubelets := State{APIServers: world.APIServers}, world.Components
	for i := range machines {
		if util.IsControlPlaneMachine(&machines[i]) {
			continue
		}
		kubelet, deployment := kubelets[0], machines[i].Labels[clusterv1.MachineDeploymentNameLabel]
		kubelets = kubelets[1:]
		if deployment == "" {
			state.Others = append(state.Others, kubelet)
			continue
		}
		at, known := pools[deployment]
		if !known {
			at = len(state.Pools)
			pools[deployment] = at
			state.Pools = append(state.Pools, Pool{Object: "MachineDeployment " + deployment})
		}
		if !slices.Contains(state.Pools[at].Versions, kubelet.Version) {
			state.Pools[at].Versions = append(state.Pools[at].Versions, kubelet.Version)
		}
	}
	slices.SortFunc(state.Pools, func(a, b Pool) int { return strings.Compare(a.Object, b.Object) })
	return state
}

// WithAddons is the state with the add-ons that are among what runs in the cluster as pods; those that are kept are
// Others.
func (s State) WithAddons(inside []skew.Running) State {
	s.KubeProxy, s.Others = slices.Clone(s.KubeProxy), slices.Clone(s.Others)
	for _, running := range inside {
		switch {
		case running.Component != skew.KubeProxy:
		case running.Kept:
			s.Others = append(s.Others, running)
		case !slices.Contains(s.KubeProxy, running.Version):
			s.KubeProxy = append(s.KubeProxy, running.Version)
		}
	}
	return s
}

// after is the state when a step of the control plane or of its add-ons is done.
func (s State) after(step Step) State {
	to := []string{step.To}
	switch step.Raises {
	case ControlPlane:
		s.APIServers = to
	case Addons:
		if len(s.KubeProxy) > 0 {
			s.KubeProxy = to
		}
	}
	return s
}

// kubelets of all workers.
func (s State) kubelets() []skew.Running {
	var kubelets []skew.Running
	for _, pool := range s.Pools {
		kubelets = append(kubelets, pool.kubelets()...)
	}
	return kubelets
}

func (p Pool) kubelets() []skew.Running {
	var kubelets []skew.Running
	for _, version := range p.Versions {
		kubelets = append(kubelets, skew.Running{Component: skew.Kubelet, Version: version, Object: p.Object})
	}
	return kubelets
}

// workers are the kubelets of each version but the control plane's: of each the first.
func (s State) workers() []skew.Running {
	var kubelets []skew.Running
	for _, running := range slices.Concat(s.kubelets(), s.Others) {
		if running.Component == skew.Kubelet {
			kubelets = append(kubelets, running)
		}
	}
	byVersion := func(a, b skew.Running) int { return strings.Compare(a.Version, b.Version) }
	slices.SortStableFunc(kubelets, byVersion)
	return slices.CompactFunc(kubelets, func(a, b skew.Running) bool { return byVersion(a, b) == 0 })
}

// proxies is a kube-proxy of each version beside a kubelet of each: which node gets its new one when is the
// DaemonSet's.
func proxies(versions []string, kubelets []skew.Running) []skew.Running {
	var running []skew.Running
	for _, version := range versions {
		for _, kubelet := range kubelets {
			running = append(running, skew.Running{Component: skew.KubeProxy, Version: version,
				Object: "DaemonSet kube-proxy beside " + kubelet.Object, Kubelet: kubelet.Version})
		}
	}
	return running
}

// ProxyRefused says why no plan would give kube-proxy the version that all API servers have by then: beside which
// kubelets it may not have it. It is empty when it may, which it may where there is none, and where its minor stays.
func (s State) ProxyRefused(policies []skew.Policy, to string) string {
	if _, err := skew.Parse(to); err != nil {
		return err.Error()
	}
	s.APIServers = []string{to}
	return skew.Summary(s.judge(undistributed(policies), Step{Raises: Addons, From: s.KubeProxy, To: to}))
}

// judge lists what the policies do not allow at some time of a step of the control plane or its add-ons. Only what the
// step changes is judged, by the minor: what is wrong before it, and no worse by it, is no reason to keep a cluster
// from a patch or from its repair.
//
// Bounds rest on the oldest and the newest alone. So the first new one beside all old ones, and the last old one among
// new ones, are all that has to be looked at of a rollout, however many nodes it has.
func (s State) judge(policies []skew.Policy, step Step) []skew.Violation {
	from, to := parsed(step.From), []string{step.To}
	if step.Raises == ControlPlane {
		return s.judgeControlPlane(policies, step.To, from[len(from)-1])
	}
	if !changesMinor(from, parsed(to)[0]) {
		return nil
	}
	world := skew.World{APIServers: s.APIServers, Components: proxies(to, s.workers())}
	var found []skew.Violation
	for _, policy := range policies {
		found = append(found, policy.Check(world)...)
	}
	return found
}

// judgeControlPlane leaves out what is ahead of the API servers: raising them puts nothing ahead that was not before.
func (s State) judgeControlPlane(policies []skew.Policy, to string, newest *semver.Version) []skew.Violation {
	components := slices.Concat(s.kubelets(), s.Others, proxies(s.KubeProxy, append(s.workers(),
		skew.Running{Version: to, Object: "the control plane"})))
	changes := changesMinor([]*semver.Version{newest}, parsed([]string{to})[0])
	var found []skew.Violation
	for _, policy := range policies {
		for _, violation := range policy.CheckStep(skew.World{APIServers: s.APIServers, Components: components}, to) {
			if !violation.Ahead && (changes || violation.Component == "") {
				found = append(found, violation)
			}
		}
	}
	return found
}

// changesMinor reports whether any version is of another minor.
func changesMinor(from []*semver.Version, to *semver.Version) bool {
	return slices.ContainsFunc(from, func(v *semver.Version) bool { return v.Minor() != to.Minor() })
}

// parsed are the versions among the texts, from the oldest.
func parsed(texts []string) []*semver.Version {
	var versions []*semver.Version
	for _, text := range texts {
		if version, err := skew.Parse(text); err == nil {
			versions = append(versions, version)
		}
	}
	slices.SortFunc(versions, skew.Compare)
	return versions
}

// written are the versions as texts, each once.
func written(versions []*semver.Version) []string {
	var texts []string
	for _, version := range versions {
		texts = append(texts, text(version))
	}
	return slices.Compact(texts)
}

func text(v *semver.Version) string { return "v" + v.String() }
