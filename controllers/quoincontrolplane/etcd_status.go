// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoincontrolplane

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/controllers/quoincontrolplane/observe"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/quorum"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/text"
)

// etcdStatus is the membership as status shows it. What changes all the time, such as the size of a database, is
// written only together with something that matters or when the last reading is old: each write wakes this controller
// again.
func (s *summary) etcdStatus(before *controlplanev1.EtcdStatus) *controlplanev1.EtcdStatus {
	count := s.State.Etcd.Count()
	tolerates := count.Tolerates()
	if s.lostQuorum() != "" {
		// However many look healthy: those whose disks hang do.
		tolerates = min(tolerates, -1)
	}
	status := &controlplanev1.EtcdStatus{
		Voters:       ptr.To(int32(count.Voters)), //nolint:gosec // a handful
		Tolerates:    ptr.To(int32(tolerates)),    //nolint:gosec // a handful
		Agreed:       ptr.To(s.State.Etcd.Agreed),
		ObservedTime: metav1.NewTime(s.Etcd.ReadAt.Truncate(time.Second)),
	}
	taken := map[string]bool{}
	for _, member := range s.State.Etcd.Members {
		entry := controlplanev1.EtcdMember{Name: member.Name, ID: fmt.Sprintf("%x", member.ID), Machine: member.Machine,
			FailureDomain: member.FailureDomain, Role: "Voter", Healthy: ptr.To(member.Healthy),
			State:   string(member.State(s.State.DeadMemberTimeout)),
			Problem: text.Shorten(member.Problem, mostProblem)}
		if entry.Name == "" || taken[entry.Name] {
			entry.Name = entry.ID
		}
		taken[entry.Name] = true
		if member.Failing() && s.State.Etcd.Agreed {
			entry.SilentSince = metav1.NewTime(s.Etcd.ReadAt.Add(-member.Silent - member.Recalled).Truncate(time.Second))
		}
		if member.Progress > 0 {
			entry.Syncs = ptr.To(int64(min(member.Progress, math.MaxInt64))) //nolint:gosec // just bounded
		}
		switch {
		case member.Learner:
			entry.Role = "Learner"
		case member.Leader:
			entry.Role, status.Leader = "Leader", entry.Name
		}
		if member.Size > 0 {
			// It was asked, so this is known.
			entry.Lag = ptr.To(int64(min(member.Lag, math.MaxInt64))) //nolint:gosec // just bounded
			entry.SizeBytes = ptr.To(member.Size)
		}
		status.Members = append(status.Members, entry)
	}
	slices.SortFunc(status.Members, func(a, b controlplanev1.EtcdMember) int { return strings.Compare(a.Name, b.Name) })
	if before != nil && controlplane.ReadingAge(before, status.ObservedTime.Time) < observedInterval &&
		apiequality.Semantic.DeepEqual(lasting(before), lasting(status)) {
		return before
	}
	return status
}

// lasting is a membership without what differs from one reading to the next.
func lasting(status *controlplanev1.EtcdStatus) *controlplanev1.EtcdStatus {
	copied := status.DeepCopy()
	copied.ObservedTime = metav1.Time{}
	for i := range copied.Members {
		member := &copied.Members[i]
		member.Lag, member.SizeBytes, member.Problem = nil, nil, ""
		// Each time that a slow disk comes further. Who reads an old one sees by Syncs that it did.
		member.SilentSince, member.Syncs = metav1.Time{}, nil
	}
	return copied
}

// mostProblem is what the API takes of a member's problem.
const mostProblem = 1024

// observedInterval is how old a membership in status gets before it is written again although nothing happened to it.
const observedInterval = 30 * time.Second

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
