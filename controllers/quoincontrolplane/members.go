// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoincontrolplane

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/secret"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/etcd"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/quorum"
)

// membership is etcd as it was read.
type membership struct {
	cluster     etcd.Cluster
	credentials etcd.Credentials
	// endpoints by Machine.
	endpoints map[string]etcd.Endpoint
	err       error
}

// readEtcd reads the members through the hosts of Machines that are nodes. It does not need the API server.
func (r *Reconciler) readEtcd(ctx context.Context, s *scope) {
	if !s.stackedEtcd() {
		return
	}
	s.members.endpoints = map[string]etcd.Endpoint{}
	var endpoints []etcd.Endpoint
	for _, machine := range s.machines.SortedByCreationTimestamp() {
		host := s.hosts[machine.Name]
		if host == nil || !machine.Status.NodeRef.IsDefined() {
			continue
		}
		endpoint := etcd.Endpoint{Name: machine.Status.NodeRef.Name, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			return r.Hosts.DialHost(ctx, host, network, address)
		}}
		s.members.endpoints[machine.Name] = endpoint
		endpoints = append(endpoints, endpoint)
	}
	if len(endpoints) == 0 {
		s.members.err = errors.New("no Machine has a host and a Node yet")
		return
	}
	authority, err := secret.GetFromNamespacedName(ctx, r.secrets(), util.ObjectKey(s.cluster), secret.EtcdCA)
	if apierrors.IsNotFound(err) {
		// The cache holds labeled Secrets only, and a user's own authority may carry no label.
		authority, err = secret.GetFromNamespacedName(ctx, r.APIReader, util.ObjectKey(s.cluster), secret.EtcdCA)
	}
	if err != nil {
		s.members.err = fmt.Errorf("reading etcd's authority: %w", err)
		return
	}
	s.members.credentials, s.members.err = etcd.Mint(authority.Data[secret.TLSCrtDataName], authority.Data[secret.TLSKeyDataName], time.Now())
	if s.members.err != nil {
		return
	}
	s.members.cluster, s.members.err = r.etcd().Read(ctx, endpoints, s.members.credentials)
}

// etcdSnapshot says which Machine runs which member.
func (s *scope) etcdSnapshot() quorum.Membership {
	if s.members.err != nil {
		return quorum.Membership{Problem: s.members.err.Error()}
	}
	if !s.stackedEtcd() || len(s.members.cluster.Members) == 0 {
		return quorum.Membership{Problem: "it was not read"}
	}
	result := quorum.Membership{Known: true, Agreed: s.members.cluster.Agreed}
	for _, member := range s.members.cluster.Members {
		entry := quorum.Member{ID: member.ID, Name: member.Name, Learner: member.Learner, Leader: member.Leader,
			Healthy: member.Answers && len(member.Alarms) == 0, Problem: member.Problem}
		switch {
		case len(member.Alarms) > 0:
			entry.Problem = "alarm " + strings.Join(member.Alarms, ", ")
		case !entry.Healthy && entry.Problem == "":
			entry.Problem = "it was not reached"
		}
		if machine := s.machineOf(member); machine != nil {
			entry.Machine = machine.Name
		}
		result.Members = append(result.Members, entry)
	}
	return result
}

// machineOf finds the Machine of a member: by the node's name, which is the member's; else, while the member has not
// started or the Node not registered, by the addresses of the host, which kubeadm put into the peer URL.
func (s *scope) machineOf(member etcd.Member) *clusterv1.Machine {
	for _, machine := range s.machines {
		if member.Name != "" && machine.Status.NodeRef.Name == member.Name {
			return machine
		}
	}
	for _, machine := range s.machines.SortedByCreationTimestamp() {
		if machine.Status.NodeRef.IsDefined() && member.Name != "" {
			continue
		}
		addresses := s.addressesOf(machine)
		for _, address := range member.PeerAddresses {
			if slices.Contains(addresses, address) {
				return machine
			}
		}
		if host := s.hosts[machine.Name]; member.Name != "" && hostname(host) == member.Name {
			return machine
		}
	}
	return nil
}

func hostname(host *infrav1.QuoinHost) string {
	if host == nil || host.Status.Facts == nil {
		return ""
	}
	return host.Status.Facts.Hostname
}

// moveLeader hands etcd's leadership from a Machine's member to another member.
func (r *Reconciler) moveLeader(ctx context.Context, s *scope) error {
	leader, ok := s.members.endpoints[s.step.Machine]
	if !ok {
		return fmt.Errorf("the host of Machine %s cannot be reached", s.step.Machine)
	}
	return r.etcd().MoveLeader(ctx, leader, s.members.credentials, s.step.To)
}

// removeMember takes a member out, through the hosts of the others.
func (r *Reconciler) removeMember(ctx context.Context, s *scope) error {
	var others []etcd.Endpoint
	for _, machine := range s.machines.SortedByCreationTimestamp() {
		if endpoint, ok := s.members.endpoints[machine.Name]; ok && machine.Name != s.step.Machine {
			others = append(others, endpoint)
		}
	}
	return r.etcd().RemoveMember(ctx, others, s.members.credentials, s.step.Member)
}
