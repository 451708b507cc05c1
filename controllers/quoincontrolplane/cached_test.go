// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoincontrolplane

import (
	"context"
	"errors"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
)

// cached connects to the workload cluster: live through a client that counts what is read, and else through a cache
// that shows the same.
type cached struct {
	clustercache.ClusterCache
	probes clustercache.HealthCheckingState
	cache  client.Client
	// broken is why the cache cannot be read.
	broken error
	live   int
}

func (c *cached) GetHealthCheckingState(context.Context, client.ObjectKey) clustercache.HealthCheckingState {
	return c.probes
}

func (c *cached) GetReader(context.Context, client.ObjectKey) (client.Reader, error) {
	return c.cache, c.broken
}

func (c *cached) GetUncachedClient(context.Context, client.ObjectKey) (client.Client, error) {
	return interceptor.NewClient(c.cache.(client.WithWatch), interceptor.Funcs{
		Get: func(ctx context.Context, inner client.WithWatch, key client.ObjectKey, object client.Object,
			options ...client.GetOption) error {
			c.live++
			return inner.Get(ctx, key, object, options...)
		},
		List: func(ctx context.Context, inner client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			c.live++
			return inner.List(ctx, list, options...)
		},
	}), nil
}

// idle is a control plane of one Machine with which nothing is to be done, and its connection.
func idle(t *testing.T) (*world, *cached) {
	t.Helper()
	w := newWorld(t, 1)
	initialized(t, w)
	connection := &cached{ClusterCache: w.r.ClusterCache, cache: w.workload,
		probes: clustercache.HealthCheckingState{LastProbeSuccessTime: time.Now()}}
	w.r.ClusterCache = connection
	w.reconcile()
	connection.live = 0
	return w, connection
}

func TestALookAtAnIdleControlPlaneReadsTheWorkloadClusterFromTheCache(t *testing.T) {
	w, connection := idle(t)
	w.once()
	w.g.Expect(connection.live).To(BeZero())
}

// A cache does not tell that the cluster is silent.
func TestAClusterThatMissesAProbeIsReadLive(t *testing.T) {
	for name, probes := range map[string]clustercache.HealthCheckingState{
		"it missed one":        {LastProbeSuccessTime: time.Now(), ConsecutiveFailures: 1},
		"it was never reached": {},
	} {
		t.Run(name, func(t *testing.T) {
			w, connection := idle(t)
			connection.probes = probes
			w.once()
			w.g.Expect(connection.live).To(BeNumerically(">", 0))
		})
	}
}

func TestNothingIsDoneByACache(t *testing.T) {
	w, connection := idle(t)
	w.edit(func(p *controlplanev1.QuoinControlPlane) { p.Spec.Version = "v1.36.3" })
	before := w.configVersion()
	connection.live = 0
	for range 10 {
		if w.configVersion() == before {
			w.fetchImages()
			w.once()
		}
	}
	w.g.Expect(w.configVersion()).To(Equal("v1.36.3"))
	w.g.Expect(connection.live).To(BeNumerically(">", 0), "what leads to a change is read live")
}

// It may not be filled yet, or not be allowed: that says nothing of the cluster.
func TestAClusterWhoseCacheCannotBeReadIsReadLive(t *testing.T) {
	w, connection := idle(t)
	connection.broken = errors.New("not synced")
	w.once()
	w.g.Expect(connection.live).To(BeNumerically(">", 0))
	w.g.Expect(w.condition(controlplanev1.ControlPlaneAvailableCondition).Status).To(Equal(metav1.ConditionTrue))
	w.g.Expect(w.plane().Status.Operation).To(BeNil(), "nothing is waited for")
}

// etcd is read once for a step, unless the API server has other Machines than the cache showed.
func TestAStepReadsEtcdOnceWhereTheCacheWasRight(t *testing.T) {
	for name, c := range map[string]struct {
		lag   bool
		reads int
	}{"the cache is right": {false, 1}, "the cache lags": {true, 2}} {
		t.Run(name, func(t *testing.T) {
			w, names := three(t)
			w.reconcile()
			w.edit(outdate)
			live := w.r.Client
			if c.lag {
				stale := w.machine(names[0])
				stale.ResourceVersion = "1"
				w.r.writes = nil
				w.r.Client = interceptor.NewClient(w.mgmt.(client.WithWatch), interceptor.Funcs{
					List: func(ctx context.Context, inner client.WithWatch, list client.ObjectList,
						options ...client.ListOption) error {
						err := inner.List(ctx, list, options...)
						if machines, ok := list.(*clusterv1.MachineList); ok {
							for i := range machines.Items {
								if machines.Items[i].Name == stale.Name {
									machines.Items[i] = *stale
								}
							}
						}
						return err
					},
				})
			}
			before := w.etcd.reads
			w.once()
			w.g.Expect(w.plane().Status.Operation.Message).To(ContainSubstring("making a new one first"))
			w.g.Expect(w.etcd.reads - before).To(Equal(c.reads))
			w.r.Client = live
		})
	}
}
