// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/quorum"
)

// stopAPIServer has the API server of a Machine leave before its etcd member does. Without a member it would hang, with
// every connection that clients hold to it, until its host is reset; and it can take itself out of the Service
// kubernetes only while etcd answers it. Nil when nothing has to be done or awaited: also when the member is dead, for
// then it hangs already.
func stopAPIServer(s facts, machine controlplane.Machine, member *quorum.Member) *controlplane.Step {
	if s.dead(member) {
		return nil
	}
	switch machine.APIServer {
	case controlplane.APIServerServing:
		return s.depart(machine, controlplane.StopAPIServer, controlplane.ReasonLeaving,
			"having the API server of Machine %s leave before its etcd member, without which it would hang", machine.Name)
	case controlplane.APIServerLeaving:
		return s.waitFor(machine, controlplane.ReasonAPIServerLeaves,
			"Machine %s is being deleted: waiting until its API server has left", machine.Name)
	}
	return nil
}

// removeDrained removes the member of a Machine that has nothing more to do.
func removeDrained(s facts, machine controlplane.Machine, member *quorum.Member) *controlplane.Step {
	step := s.depart(machine, controlplane.RemoveEtcdMember, controlplane.ReasonLeaving,
		"removing the etcd member of Machine %s, which is drained", machine.Name)
	step.Member, step.RecheckAfter = member.ID, controlplane.RecheckSoon
	if machine.APIServer == controlplane.APIServerStays {
		step.Reason = controlplane.ReasonAPIServerStays
		step.Message += fmt.Sprintf(", although its API server has not left: %s. Clients that are connected to it may hang "+
			"until its host is reset", machine.APIServerProblem)
	}
	return step
}
