// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package infrastructure

import (
	"context"

	"k8s.io/apimachinery/pkg/util/validation/field"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/webhooks"
)

// +kubebuilder:webhook:verbs=create;update,path=/validate-infrastructure-cluster-x-k8s-io-v1alpha1-quoinclustertemplate,mutating=false,failurePolicy=fail,matchPolicy=Equivalent,groups=infrastructure.cluster.x-k8s.io,resources=quoinclustertemplates,versions=v1alpha1,name=validation.quoinclustertemplate.infrastructure.cluster.x-k8s.io,sideEffects=None,admissionReviewVersions=v1

// ClusterTemplateWebhook validates QuoinClusterTemplates.
type ClusterTemplateWebhook struct{}

var _ admission.Validator[*infrav1.QuoinClusterTemplate] = &ClusterTemplateWebhook{}

func (w *ClusterTemplateWebhook) setup(mgr ctrl.Manager) error {
	return ctrl.NewWebhookManagedBy(mgr, &infrav1.QuoinClusterTemplate{}).WithValidator(w).Complete()
}

// ValidateCreate refuses a template whose clusters would be refused.
func (w *ClusterTemplateWebhook) ValidateCreate(
	_ context.Context, template *infrav1.QuoinClusterTemplate,
) (admission.Warnings, error) {
	path := field.NewPath("spec", "template")
	reasons := template.Spec.Template.ObjectMeta.Validate(path.Child("metadata"))
	reasons = append(reasons, validateClusterSpec(path.Child("spec"), &template.Spec.Template.Spec)...)
	return nil, refuseClusterTemplate(template, reasons)
}

// ValidateUpdate refuses every change of the clusters' spec.
func (w *ClusterTemplateWebhook) ValidateUpdate(
	ctx context.Context, before, after *infrav1.QuoinClusterTemplate,
) (admission.Warnings, error) {
	if !after.DeletionTimestamp.IsZero() {
		return nil, nil
	}
	reasons, err := webhooks.TemplateUnchanged(ctx, "QuoinClusterTemplate", after, before.Spec.Template.Spec,
		after.Spec.Template.Spec)
	if err != nil {
		return nil, err
	}
	return nil, refuseClusterTemplate(after, reasons)
}

// ValidateDelete lets every template go.
func (w *ClusterTemplateWebhook) ValidateDelete(
	context.Context, *infrav1.QuoinClusterTemplate,
) (admission.Warnings, error) {
	return nil, nil
}

func refuseClusterTemplate(template *infrav1.QuoinClusterTemplate, reasons field.ErrorList) error {
	return webhooks.Refuse(infrav1.GroupVersion, "QuoinClusterTemplate", template.Name, reasons)
}
