// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package secretprotection keeps the Secrets that hosts and control planes refer to. Each carries the label by which
// clusterctl move takes it along, and a finalizer of ours while something refers to it: neither kubectl delete secret
// nor kubectl delete namespace then takes away the key of a host that is still to be reset.
//
// Who refers to a Secret keeps a list of the Secrets that it had protected in an annotation, written before the first
// finalizer and shortened after it is gone. So nothing has to list or watch Secrets, and a manager that dies between
// two writes leaves no finalizer that nobody takes away.
package secretprotection

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
)

// Reasons why a Secret is not what it should be.
const (
	// ForeignOwnerReason: clusterctl leaves it where it is, because its owner does not move.
	ForeignOwnerReason = "SecretHasForeignOwner"
	// NotLabeledReason: clusterctl leaves it where it is, because nothing says that it belongs to a cluster.
	NotLabeledReason = "SecretNotLabeled"
	// DeletingReason: somebody deleted it, and it stays only as long as it is needed.
	DeletingReason = "SecretBeingDeleted"
)

// Verdict is a decision about a Secret.
type Verdict struct {
	Allowed bool
	// Reason and Message say why not, and what to do; empty when allowed.
	Reason, Message string
	// Owner that keeps the Secret where it is, as kind and name; empty when none does.
	Owner string
}

// ForeignOwner is the first owner that clusterctl move does not take along: one of a kind that is not Cluster API's or
// of one of its providers. An object that has such an owner is not moved, whatever its labels are (getMoveSequence in
// cmd/clusterctl/client/cluster/mover.go). Nil when there is none.
func ForeignOwner(object metav1.Object) *metav1.OwnerReference {
	owners := object.GetOwnerReferences()
	for i := range owners {
		group := schema.FromAPIVersionAndKind(owners[i].APIVersion, owners[i].Kind).Group
		if group != clusterv1.GroupVersion.Group && !strings.HasSuffix(group, "."+clusterv1.GroupVersion.Group) {
			return &owners[i]
		}
	}
	return nil
}

// Movable reports whether clusterctl move takes a Secret along that something in its namespace refers to.
func Movable(secret metav1.Object) Verdict {
	name := "Secret " + secret.GetNamespace() + "/" + secret.GetName()
	_, labeled := secret.GetLabels()[clusterctlv1.ClusterctlMoveLabel]
	switch owner := ForeignOwner(secret); {
	case owner != nil:
		who := owner.Kind + " " + owner.Name
		return Verdict{Reason: ForeignOwnerReason, Owner: who, Message: fmt.Sprintf(
			"%s belongs to %s, which clusterctl move leaves where it is, and so it stays there too: "+
				"have the Secret made in the target's namespace before the move, or refer to one without an owner", name, who)}
	case !secret.GetDeletionTimestamp().IsZero():
		return Verdict{Reason: DeletingReason, Message: deletingMessage(name)}
	case !labeled && len(secret.GetOwnerReferences()) == 0:
		return Verdict{Reason: NotLabeledReason, Message: fmt.Sprintf(
			"%s has no label %s yet, so clusterctl move leaves it where it is: the label comes when what refers to it is "+
				"reconciled, "+
				"which a pause prevents", name, clusterctlv1.ClusterctlMoveLabel)}
	}
	return Verdict{Allowed: true}
}

func deletingMessage(name string) string {
	return name + " is being deleted, and is kept until nothing refers to it any more: make another Secret and refer to " +
		"that one, " +
		"or delete what refers to it"
}

// protect gives a Secret what it lacks, and reports whether it lacked anything. A Secret that has a foreign owner gets
// no label, which would have no effect; one that is being deleted gets no finalizer, which the API server refuses; and
// one that clusterctl is about to delete lives on elsewhere.
func protect(secret metav1.Object, finalizer string) (changed bool) {
	if moved(secret) || !secret.GetDeletionTimestamp().IsZero() {
		return false
	}
	if finalizers := secret.GetFinalizers(); !slices.Contains(finalizers, finalizer) {
		secret.SetFinalizers(append(slices.Clone(finalizers), finalizer))
		changed = true
	}
	labels := secret.GetLabels()
	if _, ok := labels[clusterctlv1.ClusterctlMoveLabel]; !ok && ForeignOwner(secret) == nil {
		if labels == nil {
			labels = map[string]string{}
		}
		labels[clusterctlv1.ClusterctlMoveLabel] = ""
		secret.SetLabels(labels)
		changed = true
	}
	return changed
}

// release takes our finalizer from a Secret, and reports whether it was there. The label stays: it harms nothing, and
// may be a user's own.
func release(secret metav1.Object, finalizer string) (changed bool) {
	finalizers := secret.GetFinalizers()
	if moved(secret) || !slices.Contains(finalizers, finalizer) {
		return false
	}
	secret.SetFinalizers(slices.DeleteFunc(slices.Clone(finalizers), func(f string) bool { return f == finalizer }))
	return true
}

// moved reports whether clusterctl move is deleting the object because its copy lives on in another management cluster.
func moved(object metav1.Object) bool {
	_, moved := object.GetAnnotations()[clusterctlv1.DeleteForMoveAnnotation]
	return moved
}
