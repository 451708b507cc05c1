// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// What is said while objects are on their way from one management cluster to another, and what a person says when some
// of them never arrive.

// ForgetAnnotation on a QuoinHost that is being deleted while its consumer is missing lets the object go and leaves the
// host as it is: it serves whoever has it in another management cluster. Its value is the provider ID of the claim.
const ForgetAnnotation = "quoin.cluster.x-k8s.io/forget"

// DeletionAnnotation on a Machine holds the UID of the object whose deletion was seen. A move copies Machines without
// their deletion: a Machine with this annotation that has another UID and is not being deleted is deleted again. Who
// does not want that takes the annotation off while the Cluster is paused.
const DeletionAnnotation = "quoin.cluster.x-k8s.io/deletion"

// DeleteUndrainedAnnotation on a Machine lets it be deleted although its Node is there and Cluster API has not found
// it. It goes without its pre-drain hooks and without a drain, and its Node object stays behind. The value is a reason,
// which nobody reads but people.
const DeleteUndrainedAnnotation = "quoin.cluster.x-k8s.io/delete-undrained"

// Conditions and reasons of objects that are apart, on their way.
const (
	// HostResetConfirmedCondition is False while a person's word to reset a host that may serve somebody waits to be given
	// once more; its message says what would be destroyed. Absent while nobody asks.
	HostResetConfirmedCondition = "ResetConfirmed"

	// HostMovingReason: the consumer of the host is not here and its Cluster is paused, as it is while clusterctl moves
	// it.
	HostMovingReason = "Moving"
	// HostConfirmationNeededReason: a reset was asked for once and must be confirmed.
	HostConfirmationNeededReason = "ConfirmationNeeded"

	// MachineMovingReason: the host of the QuoinMachine is not here and its Cluster is paused.
	MachineMovingReason = "Moving"
)
