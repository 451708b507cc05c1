// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinhost

import (
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/recovery"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/run"
)

func orderRecovery(w *world, order *infrav1.EtcdRecoveryOrder) {
	w.t.Helper()
	quoinMachine := &infrav1.QuoinMachine{}
	w.object(quoinMachine, "qm1")
	quoinMachine.Spec.EtcdRecovery = order
	w.g.Expect(w.client.Update(w.t.Context(), quoinMachine)).To(Succeed())
}

func TestANodeDoesItsPartInARecoveryOnceAlsoWhenTheManagerDies(t *testing.T) {
	w := claimedWorld(t, false)
	w.untilState(infrav1.HostStateProvisioned)
	orderRecovery(w, &infrav1.EtcdRecoveryOrder{ID: "r1", Action: infrav1.EtcdRecoverySurvive, Member: "node-1"})
	w.until("started", func(*infrav1.QuoinHost) bool { return w.room.count("recover") > 0 })
	w.restart()
	w.until("recovered", func(h *infrav1.QuoinHost) bool {
		return conditions.IsTrue(h,
			infrav1.HostEtcdRecoveryCondition)
	})
	wantAddons(w, "v1.36.0")
	w.linger(10)
	w.g.Expect(w.room.recovery.Order).To(Equal(recovery.Order{ID: "recover-r1", Action: recovery.Survive,
		Member: "node-1"}))
	w.g.Expect(w.room.plans["recover-r1"].starts).To(Equal(1))
	w.g.Expect(w.host().Status.Operation).To(HaveField("ID", "recover-r1"), "until the control plane has read it")
	w.g.Expect(w.host().Status.Operation.Phase).To(Equal(string(run.Succeeded)))

	orderRecovery(w, nil)
	w.until("add-ons", func(*infrav1.QuoinHost) bool { return w.room.count("addons") > 0 })
	w.g.Expect(conditions.Has(w.host(), infrav1.HostEtcdRecoveryCondition)).To(BeFalse())
}

func TestAPartInARecoveryThatFailedWaitsForAPerson(t *testing.T) {
	w := claimedWorld(t, false)
	w.untilState(infrav1.HostStateProvisioned)
	w.room.set(func() {
		w.room.script["recover-r1"] = []run.Status{{Phase: run.Failed, Message: "etcd answers with a quorum"}}
	})
	orderRecovery(w, &infrav1.EtcdRecoveryOrder{ID: "r1", Action: infrav1.EtcdRecoveryStop})
	condition := w.untilReason(infrav1.HostEtcdRecoveryCondition, infrav1.HostStepFailedReason)
	w.g.Expect(condition.Message).To(ContainSubstring("etcd answers with a quorum"))
	w.g.Expect(condition.Status).To(Equal(metav1.ConditionFalse))
	w.linger(10)
	w.g.Expect(w.room.count("recover")).To(Equal(1))

	orderRecovery(w, &infrav1.EtcdRecoveryOrder{ID: "r2", Action: infrav1.EtcdRecoveryStop})
	w.until("stopped", func(h *infrav1.QuoinHost) bool { return conditions.IsTrue(h, infrav1.HostEtcdRecoveryCondition) })
}
