// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package hostaccess

import (
	"cmp"
	"context"
	"errors"

	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/owner"
)

// OwnerRecord is what a host is told about its claim. The claim identifies it, because it survives a move and UIDs do
// not. Without a claim it has no UID, and serves to compare generations.
func OwnerRecord(host *infrav1.QuoinHost) owner.Record {
	record := owner.Record{Namespace: host.Namespace, Host: host.Name, Generation: Generation(host),
		ManagementCluster: host.Spec.ManagedBy}
	if order := host.Spec.Order; order != nil {
		record.Order, record.Heard = cmp.Or(order.Given, order.Heard), order.Heard
	}
	if ref := host.Spec.ConsumerRef; ref != nil {
		record.Machine, record.UID = ref.Name, ref.Claim
	}
	return record
}

// Generation of the host's claim. Objects from before generations were counted have none, and stand for the first.
func Generation(host *infrav1.QuoinHost) int64 { return max(host.Spec.ClaimGeneration, 1) }

// HoldHost has the host confirm that it serves this management cluster, and nobody take it over until release is called
// or owner.Lease is over. Errors are those of owner.Store.Hold and of ConnectAgain.
func (c *Connector) HoldHost(
	ctx context.Context, host *infrav1.QuoinHost,
) (release func(context.Context) error, err error) {
	connection, err := c.ConnectAgain(ctx, host)
	if err != nil {
		return nil, err
	}
	return latest(ctx, c.reader, host, func(ours owner.Record) (func(context.Context) error, error) {
		return owner.Store{}.Hold(ctx, connection, ours)
	})
}

type release = func(context.Context) error

// latest holds by what the API server says where the host knows an order that host does not: an object from a cache may
// be behind the order that was given a moment ago, and is no copy for that.
func latest(
	ctx context.Context, reader client.Reader, host *infrav1.QuoinHost, hold func(owner.Record) (release, error),
) (release, error) {
	release, err := hold(OwnerRecord(host))
	var stale *owner.StaleError
	if !errors.As(err, &stale) || !stale.Order() {
		return release, err
	}
	now := &infrav1.QuoinHost{}
	if reader.Get(ctx, client.ObjectKeyFromObject(host), now) != nil || now.UID != host.UID ||
		OwnerRecord(now) == OwnerRecord(host) {
		return release, err
	}
	return hold(OwnerRecord(now))
}
