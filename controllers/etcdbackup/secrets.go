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
func (r *Reconciler) keepSecrets(ctx context.Context, plane *controlplanev1.QuoinControlPlane) error {
	needs := len(plane.Spec.Backup.SecretNames()) > 0
	if !needs && !secretprotection.Holds(plane) {
		return r.setFinalizer(ctx, plane, false)
	}
	if err := r.setFinalizer(ctx, plane, true); err != nil {
		return err
	}
	verdicts, err := r.protection.Keep(ctx, r.referrer(plane))
	for _, verdict := range verdicts {
		r.event(&scope{plane: plane}, corev1.EventTypeWarning, verdict.Reason, verdict.Message)
	}
	if err != nil || needs {
		return err
	}
	return r.setFinalizer(ctx, plane, false)
}

// releaseSecrets gives them up as soon as the control plane is being deleted: no snapshot is taken any more.
func (r *Reconciler) releaseSecrets(ctx context.Context, plane *controlplanev1.QuoinControlPlane) error {
	if !controllerutil.ContainsFinalizer(plane, controlplanev1.BackupSecretFinalizer) {
		return nil
	}
	if err := r.protection.Release(ctx, r.referrer(plane)); err != nil {
		return err
	}
	return client.IgnoreNotFound(r.setFinalizer(ctx, plane, false))
}

// setFinalizer is optimistic: finalizers are a list, and another controller has one there too.
func (r *Reconciler) setFinalizer(ctx context.Context, plane *controlplanev1.QuoinControlPlane, wanted bool) error {
	if controllerutil.ContainsFinalizer(plane, controlplanev1.BackupSecretFinalizer) == wanted {
		return nil
	}
	before := plane.DeepCopy()
	if wanted {
		controllerutil.AddFinalizer(plane, controlplanev1.BackupSecretFinalizer)
	} else {
		controllerutil.RemoveFinalizer(plane, controlplanev1.BackupSecretFinalizer)
	}
	return r.Client.Patch(ctx, plane, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
}

func (r *Reconciler) referrer(plane *controlplanev1.QuoinControlPlane) secretprotection.Referrer {
	return secretprotection.Referrer{
		Object: plane, Secrets: plane.Spec.Backup.SecretNames(),
		NeededElsewhere: func(ctx context.Context, name string) (bool, error) {
			planes := &controlplanev1.QuoinControlPlaneList{}
			if err := r.Client.List(ctx, planes, client.InNamespace(plane.Namespace)); err != nil {
				return false, fmt.Errorf("listing the QuoinControlPlanes that need Secret %s/%s: %w", plane.Namespace, name, err)
			}
			return slices.ContainsFunc(planes.Items, func(other controlplanev1.QuoinControlPlane) bool {
				return other.Name != plane.Name && other.DeletionTimestamp.IsZero() &&
					slices.Contains(other.Spec.Backup.SecretNames(), name)
			}), nil
		},
	}
}
