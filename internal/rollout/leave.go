// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"cmp"
	"time"

	"k8s.io/utils/ptr"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
)

// Leave is how a Machine leaves. Cluster API walks from the pre-drain hooks over drain and volumes to the pre-terminate
// hooks, and once it waited at those it never drains any more.
type Leave struct {
	// PreDrain and PreTerminate are the hooks of rollouts that the Machine carries.
	PreDrain, PreTerminate bool
	// Remediated Machines are replaced because they fail, and are held by nothing.
	Remediated bool
	// Excluded Machines are not drained by Cluster API, and nobody waits for volumes of those that are VolumesExcluded.
	Excluded, VolumesExcluded bool
	// Began is when Cluster API began to drain; zero when it did not.
	Began time.Time
	// Passed is when Cluster API came to the pre-terminate hooks; zero when it did not.
	Passed time.Time
	// Held is since when Cluster API waits at the pre-drain hooks; zero while it does not.
	Held time.Time
	// Says is what keeps the drain up, in the words of who drains.
	Says string
	// NodeName is empty while the Machine has no Node.
	NodeName string
	Node     Node
}

// Node of a Machine, as far as it was read.
type Node struct {
	// Known Nodes were read.
	Known bool
	// Gone Nodes do not exist.
	Gone bool
	// Unreachable Nodes have a kubelet that does not answer, since then where that is known: their pods never end.
	Unreachable           bool
	UnreachableSince      time.Time
	Unschedulable, Marked bool
	// Listed Nodes had their pods read.
	Listed bool
	// Says is what keeps these from being evicted, where Cluster API does not evict them.
	Says string
	// Volumes that are attached to the Node, by the names of their claims where these are known.
	Volumes []string
	// Pods that a drain still has to end.
	Pods []Pod
	// Emptied is when the last pods were seen after Cluster API had passed on; zero when none were.
	Emptied time.Time
}

// away reports whether the kubelet of the Node did not answer for so long that nobody waits for it.
func (n Node) away(now time.Time) bool {
	return n.Unreachable && !now.Before(n.UnreachableSince.Add(kubeletPatience))
}

// Pod that keeps a Node from being drained.
type Pod struct {
	// Name with its namespace.
	Name string
	// Owner is the kind and the name of its controller; empty when it has none.
	Owner   string
	Volumes int
	// Ends is when its grace period is over; zero while nobody asked it to end.
	Ends time.Time
}

// Actions about Machines that leave, or will.
const (
	// Guard puts the deletion hooks on.
	Guard Action = "Guard"
	// Unguard takes them off.
	Unguard Action = "Unguard"
	// Taint the Node.
	Taint Action = "Taint"
	// Untaint takes the taint off again.
	Untaint Action = "Untaint"
	// HoldDrain keeps the pre-drain hook.
	HoldDrain Action = "HoldDrain"
	// Drain cordons the Node, takes it out of load balancers and opens the pre-drain hook.
	Drain Action = "Drain"
	// Draining waits for Cluster API.
	Draining Action = "Draining"
	// Evict asks for what Cluster API does not ask any more, and keeps the pre-terminate hook.
	Evict Action = "Evict"
	// DeletePods deletes the pods that remain, and keeps the pre-terminate hook.
	DeletePods Action = "DeletePods"
	// Skip has Cluster API wait for pods and volumes no longer.
	Skip Action = "SkipDrain"
	// HoldTermination keeps the pre-terminate hook.
	HoldTermination Action = "HoldTermination"
	// Terminate opens the pre-terminate hook.
	Terminate Action = "Terminate"
)

// Reasons of what becomes of Machines that leave.
const (
	// DrainFailed: the Node was not drained in time.
	DrainFailed Reason = quoinv1.DrainFailedReason
	// DrainOff: the strategy says to drain and terminate nothing.
	DrainOff Reason = "DrainAndTerminateFalse"
	// Unavailable: as many Machines are missing as may be.
	Unavailable Reason = "MaxUnavailable"
	// Tainting: Nodes of the pool are tainted first.
	Tainting Reason = "Tainting"
	// Interval: another Machine of the pool was terminated just now.
	Interval Reason = "Interval"
	// DrainDelay: the Node was drained just now.
	DrainDelay Reason = "PostDrainDelay"
	// Evicting: pods remain.
	Evicting Reason = "Evicting"
	// NodeUnknown: the Node, or the bootstrap token of a Machine that is to become one, cannot be read.
	NodeUnknown Reason = "NodeUnknown"
	// DrainStarted: the Node is drained now.
	DrainStarted Reason = "DrainStarted"
	// Drained: no pod remains.
	Drained Reason = "Drained"
	// NoNode: there is nothing to drain.
	NoNode Reason = "NoNode"
	// NotDrained: an annotation says that the Machine is not drained.
	NotDrained Reason = "NotDrained"
	// DrainGivenUp: the time for the drain is over.
	DrainGivenUp Reason = "DrainTimeout"
	// Scheduled: the Machine is to be replaced.
	Scheduled Reason = "ScheduledForUpdate"
	// NotScheduled: the Machine is not to be replaced any more.
	NotScheduled Reason = "NotScheduledForUpdate"
	// Remediated: the Machine is replaced because it fails.
	Remediated Reason = "Remediated"
)

// drainRules are what holds for Machines of a pool that leave.
type drainRules struct {
	onTimeout                quoinv1.RolloutDrainTimeout
	timeout, delay, interval time.Duration
	// off: nothing is drained or terminated.
	off bool
}

// drainOf is how Machines of a pool leave; nil when the policy does not say.
func drainOf(drain *quoinv1.RolloutDrain, strategy *quoinv1.RolloutStrategy) *drainRules {
	off := strategy != nil && !ptr.Deref(strategy.DrainAndTerminate, true)
	if drain == nil && !off {
		return nil
	}
	asked := ptr.Deref(drain, quoinv1.RolloutDrain{})
	after := func(of *int32, unset int32) time.Duration { return seconds(ptr.To(ptr.Deref(of, unset))) }
	d := &drainRules{onTimeout: cmp.Or(asked.OnTimeout, quoinv1.RolloutDrainFail), off: off,
		timeout: after(asked.TimeoutSeconds, 900), delay: after(asked.PostDrainDelaySeconds, 5),
		interval: after(asked.IntervalSeconds, 15)}
	if d.onTimeout == quoinv1.RolloutDrainProceed {
		d.timeout = after(asked.TimeoutSeconds, 1200)
	}
	return d
}

// Guards reports whether the policy says how Machines of the MachineDeployment leave.
func Guards(policy *quoinv1.RolloutPolicySpec, name string, labels map[string]string) (bool, error) {
	place, err := Select(policy, name, labels)
	if err != nil || place < 0 {
		return false, err
	}
	drain := policy.Drain
	if len(policy.Groups) > 0 {
		drain = cmp.Or(policy.Groups[place].Drain, drain)
	}
	return drainOf(drain, StrategyOf(policy, place)) != nil, nil
}

// nothingToDrain reports whether Cluster API does not drain the Machine.
func (m Machine) nothingToDrain() bool {
	return !m.Joined || m.Leave.Excluded || m.Leave.Node.Gone
}

// guarded reports whether a hook of ours keeps the Machine.
func (m Machine) guarded() bool { return m.Leave.PreDrain || m.Leave.PreTerminate }

// began is when the time of a drain begins; zero while it does not.
func (l Leave) began() time.Time {
	if l.Began.IsZero() {
		return l.Passed
	}
	return l.Began
}

// drainsSince is when the time of the Machine's drain begins: with the drain, and anew after a pause, in which nobody
// evicts anything; zero while it is not drained.
func (m Machine) drainsSince() time.Time {
	return anew(m.Leave.began(), m.Resumed)
}

// Waited reports whether a Node that cannot be read or changed was waited for long enough before its drain, and after a
// pause of the policy.
func (l Leave) Waited(resumed, now time.Time) bool {
	since := l.Held
	if since.IsZero() {
		since = l.began() // nobody asked for the pre-drain hooks
	}
	return !since.IsZero() && !now.Before(anew(since, resumed).Add(patience))
}

// NeedsPods are the Machines whose pods have to be read before Plan is asked.
func NeedsPods(s State, policy *quoinv1.RolloutPolicySpec, now time.Time) []string {
	pools, err := arrange(s.Pools, policy)
	if err != nil {
		return nil
	}
	var names []string
	for i := range pools {
		for _, m := range pools[i].Machines {
			if pools[i].drain == nil || !m.Deleting || m.Leave.PreDrain || !m.Leave.PreTerminate || m.nothingToDrain() {
				continue
			}
			over := !m.Leave.Began.IsZero() && !now.Before(m.drainsSince().Add(pools[i].drain.timeout))
			if !m.Leave.Passed.IsZero() || over && pools[i].drain.onTimeout == quoinv1.RolloutDrainForce {
				names = append(names, m.Name)
			}
		}
	}
	return names
}

// keeps is what keeps a drain up.
func (l Leave) keeps() string {
	switch {
	case l.Says != "":
		return l.Says
	case len(l.Node.Pods) > 0:
		return "Pods remain: " + names(l.Node.Pods)
	}
	return "Cluster API does not say what it waits for"
}
