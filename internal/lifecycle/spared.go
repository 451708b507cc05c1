// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"maps"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
)

// spared is the value of skip-remediation when it is ours.
const spared = "waiting"

// Spared reports whether health checks leave the Machine alone at our word only, because it waits.
func Spared(machine *clusterv1.Machine) bool {
	_, ours := machine.Annotations[infrav1.SparedAnnotation]
	return ours && machine.Annotations[clusterv1.MachineSkipRemediationAnnotation] == spared
}

// Sparing is what the Machine's annotations become when it waits, or does not wait any more. An annotation that a user
// set, or gave another value, is left alone.
func Sparing(machine *clusterv1.Machine, waits bool) map[string]string {
	_, skips := machine.Annotations[clusterv1.MachineSkipRemediationAnnotation]
	after := maps.Clone(machine.Annotations)
	switch {
	case waits && !skips:
		if after == nil {
			after = map[string]string{}
		}
		after[clusterv1.MachineSkipRemediationAnnotation], after[infrav1.SparedAnnotation] = spared, ""
	case !waits:
		delete(after, infrav1.SparedAnnotation)
		if Spared(machine) {
			delete(after, clusterv1.MachineSkipRemediationAnnotation)
		}
	}
	return after
}
