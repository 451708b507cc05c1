// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package etcdbackup

import (
	"context"
	"maps"
	"time"

	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
)

// ofInterest lets through what a snapshot may begin with: status changes all the time.
func ofInterest() predicate.Predicate {
	return predicate.Funcs{
		GenericFunc: func(event.GenericEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, ok := e.ObjectOld.(*controlplanev1.QuoinControlPlane)
			after, alsoOK := e.ObjectNew.(*controlplanev1.QuoinControlPlane)
			return ok && alsoOK && (before.Generation != after.Generation ||
				before.UID != after.UID ||
				!before.DeletionTimestamp.Equal(after.DeletionTimestamp) ||
				!maps.Equal(before.Annotations, after.Annotations) ||
				len(before.OwnerReferences) != len(after.OwnerReferences) ||
				!requested(before).Equal(requested(after)) ||
				initialized(before) != initialized(after) || quorate(before) != quorate(after))
		},
	}
}

func requested(controlPlane *controlplanev1.QuoinControlPlane) time.Time {
	if controlPlane.Status.Backup == nil {
		return time.Time{}
	}
	return controlPlane.Status.Backup.RequestedTime.Time
}

func initialized(controlPlane *controlplanev1.QuoinControlPlane) bool {
	return ptr.Deref(controlPlane.Status.Initialization.ControlPlaneInitialized, false)
}

// quorate reports whether etcd had a quorum when it was read last.
func quorate(controlPlane *controlplanev1.QuoinControlPlane) bool {
	return controlPlane.Status.Etcd != nil && ptr.Deref(controlPlane.Status.Etcd.Agreed, false)
}

// controlPlaneOfCluster names the QuoinControlPlane of a Cluster.
func controlPlaneOfCluster(_ context.Context, object client.Object) []ctrl.Request {
	cluster, ok := object.(*clusterv1.Cluster)
	if !ok {
		return nil
	}
	ref := cluster.Spec.ControlPlaneRef
	if ref.Kind != "QuoinControlPlane" || ref.APIGroup != controlplanev1.GroupVersion.Group {
		return nil
	}
	return []ctrl.Request{{NamespacedName: client.ObjectKey{Namespace: cluster.Namespace, Name: ref.Name}}}
}
