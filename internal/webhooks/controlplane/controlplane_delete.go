// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
)

const controlPlaneDeletionPath = "/validate-deletion-controlplane-cluster-x-k8s-io-v1alpha1-quoincontrolplane"

// The webhook is called for no other control planes than those of config/control-plane-quoin/match_conditions.yaml.
//
// +kubebuilder:webhook:verbs=delete,path=/validate-deletion-controlplane-cluster-x-k8s-io-v1alpha1-quoincontrolplane,mutating=false,failurePolicy=fail,matchPolicy=Equivalent,groups=controlplane.cluster.x-k8s.io,resources=quoincontrolplanes,versions=v1alpha1,name=deletion.quoincontrolplane.controlplane.quoin.cluster.x-k8s.io,sideEffects=None,timeoutSeconds=10,admissionReviewVersions=v1

// ControlPlaneDeletionWebhook refuses to delete the control plane of a protected Cluster, which lets all of its
// Machines and the data of its etcd go, and leaves of the Cluster nothing but its name.
type ControlPlaneDeletionWebhook struct {
	// Reader reads Clusters and Namespaces as they are: no cache.
	Reader  client.Reader
	decoder admission.Decoder
}

func (w *ControlPlaneDeletionWebhook) setup(mgr ctrl.Manager) error {
	w.decoder = admission.NewDecoder(mgr.GetScheme())
	mgr.GetWebhookServer().Register(controlPlaneDeletionPath, &admission.Webhook{Handler: w})
	return nil
}

// Handle answers a DELETE, also as part of a DELETECOLLECTION.
func (w *ControlPlaneDeletionWebhook) Handle(ctx context.Context, request admission.Request) admission.Response {
	controlPlane := &controlplanev1.QuoinControlPlane{}
	if err := w.decoder.DecodeRaw(request.OldObject, controlPlane); err != nil {
		return admission.Errored(http.StatusBadRequest, fmt.Errorf("decode the QuoinControlPlane: %w", err))
	}
	name := clusterOf(controlPlane)
	if name == "" || moved(controlPlane) || !controlPlane.DeletionTimestamp.IsZero() {
		return admission.Allowed("")
	}
	cluster := &clusterv1.Cluster{}
	err := w.Reader.Get(ctx, client.ObjectKey{Namespace: controlPlane.Namespace, Name: name}, cluster)
	switch {
	case apierrors.IsNotFound(err):
		return admission.Allowed("")
	case err != nil:
		return admission.Errored(http.StatusInternalServerError, fmt.Errorf("read Cluster %s of QuoinControlPlane %s: %w",
			name, controlPlane.Name, err))
	case !cluster.DeletionTimestamp.IsZero():
		return admission.Allowed("")
	}
	return refuseProtected(ctx, w.Reader, cluster, fmt.Sprintf("delete its QuoinControlPlane %s with all its Machines",
		controlPlane.Name))
}

// clusterOf is the name of the Cluster that owns the control plane; empty while none does.
func clusterOf(controlPlane *controlplanev1.QuoinControlPlane) string {
	for _, owner := range controlPlane.OwnerReferences {
		if owner.Kind == "Cluster" && schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind).
			Group == clusterv1.GroupVersion.Group {
			return owner.Name
		}
	}
	return ""
}
