// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package fieldowner says who wrote the fields of an object, by its managedFields.
package fieldowner

import (
	"encoding/json"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Upgrades is the field manager by which a ClusterUpgrade writes the record of a version.
const Upgrades = "quoin-clusterupgrade"

// tools write what a repository says again and again, though not all of them apply: Argo CD's default is an update.
var tools = []string{"argocd-controller", "kustomize-controller", "helm-controller"}

// Last is who wrote a field last, for people; empty when that is not known.
func Last(managed []metav1.ManagedFieldsEntry, path ...string) string {
	return last(managed, path, func(*metav1.ManagedFieldsEntry) bool { return true })
}

// Applying is who applies a field, and would write it back; empty when nobody does. It is for others than the caller,
// who does not apply.
func Applying(managed []metav1.ManagedFieldsEntry, path ...string) string {
	return last(managed, path, func(entry *metav1.ManagedFieldsEntry) bool {
		return entry.Operation == metav1.ManagedFieldsOperationApply || slices.Contains(tools, entry.Manager)
	})
}

func last(
	managed []metav1.ManagedFieldsEntry, path []string, match func(*metav1.ManagedFieldsEntry) bool,
) string {
	var last *metav1.ManagedFieldsEntry
	for i := range managed {
		entry := &managed[i]
		if entry.Subresource == "" && entry.FieldsV1 != nil && match(entry) && has(entry.FieldsV1.GetRawBytes(), path) &&
			(last == nil || last.Time.Before(entry.Time)) {
			last = entry
		}
	}
	if last == nil {
		return ""
	}
	return fmt.Sprintf("%s (%s)", last.Manager, last.Operation)
}

func has(fields []byte, path []string) bool {
	var tree map[string]json.RawMessage
	if err := json.Unmarshal(fields, &tree); err != nil {
		return false
	}
	below, found := tree["f:"+path[0]]
	return found && (len(path) == 1 || has(below, path[1:]))
}
