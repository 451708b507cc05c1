// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package webhooks holds what the admission webhooks of both API groups share. The webhooks themselves are in
// infrastructure and controlplane.
//
// What a schema can say (bounds, patterns, CEL over one object) is said in the CRDs. Here are the rules that need the
// old object, other objects, or a parser. Every refusal is a field.Error that names the rule and the way out, because
// it is all that a person sees.
package webhooks

import (
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Refuse makes one API error of all reasons, nil when there are none.
func Refuse(group schema.GroupVersion, kind, name string, reasons field.ErrorList) error {
	if len(reasons) == 0 {
		return nil
	}
	return apierrors.NewInvalid(group.WithKind(kind).GroupKind(), name, reasons)
}
