// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"

	"k8s.io/apimachinery/pkg/util/validation/field"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/webhooks"
)

// +kubebuilder:webhook:verbs=create;update,path=/validate-controlplane-cluster-x-k8s-io-v1alpha1-quoincontrolplanetemplate,mutating=false,failurePolicy=fail,matchPolicy=Equivalent,groups=controlplane.cluster.x-k8s.io,resources=quoincontrolplanetemplates,versions=v1alpha1,name=validation.quoincontrolplanetemplate.controlplane.cluster.x-k8s.io,sideEffects=None,admissionReviewVersions=v1

// ControlPlaneTemplateWebhook validates QuoinControlPlaneTemplates.
type ControlPlaneTemplateWebhook struct{}

var _ admission.Validator[*controlplanev1.QuoinControlPlaneTemplate] = &ControlPlaneTemplateWebhook{}

func (w *ControlPlaneTemplateWebhook) setup(mgr ctrl.Manager) error {
	return ctrl.NewWebhookManagedBy(mgr, &controlplanev1.QuoinControlPlaneTemplate{}).WithValidator(w).Complete()
}

// ValidateCreate refuses a template whose control planes would be refused.
func (w *ControlPlaneTemplateWebhook) ValidateCreate(
	_ context.Context, template *controlplanev1.QuoinControlPlaneTemplate,
) (admission.Warnings, error) {
	path := field.NewPath("spec", "template")
	resource := &template.Spec.Template
	reasons := resource.ObjectMeta.Validate(path.Child("metadata"))
	reasons = append(reasons, validateMachineMetadata(path.Child("spec", "machineTemplate", "metadata"),
		&resource.Spec.MachineTemplate.ObjectMeta)...)
	reasons = append(reasons, validateKubeadmConfigSpec(path.Child("spec", "kubeadmConfigSpec"),
		&resource.Spec.KubeadmConfigSpec)...)
	reasons = append(reasons, validateBackup(path.Child("spec", "backup"), resource.Spec.Backup,
		&resource.Spec.KubeadmConfigSpec)...)
	return nil, refuseTemplate(template, reasons)
}

// ValidateUpdate refuses every change of the control planes' spec.
func (w *ControlPlaneTemplateWebhook) ValidateUpdate(
	ctx context.Context, before, after *controlplanev1.QuoinControlPlaneTemplate,
) (admission.Warnings, error) {
	if !after.DeletionTimestamp.IsZero() {
		return nil, nil
	}
	reasons, err := webhooks.TemplateUnchanged(ctx, "QuoinControlPlaneTemplate", after, before.Spec.Template.Spec,
		after.Spec.Template.Spec)
	if err != nil {
		return nil, err
	}
	return nil, refuseTemplate(after, reasons)
}

// ValidateDelete lets every template go.
func (w *ControlPlaneTemplateWebhook) ValidateDelete(
	context.Context, *controlplanev1.QuoinControlPlaneTemplate,
) (admission.Warnings, error) {
	return nil, nil
}

func refuseTemplate(template *controlplanev1.QuoinControlPlaneTemplate, reasons field.ErrorList) error {
	return webhooks.Refuse(controlplanev1.GroupVersion, "QuoinControlPlaneTemplate", template.Name, reasons)
}
