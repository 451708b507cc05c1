// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"fmt"
	"strings"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
)

// Verdict is the answer to "may the host be touched", with the reason when it may not.
type Verdict struct {
	Allowed         bool
	Reason, Message string
}

// Release says whether the host of a QuoinMachine that is being deleted may be reset. machine is the one that owns it,
// or nil when it does not exist any more, which must be known from the API server itself.
//
// A QuoinMachine is deleted by the controller of its Machine, after the drain and the hooks. Everybody else who deletes
// it comes too early: a person, a garbage collector that deletes a Machine's dependents first, or whoever stripped a
// hook.
//
//   - A Machine that is not being deleted keeps its host, whatever becomes of the QuoinMachine.
//   - Entries of spec.lifecycleHooks hold always, also where Cluster API would skip their annotation.
//   - Pre-terminate annotations hold as they hold in Cluster API.
//   - Pre-drain annotations hold until Cluster API is past them: it skips those of a Machine without a node and of a
//     Cluster
//     that is being deleted, and who wrote only an annotation has been told so.
func Release(quoinMachine *infrav1.QuoinMachine, machine *clusterv1.Machine) Verdict {
	if _, moving := quoinMachine.Annotations[clusterctlv1.DeleteForMoveAnnotation]; moving {
		return Verdict{Reason: infrav1.MachineInUseReason,
			Message: "the QuoinMachine was moved to another management cluster, which has its host now"}
	}
	if machine != nil && belongsToAnother(quoinMachine, machine) {
		machine = nil
	}
	if machine != nil && machine.DeletionTimestamp.IsZero() {
		return Verdict{Reason: infrav1.MachineInUseReason,
			Message: fmt.Sprintf("the QuoinMachine is being deleted, but Machine %s/%s is not: "+
				"nothing is done to the host. Delete the Machine, which takes both away in order", machine.Namespace, machine.Name)}
	}
	var held []string
	for _, point := range []Point{PreDrain, PreTerminate} {
		annotated := machine
		if point == PreDrain && annotated != nil && pastDrain(annotated) {
			annotated = nil
		}
		if hooks := Hooks(point, quoinMachine, annotated); len(hooks) > 0 {
			held = append(held, fmt.Sprintf("%s %s", point.word(), join(hooks)))
		}
	}
	if len(held) > 0 {
		return Verdict{Reason: infrav1.MachineHooksHoldReason, Message: "the host is kept by lifecycle hooks: " +
			strings.Join(held, "; ")}
	}
	return Verdict{Allowed: true}
}

// belongsToAnother reports whether the Machine has the name of the one that owned the QuoinMachine, and other
// infrastructure.
func belongsToAnother(quoinMachine *infrav1.QuoinMachine, machine *clusterv1.Machine) bool {
	name := machine.Spec.InfrastructureRef.Name
	return name != "" && name != quoinMachine.Name
}

func (p Point) word() string {
	if p == PreDrain {
		return "pre-drain"
	}
	return "pre-terminate"
}

// join names hooks for a sentence, and keeps it short.
func join(hooks []Hook) string {
	const most = 5
	var names []string
	for i, hook := range hooks {
		if i == most {
			names = append(names, fmt.Sprintf("and %d more", len(hooks)-most))
			break
		}
		names = append(names, hook.String())
	}
	return strings.Join(names, ", ")
}
