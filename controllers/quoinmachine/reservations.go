// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinmachine

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/placement"
)

// reservations are the hosts that this process is claiming, or has claimed while its cache does not know it yet.
//
// Every machine would pick the same host, because the order is the same for all; the optimistic update lets one of them
// have it. A hundred machines at once would then try some ten thousand times. A reservation holds for one version of
// its host: whatever becomes of the claim, the next version that the cache shows tells the truth. Claims are fenced by
// the update alone; a process that forgets its reservations only tries once more. The zero value is ready.
type reservations struct {
	mu    sync.Mutex
	hosts map[client.ObjectKey]reservation
}

type reservation struct {
	machine client.ObjectKey
	// group is the cluster and role whose members are spread over failure domains.
	group   string
	version string
	at      time.Time
}

// longestReservation is far longer than a cache is behind. A host that is gone is never looked at again.
const longestReservation = 10 * time.Minute

// fits reports whether a host that no other machine has reserved may be what is asked for, if it shares nothing with
// the hosts of the machine's cluster. others says that one may be that another machine has reserved.
func (r *reservations) fits(
	request placement.Request, hosts []infrav1.QuoinHost, machine client.ObjectKey,
) (fits, others bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range hosts {
		if placement.Select(request, []placement.Host{placement.HostOf(&hosts[i])}).Chosen == nil {
			continue
		}
		held, reserved := r.hosts[client.ObjectKeyFromObject(&hosts[i])]
		if !reserved || held.machine == machine || held.version != hosts[i].ResourceVersion {
			return true, others
		}
		others = true
	}
	return false, others
}

// choose picks a host as placement does, without those that others have reserved, and reserves it. others says that
// there were such hosts.
func (r *reservations) choose(
	request placement.Request, hosts []infrav1.QuoinHost, machine client.ObjectKey, group string,
) (picked placement.Result, others bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	picked, others = r.pick(request, hosts, machine, group)
	if picked.Chosen == nil {
		return picked, others
	}
	if r.hosts == nil {
		r.hosts = map[client.ObjectKey]reservation{}
	}
	now := time.Now()
	maps.DeleteFunc(r.hosts, func(_ client.ObjectKey, held reservation) bool {
		return now.Sub(held.at) > longestReservation
	})
	host := hostNamed(hosts, picked.Chosen)
	r.hosts[client.ObjectKeyFromObject(host)] = reservation{machine: machine, group: group, version: host.ResourceVersion,
		at: now}
	return picked, others
}

// count is choose without a reservation.
func (r *reservations) count(
	request placement.Request, hosts []infrav1.QuoinHost, machine client.ObjectKey, group string,
) placement.Result {
	r.mu.Lock()
	defer r.mu.Unlock()
	picked, _ := r.pick(request, hosts, machine, group)
	return picked
}

// pick needs the lock.
func (r *reservations) pick(
	request placement.Request, hosts []infrav1.QuoinHost, machine client.ObjectKey, group string,
) (picked placement.Result, others bool) {
	all := candidates(hosts)
	members := map[string]int{}
	for domain, count := range request.Members {
		members[domain] = count
	}
	for i := range hosts {
		key := client.ObjectKeyFromObject(&hosts[i])
		held, reserved := r.hosts[key]
		switch {
		case !reserved || held.machine == machine:
		case held.version != hosts[i].ResourceVersion:
			delete(r.hosts, key)
		default:
			others = true
			all[i].InUse = true
			if clusterOf(held.group) == clusterOf(group) {
				request.Taken = slices.Concat(request.Taken, all[i].Identities)
			}
			if held.group == group {
				members[hosts[i].Spec.FailureDomain]++
			}
		}
	}
	request.Members = members
	return placement.Select(request, all), others
}

// clusterOf is the part of a group that names the cluster.
func clusterOf(group string) string {
	cluster, _, _ := strings.Cut(group, " ")
	return cluster
}

// release lets a host go that was not claimed after all.
func (r *reservations) release(host client.ObjectKey, machine client.ObjectKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.hosts[host].machine == machine {
		delete(r.hosts, host)
	}
}
