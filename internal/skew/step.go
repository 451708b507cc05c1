// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package skew

import "fmt"

// LeftBehind says which kubelets would be too old for a control plane of the target version (R9, S1-17), and warns of those
// that have to be lifted before the minor that follows (R12, S1-24). A target that is no single step is not judged: its way
// is somebody else's to find.
func LeftBehind(policies []Policy, world World, target string) (refusal, warning string) {
	to, err := Parse(target)
	if err != nil {
		return "", ""
	}
	servers := parsed(world.APIServers)
	if len(servers) == 0 || distance(to, servers[0]) > 1 || !later(to, servers[0]) {
		return "", "" // what is too old already is no reason to keep a control plane from a patch
	}
	refusal = tooOld(policies, world, target)
	if refusal == "" {
		done := World{APIServers: []string{target}, Components: world.Components}
		if then := tooOld(policies, done, fmt.Sprintf("v%d.%d.0", to.Major(), to.Minor()+1)); then != "" {
			warning = fmt.Sprintf("the minor after %s will need newer workers: %s", target, then)
		}
	}
	return refusal, warning
}

// tooOld describes the components that would be too old once an API server had the target version.
func tooOld(policies []Policy, world World, target string) string {
	var behind []Violation
	for _, policy := range policies {
		for _, violation := range policy.CheckStep(world, target) {
			if violation.Component != "" && !violation.Ahead {
				behind = append(behind, violation)
			}
		}
	}
	return Summary(behind)
}
