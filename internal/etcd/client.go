// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package etcd reads and changes the membership of a stacked etcd cluster through the hosts that its members run on.
//
// Each member is asked on its own loopback address through a connection that the caller's dialer makes (an SSH tunnel),
// so membership can be read and repaired when no API server answers. Every call is bound by its context and by
// CallTimeout; no client outlives the call it was made for, and none follows addresses that etcd advertises.
package etcd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
)

const (
	// CallTimeout bounds one change of the membership, connection included.
	CallTimeout = 10 * time.Second
	// ReadTimeout bounds a whole reading of a cluster, over all its members at once.
	ReadTimeout = 5 * time.Second
	// ClientAddress is where a member answers on its own host.
	ClientAddress = "127.0.0.1:2379"
)

// DialFunc opens a connection from a member's host.
type DialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// Endpoint is a member's host.
type Endpoint struct {
	// Name of the member's node, which its serving certificate must carry.
	Name string
	// Dial opens a connection from the host.
	Dial DialFunc
}

// connect makes a client for exactly one member.
func connect(ctx context.Context, endpoint Endpoint, credentials Credentials) (*clientv3.Client, error) {
	client, err := clientv3.New(clientv3.Config{
		Context:   ctx,
		Endpoints: []string{"https://" + ClientAddress},
		TLS:       credentials.forServer(endpoint.Name),
		// Never follow the advertised client URLs: they need not be reachable from here.
		AutoSyncInterval: 0,
		Logger:           zap.NewNop(),
		DialOptions: []grpc.DialOption{
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
				return endpoint.Dial(ctx, "tcp", ClientAddress)
			}),
		},
	})
	if err != nil {
		return nil, fmt.Errorf("etcd client for node %s: %w", endpoint.Name, err)
	}
	return client, nil
}

// memberStatus asks the one member that the client is connected to. The client library's own Status opens a second
// connection, which through a tunnel is a second tunnel.
func memberStatus(ctx context.Context, client *clientv3.Client) (*pb.StatusResponse, error) {
	return pb.NewMaintenanceClient(client.ActiveConnection()).Status(ctx, &pb.StatusRequest{})
}

// Client reads and changes etcd clusters over the network.
type Client struct{}

// MoveLeader gives the leadership to the member with id to. leader is the host of the present leader, because only the
// leader can hand over.
func (Client) MoveLeader(ctx context.Context, leader Endpoint, credentials Credentials, to uint64) error {
	ctx, cancel := context.WithTimeout(ctx, CallTimeout)
	defer cancel()
	client, err := connect(ctx, leader, credentials)
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	if _, err := client.MoveLeader(ctx, to); err != nil {
		return fmt.Errorf("moving etcd leadership from node %s to member %x: %w", leader.Name, to, err)
	}
	return nil
}

// ErrLastMember is returned instead of removing the only member: the data would be gone with it.
var ErrLastMember = errors.New("it is the only etcd member")

// RemoveMember removes the member with the given id through the first endpoint that answers. A member that is not in
// the list any more is not an error. Without an error the removal outlives a crash of any member that stays.
func (Client) RemoveMember(ctx context.Context, endpoints []Endpoint, credentials Credentials, id uint64) error {
	if len(endpoints) == 0 {
		return fmt.Errorf("removing etcd member %x: no other member's host is known", id)
	}
	ctx, cancel := context.WithTimeout(ctx, CallTimeout)
	defer cancel()
	var failures []error
	for i, endpoint := range endpoints {
		// A dead host may use up its share of the time, not that of the hosts after it.
		deadline, _ := ctx.Deadline()
		share := time.Until(deadline) / time.Duration(len(endpoints)-i)
		err := removeThrough(ctx, share, endpoint, credentials, id)
		if err == nil || errors.Is(err, ErrLastMember) {
			return err
		}
		failures = append(failures, err)
	}
	return fmt.Errorf("removing etcd member %x: %w", id, errors.Join(failures...))
}

func removeThrough(
	ctx context.Context, timeout time.Duration, endpoint Endpoint, credentials Credentials, id uint64,
) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	client, err := connect(ctx, endpoint, credentials)
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	// Status is not retried by the client library, so a dead host is known at once.
	if _, err := memberStatus(ctx, client); err != nil {
		return fmt.Errorf("through node %s: %w", endpoint.Name, err)
	}
	// The list is read through the quorum, so a member that a cut-off host still remembers is not removed twice.
	list, err := client.MemberList(ctx)
	if err != nil {
		return fmt.Errorf("through node %s: %w", endpoint.Name, err)
	}
	found := false
	for _, member := range list.Members {
		found = found || member.ID == id
	}
	if found && len(list.Members) == 1 {
		return ErrLastMember
	}
	if found {
		if _, err := client.MemberRemove(ctx, id); err != nil && !errors.Is(err, rpctypes.ErrMemberNotFound) {
			return fmt.Errorf("through node %s: %w", endpoint.Name, err)
		}
	}
	if err := persist(ctx, client); err != nil {
		return fmt.Errorf("through node %s: %w", endpoint.Name, err)
	}
	return nil
}

// persistKey is a key that nobody has.
const persistKey = "quoin.cluster.x-k8s.io/settled"

// persist makes a change of the membership durable. That it was committed is written to the disk only together with the
// next entry of the log (raft.MustSync). Should the one survivor of two crash before that, it would ask the other one
// for its vote for ever, and that one is gone because it has learned of its removal. Deleting what is not there is such
// an entry, changes no revision, and is taken also when the database is full.
func persist(ctx context.Context, client *clientv3.Client) error {
	if _, err := client.Delete(ctx, persistKey); err != nil {
		return fmt.Errorf("making the removal durable: %w", err)
	}
	return nil
}
