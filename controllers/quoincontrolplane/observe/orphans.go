// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/cluster-api/util/collections"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/controllers/quoincontrolplane/desired"
)

// orphaned are synthetic Machines for those that are gone while our deletion hook still keeps their QuoinMachine:
// somebody stripped the Machine's finalizer, and its dependents were collected, or will be in a moment. The etcd member
// there leaves as any other does, and then the hook is taken away; without that the host would be kept for ever. What
// is written to a synthetic Machine comes to nothing.
func (s *Sources) orphaned(
	ctx context.Context, lists *Lists, machines collections.Machines,
) ([]*clusterv1.Machine, error) {
	owned := map[string]bool{}
	for _, machine := range machines {
		owned[machine.Spec.InfrastructureRef.Name] = true
	}
	var orphaned []*clusterv1.Machine
	for i := range lists.quoinMachines {
		infra := &lists.quoinMachines[i]
		_, moving := infra.Annotations[clusterctlv1.DeleteForMoveAnnotation]
		mine := infrav1.LifecycleHook{Name: controlplanev1.HookName, Owner: desired.HookOwner(lists.ControlPlane)}
		if moving || owned[infra.Name] || !slices.Contains(infra.Spec.LifecycleHooks.PreTerminate, mine) {
			continue
		}
		if infra.DeletionTimestamp.IsZero() {
			if outlives, err := s.outlives(ctx, &lists.Subject, infra); err != nil {
				return nil, err
			} else if !outlives {
				continue
			}
		}
		orphaned = append(orphaned, lists.syntheticMachine(infra, s.Clock.Now()))
	}
	return orphaned, nil
}

// outlives reports of a QuoinMachine that is not collected yet whether its Machine is gone, and not still to come: it
// has run its bootstrap data. A Machine that is there and none of the control plane's is an error: its member would
// seem to be nobody's.
func (s *Sources) outlives(ctx context.Context, subject *Subject, infra *infrav1.QuoinMachine) (bool, error) {
	if infra.Spec.ProviderID == "" || !Provisioned(infra) || subject.Deleting() {
		return false, nil
	}
	machine := &clusterv1.Machine{}
	err := s.Live.Get(ctx, client.ObjectKeyFromObject(infra), machine)
	switch {
	case apierrors.IsNotFound(err):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("reading the Machine of QuoinMachine %s: %w", infra.Name, err)
	}
	return false, fmt.Errorf("a Machine %s is there that is none of this control plane's, and its QuoinMachine is held "+
		"for it: give the Machine its label %s back, "+
		"and an owner reference to QuoinControlPlane %s", machine.Name, clusterv1.MachineControlPlaneLabel,
		subject.ControlPlane.Name)
}

// syntheticMachine is the Machine as it would be at the end of its deletion.
func (s *Subject) syntheticMachine(infra *infrav1.QuoinMachine, now time.Time) *clusterv1.Machine {
	machine := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{
		Namespace: infra.Namespace, Name: infra.Name, Labels: desired.FixedLabels(s.ControlPlane, s.Cluster.Name),
		CreationTimestamp: infra.CreationTimestamp,
		DeletionTimestamp: infra.DeletionTimestamp,
		// Nobody knows how its pods are to be evicted.
		Annotations: map[string]string{controlplanev1.EvictionEndedAnnotation: ""},
	}}
	if machine.DeletionTimestamp == nil {
		machine.DeletionTimestamp = ptr.To(metav1.NewTime(now))
	}
	for _, owner := range infra.OwnerReferences {
		if owner.Kind == desired.MachineKind {
			machine.UID = owner.UID
		}
	}
	machine.Spec.ClusterName, machine.Spec.Version = s.Cluster.Name, s.ControlPlane.Spec.Version
	machine.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{
		APIGroup: infrav1.GroupVersion.Group, Kind: "QuoinMachine", Name: infra.Name}
	machine.Spec.FailureDomain = infra.Status.FailureDomain
	machine.Status.Addresses = infra.Status.Addresses
	if Provisioned(infra) {
		machine.Spec.ProviderID, machine.Status.NodeRef.Name = infra.Spec.ProviderID, registersAs(infra)
	}
	conditions.Set(machine, metav1.Condition{Type: clusterv1.MachineDeletingCondition, Status: metav1.ConditionTrue,
		Reason: clusterv1.MachineDeletingWaitingForInfrastructureDeletionReason})
	return machine
}
