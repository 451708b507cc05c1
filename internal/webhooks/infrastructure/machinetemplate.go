// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package infrastructure

import (
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/webhooks"
)

// +kubebuilder:webhook:verbs=create;update,path=/validate-infrastructure-cluster-x-k8s-io-v1alpha1-quoinmachinetemplate,mutating=false,failurePolicy=fail,matchPolicy=Equivalent,groups=infrastructure.cluster.x-k8s.io,resources=quoinmachinetemplates,versions=v1alpha1,name=validation.quoinmachinetemplate.infrastructure.cluster.x-k8s.io,sideEffects=None,admissionReviewVersions=v1

var machineTemplates = webhooks.Template[*infrav1.QuoinMachineTemplate]{
	Group: infrav1.GroupVersion, Kind: "QuoinMachineTemplate", Empty: &infrav1.QuoinMachineTemplate{},
	Spec:     whatMachinesAreMadeOf,
	Validate: validateMachineTemplate,
	Mutable: func(template *infrav1.QuoinMachineTemplate) field.ErrorList {
		return validateNamespaces(field.NewPath("spec", "template", "spec", "hostNamespaces"),
			template.Spec.Template.Spec.HostNamespaces)
	},
}

// whatMachinesAreMadeOf is what cannot change without other Machines. From which namespaces hosts are accepted is no
// part of it: nothing of a Machine that has its host follows from that, and a pool whose hosts are shared must be able
// to consent without being replaced.
func whatMachinesAreMadeOf(template *infrav1.QuoinMachineTemplate) any {
	spec := template.Spec.Template.Spec
	spec.HostNamespaces = nil
	return spec
}

// validateMachineTemplate refuses a template whose machines would be refused, and what belongs to one machine only.
func validateMachineTemplate(template *infrav1.QuoinMachineTemplate) (admission.Warnings, field.ErrorList) {
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
	return artifactWarnings(spec), reasons
}
