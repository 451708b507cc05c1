// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// The manager of Quoin's Cluster API providers.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"

	"github.com/spf13/pflag"
	// The image holds no certificates of public authorities, which object stores have.
	_ "golang.org/x/crypto/x509roots/fallback"
	corev1 "k8s.io/api/core/v1"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/logs"
	logsv1 "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/logs/json/register" // --logging-format=json
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/manager"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/pivot"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/pivot/reach"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/version"
)

func main() {
	if err := run(); err != nil {
		klog.Background().Error(err, "The manager failed")
		klog.Flush()
		os.Exit(1)
	}
}

func run() error {
	var options manager.Options
	logOptions := logs.NewOptions()
	fs := pflag.CommandLine
	options.AddFlags(fs)
	logsv1.AddFlags(logOptions, fs)
	showVersion := fs.Bool("version", false, "Print the version and exit.")
	fs.SetNormalizeFunc(cliflag.WordSepNormalizeFunc)
	fs.AddGoFlagSet(flag.CommandLine) // --kubeconfig
	// As Cluster API's managers: at 2 a log tells what happened, without it hardly anything.
	if err := fs.Set("v", "2"); err != nil {
		return fmt.Errorf("set the default log level: %w", err)
	}
	pflag.Parse()
	if *showVersion {
		fmt.Println(version.Get())
		return nil
	}
	if args := fs.Args(); len(args) > 0 && args[0] == pivot.ReachCommand {
		return reach.Run(context.Background(), args[1:], options.AllowedNetworks, corev1.TerminationMessagePathDefault)
	}
	if err := logsv1.ValidateAndApply(logOptions, nil); err != nil {
		return fmt.Errorf("apply the log flags: %w", err)
	}
	fs.VisitAll(func(f *pflag.Flag) { klog.V(1).Infof("FLAG: --%s=%q", f.Name, f.Value) })
	ctrl.SetLogger(klog.Background())
	log := ctrl.Log.WithName("setup")
	log.Info(version.Get().String(), "providers", options.Providers)

	restConfig, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("find the API server (--kubeconfig, KUBECONFIG, or the Pod's own): %w", err)
	}
	options.LeaderElection.Namespace = os.Getenv("POD_NAMESPACE") // the components set it
	ctx := ctrl.SetupSignalHandler()
	mgr, err := manager.New(ctx, restConfig, &options)
	if err != nil {
		return err
	}
	log.Info("Starting the manager")
	return mgr.Start(ctx)
}
