// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"fmt"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/quorum"
)

// APIServer is how far the API server of a Machine that is being deleted has left. Empty when nothing is known to serve
// there: the Machine never became a part of the control plane, or its host is gone.
type APIServer string

// How far an API server has left.
const (
	// APIServerServing: nobody has asked for its end.
	APIServerServing APIServer = "Serving"
	// APIServerLeaving: its host is to end it, and has not said that it did.
	APIServerLeaving APIServer = "Leaving"
	// APIServerLeft: it ended.
	APIServerLeft APIServer = "Left"
	// APIServerStays: its host could not end it, or did not for so long that nobody waits for it any more.
	APIServerStays APIServer = "Stays"
)

// stopAPIServer has the API server of a Machine leave before its etcd member does. Without a member it would hang, with
// every connection that clients hold to it, until its host is reset; and it can take itself out of the Service
// kubernetes only while etcd answers it. Nil when nothing has to be done or awaited: also when the member is dead, for
// then it hangs already.
func stopAPIServer(s Snapshot, machine Machine, member *quorum.Member) *Step {
	if s.dead(member) {
		return nil
	}
	switch machine.APIServer {
	case APIServerServing:
		return s.depart(machine, StopAPIServer, ReasonLeaving,
			"having the API server of Machine %s leave before its etcd member, without which it would hang", machine.Name)
	case APIServerLeaving:
		return s.waitFor(machine, ReasonAPIServerLeaves, "Machine %s is being deleted: waiting until its API server has left",
			machine.Name)
	}
	return nil
}

// removeDrained removes the member of a Machine that has nothing more to do.
func removeDrained(s Snapshot, machine Machine, member *quorum.Member) *Step {
	step := s.depart(machine, RemoveEtcdMember, ReasonLeaving, "removing the etcd member of Machine %s, which is drained",
		machine.Name)
	step.Member, step.RecheckAfter = member.ID, RecheckSoon
	if machine.APIServer == APIServerStays {
		step.Reason = ReasonAPIServerStays
		step.Message += fmt.Sprintf(", although its API server has not left: %s. Clients that are connected to it may hang "+
			"until its host is reset",
			machine.APIServerProblem)
	}
	return step
}
