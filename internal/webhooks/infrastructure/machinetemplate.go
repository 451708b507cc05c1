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

// +kubebuilder:webhook:verbs=create;update,path=/validate-infrastructure-cluster-x-k8s-io-v1alpha1-quoinmachinetemplate,mutating=false,failurePolicy=fail,matchPolicy=Equivalent,groups=infrastructure.cluster.x-k8s.io,resources=quoinmachinetemplates,versions=v1alpha1,name=validation.quoinmachinetemplate.infrastructure.cluster.x-k8s.io,sideEffects=None,admissionReviewVersions=v1

// MachineTemplateWebhook validates QuoinMachineTemplates.
type MachineTemplateWebhook struct{}

var _ admission.Validator[*infrav1.QuoinMachineTemplate] = &MachineTemplateWebhook{}

func (w *MachineTemplateWebhook) setup(mgr ctrl.Manager) error {
	return ctrl.NewWebhookManagedBy(mgr, &infrav1.QuoinMachineTemplate{}).WithValidator(w).Complete()
}

// ValidateCreate refuses a template whose machines would be refused, and what belongs to one machine only.
func (w *MachineTemplateWebhook) ValidateCreate(
	_ context.Context, template *infrav1.QuoinMachineTemplate,
) (admission.Warnings, error) {
	path := field.NewPath("spec", "template")
	spec := &template.Spec.Template.Spec
	reasons := template.Spec.Template.ObjectMeta.Validate(path.Child("metadata"))
	reasons = append(reasons, validateMachineSpec(path.Child("spec"), spec)...)
	reasons = append(reasons, validateArtifacts(path.Child("spec"), spec)...)
	reasons = append(reasons, validateTemplateHooks(path.Child("spec"), spec)...)
	if spec.ProviderID != "" {
		reasons = append(reasons, field.Forbidden(path.Child("spec", "providerID"),
			"it names one machine's host and cannot be shared by all machines of a template: leave it out"))
	}
	if spec.EtcdRecovery != nil {
		reasons = append(reasons, field.Forbidden(path.Child("spec", "etcdRecovery"),
			"it is one host's part in one recovery, and would be done by every machine of the template: leave it out"))
	}
	return artifactWarnings(spec), refuseMachineTemplate(template, reasons)
}

// ValidateUpdate refuses every change of the machines' spec.
func (w *MachineTemplateWebhook) ValidateUpdate(
	ctx context.Context, before, after *infrav1.QuoinMachineTemplate,
) (admission.Warnings, error) {
	if !after.DeletionTimestamp.IsZero() {
		return nil, nil
	}
	reasons, err := webhooks.TemplateUnchanged(ctx, "QuoinMachineTemplate", after, before.Spec.Template.Spec,
		after.Spec.Template.Spec)
	if err != nil {
		return nil, err
	}
	return nil, refuseMachineTemplate(after, reasons)
}

// ValidateDelete lets every template go.
func (w *MachineTemplateWebhook) ValidateDelete(
	context.Context, *infrav1.QuoinMachineTemplate,
) (admission.Warnings, error) {
	return nil, nil
}

func refuseMachineTemplate(template *infrav1.QuoinMachineTemplate, reasons field.ErrorList) error {
	return webhooks.Refuse(infrav1.GroupVersion, "QuoinMachineTemplate", template.Name, reasons)
}
