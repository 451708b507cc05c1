// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package plane is a management plane for tests on simulated hosts: a real API server, this project's own reconcilers in
// managers that can be killed at any moment, and the few things that Cluster API's core does to a Machine.
package plane

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
	"github.com/quoin-dev/cluster-api-provider-quoin/controllers/quoinhost"
	"github.com/quoin-dev/cluster-api-provider-quoin/controllers/quoinmachine"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/hostaccess"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/integration/rig"
)

// Plane is a running API server.
type Plane struct {
	rig    *rig.Rig
	mapper meta.RESTMapper
	// Client has every right.
	Client client.Client
	// Config reaches the API server without a limit of requests.
	Config *rest.Config
}

// Start brings the API server up; Stop it. KUBEBUILDER_ASSETS must name the binaries.
func Start(ctx context.Context, name string) (*Plane, error) {
	r, err := rig.StartPlane(ctx, rig.Options{Name: name})
	if err != nil {
		return nil, err
	}
	p := &Plane{rig: r, Config: rest.CopyConfig(r.Config)}
	p.Config.QPS, p.Config.Burst = -1, 0
	httpClient, err := rest.HTTPClientFor(p.Config)
	if err == nil {
		p.mapper, err = apiutil.NewDynamicRESTMapper(p.Config, httpClient)
	}
	if err == nil {
		p.Client, err = client.New(p.Config, client.Options{Scheme: r.Client.Scheme(), Mapper: p.mapper, HTTPClient: httpClient})
	}
	if err != nil {
		_ = r.Stop()
		return nil, fmt.Errorf("reaching the API server: %w", err)
	}
	return p, nil
}

// Root of the checkout.
func (p *Plane) Root() string { return p.rig.Root }

// Scheme knows every type that is used here.
func (p *Plane) Scheme() *runtime.Scheme { return p.Client.Scheme() }

// Stop ends the API server.
func (p *Plane) Stop() error { return p.rig.Stop() }

// Options of a manager.
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

// Manager runs the QuoinHost and QuoinMachine controllers in this process.
type Manager struct {
	cancel    context.CancelFunc
	ended     chan error
	dead      atomic.Bool
	requests  atomic.Int64
	connector *hostaccess.Connector
	manager   ctrl.Manager
}

// Run starts a manager and waits until its caches are filled.
func (p *Plane) Run(ctx context.Context, o Options) (*Manager, error) {
	m := &Manager{ended: make(chan error, 1)}
	config := rest.CopyConfig(p.Config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(request *http.Request) (*http.Response, error) {
			if m.dead.Load() {
				return nil, errKilled
			}
			m.requests.Add(1)
			return next.RoundTrip(request)
		})
	})
	byNamespace := map[string]cache.Config{}
	for _, namespace := range o.Namespaces {
		byNamespace[namespace] = cache.Config{}
	}
	if len(byNamespace) == 0 {
		byNamespace = nil
	}
	shutdown := time.Duration(0)
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme: p.Scheme(), Metrics: metricsserver.Options{BindAddress: "0"}, HealthProbeBindAddress: "0",
		Cache:                   cache.Options{DefaultNamespaces: byNamespace},
		MapperProvider:          func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return p.mapper, nil },
		GracefulShutdownTimeout: &shutdown,
	})
	if err != nil {
		return nil, fmt.Errorf("making a manager: %w", err)
	}
	m.manager = mgr
	m.connector = hostaccess.New(mgr.GetAPIReader(), o.Connections)
	anyName := true
	if o.Workers == 0 {
		o.Workers = 20
	}
	options := controller.Options{SkipNameValidation: &anyName, MaxConcurrentReconciles: o.Workers}
	hosts := &quoinhost.Reconciler{Client: mgr.GetClient(), APIReader: mgr.GetAPIReader(), Connector: m.connector, Haste: o.Haste}
	if o.Adjust != nil {
		o.Adjust(hosts)
	}
	ctx, m.cancel = context.WithCancel(ctx)
	if err := hosts.SetupWithManager(ctx, mgr, options); err != nil {
		return nil, err
	}
	machines := &quoinmachine.Reconciler{Client: mgr.GetClient(), APIReader: mgr.GetAPIReader()}
	if err := machines.SetupWithManager(ctx, mgr, options); err != nil {
		return nil, err
	}
	go func() { m.ended <- mgr.Start(ctx) }()
	if !mgr.GetCache().WaitForCacheSync(ctx) {
		return nil, fmt.Errorf("the manager's caches were not filled")
	}
	return m, nil
}

// Kill ends the manager as SIGKILL does: from this moment on nothing of it reaches the API server or a host any more,
// and what it had in memory is gone.
func (m *Manager) Kill() {
	m.dead.Store(true)
	m.connector.Close()
	m.cancel()
}

// Stop kills the manager and waits until it has ended.
func (m *Manager) Stop() error {
	m.Kill()
	select {
	case err := <-m.ended:
		return err
	case <-time.After(30 * time.Second):
		return fmt.Errorf("the manager does not end")
	}
}

// Requests counts what the manager asked the API server for.
func (m *Manager) Requests() int64 { return m.requests.Load() }

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }

var errKilled = fmt.Errorf("the manager was killed")
