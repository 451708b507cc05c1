// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package controlplane holds the admission webhooks of controlplane.cluster.x-k8s.io.
package controlplane

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/cluster-api/util/kubeconfig"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// SetupWithManager serves the webhooks of the control-plane provider.
func SetupWithManager(mgr ctrl.Manager) error {
	for _, setup := range []func(ctrl.Manager) error{
		(&ControlPlaneWebhook{Reader: mgr.GetAPIReader(), Workload: workload(mgr.GetAPIReader())}).setup,
		(&ControlPlaneTemplateWebhook{}).setup,
		// A scale right after a create would not find the control plane in a cache.
		(&ScaleWebhook{Client: mgr.GetAPIReader()}).setup,
		(&MachineDeletionWebhook{Reader: mgr.GetAPIReader(), Hosts: mgr.GetClient()}).setup,
		(&ClusterDeletionWebhook{Reader: mgr.GetAPIReader()}).setup,
		(&ControlPlaneDeletionWebhook{Reader: mgr.GetAPIReader()}).setup,
	} {
		if err := setup(mgr); err != nil {
			return err
		}
	}
	return nil
}

// inCluster maps the kinds that are read in a cluster, so that none of the patience with it goes into its discovery.
var inCluster = func() meta.RESTMapper {
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Pod"), meta.RESTScopeNamespace)
	mapper.Add(appsv1.SchemeGroupVersion.WithKind("DaemonSet"), meta.RESTScopeNamespace)
	return mapper
}()

// workload connects to a cluster by its kubeconfig Secret, for one edit of a version: a manager that does not lead
// keeps no connections.
func workload(secrets client.Reader) func(context.Context, client.ObjectKey) (client.Reader, error) {
	return func(ctx context.Context, cluster client.ObjectKey) (client.Reader, error) {
		content, err := kubeconfig.FromSecret(ctx, secrets, cluster)
		if err != nil {
			return nil, err
		}
		config, err := clientcmd.RESTConfigFromKubeConfig(content)
		if err != nil {
			return nil, fmt.Errorf("read the kubeconfig of Cluster %s: %w", cluster, err)
		}
		config.Timeout = clusterTimeout
		reader, err := client.New(config, client.Options{Mapper: inCluster})
		if err != nil {
			return nil, fmt.Errorf("connect to Cluster %s: %w", cluster, err)
		}
		return reader, nil
	}
}
