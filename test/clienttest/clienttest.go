// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package clienttest makes what fake clients of tests are made of.
package clienttest

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	clienttesting "k8s.io/client-go/testing"
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

// Unmanaged builds a client that does not note who owns which field, so it takes no server-side apply. What notes it
// makes a REST mapper of the whole scheme for each write, which takes more than half of a test's time.
func Unmanaged(scheme *runtime.Scheme) *fake.ClientBuilder {
	tracker := clienttesting.NewObjectTracker(scheme, serializer.NewCodecFactory(scheme).UniversalDecoder())
	return fake.NewClientBuilder().WithScheme(scheme).WithObjectTracker(tracker)
}

// Indexed builds one that selects by our indexes, as one that reads from a manager's cache does.
func Indexed(scheme *runtime.Scheme) *fake.ClientBuilder {
	builder := Unmanaged(scheme)
	for _, index := range fieldindex.All() {
		builder.WithIndex(index.Object, index.Field, index.Values)
	}
	return builder
}
