// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// ReservedForLabel on a QuoinHost reserves it, so that its kind of spare is there when it is needed. The only value
// that means something is ReservedForControlPlane: no worker gets the host. It is a label and not a selector of the
// machine templates of workers, whose change would replace all their Machines.
const ReservedForLabel = "quoin.cluster.x-k8s.io/reserved-for"

// ReservedForControlPlane is the value of ReservedForLabel for Machines of control planes.
const ReservedForControlPlane = "control-plane"
