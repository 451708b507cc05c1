// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/cluster-api/util/topology"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// Deletable lets every object of a kind go: one that something still needs has a finalizer.
type Deletable[T any] struct{}

// ValidateDelete implements admission.Validator.
func (Deletable[T]) ValidateDelete(context.Context, T) (admission.Warnings, error) { return nil, nil }

// Template admits the templates of one kind.
type Template[T client.Object] struct {
	Deletable[T]
	Group schema.GroupVersion
	Kind  string
	// Empty is any object of the kind.
	Empty T
	// Spec is the spec.template.spec of a template.
	Spec func(T) any
	// Validate says what keeps a new template from being used, and what to know of it.
	Validate func(T) (admission.Warnings, field.ErrorList)
	// Mutable judges what may change in place, if anything may.
	Mutable func(T) field.ErrorList
}

// Setup serves the webhook.
func (t Template[T]) Setup(mgr ctrl.Manager) error {
	return ctrl.NewWebhookManagedBy(mgr, t.Empty).WithValidator(t).Complete()
}

// ValidateCreate refuses a template when what is made from it would be refused.
func (t Template[T]) ValidateCreate(_ context.Context, template T) (admission.Warnings, error) {
	warnings, reasons := t.Validate(template)
	return warnings, Refuse(t.Group, t.Kind, template.GetName(), reasons)
}

// ValidateUpdate refuses a change of spec.template.spec: what was made from a template would not follow, and would
// differ from it without anything to show for it.
// Cluster API's topology controller finds out by a server-side-apply dry run whether a template needs to be replaced,
// and marks that request; it must go through.
func (t Template[T]) ValidateUpdate(ctx context.Context, before, after T) (admission.Warnings, error) {
	if !after.GetDeletionTimestamp().IsZero() {
		return nil, nil
	}
	changes, err := Changes(t.Spec(before), t.Spec(after))
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	if len(changes) == 0 && t.Mutable != nil {
		return nil, Refuse(t.Group, t.Kind, after.GetName(), t.Mutable(after))
	}
	if len(changes) == 0 || isTopologyDryRun(ctx, after) {
		return nil, nil
	}
	return nil, Refuse(t.Group, t.Kind, after.GetName(), field.ErrorList{field.Forbidden(
		field.NewPath("spec", "template", "spec"), fmt.Sprintf("a %s cannot be changed in place, because what was made from "+
			"it would not follow (changed: %s): make a new template under another name and refer to it",
			t.Kind, strings.Join(changes, ", ")))})
}

func isTopologyDryRun(ctx context.Context, object metav1.Object) bool {
	request, err := admission.RequestFromContext(ctx)
	return err == nil && topology.IsDryRunRequest(request, object)
}
