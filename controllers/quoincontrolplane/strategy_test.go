// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoincontrolplane

import (
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
)

func outdate(p *controlplanev1.QuoinControlPlane) {
	p.Spec.KubeadmConfigSpec.PreKubeadmCommands = []string{"true"}
}

// Without a host to spare a single Machine is not replaced, and it is said which host is missing. When there is one, it
// is.
//
// Proves: C6, S2-30
func TestMissingHostIsNamed(t *testing.T) {
	w := newWorld(t, 1)
	g := w.g
	first := initialized(t, w)
	w.noSpare()
	w.edit(outdate)
	w.reconcile()
	g.Expect(w.machines()).To(HaveLen(1))
	operation := w.plane().Status.Operation
	g.Expect(operation).NotTo(BeNil())
	g.Expect(operation.Type).To(Equal(controlplanev1.OperationRollout))
	g.Expect(operation.WaitingOn).To(Equal("NoSpareHost " + first))
	g.Expect(operation.Message).To(ContainSubstring("1 more host is needed: none of the hosts of namespace default is " +
		"free"))
	since := operation.Since
	g.Expect(w.condition(controlplanev1.ControlPlaneRollingOutCondition).Message).
		To(ContainSubstring("1 more host is needed"))
	g.Expect(w.condition(controlplanev1.ControlPlaneProgressingCondition).Status).To(Equal(metav1.ConditionTrue))
	g.Expect(w.plane().Status.Revisions).To(ConsistOf(
		controlplanev1.ControlPlaneRevision{Name: oldVer + "/cp", Current: ptr.To(true), Replicas: ptr.To[int32](0),
			ReadyReplicas: ptr.To[int32](0)},
		controlplanev1.ControlPlaneRevision{Name: oldVer + "/cp/outdated", Replicas: ptr.To[int32](1),
			ReadyReplicas: ptr.To[int32](0)}))
	time.Sleep(1100 * time.Millisecond)
	w.once()
	g.Expect(w.plane().Status.Operation.Since.Time).To(BeTemporally("==", since.Time), "it waits since then")
	g.Expect(w.r.controlPlanesInNeed(t.Context(), nil)).To(ConsistOf(ctrl.Request{NamespacedName: key}))

	w.edit(func(p *controlplanev1.QuoinControlPlane) { p.Spec.Rollout.ProgressDeadlineSeconds = ptr.To[int32](1) })
	w.once()
	g.Expect(w.condition(controlplanev1.ControlPlaneProgressingCondition)).
		To(And(HaveField("Status", metav1.ConditionFalse),
			HaveField("Reason", controlplanev1.ProgressDeadlineExceededReason),
			HaveField("Message", ContainSubstring("1 more host is needed"))))

	w.spare("spare")
	w.reconcile()
	g.Expect(w.machines()).To(HaveLen(2))
	g.Expect(w.r.controlPlanesInNeed(t.Context(), nil)).To(BeEmpty())
}

// Three, and no host to spare: one leaves first, and no other before its replacement votes.
//
// Proves: C6, C8
func TestRemoveFirstWithoutASpareHost(t *testing.T) {
	w, names := three(t)
	g := w.g
	w.reconcile()
	w.noSpare()
	recorder := w.r.Recorder.(*events.FakeRecorder)
	for len(recorder.Events) > 0 {
		<-recorder.Events
	}
	w.edit(outdate)
	w.reconcile()
	g.Expect(w.admitted()).To(HaveLen(3))
	leaver := ""
	for _, name := range names {
		if !w.machine(name).DeletionTimestamp.IsZero() {
			g.Expect(leaver).To(BeEmpty(), "one at a time")
			leaver = name
		}
	}
	g.Expect(leaver).NotTo(BeEmpty())
	g.Expect(w.hasDrainHook(leaver)).To(BeFalse())
	g.Expect(w.hasHook(leaver)).To(BeTrue(), "its host, which is the next one's, is not touched before the drain")
	w.drained(leaver)
	w.reconcile()
	g.Expect(w.etcd.members).To(HaveLen(2))
	g.Expect(w.hasHook(leaver)).To(BeFalse())
	w.gone(leaver)
	w.spare("spare")
	w.reconcile()
	g.Expect(w.machines()).To(HaveLen(3), "its replacement is made, and nothing else leaves")
	var story []string
	for len(recorder.Events) > 0 {
		// Which one of three that are equally old goes first is left to chance, and with it who leads.
		if reason := strings.Fields(<-recorder.Events)[1]; reason != string(controlplane.MoveLeader) {
			story = append(story, reason)
		}
	}
	g.Expect(story).To(Equal([]string{"DeleteMachine", "ToleranceLowered", "PreCreateMachine", "RemoveEtcdMember",
		"ReleaseTerminateHook", "AllowHostClaim"}))
}

// Three, and the host that was free is gone before the new Machine has it: an old one leaves first, and the new one
// waits for its host. No further Machine is made.
func TestHostThatVanishesHoldsNothingUp(t *testing.T) {
	w, names := three(t)
	g := w.g
	w.reconcile()
	w.edit(outdate)
	w.once()
	g.Expect(w.machines()).To(HaveLen(4))
	w.noSpare()
	w.reconcile()
	g.Expect(w.machines()).To(HaveLen(4))
	leaver := ""
	for _, name := range names {
		if !w.machine(name).DeletionTimestamp.IsZero() {
			g.Expect(leaver).To(BeEmpty(), "one at a time")
			leaver = name
		}
	}
	g.Expect(leaver).NotTo(BeEmpty(), "%+v", w.plane().Status.Operation)
	g.Expect(w.hasDrainHook(leaver)).To(BeFalse())
}

// A rollout asks for a snapshot of etcd and goes on when there is a recent one.
func TestRolloutWaitsForASnapshot(t *testing.T) {
	w := newWorld(t, 1, func(p *controlplanev1.QuoinControlPlane) {
		p.Spec.Backup = &controlplanev1.EtcdBackup{
			Store: controlplanev1.BackupStore{Volume: &controlplanev1.BackupVolume{Path: "a"}}}
	})
	g := w.g
	first := initialized(t, w)
	g.Expect(w.plane().Status.Backup).To(BeNil(), "nothing is replaced")
	w.edit(outdate)
	w.reconcile()
	g.Expect(w.machines()).To(HaveLen(1))
	plane := w.plane()
	g.Expect(plane.Status.Backup.RequestedTime.IsZero()).To(BeFalse())
	g.Expect(plane.Status.Operation).To(And(HaveField("Type", controlplanev1.OperationBackup),
		HaveField("WaitingOn", "WaitingForBackup")))
	plane.Status.Backup.LastGood = &controlplanev1.BackupRecord{Name: "s",
		Time: metav1.NewTime(time.Now().Add(-2 * time.Hour))}
	g.Expect(w.mgmt.Status().Update(t.Context(), plane)).To(Succeed())
	w.reconcile()
	g.Expect(w.machines()).To(HaveLen(1), "it is too old")
	plane = w.plane()
	plane.Status.Backup.LastGood.Time = metav1.Now()
	g.Expect(w.mgmt.Status().Update(t.Context(), plane)).To(Succeed())
	w.reconcile()
	g.Expect(w.machines()).To(HaveLen(2))
	g.Expect(w.machine(first).DeletionTimestamp).To(BeNil())
}

// The words of the decision are those of the API.
func TestOperationsAreThoseOfTheAPI(t *testing.T) {
	for ours, theirs := range map[controlplane.Operation]controlplanev1.OperationType{
		controlplane.Initialize: controlplanev1.OperationInitialize, controlplane.ScaleUp: controlplanev1.OperationScaleUp,
		controlplane.ScaleDown: controlplanev1.OperationScaleDown, controlplane.Rollout: controlplanev1.OperationRollout,
		controlplane.Remediate: controlplanev1.OperationRemediate, controlplane.Repair: controlplanev1.OperationRepair,
		controlplane.Depart: controlplanev1.OperationDepart, controlplane.SnapshotEtcd: controlplanev1.OperationBackup,
		controlplane.Delete: controlplanev1.OperationDelete,
	} {
		NewWithT(t).Expect(string(ours)).To(Equal(string(theirs)))
	}
	NewWithT(t).Expect(string(controlplane.RemoveFirst)).To(Equal(string(controlplanev1.RolloutStrategyRemoveFirst)))
	NewWithT(t).Expect(string(controlplane.Surge)).To(Equal(string(controlplanev1.RolloutStrategySurge)))
}
