// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/redact"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/placement"
)

const (
	// mostHosts that one check asks; of a fleet of thousands those of the control plane come first.
	mostHosts = 200
	// hostsAtOnce are asked at the same time.
	hostsAtOnce = 32
	// hostTime is what one host has to answer, and hostsTime all of them: a check has to end before its own time does.
	hostTime, hostsTime = 10 * time.Second, Timeout - 4*time.Second
)

// clusterHost is a host of the Cluster, or one that is free for it.
type clusterHost struct {
	*infrav1.QuoinHost
	// machine that has the host; nil when it is free.
	machine *clusterv1.Machine
	// leaves says that the machine is replaced on the way.
	leaves bool
}

func (h clusterHost) object() string { return "QuoinHost " + h.Namespace + "/" + h.Name }

func (h clusterHost) controlPlane() bool {
	return h.machine != nil && util.IsControlPlaneMachine(h.machine)
}

// finding of what is wrong with a host: an upgrade needs those that Machines have, and another free one may do.
func (h clusterHost) finding(reason, message, fix string) quoinv1.Finding {
	if h.machine == nil {
		return warns(h.object(), reason, "is free, and "+message, fix)
	}
	return blocks(h.object(), reason, message, fix)
}

// clusterHosts are the hosts that Machines of the Cluster have, those of the control plane first, and the free ones
// that its templates may take.
func (s Subject) clusterHosts(ctx context.Context) ([]clusterHost, error) {
	machines, err := s.machines(ctx)
	if err != nil {
		return nil, err
	}
	goals, err := s.goals(ctx)
	if err != nil {
		return nil, err
	}
	hosts, templates := &infrav1.QuoinHostList{}, &infrav1.QuoinMachineTemplateList{}
	if err := s.Management.List(ctx, hosts); err != nil {
		return nil, fmt.Errorf("list the QuoinHosts: %w", err)
	}
	if err := s.Management.List(ctx, templates, client.InNamespace(s.Cluster.Namespace)); err != nil {
		return nil, fmt.Errorf("list the QuoinMachineTemplates: %w", err)
	}
	ours := map[string]*clusterv1.Machine{}
	for i := range machines {
		ours[machines[i].Name] = &machines[i]
	}
	var controlPlane, workers, free []clusterHost
	for i := range hosts.Items {
		host := clusterHost{QuoinHost: &hosts.Items[i]}
		ref, known := host.Spec.ConsumerRef, placement.HostOf(host.QuoinHost)
		switch {
		case ref != nil && ours[ref.Machine] != nil && host.Serves(ours[ref.Machine]):
			host.machine, host.leaves = ours[ref.Machine], s.leaves(ours[ref.Machine], goals)
			if host.controlPlane() {
				controlPlane = append(controlPlane, host)
			} else {
				workers = append(workers, host)
			}
		case placement.Free(known) && placement.NamespaceAllowed(known, s.Cluster.Namespace) &&
			placement.AcceptedByAny(templates.Items, s.Cluster.Namespace, host.Namespace):
			free = append(free, host)
		}
	}
	return slices.Concat(controlPlane, workers, free), nil
}

// eachHost asks hosts side by side, and names those that do not answer, that nobody may connect to, or that were left
// out. What is asked of a host may take as long as its context.
func (s Subject) eachHost(
	ctx context.Context, hosts []clusterHost, ask func(context.Context, clusterHost, ssh.Host) ([]quoinv1.Finding, error),
) []quoinv1.Finding {
	ctx, cancel := context.WithTimeout(ctx, hostsTime)
	defer cancel()
	var leftOut []string
	if len(hosts) > mostHosts {
		for _, host := range hosts[mostHosts:] {
			leftOut = append(leftOut, host.Name)
		}
		hosts = hosts[:mostHosts]
	}
	found, turns := make([][]quoinv1.Finding, len(hosts)), make(chan struct{}, hostsAtOnce)
	var group sync.WaitGroup
	for i, host := range hosts {
		if placement.HostOf(host.QuoinHost).Detached {
			found[i] = []quoinv1.Finding{warns(host.object(), "NotLookedAt", "is detached, so nobody may connect to it",
				"see to it by hand, or end its detachment")}
			continue
		}
		group.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			found[i] = s.askHost(ctx, host, ask)
		})
	}
	group.Wait()
	findings := slices.Concat(found...)
	if len(leftOut) > 0 {
		findings = append(findings, warns("", "NotLookedAt", fmt.Sprintf("%d hosts were not asked, for one look asks %d: %s",
			len(leftOut), mostHosts, strings.Join(leftOut, ", ")), "they are hosts of workers or free; see to them by hand"))
	}
	return findings
}

func (s Subject) askHost(
	ctx context.Context, host clusterHost, ask func(context.Context, clusterHost, ssh.Host) ([]quoinv1.Finding, error),
) []quoinv1.Finding {
	if ctx.Err() != nil {
		return []quoinv1.Finding{warns(host.object(), "NotLookedAt", "was not asked, for other hosts took all the time",
			"see to those that are silent, and make another PreflightCheck")}
	}
	ctx, cancel := context.WithTimeout(ctx, hostTime)
	defer cancel()
	connection, err := s.Connect(ctx, host.QuoinHost)
	var findings []quoinv1.Finding
	if err == nil {
		findings, err = ask(ctx, host, connection)
	}
	if err == nil {
		return findings
	}
	finding := warns
	if host.controlPlane() || host.leaves {
		finding = blocks // its release, and etcd's members, are asked for through it
	}
	return []quoinv1.Finding{finding(host.object(), "Silent", "does not say what it sees: "+redact.Patterns(err.Error()),
		"see that the manager reaches it: kubectl describe quoinhost "+host.Name+" -n "+host.Namespace)}
}

// addressOf a Node that others reach it at; empty when it has none.
func addressOf(node *corev1.Node) string {
	for _, address := range node.Status.Addresses {
		if address.Type == corev1.NodeInternalIP {
			return address.Address
		}
	}
	return ""
}
