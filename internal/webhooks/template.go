// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/cluster-api/util/topology"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// TemplateUnchanged refuses a change of spec.template.spec: what was made from a template would not follow, and would
// differ from it without anything to show for it.
//
// Cluster API's topology controller finds out by a server-side-apply dry run whether a template needs to be replaced,
// and marks that request; it must go through.
func TemplateUnchanged(
	ctx context.Context, kind string, template metav1.Object, before, after any,
) (field.ErrorList, error) {
	changes, err := Changes(before, after)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	if len(changes) == 0 || isTopologyDryRun(ctx, template) {
		return nil, nil
	}
	return field.ErrorList{field.Forbidden(field.NewPath("spec", "template", "spec"), fmt.Sprintf(
		"a %s cannot be changed in place, because what was made from it would not follow (changed: %s): make a new "+
			"template under another name and refer to it",
		kind, strings.Join(changes, ", ")))}, nil
}

func isTopologyDryRun(ctx context.Context, object metav1.Object) bool {
	request, err := admission.RequestFromContext(ctx)
	return err == nil && topology.IsDryRunRequest(request, object)
}
