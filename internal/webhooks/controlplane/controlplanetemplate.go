// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/webhooks"
)

// +kubebuilder:webhook:verbs=create;update,path=/validate-controlplane-cluster-x-k8s-io-v1alpha1-quoincontrolplanetemplate,mutating=false,failurePolicy=fail,matchPolicy=Equivalent,groups=controlplane.cluster.x-k8s.io,resources=quoincontrolplanetemplates,versions=v1alpha1,name=validation.quoincontrolplanetemplate.controlplane.cluster.x-k8s.io,sideEffects=None,admissionReviewVersions=v1

var controlPlaneTemplates = webhooks.Template[*controlplanev1.QuoinControlPlaneTemplate]{
	Group: controlplanev1.GroupVersion, Kind: "QuoinControlPlaneTemplate",
	Empty:    &controlplanev1.QuoinControlPlaneTemplate{},
	Spec:     func(template *controlplanev1.QuoinControlPlaneTemplate) any { return template.Spec.Template.Spec },
	Validate: validateControlPlaneTemplate,
}

// validateControlPlaneTemplate refuses a template whose control planes would be refused.
func validateControlPlaneTemplate(
	template *controlplanev1.QuoinControlPlaneTemplate,
) (admission.Warnings, field.ErrorList) {
	path := field.NewPath("spec", "template")
	resource := &template.Spec.Template
	reasons := resource.ObjectMeta.Validate(path.Child("metadata"))
	reasons = append(reasons, validateMachineMetadata(path.Child("spec", "machineTemplate", "metadata"),
		&resource.Spec.MachineTemplate.ObjectMeta)...)
	reasons = append(reasons, validateBackup(path.Child("spec", "backup"), resource.Spec.Backup,
		&resource.Spec.KubeadmConfigSpec)...)
	if len(template.OwnerReferences) > 0 { // a move or a restore brings along what was admitted before
		return nil, reasons
	}
	reasons = append(reasons, validateMachines(path.Child("spec"), &resource.Spec.MachineTemplate.Spec,
		&resource.Spec.Rollout, &resource.Spec.KubeadmConfigSpec)...)
	return nil, reasons
}
