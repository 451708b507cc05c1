// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package skew

import (
	"fmt"
	"slices"
	"strings"

	"github.com/Masterminds/semver/v3"
)

// Pool is a change of the version of workers that are made from one template.
type Pool struct {
	// Object is the pool, for people: "MachineDeployment blue".
	Object string
	// From is empty when the pool is new.
	From, To string
	// Recorded are versions that the pool had before, to which it may go back.
	Recorded []string
	// ControlPlane is the version that the control plane is to have; empty when that is not known.
	ControlPlane string
}

// Judge says what of the change no next step of the control plane makes right (S0-23, S1-4, S1-21), and for what its Machines
// have to wait. World is what runs; nothing is judged of a cluster without an API server.
func (p Pool) Judge(policies []Policy, world World) (refused, waits []Violation) {
	to, err := Parse(p.To)
	if err != nil {
		return []Violation{{Rule: RuleInvalid, Object: p.Object, Component: Kubelet, Message: err.Error()}}, nil
	}
	if from, err := Parse(p.From); err == nil && Compare(to, from) < 0 && !slices.Contains(p.Recorded, p.To) {
		refused = append(refused, Violation{Rule: RuleDowngrade, Object: p.Object, Component: Kubelet, Message: p.noWayBack()})
	}
	kubelet := []Running{{Component: Kubelet, Version: p.To, Object: p.Object}}
	servers := parsed(world.APIServers)
	if wanted, err := Parse(p.ControlPlane); err == nil {
		servers = append(servers, wanted)
		sortVersions(servers)
	}
	if len(servers) == 0 {
		return refused, nil
	}
	newest := last(servers)
	next := text(semver.New(newest.Major(), newest.Minor()+1, 0, "", ""))
	for _, policy := range policies {
		for _, violation := range policy.Check(World{APIServers: texts(servers), Components: kubelet}) {
			if violation.Component == "" {
				continue // the control plane's own business
			}
			if !violation.Ahead || len(policy.Check(World{APIServers: []string{next}, Components: kubelet})) > 0 {
				refused = append(refused, violation)
			} else {
				waits = append(waits, violation)
			}
		}
	}
	return refused, waits
}

func (p Pool) noWayBack() string {
	back := ""
	if len(p.Recorded) > 0 {
		back = ", or go back to one that it had: " + strings.Join(p.Recorded, ", ")
	}
	return fmt.Sprintf("version %s is older than %s, which %s has (S0-15): set %s or later%s", p.To, p.From, p.Object, p.From, back)
}

func texts(versions []*semver.Version) []string {
	var all []string
	for _, version := range versions {
		all = append(all, text(version))
	}
	return all
}
