// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"slices"
	"strings"
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
)

// Admission is the value of the annotation that admits the Machine.
func Admission(machine *clusterv1.Machine, now time.Time) string {
	return now.UTC().Format(time.RFC3339) + " " + string(machine.UID)
}

// AdmittedAt is since when the Machine may claim a host; zero when it may not. An admission names its Machine, so that
// one in a template admits nothing.
func AdmittedAt(machine *clusterv1.Machine) time.Time {
	return since(machine, quoinv1.RolloutAdmittedAnnotation)
}

// since is the time in an annotation that names its Machine; zero when it names another one.
func since(machine *clusterv1.Machine, annotation string) time.Time {
	at, uid, _ := strings.Cut(machine.Annotations[annotation], " ")
	since, err := time.Parse(time.RFC3339, at)
	if err != nil || uid != string(machine.UID) {
		return time.Time{}
	}
	return since
}

// Gated reports whether the Machine carries the readiness gate of rollouts.
func Gated(machine *clusterv1.Machine) bool {
	return slices.ContainsFunc(machine.Spec.ReadinessGates, ours)
}

// SetGate puts the readiness gate of rollouts on the Machine, or takes it off. A MachineSet that deletes one looks
// at Nodes and not at gates (machineset_deletion_order.go): the mark has it take one that does not count.
func SetGate(machine *clusterv1.Machine, on bool) {
	SetMark(machine, on)
	gates := slices.DeleteFunc(slices.Clone(machine.Spec.ReadinessGates), ours)
	if on {
		gates = append(gates, clusterv1.MachineReadinessGate{ConditionType: quoinv1.MachineRolloutValidatedCondition})
	}
	if len(gates) == 0 {
		gates = nil // an empty list is refused
	}
	machine.Spec.ReadinessGates = gates
}

func ours(gate clusterv1.MachineReadinessGate) bool {
	return gate.ConditionType == quoinv1.MachineRolloutValidatedCondition
}
