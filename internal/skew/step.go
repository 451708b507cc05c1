// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package skew

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/Masterminds/semver/v3"
)

// LeftBehind says which components would be too old for a control plane of the target version (R9, S1-17), and warns of
// the kubelets that have to be lifted before the minor that follows (R12, S1-24). A target that is no single step is
// not judged: its way is somebody else's to find.
func LeftBehind(policies []Policy, world World, target string) (refusal, warning string) {
	to, err := Parse(target)
	servers := parsed(world.APIServers)
	if err != nil || len(servers) == 0 {
		return "", ""
	}
	refusal = Summary(TooOld(policies, world, to))
	if refusal == "" && later(to, servers[0]) && distance(to, servers[0]) == 1 {
		workers := slices.DeleteFunc(slices.Clone(world.Components), func(r Running) bool { return r.Component != Kubelet })
		done := World{APIServers: []string{target}, Components: workers}
		ordinary, _ := Split(policies)
		following := to.IncMinor()
		if then := Summary(TooOld(ordinary, done, &following)); then != "" {
			warning = fmt.Sprintf("the minor after %s will need newer workers: %s", target, then)
		}
	}
	return refusal, warning
}

// TooOld lists the components that would be too old once an API server had the target version. What is no worse by that
// is no reason to keep a control plane from it: bounds count minors, so nothing gets worse beside a further API server
// of a minor that one has already, also of another patch and while others are of the minor before.
func TooOld(policies []Policy, world World, target *semver.Version) []Violation {
	var behind []Violation
	servers := parsed(world.APIServers)
	for _, policy := range policies {
		before := map[[2]string]bool{}
		switch minors := policy.scale(world); {
		case minors.distance(target, servers[0]) > 1:
			continue
		case minors.distance(target, last(servers)) > 0: // the first API server of its minor
		case policy.Distribution == nil:
			continue
		default: // a patch may bring a kubelet off the list of its cluster's release
			for _, violation := range policy.Check(world) {
				before[violation.key()] = true
			}
		}
		behind = append(behind, slices.DeleteFunc(policy.CheckStep(world, text(target)), func(violation Violation) bool {
			return violation.Component == "" || violation.Ahead || before[violation.key()]
		})...)
	}
	return behind
}

// key is the same for violations of one rule by one object.
func (v Violation) key() [2]string { return [2]string{string(v.Rule), v.object} }

// Target says what keeps a control plane from the target version beside its own way there (ControlPlaneStep): what a
// distribution has to say, and workers that would be LeftBehind. It is judged as well before anything runs.
func Target(policies []Policy, world World, target string) (refusal, warning string) {
	refusal, newest := Distributed(policies, world, target)
	if refusal != "" {
		return refusal, ""
	}
	refusal, behind := LeftBehind(policies, world, target)
	return refusal, cmp.Or(behind, newest)
}

// Distributed is what distributions have to say of the target version. Components are not asked: LeftBehind is for
// them.
func Distributed(policies []Policy, world World, target string) (refusal, warning string) {
	var refused []Violation
	world.Components = nil
	_, distributions := Split(policies)
	for _, policy := range distributions {
		refused = append(refused, policy.CheckStep(world, target)...)
		if to, err := Parse(target); err == nil && world.Estate != nil {
			if newest := world.Estate.Catalog.newest(to); newest != "" {
				warning = fmt.Sprintf("%s is a later patch than %s: it is better to go there (%s)",
					newest, target, policy.Distribution.Newest)
			}
		}
	}
	return Summary(refused), warning
}
