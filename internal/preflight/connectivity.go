// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/cluster-api/util"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/reach"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
)

const (
	kubeletPort    = 10250
	etcdClientPort = 2379
	etcdPeerPort   = 2380
	// mostPeers are in one message.
	mostPeers = 8
)

// peer is a port that a host needs of another, and what it is for.
type peer struct {
	at      reach.Endpoint
	what    string
	kubelet bool
}

// lookAtConnectivity asks each host for its routes to the others, for names, and whether it reaches the ports that it
// needs of them.
func lookAtConnectivity(ctx context.Context, s Subject) (string, []quoinv1.Finding, error) {
	hosts, err := s.clusterHosts(ctx)
	if err != nil {
		return "", nil, err
	}
	nodes := &corev1.NodeList{}
	if err := s.Workload.List(ctx, nodes); err != nil {
		return "", nil, fmt.Errorf("list the Nodes: %w", err)
	}
	machines, err := s.machines(ctx)
	if err != nil {
		return "", nil, err
	}
	members := map[string]bool{}
	for i := range machines {
		if util.IsControlPlaneMachine(&machines[i]) && machines[i].Status.NodeRef.IsDefined() {
			members[machines[i].Status.NodeRef.Name] = true
		}
	}
	findings := s.eachHost(ctx, hosts,
		func(ctx context.Context, host clusterHost, connection ssh.Host) ([]quoinv1.Finding, error) {
			peers := s.peersOf(host, nodes.Items, members)
			asked := make([]reach.Endpoint, len(peers))
			for i := range peers {
				asked[i] = peers[i].at
			}
			answer, err := reach.Ask(ctx, connection, asked)
			if err != nil {
				return nil, err
			}
			return judgeConnectivity(host, peers, answer), nil
		})
	return fmt.Sprintf("routes, ports and names from %d QuoinHosts", len(hosts)), findings, nil
}

// peersOf are the ports that the host needs: every one the Cluster's endpoint and each API server, since any of them
// may have a virtual address, and a control plane's the other members of etcd and each kubelet.
func (s Subject) peersOf(host clusterHost, nodes []corev1.Node, members map[string]bool) []peer {
	var peers []peer
	add := func(kubelet bool, address, what string, ports ...int32) {
		for _, port := range ports {
			at := reach.Endpoint{Host: address, Port: uint16(port)} //nolint:gosec // the API bounds ports
			peers = append(peers, peer{at: at, what: what, kubelet: kubelet})
		}
	}
	if endpoint := s.Cluster.Spec.ControlPlaneEndpoint; !endpoint.IsZero() {
		add(false, strings.Trim(endpoint.Host, "[]"), "the Cluster's endpoint", endpoint.Port)
	}
	for i := range nodes {
		node, address := &nodes[i], addressOf(&nodes[i])
		if address == "" || host.machine != nil && host.machine.Status.NodeRef.Name == node.Name {
			continue
		}
		if port := s.apiServerPort(); members[node.Name] && port != 0 {
			add(false, address, "the API server of Node "+node.Name, port)
			if host.controlPlane() && s.stackedEtcd() {
				add(false, address, "etcd of Node "+node.Name, etcdClientPort, etcdPeerPort)
			}
		}
		if host.controlPlane() {
			add(true, address, "the kubelet of Node "+node.Name,
				cmp.Or(node.Status.DaemonEndpoints.KubeletEndpoint.Port, kubeletPort))
		}
	}
	return peers
}

// apiServerPort is the one that each API server listens on; 0 where a control plane of another provider does not say.
func (s Subject) apiServerPort() int32 {
	port := s.Cluster.Spec.ClusterNetwork.APIServerPort
	if s.ControlPlane != nil {
		config := s.ControlPlane.Spec.KubeadmConfigSpec
		if joined := config.JoinConfiguration.ControlPlane; joined != nil && joined.LocalAPIEndpoint.BindPort != 0 {
			port = joined.LocalAPIEndpoint.BindPort
		} else {
			port = cmp.Or(config.InitConfiguration.LocalAPIEndpoint.BindPort, port)
		}
	}
	if s.ControlPlane == nil {
		return port
	}
	return cmp.Or(port, infrav1.DefaultAPIServerPort)
}

// stackedEtcd reports whether the control plane's hosts are known to have the members of etcd.
func (s Subject) stackedEtcd() bool {
	return s.ControlPlane != nil &&
		!s.ControlPlane.Spec.KubeadmConfigSpec.ClusterConfiguration.Etcd.External.IsDefined()
}

// judgeConnectivity says what the host does not reach. Kubelets are for logs and the like only, so nothing waits for
// them.
func judgeConnectivity(host clusterHost, peers []peer, answer *reach.Answer) []quoinv1.Finding {
	var findings []quoinv1.Finding
	if len(answer.Lacks) > 0 {
		findings = append(findings, warns(host.object(), "NotLookedAt", "what it reaches is not known, for it has no "+
			strings.Join(answer.Lacks, ", "), "install that, or see to its routes and ports by hand"))
	}
	if len(answer.Unresolved) > 0 {
		findings = append(findings, host.finding("NameUnresolved", "it resolves no "+listed(answer.Unresolved),
			"see to its DNS: getent ahosts "+answer.Unresolved[0]))
	}
	if len(answer.NoRoute) > 0 {
		findings = append(findings, host.finding("NoRoute", "it has no route to "+listed(answer.NoRoute),
			"see to its routes: ip route get "+answer.NoRoute[0]))
	}
	for _, kubelets := range []bool{false, true} {
		of := func(among []reach.Endpoint) (said []string) {
			for _, at := range among {
				routed := !slices.Contains(answer.NoRoute, at.Host)
				for _, one := range peers {
					if one.at == at && one.kubelet == kubelets && routed {
						said = append(said, one.what+" at "+at.String())
					}
				}
			}
			return said
		}
		finding := host.finding
		if kubelets {
			finding = func(reason, message, fix string) quoinv1.Finding { return warns(host.object(), reason, message, fix) }
		}
		if said := of(answer.Silent); len(said) > 0 {
			findings = append(findings, finding("NoAnswer", "it gets no answer from "+listed(said),
				"see to what filters packets between them, firewalls of both hosts included"))
		}
		if said := of(answer.Refused); len(said) > 0 {
			findings = append(findings, finding("Refused", "nothing listens for it as "+listed(said),
				"see why that does not run or does not listen on the address"))
		}
	}
	return findings
}

// listed are the first of many, in order.
func listed(all []string) string {
	all = slices.Sorted(slices.Values(all))
	if more := len(all) - mostPeers; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(all[:mostPeers], ", "), more)
	}
	return strings.Join(all, ", ")
}
