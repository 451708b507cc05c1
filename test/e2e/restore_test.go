//go:build e2e

// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
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

// restore loses the data of etcd on all hosts of the control plane, and brings them back from an encrypted snapshot.
func restore() {
	It("restores etcd from a snapshot when the data of all members are lost", func(ctx SpecContext) {
		By("taking a snapshot, with what was written before and without what comes later")
		mountBackups(ctx)
		saved := written(ctx)
		snapshot := backUp(ctx)
		later := written(ctx)

		By("losing the data under every member")
		var machines []string
		for name, node := range controlPlaneMachines(ctx, the.trio) {
			machines = append(machines, name)
			// A disk that died: etcd cannot even begin anew there.
			need(the.lab.OnHost(ctx, need(the.lab.Host(node)), `set -eu
rm -rf /var/lib/etcd/member
echo lost >/var/lib/etcd/member
pkill -KILL -x etcd`))
		}
		slices.Sort(machines)

		By("asking for the recovery, which is refused until nobody can know of a quorum any more")
		began := time.Now()
		Eventually(func(ctx context.Context) error {
			return the.trio.EditControlPlane(ctx, func(spec *controlplanev1.QuoinControlPlaneSpec) {
				spec.Recovery = &controlplanev1.EtcdRecovery{ID: "e2e", Machine: machines[0], GiveUp: machines[1:], Snapshot: snapshot}
			})
		}).WithContext(ctx).WithTimeout(6 * time.Minute).WithPolling(5 * time.Second).Should(Succeed())
		the.lab.Printf("   accepted after %s", time.Since(began).Round(time.Second))
		Eventually(func(ctx context.Context) string {
			return conditions.GetReason(need(the.trio.ControlPlane(ctx)), controlplanev1.ControlPlaneRecoveringCondition)
		}).WithContext(ctx).WithTimeout(10 * time.Minute).WithPolling(time.Second).Should(Equal("Recovered"))
		the.lab.Printf("   recovered after %s", time.Since(began).Round(time.Second))
		must(the.trio.AwaitReady(ctx, 25*time.Minute, lab.NewVersion, lab.OldVersion))
		the.lab.Printf("   whole after %s", time.Since(began).Round(time.Second))

		Expect(need(saved.Lost(ctx))).To(BeEmpty(), "keys that were in the snapshot")
		Expect(need(later.Lost(ctx))).To(Equal(later.Acknowledged()), "what came after the snapshot is lost, and nobody claims otherwise")
		Expect(controlPlaneMachines(ctx, the.trio)).To(HaveKey(machines[0]))
		for _, name := range machines[1:] {
			Expect(controlPlaneMachines(ctx, the.trio)).NotTo(HaveKey(name))
		}
		expectTrio(ctx, the.trio)
	}, NodeTimeout(50*time.Minute))
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
