// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoincluster

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/fieldindex"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/outage"
)

// maxFailureDomains is what the API takes.
const maxFailureDomains = 100

// countHosts counts the hosts, together and by failure domain, in the order of the domains' names. Hosts without a
// domain count only together.
func countHosts(hosts []infrav1.QuoinHost) *infrav1.HostCounts {
	counts := &infrav1.HostCounts{Total: ptr.To[int32](0), Available: ptr.To[int32](0)}
	domains := map[string]*infrav1.DomainHostCounts{}
	for i := range hosts {
		host := &hosts[i]
		free := int32(0)
		if available(host) {
			free = 1
		}
		*counts.Total++
		*counts.Available += free
		name := host.Spec.FailureDomain
		if name == "" {
			continue
		}
		domain := domains[name]
		if domain == nil {
			domain = &infrav1.DomainHostCounts{Name: name, Total: ptr.To[int32](0), Available: ptr.To[int32](0),
				Unreachable: ptr.To[int32](0)}
			domains[name] = domain
		}
		*domain.Total++
		*domain.Available += free
		if host.Status.UnreachableSince != nil {
			*domain.Unreachable++
		}
	}
	for _, domain := range domains {
		counts.Domains = append(counts.Domains, *domain)
	}
	slices.SortFunc(counts.Domains, func(a, b infrav1.DomainHostCounts) int { return cmp.Compare(a.Name, b.Name) })
	counts.Domains = counts.Domains[:min(len(counts.Domains), maxFailureDomains)]
	return counts
}

// failureDomains of the hosts, in the order of their names. A control plane belongs where some host is that it may
// have.
func failureDomains(
	hosts []infrav1.QuoinHost, controlPlane func(*infrav1.QuoinHost) bool,
) []clusterv1.FailureDomain {
	carries := map[string]bool{}
	for i := range hosts {
		if controlPlane(&hosts[i]) {
			carries[hosts[i].Spec.FailureDomain] = true
		}
	}
	var out []clusterv1.FailureDomain
	for _, domain := range countHosts(hosts).Domains {
		out = append(out, clusterv1.FailureDomain{Name: domain.Name, ControlPlane: ptr.To(carries[domain.Name])})
	}
	return out
}

// hostsAvailable says how many hosts are free, and where; and when none is, how many would be ours with our consent.
func hostsAvailable(namespace string, counts *infrav1.HostCounts, unaccepted int) metav1.Condition {
	condition := metav1.Condition{
		Type: infrav1.ClusterHostsAvailableCondition, Status: metav1.ConditionTrue, Reason: infrav1.HostAvailableReason,
		Message: fmt.Sprintf("%d of %d hosts are free", *counts.Available, *counts.Total),
	}
	if *counts.Total == 0 {
		condition.Status, condition.Reason = metav1.ConditionFalse, infrav1.ClusterNoHostsReason
		condition.Message = fmt.Sprintf(
			"no QuoinHost may be claimed from namespace %s; register hosts there, or name it in spec.consumerNamespaces of "+
				"others, and their namespace in hostNamespaces of the machine templates", namespace)
	}
	if *counts.Available == 0 && unaccepted > 0 {
		condition.Message += fmt.Sprintf("; %d hosts are offered to it from namespaces that hostNamespaces of no machine "+
			"template names", unaccepted)
	}
	var full []string
	for _, domain := range counts.Domains {
		if *domain.Available == 0 {
			full = append(full, domain.Name)
		}
	}
	if len(full) > 0 {
		condition.Message += "; none in failure domain " + listed(full)
	}
	return condition
}

// domainsReachable says which failure domains of the hosts were lost at once. None of their hosts is given up or
// powered off meanwhile. Every host of the fleet tells about the domain in its namespace, whoever may claim it, as it
// does where that is decided.
func domainsReachable(hosts, fleet []infrav1.QuoinHost) metav1.Condition {
	byDomain := map[string][]outage.Host{}
	for i := range hosts {
		if hosts[i].Spec.FailureDomain != "" {
			byDomain[fieldindex.DomainOf(&hosts[i])] = nil
		}
	}
	for i := range fleet {
		h, counts := outageHostOf(&fleet[i])
		key := fieldindex.DomainOf(&fleet[i])
		if _, ours := byDomain[key]; counts && ours {
			byDomain[key] = append(byDomain[key], h)
		}
	}
	var lost []string
	for key, members := range byDomain {
		_, name, _ := strings.Cut(key, "/")
		if verdict := outage.Judge(name, members); verdict.Lost {
			lost = append(lost, fmt.Sprintf("%s (%d of %d hosts fell silent together from %s on)",
				name, verdict.Silent, verdict.Hosts, verdict.Since.UTC().Format(time.RFC3339)))
		}
	}
	if len(lost) == 0 {
		return metav1.Condition{Type: infrav1.ClusterDomainsReachableCondition, Status: metav1.ConditionTrue,
			Reason: infrav1.HostReachableReason}
	}
	slices.Sort(lost)
	return metav1.Condition{
		Type: infrav1.ClusterDomainsReachableCondition, Status: metav1.ConditionFalse, Reason: infrav1.HostDomainLostReason,
		Message: fmt.Sprintf("lost: failure domain %s; no host there is given up for its silence; look at the network and "+
			"the power there", listed(lost)),
	}
}

// listed names the first few.
func listed(names []string) string {
	const shown = 5
	if len(names) > shown {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:shown], ", "), len(names)-shown)
	}
	return strings.Join(names, ", ")
}
