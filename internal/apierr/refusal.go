// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package apierr

import (
	"errors"
	"net/http"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// IsRefusal reports whether an API server, or an admission that it asked, looked at a change and did not take it. What
// another attempt may do, such as a conflict, a timeout or a webhook that does not answer, is no refusal.
func IsRefusal(err error) bool {
	status := apierrors.APIStatus(nil)
	return errors.As(err, &status) && slices.Contains([]int32{http.StatusBadRequest, http.StatusForbidden,
		http.StatusUnprocessableEntity}, status.Status().Code)
}
