// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"strconv"
	"time"

	"k8s.io/utils/ptr"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/quorum"
)

// ReadingAge is how long ago a membership was read, as status shows it. One that is dated ahead was read before a clock
// was set back, nobody knows how long ago: it counts as old as it is ahead.
func ReadingAge(etcd *controlplanev1.EtcdStatus, now time.Time) time.Duration {
	return now.Sub(etcd.ObservedTime.Time).Abs()
}

// ReadingMaxAge is how old a membership in status may be to judge by it what takes a member away. The control plane
// reads its members at least once a minute while etcd answers.
const ReadingMaxAge = 3 * time.Minute

// MembershipFrom is etcd as its control plane last read it and status shows it; not known before that.
func MembershipFrom(etcd *controlplanev1.EtcdStatus, now time.Time) quorum.Membership {
	if etcd == nil || len(etcd.Members) == 0 || etcd.ObservedTime.IsZero() {
		return quorum.Membership{Problem: "the control plane has not read it yet"}
	}
	membership := quorum.Membership{Known: true, Agreed: ptr.Deref(etcd.Agreed, false), Age: ReadingAge(etcd, now)}
	for _, read := range etcd.Members {
		membership.Members = append(membership.Members, MemberFrom(read))
	}
	return membership
}

// MemberFrom is a member of etcd as status shows it. Its State with quorum.Forever is that in which it was read.
func MemberFrom(read controlplanev1.EtcdMember) quorum.Member {
	id, _ := strconv.ParseUint(read.ID, 16, 64) // as it was written
	member := quorum.Member{
		ID:            id,
		Name:          read.Name,
		Machine:       read.Machine,
		FailureDomain: read.FailureDomain,
		Learner:       read.Role == "Learner",
		Leader:        read.Role == "Leader",
		Healthy:       ptr.Deref(read.Healthy, false),
		Problem:       read.Problem,
		Lag:           uint64(max(0, ptr.Deref(read.Lag, 0))),
		Size:          ptr.Deref(read.SizeBytes, 0),
	}
	if read.Name == read.ID {
		member.Name = "" // it has not started
	}
	return member.As(quorum.MemberState(read.State))
}
