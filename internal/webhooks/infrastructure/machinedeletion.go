// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package infrastructure

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/webhooks"
)

const machineDeletionPath = "/validate-node-cluster-x-k8s-io-v1beta2-machine"

// The webhook is called for nothing but Machines with a host of which Cluster API knows no Node, which
// config/infrastructure-quoin/match_conditions.yaml says.
//
// +kubebuilder:webhook:verbs=delete,path=/validate-node-cluster-x-k8s-io-v1beta2-machine,mutating=false,failurePolicy=fail,matchPolicy=Equivalent,groups=cluster.x-k8s.io,resources=machines,versions=v1beta2,name=deletion.machine.infrastructure.quoin.cluster.x-k8s.io,sideEffects=None,timeoutSeconds=10,admissionReviewVersions=v1

// MachineDeletionWebhook refuses to delete a Machine whose Node Cluster API has not found yet. A move and a restored
// backup drop status.nodeRef. Cluster API looks for the Node once more when the Machine is deleted, but goes on where
// it is not connected to the cluster yet, as right after a move: as one that never had a Node the Machine would go
// without its pre-drain hooks and without a drain. Whoever deletes tries again, as MachineSets do.
//
// Where the cluster does not answer, a Machine that was being deleted before it was moved stays: it had a Node. Any
// other one may be one that never joined, and goes. So does what Cluster API would not drain in any case: Machines of a
// Cluster, or of a QuoinControlPlane's, that is being deleted.
type MachineDeletionWebhook struct {
	// Reader reads Clusters as they are: no cache.
	Reader client.Reader
	// Workload lists the Nodes of the Machine's cluster.
	Workload webhooks.Workload
	decoder  admission.Decoder
}

func (w *MachineDeletionWebhook) setup(mgr ctrl.Manager) error {
	w.decoder = admission.NewDecoder(mgr.GetScheme())
	mgr.GetWebhookServer().Register(machineDeletionPath, &admission.Webhook{Handler: w})
	return nil
}

// Handle answers a DELETE, also as part of a DELETECOLLECTION.
func (w *MachineDeletionWebhook) Handle(ctx context.Context, request admission.Request) admission.Response {
	machine, cluster := &clusterv1.Machine{}, &clusterv1.Cluster{}
	if err := w.decoder.DecodeRaw(request.OldObject, machine); err != nil {
		return admission.Errored(http.StatusBadRequest, fmt.Errorf("decode the Machine: %w", err))
	}
	key := client.ObjectKey{Namespace: machine.Namespace, Name: machine.Spec.ClusterName}
	switch err := w.Reader.Get(ctx, key, cluster); {
	case apierrors.IsNotFound(err):
		return admission.Allowed("its Cluster is gone")
	case err != nil:
		return admission.Errored(http.StatusInternalServerError, fmt.Errorf("read Cluster %s: %w", key, err))
	case !cluster.DeletionTimestamp.IsZero():
		return admission.Allowed("its Cluster is being deleted")
	}
	switch controlPlane, err := controlPlaneOf(ctx, w.Reader, cluster); {
	case err != nil:
		return admission.Errored(http.StatusInternalServerError, err)
	case controlPlane != nil && !controlPlane.DeletionTimestamp.IsZero():
		return admission.Allowed("its control plane is being deleted")
	}
	nodes, err := w.Workload.NodesOf(ctx, key, machine.Spec.ProviderID)
	_, lost := machine.Annotations[infrav1.DeletionAnnotation]
	switch {
	case err != nil && !lost:
		return admission.Allowed("its Cluster does not answer")
	case err == nil && len(nodes) == 0:
		return admission.Allowed("it has no Node")
	}
	return admission.Denied(fmt.Sprintf("Machine %s would go without its pre-drain hooks and without a drain, and leave "+
		"its Node behind: %s. Or annotate it with %s, if that is meant", machine.Name, unseen(machine, cluster, nodes, err),
		infrav1.DeleteUndrainedAnnotation))
}

// unseen says why Cluster API knows of no Node, and what ends that.
func unseen(machine *clusterv1.Machine, cluster *clusterv1.Cluster, nodes []string, err error) string {
	switch {
	case err != nil:
		return fmt.Sprintf("it was being deleted before it was moved, and its Cluster does not say whether its Node is "+
			"there (%v). Have its API server answer", err)
	case len(nodes) > 1:
		return fmt.Sprintf("Cluster API finds none where several have its provider ID: %s. Delete those that are not of "+
			"its host", strings.Join(nodes, ", "))
	case annotations.IsPaused(cluster, machine):
		return fmt.Sprintf("Cluster API does not look for its Node %s while it is paused. Unpause it", nodes[0])
	}
	return fmt.Sprintf("Cluster API has not found its Node %s yet. Try again in a while; condition %s of the Cluster "+
		"says if it cannot connect", nodes[0], clusterv1.ClusterRemoteConnectionProbeCondition)
}
