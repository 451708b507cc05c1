// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package infrastructure holds the admission webhooks of infrastructure.cluster.x-k8s.io.
package infrastructure

import (
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/webhooks"
)

// SetupWithManager serves the webhooks of the infrastructure provider. New versions are judged by what machines
// reads, whose Machines may be seconds old.
func SetupWithManager(mgr ctrl.Manager, machines client.Reader) error {
	for _, setup := range []func(ctrl.Manager) error{
		(&HostWebhook{Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Reviews: mgr.GetClient()}).setup,
		// Two clusters with one virtual address are found across namespaces, whatever --namespace says, and at once
		// after one another: both are beyond the cache.
		(&ClusterWebhook{Client: mgr.GetAPIReader()}).setup,
		clusterTemplates.Setup,
		(&MachineWebhook{}).setup,
		machineTemplates.Setup,
		(&RolloutPolicyWebhook{Reader: mgr.GetAPIReader()}).setup,
		(&VersionWebhook{Reader: machines, Workload: webhooks.WorkloadBy(mgr.GetAPIReader())}).setup,
		(&MachineDeletionWebhook{Reader: mgr.GetAPIReader(), Workload: webhooks.WorkloadBy(mgr.GetAPIReader())}).setup,
		setupHooks,
	} {
		if err := setup(mgr); err != nil {
			return err
		}
	}
	return nil
}
