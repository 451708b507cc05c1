// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoincontrolplane

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/quorum"
)

// membersToRemove are those that a person wants to be removed.
func (s *scope) membersToRemove() []uint64 {
	ids, _ := controlplanev1.MembersToRemove(s.plane.Annotations[controlplanev1.RemoveEtcdMemberAnnotation])
	return ids
}

// forgetRemovedMembers takes from the annotation the members that are not in the list any more.
func (s *scope) forgetRemovedMembers() {
	value, ordered := s.plane.Annotations[controlplanev1.RemoveEtcdMemberAnnotation]
	if !ordered || !s.snapshot.Etcd.Known || !s.snapshot.Etcd.Agreed {
		return
	}
	var left []string
	for _, id := range s.membersToRemove() {
		if slices.ContainsFunc(s.snapshot.Etcd.Members, func(member quorum.Member) bool { return member.ID == id }) {
			left = append(left, fmt.Sprintf("%x", id))
		}
	}
	switch joined := strings.Join(left, ","); {
	case joined == "":
		delete(s.plane.Annotations, controlplanev1.RemoveEtcdMemberAnnotation)
	case joined != value:
		s.plane.Annotations[controlplanev1.RemoveEtcdMemberAnnotation] = joined
	}
}

// tellUnclaimed says in an event that a member waits for a person.
func (r *Reconciler) tellUnclaimed(s *scope) {
	if s.outcome.Reason == controlplane.ReasonMemberWithoutMachine {
		r.event(s, corev1.EventTypeWarning, controlplanev1.MemberWithoutMachineReason, sentence(s.outcome.Message))
	}
}
