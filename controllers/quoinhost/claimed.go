// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinhost

import (
	"context"
	"fmt"

	"k8s.io/utils/ptr"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/run"
)

// claimed waits for bootstrap data. The journal on the host is asked first: after a move the status is empty, and the
// claim may long be a node.
func (r *reconciliation) claimed(ctx context.Context) (result, error) {
	r.dropStaging()
	if r.host.Status.Facts == nil {
		return r.moveTo(infrav1.HostStateInspecting), nil
	}
	status, o := r.followProvisioning(ctx, infrav1.ProvisionOperation(r.host.Spec.ConsumerRef.Claim))
	if o.pending {
		return o.result, nil
	}
	if status.Phase != run.NotStarted {
		return r.moveTo(infrav1.HostStateProvisioning), nil
	}
	machine := r.claim.machine
	if machine == nil || r.claim.cluster == nil || r.claim.quoinMachine.Spec.ProviderID == "" ||
		ptr.Deref(machine.Spec.Bootstrap.DataSecretName, "") == "" {
		r.setFalse(infrav1.HostProvisionedCondition, infrav1.HostWaitingForBootstrapDataReason,
			fmt.Sprintf("waiting for the bootstrap data of Machine %s/%s", r.host.Spec.ConsumerRef.Namespace,
				r.host.Spec.ConsumerRef.Machine))
		return onEvent(), nil
	}
	return r.moveTo(infrav1.HostStateProvisioning), nil
}
