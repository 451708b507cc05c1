// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package apierr tells errors of the API server apart.
package apierr

import (
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	kerrors "k8s.io/apimachinery/pkg/util/errors"
)

// IgnoreGone takes out of an error that the object does not exist. Cluster API's patch helper wraps what it met into
// aggregates, which apierrors.IsNotFound does not look into.
func IgnoreGone(err error) error {
	var aggregate kerrors.Aggregate
	if errors.As(err, &aggregate) {
		if kerrors.FilterOut(aggregate, apierrors.IsNotFound) == nil {
			return nil
		}
		return err
	}
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
