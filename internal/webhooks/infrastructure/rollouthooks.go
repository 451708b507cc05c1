// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package infrastructure

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/rollout"
)

const (
	deploymentHooksPath = "/validate-hooks-cluster-x-k8s-io-v1beta2-machinedeployment"
	setHooksPath        = "/validate-hooks-cluster-x-k8s-io-v1beta2-machineset"
)

// The webhooks are called for nothing but templates that carry one of the annotations, which
// config/infrastructure-quoin/match_conditions.yaml says.
//
// +kubebuilder:webhook:verbs=create;update,path=/validate-hooks-cluster-x-k8s-io-v1beta2-machinedeployment,mutating=false,failurePolicy=fail,matchPolicy=Equivalent,groups=cluster.x-k8s.io,resources=machinedeployments,versions=v1beta2,name=hooks.machinedeployment.infrastructure.quoin.cluster.x-k8s.io,sideEffects=None,timeoutSeconds=10,admissionReviewVersions=v1
// +kubebuilder:webhook:verbs=create;update,path=/validate-hooks-cluster-x-k8s-io-v1beta2-machineset,mutating=false,failurePolicy=fail,matchPolicy=Equivalent,groups=cluster.x-k8s.io,resources=machinesets,versions=v1beta2,name=hooks.machineset.infrastructure.quoin.cluster.x-k8s.io,sideEffects=None,timeoutSeconds=10,admissionReviewVersions=v1

// setupHooks serves the webhooks that refuse deletion hooks and marks of rollouts, and holds of claims, in templates: a
// MachineSet gives annotations of its template to every Machine, again and again, and what comes back holds its Machine
// for ever.
func setupHooks(mgr ctrl.Manager) error {
	for _, path := range []string{deploymentHooksPath, setHooksPath} {
		mgr.GetWebhookServer().Register(path, &admission.Webhook{Handler: admission.HandlerFunc(refuseTemplateHooks)})
	}
	return nil
}

func refuseTemplateHooks(_ context.Context, request admission.Request) admission.Response {
	object := struct {
		Spec struct {
			Template struct {
				Metadata metav1.ObjectMeta `json:"metadata"`
			} `json:"template"`
		} `json:"spec"`
	}{}
	if err := json.Unmarshal(request.Object.Raw, &object); err != nil {
		return admission.Errored(http.StatusBadRequest, fmt.Errorf("decode the %s: %w", request.Kind.Kind, err))
	}
	for _, hook := range []string{quoinv1.RolloutPreDrainHookAnnotation, quoinv1.RolloutPreTerminateHookAnnotation} {
		if _, is := object.Spec.Template.Metadata.Annotations[hook]; is {
			return admission.Denied(fmt.Sprintf("spec.template.metadata.annotations[%s]: the hook is put on Machines and taken "+
				"off by RolloutPolicies, and one that comes back from a template holds its Machine for ever. Use another name",
				hook))
		}
	}
	if _, is := object.Spec.Template.Metadata.Annotations[infrav1.HoldClaimAnnotation]; is {
		return admission.Denied(fmt.Sprintf("spec.template.metadata.annotations[%s]: the annotation is for single Machines, "+
			"and none that it comes back to from a template ever claims a host. To hold what a rollout makes, set suspend for "+
			"their group of a RolloutPolicy", infrav1.HoldClaimAnnotation))
	}
	if rollout.IsMark(object.Spec.Template.Metadata.Annotations[clusterv1.DeleteMachineAnnotation]) {
		return admission.Denied(fmt.Sprintf("spec.template.metadata.annotations[%s]: that value is what RolloutPolicies "+
			"give single Machines which leave next, and would be on all. Leave it out", clusterv1.DeleteMachineAnnotation))
	}
	return admission.Allowed("")
}
