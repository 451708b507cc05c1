// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"fmt"
	"time"

	"k8s.io/utils/ptr"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
)

// defaultBackupAge is how old the last good snapshot may be when the spec does not say.
const defaultBackupAge = time.Hour

// backup tells how recent the last good snapshot of etcd is, and whether a newer one was asked for.
func (o *Observation) backup() controlplane.Backup {
	spec := o.ControlPlane.Spec.Backup
	if spec == nil {
		return controlplane.Backup{}
	}
	limit := defaultBackupAge
	if spec.MaxAgeSeconds != nil {
		limit = time.Duration(*spec.MaxAgeSeconds) * time.Second
	}
	result := controlplane.Backup{Wanted: true, Last: "there is none yet"}
	status := ptr.Deref(o.ControlPlane.Status.Backup, controlplanev1.EtcdBackupStatus{})
	if good := status.LastGood; good != nil {
		age := o.At.Sub(good.Time.Time)
		result.Recent = age <= limit
		// By its time and not by its age, which would be another text each second.
		result.Last = fmt.Sprintf("the last good one is of %s, and %s is the limit", good.Time.UTC().Format(time.RFC3339),
			limit)
		result.Requested = status.RequestedTime.After(good.Time.Time)
	} else {
		result.Requested = !status.RequestedTime.IsZero()
	}
	return result
}
