// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
	"github.com/quoin-dev/cluster-api-provider-quoin/controllers/etcdbackup"
	"github.com/quoin-dev/cluster-api-provider-quoin/controllers/quoincontrolplane"
	"github.com/quoin-dev/cluster-api-provider-quoin/controllers/quoinhost"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/hostaccess"
)

// Harness changes what a process has one of, for tests that run managers beside each other in one process and end them
// at any instant. The zero value changes nothing.
type Harness struct {
	// Beside lets controllers of other managers have the same names, and the manager end without waiting for what runs.
	Beside bool
	// Hosts are the waits of the QuoinHost controller; those of real hosts when zero.
	Hosts quoinhost.Timings
	// ControlPlane are the waits of the QuoinControlPlane controller; those of real hosts when zero.
	ControlPlane quoincontrolplane.Timings
	// Mapper spares each manager the discovery of the API.
	Mapper meta.RESTMapper
	// Webhooks serves the webhooks in place of a server of the manager's own.
	Webhooks webhook.Server
	// SSH tunes the connections to hosts.
	SSH ssh.PoolOptions
	// Connector is told what makes the connections to hosts.
	Connector func(*hostaccess.Connector)
	// ClusterCache wraps the connections to workload clusters.
	ClusterCache func(clustercache.ClusterCache) clustercache.ClusterCache
	// Clock of all controllers; the system's when nil.
	Clock clock.PassiveClock
	// Etcd reads and changes etcd in place of etcd.Client.
	Etcd quoincontrolplane.EtcdClient
	// Backup reads etcd's snapshots in place of etcdbackup.Network.
	Backup etcdbackup.EtcdClient
}

func (h *Harness) clusterCache(c clustercache.ClusterCache) clustercache.ClusterCache {
	if h.ClusterCache == nil {
		return c
	}
	return h.ClusterCache(c)
}

// shutdownTimeout is how long the manager waits for what runs when it ends.
func (h *Harness) shutdownTimeout() *time.Duration {
	if !h.Beside {
		return ptr.To(ShutdownTimeout)
	}
	return ptr.To(time.Duration(0))
}

func (o *Options) concurrency(workers int) controller.Options {
	options := controller.Options{MaxConcurrentReconciles: workers}
	if o.Harness.Beside {
		options.SkipNameValidation = ptr.To(true)
	}
	return options
}
