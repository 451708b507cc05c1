// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package plane is a management plane for tests on simulated hosts: a real API server, this project's own reconcilers in
// managers that can be killed at any moment, and Cluster API: either the few things that its core does to a Machine
// (Namespace, AddMachine, DeleteMachine), or its real controllers (Site).
package plane

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/cluster-api/feature"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
	"github.com/quoin-dev/cluster-api-provider-quoin/controllers/quoincluster"
	"github.com/quoin-dev/cluster-api-provider-quoin/controllers/quoincontrolplane/needs"
	"github.com/quoin-dev/cluster-api-provider-quoin/controllers/quoinhost"
	"github.com/quoin-dev/cluster-api-provider-quoin/controllers/quoinmachine"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/fieldindex"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/hostaccess"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/integration/rig"
)

// Plane is a running API server.
type Plane struct {
	// name tells the informers of one plane from those of another.
	name   string
	rig    *rig.Rig
	mapper meta.RESTMapper
	door   *door
	// inventory is written by one at a time: clusterctl installs its kind where it finds none.
	inventory sync.Mutex
	// Client has every right.
	Client client.Client
	// Config reaches the API server without a limit of requests.
	Config *rest.Config
}

// Start brings the API server up; Stop it. KUBEBUILDER_ASSETS must name the binaries.
func Start(ctx context.Context, name string) (*Plane, error) {
	// A process has one set of gates, and indexes and webhooks of all managers heed them.
	if err := feature.MutableGates.Set(string(feature.ClusterTopology) + "=true"); err != nil {
		return nil, fmt.Errorf("opening the feature gate of topologies: %w", err)
	}
	r, err := rig.StartPlane(ctx, rig.Options{Name: name})
	if err != nil {
		return nil, err
	}
	p := &Plane{name: name, rig: r, Config: rest.CopyConfig(r.Config)}
	p.Config.QPS, p.Config.Burst = -1, 0
	httpClient, err := rest.HTTPClientFor(p.Config)
	if err == nil {
		p.mapper, err = apiutil.NewDynamicRESTMapper(p.Config, httpClient)
	}
	if err == nil {
		p.Client, err = client.New(p.Config, client.Options{Scheme: r.Client.Scheme(), Mapper: p.mapper, HTTPClient: httpClient})
	}
	if err == nil {
		p.door, err = openDoor()
	}
	if err != nil {
		_ = r.Stop()
		return nil, fmt.Errorf("reaching the API server: %w", err)
	}
	return p, nil
}

// Root of the checkout.
func (p *Plane) Root() string { return p.rig.Root }

// Kubeconfig is the path of an administrator's kubeconfig.
func (p *Plane) Kubeconfig() string { return p.rig.Kubeconfig }

// Scheme knows every type that is used here.
func (p *Plane) Scheme() *runtime.Scheme { return p.Client.Scheme() }

// Stop ends the API server.
func (p *Plane) Stop() error {
	_ = p.door.listener.Close()
	return p.rig.Stop()
}

// Options of a manager of hosts.
type Options struct {
	// Namespaces that it looks at; all when empty.
	Namespaces []string
	// Haste divides the waits of the QuoinHost controller.
	Haste int
	// Workers of each controller; 20 when 0.
	Workers int
	// Connections tune SSH.
	Connections ssh.PoolOptions
	// Adjust changes the reconciler before it starts.
	Adjust func(*quoinhost.Reconciler)
}

// Run starts a manager of the QuoinHost and QuoinMachine controllers and waits until its caches are filled.
func (p *Plane) Run(ctx context.Context, o Options) (*Manager, error) {
	m := &Manager{}
	byNamespace := map[string]cache.Config{}
	for _, namespace := range o.Namespaces {
		byNamespace[namespace] = cache.Config{}
	}
	if len(byNamespace) == 0 {
		byNamespace = nil
	}
	shutdown := time.Duration(0)
	mgr, err := ctrl.NewManager(m.config(p.Config), ctrl.Options{
		Scheme: p.Scheme(), Metrics: metricsserver.Options{BindAddress: "0"}, HealthProbeBindAddress: "0",
		Cache:                   cache.Options{DefaultNamespaces: byNamespace},
		MapperProvider:          func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return p.mapper, nil },
		GracefulShutdownTimeout: &shutdown,
	})
	if err != nil {
		return nil, fmt.Errorf("making a manager: %w", err)
	}
	m.connector = hostaccess.New(mgr.GetAPIReader(), o.Connections)
	if o.Workers == 0 {
		o.Workers = 20
	}
	needed := needs.Hosts{Reader: mgr.GetAPIReader()}
	hosts := &quoinhost.Reconciler{Client: mgr.GetClient(), APIReader: mgr.GetAPIReader(), Connector: m.connector,
		NeedsPower: needed.Power, Timings: quickerHosts(o.Haste)}
	if o.Adjust != nil {
		o.Adjust(hosts)
	}
	ctx, m.cancel = context.WithCancel(ctx)
	if err := fieldindex.Add(ctx, mgr.GetFieldIndexer()); err != nil {
		return nil, err
	}
	if err := hosts.SetupWithManager(ctx, mgr, beside(o.Workers)); err != nil {
		return nil, err
	}
	machines := &quoinmachine.Reconciler{Client: mgr.GetClient(), APIReader: mgr.GetAPIReader(), Withholds: needed.Claim}
	if err := machines.SetupWithManager(ctx, mgr, beside(o.Workers)); err != nil {
		return nil, err
	}
	clusters := &quoincluster.Reconciler{Client: mgr.GetClient(), APIReader: mgr.GetAPIReader()}
	if err := clusters.SetupWithManager(ctx, mgr, beside(o.Workers)); err != nil {
		return nil, err
	}
	if err := m.start(ctx, mgr); err != nil {
		return nil, err
	}
	return m, nil
}
