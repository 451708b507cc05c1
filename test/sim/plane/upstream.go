// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package plane

import (
	"context"
	"fmt"
	"net/http"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	bootstrapv1beta1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta1" //nolint:staticcheck // served until upstream drops it
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1beta1 "sigs.k8s.io/cluster-api/api/core/v1beta1" //nolint:staticcheck // served until upstream drops it
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"
	"sigs.k8s.io/cluster-api/bootstrap/kubeadm/reconcilers/kubeadmconfig"
	bootstrapsetup "sigs.k8s.io/cluster-api/bootstrap/kubeadm/setup"
	bootstrapadmission "sigs.k8s.io/cluster-api/bootstrap/kubeadm/webhooks/admission"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/core/reconcilers/cluster"
	"sigs.k8s.io/cluster-api/core/reconcilers/clusterclass"
	"sigs.k8s.io/cluster-api/core/reconcilers/machine"
	"sigs.k8s.io/cluster-api/core/reconcilers/machinedeployment"
	"sigs.k8s.io/cluster-api/core/reconcilers/machinehealthcheck"
	"sigs.k8s.io/cluster-api/core/reconcilers/machineset"
	topologycluster "sigs.k8s.io/cluster-api/core/reconcilers/topology/cluster"
	topologymachinedeployment "sigs.k8s.io/cluster-api/core/reconcilers/topology/machinedeployment"
	topologymachineset "sigs.k8s.io/cluster-api/core/reconcilers/topology/machineset"
	coresetup "sigs.k8s.io/cluster-api/core/setup"
	coreadmission "sigs.k8s.io/cluster-api/core/webhooks/admission"
	"sigs.k8s.io/cluster-api/util/index"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

const (
	coreManager      = "cluster-api-controller-manager"
	bootstrapManager = "kubeadm-bootstrap-controller-manager"
)

// upstreamScheme knows Cluster API's kinds in the versions that its webhooks convert between.
func upstreamScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, clusterv1.AddToScheme, clusterv1beta1.AddToScheme,
		bootstrapv1.AddToScheme, bootstrapv1beta1.AddToScheme, runtimev1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("building the scheme of Cluster API: %w", err)
		}
	}
	return scheme, nil
}

// upstreamOptions are the options that Cluster API's managers run with, beside other managers in one process.
func (p *Plane) upstreamOptions(
	scheme *runtime.Scheme, c cache.Options, o client.Options, place string, dead func() bool,
) ctrl.Options {
	return ctrl.Options{
		Scheme: scheme, Metrics: metricsserver.Options{BindAddress: "0"}, HealthProbeBindAddress: "0",
		Cache: c, Client: o, WebhookServer: p.door.place(place, dead),
		MapperProvider:          func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return p.mapper, nil },
		GracefulShutdownTimeout: ptr.To(time.Duration(0)),
	}
}

func beside(workers int) controller.Options {
	return controller.Options{SkipNameValidation: ptr.To(true), MaxConcurrentReconciles: workers}
}

// runCore runs what a control plane meets of Cluster API's core, in one namespace, with the settings of its own
// manager; with workers, also what makes them, and with topologies what makes Clusters of a ClusterClass.
func (p *Plane) runCore(ctx context.Context, m *Manager, o SiteOptions) error {
	namespace, place := o.Namespace, o.Namespace+"-core"
	scheme, err := upstreamScheme()
	if err != nil {
		return err
	}
	cached := coresetup.ManagerCacheOptions(scheme, p.name+"-"+coreManager+"-"+namespace, namespace, 10*time.Minute)
	if o.Workers {
		// Those that make workers wait until a cache has what they wrote, and no cache of one namespace tells them.
		cached.DefaultNamespaces = nil
		cached.DefaultFieldSelector = fields.OneTermEqualSelector("metadata.namespace", namespace)
		for _, ofNone := range []client.Object{&apiextensionsv1.CustomResourceDefinition{}, &runtimev1.ExtensionConfig{}} {
			cached.ByObject[ofNone] = cache.ByObject{Field: fields.Everything()} // no namespace has them
		}
	}
	mgr, err := ctrl.NewManager(m.config(p.Config), p.upstreamOptions(scheme, cached, coresetup.ManagerClientOptions(),
		place, m.dead.Load))
	if err != nil {
		return fmt.Errorf("making core's manager: %w", err)
	}
	if err := index.AddDefaultIndexes(ctx, mgr); err != nil {
		return err
	}
	secrets, err := coresetup.CreateSecretCachingClient(mgr)
	if err != nil {
		return err
	}
	clusterCache, err := clustercache.SetupWithManager(ctx, mgr, clustercache.Options{
		SecretClient: secrets, Cache: coresetup.ClusterCacheCacheOptions(),
		Client: coresetup.ClusterCacheClientOptions(coreManager, 20, 30),
	}, beside(10))
	if err != nil {
		return err
	}
	retryConnections(clusterCache, o.Retry)
	if err := (&cluster.Reconciler{
		Client: mgr.GetClient(), APIReader: mgr.GetAPIReader(), ClusterCache: clusterCache,
		RemoteConnectionGracePeriod: 50 * time.Second,
	}).SetupWithManager(ctx, mgr, beside(10)); err != nil {
		return err
	}
	if err := (&machine.Reconciler{
		Client: mgr.GetClient(), APIReader: mgr.GetAPIReader(), ClusterCache: clusterCache,
		RemoteConditionsGracePeriod: 5 * time.Minute,
	}).SetupWithManager(ctx, mgr, beside(10)); err != nil {
		return err
	}
	if err := (&machinehealthcheck.Reconciler{
		Client: mgr.GetClient(), ClusterCache: clusterCache,
	}).SetupWithManager(ctx, mgr, beside(10)); err != nil {
		return err
	}
	if o.Workers {
		if err := runWorkers(ctx, mgr, clusterCache); err != nil {
			return err
		}
	}
	if o.Topologies {
		if err := runTopologies(ctx, mgr, clusterCache); err != nil {
			return err
		}
	}
	if err := (&coreadmission.Cluster{Client: mgr.GetClient(),
		ClusterCacheReader: clusterCache}).SetupWebhookWithManager(mgr); err != nil {
		return err
	}
	if err := (&coreadmission.Machine{}).SetupWebhookWithManager(mgr); err != nil {
		return err
	}
	if err := (&coreadmission.MachineHealthCheck{}).SetupWebhookWithManager(mgr); err != nil {
		return err
	}
	configurations, err := p.upstreamWebhooks("core")
	if err != nil {
		return err
	}
	if err := m.start(ctx, mgr); err != nil {
		return err
	}
	return p.admit(ctx, namespace, place, configurations)
}

// runBootstrap runs Cluster API's kubeadm provider in one namespace, with the settings of its own manager.
func (p *Plane) runBootstrap(ctx context.Context, m *Manager, namespace string, retry time.Duration) error {
	place := namespace + "-bootstrap"
	scheme, err := upstreamScheme()
	if err != nil {
		return err
	}
	mgr, err := ctrl.NewManager(m.config(p.Config), p.upstreamOptions(scheme,
		bootstrapsetup.ManagerCacheOptions(scheme, p.name+"-"+bootstrapManager+"-"+namespace, namespace, 10*time.Minute),
		bootstrapsetup.ManagerClientOptions(), place, m.dead.Load))
	if err != nil {
		return fmt.Errorf("making the bootstrap provider's manager: %w", err)
	}
	secrets, err := bootstrapsetup.CreateSecretCachingClient(mgr)
	if err != nil {
		return err
	}
	clusterCache, err := clustercache.SetupWithManager(ctx, mgr, clustercache.Options{
		SecretClient: secrets, Cache: bootstrapsetup.ClusterCacheCacheOptions(),
		Client: bootstrapsetup.ClusterCacheClientOptions(bootstrapManager, 20, 30),
	}, beside(10))
	if err != nil {
		return err
	}
	retryConnections(clusterCache, retry)
	if err := (&kubeadmconfig.Reconciler{
		Client: mgr.GetClient(), SecretCachingClient: secrets, APIReader: mgr.GetAPIReader(), ClusterCache: clusterCache,
		TokenTTL: kubeadmconfig.DefaultTokenTTL,
	}).SetupWithManager(ctx, mgr, beside(10)); err != nil {
		return err
	}
	if err := (&bootstrapadmission.KubeadmConfig{}).SetupWebhookWithManager(mgr); err != nil {
		return err
	}
	if err := (&bootstrapadmission.KubeadmConfigTemplate{}).SetupWebhookWithManager(mgr); err != nil {
		return err
	}
	configurations, err := p.upstreamWebhooks("bootstrap", "kubeadm")
	if err != nil {
		return err
	}
	if err := m.start(ctx, mgr); err != nil {
		return err
	}
	return p.admit(ctx, namespace, place, configurations)
}

// runWorkers has a manager of the core make Machines of MachineDeployments.
func runWorkers(ctx context.Context, mgr ctrl.Manager, clusterCache clustercache.ClusterCache) error {
	if err := (&machineset.Reconciler{
		Client: mgr.GetClient(), APIReader: mgr.GetAPIReader(), ClusterCache: clusterCache,
		PreflightChecks: sets.New(clusterv1.MachineSetPreflightCheckAll),
	}).SetupWithManager(ctx, mgr, beside(10)); err != nil {
		return err
	}
	if err := (&machinedeployment.Reconciler{
		Client: mgr.GetClient(), APIReader: mgr.GetAPIReader(),
	}).SetupWithManager(ctx, mgr, beside(10)); err != nil {
		return err
	}
	if err := (&coreadmission.MachineSet{}).SetupWebhookWithManager(mgr); err != nil {
		return err
	}
	if err := (&coreadmission.MachineDrainRule{}).SetupWebhookWithManager(mgr); err != nil {
		return err
	}
	return (&coreadmission.MachineDeployment{}).SetupWebhookWithManager(mgr)
}

// runTopologies has a manager of the core make Clusters of a ClusterClass.
func runTopologies(ctx context.Context, mgr ctrl.Manager, clusterCache clustercache.ClusterCache) error {
	if err := (&clusterclass.Reconciler{Client: mgr.GetClient()}).SetupWithManager(ctx, mgr, beside(10)); err != nil {
		return err
	}
	if err := (&topologycluster.Reconciler{
		Client: mgr.GetClient(), APIReader: mgr.GetAPIReader(), ClusterCache: clusterCache,
	}).SetupWithManager(ctx, mgr, beside(10)); err != nil {
		return err
	}
	if err := (&topologymachinedeployment.Reconciler{
		Client: mgr.GetClient(), APIReader: mgr.GetAPIReader(),
	}).SetupWithManager(ctx, mgr, beside(10)); err != nil {
		return err
	}
	if err := (&topologymachineset.Reconciler{
		Client: mgr.GetClient(), APIReader: mgr.GetAPIReader(),
	}).SetupWithManager(ctx, mgr, beside(10)); err != nil {
		return err
	}
	return (&coreadmission.ClusterClass{Client: mgr.GetClient()}).SetupWebhookWithManager(mgr)
}

// retryConnections says how soon a workload cluster that did not answer is tried again; 30 s in production, where an
// API server takes its time to come up.
func retryConnections(c clustercache.ClusterCache, after time.Duration) {
	if tunable, ok := c.(interface{ SetConnectionCreationRetryInterval(time.Duration) }); ok && after > 0 {
		tunable.SetConnectionCreationRetryInterval(after)
	}
}
