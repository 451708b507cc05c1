// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoincontrolplane

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/controllers/quoincontrolplane/observe"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/quorum"
)

// forgetRemovedMembers takes from the annotation the members that are not in the list any more.
func forgetRemovedMembers(controlPlane *controlplanev1.QuoinControlPlane, members quorum.Membership) {
	value, ordered := controlPlane.Annotations[controlplanev1.RemoveEtcdMemberAnnotation]
	if !ordered || !members.Known || !members.Agreed {
		return
	}
	var left []string
	for _, id := range observe.MembersToRemove(controlPlane) {
		if slices.ContainsFunc(members.Members, func(member quorum.Member) bool { return member.ID == id }) {
			left = append(left, fmt.Sprintf("%x", id))
		}
	}
	switch joined := strings.Join(left, ","); {
	case joined == "":
		delete(controlPlane.Annotations, controlplanev1.RemoveEtcdMemberAnnotation)
	case joined != value:
		controlPlane.Annotations[controlplanev1.RemoveEtcdMemberAnnotation] = joined
	}
}

// tellUnclaimed says in an event that a member waits for a person.
func (r *Reconciler) tellUnclaimed(s *summary) {
	if s.outcome.Reason == controlplane.ReasonMemberWithoutMachine {
		r.event(s.controlPlane, corev1.EventTypeWarning, controlplanev1.MemberWithoutMachineReason,
			sentence(s.outcome.Message))
	}
}
