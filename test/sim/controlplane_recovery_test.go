// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/backup/restore"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim/machine"
)

// One host of three loses its power for good, and the disk under etcd of another one dies: the quorum is lost. A person asks
// for a recovery from the third. The second is stopped, the third becomes a cluster of one with every key that was
// acknowledged, and the control plane becomes whole again by itself.
func TestALostQuorumIsRestoredFromOneSurvivor(t *testing.T) {
	needsTime(t)
	t.Parallel()
	g := NewWithT(t)
	c := newCourt(t, courtOptions{name: "survivor", replicas: 3, hosts: 5, domains: 3, admission: true})
	c.untilWhole("coming up")
	writer := c.write()
	g.Eventually(writer.count, whole, "50ms").Should(BeNumerically(">", 20))

	lost, stopped, survivor := c.machines()[0], c.machines()[1], c.machines()[2]
	c.hostOf(lost).PowerOff()
	c.cluster.Etcd(c.hostOf(stopped).Machine).LoseData()
	c.abandon(lost)
	g.Eventually(func() bool { return ptr.Deref(c.object().Status.Etcd.Agreed, true) }, whole, "50ms").Should(BeFalse())
	acknowledged := writer.halt()

	c.change(func(spec *controlplanev1.QuoinControlPlaneSpec) {
		spec.Recovery = &controlplanev1.EtcdRecovery{ID: "ticket-4711", Machine: survivor.Name, GiveUp: []string{lost.Name}}
	})
	c.untilReason(controlplanev1.ControlPlaneRecoveringCondition, "RecoveryRefused")
	g.Expect(conditions.GetMessage(c.object(), controlplanev1.ControlPlaneRecoveringCondition)).To(ContainSubstring(stopped.Name), "it was not named")

	c.change(func(spec *controlplanev1.QuoinControlPlaneSpec) {
		spec.Recovery.GiveUp = []string{stopped.Name, lost.Name}
	})
	c.untilReason(controlplanev1.ControlPlaneRecoveringCondition, "Recovered")
	c.untilWhole("the recovery")
	var left []string
	for _, machine := range c.machines() {
		left = append(left, machine.Name)
	}
	g.Expect(left).To(ContainElement(survivor.Name))
	g.Expect(left).NotTo(Or(ContainElement(stopped.Name), ContainElement(lost.Name)))
	g.Expect(c.without(acknowledged)).To(BeEmpty(), "of %d keys that were acknowledged", len(acknowledged))
}

// The disks under etcd of all three hosts die. A person restores a snapshot on one host, and asks for a recovery from there: the
// cluster (without admission, which would wait three minutes for an answer of etcd) has what the snapshot had and nothing later, and the control plane becomes whole again by itself.
func TestALostEtcdIsRestoredFromASnapshot(t *testing.T) {
	needsTime(t)
	t.Parallel()
	g := NewWithT(t)
	c := newCourt(t, courtOptions{name: "snapshot", replicas: 3, hosts: 4, domains: 3})
	c.untilWhole("coming up")
	writer := c.write()
	g.Eventually(writer.count, whole, "50ms").Should(BeNumerically(">", 20))
	saved := writer.halt()
	snapshot := c.snapshot()
	writer = c.write()
	g.Eventually(writer.count, whole, "50ms").Should(BeNumerically(">", 5))
	later := writer.halt()

	machines := c.machines()
	for _, machine := range machines {
		c.cluster.Etcd(c.hostOf(machine).Machine).LoseData()
	}
	c.restore(c.hostOf(machines[0]), snapshot)
	c.change(func(spec *controlplanev1.QuoinControlPlaneSpec) {
		spec.Recovery = &controlplanev1.EtcdRecovery{ID: "r1", Machine: machines[0].Name, GiveUp: []string{machines[1].Name, machines[2].Name}}
	})
	c.untilReason(controlplanev1.ControlPlaneRecoveringCondition, "Recovered")
	c.untilWhole("the recovery")
	g.Expect(c.without(saved)).To(BeEmpty(), "of %d keys in the snapshot", len(saved))
	g.Expect(c.without(later)).To(Equal(later), "what came after the snapshot is lost, and nobody claims otherwise")
}

// snapshot of etcd, as a file.
func (c *court) snapshot() string {
	c.t.Helper()
	etcd, err := c.cluster.EtcdClient()
	if err != nil {
		c.t.Fatal(err)
	}
	defer func() { _ = etcd.Close() }()
	stream, err := etcd.Snapshot(c.t.Context())
	if err != nil {
		c.t.Fatal(err)
	}
	defer func() { _ = stream.Close() }()
	content, err := io.ReadAll(stream)
	if err != nil {
		c.t.Fatal(err)
	}
	path := filepath.Join(c.t.TempDir(), "snapshot.db")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		c.t.Fatal(err)
	}
	return path
}

// restore does on a host what docs/disaster-recovery.md says: etcd stays stopped, and has the data of a snapshot.
func (c *court) restore(host *sim.Host, snapshot string) {
	c.t.Helper()
	run := func(script string) string {
		c.t.Helper()
		result, err := (&machine.Host{Machine: host.Machine}).Run(c.t.Context(), ssh.Command{Script: script})
		if err != nil {
			c.t.Fatal(err)
		}
		return strings.TrimSpace(result.Stdout)
	}
	const kept = "/var/lib/quoin/recovery"
	run("mkdir -p " + kept + " && chmod 0700 " + kept + " && mv /etc/kubernetes/manifests/etcd.yaml " + kept + "/")
	// Until the kubelet has let go of it.
	NewWithT(c.t).Eventually(func() string { return run("ctr -n k8s.io containers ls -q") }, whole, "100ms").ShouldNot(ContainSubstring("etcd"))
	run("mv /var/lib/etcd /var/lib/etcd.old")
	member := restore.Member{Name: run("sed -n 's/^ *- --name=//p' " + kept + "/etcd.yaml"),
		PeerURL: run("sed -n 's/^ *- --initial-advertise-peer-urls=//p' " + kept + "/etcd.yaml")}
	if err := c.cluster.Etcd(host.Machine).PutData(func(directory string) error {
		member.DataDirectory = directory
		return restore.Restore(snapshot, member)
	}); err != nil {
		c.t.Fatal(err)
	}
}

// count is how many writes were acknowledged so far.
func (w *writer) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.acked)
}

// halt stops writing and returns what was acknowledged.
func (w *writer) halt() []string {
	close(w.stop)
	<-w.done
	return w.acked
}

// without are those of the keys that the cluster does not have.
func (c *court) without(keys []string) []string {
	c.t.Helper()
	there := c.keys(written)
	return slices.DeleteFunc(slices.Clone(keys), func(key string) bool { return there[key] })
}

// hostOf is the simulated host of a Machine.
func (c *court) hostOf(machine clusterv1.Machine) *sim.Host {
	c.t.Helper()
	_, name, _, err := infrav1.ParseProviderID(machine.Spec.ProviderID)
	if err != nil {
		c.t.Fatal(err)
	}
	return c.fleet.Host(name)
}

// abandon says as a person that the host of a Machine does not run any more.
func (c *court) abandon(machine clusterv1.Machine) {
	c.t.Helper()
	key := client.ObjectKey{Namespace: c.options.name, Name: c.hostOf(machine).Name}
	c.until("silence of host "+key.Name, func() string {
		host := &infrav1.QuoinHost{}
		if err := c.plane.Client.Get(c.t.Context(), key, host); err != nil {
			return err.Error()
		}
		if host.Answers() {
			return "it answers, as far as is known"
		}
		c.giveUp(host)
		return ""
	})
}

// giveUp says of a host that it does not run any more, unless it was heard since.
func (c *court) giveUp(host *infrav1.QuoinHost) {
	c.t.Helper()
	for !host.Answers() && host.Spec.ConsumerRef != nil {
		before := client.MergeFromWithOptions(host.DeepCopy(), client.MergeFromWithOptimisticLock{})
		metav1.SetMetaDataAnnotation(&host.ObjectMeta, infrav1.AbandonAnnotation, host.ProviderID())
		err := c.plane.Client.Patch(c.t.Context(), host, before)
		if apierrors.IsConflict(err) { // it may have let go of the claim that the word names
			err = c.plane.Client.Get(c.t.Context(), client.ObjectKeyFromObject(host), host)
			if err == nil {
				continue
			}
		}
		if client.IgnoreNotFound(err) != nil {
			c.t.Error(err)
		}
		return
	}
}

// untilReason waits until a condition of the control plane has a reason.
func (c *court) untilReason(condition, reason string) {
	c.t.Helper()
	begin := time.Now()
	for conditions.GetReason(c.object(), condition) != reason {
		if time.Since(begin) > whole {
			c.t.Fatalf("%s is not %s\n%s", condition, reason, c.describe())
		}
		time.Sleep(50 * time.Millisecond)
	}
	c.t.Logf("%s was %s after %s: %s", condition, reason, time.Since(begin).Round(100*time.Millisecond), conditions.GetMessage(c.object(), condition))
}
