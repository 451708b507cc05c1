// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoincontrolplane

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	. "github.com/onsi/gomega"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
)

// The objects are from the day of one replica, and the cluster has three by now.
func TestVotersThatTheObjectsDoNotKnowStay(t *testing.T) {
	w := newWorld(t, 1)
	g := w.g
	initialized(t, w)
	w.etcd.join("n-later", "10.0.0.98", false)
	w.etcd.join("n-latest", "10.0.0.99", false)
	for i := range w.etcd.members[1:] {
		member := &w.etcd.members[i+1]
		member.Answers, member.Connected = false, true
	}
	later, latest := w.etcd.members[1].ID, w.etcd.members[2].ID
	for range 3 {
		w.reconcile()
	}
	g.Expect(w.etcd.removed).To(BeEmpty())
	healthy := w.condition(controlplanev1.ControlPlaneEtcdClusterHealthyCondition)
	g.Expect(healthy.Status).To(Equal(metav1.ConditionFalse))
	g.Expect(healthy.Reason).To(Equal(controlplanev1.MemberWithoutMachineReason))
	g.Expect(healthy.Message).To(ContainSubstring("kubectl annotate quoincontrolplane -n " + namespace +
		" cp quoin.cluster.x-k8s.io/remove-etcd-member=2"))
	g.Expect(healthy.Message).To(ContainSubstring("n-latest"))

	w.edit(func(plane *controlplanev1.QuoinControlPlane) {
		plane.Annotations = map[string]string{controlplanev1.RemoveEtcdMemberAnnotation: "2"}
	})
	for range 3 {
		w.reconcile()
	}
	g.Expect(w.etcd.removed).To(Equal([]uint64{later}))
	g.Expect(w.plane().Annotations).NotTo(HaveKey(controlplanev1.RemoveEtcdMemberAnnotation), "it was carried out")
	g.Expect(w.etcd.members).To(ContainElement(HaveField("ID", latest)))

	// Nobody can tell of the last one any more: that is no death.
	w.etcd.members[1].Connected, w.etcd.members[1].Unasked = false, true
	w.reconcile()
	g.Expect(w.condition(controlplanev1.ControlPlaneEtcdClusterHealthyCondition).Message).
		To(ContainSubstring("(n-latest) may vote"))
	g.Expect(w.etcd.removed).To(Equal([]uint64{later}))
}

// The host of a voter without a Machine starts again, which takes longer than until it counts as dead.
func TestAVoterWithoutAMachineHasTimeToStartAgain(t *testing.T) {
	w := newWorld(t, 1)
	initialized(t, w)
	w.etcd.join("n-later", "10.0.0.98", false)
	w.etcd.members[1].Answers = false
	w.r.Timings.OrphanedMember = time.Hour
	for range 3 {
		w.reconcile()
		time.Sleep(2 * w.r.Timings.DeadMember)
	}
	w.g.Expect(w.etcd.removed).To(BeEmpty())
	w.g.Expect(w.condition(controlplanev1.ControlPlaneProgressingCondition).Message).
		To(ContainSubstring("(n-later) has no Machine, but was healthy less than 1h0m0s ago and may be back"))
	w.r.Timings.OrphanedMember = w.r.Timings.DeadMember
	w.reconcile()
	w.g.Expect(w.etcd.removed).To(Equal([]uint64{2}))
}

// A member is removed at a person's word only where no Machine has it.
func TestAMemberWithAMachineIsNotRemovedByItsID(t *testing.T) {
	w := newWorld(t, 1)
	name := initialized(t, w)
	w.edit(func(plane *controlplanev1.QuoinControlPlane) {
		plane.Annotations = map[string]string{controlplanev1.RemoveEtcdMemberAnnotation: "1"}
	})
	w.reconcile()
	w.g.Expect(w.etcd.removed).To(BeEmpty())
	w.g.Expect(w.machine(name).DeletionTimestamp).To(BeNil())
}
