// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoincontrolplane

import (
	"context"
	"errors"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/client-go/tools/events"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane/plan"
)

// deletions are those of Machines that the controller orders: each tells whether the drain was held at that moment.
type deletions struct {
	held   []bool
	refuse bool
}

func (w *world) watchDeletions() *deletions {
	d := &deletions{}
	w.r.Client = interceptor.NewClient(w.mgmt.(client.WithWatch), interceptor.Funcs{
		Delete: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.DeleteOption) error {
			if machine, ok := object.(*clusterv1.Machine); ok {
				d.held = append(d.held, w.hasDrainHook(machine.Name))
				if d.refuse {
					return errors.New("admission says no")
				}
			}
			return c.Delete(ctx, object, options...)
		},
	})
	return d
}

// story empties the recorder and tells the reasons of its events.
func (w *world) story() []string {
	recorder := w.r.Recorder.(*events.FakeRecorder)
	var reasons []string
	for len(recorder.Events) > 0 {
		reasons = append(reasons, strings.Fields(<-recorder.Events)[1])
	}
	return reasons
}

// replaceable has an outdated Machine, first, and its replacement, which votes: first goes next.
func replaceable(t *testing.T) (w *world, first string) {
	t.Helper()
	w = newWorld(t, 1)
	first = initialized(t, w)
	w.edit(outdate)
	w.reconcile()
	second := other(w, first)
	w.provision(second)
	w.hold(second)
	return w, first
}

// Cluster API looks at a Machine once a second at most, and the look that its deletion causes is to be the one that
// drains.
func TestTheDrainOfAMachineThatWeDeleteIsOpenBeforeTheDeletion(t *testing.T) {
	w, first := replaceable(t)
	g := w.g
	w.story()
	deleted := w.watchDeletions()
	w.reconcile()
	g.Expect(deleted.held).To(Equal([]bool{false}))
	g.Expect(w.machine(first).DeletionTimestamp).NotTo(BeNil())
	g.Expect(w.hasDrainHook(first)).To(BeFalse(), "the hook does not come back")
	g.Expect(w.hasHook(first)).To(BeTrue(), "its host is held until the member is gone")
	g.Expect(w.story()).To(Equal([]string{string(controlplane.MoveLeader), string(controlplane.DeleteMachine),
		string(controlplane.ReleaseDrainHook)}))
}

// What was agreed to for a deletion that never came is agreed to no more.
func TestTheHoldOfTheDrainComesBackWhenTheDeletionIsRefused(t *testing.T) {
	w, first := replaceable(t)
	g := w.g
	w.story()
	deleted := w.watchDeletions()
	deleted.refuse = true
	for range 6 {
		if len(deleted.held) == 0 {
			_, _ = w.r.Reconcile(t.Context(), request())
		}
	}
	g.Expect(deleted.held).To(Equal([]bool{false}))
	g.Expect(w.machine(first).DeletionTimestamp).To(BeNil())
	g.Expect(w.hasDrainHook(first)).To(BeFalse())
	g.Expect(w.story()).NotTo(ContainElement(string(controlplane.ReleaseDrainHook)), "nothing departs")

	w.etcd.members[1].Learner = true
	w.once()
	g.Expect(deleted.held).To(HaveLen(1), "etcd needs the member again")
	g.Expect(w.hasDrainHook(first)).To(BeTrue())

	deleted.refuse, w.etcd.members[1].Learner = false, false
	w.reconcile()
	g.Expect(w.machine(first).DeletionTimestamp).NotTo(BeNil())
	g.Expect(w.hasDrainHook(first)).To(BeFalse())
}

// A deletion is no agreement: while another Machine leaves, the next one is held as any other would be.
func TestADeletionThatIsNotFollowedByADrainIsNotAgreedTo(t *testing.T) {
	w, first := replaceable(t)
	g := w.g
	w.reconcile()
	g.Expect(w.machine(first).DeletionTimestamp).NotTo(BeNil())
	second := other(w, first)
	p := w.looks()
	p.assessment.Step = controlplane.Step{Kind: controlplane.DeleteMachine, Machine: second}
	g.Expect(w.r.execute(t.Context(), p)).To(Succeed())
	g.Expect(w.machine(second).DeletionTimestamp).NotTo(BeNil())
	g.Expect(plan.Assess(w.look().State).Step.Kind).NotTo(Equal(controlplane.ReleaseDrainHook))
	g.Expect(w.hasDrainHook(second)).To(BeTrue())
}
