// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoincontrolplane

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/cluster-api/util/conditions"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
)

// addOrphans puts a stand-in for each Machine that is gone while our hold still keeps its QuoinMachine: somebody stripped the
// Machine's finalizer, and its dependents were collected, or will be in a moment. The etcd member there leaves as any other does,
// and then the hold is taken away; without that the host would be kept for ever. What is written to a stand-in comes to nothing.
func (s *scope) addOrphans() {
	owned := map[string]bool{}
	for _, machine := range s.machines {
		owned[machine.Spec.InfrastructureRef.Name] = true
	}
	for i := range s.clusterInfra {
		infra := &s.clusterInfra[i]
		_, moving := infra.Annotations[clusterctlv1.DeleteForMoveAnnotation]
		mine := infrav1.LifecycleHook{Name: controlplanev1.HookName, Owner: s.holdOwner()}
		if infra.DeletionTimestamp.IsZero() && !outlives(infra) || moving || owned[infra.Name] || !slices.Contains(infra.Spec.LifecycleHooks.PreTerminate, mine) {
			continue
		}
		s.machines.Insert(s.standIn(infra))
	}
}

// outlives tells of a QuoinMachine without a Machine that it had one: none claims a host before.
func outlives(infra *infrav1.QuoinMachine) bool {
	return infra.Spec.ProviderID != "" && slices.ContainsFunc(infra.OwnerReferences, func(owner metav1.OwnerReference) bool {
		return owner.Kind == machineKind
	})
}

// standIn is the Machine as it would be at the end of its deletion.
func (s *scope) standIn(infra *infrav1.QuoinMachine) *clusterv1.Machine {
	machine := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{
		Namespace: infra.Namespace, Name: infra.Name, Labels: s.fixedLabels(), CreationTimestamp: infra.CreationTimestamp,
		DeletionTimestamp: infra.DeletionTimestamp,
		// Nobody can tell how its pods are to be evicted.
		Annotations: map[string]string{controlplanev1.EvictionEndedAnnotation: ""},
	}}
	if machine.DeletionTimestamp == nil {
		machine.DeletionTimestamp = ptr.To(metav1.Now())
	}
	for _, owner := range infra.OwnerReferences {
		if owner.Kind == machineKind {
			machine.UID = owner.UID
		}
	}
	machine.Spec.ClusterName, machine.Spec.Version = s.cluster.Name, s.plane.Spec.Version
	machine.Spec.ProviderID = infra.Spec.ProviderID
	machine.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{
		APIGroup: infrav1.GroupVersion.Group, Kind: "QuoinMachine", Name: infra.Name}
	machine.Spec.FailureDomain = infra.Status.FailureDomain
	machine.Status.Addresses = infra.Status.Addresses
	if provisioned(infra) {
		for _, address := range infra.Status.Addresses {
			if address.Type == clusterv1.MachineHostName {
				machine.Status.NodeRef.Name = address.Address
			}
		}
	}
	conditions.Set(machine, metav1.Condition{Type: clusterv1.MachineDeletingCondition, Status: metav1.ConditionTrue,
		Reason: clusterv1.MachineDeletingWaitingForInfrastructureDeletionReason})
	return machine
}
