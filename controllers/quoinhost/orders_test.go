// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinhost

import (
	"context"
	"errors"
	"testing"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
)

// A manager that dies between the two writes of a reconcile must not have taken the order away without carrying it out.
func TestAPersonsOrderIsThereUntilWhatItCausedIsWritten(t *testing.T) {
	for _, order := range []string{infrav1.AbandonAnnotation, infrav1.RetryAnnotation} {
		t.Run(order, func(t *testing.T) {
			w := silentWorld(t, nothing)
			deleteMachine(w)
			w.annotate(order, "")
			whole := w.r.Client
			died := errors.New("the manager died")
			w.r.Client = interceptor.NewClient(w.watching(), interceptor.Funcs{
				SubResourcePatch: func(context.Context, client.Client, string, client.Object, client.Patch,
					...client.SubResourcePatchOption) error {
					return died
				},
			})
			_, err := w.r.Reconcile(context.Background(), request(w))
			w.g.Expect(err).To(MatchError(ContainSubstring(died.Error())))
			w.g.Expect(w.host().Annotations).To(HaveKey(order))

			w.r.Client = whole
			w.linger(3)
			w.g.Expect(w.host().Annotations).NotTo(HaveKey(order))
			w.g.Expect(w.host().GivenUp()).To(Equal(order == infrav1.AbandonAnnotation))
		})
	}
}
