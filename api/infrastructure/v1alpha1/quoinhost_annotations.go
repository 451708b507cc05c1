// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// AcceptHostKeyAnnotation is set by a person on a QuoinHost to the fingerprint (SHA256:...) of the key that the host
// now presents, and replaces the pinned keys by that key. It is removed when it has been carried out.
const AcceptHostKeyAnnotation = "quoin.cluster.x-k8s.io/accept-host-key"

// RetryAnnotation asks for the next attempt on a QuoinHost now, whatever its back-off says; any value. It also sends a
// Quarantined host through Cleaning and Inspecting again. It is removed when the attempt starts. On a host whose
// consumer is missing, which may serve a living node, it is answered with what would be lost, and given again with the
// provider ID as its value it resets the host.
const RetryAnnotation = "quoin.cluster.x-k8s.io/retry"

// AbandonAnnotation states that a QuoinHost with this provider ID, or with an empty value one that no Machine has, does
// not run any more, and is gone or will be wiped. The volumes of its Node are freed on that word, so they are damaged
// if it runs all the same. Nothing is done to the host any more: it becomes Quarantined, and the deletion of its
// QuoinMachine waits for no reset. It is removed when it has been carried out, when it names another claim, and when
// the host answers.
//
// On a QuoinMachine whose host object is not here it says the same of that host, whose provider ID is its value. So it
// does, in a recovery of etcd, on a Machine whose QuoinMachine is gone as well.
const AbandonAnnotation = "quoin.cluster.x-k8s.io/abandon"

// ReleaseUncleanAnnotation is a person's word that the Machine of a QuoinHost with this provider ID may go although its
// host was not verified to be clean: one that is Quarantined, or whose cleaning cannot be carried out for half an hour.
// The host is Quarantined then, counts as neither fenced nor stopped, and none of its volumes is freed. It waits until
// the QuoinMachine is being deleted and no hook holds that, so an etcd member that is still in the member list keeps
// its host. It is removed when it has been carried out, and when it names another claim, or a host that is neither.
const ReleaseUncleanAnnotation = "quoin.cluster.x-k8s.io/release-unclean"

// VerifyOnlyAnnotation has a Quarantined QuoinHost, which a person mended, verified without another reset. A host on
// which nothing is found goes on as after a reset. Any value; on a host that says that it serves somebody whom its
// QuoinHost does not know, or whose consumer is missing, it is the provider ID. It is removed when the host has
// answered, or did not.
const VerifyOnlyAnnotation = "quoin.cluster.x-k8s.io/verify-only"

// PowerOffAnnotation is a person's word that a silent QuoinHost with this provider ID may be cycled and powered off
// through its BMC from here, where no other host of its Cluster can confirm that this management cluster is the one it
// serves. It is removed when the host is off, or answers.
const PowerOffAnnotation = "quoin.cluster.x-k8s.io/power-off"

// RaiseGenerationAnnotation is a person's word that this management cluster is the right one, and the other, which the
// host obeys, is gone for good; any value. The generation is raised above the host's, which obeys from then on. Given
// to all hosts at once after a management cluster was restored from a backup. It is removed when the host has answered;
// where the host knows no newer generation or order, nothing is raised.
const RaiseGenerationAnnotation = "quoin.cluster.x-k8s.io/raise-generation"

// DetachedAnnotation on a QuoinHost stops everything: no connection is made, nothing is read, nothing is written to the
// host, and its claim can neither begin nor end. Any value; it stays until a person removes it.
const DetachedAnnotation = "quoin.cluster.x-k8s.io/detached"

// FormerPoolAnnotation on a QuoinHost names the pool (MachineDeployment or control plane, "namespace/name") of the
// Machine that had the host last. In metadata, because it must survive clusterctl move; written when a claim ends.
const FormerPoolAnnotation = "quoin.cluster.x-k8s.io/former-pool"
