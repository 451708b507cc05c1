// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"slices"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/controllers/quoincontrolplane/desired"
)

// LacksHold reports whether the host of a Machine must be held and is not.
func (inv *Inventory) LacksHold(infra *infrav1.QuoinMachine) bool {
	return desired.StackedEtcd(inv.ControlPlane) && !HostHeld(infra) && infra.DeletionTimestamp.IsZero()
}

// HostHeld reports whether our hold is on the QuoinMachine.
func HostHeld(infra *infrav1.QuoinMachine) bool {
	return infra != nil && slices.ContainsFunc(infra.Spec.LifecycleHooks.PreTerminate, Ours)
}

// Ours reports whether the hook is that of a control plane.
func Ours(hook infrav1.LifecycleHook) bool { return hook.Name == controlplanev1.HookName }

// HasHook reports whether the annotation of a deletion hook is on the Machine.
func HasHook(machine *clusterv1.Machine, hook string) bool {
	_, has := machine.Annotations[hook]
	return has
}

// atTermination reports whether nothing holds the Machine any more but what comes after its drain: pre-terminate hooks,
// or, of a Machine whose hooks were stripped, the hold on its QuoinMachine.
func atTermination(machine *clusterv1.Machine, infra *infrav1.QuoinMachine) bool {
	if !conditions.IsTrue(machine, clusterv1.MachineDeletingCondition) {
		return false
	}
	switch conditions.GetReason(machine, clusterv1.MachineDeletingCondition) {
	case clusterv1.MachineDeletingWaitingForPreTerminateHookReason:
		return true
	case clusterv1.MachineDeletingWaitingForInfrastructureDeletionReason:
		return HostHeld(infra)
	}
	return false
}
