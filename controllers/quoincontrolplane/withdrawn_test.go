// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoincontrolplane

import (
	"testing"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/cluster-api/util/conditions"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
)

func (w *world) takeRecoveryAway() {
	w.t.Helper()
	w.edit(func(plane *controlplanev1.QuoinControlPlane) { plane.Spec.Recovery = nil })
}

// A person takes a recovery away when hosts have their parts in it. One that has not begun its part never does; one
// that has keeps its order for who puts the recovery back, until a quorum is there: then it is the host of an ordinary
// Machine again, and the recovery is void.
func TestNoHostKeepsAPartInARecoveryThatIsTakenAway(t *testing.T) {
	w, names := lostQuorum(t)
	g := w.g
	w.recover("r1", names[0], names[1], names[2])
	for range 5 {
		w.once()
	}
	g.Expect(w.order(names[2])).To(Equal("Stop "))
	w.ends(names[1], "r1", "Succeeded")
	w.takeRecoveryAway()
	for range 3 {
		w.once()
	}
	g.Expect(w.order(names[2])).To(BeEmpty(), "its host has not begun")
	g.Expect(w.order(names[1])).To(Equal("Stop "))
	g.Expect(conditions.Has(w.plane(), controlplanev1.ControlPlaneRecoveringCondition)).To(BeFalse())
	g.Expect(w.condition(controlplanev1.ControlPlaneProgressingCondition).Message).To(
		ContainSubstring("Recovery r1 has begun and was taken away"))

	w.recover("r1", names[0], names[1], names[2])
	for range 3 {
		w.once()
	}
	g.Expect(w.order(names[2])).To(Equal("Stop "), "who puts it back goes on with it")
	w.host(names[2], func(host *infrav1.QuoinHost) {
		host.Spec.Order = &infrav1.HostOrder{Given: "1", Plan: infrav1.RecoverOperation("r1")}
	})
	w.takeRecoveryAway()
	for range 3 {
		w.once()
	}
	g.Expect(w.order(names[2])).To(Equal("Stop "), "its host may have heard of it")

	w.etcd.noQuorum = false
	for i := range w.etcd.members {
		w.etcd.members[i].Answers, w.etcd.members[i].Leader, w.etcd.members[i].Problem = i != 1, i == 0, ""
	}
	w.once()
	g.Expect(w.order(names[2])).To(Equal("Stop "), "it runs")
	g.Expect(w.condition(controlplanev1.ControlPlaneProgressingCondition).Message).To(
		ContainSubstring("the host of Machine " + names[2] + " has begun its part"))
	w.ends(names[2], "r1", "Failed")
	w.once()
	for _, name := range names {
		g.Expect(w.order(name)).To(BeEmpty())
	}
	g.Expect(w.plane().Annotations).To(HaveKeyWithValue(controlplanev1.RecoveryAnnotation,
		And(ContainSubstring("r1"), ContainSubstring("Void"))))

	// The next loss is another one.
	w.etcd.noQuorum = true
	for i := range w.etcd.members {
		w.etcd.members[i].Answers, w.etcd.members[i].Leader = false, false
	}
	w.recover("r1", names[0], names[1], names[2])
	for range 3 {
		w.once()
	}
	g.Expect(w.condition(controlplanev1.ControlPlaneRecoveringCondition).Reason).To(Equal("RecoveryVoid"))
	g.Expect(w.order(names[2])).To(BeEmpty())
}
