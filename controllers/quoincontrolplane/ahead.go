// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoincontrolplane

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/collections"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/placement"
)

// A Machine that is made ahead carries infrav1.HoldClaimAnnotation from its creation. Cluster API gives it all that it needs,
// but no host is claimed for it, and it has no failure domain. To admit it is one write of the Machine, which takes the
// annotation off and says where it belongs: whoever sees the one sees the other.

// preparedLife is for how long a Machine that was made ahead may be admitted. A health check counts the time that it has to come
// up from its creation, and its bootstrap token lives for a quarter of an hour; and after a long drain the seconds that it
// saves do not matter.
const preparedLife = 2 * time.Minute

// isPrepared tells that a Machine was made ahead and is not admitted yet. One that has a host all the same counts as any other.
func (s *scope) isPrepared(machine *clusterv1.Machine) bool {
	return placement.ClaimHeld(machine) && machine.DeletionTimestamp.IsZero() && s.initialized() && !s.hostClaimed(machine)
}

// hostClaimed tells that a host was taken for the Machine at some time.
func (s *scope) hostClaimed(machine *clusterv1.Machine) bool {
	if machine.Spec.ProviderID != "" || machine.Status.NodeRef.IsDefined() {
		return true
	}
	infra := s.infra[machine.Name]
	return infra != nil && (infra.Spec.ProviderID != "" || infra.Status.HostRef != nil || s.claimedFor(infra))
}

// parts are the Machines that the control plane consists of: all but those that were made ahead.
func (s *scope) parts() collections.Machines {
	return s.machines.Filter(func(machine *clusterv1.Machine) bool { return !s.isPrepared(machine) })
}

// preparedOf says what a decision needs to know of a Machine that was made ahead, after others of them.
func (s *scope) preparedOf(machine *clusterv1.Machine, others int, now time.Time) controlplane.Prepared {
	prepared := controlplane.Prepared{Name: machine.Name}
	check, infra := conditions.Get(machine, clusterv1.MachineHealthCheckSucceededCondition), s.infra[machine.Name]
	switch {
	case len(s.outdated[machine.Name]) > 0:
		prepared.Unfit = "it is outdated"
	case check != nil && check.Status == metav1.ConditionFalse:
		prepared.Unfit = "its health check gave it up"
	case infra == nil || !infra.DeletionTimestamp.IsZero():
		prepared.Unfit = "its QuoinMachine is going or gone"
	case now.Sub(machine.CreationTimestamp.Time) > preparedLife:
		prepared.Unfit = fmt.Sprintf("it was made more than %s ago", preparedLife)
	case others > 0:
		prepared.Unfit = "another one was made ahead, too"
	}
	return prepared
}

// prepareMachine makes a Machine ahead.
func (r *Reconciler) prepareMachine(ctx context.Context, s *scope) error {
	machine := s.desiredMachine(s.newName(), nil)
	machine.Annotations[infrav1.HoldClaimAnnotation] = ""
	if err := r.createObjects(ctx, s, machine, true); err != nil {
		return err
	}
	s.step.Message += ": " + machine.Name
	return nil
}

// postpone goes on without a Machine that could not be made ahead. Nothing depends on it: what was awaited before still is, and
// what is wrong is told where it holds something up.
func (r *Reconciler) postpone(ctx context.Context, s *scope, err error) {
	ctrl.LoggerFrom(ctx).Info(s.step.Message + ", which failed: " + err.Error())
	if machine := s.machines[s.step.Machine]; machine != nil {
		r.aheads.note(s.plane.UID, machine.UID, time.Now(), false)
	}
	operation := s.step.Operation
	s.step = *s.step.Otherwise
	s.step.Operation = operation
}

// failedAhead tells that a Machine could not be made ahead a short while ago, while one of those that are there left or joined.
func (r *Reconciler) failedAhead(s *scope) bool {
	failed, present := false, map[types.UID]bool{}
	for _, machine := range s.machines {
		present[machine.UID] = true
		failed = failed || !r.aheads.due(s.plane.UID, machine.UID, time.Now())
	}
	r.aheads.keep(s.plane.UID, present)
	return failed
}

// admit lets a Machine that was made ahead have a host. By a patch and no apply: whoever else may own the annotation, it goes.
func (r *Reconciler) admit(ctx context.Context, s *scope, machine *clusterv1.Machine) error {
	admitted := machine.DeepCopy()
	delete(admitted.Annotations, infrav1.HoldClaimAnnotation)
	if err := s.place(ctx, admitted); err != nil {
		return err
	}
	if err := r.Client.Patch(ctx, admitted, client.MergeFrom(machine.DeepCopy())); err != nil {
		return fmt.Errorf("admitting Machine %s: %w", machine.Name, err)
	}
	s.machines.Insert(admitted)
	r.noteApplied(s, admitted)
	return nil
}
