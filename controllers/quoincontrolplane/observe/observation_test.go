// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/controllers/quoincontrolplane/history"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/quorum"
)

// The state is made of a reading and a past, and of nothing else: made twice it is the same, and what it was made of is
// as it was. Only with what the first one hands to the next do they go on.
func TestTheStateIsMadeOfWhatIsGiven(t *testing.T) {
	g := NewWithT(t)
	delays := Delays{DeadMember: time.Minute, SkippedDrain: time.Minute}
	read := func(at time.Time) *Observation {
		o := threeMembers()
		o.Cluster = &clusterv1.Cluster{}
		o.At, o.clock, o.Etcd.ReadAt = at, clocktesting.NewFakePassiveClock(at), at
		o.Workload.ConfigVersion = "v1.36.3"
		o.Etcd.Cluster.Members[1].Answers = false
		deleted := metav1.NewTime(at)
		for name, machine := range o.Machines {
			machine.UID = types.UID(name)
		}
		leaving := o.Machines["c"]
		leaving.DeletionTimestamp = &deleted
		leaving.Annotations = map[string]string{controlplanev1.PreTerminateHookAnnotation: ""}
		leaving.Status.Deletion = &clusterv1.MachineDeletionStatus{}
		leaving.Status.Conditions = []metav1.Condition{{Type: clusterv1.MachineDeletingCondition,
			Status: metav1.ConditionTrue, Reason: clusterv1.MachineDeletingWaitingForPreTerminateHookReason}}
		return o
	}
	start := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	attempts := &history.Backoff{}
	for _, machine := range []types.UID{"a", "gone"} {
		attempts.Note("plane", machine, start, false)
	}
	past := history.Past{PreCreation: attempts.Of("plane")}

	given := read(start)
	first, then := buildState(given, past, delays)
	g.Expect(first.State.Machines[0].PreCreationBackoff).To(BeTrue())
	g.Expect(first.State.Machines[1].PreCreationBackoff).To(BeFalse())
	g.Expect(first.State.DrainInGrace).To(BeTrue())
	g.Expect(first.Initialized()).To(BeTrue())
	g.Expect(then.PreCreation.Machines()).To(Equal(map[types.UID]bool{"a": true}))
	g.Expect(given.State).To(BeZero())
	g.Expect(given.Initialized()).To(BeFalse())
	g.Expect(past).To(Equal(history.Past{PreCreation: attempts.Of("plane")}))

	again, same := buildState(given, past, delays)
	g.Expect(again).To(Equal(first))
	g.Expect(same).To(Equal(then))

	later := read(start.Add(time.Minute))
	next, _ := buildState(later, then, delays)
	g.Expect(next.State.Etcd.Members[1].State(next.State.DeadMemberTimeout)).To(Equal(quorum.MemberDead))
	g.Expect(next.State.DrainInGrace).To(BeFalse())
	anew, _ := buildState(later, history.Past{}, delays)
	g.Expect(anew.State.Etcd.Members[1].State(next.State.DeadMemberTimeout)).To(Equal(quorum.MemberWavering))
	g.Expect(anew.State.DrainInGrace).To(BeTrue())
}
