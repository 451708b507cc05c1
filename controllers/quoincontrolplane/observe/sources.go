// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package observe reads what there is of a control plane. The management cluster gives an Inventory, and with the
// workload cluster, etcd and hosts that becomes an Observation. Neither changes once it is made, and nothing here can
// write: all that it reads from is a client.Reader.
package observe

import (
	"context"
	"net"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/controllers/quoincontrolplane/history"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/etcd"
)

// Sources are what is read from.
type Sources struct {
	// Cache reads the management cluster from a cache, Live from its API server.
	Cache, Live client.Reader
	// Secrets reads the cluster's certificates, from a cache of labeled Secrets perhaps.
	Secrets client.Reader
	// Workloads reads workload clusters.
	Workloads Workloads
	// Watch makes changes in the workload cluster start a reconcile. Watches that exist stay.
	Watch func(context.Context, *Subject) error
	// Hosts reach the etcd members, and Etcd reads them.
	Hosts HostDialer
	Etcd  EtcdReader

	Clock   clock.PassiveClock
	History *history.History
	Delays  Delays
}

// Delays are for how long something must be so until a decision rests on it.
type Delays struct {
	// DeadMember is how long an etcd voter must be silent until it counts as dead.
	DeadMember time.Duration
	// OrphanedMember is how long an etcd voter without a Machine must be silent until it is removed.
	OrphanedMember time.Duration
	// SkippedDrain is for how long a drain must look skipped.
	SkippedDrain time.Duration
	// APIServerStop is how long a host may take to end its API server.
	APIServerStop time.Duration
}

// Workloads reads workload clusters.
type Workloads interface {
	// GetReader reads from the cache of the cluster.
	GetReader(ctx context.Context, cluster client.ObjectKey) (client.Reader, error)
	// GetUncachedReader reads from the API server of the cluster.
	GetUncachedReader(ctx context.Context, cluster client.ObjectKey) (client.Reader, error)
	// GetHealthCheckingState reports on the probes of the connection.
	GetHealthCheckingState(ctx context.Context, cluster client.ObjectKey) clustercache.HealthCheckingState
}

// HostDialer opens connections from hosts, such as to the etcd member on a host's loopback address.
type HostDialer interface {
	DialHost(ctx context.Context, host *infrav1.QuoinHost, network, address string) (net.Conn, error)
}

// EtcdReader reads the membership of an etcd cluster.
type EtcdReader interface {
	Read(ctx context.Context, endpoints []etcd.Endpoint, credentials etcd.Credentials) (etcd.Cluster, error)
}

// reader hides what else its client can do.
type reader struct{ client.Reader }

// ReadOnly reads as the reader does, and is nothing more than that.
func ReadOnly(from client.Reader) client.Reader { return reader{from} }

// Subject is the control plane that is observed, as it was read, and what came of its prerequisites.
type Subject struct {
	Cluster      *clusterv1.Cluster
	ControlPlane *controlplanev1.QuoinControlPlane
	// Template of infrastructure machines; nil when it does not exist, and then TemplateProblem says so.
	Template        *unstructured.Unstructured
	TemplateProblem string
	// Certificates is the condition to set; nil when they were not looked at.
	Certificates *metav1.Condition
}

// Replicas is how many Machines the control plane is to have.
func (s *Subject) Replicas() int { return int(ptr.Deref(s.ControlPlane.Spec.Replicas, 1)) }

// Deleting reports whether the control plane or its Cluster is being deleted.
func (s *Subject) Deleting() bool {
	return !s.ControlPlane.DeletionTimestamp.IsZero() || !s.Cluster.DeletionTimestamp.IsZero()
}

// Answered reports whether the cluster's API is known to have answered once. Status says so, which is lost in a move or
// a restore of the objects.
func (s *Subject) Answered() bool {
	return ptr.Deref(s.ControlPlane.Status.Initialization.ControlPlaneInitialized, false) ||
		conditions.IsTrue(s.ControlPlane, controlplanev1.ControlPlaneInitializedCondition)
}
