// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoincontrolplane

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/collections"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
)

// A Machine that is made ahead carries infrav1.HoldClaimAnnotation from its creation. Cluster API gives it all that it needs,
// but no host is claimed for it, and it has no failure domain. To admit it is one write of the Machine, which takes the
// annotation off and says where it belongs: whoever sees the one sees the other.

// isPrepared tells that a Machine was made ahead and is not admitted yet. One that has a host all the same counts as any other.
func (s *scope) isPrepared(machine *clusterv1.Machine) bool {
	if _, held := machine.Annotations[infrav1.HoldClaimAnnotation]; !held || !machine.DeletionTimestamp.IsZero() {
		return false
	}
	return !s.hostClaimed(machine)
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

// preparedOf says what a decision needs to know of a Machine that was made ahead.
func (s *scope) preparedOf(machine *clusterv1.Machine) controlplane.Prepared {
	prepared := controlplane.Prepared{Name: machine.Name, UpToDate: len(s.outdated[machine.Name]) == 0}
	if check := conditions.Get(machine, clusterv1.MachineHealthCheckSucceededCondition); check != nil && check.Status == metav1.ConditionFalse {
		prepared.Marked = orElse(check.Message, check.Reason)
	}
	return prepared
}

// prepareMachine makes a Machine ahead.
func (r *Reconciler) prepareMachine(ctx context.Context, s *scope) error {
	machine := s.desiredMachine(s.newName(), nil)
	machine.Annotations[infrav1.HoldClaimAnnotation] = ""
	if err := r.create(ctx, s, machine, true); err != nil {
		return err
	}
	s.step.Message += ": " + machine.Name
	return nil
}

// admit lets a Machine that was made ahead have a host.
func (r *Reconciler) admit(ctx context.Context, s *scope, machine *clusterv1.Machine) error {
	admitted := s.desiredMachine(machine.Name, machine)
	delete(admitted.Annotations, infrav1.HoldClaimAnnotation)
	if err := s.place(ctx, admitted); err != nil {
		return err
	}
	if err := r.applyMachine(ctx, s, admitted); err != nil {
		return fmt.Errorf("admitting Machine %s: %w", machine.Name, err)
	}
	return nil
}
