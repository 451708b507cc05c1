// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// RolloutRemovedAnnotation on a Machine says why a rollout deleted it. Cluster API records no reason of a deletion, and
// one without this is somebody else's.
const RolloutRemovedAnnotation = "quoin.cluster.x-k8s.io/rollout-removed"

// RolloutWithoutSpare says what a rollout does when a new Machine finds no free host.
// +kubebuilder:validation:Enum=Wait;RemoveFirst
type RolloutWithoutSpare string

const (
	// RolloutWithoutSpareWait waits for a host.
	RolloutWithoutSpareWait RolloutWithoutSpare = "Wait"
	// RolloutWithoutSpareRemoveFirst deletes one outdated Machine whose host the new one can have, although
	// maxUnavailable of the MachineDeployment may be 0.
	RolloutWithoutSpareRemoveFirst RolloutWithoutSpare = "RemoveFirst"
)
