// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinmachine

import (
	"context"
	"fmt"
	"regexp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/placement"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew"
)

// startsOnCgroupV1 finds a kubelet's setting in bootstrap data: in a patch of its configuration, or as an argument,
// which kubeadm takes as a map or as a list of names and values.
var startsOnCgroupV1 = regexp.MustCompile(`(?i)\bfail-?cgroupv1["']?(\s*[:=]|\s+value:)\s*["']?false\b`)

// failsOnCgroupV1 reports whether a kubelet of the Machine's version would not start on those of the hosts that have
// cgroup v1: neither the host itself, nor the Machine's bootstrap data, nor the configuration that kubeadm gives all
// kubelets of the cluster tell it to. A cluster that cannot be read may do so, and its Machines are held back by
// nothing.
//
// Only workers are held back: their old Machines stay until the new ones work. A control plane decides by the hosts that it
// takes for free whether a Machine can go before its replacement comes, and knows nothing of this rule.
func (r *Reconciler) failsOnCgroupV1(ctx context.Context, v *view, hosts []infrav1.QuoinHost) (bool, error) {
	if util.IsControlPlaneMachine(v.machine) {
		return false, nil
	}
	if !slices.ContainsFunc(hosts, func(host infrav1.QuoinHost) bool {
		return skew.CgroupEnded(placement.CgroupOf(host.Status.Facts), v.machine.Spec.Version) != ""
	}) {
		return false, nil
	}
	key := client.ObjectKey{Namespace: v.machine.Namespace, Name: ptr.Deref(v.machine.Spec.Bootstrap.DataSecretName, "")}
	data := &corev1.Secret{}
	if err := client.IgnoreNotFound(r.APIReader.Get(ctx, key, data)); err != nil {
		return false, fmt.Errorf("reading the bootstrap data %s: %w", key, err)
	}
	if startsOnCgroupV1.Match(data.Data["value"]) {
		return false, nil
	}
	if !ptr.Deref(v.cluster.Status.Initialization.ControlPlaneInitialized, false) {
		return true, nil
	}
	shared, known := r.kubeletConfiguration(ctx, client.ObjectKeyFromObject(v.cluster))
	return known && ptr.Deref(shared.FailCgroupV1, true), nil
}

// kubeletSettings are the ones of a KubeletConfiguration that decide here.
type kubeletSettings struct {
	FailCgroupV1 *bool `json:"failCgroupV1,omitempty"`
}

// kubeletConfiguration is the one that kubeadm gives each node that joins.
func (r *Reconciler) kubeletConfiguration(
	ctx context.Context, cluster client.ObjectKey,
) (shared kubeletSettings, known bool) {
	if r.ClusterCache == nil {
		return kubeletSettings{}, false
	}
	workload, err := r.ClusterCache.GetUncachedClient(ctx, cluster)
	if err != nil {
		return kubeletSettings{}, false
	}
	config := &corev1.ConfigMap{}
	key := client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: "kubelet-config"}
	if err := workload.Get(ctx, key, config); err != nil {
		return kubeletSettings{}, false
	}
	err = yaml.Unmarshal([]byte(config.Data["kubelet"]), &shared)
	return shared, err == nil
}
