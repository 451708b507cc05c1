// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package apierr

import (
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
)

// IsAbsent reports whether an error says that the object does not exist, or its kind is not installed: one provider may
// run without the other.
func IsAbsent(err error) bool { return apierrors.IsNotFound(err) || meta.IsNoMatchError(err) }
