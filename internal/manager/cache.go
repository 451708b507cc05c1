// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/selection"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/cluster-api/util/secret"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
)

// Scheme knows every kind that Quoin reads or writes in the management cluster.
func Scheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme,
		apiextensionsv1.AddToScheme,
		clusterv1.AddToScheme,
		clusterctlv1.AddToScheme,
		bootstrapv1.AddToScheme,
		infrav1.AddToScheme,
		controlplanev1.AddToScheme,
		quoinv1.AddToScheme,
	} {
		utilruntime.Must(add(scheme))
	}
	return scheme
}

func cacheOptions(o *Options) cache.Options {
	options := cache.Options{
		SyncPeriod:       &o.SyncPeriod,
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			// Only what belongs to a cluster, and of that only certificates and kubeconfigs: bootstrap data is large,
			// and read once.
			&corev1.Secret{}: {Label: ofACluster(), Transform: keepCertificatesOnly},
		},
	}
	if o.Namespace != "" {
		options.DefaultNamespaces = map[string]cache.Config{o.Namespace: {}}
	}
	return options
}

func ofACluster() labels.Selector {
	exists, err := labels.NewRequirement(clusterv1.ClusterNameLabel, selection.Exists, nil)
	utilruntime.Must(err)
	return labels.NewSelector().Add(*exists)
}

func keepCertificatesOnly(object any) (any, error) {
	if s, ok := object.(*corev1.Secret); ok {
		s.SetManagedFields(nil)
		if !secret.HasPurposeSuffix(s.Name) {
			s.Data = nil
		}
	}
	return object, nil
}

// clientOptions make the manager's client read Secrets and ConfigMaps from the API server: credentials, bootstrap data
// and kubeadm's configuration must never be stale. Unstructured objects, which are infrastructure machines and
// templates, come from the cache.
func clientOptions() client.Options {
	return client.Options{Cache: &client.CacheOptions{
		DisableFor:   []client.Object{&corev1.ConfigMap{}, &corev1.Secret{}},
		Unstructured: true,
	}}
}

// secretCachingClient reads Secrets, with the limits of cacheOptions, from the cache. For what asks again and again.
func secretCachingClient(mgr ctrl.Manager) (client.Client, error) {
	c, err := client.New(mgr.GetConfig(), client.Options{
		HTTPClient: mgr.GetHTTPClient(),
		Scheme:     mgr.GetScheme(),
		Cache:      &client.CacheOptions{Reader: mgr.GetCache()},
	})
	if err != nil {
		return nil, fmt.Errorf("make the client that caches Secrets: %w", err)
	}
	return c, nil
}

// cachedMachines lists the Machines of a namespace, which may be thousands, from a cache, and reads everything else
// from the API server.
type cachedMachines struct {
	client.Reader
	cache cache.Cache
}

// newCachedMachines reads what new versions are judged by. A cache of one namespace is none: admission is for all.
func newCachedMachines(mgr ctrl.Manager, o *Options) client.Reader {
	if o.Namespace != "" {
		return mgr.GetAPIReader()
	}
	return cachedMachines{mgr.GetAPIReader(), mgr.GetCache()}
}

// List implements client.Reader. Admission is served before the cache has begun, and must not wait for it. What is
// asked of all namespaces is asked of other Clusters, whose rules no gate asks again.
func (c cachedMachines) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	asked := (&client.ListOptions{}).ApplyOptions(options)
	if _, machines := list.(*clusterv1.MachineList); !machines || asked.Namespace == "" {
		return c.Reader.List(ctx, list, options...)
	}
	known, err := c.cache.GetInformer(ctx, &clusterv1.Machine{}, cache.BlockUntilSynced(false))
	if err != nil || !known.HasSynced() {
		return c.Reader.List(ctx, list, options...)
	}
	return c.cache.List(ctx, list, options...)
}
