// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"math/rand/v2"
	"testing"

	"filippo.io/age"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
)

// The disk under the only etcd dies. With the name of an encrypted snapshot, and a key for it, the cluster has every key of
// the snapshot again; nobody touches the host.
func TestALostEtcdOfOneIsRestoredByTheNameOfASnapshot(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	c := newCourt(t, courtOptions{name: "named", replicas: 1, hosts: 1})
	c.untilWhole("coming up")
	saved, snapshot := c.backedUp()
	survivor := c.machines()[0]
	c.cluster.Etcd(c.hostOf(survivor).Machine).LoseData()
	c.change(func(spec *controlplanev1.QuoinControlPlaneSpec) {
		spec.Recovery = &controlplanev1.EtcdRecovery{ID: "r1", Machine: survivor.Name, Snapshot: snapshot}
	})
	c.untilReason(controlplanev1.ControlPlaneRecoveringCondition, "Recovered")
	c.untilWhole("the recovery")
	g.Expect(c.without(saved)).To(BeEmpty(), "of %d keys in the snapshot", len(saved))
	g.Eventually(func() *controlplanev1.EtcdRestoreStatus { return c.object().Status.Backup.Restore }, whole, "50ms").Should(BeNil())
	g.Expect(c.hostOf(survivor).Machine.FS().List("/var/lib/quoin/recovery")).To(BeEmpty(), "the Secrets of the cluster were in it")
}

// The Machine is replaced after the snapshot was taken, and then the disk under the only etcd dies. Its Node is not among the
// data, and its kubelet has registered it before: the control plane becomes whole all the same.
func TestASnapshotThatIsOlderThanTheNodeOfTheSurvivorIsRestored(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	c := newCourt(t, courtOptions{name: "older", replicas: 1, hosts: 2})
	c.untilWhole("coming up")
	saved, snapshot := c.backedUp()
	first := c.machines()[0]
	c.change(func(spec *controlplanev1.QuoinControlPlaneSpec) {
		spec.KubeadmConfigSpec.PreKubeadmCommands = []string{"echo anew"}
	})
	c.untilWhole("a rollout")
	g.Expect(c.object().Status.Backup.LastGood.Name).To(Equal(snapshot.Name), "the rollout went by it")
	survivor := c.machines()[0]
	g.Expect(survivor.UID).NotTo(Equal(first.UID))
	c.cluster.Etcd(c.hostOf(survivor).Machine).LoseData()
	c.change(func(spec *controlplanev1.QuoinControlPlaneSpec) {
		spec.Recovery = &controlplanev1.EtcdRecovery{ID: "r1", Machine: survivor.Name, Snapshot: snapshot}
	})
	c.untilReason(controlplanev1.ControlPlaneRecoveringCondition, "Recovered")
	c.untilWhole("the recovery")
	g.Expect(c.without(saved)).To(BeEmpty(), "of %d keys in the snapshot", len(saved))
}

// The disks under etcd of all three hosts die. A person names a snapshot, and the Machine that is to carry the cluster on,
// while the controllers die again and again: the cluster has what the snapshot had and nothing later, and becomes whole.
func TestALostEtcdIsRestoredByTheNameOfASnapshotWhileControllersDie(t *testing.T) {
	needsTime(t)
	t.Parallel()
	g := NewWithT(t)
	c := newCourt(t, courtOptions{name: "named-kills", replicas: 3, hosts: 4, domains: 3})
	c.untilWhole("coming up")
	saved, snapshot := c.backedUp()
	writer := c.write()
	g.Eventually(writer.count, whole, "50ms").Should(BeNumerically(">", 5))
	later := writer.halt()
	machines := c.machines()
	for _, machine := range machines {
		c.cluster.Etcd(c.hostOf(machine).Machine).LoseData()
	}
	kills := c.dying(func() {
		c.change(func(spec *controlplanev1.QuoinControlPlaneSpec) {
			spec.Recovery = &controlplanev1.EtcdRecovery{ID: "r1", Machine: machines[0].Name, GiveUp: []string{machines[1].Name, machines[2].Name}, Snapshot: snapshot}
		})
		c.untilReason(controlplanev1.ControlPlaneRecoveringCondition, "Recovered")
	})
	g.Expect(kills).To(BeNumerically(">", 2))
	c.untilWhole("the recovery")
	g.Expect(c.without(saved)).To(BeEmpty(), "of %d keys in the snapshot", len(saved))
	g.Expect(c.without(later)).To(Equal(later), "what came after the snapshot is lost, and nobody claims otherwise")
}

// One host of three loses its power for good, and the disk under etcd of another dies. The controllers die again and again
// while the third becomes a cluster of one, which has every key that was acknowledged.
func TestALostQuorumIsRestoredFromOneSurvivorWhileControllersDie(t *testing.T) {
	needsTime(t)
	t.Parallel()
	g := NewWithT(t)
	c := newCourt(t, courtOptions{name: "survivor-kills", replicas: 3, hosts: 5, domains: 3})
	c.untilWhole("coming up")
	writer := c.write()
	g.Eventually(writer.count, whole, "50ms").Should(BeNumerically(">", 20))
	lost, stopped, survivor := c.machines()[0], c.machines()[1], c.machines()[2]
	c.hostOf(lost).PowerOff()
	c.cluster.Etcd(c.hostOf(stopped).Machine).LoseData()
	c.abandon(lost)
	acknowledged := writer.halt()
	kills := c.dying(func() {
		c.change(func(spec *controlplanev1.QuoinControlPlaneSpec) {
			spec.Recovery = &controlplanev1.EtcdRecovery{ID: "r1", Machine: survivor.Name, GiveUp: []string{lost.Name, stopped.Name}}
		})
		c.untilReason(controlplanev1.ControlPlaneRecoveringCondition, "Recovered")
	})
	g.Expect(kills).To(BeNumerically(">", 2))
	c.untilWhole("the recovery")
	g.Expect(c.without(acknowledged)).To(BeEmpty(), "of %d keys that were acknowledged", len(acknowledged))
}

// backedUp writes for a while, and then has a snapshot taken, encrypted, into the volume of the manager. It returns the keys
// in it, and what a recovery says to begin with it.
func (c *court) backedUp() ([]string, *controlplanev1.RecoverySnapshot) {
	c.t.Helper()
	g := NewWithT(c.t)
	writer := c.write()
	g.Eventually(writer.count, whole, "50ms").Should(BeNumerically(">", 20))
	saved := writer.halt()
	identity, err := age.GenerateX25519Identity()
	g.Expect(err).NotTo(HaveOccurred())
	for name, data := range map[string]string{"recipients": identity.Recipient().String(), "identity": identity.String()} {
		c.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: c.options.name, Name: name}, StringData: map[string]string{name: data}})
	}
	c.change(func(spec *controlplanev1.QuoinControlPlaneSpec) {
		spec.Backup = &controlplanev1.EtcdBackup{Schedule: "0 0 1 1 *", EncryptionKeyRef: controlplanev1.SecretReference{Name: "recipients"},
			Store: controlplanev1.BackupStore{Volume: &controlplanev1.BackupVolume{Path: "site"}}}
	})
	g.Eventually(func() *controlplanev1.EtcdBackupStatus { return c.object().Status.Backup }, whole, "50ms").
		Should(And(Not(BeNil()), HaveField("LastGood", Not(BeNil()))))
	return saved, &controlplanev1.RecoverySnapshot{Name: c.object().Status.Backup.LastGood.Name, IdentityRef: controlplanev1.SecretReference{Name: "identity"}}
}

// dying has our managers die, a dozen of them, each after one to forty events, while something is done. It returns how many
// died.
func (c *court) dying(what func()) int {
	c.t.Helper()
	random := rand.New(rand.NewPCG(seed(c.t), 2))
	lives := 0
	killer := &assassin{court: c, lives: func() int {
		if lives++; lives > 12 {
			return 0
		}
		return 1 + random.IntN(40)
	}}
	c.listen(killer.hear)
	defer func() {
		c.listen(nil)
		killer.end()
	}()
	what()
	c.listen(nil)
	return len(killer.end())
}
