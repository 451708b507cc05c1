// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package pivot

import (
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
)

// Of an object.
func Of(o *unstructured.Unstructured) Object {
	return Object{APIVersion: o.GetAPIVersion(), Kind: o.GetKind(), Namespace: o.GetNamespace(), Name: o.GetName()}
}

// Differences say what of an object has not arrived on the target, by the paths of fields: a value may be a secret.
// UIDs are those of the objects of the target. What the target has beyond the original is no difference.
func Differences(original, arrived *unstructured.Unstructured, uids map[Object]types.UID) []string {
	var found []string
	add := func(path string) { found = append(found, path) }
	for what, pair := range map[string][2]map[string]string{
		"metadata.labels":      {original.GetLabels(), arrived.GetLabels()},
		"metadata.annotations": {original.GetAnnotations(), arrived.GetAnnotations()},
	} {
		for key, value := range pair[0] {
			// It keeps a move from beginning, and says nothing about the object.
			if there, ok := pair[1][key]; (!ok || there != value) && key != clusterctlv1.BlockMoveAnnotation {
				add(fmt.Sprintf("%s[%s]", what, key))
			}
		}
	}
	for _, finalizer := range original.GetFinalizers() {
		if !slices.Contains(arrived.GetFinalizers(), finalizer) {
			add(fmt.Sprintf("metadata.finalizers[%s]", finalizer))
		}
	}
	// A deletion that is written down is done again on the target.
	if !original.GetDeletionTimestamp().IsZero() &&
		original.GetAnnotations()[infrav1.DeletionAnnotation] != string(original.GetUID()) {
		add("metadata.deletionTimestamp")
	}
	for _, owner := range original.GetOwnerReferences() {
		if !owned(arrived, owner, uids) {
			add(fmt.Sprintf("metadata.ownerReferences[%s %s]", owner.Kind, owner.Name))
		}
	}
	found = append(found, Changed(original, arrived)...)
	slices.Sort(found)
	return found
}

// Changed says what of an object's content, beside its metadata and status, is not there as it was, by the paths of
// fields.
func Changed(original, arrived *unstructured.Unstructured) []string {
	var found []string
	add := func(path string) { found = append(found, path) }
	for key, value := range original.Object {
		switch key {
		case "apiVersion", "kind", "metadata", "status":
		default:
			lacks(key, value, arrived.Object[key], add)
		}
	}
	if original.GetKind() == "QuoinHost" {
		found = takenOver(found, original, arrived)
	}
	slices.Sort(found)
	return found
}

// owned reports whether the owner has arrived with the object, and owns it there.
func owned(arrived *unstructured.Unstructured, owner metav1.OwnerReference, uids map[Object]types.UID) bool {
	return slices.ContainsFunc(arrived.GetOwnerReferences(), func(there metav1.OwnerReference) bool {
		object := Object{APIVersion: there.APIVersion, Kind: there.Kind, Namespace: arrived.GetNamespace(), Name: there.Name}
		uid, ok := uids[object]
		if !ok { // an owner without a namespace
			object.Namespace = ""
			uid = uids[object]
		}
		return there.Kind == owner.Kind && there.Name == owner.Name && there.UID == uid &&
			equality.Semantic.DeepEqual(there.Controller, owner.Controller) &&
			equality.Semantic.DeepEqual(there.BlockOwnerDeletion, owner.BlockOwnerDeletion)
	})
}

// lacks adds the paths of what is not there as it was. Admission may have added fields.
func lacks(path string, was, is any, add func(string)) {
	before, isMap := was.(map[string]any)
	if !isMap {
		if !equality.Semantic.DeepEqual(was, is) {
			add(path)
		}
		return
	}
	after, _ := is.(map[string]any)
	if len(before) == 0 {
		return
	}
	for _, key := range slices.Sorted(maps.Keys(before)) {
		lacks(path+"."+key, before[key], after[key], add)
	}
}

// takenOver leaves out what a target that was resumed too early keeps of a host that it has taken over: admission never
// lets its generation go back.
func takenOver(found []string, original, arrived *unstructured.Unstructured) []string {
	generation := func(o *unstructured.Unstructured) int64 {
		n, _, _ := unstructured.NestedInt64(o.Object, "spec", "claimGeneration")
		return n
	}
	manager, _, _ := unstructured.NestedString(arrived.Object, "spec", "managedBy")
	if generation(arrived) <= generation(original) || manager != string(arrived.GetUID()) {
		return found
	}
	return slices.DeleteFunc(found, func(path string) bool {
		return path == "spec.claimGeneration" || path == "spec.managedBy"
	})
}
