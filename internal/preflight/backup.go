// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
)

// backupOld is when a snapshot is too old to go back to without losing a day.
const backupOld = 24 * time.Hour

// lookAtBackup looks whether there is a snapshot of etcd to go back to.
func lookAtBackup(_ context.Context, s Subject) (string, []quoinv1.Finding, error) {
	if s.ControlPlane == nil {
		return "", notLookedAt("whether there is a snapshot of etcd"), nil
	}
	object := "QuoinControlPlane " + s.ControlPlane.Name
	if s.ControlPlane.Spec.Backup == nil {
		return "", []quoinv1.Finding{warns(object, "NotConfigured", "no snapshots of etcd are taken",
			"set spec.backup of the control plane")}, nil
	}
	var findings []quoinv1.Finding
	if healthy := conditions.Get(s.ControlPlane, controlplanev1.ControlPlaneBackupHealthyCondition); healthy != nil &&
		healthy.Status == metav1.ConditionFalse {
		findings = append(findings, warns(object, "Failing", "the backup is not healthy: "+healthy.Message,
			"mend what condition BackupHealthy names"))
	}
	status := s.ControlPlane.Status.Backup
	if status == nil || status.LastGood == nil {
		return "", append(findings, warns(object, "None", "there is no good snapshot yet", "wait for the first one")), nil
	}
	if taken := status.LastGood.Time; s.Now.Sub(taken.Time) > backupOld {
		findings = append(findings, warns(object, "Old", "the last good snapshot is of "+taken.UTC().Format(time.RFC3339),
			"wait for the next one, or set spec.backup.schedule"))
	}
	return "last good snapshot " + status.LastGood.Name, findings, nil
}
