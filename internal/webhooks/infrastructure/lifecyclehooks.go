// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package infrastructure

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
)

// controlPlaneOwner begins the owner of the hook by which a control plane keeps the host of an etcd member.
const controlPlaneOwner = "QuoinControlPlane/"

// ownHookRefused says who alone has a hook of that name.
const ownHookRefused = "the name " + controlplanev1.HookName +
	" is that of the hook by which a QuoinControlPlane keeps the host of an etcd " +
	"member: it is set and taken away by its controller. Choose another name"

// validateHooks refuses the control plane's own hook where it was not set by a control plane. Two hooks of one name at
// a point are refused by the schema.
func validateHooks(path *field.Path, machine *infrav1.QuoinMachine) field.ErrorList {
	_, ofControlPlane := machine.Labels[clusterv1.MachineControlPlaneLabel]
	return refuseOwnHook(path, &machine.Spec, func(owner string) bool {
		return ofControlPlane && strings.HasPrefix(owner, controlPlaneOwner)
	})
}

// validateTemplateHooks refuses it in every template: whatever takes a hook away from a machine must not find it there
// again.
func validateTemplateHooks(path *field.Path, spec *infrav1.QuoinMachineSpec) field.ErrorList {
	return refuseOwnHook(path, spec, func(string) bool { return false })
}

func refuseOwnHook(path *field.Path, spec *infrav1.QuoinMachineSpec, allowed func(owner string) bool) field.ErrorList {
	var reasons field.ErrorList
	path = path.Child("lifecycleHooks")
	for i, hook := range spec.LifecycleHooks.PreDrain {
		if hook.Name == controlplanev1.HookName {
			reasons = append(reasons, field.Forbidden(path.Child("preDrain").Index(i).Child("name"), ownHookRefused))
		}
	}
	for i, hook := range spec.LifecycleHooks.PreTerminate {
		if hook.Name == controlplanev1.HookName && !allowed(hook.Owner) {
			reasons = append(reasons, field.Forbidden(path.Child("preTerminate").Index(i).Child("name"), ownHookRefused))
		}
	}
	return reasons
}

// validateNoNewHooks refuses to add hooks to a machine whose deletion has begun: Cluster API may be past the point, and
// who relies on a hook must know that it is too late. Hooks can be taken away at any time.
func validateNoNewHooks(before, after *infrav1.QuoinMachine) field.ErrorList {
	if after.DeletionTimestamp.IsZero() && !machineIsDeleting(before) {
		return nil
	}
	path := field.NewPath("spec", "lifecycleHooks")
	reasons := newHooks(path.Child("preDrain"), before.Spec.LifecycleHooks.PreDrain, after.Spec.LifecycleHooks.PreDrain)
	return append(reasons, newHooks(path.Child("preTerminate"), before.Spec.LifecycleHooks.PreTerminate,
		after.Spec.LifecycleHooks.PreTerminate)...)
}

func newHooks(path *field.Path, before, after []infrav1.LifecycleHook) field.ErrorList {
	var reasons field.ErrorList
	for i, hook := range after {
		if !slices.ContainsFunc(before, func(old infrav1.LifecycleHook) bool { return old.Name == hook.Name }) {
			reasons = append(reasons, field.Forbidden(path.Index(i), fmt.Sprintf(
				"the deletion of the Machine has begun, and hook %s would come too late: hooks can only be taken away now",
				hook.Name)))
		}
	}
	return reasons
}

// machineIsDeleting tells by the machine's own status that the Machine which owns it is being deleted.
func machineIsDeleting(machine *infrav1.QuoinMachine) bool {
	drained := conditions.Get(machine, infrav1.MachineDrainedCondition)
	return drained != nil && drained.Reason != infrav1.MachineNotDeletingReason
}
