// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"cmp"
	"fmt"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
)

// beforeTermination decides about a Machine that may be drained, and whose host is kept.
func (l *leaver) beforeTermination(m Machine) (Action, Reason, string) {
	switch {
	case !m.Joined || m.Leave.Node.Gone:
		return Terminate, NoNode, "it has no Node"
	case m.Leave.Excluded:
		return Terminate, NotDrained, "it has the annotation " + clusterv1.ExcludeNodeDrainingAnnotation
	case m.Leave.began().IsZero():
		return "", "", ""
	}
	end := m.drainsSince().Add(l.pool.drain.timeout)
	over := !l.now.Before(end)
	if !over {
		l.again(end.Sub(l.now))
	}
	if m.Leave.Passed.IsZero() {
		return l.whileDraining(m, over)
	}
	return l.afterDrain(m, over)
}

// whileDraining decides while Cluster API drains the Node or waits for its volumes.
func (l *leaver) whileDraining(m Machine, over bool) (Action, Reason, string) {
	switch {
	case m.Leave.Node.away(l.now):
		return Skip, DrainGivenUp, "the kubelet of its Node does not answer"
	case !over, m.Leave.Node.Unreachable && l.pool.drain.onTimeout == quoinv1.RolloutDrainFail:
		return Draining, Evicting, m.Leave.keeps()
	case l.pool.drain.onTimeout == quoinv1.RolloutDrainProceed:
		return Skip, DrainGivenUp, fmt.Sprintf("its Node was not drained within %s, and onTimeout is Proceed. %s",
			l.pool.drain.timeout, m.Leave.keeps())
	case l.pool.drain.onTimeout == quoinv1.RolloutDrainForce:
		if action, reason, why := l.force(m); action != Terminate {
			return action, reason, why
		}
		return Skip, DrainGivenUp, "pods or volumes remain after pods were deleted. " + lost(m.Leave.Node.Pods)
	}
	return HoldTermination, DrainFailed, l.pool.failed
}

// afterDrain decides after Cluster API passed the drain: its time-out may have been over, or somebody deleted the
// QuoinMachine.
func (l *leaver) afterDrain(m Machine, over bool) (Action, Reason, string) {
	node := m.Leave.Node
	switch {
	case node.away(l.now):
		return Terminate, DrainGivenUp, "the kubelet of its Node does not answer"
	case !node.Listed && over && l.pool.drain.onTimeout != quoinv1.RolloutDrainFail:
		return Terminate, DrainGivenUp, "its pods cannot be read, and the time for its drain is over"
	case !node.Listed:
		l.again(podsRecheck)
		return HoldTermination, NodeUnknown, "its pods cannot be read, and are asked for again: " +
			cmp.Or(m.Leave.Says, "the Cluster does not answer")
	case len(node.Pods) == 0:
		// Cluster API waited for volumes before it passed, and does not for those of pods that were evicted since.
		emptied := anew(node.Emptied, l.Resumed)
		if end := emptied.Add(volumesTake); len(node.Volumes) > 0 && !emptied.IsZero() && l.now.Before(end) &&
			!m.Leave.VolumesExcluded {
			l.again(min(podsRecheck, end.Sub(l.now)))
			return HoldTermination, Evicting, fmt.Sprintf("volumes are attached to its Node: %s; it is terminated at %s all "+
				"the same", some(node.Volumes), utc(end))
		}
		since := anew(m.Leave.Passed, l.Resumed)
		if emptied.After(since) {
			since = emptied
		}
		if end := since.Add(l.pool.drain.delay); l.now.Before(end) {
			l.again(end.Sub(l.now))
			return HoldTermination, DrainDelay, "its Node is drained; it is terminated at " + utc(end)
		}
		return Terminate, Drained, "its Node is drained"
	case over && l.pool.drain.onTimeout == quoinv1.RolloutDrainProceed:
		return Terminate, DrainGivenUp, lost(node.Pods)
	case over && l.pool.drain.onTimeout == quoinv1.RolloutDrainForce:
		return l.force(m)
	}
	l.again(podsRecheck)
	if over && !node.Unreachable {
		return Evict, DrainFailed, l.pool.failed
	}
	return Evict, Evicting, m.Leave.keeps()
}

// force deletes the pods that remain, and gives up what does not end by that.
func (l *leaver) force(m Machine) (Action, Reason, string) {
	end := m.drainsSince().Add(l.pool.drain.timeout + volumesTake)
	asked := m.Leave.Node.Listed
	for _, pod := range m.Leave.Node.Pods {
		if pod.Ends.IsZero() {
			asked = false
		} else if stuck := pod.Ends.Add(stuckAfter); stuck.After(end) {
			end = stuck
		}
	}
	switch {
	case !l.now.Before(end):
		return Terminate, DrainGivenUp, lost(m.Leave.Node.Pods)
	case !asked && m.Leave.Node.Listed:
		l.again(podsRecheck)
		return DeletePods, DrainGivenUp, fmt.Sprintf("its Node was not drained within %s, and onTimeout is Force: %s",
			l.pool.drain.timeout, forced(m.Leave.Node.Pods))
	}
	l.again(min(podsRecheck, end.Sub(l.now)))
	return HoldTermination, Evicting, "pods that were deleted end, and volumes are detached: " + m.Leave.keeps()
}
