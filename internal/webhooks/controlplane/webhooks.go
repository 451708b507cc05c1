// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package controlplane holds the admission webhooks of controlplane.cluster.x-k8s.io.
package controlplane

import (
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/webhooks"
)

// SetupWithManager serves the webhooks of the control-plane provider. New versions are judged by what machines
// reads, whose Machines may be seconds old.
func SetupWithManager(mgr ctrl.Manager, machines client.Reader) error {
	workload := webhooks.WorkloadBy(mgr.GetAPIReader())
	for _, setup := range []func(ctrl.Manager) error{
		(&ControlPlaneWebhook{Reader: machines, Workload: workload}).setup,
		controlPlaneTemplates.Setup,
		// A scale right after a create would not find the control plane in a cache.
		(&ScaleWebhook{Client: mgr.GetAPIReader()}).setup,
		(&MachineDeletionWebhook{Reader: mgr.GetAPIReader(), Hosts: mgr.GetClient(), Workload: workload}).setup,
		(&ClusterDeletionWebhook{Reader: mgr.GetAPIReader()}).setup,
		(&ControlPlaneDeletionWebhook{Reader: mgr.GetAPIReader()}).setup,
	} {
		if err := setup(mgr); err != nil {
			return err
		}
	}
	return nil
}
