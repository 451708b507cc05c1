// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"fmt"
	"net/http"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
)

const scalePath = "/validate-scale-controlplane-cluster-x-k8s-io-v1alpha1-quoincontrolplane"

// +kubebuilder:webhook:verbs=update,path=/validate-scale-controlplane-cluster-x-k8s-io-v1alpha1-quoincontrolplane,mutating=false,failurePolicy=fail,matchPolicy=Equivalent,groups=controlplane.cluster.x-k8s.io,resources=quoincontrolplanes/scale,versions=v1alpha1,name=validation-scale.quoincontrolplane.controlplane.cluster.x-k8s.io,sideEffects=None,admissionReviewVersions=v1
// +kubebuilder:rbac:groups=controlplane.cluster.x-k8s.io,resources=quoincontrolplanes,verbs=get;list;watch

// ScaleWebhook holds the scale subresource (kubectl scale, autoscalers) to the rules of spec.replicas, which a write
// of the subresource does not pass through.
type ScaleWebhook struct {
	// Client reads the control plane that is scaled.
	Client  client.Reader
	decoder admission.Decoder
}

func (w *ScaleWebhook) setup(mgr ctrl.Manager) error {
	w.decoder = admission.NewDecoder(mgr.GetScheme())
	mgr.GetWebhookServer().Register(scalePath, &admission.Webhook{Handler: w})
	return nil
}

// Handle refuses a number of replicas that spec.replicas may not have.
func (w *ScaleWebhook) Handle(ctx context.Context, request admission.Request) admission.Response {
	var scale autoscalingv1.Scale
	if err := w.decoder.Decode(request, &scale); err != nil {
		return admission.Errored(http.StatusBadRequest, fmt.Errorf("decode the Scale: %w", err))
	}
	var controlPlane controlplanev1.QuoinControlPlane
	key := client.ObjectKey{Namespace: request.Namespace, Name: request.Name}
	if err := w.Client.Get(ctx, key, &controlPlane); err != nil {
		return admission.Errored(http.StatusInternalServerError,
			fmt.Errorf("read QuoinControlPlane %s to see whether its etcd is stacked: %w", key, err))
	}
	if !controlPlane.DeletionTimestamp.IsZero() {
		return admission.Allowed("")
	}
	if why := refuseReplicas(scale.Spec.Replicas, &controlPlane.Spec); why != "" {
		return admission.Denied(field.Forbidden(field.NewPath("spec", "replicas"), why).Error())
	}
	return admission.Allowed("")
}
