// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package clienttest makes what fake clients of tests are made of.
package clienttest

import (
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/fieldindex"
)

// Scheme knows the kinds that the functions add. Those of packages fail only for a name that is taken.
func Scheme(add ...func(*runtime.Scheme) error) *runtime.Scheme {
	scheme := runtime.NewScheme()
	builder := runtime.SchemeBuilder(add)
	if err := builder.AddToScheme(scheme); err != nil {
		panic(err)
	}
	return scheme
}

// Indexed builds a client that selects by our indexes, as one that reads from a manager's cache does.
func Indexed(scheme *runtime.Scheme) *fake.ClientBuilder {
	builder := fake.NewClientBuilder().WithScheme(scheme)
	for _, index := range fieldindex.All() {
		builder.WithIndex(index.Object, index.Field, index.Values)
	}
	return builder
}
