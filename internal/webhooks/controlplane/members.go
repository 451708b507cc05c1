// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
)

// validateMembersToRemove refuses what names no member, and members that leave with their Machines.
func validateMembersToRemove(before, after *controlplanev1.QuoinControlPlane) field.ErrorList {
	value := after.Annotations[controlplanev1.RemoveEtcdMemberAnnotation]
	if value == before.Annotations[controlplanev1.RemoveEtcdMemberAnnotation] {
		return nil
	}
	path := field.NewPath("metadata", "annotations").Key(controlplanev1.RemoveEtcdMemberAnnotation)
	ids, wrong := controlplanev1.MembersToRemove(value)
	var reasons field.ErrorList
	if len(wrong) > 0 {
		reasons = append(reasons, field.Invalid(path, strings.Join(wrong, ","),
			"name members by their ids, as status.etcd.members shows them"))
	}
	if after.Status.Etcd == nil {
		return reasons
	}
	for _, member := range after.Status.Etcd.Members {
		if member.Machine != "" && slices.ContainsFunc(ids, func(id uint64) bool {
			return fmt.Sprintf("%x", id) == member.ID
		}) {
			reasons = append(reasons, field.Forbidden(path,
				fmt.Sprintf("etcd member %s runs on Machine %s: delete the Machine, and it leaves with it", member.ID,
					member.Machine)))
		}
	}
	return reasons
}
