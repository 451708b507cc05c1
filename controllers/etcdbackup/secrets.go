// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package etcdbackup

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/secretprotection"
)

// keepSecrets has the Secrets of the backups move with the control plane, and stay as long as it refers to them. The
// control plane carries a finalizer meanwhile, so that it cannot be gone before they were released.
func (r *Reconciler) keepSecrets(ctx context.Context, controlPlane *controlplanev1.QuoinControlPlane) error {
	needs := len(controlPlane.Spec.Backup.SecretNames()) > 0
	if !needs && !secretprotection.Holds(controlPlane) {
		return r.setFinalizer(ctx, controlPlane, false)
	}
	if err := r.setFinalizer(ctx, controlPlane, true); err != nil {
		return err
	}
	verdicts, err := r.protection.Keep(ctx, r.referrer(controlPlane))
	for _, verdict := range verdicts {
		r.event(&reconciliation{controlPlane: controlPlane}, corev1.EventTypeWarning, verdict.Reason, verdict.Message)
	}
	if err != nil || needs {
		return err
	}
	return r.setFinalizer(ctx, controlPlane, false)
}

// releaseSecrets gives them up as soon as the control plane is being deleted: no snapshot is taken any more.
func (r *Reconciler) releaseSecrets(ctx context.Context, controlPlane *controlplanev1.QuoinControlPlane) error {
	if !controllerutil.ContainsFinalizer(controlPlane, controlplanev1.BackupSecretFinalizer) {
		return nil
	}
	if err := r.protection.Release(ctx, r.referrer(controlPlane)); err != nil {
		return err
	}
	return client.IgnoreNotFound(r.setFinalizer(ctx, controlPlane, false))
}

// setFinalizer is optimistic: finalizers are a list, and another controller has one there too.
func (r *Reconciler) setFinalizer(
	ctx context.Context, controlPlane *controlplanev1.QuoinControlPlane, wanted bool,
) error {
	if controllerutil.ContainsFinalizer(controlPlane, controlplanev1.BackupSecretFinalizer) == wanted {
		return nil
	}
	before := controlPlane.DeepCopy()
	if wanted {
		controllerutil.AddFinalizer(controlPlane, controlplanev1.BackupSecretFinalizer)
	} else {
		controllerutil.RemoveFinalizer(controlPlane, controlplanev1.BackupSecretFinalizer)
	}
	return r.Client.Patch(ctx, controlPlane, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
}

func (r *Reconciler) referrer(controlPlane *controlplanev1.QuoinControlPlane) secretprotection.Referrer {
	return secretprotection.Referrer{
		Object: controlPlane, Secrets: controlPlane.Spec.Backup.SecretNames(),
		NeededElsewhere: func(ctx context.Context, name string) (bool, error) {
			controlPlanes := &controlplanev1.QuoinControlPlaneList{}
			if err := r.Client.List(ctx, controlPlanes, client.InNamespace(controlPlane.Namespace)); err != nil {
				return false, fmt.Errorf("listing the QuoinControlPlanes that need Secret %s/%s: %w",
					controlPlane.Namespace, name, err)
			}
			return slices.ContainsFunc(controlPlanes.Items, func(other controlplanev1.QuoinControlPlane) bool {
				return other.Name != controlPlane.Name && other.DeletionTimestamp.IsZero() &&
					slices.Contains(other.Spec.Backup.SecretNames(), name)
			}), nil
		},
	}
}
