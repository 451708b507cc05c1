// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"slices"
	"sync"

	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim/machine"
)

// departures remembers in which order API servers and etcd members left their machines.
type departures struct {
	mu sync.Mutex
	// serving counts the API server processes of each machine.
	serving map[*machine.Machine]int
	// removed are the machines whose member was taken out of the list of members, in that order; hung those of them on which an API
	// server ran at that time.
	removed, hung []string
}

// apiServerRuns notes that an API server runs on the machine, until ended is called.
func (c *ControlPlane) apiServerRuns(m *machine.Machine) (ended func()) {
	d := &c.departed
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.serving == nil {
		d.serving = map[*machine.Machine]int{}
	}
	d.serving[m]++
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.serving[m]--
	}
}

// memberEnded notes the end of a member that nobody told to end.
func (c *ControlPlane) memberEnded(m *machine.Machine, member *Member) {
	member.mu.Lock()
	removed := member.removed
	member.mu.Unlock()
	d := &c.departed
	d.mu.Lock()
	defer d.mu.Unlock()
	if !removed {
		return
	}
	d.removed = append(d.removed, m.Hostname())
	if d.serving[m] > 0 {
		d.hung = append(d.hung, m.Hostname())
	}
}

// Departures are the hosts whose members were removed from etcd, and those of them whose API server ran at that time: on a real
// host it would hang from then on, with everybody who is connected to it.
func (c *ControlPlane) Departures() (removed, hung []string) {
	d := &c.departed
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.removed), slices.Clone(d.hung)
}
