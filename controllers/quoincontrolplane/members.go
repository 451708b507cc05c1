// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoincontrolplane

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"slices"
	"strings"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/secret"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/controllers/quoincontrolplane/desired"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/etcd"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/quorum"
)

// membership is etcd as it was read.
type membership struct {
	cluster     etcd.Cluster
	credentials etcd.Credentials
	// endpoints by Machine.
	endpoints map[string]etcd.Endpoint
	// readAt is when the reading was begun.
	readAt time.Time
	err    error
}

// readEtcd reads the members through the hosts of Machines that are nodes. It does not need the API server.
func (r *Reconciler) readEtcd(ctx context.Context, s *scope) {
	if !desired.StackedEtcd(s.plane) {
		return
	}
	s.members.endpoints = map[string]etcd.Endpoint{}
	var endpoints []etcd.Endpoint
	for _, machine := range s.machines.SortedByCreationTimestamp() {
		host := s.hosts[machine.Name]
		if host == nil || !machine.Status.NodeRef.IsDefined() {
			continue
		}
		endpoint := etcd.Endpoint{Name: machine.Status.NodeRef.Name, Dial: func(ctx context.Context, network,
			address string) (net.Conn, error) {
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
	s.members.credentials, s.members.err = etcd.Mint(authority.Data[secret.TLSCrtDataName],
		authority.Data[secret.TLSKeyDataName], s.clock.Now())
	if s.members.err != nil {
		return
	}
	s.members.readAt = s.clock.Now()
	s.members.cluster, s.members.err = r.etcd().Read(ctx, endpoints, s.members.credentials)
}

// etcdSnapshot says which Machine runs which member, and what a verdict needs to know of both.
func (s *scope) etcdSnapshot() quorum.Membership {
	if s.members.err != nil {
		return quorum.Membership{Problem: s.members.err.Error(), Contradicts: errors.Is(s.members.err, etcd.ErrContradiction)}
	}
	if !desired.StackedEtcd(s.plane) || len(s.members.cluster.Members) == 0 {
		return quorum.Membership{Problem: "it was not read"}
	}
	result := quorum.Membership{Known: true, Agreed: s.members.cluster.Agreed}
	answering := map[string]bool{}
	for _, member := range s.members.cluster.Members {
		entry := quorum.Member{ID: member.ID, Name: member.Name, Learner: member.Learner, Leader: member.Leader,
			Healthy: member.Answers && len(member.Alarms) == 0, Problem: member.Problem, Lag: member.Lag, Size: member.Size}
		switch {
		case len(member.Alarms) > 0:
			entry.Problem = "alarm " + strings.Join(member.Alarms, ", ")
			if entry.Full = slices.Contains(member.Alarms, "NOSPACE"); entry.Full {
				entry.Problem += ", its database is full: " + quorum.MakeRoom
			}
		case !entry.Healthy && entry.Problem == "":
			entry.Problem = "it was not reached"
		}
		if machine := s.machineOf(member); machine != nil {
			entry.Machine = machine.Name
			answering[machine.Name] = answering[machine.Name] || member.Answers
		} else {
			// Its host is asked by nobody here, so what the other members hear of it is what there is.
			entry.Healthy, entry.Unasked = entry.Healthy || member.Connected && len(member.Alarms) == 0, member.Unasked
		}
		result.Members = append(result.Members, entry)
	}
	for i := range result.Members {
		entry := &result.Members[i]
		machine := s.machines[entry.Machine]
		if machine == nil {
			continue
		}
		// A name or an address outlives the host that had it. When the Machine's own member answers, another one under the
		// same name is the remains of an earlier Machine.
		if answering[machine.Name] && !s.members.cluster.Members[i].Answers {
			entry.Machine = ""
			continue
		}
		entry.FailureDomain = s.failureDomainOf(machine)
		entry.Departing = !machine.DeletionTimestamp.IsZero()
		// Taking the hook away is how a departure is allowed. One that Cluster API went past is still there.
		_, entry.Held = machine.Annotations[controlplanev1.PreDrainHookAnnotation]
		entry.Held = entry.Held && entry.Departing
	}
	return result
}

// failureDomainOf a Machine is that of its host, once it has one.
func (s *scope) failureDomainOf(machine *clusterv1.Machine) string {
	if infra := s.infra[machine.Name]; infra != nil && infra.Status.FailureDomain != "" {
		return infra.Status.FailureDomain
	}
	return machine.Spec.FailureDomain
}

// observedInterval is how old a membership in status gets before it is written again although nothing happened to it.
const observedInterval = 30 * time.Second

// etcdStatus is the membership as status tells it. What changes all the time, such as the size of a database, is
// written only together with something that matters or when the last reading is old: each write wakes this controller
// again.
func (s *scope) etcdStatus(before *controlplanev1.EtcdStatus) *controlplanev1.EtcdStatus {
	count := s.snapshot.Etcd.Count()
	status := &controlplanev1.EtcdStatus{
		Voters:       ptr.To(int32(count.Voters)),      //nolint:gosec // a handful
		Tolerates:    ptr.To(int32(count.Tolerates())), //nolint:gosec // a handful
		Agreed:       ptr.To(s.snapshot.Etcd.Agreed),
		ObservedTime: metav1.NewTime(s.members.readAt.Truncate(time.Second)),
	}
	taken := map[string]bool{}
	for _, member := range s.snapshot.Etcd.Members {
		entry := controlplanev1.EtcdMember{Name: member.Name, ID: fmt.Sprintf("%x", member.ID), Machine: member.Machine,
			FailureDomain: member.FailureDomain, Role: "Voter", Healthy: ptr.To(member.Healthy),
			Problem: shortened(member.Problem)}
		if entry.Name == "" || taken[entry.Name] {
			entry.Name = entry.ID
		}
		taken[entry.Name] = true
		switch {
		case member.Learner:
			entry.Role = "Learner"
		case member.Leader:
			entry.Role, status.Leader = "Leader", entry.Name
		}
		if member.Size > 0 {
			// It was asked, so this is known.
			entry.Lag = ptr.To(int64(min(member.Lag, math.MaxInt64))) //nolint:gosec // just bounded
			entry.SizeBytes = ptr.To(member.Size)
		}
		status.Members = append(status.Members, entry)
	}
	slices.SortFunc(status.Members, func(a, b controlplanev1.EtcdMember) int { return strings.Compare(a.Name, b.Name) })
	if before != nil && status.ObservedTime.Sub(before.ObservedTime.Time) < observedInterval &&
		apiequality.Semantic.DeepEqual(lasting(before), lasting(status)) {
		return before
	}
	return status
}

// lasting is a membership without what differs from one reading to the next.
func lasting(status *controlplanev1.EtcdStatus) *controlplanev1.EtcdStatus {
	copied := status.DeepCopy()
	copied.ObservedTime = metav1.Time{}
	for i := range copied.Members {
		copied.Members[i].Lag, copied.Members[i].SizeBytes, copied.Members[i].Problem = nil, nil, ""
	}
	return copied
}

// shortened keeps a problem within what the API takes.
func shortened(problem string) string {
	const most = 1024
	if len(problem) <= most {
		return problem
	}
	return strings.ToValidUTF8(problem[:most], "")
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
