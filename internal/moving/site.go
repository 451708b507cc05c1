// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package moving decides what clusterctl move may do with a Cluster: whether a move would go well, when the objects of
// a paused Cluster are quiet enough to be copied, and which free hosts are held meanwhile. It is pure.
//
// clusterctl (cmd/clusterctl/client/cluster/mover.go) reads the objects, pauses the Clusters of the namespace, waits
// for the annotation block-move to leave those objects that carried it when they were read, copies everything, and
// deletes the originals without a look at what they still do. So the annotation stands on every QuoinCluster from its
// first reconcile on, and leaves when nothing of the Cluster is in motion any more.
package moving

import (
	"fmt"
	"slices"
	"strings"
)

// Site is a Cluster and the namespace that it would move with.
type Site struct {
	// Namespace that a move takes as a whole.
	Namespace string
	// Cluster whose QuoinCluster is asked.
	Cluster Cluster
	// Neighbors are the other Clusters of the namespace.
	Neighbors []Cluster
	// Hosts of the namespace, and hosts elsewhere whose consumers are in it.
	Hosts []Host
	// Machines of the Cluster.
	Machines []Machine
	// Objects that belong to the Cluster and follow its pause: its QuoinMachines and its control plane.
	Objects []Object
	// Recovery is the id of the recovery of etcd that is under way; empty when there is none.
	Recovery string
	// Secrets that hosts of the namespace need and a move would leave behind.
	Secrets []Secret
}

// Cluster is a Cluster of the namespace.
type Cluster struct {
	Name             string
	Paused, Deleting bool
	// Ready says that the infrastructure is provisioned and the control plane initialized; clusterctl refuses others.
	Ready bool
	// Class is the namespace and name of its ClusterClass; empty without a managed topology. SharedWith is a Cluster of
	// another namespace that has the same one, or a note that the class itself is in another namespace; empty when it is
	// not shared.
	Class, SharedWith string
	// Hooks are the lifecycle hooks of its topology that are under way.
	Hooks string
}

// Host is a QuoinHost.
type Host struct {
	Namespace, Name, UID string
	Deleting             bool
	// Left says that the copy in another management cluster has the host now: the object carries delete-for-move.
	Left bool
	// Consumer has the host; nil when it is free.
	Consumer *Consumer
	// Hold of the host; nil when it is not held.
	Hold *Hold
	// Paused says that the host's controller saw the pause, Quiet that it saw pause or hold and that nothing runs any
	// more.
	Paused, Quiet bool
	// Note says what still runs.
	Note string
	// Owner outside of what a move takes; empty when there is none.
	Owner string
}

// Consumer is who has a host. Cluster is empty when the Machine is gone, or not there yet.
type Consumer struct{ Namespace, Cluster, Machine string }

// Hold is what a host is held for.
type Hold struct {
	// Source is the UID of the object that was held; empty when a person holds it.
	Source   string
	Clusters []string
}

// Machine is a Machine of the Cluster.
type Machine struct {
	Name                  string
	Deleting, Node, Ahead bool
	Owner                 string
}

// Object follows the pause of its Cluster.
type Object struct {
	// Name of the object with its kind.
	Name string
	// Paused says that its controller saw the pause.
	Paused bool
	// Quiet is false while something that its controller started has not ended; Note says what.
	Quiet bool
	Note  string
	// Owner outside of what a move takes; empty when there is none.
	Owner string
}

// Secret would be left behind. Problem is the sentence that says why, and what to do.
type Secret struct{ Name, Problem string }

// all Clusters of the namespace.
func (s Site) all() []Cluster { return append([]Cluster{s.Cluster}, s.Neighbors...) }

// shown is how many names a sentence lists.
const shown = 5

// listed names the first few, in order.
func listed(names []string) string {
	names = slices.Sorted(slices.Values(names))
	if len(names) > shown {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:shown], ", "), len(names)-shown)
	}
	return strings.Join(names, ", ")
}

// named collects the names of those that match.
func named[T any](items []T, match func(T) bool, name func(T) string) []string {
	var names []string
	for _, item := range items {
		if match(item) {
			names = append(names, name(item))
		}
	}
	return names
}
