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
	"github.com/quoin-dev/cluster-api-provider-quoin/controllers/quoincontrolplane/desired"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/placement"
)

// A Machine that is made ahead carries infrav1.HoldClaimAnnotation from its creation. Cluster API gives it all that it
// needs, but no host is claimed for it, and it has no failure domain. To admit it is one write of the Machine, which
// takes the annotation off and says where it belongs: whoever sees the one sees the other.

const (
	// preparedLife is for how long a Machine that was made ahead may be admitted: for the end of a join, and a drain. A
	// health check counts the time that it has to come up from its creation, as a rule ten minutes, and its bootstrap
	// token lives for a quarter of an hour. After a longer drain the seconds that it saves do not matter.
	preparedLife = 3 * time.Minute
	// kubeadmIsNew is how long after the begin of kubeadm the next Machine may be made: with the drain that follows, a
	// join that has taken longer leaves too little of preparedLife. And of a host that is silent nobody knows that its
	// join is over.
	kubeadmIsNew = time.Minute
	// partsLag is how long the cache may not show the QuoinMachine of a Machine that was made.
	partsLag = 10 * time.Second
)

// isPrepared tells that a Machine was made ahead and is not admitted yet. One that has a host all the same counts as
// any other.
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
	case infra == nil && now.Sub(machine.CreationTimestamp.Time) > partsLag, infra != nil &&
		!infra.DeletionTimestamp.IsZero():
		prepared.Unfit = "its QuoinMachine is going or gone"
	case now.Sub(machine.CreationTimestamp.Time) > preparedLife:
		prepared.Unfit = fmt.Sprintf("it was made more than %s ago", preparedLife)
	case others > 0:
		prepared.Unfit = "another one was made ahead, too"
	}
	return prepared
}

// prepareMachine makes a Machine ahead.
func (r *Reconciler) prepareMachine(ctx context.Context, s *scope) (controlplane.Effect, error) {
	machine := desired.Machine(s.plane, s.cluster.Name, s.newName(), nil, true)
	if err := r.createObjects(ctx, s, machine, true); err != nil {
		return controlplane.Effect{}, err
	}
	r.history.PreCreation.Note(s.plane.UID, s.machines[s.step.Machine].UID, s.clock.Now(), true)
	return controlplane.Effect{Detail: ": " + machine.Name}, nil
}

// postpone goes on without a Machine that could not be made ahead. Nothing depends on it: what was awaited before still
// is, and what is wrong is told where it holds something up.
func (r *Reconciler) postpone(ctx context.Context, s *scope, err error) {
	ctrl.LoggerFrom(ctx).Info(s.step.Message + ", which failed: " + err.Error())
	if machine := s.machines[s.step.Machine]; machine != nil {
		r.history.PreCreation.Note(s.plane.UID, machine.UID, s.clock.Now(), false)
	}
}

// recallAheads says beside which Machines the next one could not be made a short while ago.
func (r *Reconciler) recallAheads(s *scope) {
	present := map[types.UID]bool{}
	for i := range s.snapshot.Machines {
		machine := s.machines[s.snapshot.Machines[i].Name]
		present[machine.UID] = true
		s.snapshot.Machines[i].NoneAhead = !r.history.PreCreation.Due(s.plane.UID, machine.UID, s.clock.Now())
	}
	r.history.PreCreation.Keep(s.plane.UID, present)
}

// kubeadmBegan tells that kubeadm join began on the host of a Machine a short while ago, by the host's clock, and is
// not known to be over.
func kubeadmBegan(host *infrav1.QuoinHost, now time.Time) bool {
	operation := host.Status.Operation
	if operation == nil || operation.Step != infrav1.HostOperationStepJoin || operation.Since == nil {
		return false
	}
	age := now.Sub(operation.Since.Time)
	return age > -kubeadmIsNew && age < kubeadmIsNew
}

// admit lets a Machine that was made ahead have a host. By a patch and no apply: whoever else may own the annotation,
// it goes.
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
