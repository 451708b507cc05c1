// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoincontrolplane

import (
	"context"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	. "github.com/onsi/gomega"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/etcd"
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

// hostsThat do something while one of them is asked whether it serves us.
type hostsThat struct {
	noHosts
	do func()
}

func (h hostsThat) HoldHost(ctx context.Context, host *infrav1.QuoinHost) (func(context.Context) error, error) {
	h.do()
	return h.noHosts.HoldHost(ctx, host)
}

// A member without a Machine that was to go, and that comes to vote before it does, stays.
func TestAMemberThatVotesBeforeItsRemovalStays(t *testing.T) {
	for name, c := range map[string]struct {
		learner bool
		comes   func(*etcd.Member)
		stays   bool
	}{
		"a voter is heard again":          {false, func(m *etcd.Member) { m.Connected = true }, true},
		"a voter answers":                 {false, func(m *etcd.Member) { m.Answers = true }, true},
		"of a voter nobody can tell":      {false, func(m *etcd.Member) { m.Unasked = true }, true},
		"a voter stays silent":            {false, func(*etcd.Member) {}, false},
		"a learner is promoted":           {true, func(m *etcd.Member) { m.Learner, m.Connected = false, true }, true},
		"a learner is heard, and stays":   {true, func(m *etcd.Member) { m.Connected = true }, false},
		"a learner is promoted, silently": {true, func(m *etcd.Member) { m.Learner = false }, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1)
			initialized(t, w)
			w.etcd.join("n-later", "10.0.0.98", c.learner)
			w.etcd.members[1].Answers = false
			if c.learner {
				w.r.Timings.OrphanedMember = time.Hour
			}
			w.r.Hosts = hostsThat{do: func() {
				if len(w.etcd.removed) == 0 {
					c.comes(&w.etcd.members[1])
				}
			}}
			for range 40 {
				// Who finds that it votes says so, and tries again.
				_, _ = w.r.Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
				time.Sleep(2 * w.r.Timings.DeadMember)
			}
			w.g.Expect(slices.Contains(w.etcd.removed, 2)).To(Equal(!c.stays))
		})
	}
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
