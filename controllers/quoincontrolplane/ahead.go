// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoincontrolplane

import (
	"context"
	"fmt"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/controllers/quoincontrolplane/desired"
	"github.com/quoin-dev/cluster-api-provider-quoin/controllers/quoincontrolplane/observe"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
)

// A Machine that is made ahead carries infrav1.HoldClaimAnnotation from its creation. Cluster API gives it all that it
// needs, but no host is claimed for it, and it has no failure domain. To admit it is one write of the Machine, which
// takes the annotation off and says where it belongs: whoever sees the one sees the other.

// preCreateMachine makes a Machine ahead.
func (r *Reconciler) preCreateMachine(
	ctx context.Context, o *observe.Observation, step controlplane.Step,
) (controlplane.Effect, error) {
	machine := desired.Machine(o.ControlPlane, o.Cluster.Name, newName(o.ControlPlane), nil, true)
	if err := r.createObjects(ctx, o, machine, true); err != nil {
		return controlplane.Effect{}, err
	}
	r.history.PreCreation.Note(o.ControlPlane.UID, o.Machines[step.Machine].UID, r.Clock.Now(), true)
	return controlplane.Effect{Detail: ": " + machine.Name}, nil
}

// postpone goes on without a Machine that could not be made ahead. Nothing depends on it: what was awaited before still
// is, and what is wrong is told where it holds something up.
func (r *Reconciler) postpone(ctx context.Context, o *observe.Observation, step controlplane.Step, err error) {
	ctrl.LoggerFrom(ctx).Info(step.Message + ", which failed: " + err.Error())
	if machine := o.Machines[step.Machine]; machine != nil {
		r.history.PreCreation.Note(o.ControlPlane.UID, machine.UID, r.Clock.Now(), false)
	}
}

// allowHostClaim lets a Machine that was made ahead have a host, and returns it as it is then. By a patch and no apply:
// whoever else may own the annotation, it goes.
func (r *Reconciler) allowHostClaim(
	ctx context.Context, o *observe.Observation, attempt *controlplane.Attempt, machine *clusterv1.Machine,
) (*clusterv1.Machine, error) {
	admitted := machine.DeepCopy()
	delete(admitted.Annotations, infrav1.HoldClaimAnnotation)
	if err := place(ctx, o, attempt, admitted); err != nil {
		return nil, err
	}
	if err := r.Client.Patch(ctx, admitted, client.MergeFrom(machine)); err != nil {
		return nil, fmt.Errorf("admitting Machine %s: %w", machine.Name, err)
	}
	r.noteApplied(&o.Inventory, admitted)
	return admitted, nil
}
