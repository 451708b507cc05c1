// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinhost

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/secretprotection"
)

// secretNotProtectedReason of an event: the Secret may go, or stay behind in a move.
const secretNotProtectedReason = "SecretNotProtected"

// keepSecrets has the Secrets of the host move with it, and stay as long as it needs them. What cannot be had is told
// and tried again, and keeps nothing else from being done: a policy that refuses our label must not stop a fleet.
func (r *Reconciler) keepSecrets(ctx context.Context, host *infrav1.QuoinHost) {
	warn := func(reason, message string) {
		if r.Recorder != nil {
			r.Recorder.Eventf(host, nil, corev1.EventTypeWarning, reason, "KeepSecrets", "%s", message)
		}
	}
	verdicts, err := r.secrets.Keep(ctx, r.referrer(host))
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Keeping the Secrets of a host")
		warn(secretNotProtectedReason, err.Error())
	}
	for _, verdict := range verdicts {
		warn(verdict.Reason, verdict.Message)
	}
}

// releaseSecrets gives the Secrets of a host up that is about to go.
func (r *Reconciler) releaseSecrets(ctx context.Context, host *infrav1.QuoinHost) error {
	return r.secrets.Release(ctx, r.referrer(host))
}

func (r *Reconciler) referrer(host *infrav1.QuoinHost) secretprotection.Referrer {
	return secretprotection.Referrer{
		Object: host, Secrets: host.SecretNames(),
		NeededElsewhere: func(ctx context.Context, name string) (bool, error) { return r.needed(ctx, host, name) },
	}
}

// needed reports whether another host of the namespace needs the Secret. One that is being deleted and that nobody has
// needs nothing any more. Hosts that go together each see the others so: the one that the cache shows last gives the
// Secret up.
func (r *Reconciler) needed(ctx context.Context, than *infrav1.QuoinHost, name string) (bool, error) {
	hosts := &infrav1.QuoinHostList{}
	if err := r.Client.List(ctx, hosts, client.InNamespace(than.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return false, fmt.Errorf("listing the QuoinHosts that need Secret %s/%s: %w", than.Namespace, name, err)
	}
	for i := range hosts.Items {
		other := &hosts.Items[i]
		goes := !other.DeletionTimestamp.IsZero() && other.Spec.ConsumerRef == nil
		if other.Name != than.Name && !goes && slices.Contains(other.SecretNames(), name) {
			return true, nil
		}
	}
	return false, nil
}
