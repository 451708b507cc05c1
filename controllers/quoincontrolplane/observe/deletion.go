// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"fmt"
	"slices"
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/controllers/quoincontrolplane/desired"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
)

// LacksHostHook reports whether our hook must be on the QuoinMachine of a Machine and is not.
func (inv *Inventory) LacksHostHook(infra *infrav1.QuoinMachine) bool {
	return desired.StackedEtcd(inv.ControlPlane) && !HasHostHook(infra) && infra.DeletionTimestamp.IsZero()
}

// HasHostHook reports whether our deletion hook is on the QuoinMachine.
func HasHostHook(infra *infrav1.QuoinMachine) bool {
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
// or, of a Machine whose hooks were stripped, our hook on its QuoinMachine.
func atTermination(machine *clusterv1.Machine, infra *infrav1.QuoinMachine) bool {
	if !conditions.IsTrue(machine, clusterv1.MachineDeletingCondition) {
		return false
	}
	switch conditions.GetReason(machine, clusterv1.MachineDeletingCondition) {
	case clusterv1.MachineDeletingWaitingForPreTerminateHookReason:
		return true
	case clusterv1.MachineDeletingWaitingForInfrastructureDeletionReason:
		return HasHostHook(infra)
	}
	return false
}

// fillAPIServers says in the decision's words how far the API servers of Machines in deletion have left.
func (o *Observation) fillAPIServers(timeout time.Duration) {
	for i := range o.State.Machines {
		machine := &o.State.Machines[i]
		if infra := o.QuoinMachines[machine.Name]; machine.Deleting && infra != nil && Provisioned(infra) {
			machine.APIServer, machine.APIServerProblem = apiServerOf(o.Hosts[machine.Name], infra, o.ago, timeout)
		}
	}
}

// apiServerOf reads what the host says, and nothing of a host that serves another claim by now or does not run any
// more.
func apiServerOf(
	host *infrav1.QuoinHost, infra *infrav1.QuoinMachine, ago func(time.Time) time.Duration, timeout time.Duration,
) (_ controlplane.APIServer, problem string) {
	if host == nil || host.Spec.ConsumerRef == nil || host.ProviderID() != infra.Spec.ProviderID || host.Fenced() {
		return "", ""
	}
	asked, err := time.Parse(time.RFC3339, infra.Annotations[infrav1.StopAPIServerAnnotation])
	silent, stopped := host.Status.UnreachableSince, conditions.Get(host, infrav1.HostAPIServerStoppedCondition)
	switch {
	case err == nil && isTrue(stopped):
		return controlplane.APIServerLeft, ""
	case silent != nil && ago(silent.Time) > timeout:
		return controlplane.APIServerStays, fmt.Sprintf("host %s does not answer", host.Name)
	case err != nil:
		return controlplane.APIServerServing, ""
	case stopped != nil && stopped.Reason == infrav1.HostStepFailedReason:
		return controlplane.APIServerStays, stopped.Message
	case ago(asked) > timeout:
		problem = fmt.Sprintf("host %s has not ended it within %s", host.Name, timeout)
		if stopped != nil && stopped.Message != "" {
			problem += " (" + stopped.Message + ")"
		}
		return controlplane.APIServerStays, problem
	}
	return controlplane.APIServerLeaving, ""
}
