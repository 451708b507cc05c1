// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package manager puts together the process that serves Quoin's providers: one binary, which clusterctl runs once for
// each provider and a test or a developer may run for both.
package manager

import (
	"context"
	"fmt"
	"net/http"
	goruntime "runtime"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/cluster-api/feature"
	"sigs.k8s.io/cluster-api/util/apiwarnings"
	"sigs.k8s.io/cluster-api/util/flags"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/version"
)

// ShutdownTimeout is how long what runs may take to end before the lease is handed over all the same. The Deployment's
// terminationGracePeriodSeconds is longer.
const ShutdownTimeout = 20 * time.Second

// The diagnostics endpoint asks the API server who calls and whether they may.
// +kubebuilder:rbac:groups=authentication.k8s.io,resources=tokenreviews,verbs=create
// +kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create
// The ranges of Services are not connected to at the word of users.
// +kubebuilder:rbac:groups=networking.k8s.io,resources=servicecidrs,verbs=list
// Cluster API's utilities read a kind's version and contract from the labels of its CRD.
// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions,verbs=get;list;watch

// New makes a manager with the webhooks and controllers of the providers it serves. ctx ends what they start.
func New(ctx context.Context, restConfig *rest.Config, o *Options) (ctrl.Manager, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	tlsOptions, metricsOptions, err := flags.GetManagerOptions(o.Serving)
	if err != nil {
		return nil, fmt.Errorf("read the TLS and diagnostics flags: %w", err)
	}
	if o.ContentionProfiling {
		goruntime.SetBlockProfileRate(1)
	}
	options := ctrl.Options{
		Scheme: Scheme(),
		Controller: config.Controller{
			UsePriorityQueue: ptr.To(feature.Gates.Enabled(feature.PriorityQueue)),
			// Thousands of hosts take longer to list than the default of 2 minutes allows on a busy API server.
			CacheSyncTimeout: 5 * time.Minute,
		},
		LeaderElection:             o.LeaderElection.Enabled,
		LeaderElectionID:           o.name() + "-leader-election",
		LeaderElectionNamespace:    o.LeaderElection.Namespace,
		LeaseDuration:              &o.LeaderElection.LeaseDuration,
		RenewDeadline:              &o.LeaderElection.RenewDeadline,
		RetryPeriod:                &o.LeaderElection.RetryPeriod,
		LeaderElectionResourceLock: resourcelock.LeasesResourceLock,
		// The process ends when the manager does, so the next one need not wait for the lease to run out.
		LeaderElectionReleaseOnCancel: true,
		HealthProbeBindAddress:        o.HealthAddress,
		PprofBindAddress:              o.ProfilerAddress,
		Metrics:                       *metricsOptions,
		Cache:                         cacheOptions(o),
		Client:                        clientOptions(),
		WebhookServer: webhook.NewServer(webhook.Options{
			Port:     o.WebhookPort,
			CertDir:  o.WebhookCertDir,
			CertName: o.WebhookCertName,
			KeyName:  o.WebhookKeyName,
			TLSOpts:  tlsOptions,
		}),
		GracefulShutdownTimeout: o.Harness.shutdownTimeout(),
		//nolint:staticcheck // see eventManager
		EventBroadcaster: newEventBroadcaster(ctx, *o.Harness.shutdownTimeout()),
	}
	if o.Harness.Webhooks != nil {
		options.WebhookServer = o.Harness.Webhooks
	}
	if mapper := o.Harness.Mapper; mapper != nil {
		options.MapperProvider = func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return mapper, nil }
	}
	plain, err := ctrl.NewManager(configured(restConfig, o), options)
	if err != nil {
		return nil, fmt.Errorf("make the manager: %w", err)
	}
	mgr := eventManager{plain}
	if err := addProviders(ctx, mgr, o); err != nil {
		return nil, err
	}
	if err := addChecks(mgr); err != nil {
		return nil, err
	}
	return mgr, nil
}

func configured(restConfig *rest.Config, o *Options) *rest.Config {
	restConfig = rest.CopyConfig(restConfig)
	restConfig.QPS, restConfig.Burst = o.KubeAPIQPS, o.KubeAPIBurst
	restConfig.UserAgent = userAgent(o)
	restConfig.WarningHandler = apiwarnings.DefaultHandler(klog.Background().WithName("API Server Warning"))
	return restConfig
}

func addChecks(mgr ctrl.Manager) error {
	// Ready means that admission works: a manager that clusterctl or a rollout takes for ready must not refuse writes.
	started := mgr.GetWebhookServer().StartedChecker()
	if err := mgr.AddReadyzCheck("webhook", started); err != nil {
		return fmt.Errorf("add the readiness check: %w", err)
	}
	if err := mgr.AddHealthzCheck("webhook", started); err != nil {
		return fmt.Errorf("add the health check: %w", err)
	}
	return nil
}

func userAgent(o *Options) string {
	return fmt.Sprintf("%s-manager/%s (%s/%s)", o.name(), version.Get().Version, goruntime.GOOS, goruntime.GOARCH)
}
