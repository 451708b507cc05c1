// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// NeedsUpdateAnnotation has the Machine replaced that carries it, or whose Node or QuoinHost does, although it is at
// the present template. Its value is shown to people. On a QuoinHost it is moved to the Machine, or ends
// with the next claim, and in a template it marks nobody.
const NeedsUpdateAnnotation = "quoin.cluster.x-k8s.io/needs-update"

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
