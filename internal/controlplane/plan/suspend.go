// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/outage"
)

const (
	// returnTime is how long Machines that were away together get until each of them counts by itself again: hosts that
	// are switched on at once do not come up at once, and a health check remembers for a while that their Nodes were away.
	returnTime = 15 * time.Minute
	// arrivalTime is how long a new Machine may take until it is Ready. One that became Ready later came back.
	arrivalTime = 30 * time.Minute
)

// suspended says why no Machine is replaced for its health, because what happened did not happen to one Machine: a
// failure domain was lost, or a majority of the hosts went away at once, or they are just coming back. To replace
// Machines then would take their members from a cluster that is about to be whole again. Empty when each Machine counts
// by itself.
func (s facts) suspended() string {
	var together []outage.Host
	domains := map[string]bool{}
	for _, machine := range s.Machines {
		if machine.Health.DomainLost != "" && away(machine) != (time.Time{}) {
			return machine.Health.DomainLost
		}
		// One that never was there cannot be away.
		if machine.Node == "" {
			continue
		}
		together = append(together, outage.Host{Domain: machine.FailureDomain, SilentSince: away(machine)})
		if machine.FailureDomain != "" {
			domains[machine.FailureDomain] = true
		}
	}
	if why := lostDomain(together, domains); why != "" {
		return why
	}
	for i := range together {
		together[i].Domain = ""
	}
	if verdict := outage.Judge("", together); verdict.Lost {
		return fmt.Sprintf("%d of %d control-plane hosts went away together, from %s on. Look at the network and the power",
			verdict.Silent, verdict.Hosts, verdict.Since.UTC().Format(time.RFC3339))
	}
	return s.returning()
}

// lostDomain finds a failure domain whose Machines went away together. With one domain only, it is no domain's loss.
func lostDomain(hosts []outage.Host, domains map[string]bool) string {
	if len(domains) < 2 {
		return ""
	}
	var lost []string
	for domain := range domains {
		if verdict := outage.Judge(domain, hosts); verdict.Lost {
			lost = append(lost, fmt.Sprintf("the %d control-plane hosts of failure domain %s went away together, from %s on. "+
				"Look at the network and the power there", verdict.Silent, domain, verdict.Since.UTC().Format(time.RFC3339)))
		}
	}
	slices.Sort(lost)
	return strings.Join(lost, "; ")
}

// away is since when the host of a Machine or its kubelet was not heard, whichever fell silent first; zero while both
// are heard. A failure domain may lose its way to the API server alone.
func away(machine controlplane.Machine) time.Time {
	health := machine.Health
	if health.SilentSince.IsZero() || !health.NodeLostSince.IsZero() && health.NodeLostSince.Before(health.SilentSince) {
		return health.NodeLostSince
	}
	return health.SilentSince
}

// returning says that at least half of the hosts, those still away included, came back a short while ago.
func (s facts) returning() string {
	back, gone, machines := 0, 0, 0
	var latest time.Time
	for _, machine := range s.Machines {
		if machine.Node == "" {
			continue
		}
		machines++
		var since time.Time
		for _, at := range []time.Time{machine.Health.NodeReadySince, machine.Health.AnswersSince} {
			// What a clock wrote down that was ahead is no time to wait from. Clocks may differ by a minute.
			if at.After(since) && at.Sub(s.Remediation.Now) <= time.Minute {
				since = at
			}
		}
		switch {
		case !away(machine).IsZero():
			gone++
		case since.Sub(machine.Health.Born) > arrivalTime && s.Remediation.Now.Sub(since) < returnTime:
			back++
			if since.After(latest) {
				latest = since
			}
		}
	}
	if back == 0 || back+gone < 2 || 2*(back+gone) < machines {
		return ""
	}
	return fmt.Sprintf("%d of %d control-plane hosts came back a short while ago; until %s the others get time to follow",
		back, machines, latest.Add(returnTime).UTC().Format(time.RFC3339))
}
