// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoincontrolplane

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
)

// requestBackup asks for a snapshot that begins now or later.
func requestBackup(controlPlane *controlplanev1.QuoinControlPlane, now time.Time) {
	if controlPlane.Status.Backup == nil {
		controlPlane.Status.Backup = &controlplanev1.EtcdBackupStatus{}
	}
	controlPlane.Status.Backup.RequestedTime = metav1.NewTime(now)
}
