// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package hostaccess

import (
	"context"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/owner"
)

// OwnerRecord is what a host is told about its claim. The claim identifies it, because it survives a move and UIDs do not. Without a
// claim it has no UID, and serves to compare generations.
func OwnerRecord(host *infrav1.QuoinHost) owner.Record {
	record := owner.Record{Namespace: host.Namespace, Host: host.Name, Generation: Generation(host), Plane: host.Spec.ManagedBy}
	if ref := host.Spec.ConsumerRef; ref != nil {
		record.Machine, record.UID = ref.Name, ref.Claim
	}
	return record
}

// Generation of the host's claim. Objects from before generations were counted have none, and stand for the first.
func Generation(host *infrav1.QuoinHost) int64 { return max(host.Spec.ClaimGeneration, 1) }

// HoldHost has the host confirm that it serves this management cluster, and nobody take it over until release is called or
// owner.Lease is over. Errors are those of owner.Store.Hold and of ConnectAgain.
func (c *Connector) HoldHost(ctx context.Context, host *infrav1.QuoinHost) (release func(context.Context) error, err error) {
	connection, err := c.ConnectAgain(ctx, host)
	if err != nil {
		return nil, err
	}
	return owner.Store{}.Hold(ctx, connection, OwnerRecord(host))
}
