//go:build e2e

// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"filippo.io/age"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/e2e/lab"
)

// recoveries loses the quorum of a control plane after a power cut: with the data of all members, which come back from an encrypted
// snapshot, and with those of all but one.
func recoveries() {
	It("restores etcd from a snapshot when the data of all members are lost", func(ctx SpecContext) {
		By("taking a snapshot, with what was written before and without what comes later")
		mountBackups(ctx)
		saved := written(ctx)
		snapshot := backUp(ctx)
		later := written(ctx)

		By("losing the data under every member")
		machines := slices.Sorted(maps.Keys(controlPlaneMachines(ctx, the.trio)))
		loseData(ctx, machines...)
		cutPower(ctx)
		recoverTrio(ctx, controlplanev1.EtcdRecovery{ID: "e2e", Machine: machines[0], GiveUp: machines[1:], Snapshot: snapshot})
		Expect(need(saved.Lost(ctx))).To(BeEmpty(), "keys that were in the snapshot")
		Expect(need(later.Lost(ctx))).To(Equal(later.Acknowledged()), "what came after the snapshot is lost, and nobody claims otherwise")
	}, NodeTimeout(50*time.Minute))

	It("goes on with the data of one survivor", func(ctx SpecContext) {
		acknowledged := written(ctx)
		machines := slices.Sorted(maps.Keys(controlPlaneMachines(ctx, the.trio)))
		loseData(ctx, machines[1:]...)
		cutPower(ctx)
		recoverTrio(ctx, controlplanev1.EtcdRecovery{ID: "e2e-survivor", Machine: machines[0], GiveUp: machines[1:]})
		Expect(need(acknowledged.Lost(ctx))).To(BeEmpty())
	}, NodeTimeout(50*time.Minute))
}

// loseData has the disks of etcd of some Machines die: it cannot even begin anew there.
func loseData(ctx context.Context, machines ...string) {
	GinkgoHelper()
	nodes := controlPlaneMachines(ctx, the.trio)
	for _, machine := range machines {
		need(the.lab.OnHost(ctx, need(the.lab.Host(nodes[machine])), `set -eu
rm -rf /var/lib/etcd/member
echo lost >/var/lib/etcd/member
pkill -KILL -x etcd`))
	}
}

// cutPower leaves the hosts of the control plane as they come back from that: with a kubelet that has not reached an API server since it
// started, for none is there that has what to list.
func cutPower(ctx context.Context) {
	GinkgoHelper()
	for _, node := range controlPlaneMachines(ctx, the.trio) {
		need(the.lab.OnHost(ctx, need(the.lab.Host(node)), "systemctl stop kubelet; pkill -KILL -x kube-apiserver || :"))
	}
	for _, node := range controlPlaneMachines(ctx, the.trio) {
		need(the.lab.OnHost(ctx, need(the.lab.Host(node)), "systemctl start kubelet"))
	}
}

// recoverTrio asks for a recovery until it is admitted, and awaits three members: the survivor's, and those of new Machines.
func recoverTrio(ctx context.Context, recovery controlplanev1.EtcdRecovery) {
	GinkgoHelper()
	By("asking for the recovery, which is refused until nobody can know of a quorum any more")
	began, version := time.Now(), need(the.trio.ControlPlane(ctx)).Spec.Version
	Eventually(func(ctx context.Context) error {
		return the.trio.EditControlPlane(ctx, func(spec *controlplanev1.QuoinControlPlaneSpec) { spec.Recovery = &recovery })
	}).WithContext(ctx).WithTimeout(6 * time.Minute).WithPolling(5 * time.Second).Should(Succeed())
	the.lab.Printf("   accepted after %s", time.Since(began).Round(time.Second))
	Eventually(func(ctx context.Context) string {
		plane := need(the.trio.ControlPlane(ctx))
		if !strings.Contains(plane.Annotations[controlplanev1.RecoveryAnnotation], `"`+recovery.ID+`"`) {
			return "not begun"
		}
		return conditions.GetReason(plane, controlplanev1.ControlPlaneRecoveringCondition)
	}).WithContext(ctx).WithTimeout(10 * time.Minute).WithPolling(time.Second).Should(Equal("Recovered"))
	the.lab.Printf("   recovered after %s", time.Since(began).Round(time.Second))
	must(the.trio.AwaitReady(ctx, 25*time.Minute, version, lab.OldVersion))
	the.lab.Printf("   whole after %s", time.Since(began).Round(time.Second))
	Expect(controlPlaneMachines(ctx, the.trio)).To(HaveKey(recovery.Machine))
	for _, name := range recovery.GiveUp {
		Expect(controlPlaneMachines(ctx, the.trio)).NotTo(HaveKey(name))
	}
	expectTrio(ctx, the.trio)
}

// written writes for a few seconds.
func written(ctx context.Context) *lab.Writer {
	GinkgoHelper()
	writer := need(the.trio.Write(ctx))
	time.Sleep(5 * time.Second)
	writer.Stop()
	Expect(len(writer.Acknowledged())).To(BeNumerically(">", 5))
	return writer
}

// mountBackups gives the control-plane manager a volume for snapshots, and no second replica, as docs/backups.md says.
func mountBackups(ctx context.Context) {
	GinkgoHelper()
	manager := []string{"--namespace", "quoin-control-plane-system", "deployment", "quoin-control-plane-controller-manager"}
	arguments := need(the.lab.Kubectl(ctx, the.lab.Kubeconfig(), append([]string{"get", "--output", "jsonpath={..args}"}, manager...)...))
	if !strings.Contains(arguments, "--backup-directory") {
		_ = need(the.lab.Kubectl(ctx, the.lab.Kubeconfig(), append([]string{"patch", "--type=json", "--patch", `[
  {"op": "replace", "path": "/spec/replicas", "value": 1},
  {"op": "replace", "path": "/spec/strategy", "value": {"type": "Recreate"}},
  {"op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": "--backup-directory=/var/lib/quoin/backup"},
  {"op": "add", "path": "/spec/template/spec/containers/0/volumeMounts/-", "value": {"name": "backup", "mountPath": "/var/lib/quoin/backup"}},
  {"op": "add", "path": "/spec/template/spec/volumes/-", "value": {"name": "backup", "emptyDir": {}}}]`}, manager...)...))
	}
	_ = need(the.lab.Kubectl(ctx, the.lab.Kubeconfig(), append([]string{"rollout", "status", "--timeout=3m"}, manager...)...))
}

// backUp has an encrypted snapshot taken, and returns what a recovery says to begin with it.
func backUp(ctx context.Context) *controlplanev1.RecoverySnapshot {
	GinkgoHelper()
	identity := need(age.GenerateX25519Identity())
	for name, data := range map[string]string{"recipients": identity.Recipient().String(), "identity": identity.String()} {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: lab.Namespace, Name: name}, StringData: map[string]string{name: data}}
		Expect(the.lab.Management.Create(ctx, secret)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) {
			Expect(client.IgnoreNotFound(the.lab.Management.Delete(ctx, secret))).To(Succeed())
		})
	}
	// The API server learns of the only manager's webhooks a moment after that is ready.
	Eventually(func(ctx context.Context) error {
		return the.trio.EditControlPlane(ctx, func(spec *controlplanev1.QuoinControlPlaneSpec) {
			spec.Backup = &controlplanev1.EtcdBackup{Schedule: "0 0 1 1 *",
				EncryptionKeyRef: controlplanev1.SecretReference{Name: "recipients"},
				Store:            controlplanev1.BackupStore{Volume: &controlplanev1.BackupVolume{Path: "e2e"}}}
		})
	}).WithContext(ctx).Should(Succeed())
	var name string
	Eventually(func(ctx context.Context) string {
		if backup := need(the.trio.ControlPlane(ctx)).Status.Backup; backup != nil && backup.LastGood != nil {
			name = backup.LastGood.Name
		}
		return name
	}).WithContext(ctx).WithTimeout(3 * time.Minute).WithPolling(time.Second).ShouldNot(BeEmpty())
	return &controlplanev1.RecoverySnapshot{Name: name, IdentityRef: controlplanev1.SecretReference{Name: "identity"}}
}
