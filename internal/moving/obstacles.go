// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package moving

import (
	"fmt"
	"slices"
)

// Reasons why a move would not go well.
const (
	// Deleting: the move would bring back what is being deleted.
	Deleting = "Deleting"
	// HostsElsewhere: hosts of the Cluster's Machines are in another namespace and would stay behind.
	HostsElsewhere = "HostsElsewhere"
	// ConsumersElsewhere: hosts of the namespace would move away from Machines of another one.
	ConsumersElsewhere = "ConsumersElsewhere"
	// ForeignOwner: an object with an owner that does not move is left behind.
	ForeignOwner = "ForeignOwner"
	// SecretsStay: Secrets that are needed would be left behind.
	SecretsStay = "SecretsStay"
	// RecoveryInFlight: a recovery of etcd is under way.
	RecoveryInFlight = "RecoveryInFlight"
	// NeighborPaused: clusterctl refuses to move a namespace with a paused Cluster.
	NeighborPaused = "NeighborPaused"
	// NotProvisioned: clusterctl refuses a Cluster without infrastructure or control plane.
	NotProvisioned = "NotProvisioned"
	// MachinesWithoutNode: clusterctl refuses Machines without a node.
	MachinesWithoutNode = "MachinesWithoutNode"
	// DeletionInFlight: Machines are being deleted.
	DeletionInFlight = "DeletionInFlight"
	// HooksInFlight: a lifecycle hook of the topology waits for an answer.
	HooksInFlight = "HooksInFlight"
	// SharedClusterClass: a ClusterClass stays behind, paused, for Clusters of another namespace.
	SharedClusterClass = "SharedClusterClass"
)

// Obstacle is in the way of a move.
type Obstacle struct {
	Reason string
	// Message is one sentence that names the objects and says what to do.
	Message string
	// Keeps says that something would be lost, so that block-move stays. Others clusterctl refuses by itself, or they cost
	// no more than what the sentence says.
	Keeps bool
}

// Obstacles in the way of a move of the Cluster, the most important ones first.
func Obstacles(s Site) []Obstacle {
	var found obstacles
	found.ofHosts(s)
	if len(s.Secrets) > 0 {
		found.add(true, SecretsStay, []string{s.Secrets[0].Problem}, "%s%s", andMore(len(s.Secrets)-1, "Secret"))
	}
	if s.Recovery != "" {
		found.add(true, RecoveryInFlight, []string{s.Recovery}, "recovery %s of etcd is under way: wait until it is complete")
	}
	clusterName := func(c Cluster) string { return c.Name }
	if !s.Cluster.Paused {
		found.add(false, NeighborPaused, named(s.Neighbors, func(c Cluster) bool { return c.Paused }, clusterName),
			"Cluster %s of the namespace is paused, and clusterctl moves no paused Cluster: unpause it (spec.paused) when you "+
				"know why it is")
	}
	found.add(false, NotProvisioned,
		named(s.all(), func(c Cluster) bool { return !c.Ready && !c.Deleting }, clusterName),
		"Cluster %s has no initialized control plane yet: wait for it")
	found.ofMachines(s)
	if s.Cluster.Hooks != "" {
		found.add(false, HooksInFlight, []string{s.Cluster.Hooks},
			"lifecycle hook %s of Cluster %s waits for an answer: let it end", s.Cluster.Name)
	}
	if s.Cluster.SharedWith != "" {
		found.add(false, SharedClusterClass, []string{s.Cluster.Class},
			"ClusterClass %s is copied and its original stays behind paused (%s): take cluster.x-k8s.io/paused off the "+
				"original afterwards", s.Cluster.SharedWith)
	}
	return found
}

type obstacles []Obstacle

// add an obstacle about objects, when there are any. The format takes their names first.
func (o *obstacles) add(keeps bool, reason string, names []string, format string, args ...any) {
	if len(names) > 0 {
		*o = append(*o, Obstacle{Reason: reason, Keeps: keeps,
			Message: fmt.Sprintf(format, append([]any{listed(names)}, args...)...)})
	}
}

// ofHosts adds what keeps objects from coming along, or from going: deletions, and hosts and owners elsewhere.
func (o *obstacles) ofHosts(s Site) {
	ours := func(h Host) bool { return h.Namespace == s.Namespace }
	o.add(true, Deleting,
		named(s.all(), func(c Cluster) bool { return c.Deleting }, func(c Cluster) string { return c.Name }),
		"Cluster %s is being deleted, and would come back: wait until it is gone")
	o.add(true, Deleting, named(s.Hosts, func(h Host) bool { return ours(h) && h.Deleting }, hostName),
		"QuoinHost %s is being deleted, and would come back: delete the Machine that has it and wait until it is gone")
	o.add(true, HostsElsewhere, named(s.Hosts, func(h Host) bool {
		return !ours(h) && h.Consumer != nil && h.Consumer.Cluster == s.Cluster.Name
	}, func(h Host) string { return h.Namespace + "/" + h.Name }),
		"QuoinHost %s would stay behind, because a move takes namespace %s only: replace the Machines there by such on "+
			"hosts of this namespace", s.Namespace)
	o.add(true, ConsumersElsewhere, named(s.Hosts, func(h Host) bool {
		return ours(h) && h.Consumer != nil && h.Consumer.Namespace != s.Namespace
	},
		func(h Host) string {
			return fmt.Sprintf("%s (of Machine %s/%s)", h.Name, h.Consumer.Namespace, h.Consumer.Machine)
		}),
		"QuoinHost %s would move away from its Machine: replace that Machine by one on another host")
	o.add(true, ForeignOwner, s.foreign(),
		"%s would stay behind, because a move never takes an object whose owner it does not take: remove the owner reference")
}

// ofMachines adds what clusterctl waits for, or does not move.
func (o *obstacles) ofMachines(s Site) {
	o.add(false, MachinesWithoutNode, named(s.Machines, func(m Machine) bool {
		return !m.Node && !m.Deleting && !m.Ahead
	}, machineName),
		"Machine %s has no node yet, and clusterctl moves none without: wait for it, or delete it")
	o.add(false, MachinesWithoutNode, named(s.Machines, func(m Machine) bool {
		return !m.Node && !m.Deleting && m.Ahead
	}, machineName),
		"Machine %s was made ahead and has no node, and clusterctl moves none without: let the rollout end, or delete it")
	o.add(false, DeletionInFlight, named(s.Machines, func(m Machine) bool { return m.Deleting }, machineName),
		"Machine %s is being deleted: wait until it is gone")
}

// foreign names the objects that have an owner outside of what a move takes.
func (s Site) foreign() []string {
	owned := func(name, owner string) string { return fmt.Sprintf("%s (owner %s)", name, owner) }
	names := named(s.Hosts, func(h Host) bool { return h.Namespace == s.Namespace && h.Owner != "" },
		func(h Host) string { return owned("QuoinHost "+h.Name, h.Owner) })
	names = append(names, named(s.Machines, func(m Machine) bool {
		return m.Owner != ""
	}, func(m Machine) string { return owned("Machine "+m.Name, m.Owner) })...)
	return append(names, named(s.Objects, func(o Object) bool {
		return o.Owner != ""
	}, func(o Object) string { return owned(o.Name, o.Owner) })...)
}

// andMore counts what a sentence about the first one leaves out.
func andMore(n int, kind string) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(" (and %d more %ss)", n, kind)
}

func machineName(m Machine) string { return m.Name }

// Command is what moves the namespace, and which Clusters it takes.
func Command(s Site) string {
	names := named(s.all(), func(Cluster) bool { return true }, func(c Cluster) string { return c.Name })
	slices.Sort(names)
	return fmt.Sprintf("clusterctl move -n %s --to-kubeconfig=<file> takes Cluster %s with all QuoinHosts of the "+
		"namespace", s.Namespace, listed(names))
}
