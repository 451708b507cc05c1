// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package infrastructure

import (
	"context"
	"encoding/json"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
)

// Default keeps what this management cluster has written about a host since another object was copied to make it, when
// a copy of that object is written over it again: the generation and who raised it, the claim, and the key of the first
// contact.
//
// clusterctl move does so when it is run again after it died: it updates what it finds on the target. Refusing that
// would stop every further attempt, since what is refused never changes; admitting it as it comes would take the host
// away from the cluster that it obeys.
func (w *HostWebhook) Default(ctx context.Context, host *infrav1.QuoinHost) error {
	request, err := admission.RequestFromContext(ctx)
	if err != nil || len(request.OldObject.Raw) == 0 {
		return nil //nolint:nilerr // not an update
	}
	before := &infrav1.QuoinHost{}
	if err := json.Unmarshal(request.OldObject.Raw, before); err != nil {
		return apierrors.NewInternalError(fmt.Errorf("decode QuoinHost %s/%s as it was: %w", host.Namespace, host.Name, err))
	}
	if isCopy(before, host) {
		keepClaim(before, host)
	}
	return nil
}

// isCopy reports whether what is written is another object of the name. The API server keeps the time of creation
// whatever an update says, but does so after mutating admission (BeforeUpdate in
// k8s.io/apiserver/pkg/registry/rest/update.go); a person's or a controller's update carries that of the object itself,
// or none.
func isCopy(before, after *infrav1.QuoinHost) bool {
	return !after.CreationTimestamp.IsZero() && !after.CreationTimestamp.Equal(&before.CreationTimestamp)
}

// keepClaim gives a copy what the object has.
func keepClaim(before, after *infrav1.QuoinHost) {
	if !trusts(&after.Spec) {
		after.Spec.HostKeys, after.Spec.HostCertificateAuthorities = before.Spec.HostKeys,
			before.Spec.HostCertificateAuthorities
	}
	if before.UID != "" && before.Spec.ManagedBy == string(before.UID) {
		// This management cluster has taken the host over: the copy comes from one that the host does not obey any more.
		after.Spec.ManagedBy, after.Spec.ConsumerRef = before.Spec.ManagedBy, before.Spec.ConsumerRef.DeepCopy()
		after.Spec.Order = before.Spec.Order.DeepCopy()
	}
	after.Spec.ClaimGeneration = max(after.Spec.ClaimGeneration, before.Spec.ClaimGeneration)
}
