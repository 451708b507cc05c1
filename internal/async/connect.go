// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package async

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ConnectTimeout is how long a connection may take, before its Cluster is taken for one that cannot be reached.
const ConnectTimeout = 30 * time.Second

// Connected is a reader of a Cluster that asks its API server each time. A call waits in it for the connection of a
// process, or of a Cluster, that has just begun.
func Connected(
	ctx context.Context, clusters clustercache.ClusterCache, cluster client.ObjectKey,
) (reader client.Reader, err error) {
	if clusters == nil {
		return nil, errors.New("there is no cache of Clusters")
	}
	waited := wait.PollUntilContextTimeout(ctx, time.Second, ConnectTimeout, true,
		func(ctx context.Context) (bool, error) {
			reader, err = clusters.GetUncachedClient(ctx, cluster)
			return !errors.Is(err, clustercache.ErrClusterNotConnected), nil
		})
	return reader, errors.Join(err, waited)
}
