// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package moving

import "slices"

// ToHold are the names of the hosts of the namespace that are to be held now, and the Clusters that they are held for:
// the free ones, once every Cluster of the namespace is paused. A host that somebody has is paused with its Cluster.
func ToHold(s Site) (hosts, clusters []string) {
	for _, c := range s.all() {
		if !c.Paused {
			return nil, nil
		}
		clusters = append(clusters, c.Name)
	}
	slices.Sort(clusters)
	hosts = named(s.Hosts, func(h Host) bool { return s.free(h) && h.Hold == nil && !h.Left }, hostName)
	slices.Sort(hosts)
	return hosts, clusters
}

// free says whether the host moves with the namespace and no Cluster's pause reaches it: nobody has it, or its Machine
// is gone.
func (s Site) free(h Host) bool {
	return h.Namespace == s.Namespace && !h.Deleting && (h.Consumer == nil || h.Consumer.Namespace == s.Namespace &&
		h.Consumer.Cluster == "")
}

// Released reports whether the hold of a host has ended, given the Clusters of its namespace that exist here.
//
// In the source it ends when any of them goes on, because then they are not moving any more. A host whose Clusters are
// gone stays held: the move has taken them, and the host is next. Anywhere else it ends when all of them have arrived
// and go on: until then the source may still believe that it has the host.
func Released(h Host, clusters []Cluster) bool {
	if h.Hold == nil || h.Left || len(h.Hold.Clusters) == 0 {
		return false
	}
	active := func(name string) bool {
		return slices.ContainsFunc(clusters, func(c Cluster) bool { return c.Name == name && !c.Paused })
	}
	if h.Hold.Source == h.UID {
		return slices.ContainsFunc(h.Hold.Clusters, active)
	}
	return !slices.ContainsFunc(h.Hold.Clusters, func(name string) bool { return !active(name) })
}

// ToRelease are the names of the hosts of the namespace whose hold has ended.
func ToRelease(s Site) []string {
	hosts := named(s.Hosts, func(h Host) bool { return h.Namespace == s.Namespace && Released(h, s.all()) }, hostName)
	slices.Sort(hosts)
	return hosts
}

func hostName(h Host) string { return h.Name }
