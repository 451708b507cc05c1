// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package infrastructure

import (
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/webhooks"
)

// +kubebuilder:webhook:verbs=create;update,path=/validate-infrastructure-cluster-x-k8s-io-v1alpha1-quoinclustertemplate,mutating=false,failurePolicy=fail,matchPolicy=Equivalent,groups=infrastructure.cluster.x-k8s.io,resources=quoinclustertemplates,versions=v1alpha1,name=validation.quoinclustertemplate.infrastructure.cluster.x-k8s.io,sideEffects=None,admissionReviewVersions=v1

var clusterTemplates = webhooks.Template[*infrav1.QuoinClusterTemplate]{
	Group: infrav1.GroupVersion, Kind: "QuoinClusterTemplate", Empty: &infrav1.QuoinClusterTemplate{},
	Spec:     func(template *infrav1.QuoinClusterTemplate) any { return template.Spec.Template.Spec },
	Validate: validateClusterTemplate,
}

// validateClusterTemplate refuses a template whose clusters would be refused.
func validateClusterTemplate(template *infrav1.QuoinClusterTemplate) (admission.Warnings, field.ErrorList) {
	path := field.NewPath("spec", "template")
	reasons := template.Spec.Template.ObjectMeta.Validate(path.Child("metadata"))
	reasons = append(reasons, validateClusterSpec(path.Child("spec"), &template.Spec.Template.Spec)...)
	if template.Spec.Template.Spec.Version != "" {
		reasons = append(reasons, field.Forbidden(path.Child("spec", "version"), "this is where a ClusterUpgrade "+
			"records what it brings one Cluster to, and every Cluster made of the template would have that record: leave it "+
			"out, and set spec.topology.version of the Cluster"))
	}
	return nil, reasons
}
