// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/secret"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/controllers/quoincontrolplane/desired"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/etcd"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/quorum"
)

// Membership is etcd as it was read.
type Membership struct {
	Cluster     etcd.Cluster
	Credentials etcd.Credentials
	// Endpoints by Machine.
	Endpoints map[string]etcd.Endpoint
	// ReadAt is when the reading was begun.
	ReadAt time.Time
	// Err is why it could not be read.
	Err error
}

// fresh reports whether a quorum agreed to what was read a moment ago.
func (m *Membership) fresh(now time.Time) bool {
	return m.Err == nil && m.Cluster.Agreed && now.Sub(m.ReadAt) < etcdFreshness
}

// readEtcd reads the members through the hosts of Machines that are nodes. It does not need the API server.
func (s *Sources) readEtcd(ctx context.Context, inv *Inventory) Membership {
	if !desired.StackedEtcd(inv.ControlPlane) {
		return Membership{}
	}
	m := Membership{Endpoints: map[string]etcd.Endpoint{}}
	var endpoints []etcd.Endpoint
	for _, machine := range inv.Machines.SortedByCreationTimestamp() {
		host := inv.Hosts[machine.Name]
		if host == nil || inv.outlived(machine) || !machine.Status.NodeRef.IsDefined() {
			continue
		}
		endpoint := etcd.Endpoint{Name: machine.Status.NodeRef.Name, Dial: func(ctx context.Context, network,
			address string) (net.Conn, error) {
			return s.Hosts.DialHost(ctx, host, network, address)
		}}
		m.Endpoints[machine.Name] = endpoint
		endpoints = append(endpoints, endpoint)
	}
	if len(endpoints) == 0 {
		m.Err = errors.New("no Machine has a host and a Node yet")
		return m
	}
	authority, err := secret.GetFromNamespacedName(ctx, s.Secrets, util.ObjectKey(inv.Cluster), secret.EtcdCA)
	if apierrors.IsNotFound(err) {
		// The cache holds labeled Secrets only, and a user's own authority may carry no label.
		authority, err = secret.GetFromNamespacedName(ctx, s.Live, util.ObjectKey(inv.Cluster), secret.EtcdCA)
	}
	if err != nil {
		m.Err = fmt.Errorf("reading etcd's authority: %w", err)
		return m
	}
	m.Credentials, m.Err = etcd.Mint(authority.Data[secret.TLSCrtDataName], authority.Data[secret.TLSKeyDataName],
		s.Clock.Now())
	if m.Err != nil {
		return m
	}
	m.ReadAt = s.Clock.Now()
	m.Cluster, m.Err = s.Etcd.Read(ctx, endpoints, m.Credentials)
	return m
}

// Membership says which Machine runs which member, and how it is. Who departs is known with the Machines: HeldBy.
func (o *Observation) Membership() quorum.Membership {
	if o.Etcd.Err != nil {
		return quorum.Membership{Problem: o.Etcd.Err.Error(), Contradicts: errors.Is(o.Etcd.Err, etcd.ErrContradiction)}
	}
	if !desired.StackedEtcd(o.ControlPlane) || len(o.Etcd.Cluster.Members) == 0 {
		return quorum.Membership{Problem: "it was not read"}
	}
	result := quorum.Membership{Known: true, Agreed: o.Etcd.Cluster.Agreed}
	switch gone := o.Etcd.Cluster.Corrupt; {
	case slices.Contains(gone, 0):
		result.Alarm = "alarm CORRUPT is raised for no member in particular, because members have different data and etcd " +
			"does not know whose are whole, so it takes no writes"
	case len(gone) > 0:
		ids := make([]string, 0, len(gone))
		for _, id := range gone {
			ids = append(ids, strconv.FormatUint(id, 16))
		}
		result.Alarm = fmt.Sprintf("alarm CORRUPT is raised for member %s, which is not in the list any more, so etcd takes "+
			"no writes", strings.Join(ids, ", "))
	}
	others := o.unreported()
	for _, member := range o.Etcd.Cluster.Members {
		entry := quorum.Member{ID: member.ID, Name: member.Name, Learner: member.Learner, Leader: member.Leader,
			Healthy: member.Answers && len(member.Alarms) == 0, Problem: member.Problem, Lag: member.Lag, Size: member.Size,
			Progress: member.Syncs}
		asked := false
		if machine := o.machineOf(member, others); machine != nil {
			entry.Machine, entry.FailureDomain = machine.Name, o.failureDomainOf(machine)
			_, asked = o.Etcd.Endpoints[machine.Name]
		}
		// A host that is asked by nobody here leaves what the other members hear of its member. One that was asked, and leads
		// to another member than that, or to none, leaves nobody who could tell.
		entry.Hearsay = !asked && !member.Answers
		entry.Healthy = entry.Healthy || entry.Hearsay && member.Connected && len(member.Alarms) == 0
		entry.Unasked = member.Unasked || asked && member.Connected
		// Not by its state, which is made of this: a learner that does not answer lacks a reason as well.
		switch {
		case len(member.Alarms) > 0:
			entry.Problem = "alarm " + strings.Join(member.Alarms, ", ")
			if entry.Full = slices.Contains(member.Alarms, "NOSPACE"); entry.Full {
				entry.Problem += ", its database is full: " + quorum.MakeRoom
			}
		case !entry.Healthy && entry.Problem == "":
			entry.Problem = "it was not reached"
		}
		result.Members = append(result.Members, entry)
	}
	return result
}

// failureDomainOf a Machine is that of its host, once it has one.
func (inv *Inventory) failureDomainOf(machine *clusterv1.Machine) string {
	if infra := inv.QuoinMachines[machine.Name]; infra != nil && infra.Status.FailureDomain != "" {
		return infra.Status.FailureDomain
	}
	return machine.Spec.FailureDomain
}

// unreported are the Machines whose hosts did not say which member they have: a name or an address outlives the host
// that had it, so of the others it proves nothing. Oldest first.
func (o *Observation) unreported() []*clusterv1.Machine {
	return slices.DeleteFunc(o.Machines.SortedByCreationTimestamp(), func(machine *clusterv1.Machine) bool {
		return o.outlived(machine) || slices.ContainsFunc(o.Etcd.Cluster.Members, func(member etcd.Member) bool {
			return member.ReportedBy != "" && member.ReportedBy == machine.Status.NodeRef.Name
		})
	})
}

// machineOf finds the Machine of a member: that whose host has it by the member's own word; else among others by the
// node's name, which is the member's; else, while the member has not started or the Node not registered, by the
// addresses of the host, which kubeadm put into the peer URL.
func (inv *Inventory) machineOf(member etcd.Member, others []*clusterv1.Machine) *clusterv1.Machine {
	for _, machine := range inv.Machines {
		if member.ReportedBy != "" && machine.Status.NodeRef.Name == member.ReportedBy && !inv.outlived(machine) {
			return machine
		}
	}
	for _, machine := range others {
		if member.Name != "" && machine.Status.NodeRef.Name == member.Name {
			return machine
		}
	}
	for _, machine := range others {
		if machine.Status.NodeRef.IsDefined() && member.Name != "" {
			continue
		}
		addresses := inv.addressesOf(machine)
		for _, address := range member.PeerAddresses {
			if slices.Contains(addresses, address) {
				return machine
			}
		}
		if host := inv.Hosts[machine.Name]; member.Name != "" && hostname(host) == member.Name {
			return machine
		}
	}
	return nil
}

// outlived reports whether the Machine's host serves another one by now: somebody's finalizer keeps the Machine, and
// the host's next Node has the same name.
func (inv *Inventory) outlived(machine *clusterv1.Machine) bool {
	host := inv.Hosts[machine.Name]
	return host != nil && host.Spec.ConsumerRef != nil && inv.OwnHost(machine.Name) == nil
}

func hostname(host *infrav1.QuoinHost) string {
	if host == nil || host.Status.Facts == nil {
		return ""
	}
	return host.Status.Facts.Hostname
}
