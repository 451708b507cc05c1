// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package skew

import (
	"slices"

	"github.com/Masterminds/semver/v3"
)

// Pool is the version that workers of one template are to have. It may be an earlier one than they have: new Machines
// take the place of the old ones, so a kubelet never goes back.
type Pool struct {
	// Object is the pool, for people: "MachineDeployment blue".
	Object  string
	Version string
	// ControlPlane is the version that the control plane is to have next; empty when that is not known.
	ControlPlane string
}

// Judge says what of it no next step of the control plane makes right (S0-23, S1-4, S1-21), nor of kube-proxy (S1-25),
// and for what its Machines have to wait. World is what runs; nothing is judged of a cluster without an API server.
func (p Pool) Judge(policies []Policy, world World) (refused, waits []Violation) {
	if _, err := Parse(p.Version); err != nil {
		return []Violation{{Rule: RuleInvalid, Component: Kubelet, message: saying("%s", err)}}, nil
	}
	kubelet := []Running{{Component: Kubelet, Version: p.Version, Object: p.Object}}
	servers := parsed(append([]string{p.ControlPlane}, world.APIServers...))
	if len(servers) == 0 {
		return nil, nil
	}
	for _, policy := range policies {
		refused = append(refused, policy.overtaken(p, world)...)
		next := policy.next(last(servers), world.Estate)
		tooNew := ahead(policy.Check(World{APIServers: []string{next}, Components: kubelet, Estate: world.Estate}))
		for _, violation := range policy.Check(World{APIServers: texts(servers), Components: kubelet, Estate: world.Estate}) {
			switch {
			case violation.Component == "" && violation.Rule != RuleCatalog: // the control plane's own business
			case violation.Ahead && !tooNew:
				waits = append(waits, violation)
			default:
				refused = append(refused, violation)
			}
		}
	}
	return refused, waits
}

// AskForProxy reports whether by one of the policies a kube-proxy may be too new for a kubelet that its API servers
// allow.
func AskForProxy(policies []Policy) bool {
	return slices.ContainsFunc(policies, func(policy Policy) bool {
		return slices.ContainsFunc(policy.Components, func(c Constraint) bool {
			return c.Kubelet != nil && c.Kubelet.Minors < c.Older.Minors
		})
	})
}

// overtaken lists the kube-proxies that are too new for the pool's kubelets: they never go back. Those that are too old
// follow their kubelets.
func (p Policy) overtaken(pool Pool, world World) []Violation {
	var found []Violation
	versions := reader{}
	kubelet := versions.read(pool.Version)
	for _, running := range world.Components {
		own := versions.read(running.Version)
		if running.Component != KubeProxy || running.Kept || own == nil || !later(own, kubelet) {
			continue
		}
		running.Kubelet = pool.Version
		for _, constraint := range p.Components {
			if constraint.Component == KubeProxy {
				found = append(found, constraint.check(running, versions, own, own, false)...) // no API server bounds it here
			}
		}
	}
	for i := range found {
		found[i].object = "DaemonSet kube-proxy beside " + pool.Object
	}
	return found
}

// next is the latest version that one step brings API servers of the newest version to.
func (p Policy) next(newest *semver.Version, estate *Estate) string {
	if p.Distribution == nil {
		following := newest.IncMinor()
		return text(&following)
	}
	return Newest(text(newest), estate.tool())
}

// ahead reports whether something is too new.
func ahead(violations []Violation) bool {
	for _, violation := range violations {
		if violation.Ahead {
			return true
		}
	}
	return false
}

func texts(versions []*semver.Version) []string {
	var all []string
	for _, version := range versions {
		all = append(all, text(version))
	}
	return all
}
