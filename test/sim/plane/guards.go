// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package plane

import (
	"context"
	"fmt"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/quoin-dev/cluster-api-provider-quoin/controllers/quoincontrolplane"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/etcd"
)

// guard lets a change through while the manager lives, and tells of it.
func (m *Manager) guard(where, what string, change func() error) error {
	if m.dead.Load() {
		return errKilled
	}
	if err := change(); err != nil {
		return err
	}
	m.wrote(Write{where, what})
	return nil
}

// workloads connects to workload clusters as long as the manager lives.
type workloads struct {
	clustercache.ClusterCache
	m *Manager
}

// GetClient implements clustercache.ClusterCache.
func (w workloads) GetClient(ctx context.Context, cluster client.ObjectKey) (client.Client, error) {
	c, err := w.ClusterCache.GetClient(ctx, cluster)
	return w.guarded(c, err)
}

// GetUncachedClient implements clustercache.ClusterCache.
func (w workloads) GetUncachedClient(ctx context.Context, cluster client.ObjectKey) (client.Client, error) {
	c, err := w.ClusterCache.GetUncachedClient(ctx, cluster)
	return w.guarded(c, err)
}

// GetRESTConfig implements clustercache.ClusterCache.
func (w workloads) GetRESTConfig(ctx context.Context, cluster client.ObjectKey) (*rest.Config, error) {
	config, err := w.ClusterCache.GetRESTConfig(ctx, cluster)
	if err != nil {
		return nil, err
	}
	return w.m.config(config), nil
}

func (w workloads) guarded(c client.Client, err error) (client.Client, error) {
	if err != nil {
		return nil, err
	}
	return guardedClient{c, w.m}, nil
}

type guardedClient struct {
	client.Client
	m *Manager
}

func (c guardedClient) guard(verb string, object client.Object, change func() error) error {
	return c.m.guard("workload", fmt.Sprintf("%s %T %s", verb, object, object.GetName()), change)
}

// Create implements client.Client.
func (c guardedClient) Create(ctx context.Context, o client.Object, options ...client.CreateOption) error {
	return c.guard("create", o, func() error { return c.Client.Create(ctx, o, options...) })
}

// Update implements client.Client.
func (c guardedClient) Update(ctx context.Context, o client.Object, options ...client.UpdateOption) error {
	return c.guard("update", o, func() error { return c.Client.Update(ctx, o, options...) })
}

// Patch implements client.Client.
func (c guardedClient) Patch(ctx context.Context, o client.Object, patch client.Patch, options ...client.PatchOption) error {
	return c.guard("patch", o, func() error { return c.Client.Patch(ctx, o, patch, options...) })
}

// Delete implements client.Client.
func (c guardedClient) Delete(ctx context.Context, o client.Object, options ...client.DeleteOption) error {
	return c.guard("delete", o, func() error { return c.Client.Delete(ctx, o, options...) })
}

// SubResource implements client.Client.
func (c guardedClient) SubResource(name string) client.SubResourceClient {
	return guardedSubResource{c.Client.SubResource(name), c, name}
}

// Status implements client.Client.
func (c guardedClient) Status() client.SubResourceWriter { return c.SubResource("status") }

type guardedSubResource struct {
	client.SubResourceClient
	c    guardedClient
	name string
}

// Create implements client.SubResourceWriter; evictions are made so.
func (s guardedSubResource) Create(ctx context.Context, o, sub client.Object, options ...client.SubResourceCreateOption) error {
	return s.c.guard("create "+s.name, o, func() error { return s.SubResourceClient.Create(ctx, o, sub, options...) })
}

// Update implements client.SubResourceWriter.
func (s guardedSubResource) Update(ctx context.Context, o client.Object, options ...client.SubResourceUpdateOption) error {
	return s.c.guard("update "+s.name, o, func() error { return s.SubResourceClient.Update(ctx, o, options...) })
}

// Patch implements client.SubResourceWriter.
func (s guardedSubResource) Patch(ctx context.Context, o client.Object, patch client.Patch, options ...client.SubResourcePatchOption) error {
	return s.c.guard("patch "+s.name, o, func() error { return s.SubResourceClient.Patch(ctx, o, patch, options...) })
}

// members changes etcd as long as the manager lives.
type members struct {
	quoincontrolplane.EtcdClient
	m *Manager
}

// MoveLeader implements quoincontrolplane.EtcdClient.
func (e members) MoveLeader(ctx context.Context, leader etcd.Endpoint, credentials etcd.Credentials, to uint64) error {
	return e.m.guard("etcd", fmt.Sprintf("move the lead to %x", to), func() error { return e.EtcdClient.MoveLeader(ctx, leader, credentials, to) })
}

// RemoveMember implements quoincontrolplane.EtcdClient.
func (e members) RemoveMember(ctx context.Context, endpoints []etcd.Endpoint, credentials etcd.Credentials, id uint64) error {
	return e.m.guard("etcd", fmt.Sprintf("remove member %x", id), func() error { return e.EtcdClient.RemoveMember(ctx, endpoints, credentials, id) })
}
