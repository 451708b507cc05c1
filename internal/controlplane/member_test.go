// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/quorum"
)

// Whoever reads status has every member as it was read, in the state that was decided by.
func TestMemberFrom(t *testing.T) {
	g := NewWithT(t)
	g.Expect(MemberFrom(controlplanev1.EtcdMember{Name: "n-a", ID: "ffffffffffffffab", Machine: "a", FailureDomain: "x",
		Role: "Leader", State: "Healthy", Healthy: ptr.To(true), Lag: ptr.To[int64](7),
		SizeBytes: ptr.To[int64](9)})).To(Equal(
		quorum.Member{ID: 0xffffffffffffffab, Name: "n-a", Machine: "a", FailureDomain: "x", Leader: true, Healthy: true,
			Lag: 7, Size: 9}))
	g.Expect(MemberFrom(controlplanev1.EtcdMember{Name: "ab", ID: "ab", Role: "Learner", State: "Learner",
		Problem: "it has not started", Lag: ptr.To[int64](-1)})).To(Equal(
		quorum.Member{ID: 0xab, Learner: true, Problem: "it has not started"}))
	g.Expect(MemberFrom(controlplanev1.EtcdMember{Name: "n-a", ID: "1", Role: "Voter", State: "Dead"})).To(Equal(
		quorum.Member{ID: 1, Name: "n-a", Silent: quorum.Forever}))
}

// A reading that is dated ahead is as old as it is ahead. The control plane reads once a minute: three have failed before none counts.
func TestReadingAge(t *testing.T) {
	g, now := NewWithT(t), time.Now()
	g.Expect(ReadingMaxAge).To(Equal(3 * time.Minute))
	for _, ago := range []time.Duration{0, time.Minute, -time.Minute} {
		read := &controlplanev1.EtcdStatus{ObservedTime: metav1.NewTime(now.Add(-ago))}
		g.Expect(ReadingAge(read, now)).To(Equal(max(ago, -ago)))
	}
}

func TestMembershipIsReadFromStatus(t *testing.T) {
	g := NewWithT(t)
	now := time.Date(2026, 11, 23, 8, 0, 0, 0, time.UTC)
	members := []controlplanev1.EtcdMember{{Name: "n1", ID: "1f", Machine: "m1", Healthy: ptr.To(true)}}
	for why, unread := range map[string]*controlplanev1.EtcdStatus{
		"never":        nil,
		"no member":    {ObservedTime: metav1.NewTime(now)},
		"no time":      {Members: members},
		"nothing said": {},
	} {
		membership := MembershipFrom(unread, now)
		g.Expect(membership.Known).To(BeFalse(), why)
		g.Expect(membership.Problem).To(Equal("the control plane has not read it yet"), why)
	}
	read := MembershipFrom(&controlplanev1.EtcdStatus{Members: members, Agreed: ptr.To(true),
		ObservedTime: metav1.NewTime(now.Add(-time.Minute))}, now)
	g.Expect(read.Known && read.Agreed).To(BeTrue())
	g.Expect(read.Age).To(Equal(time.Minute))
	g.Expect(read.Members).To(HaveLen(1))
	g.Expect(read.Members[0].ID).To(Equal(uint64(0x1f)))
}
