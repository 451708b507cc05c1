// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"fmt"
	"time"

	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
)

// fillAPIServers says in the decision's words how far the API servers of Machines in deletion have left.
func (o *Observation) fillAPIServers(now time.Time, patience time.Duration) {
	for i := range o.State.Machines {
		machine := &o.State.Machines[i]
		if infra := o.QuoinMachines[machine.Name]; machine.Deleting && infra != nil && Provisioned(infra) {
			machine.APIServer, machine.APIServerProblem = apiServerOf(o.Hosts[machine.Name], infra, now, patience)
		}
	}
}

// apiServerOf reads what the host says, and nothing of a host that serves another claim by now or does not run any
// more.
func apiServerOf(
	host *infrav1.QuoinHost, infra *infrav1.QuoinMachine, now time.Time, patience time.Duration,
) (_ controlplane.APIServer, problem string) {
	if host == nil || host.Spec.ConsumerRef == nil || host.ProviderID() != infra.Spec.ProviderID || host.Fenced() {
		return "", ""
	}
	asked, err := time.Parse(time.RFC3339, infra.Annotations[infrav1.StopAPIServerAnnotation])
	silent, stopped := host.Status.UnreachableSince, conditions.Get(host, infrav1.HostAPIServerStoppedCondition)
	switch {
	case err == nil && isTrue(stopped):
		return controlplane.APIServerLeft, ""
	case silent != nil && now.Sub(silent.Time) > patience:
		return controlplane.APIServerStays, fmt.Sprintf("host %s does not answer", host.Name)
	case err != nil:
		return controlplane.APIServerServing, ""
	case stopped != nil && stopped.Reason == infrav1.HostStepFailedReason:
		return controlplane.APIServerStays, stopped.Message
	case now.Sub(asked) > patience:
		problem = fmt.Sprintf("host %s has not ended it within %s", host.Name, patience)
		if stopped != nil && stopped.Message != "" {
			problem += " (" + stopped.Message + ")"
		}
		return controlplane.APIServerStays, problem
	}
	return controlplane.APIServerLeaving, ""
}
