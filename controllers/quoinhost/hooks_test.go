// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinhost

import (
	"context"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	. "github.com/onsi/gomega"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
)

func (w *world) deleteObject(o client.Object, name string) {
	w.t.Helper()
	w.object(o, name)
	w.g.Expect(w.client.Delete(context.Background(), o)).To(Succeed())
}

func (w *world) untouched() {
	w.t.Helper()
	w.linger(3)
	w.g.Expect(w.host().Status.State).To(Equal(infrav1.HostStateProvisioned))
	w.g.Expect(w.room.count("clean")).To(BeZero())
}

// A person deletes the QuoinMachine of a Machine that is wanted.
func TestTheHostOfAMachineInUseIsNotTouched(t *testing.T) {
	w := claimedWorld(t, true)
	w.untilState(infrav1.HostStateProvisioned)
	w.deleteObject(&infrav1.QuoinMachine{}, "qm1")
	w.untouched()
	w.deleteObject(&clusterv1.Machine{}, "m1")
	w.until("clean", (*infrav1.QuoinHost).Released)
}

// Proves: S2-16, S2-18, S2-20
func TestAHostIsNotTouchedWhileAHookIsLeft(t *testing.T) {
	for name, hook := range map[string]struct{ set, end func(*world) }{
		"an entry, whose annotation was stripped": {func(w *world) {
			w.editQuoinMachine(func(m *infrav1.QuoinMachine) {
				m.Spec.LifecycleHooks.PreTerminate = []infrav1.LifecycleHook{{Name: "quoin", Owner: "QuoinControlPlane/cp"}}
			})
		}, func(w *world) {
			w.editQuoinMachine(func(m *infrav1.QuoinMachine) { m.Spec.LifecycleHooks = infrav1.LifecycleHooks{} })
		}},
		"an entry before the drain, which Cluster API skipped": {func(w *world) {
			w.editQuoinMachine(func(m *infrav1.QuoinMachine) {
				m.Spec.LifecycleHooks.PreDrain = []infrav1.LifecycleHook{{Name: "EtcdQuorumOperator",
					Owner: "clusteroperator/etcd"}}
			})
		}, func(w *world) {
			w.editQuoinMachine(func(m *infrav1.QuoinMachine) { m.Spec.LifecycleHooks = infrav1.LifecycleHooks{} })
		}},
		"an annotation, when the QuoinMachine was deleted before its turn": {func(w *world) {
			w.editMachine(func(m *clusterv1.Machine) {
				m.Annotations = map[string]string{clusterv1.PreTerminateDeleteHookAnnotationPrefix +
					"/BackupFileSystem": "my-backup-controller"}
			})
		}, func(w *world) { w.editMachine(func(m *clusterv1.Machine) { m.Annotations = nil }) }},
		"an annotation before the drain, which Cluster API waits for": {func(w *world) {
			w.editMachine(func(m *clusterv1.Machine) {
				m.Annotations = map[string]string{clusterv1.PreDrainDeleteHookAnnotationPrefix +
					"/MigrateImportantApp": "my-app-migration-controller"}
			})
		}, func(w *world) {
			machine := &clusterv1.Machine{}
			w.object(machine, "m1")
			conditions.Set(machine, metav1.Condition{Type: clusterv1.MachineDeletingCondition, Status: metav1.ConditionTrue,
				Reason: clusterv1.MachineDeletingWaitingForInfrastructureDeletionReason})
			w.g.Expect(w.client.Status().Update(context.Background(), machine)).To(Succeed())
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := claimedWorld(t, true)
			w.untilState(infrav1.HostStateProvisioned)
			hook.set(w)
			deleteMachine(w)
			w.untouched()
			hook.end(w)
			w.until("clean", (*infrav1.QuoinHost).Released)
		})
	}
}

// What has begun goes on: a host that is half reset is of use to nobody.
func TestAHookThatComesTooLateStopsNoReset(t *testing.T) {
	w := claimedWorld(t, true)
	w.untilState(infrav1.HostStateProvisioned)
	deleteMachine(w)
	w.until("reset started", func(*infrav1.QuoinHost) bool { return w.room.count("clean") == 1 })
	w.editMachine(func(m *clusterv1.Machine) {
		m.Annotations = map[string]string{clusterv1.PreTerminateDeleteHookAnnotationPrefix + "/late": "somebody"}
	})
	w.until("clean", (*infrav1.QuoinHost).Released)
}

// Hooks may hold the deletion of a Machine that has not become a node yet.
func TestNoBootstrapIsStartedForAMachineInDeletion(t *testing.T) {
	w := claimedWorld(t, true)
	w.setDataSecretName(nil)
	w.untilReason(infrav1.HostProvisionedCondition, infrav1.HostWaitingForBootstrapDataReason)
	w.deleteObject(&clusterv1.Machine{}, "m1")
	name := "m1-bootstrap"
	w.setDataSecretName(&name)
	w.untilReason(infrav1.HostProvisionedCondition, infrav1.HostMachineDeletingReason)
	w.linger(3)
	w.g.Expect(w.room.count("provision")).To(BeZero())
	w.deleteObject(&infrav1.QuoinMachine{}, "qm1")
	w.until("clean", (*infrav1.QuoinHost).Released)
}

func (w *world) editQuoinMachine(change func(*infrav1.QuoinMachine)) {
	w.t.Helper()
	m := &infrav1.QuoinMachine{}
	w.object(m, "qm1")
	change(m)
	w.g.Expect(w.client.Update(context.Background(), m)).To(Succeed())
}

func (w *world) editMachine(change func(*clusterv1.Machine)) {
	w.t.Helper()
	m := &clusterv1.Machine{}
	w.object(m, "m1")
	change(m)
	w.g.Expect(w.client.Update(context.Background(), m)).To(Succeed())
}
