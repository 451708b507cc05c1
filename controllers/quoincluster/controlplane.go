// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoincluster

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/apierr"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/placement"
)

// +kubebuilder:rbac:groups=controlplane.cluster.x-k8s.io,resources=quoincontrolplanes,verbs=get;list;watch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=quoinmachinetemplates,verbs=get;list;watch

// controlPlane reads the control plane of the Cluster; nil when there is none, or none of ours.
func (r *Reconciler) controlPlane(
	ctx context.Context, reader client.Reader, cluster *clusterv1.Cluster,
) (*controlplanev1.QuoinControlPlane, error) {
	if cluster == nil || cluster.Spec.ControlPlaneRef.Kind != "QuoinControlPlane" ||
		cluster.Spec.ControlPlaneRef.APIGroup != controlplanev1.GroupVersion.Group {
		return nil, nil
	}
	controlPlane := &controlplanev1.QuoinControlPlane{}
	err := reader.Get(ctx, client.ObjectKey{Namespace: cluster.Namespace, Name: cluster.Spec.ControlPlaneRef.Name},
		controlPlane)
	if apierr.IsAbsent(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the control plane of Cluster %s/%s: %w", cluster.Namespace, cluster.Name, err)
	}
	return controlPlane, nil
}

// controlPlaneHosts tells the hosts that Machines of the Cluster's control plane may claim: every one, unless the
// template of a QuoinControlPlane says otherwise. A host that one of them has was accepted once, and stays theirs.
func (r *Reconciler) controlPlaneHosts(
	ctx context.Context, cluster *clusterv1.Cluster, machines []infrav1.QuoinMachine,
) (func(*infrav1.QuoinHost) bool, error) {
	every := func(*infrav1.QuoinHost) bool { return true }
	controlPlane, err := r.controlPlane(ctx, r.Client, cluster)
	if err != nil || controlPlane == nil {
		return every, err
	}
	ref := controlPlane.Spec.MachineTemplate.Spec.InfrastructureRef
	if ref.Kind != "QuoinMachineTemplate" || ref.APIGroup != infrav1.GroupVersion.Group {
		return every, nil
	}
	template := &infrav1.QuoinMachineTemplate{}
	err = r.Client.Get(ctx, client.ObjectKey{Namespace: cluster.Namespace, Name: ref.Name}, template)
	if apierr.IsAbsent(err) {
		return every, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the machine template of the control plane of Cluster %s: %w", cluster.Name, err)
	}
	wanted, selector := template.Spec.Template.Spec, labels.Everything()
	if wanted.HostSelector != nil {
		if selector, err = metav1.LabelSelectorAsSelector(wanted.HostSelector); err != nil {
			// Admission refuses it, and its Machines say so.
			selector = labels.Nothing()
		}
	}
	had := map[string]bool{}
	for i := range machines {
		if _, member := machines[i].Labels[clusterv1.MachineControlPlaneLabel]; member {
			had[machines[i].Spec.ProviderID] = true
		}
	}
	return func(host *infrav1.QuoinHost) bool {
		accepted := placement.NamespaceAccepted(wanted.HostNamespaces, cluster.Namespace, host.Namespace) ||
			host.Spec.ConsumerRef != nil && had[host.ProviderID()]
		return accepted && selector.Matches(labels.Set(host.Labels))
	}, nil
}
