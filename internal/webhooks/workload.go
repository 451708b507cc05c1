// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/cluster-api/util/kubeconfig"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew/observed"
)

// clusterTimeout is how long a cluster may take to say what runs in it. Where it takes longer, an edit goes on without
// the advice that rests on it, and a Machine of which nothing says that it was a node is deleted.
const clusterTimeout = 3 * time.Second

// inCluster maps the kinds that are read in a cluster, so that none of the time for it goes into its discovery.
var inCluster = func() meta.RESTMapper {
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Node"), meta.RESTScopeRoot)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Pod"), meta.RESTScopeNamespace)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("ConfigMap"), meta.RESTScopeNamespace)
	mapper.Add(appsv1.SchemeGroupVersion.WithKind("DaemonSet"), meta.RESTScopeNamespace)
	return mapper
}()

// Workload connects to a workload cluster; nothing in it is read when it is nil.
type Workload func(context.Context, client.ObjectKey) (client.Reader, error)

// WorkloadBy connects to a cluster by its kubeconfig Secret, for one request: a manager that does not lead keeps no
// connections.
func WorkloadBy(secrets client.Reader) Workload {
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

// Inside lists the components that run in the cluster as pods, none when it has no kubeconfig: then it is about to be
// made, or somebody else's to reach. unseen warns that it did not answer.
func (w Workload) Inside(
	ctx context.Context, cluster client.ObjectKey, world skew.World,
) (inside []skew.Running, unseen string) {
	if w == nil || len(world.APIServers) == 0 {
		return nil, ""
	}
	ctx, cancel := context.WithTimeout(ctx, clusterTimeout)
	defer cancel()
	reader, err := w(ctx, cluster)
	if err == nil {
		inside, err = observed.Inside(ctx, reader, world)
	}
	if client.IgnoreNotFound(err) != nil {
		unseen = fmt.Sprintf("kube-proxy, etcd and the control plane's other components are not compared with the new "+
			"version: %v", err)
	}
	return inside, unseen
}

// FailsOnCgroupV1 reports whether the cluster leaves a kubelet that joins to fail on a host with cgroup v1. One that
// does not answer may tell it to start.
func (w Workload) FailsOnCgroupV1(ctx context.Context, cluster client.ObjectKey) bool {
	if w == nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, clusterTimeout)
	defer cancel()
	reader, err := w(ctx, cluster)
	return err == nil && observed.SharedFailsOnCgroupV1(ctx, reader)
}

// NodesOf returns the names of the cluster's Nodes with the provider ID.
func (w Workload) NodesOf(ctx context.Context, cluster client.ObjectKey, providerID string) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, clusterTimeout)
	defer cancel()
	reader, err := w(ctx, cluster)
	if err != nil {
		return nil, err
	}
	nodes := &corev1.NodeList{}
	// From the memory of the API server: a list of thousands through etcd may take longer than there is time.
	if err := reader.List(ctx, nodes, &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: "0"}}); err != nil {
		return nil, fmt.Errorf("list the Nodes of Cluster %s: %w", cluster, err)
	}
	var names []string
	for i := range nodes.Items {
		if nodes.Items[i].Spec.ProviderID == providerID {
			names = append(names, nodes.Items[i].Name)
		}
	}
	return names, nil
}
