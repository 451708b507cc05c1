// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package infrastructure

import (
	"context"
	"fmt"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/fieldindex"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/firmware"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/hostpower"
)

// validateNewBMC refuses a BMC of whoever may not read the Secret that it names: the manager sends what that holds, a
// password, to the address beside it. Nor is it another host's. old is nil at creation.
func (w *HostWebhook) validateNewBMC(
	ctx context.Context, old, host *infrav1.QuoinHost,
) (field.ErrorList, error) {
	bmc := host.Spec.BMC
	if bmc == nil || old != nil && old.Spec.BMC != nil && *old.Spec.BMC == *bmc {
		return nil, nil
	}
	request, err := admission.RequestFromContext(ctx)
	if err != nil {
		return nil, fmt.Errorf("finding out who sets spec.bmc: %w", err)
	}
	allowed, err := mayRead(ctx, w.Reviews, request.UserInfo, host.Namespace, bmc.CredentialsRef.Name)
	if err != nil {
		return nil, fmt.Errorf("asking whether user %q may read Secret %s/%s, which spec.bmc names: %w",
			request.UserInfo.Username, host.Namespace, bmc.CredentialsRef.Name, err)
	}
	if allowed {
		return w.validateBMCIsNew(ctx, old, host)
	}
	return field.ErrorList{field.Forbidden(field.NewPath("spec", "bmc"), fmt.Sprintf("the credentials in Secret %s are "+
		"sent to the address, and user %q may not read them: have somebody set it who may, or get the right to get "+
		"that Secret", bmc.CredentialsRef.Name, request.UserInfo.Username))}, nil
}

// validateBMCIsNew refuses the computer of another host, one of which is wrong: the identities that are compared before
// each order keep it from being switched off for the other. Of two that a move brings, both were there before. One of
// another namespace counts only after its BMC was verified: who only names it first, without its account or the machine
// behind it, must not keep the owner out.
func (w *HostWebhook) validateBMCIsNew(
	ctx context.Context, old, host *infrav1.QuoinHost,
) (field.ErrorList, error) {
	bmc := host.Spec.BMC
	var before *infrav1.BMC
	if old != nil && old.Spec.BMC != nil && old.Spec.BMC.Address == bmc.Address {
		before = old.Spec.BMC
	}
	if before != nil && before.System == bmc.System && before.SystemID == bmc.SystemID {
		return nil, nil
	}
	var hosts infrav1.QuoinHostList
	if err := w.Client.List(ctx, &hosts, client.UnsafeDisableDeepCopy, fieldindex.HostsAtBMC(bmc.Address)); err != nil {
		return nil, apierrors.NewInternalError(fmt.Errorf("list QuoinHosts to find out whether one has this BMC: %w", err))
	}
	for i := range hosts.Items {
		other := &hosts.Items[i]
		alike := sameSystem(bmc, other.Spec.BMC) ||
			bmc.SystemID != "" && strings.EqualFold(bmc.SystemID, other.Spec.BMC.SystemID) ||
			// What names none means the only one there is. Of two that were stored so, one is named first.
			mayBeSame(bmc, other.Spec.BMC) && (before == nil || !mayBeSame(before, other.Spec.BMC))
		if !alike || broughtTogether(old, host, other) || other.Namespace == host.Namespace && other.Name == host.Name ||
			other.Namespace != host.Namespace && !conditions.IsTrue(other, infrav1.HostBMCVerifiedCondition) {
			continue
		}
		return field.ErrorList{field.Forbidden(field.NewPath("spec", "bmc", "address"), fmt.Sprintf("QuoinHost %s/%s has "+
			"this BMC: correct one of them, or, if it has several computers, set spec.bmc.system of both", other.Namespace,
			other.Name))}, nil
	}
	return w.validateSystemIsNew(ctx, old, host)
}

// sameSystem reports whether both name one computer of a BMC, or none.
func sameSystem(a, b *infrav1.BMC) bool {
	return strings.TrimRight(a.System, "/") == strings.TrimRight(b.System, "/")
}

// mayBeSame reports whether two that have one address may mean one computer.
func mayBeSame(a, b *infrav1.BMC) bool { return a.System == "" || b.System == "" || sameSystem(a, b) }

// broughtTogether reports whether a move brings the host, and has brought the other one, which nobody here has taken
// over yet. Refusing what another management cluster had would end the move halfway.
func broughtTogether(old, host, other *infrav1.QuoinHost) bool {
	brought := func(h *infrav1.QuoinHost) bool {
		return h.Spec.HeldFor != nil || h.Spec.ConsumerRef != nil && h.Spec.ManagedBy != string(h.UID)
	}
	return old == nil && brought(host) && brought(other)
}

// validateSystemIsNew refuses a word by which another host of the namespace is known: one BMC may have two addresses,
// and what inspection read on another host is what the BMC of that one says.
func (w *HostWebhook) validateSystemIsNew(ctx context.Context, old, host *infrav1.QuoinHost) (field.ErrorList, error) {
	word := host.Spec.BMC.SystemID
	if word == "" {
		return nil, nil
	}
	hosts, err := hostpower.KnownBySystemIDOf(ctx, w.Client, host)
	if err != nil {
		return nil, apierrors.NewInternalError(fmt.Errorf("finding out whether a host is known by this systemID: %w", err))
	}
	for i := range hosts {
		other := &hosts[i]
		if broughtTogether(old, host, other) {
			continue
		}
		refuse := func(format string) (field.ErrorList, error) {
			return field.ErrorList{field.Forbidden(field.NewPath("spec", "bmc", "systemID"), fmt.Sprintf(format,
				other.Namespace, other.Name, word))}, nil
		}
		if bmc := other.Spec.BMC; bmc != nil && (strings.EqualFold(word, bmc.SystemID) ||
			firmware.SameUUID(word, bmc.SystemID)) {
			return refuse("QuoinHost %s/%s says %q too: correct one of them, and give each what its own BMC alone says")
		}
		return refuse("inspection read on QuoinHost %s/%s that it is %q, so this is the BMC of that host: correct " +
			"spec.bmc. If both are one machine, delete one of them; if boards share that, give what the host's own BMC " +
			"alone says")
	}
	return nil, nil
}

func mayRead(
	ctx context.Context, reviews client.Writer, user authenticationv1.UserInfo, namespace, secret string,
) (bool, error) {
	extra := map[string]authorizationv1.ExtraValue{}
	for key, values := range user.Extra {
		extra[key] = authorizationv1.ExtraValue(values)
	}
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user.Username, UID: user.UID, Groups: user.Groups, Extra: extra,
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: namespace, Verb: "get", Version: "v1", Resource: "secrets", Name: secret,
		},
	}}
	err := reviews.Create(ctx, review)
	return review.Status.Allowed, err
}
