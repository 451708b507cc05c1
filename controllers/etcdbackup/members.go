// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package etcdbackup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/collections"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/backup"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/etcd"
)

// Hosts are reached over SSH.
type Hosts interface {
	// Connect returns the connection to a host.
	ConnectOnce(ctx context.Context, host *infrav1.QuoinHost) (ssh.Host, error)
	// DialHost opens a connection from a host, such as to the etcd member on its loopback address.
	DialHost(ctx context.Context, host *infrav1.QuoinHost, network, address string) (net.Conn, error)
}

// EtcdClient reads the members of an etcd cluster, and one member's database.
type EtcdClient interface {
	Read(ctx context.Context, endpoints []etcd.Endpoint, credentials etcd.Credentials) (etcd.Cluster, error)
	Snapshot(ctx context.Context, endpoint etcd.Endpoint, credentials etcd.Credentials) (backup.Stream, error)
}

// Network is the EtcdClient over the network.
type Network struct{ etcd.Client }

// Snapshot streams a member's database.
func (n Network) Snapshot(
	ctx context.Context, endpoint etcd.Endpoint, credentials etcd.Credentials,
) (backup.Stream, error) {
	snapshot, err := n.Client.Snapshot(ctx, endpoint, credentials)
	if err != nil {
		return backup.Stream{}, err
	}
	return backup.Stream{ReadCloser: snapshot, Size: snapshot.Size, Revision: snapshot.Revision, Node: endpoint.Name,
		Version: snapshot.Version}, nil
}

func (r *Reconciler) etcd() EtcdClient {
	if r.Etcd != nil {
		return r.Etcd
	}
	return Network{}
}

// maxLag is how many entries a member may be behind and still be asked for its database.
const maxLag = 1000

// members finds the hosts of a control plane's Machines that are nodes. It finds none where one of them belongs to
// another management cluster by now.
func (r *Reconciler) members(ctx context.Context, s *reconciliation) ([]etcd.Endpoint, *failure) {
	machines, err := collections.GetControlPlaneMachinesForCluster(ctx, r.Client, s.cluster)
	if err != nil {
		return nil, failed(controlplanev1.SnapshotFailedReason, err)
	}
	var endpoints []etcd.Endpoint
	for _, machine := range machines.SortedByCreationTimestamp() {
		if !metav1.IsControlledBy(machine, s.controlPlane) || !machine.Status.NodeRef.IsDefined() {
			continue
		}
		_, host, err := r.hostOf(ctx, machine)
		if err != nil {
			return nil, failed(controlplanev1.SnapshotFailedReason, err)
		}
		if host == nil {
			continue
		}
		// After a snapshot the store is pruned by the spec here, which another management cluster may have changed since.
		if stale := host.StaleClaim(); stale != nil {
			return nil, failed(controlplanev1.SnapshotFailedReason, fmt.Errorf("nothing is stored or deleted from here: "+
				"QuoinHost %s/%s: %s", host.Namespace, host.Name, stale.Message))
		}
		endpoints = append(endpoints, etcd.Endpoint{Name: machine.Status.NodeRef.Name,
			Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
				return r.Hosts.DialHost(ctx, host, network, address)
			}})
	}
	if len(endpoints) == 0 {
		return nil, failed(controlplanev1.EtcdUnavailableReason, errors.New("no control-plane Machine has a host and a Node"))
	}
	return endpoints, nil
}

// hostOf reads the QuoinMachine and the host of a Machine; each is nil when there is none.
func (r *Reconciler) hostOf(
	ctx context.Context, machine *clusterv1.Machine,
) (*infrav1.QuoinMachine, *infrav1.QuoinHost, error) {
	infra := &infrav1.QuoinMachine{}
	if err := r.Client.Get(ctx, client.ObjectKey{Namespace: machine.Namespace, Name: machine.Spec.InfrastructureRef.Name},
		infra); err != nil {
		return nil, nil, client.IgnoreNotFound(err)
	}
	namespace, name, ok := infrav1.HostOf(infra)
	if !ok {
		return infra, nil, nil
	}
	key := client.ObjectKey{Namespace: namespace, Name: name}
	host := &infrav1.QuoinHost{}
	if err := r.APIReader.Get(ctx, key, host); err != nil {
		if apierrors.IsNotFound(err) {
			return infra, nil, nil
		}
		return nil, nil, fmt.Errorf("reading QuoinHost %s: %w", key, err)
	}
	return infra, host, nil
}

// errEtcd is what every failure of the members is.
var errEtcd = errors.New("no etcd member gave a snapshot")

// open asks the best member for its database, and the next one when it does not give it.
func open(
	ctx context.Context, client EtcdClient, endpoints []etcd.Endpoint, credentials func() (etcd.Credentials, error),
) (backup.Stream, error) {
	minted, err := credentials()
	if err != nil {
		return backup.Stream{}, fmt.Errorf("%w: %w", errEtcd, err)
	}
	cluster, err := client.Read(ctx, endpoints, minted)
	if err != nil {
		return backup.Stream{}, fmt.Errorf("%w: %w", errEtcd, err)
	}
	if !cluster.Agreed {
		// A cut-off member may lack what the others acknowledged; and what is in the store may be all that is left.
		return backup.Stream{}, fmt.Errorf("%w: they have no quorum, so none of them can say that its data is up to date",
			errEtcd)
	}
	var failures []error
	for _, member := range eligible(cluster) {
		at := slices.IndexFunc(endpoints, func(e etcd.Endpoint) bool { return e.Name == member.Name })
		if at < 0 {
			continue
		}
		opening, cancel := context.WithCancel(ctx)
		slow := time.AfterFunc(2*etcd.CallTimeout, cancel)
		stream, err := client.Snapshot(opening, endpoints[at], minted)
		inTime := slow.Stop()
		if err == nil && inTime {
			stream.ReadCloser = &bounded{stream.ReadCloser, cancel}
			return stream, nil
		}
		cancel()
		if err == nil {
			_ = stream.Close()
		}
		if !inTime {
			// Not "canceled", which is what nobody needs to hear of.
			err = fmt.Errorf("nothing of a snapshot came within %s", 2*etcd.CallTimeout)
		}
		failures = append(failures, fmt.Errorf("node %s: %w", member.Name, err))
	}
	if len(failures) == 0 {
		return backup.Stream{}, fmt.Errorf("%w: none of %d members is a healthy, up-to-date voter on a known host", errEtcd,
			len(cluster.Members))
	}
	return backup.Stream{}, fmt.Errorf("%w: %w", errEtcd, errors.Join(failures...))
}

// eligible are the voters whose data is whole and up to date, in the order in which they are asked: the leader has
// other work to do.
func eligible(cluster etcd.Cluster) []etcd.Member {
	var members []etcd.Member
	for _, member := range cluster.Members {
		// A member that is full can still be read, and then more than ever should be.
		if member.Started() && !member.Learner && member.Answers && member.Lag <= maxLag &&
			!slices.Contains(member.Alarms, "CORRUPT") {
			members = append(members, member)
		}
	}
	slices.SortFunc(members, func(a, b etcd.Member) int {
		if a.Leader != b.Leader {
			if a.Leader {
				return 1
			}
			return -1
		}
		return cmp.Or(cmp.Compare(a.Lag, b.Lag), cmp.Compare(a.ID, b.ID))
	})
	return members
}

// bounded ends its context with the stream.
type bounded struct {
	io.ReadCloser
	cancel context.CancelFunc
}

// Close ends the stream, and then what it was opened with.
func (b *bounded) Close() error {
	err := b.ReadCloser.Close()
	b.cancel()
	return err
}
