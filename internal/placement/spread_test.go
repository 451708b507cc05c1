// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// TestMachinesSpreadAsEvenlyAsTheHostsAllow claims host after host of a random fleet: as long as two failure domains
// have free hosts, no more than one machine lies between them.
func TestMachinesSpreadAsEvenlyAsTheHostsAllow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var hosts []Host
		for i, domain := range rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c", ""}), 1, 24).Draw(t, "domains") {
			hosts = append(hosts, Host{
				Namespace: "default", Name: fmt.Sprintf("h%02d", i), State: StateAvailable, Ready: true, FailureDomain: domain,
				FormerPool: rapid.SampledFrom([]string{"", "default/p"}).Draw(t, "former"),
			})
		}
		members := map[string]int{}
		request := Request{Namespace: "default", Members: members, Pool: "default/p", PreferFormer: rapid.Bool().
			Draw(t, "prefers")}
		for range hosts {
			result := Select(request, hosts)
			if result.Chosen == nil {
				t.Fatalf("no host although some are free: %s", result.Message())
			}
			members[result.Chosen.FailureDomain]++
			free := map[string]bool{}
			for i := range hosts {
				if hosts[i].Name == result.Chosen.Name {
					hosts[i].InUse = true
				}
				free[hosts[i].FailureDomain] = free[hosts[i].FailureDomain] || !hosts[i].InUse
			}
			for domain, some := range free {
				// Where nothing is free any more, the others may run ahead.
				if some && members[result.Chosen.FailureDomain]-members[domain] > 1 {
					t.Fatalf("%q has %d machines, while %q has %d and free hosts",
						result.Chosen.FailureDomain, members[result.Chosen.FailureDomain], domain, members[domain])
				}
			}
		}
		if last := Select(request, hosts); last.Chosen != nil {
			t.Fatalf("host %s was chosen twice", last.Chosen.Name)
		}
	})
}

// TestAFailedHostIsNeverTakenBeforeAnother draws failures: a host that is to be avoided is chosen only as a last
// resort.
func TestAFailedHostIsNeverTakenBeforeAnother(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		request := Request{Namespace: "default", Pool: "default/p", Now: now, PreferFormer: true}
		var hosts []Host
		sound := 0
		for i, failed := range rapid.SliceOfN(rapid.Bool(), 1, 8).Draw(t, "failed") {
			h := Host{Namespace: "default", Name: fmt.Sprintf("h%02d", i), State: StateAvailable, Ready: true,
				FormerPool: "default/p"}
			if failed {
				h.FailedAt, h.FailedPool = now.Add(-AvoidForSamePool/2), "default/p"
			} else {
				sound++
				h.FormerPool = ""
			}
			hosts = append(hosts, h)
		}
		result := Select(request, hosts)
		if result.Avoided != len(hosts)-sound {
			t.Fatalf("%d avoided, not %d", result.Avoided, len(hosts)-sound)
		}
		if result.LastResort != (sound == 0) || result.LastResort != !result.Chosen.FailedAt.IsZero() {
			t.Fatalf("chose %+v, last resort: %v", *result.Chosen, result.LastResort)
		}
	})
}
