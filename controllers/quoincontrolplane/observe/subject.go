// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package observe reads what there is of a control plane. The management cluster gives an Inventory, and with the
// workload cluster, etcd and hosts that becomes an Observation. Neither changes once it is made, and nothing here can
// write: all that it reads from is a client.Reader.
package observe

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
)

// Subject is the control plane that is observed, as it was read, and what came of its prerequisites.
type Subject struct {
	Cluster      *clusterv1.Cluster
	ControlPlane *controlplanev1.QuoinControlPlane
	// Template of infrastructure machines; nil when it does not exist, and then TemplateProblem says so.
	Template        *unstructured.Unstructured
	TemplateProblem string
	// Certificates is the condition to set; nil when they were not looked at.
	Certificates *metav1.Condition
}

// Replicas is how many Machines the control plane is to have.
func (s *Subject) Replicas() int { return int(ptr.Deref(s.ControlPlane.Spec.Replicas, 1)) }

// Deleting reports whether the control plane or its Cluster is being deleted.
func (s *Subject) Deleting() bool {
	return !s.ControlPlane.DeletionTimestamp.IsZero() || !s.Cluster.DeletionTimestamp.IsZero()
}

// Initialized reports whether kubeadm init is known to have run.
func (s *Subject) Initialized() bool {
	return ptr.Deref(s.ControlPlane.Status.Initialization.ControlPlaneInitialized, false) ||
		conditions.IsTrue(s.ControlPlane, controlplanev1.ControlPlaneInitializedCondition)
}
