// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package infrastructure

import (
	"context"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
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
// backup drop status.nodeRef, and until it is back the Machine is taken for one that never had a Node: it would go
// without its pre-drain hooks and without a drain. Whoever deletes tries again, as MachineSets do.
//
// Where the cluster does not answer, a Machine that was being deleted before it was moved stays: it had a Node. Any
// other one may be one that never joined, and goes.
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
	node, err := w.Workload.NodeOf(ctx, key, machine.Spec.ProviderID)
	missing := fmt.Sprintf("Cluster API has not found its Node %s yet", node)
	if err != nil {
		if _, lost := machine.Annotations[infrav1.DeletionAnnotation]; !lost {
			return admission.Allowed("its Cluster does not answer")
		}
		missing = fmt.Sprintf("it was being deleted before it was moved, and its Cluster does not say whether its Node is "+
			"there: %v", err)
	} else if node == "" {
		return admission.Allowed("it has no Node")
	}
	return admission.Denied(fmt.Sprintf("Machine %s would go without its pre-drain hooks and without a drain: %s. Try again "+
		"in a while, or annotate it with %s if that is meant", machine.Name, missing, clusterv1.ExcludeNodeDrainingAnnotation))
}
