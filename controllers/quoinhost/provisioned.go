// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinhost

import (
	"context"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
)

// provisioned keeps a node's host: it has one that leaves hand the virtual address over and end its API server, brings
// the add-on images that the control plane asks for, and looks whether the host is there. It never starts the bootstrap
// plan, whatever the host's boot ID says.
func (r *reconciliation) provisioned(ctx context.Context) (result, error) {
	if r.host.Status.Facts == nil {
		return r.moveTo(infrav1.HostStateInspecting), nil
	}
	r.setTrue(infrav1.HostProvisionedCondition, infrav1.HostProvisionedReason)
	if res, handled, err := r.recovering(ctx); handled {
		return res, err
	}
	if o, err := r.handOver(ctx); err != nil || o.pending {
		return o.result, err
	}
	if o := r.stopAPIServer(ctx); o.pending {
		return o.result, nil
	}
	version, missing := r.missingAddons()
	if !missing {
		if usurped(r.host) != nil {
			// Only what the host shows next ends that.
			return r.probe(ctx), nil
		}
		r.setTrue(infrav1.HostAddonImagesCondition, infrav1.MachineImagesPresentReason)
		return r.probe(ctx), nil
	}
	return r.bringAddons(ctx, version)
}
