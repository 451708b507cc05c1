// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
	"github.com/quoin-dev/cluster-api-provider-quoin/controllers/clusterupgrade"
	"github.com/quoin-dev/cluster-api-provider-quoin/controllers/etcdbackup"
	"github.com/quoin-dev/cluster-api-provider-quoin/controllers/preflightcheck"
	"github.com/quoin-dev/cluster-api-provider-quoin/controllers/quoincluster"
	"github.com/quoin-dev/cluster-api-provider-quoin/controllers/quoincontrolplane"
	"github.com/quoin-dev/cluster-api-provider-quoin/controllers/quoincontrolplane/needs"
	"github.com/quoin-dev/cluster-api-provider-quoin/controllers/quoinhost"
	"github.com/quoin-dev/cluster-api-provider-quoin/controllers/quoinmachine"
	"github.com/quoin-dev/cluster-api-provider-quoin/controllers/quoinmachinetemplate"
	"github.com/quoin-dev/cluster-api-provider-quoin/controllers/rolloutpolicy"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/async"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/egress"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/fieldindex"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/hostaccess"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/steady"
	controlplanewebhooks "github.com/quoin-dev/cluster-api-provider-quoin/internal/webhooks/controlplane"
	infrawebhooks "github.com/quoin-dev/cluster-api-provider-quoin/internal/webhooks/infrastructure"
)

func addProviders(ctx context.Context, mgr ctrl.Manager, o *Options) error {
	rules, err := o.rules(mgr.GetAPIReader())
	if err != nil {
		return err
	}
	// One pool of connections for everything in this process.
	connector := hostaccess.New(mgr.GetAPIReader(), o.connections(rules))
	if o.Harness.Connector != nil {
		o.Harness.Connector(connector)
	}
	if err := mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		<-ctx.Done()
		connector.Close()
		return nil
	})); err != nil {
		return fmt.Errorf("register the end of connections: %w", err)
	}
	secrets, err := kubeconfigReader(mgr, o)
	if err != nil {
		return err
	}
	clusterCache, err := newClusterCache(ctx, mgr, o, secrets)
	if err != nil {
		return fmt.Errorf("set up the connections to workload clusters: %w", err)
	}
	clusterCache = o.Harness.clusterCache(clusterCache)
	machines := newCachedMachines(mgr, o)
	if o.Harness.Clock == nil {
		// One for all controllers: whichever looks first sees by how much it was set forward.
		o.Harness.Clock = steady.New()
	}
	if o.Serves(Infrastructure) {
		if err := addInfrastructure(ctx, mgr, o, connector, rules, clusterCache, machines); err != nil {
			return fmt.Errorf("set up the infrastructure provider: %w", err)
		}
	}
	if o.Serves(ControlPlane) {
		if err := addControlPlane(ctx, mgr, o, connector, rules, clusterCache, secrets, machines); err != nil {
			return fmt.Errorf("set up the control-plane provider: %w", err)
		}
	}
	return nil
}

// rules of what is connected to at the word of users.
func (o *Options) rules(reader client.Reader) (*egress.Rules, error) {
	allowed, err := egress.Parse(o.AllowedNetworks)
	if err != nil {
		return nil, err
	}
	return egress.New(allowed, reader), nil
}

// connections to hosts, within the rules and with a bound on what they print.
func (o *Options) connections(rules *egress.Rules) ssh.PoolOptions {
	connections := o.Harness.SSH
	connections.Control, connections.Output = rules.Control, async.NewOutput(o.HostOutput)
	return connections
}

// kubeconfigReader reads the Secrets of workload clusters: from the cache where one is kept. The infrastructure
// provider may not list Secrets, and needs none but a kubeconfig each time it connects to a cluster.
func kubeconfigReader(mgr ctrl.Manager, o *Options) (client.Client, error) {
	if o.Serves(ControlPlane) {
		return secretCachingClient(mgr)
	}
	return mgr.GetClient(), nil
}

func addInfrastructure(
	ctx context.Context, mgr ctrl.Manager, o *Options, connector *hostaccess.Connector, rules *egress.Rules,
	clusterCache clustercache.ClusterCache, machines client.Reader,
) error {
	if err := fieldindex.Add(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	if err := infrawebhooks.SetupWithManager(mgr, machines); err != nil {
		return err
	}
	return add(ctx, mgr, o, infrastructure(mgr, o, connector, rules, clusterCache))
}

// controllers of a provider, and how many objects each reconciles at a time.
type controllers []struct {
	reconciler interface {
		reconcile.Reconciler
		SetupWithManager(ctx context.Context, mgr ctrl.Manager, options controller.Options) error
	}
	concurrency int
}

func add(ctx context.Context, mgr ctrl.Manager, o *Options, all controllers) error {
	for _, c := range all {
		if err := c.reconciler.SetupWithManager(ctx, mgr, o.concurrency(c.concurrency)); err != nil {
			return err
		}
	}
	return nil
}

func infrastructure(
	mgr ctrl.Manager, o *Options, connector *hostaccess.Connector, rules *egress.Rules,
	clusterCache clustercache.ClusterCache,
) controllers {
	needed := needs.Hosts{Reader: mgr.GetAPIReader()}
	return controllers{
		{&quoinhost.Reconciler{
			Client:           mgr.GetClient(),
			APIReader:        mgr.GetAPIReader(),
			Connector:        connector,
			NeedsPower:       needed.Power,
			Egress:           rules,
			BundleKeys:       o.bundleKeys(),
			Clock:            o.Harness.Clock,
			WatchFilterValue: o.WatchFilter,
			Timings:          o.Harness.Hosts,
		}, o.QuoinHostConcurrency},
		{&quoinmachine.Reconciler{
			Client:           mgr.GetClient(),
			APIReader:        mgr.GetAPIReader(),
			Withholds:        needed.Claim,
			ClusterCache:     clusterCache,
			Hosts:            connector,
			Clock:            o.Harness.Clock,
			WatchFilterValue: o.WatchFilter,
		}, o.QuoinMachineConcurrency},
		{&quoinmachinetemplate.Reconciler{
			Client:           mgr.GetClient(),
			WatchFilterValue: o.WatchFilter,
		}, 1},
		{&rolloutpolicy.Reconciler{
			Client:           mgr.GetClient(),
			APIReader:        mgr.GetAPIReader(),
			ClusterCache:     clusterCache,
			Egress:           rules,
			Clock:            o.Harness.Clock,
			WatchFilterValue: o.WatchFilter,
		}, o.QuoinClusterConcurrency},
		{&quoincluster.Reconciler{
			Client:           mgr.GetClient(),
			APIReader:        mgr.GetAPIReader(),
			WatchFilterValue: o.WatchFilter,
		}, o.QuoinClusterConcurrency},
	}
}

func addControlPlane(
	ctx context.Context, mgr ctrl.Manager, o *Options, connector *hostaccess.Connector, rules *egress.Rules,
	clusterCache clustercache.ClusterCache, secrets client.Client, machines client.Reader,
) error {
	if err := controlplanewebhooks.SetupWithManager(mgr, machines); err != nil {
		return err
	}
	return add(ctx, mgr, o, controlPlane(mgr, o, connector, rules, clusterCache, secrets))
}

func controlPlane(
	mgr ctrl.Manager, o *Options, connector *hostaccess.Connector, rules *egress.Rules,
	clusterCache clustercache.ClusterCache, secrets client.Client,
) controllers {
	return controllers{
		{&etcdbackup.Reconciler{
			Client:           mgr.GetClient(),
			APIReader:        mgr.GetAPIReader(),
			Hosts:            connector,
			Etcd:             o.Harness.Backup,
			Directory:        o.BackupDirectory,
			Spool:            o.BackupSpool,
			Egress:           rules,
			Clock:            o.Harness.Clock,
			WatchFilterValue: o.WatchFilter,
		}, o.QuoinControlPlaneConcurrency},
		{&preflightcheck.Reconciler{
			Client:           mgr.GetClient(),
			APIReader:        mgr.GetAPIReader(),
			Clock:            o.Harness.Clock,
			ClusterCache:     clusterCache,
			Hosts:            connector,
			Egress:           rules,
			BundleKeys:       o.bundleKeys(),
			WatchFilterValue: o.WatchFilter,
		}, 1},
		{&clusterupgrade.Reconciler{
			Client:           mgr.GetClient(),
			APIReader:        mgr.GetAPIReader(),
			Clock:            o.Harness.Clock,
			WatchFilterValue: o.WatchFilter,
		}, 1},
		{&quoincontrolplane.Reconciler{
			Client:              mgr.GetClient(),
			APIReader:           mgr.GetAPIReader(),
			SecretCachingClient: secrets,
			ClusterCache:        clusterCache,
			Hosts:               connector,
			Etcd:                o.Harness.Etcd,
			Clock:               o.Harness.Clock,
			WatchFilterValue:    o.WatchFilter,
			Timings:             o.Harness.ControlPlane,
		}, o.QuoinControlPlaneConcurrency},
	}
}

// newClusterCache connects to workload clusters by their kubeconfig Secrets.
func newClusterCache(
	ctx context.Context, mgr ctrl.Manager, o *Options, secrets client.Reader,
) (clustercache.ClusterCache, error) {
	return clustercache.SetupWithManager(ctx, mgr, clustercache.Options{
		SecretClient:     secrets,
		WatchFilterValue: o.WatchFilter,
		Cache: clustercache.CacheOptions{
			DefaultTransform: cache.TransformStripManagedFields(),
			ByObject:         quoincontrolplane.WorkloadObjects(),
		},
		Client: clustercache.ClientOptions{
			QPS:       o.ClusterCacheClientQPS,
			Burst:     o.ClusterCacheClientBurst,
			UserAgent: userAgent(o),
			Cache:     clustercache.ClientCacheOptions{DisableFor: []client.Object{&corev1.Secret{}}},
		},
	}, o.concurrency(o.ClusterCacheConcurrency))
}
