// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package etcdbackup

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
)

// remove takes a snapshot and its sidecar away, as who has the store's credentials can.
func (w *world) remove(name string) {
	w.t.Helper()
	for _, file := range []string{name, name + ".json"} {
		w.Expect(os.Remove(filepath.Join(w.volume, "clusters", key.Namespace, key.Name, file))).To(Succeed())
	}
}

// two is a world with two snapshots, an hour apart, whose newer one is the last good one.
func two(t *testing.T) (w *world, older, newer *controlplanev1.BackupRecord) {
	t.Helper()
	w = newWorld(t, toVolume("0 * * * *"))
	w.settle()
	older = w.status().LastGood
	w.now = w.now.Add(time.Hour)
	w.settle()
	newer = w.status().LastGood
	w.Expect(newer.Name).NotTo(Equal(older.Name))
	w.events()
	return w, older, newer
}

// Who takes the newest pairs away makes an old one, good under its own date, the newest of the store.
func TestTheLastGoodSnapshotIsMissedWhenTheStoreHasOnlyOlderOnes(t *testing.T) {
	w, older, newer := two(t)
	w.remove(newer.Name)
	w.restart()
	w.quorum = false
	w.settle()
	w.settle()
	w.Expect(w.status().LastGood).To(Equal(newer), "what was known is not overwritten with less")
	w.Expect(w.condition()).To(And(HaveField("Status", metav1.ConditionFalse),
		HaveField("Reason", controlplanev1.SnapshotMissingReason), HaveField("Message", And(ContainSubstring(newer.Name),
			ContainSubstring(newer.SHA256), ContainSubstring(older.Name), ContainSubstring("put it back"),
			ContainSubstring("they have no quorum")))))
	w.Expect(w.events()).To(ContainElement(HavePrefix("Warning SnapshotMissing ")))
	// Neither the next process nor time forgets it, whether the store answers by then or not.
	clusters, aside := filepath.Join(w.volume, "clusters"), filepath.Join(w.t.TempDir(), "clusters")
	w.Expect(os.Rename(clusters, aside)).To(Succeed())
	w.Expect(os.WriteFile(clusters, nil, 0o600)).To(Succeed())
	w.restart()
	w.now = w.now.Add(20 * time.Minute)
	for range 2 {
		w.settle()
		w.Expect(w.status().LastGood).To(Equal(newer))
		w.Expect(w.condition()).To(And(HaveField("Reason", controlplanev1.SnapshotMissingReason), HaveField("Message",
			And(ContainSubstring(newer.Name), ContainSubstring("the store failed")))))
		w.now = w.now.Add(20 * time.Minute)
	}
	w.Expect(os.Remove(clusters)).To(Succeed())
	w.Expect(os.Rename(aside, clusters)).To(Succeed())
	w.restart()
	w.settle()
	w.Expect(w.status().LastGood).To(Equal(newer))
	w.Expect(w.condition()).To(And(HaveField("Reason", controlplanev1.SnapshotMissingReason),
		HaveField("Message", ContainSubstring(older.Name))))

	// A new one is taken as soon as it can be, whatever the schedule says.
	w.quorum, w.now = true, w.now.Add(20*time.Minute)
	w.settle()
	w.Expect(w.status().LastGood.Time.After(newer.Time.Time)).To(BeTrue())
	w.Expect(w.condition().Status).To(Equal(metav1.ConditionTrue))
}

// A move of the objects drops status, and what is taken away meanwhile is missed all the same.
func TestTheLastGoodSnapshotIsMissedAfterAMove(t *testing.T) {
	w, older, newer := two(t)
	w.moved()
	w.remove(newer.Name)
	w.quorum = false
	w.settle()
	w.Expect(w.events()).To(ContainElement(HavePrefix("Warning SnapshotMissing ")))
	w.Expect(w.status().LastGood).To(Equal(newer))

	// Nor does a recovery begin with the older one unawares.
	w.moved()
	w.recover(older.Name, "", "Fetching")
	w.reconcile()
	w.settle()
	w.Expect(w.status().Restore.Message).To(ContainSubstring(newer.SHA256))

	// Another store has nothing to miss, and what nobody can read says nothing.
	for _, change := range []func(*controlplanev1.QuoinControlPlane){
		func(p *controlplanev1.QuoinControlPlane) { p.Spec.Backup.Store.Volume.Path = "elsewhere" },
		func(p *controlplanev1.QuoinControlPlane) {
			p.Annotations[controlplanev1.LastGoodSnapshotAnnotation] = "{"
		},
	} {
		w, _, newer := two(t)
		w.remove(newer.Name)
		w.moved()
		w.edit(change)
		w.settle()
		w.Expect(w.events()).NotTo(ContainElement(ContainSubstring("SnapshotMissing")))
	}
}

// moved is what a move of the objects to another management cluster leaves.
func (w *world) moved() {
	w.t.Helper()
	controlPlane := w.controlPlane()
	before := controlPlane.DeepCopy()
	controlPlane.Status.Backup, controlPlane.Status.Conditions = nil, nil
	w.Expect(w.api.Status().Patch(w.t.Context(), controlPlane, client.MergeFrom(before))).To(Succeed())
	w.restart()
}

// The name of the last good one with other data is not the last good one.
func TestTheLastGoodSnapshotIsMissedUnderADigestOfItsOwn(t *testing.T) {
	w, _, newer := two(t)
	sidecar := filepath.Join(w.volume, "clusters", key.Namespace, key.Name, newer.Name+".json")
	content, err := os.ReadFile(sidecar)
	w.Expect(err).NotTo(HaveOccurred())
	w.Expect(os.WriteFile(sidecar, []byte(strings.ReplaceAll(string(content), newer.SHA256, strings.Repeat("ab", 32))),
		0o600)).To(Succeed())
	w.restart()
	w.quorum = false
	w.settle()
	w.Expect(w.status().LastGood).To(Equal(newer))
	w.Expect(w.condition().Reason).To(Equal(controlplanev1.SnapshotMissingReason))
}

func TestNoSnapshotIsMissedThatWentByTheSpec(t *testing.T) {
	for name, change := range map[string]func(w *world, older, newer *controlplanev1.BackupRecord){
		"it is there": func(*world, *controlplanev1.BackupRecord, *controlplanev1.BackupRecord) {},
		"it was put back": func(w *world, _, newer *controlplanev1.BackupRecord) {
			directory := filepath.Join(w.volume, "clusters", key.Namespace, key.Name)
			aside := w.t.TempDir()
			for _, file := range []string{newer.Name, newer.Name + ".json"} {
				w.Expect(os.Rename(filepath.Join(directory, file), filepath.Join(aside, file))).To(Succeed())
			}
			w.restart()
			w.settle()
			w.Expect(w.condition().Reason).To(Equal(controlplanev1.SnapshotMissingReason))
			for _, file := range []string{newer.Name, newer.Name + ".json"} {
				w.Expect(os.Rename(filepath.Join(aside, file), filepath.Join(directory, file))).To(Succeed())
			}
			w.events()
		},
		"who took the newer one was killed before it reported": func(w *world, older, _ *controlplanev1.BackupRecord) {
			w.edit(func(controlPlane *controlplanev1.QuoinControlPlane) { controlPlane.Annotations = nil })
			controlPlane := w.controlPlane()
			before := controlPlane.DeepCopy()
			controlPlane.Status.Backup.LastGood = older
			w.Expect(w.api.Status().Patch(w.t.Context(), controlPlane, client.MergeFrom(before))).To(Succeed())
		},
		"the store is another one": func(w *world, _, _ *controlplanev1.BackupRecord) {
			w.edit(func(controlPlane *controlplanev1.QuoinControlPlane) {
				controlPlane.Spec.Backup.Store.Volume.Path = "elsewhere"
			})
		},
		"sidecars are signed from now on": func(w *world, _, _ *controlplanev1.BackupRecord) {
			w.Expect(w.api.Create(w.t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: "keys"},
				Data: map[string][]byte{"recipients": []byte("age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p"),
					"signing": []byte(strings.Repeat("k", 64))}})).To(Succeed())
			w.edit(func(controlPlane *controlplanev1.QuoinControlPlane) {
				controlPlane.Spec.Backup.EncryptionKeyRef.Name = "keys"
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, older, newer := two(t)
			w.quorum = false
			change(w, older, newer)
			w.restart()
			w.settle()
			w.Expect(w.events()).NotTo(ContainElement(ContainSubstring("SnapshotMissing")))
			w.Expect(w.condition()).NotTo(HaveField("Reason", controlplanev1.SnapshotMissingReason))
		})
	}
}

// forge puts a pair into the store that says of itself to be of a later time, as who has the store's credentials can.
func (w *world) forge(of string, at time.Time) (name string) {
	w.t.Helper()
	directory := filepath.Join(w.volume, "clusters", key.Namespace, key.Name)
	data, err := os.ReadFile(filepath.Join(directory, of))
	w.Expect(err).NotTo(HaveOccurred())
	sidecar, err := os.ReadFile(filepath.Join(directory, of+".json"))
	w.Expect(err).NotTo(HaveOccurred())
	metadata := map[string]any{}
	w.Expect(json.Unmarshal(sidecar, &metadata)).To(Succeed())
	name = at.UTC().Format("20060102T150405Z") + "-0123456789ab.db"
	metadata["name"], metadata["time"] = name, at.UTC().Format(time.RFC3339)
	for _, digest := range []string{"sha256", "snapshotSHA256"} {
		metadata[digest] = strings.Repeat("ab", 32)
	}
	sidecar, err = json.Marshal(metadata)
	w.Expect(err).NotTo(HaveOccurred())
	w.Expect(os.WriteFile(filepath.Join(directory, name), data, 0o600)).To(Succeed())
	w.Expect(os.WriteFile(filepath.Join(directory, name+".json"), sidecar, 0o600)).To(Succeed())
	return name
}

// Without signing keys only what was taken here is the last good one: its digest is what a recovery relies on.
func TestWhatSomebodyElsePutsIntoTheStoreIsNotTheLastGoodSnapshot(t *testing.T) {
	w, _, newer := two(t)
	w.request()
	forged := w.forge(newer.Name, w.now.Add(time.Second))
	w.now = w.now.Add(3 * time.Second)
	w.quorum = false
	w.restart()
	w.settle()
	w.Expect(w.status().LastGood).To(Equal(newer))
	w.Expect(w.status().Count).To(HaveValue(BeEquivalentTo(3)))
	w.Expect(w.condition().Reason).To(Equal(controlplanev1.EtcdUnavailableReason), "nor does it answer a rollout")
	w.Expect(w.events()).NotTo(ContainElement(ContainSubstring("SnapshotMissing")))

	// It is no newer one in the place of the last good one, either.
	w.remove(newer.Name)
	w.restart()
	w.settle()
	w.Expect(w.events()).To(ContainElement(HavePrefix("Warning SnapshotMissing ")))
	w.Expect(w.status().LastGood).To(Equal(newer))
	w.recover(forged, "", "Fetching")
	w.reconcile()
	w.settle()
	w.Expect(w.status().Restore.Message).To(And(ContainSubstring(newer.SHA256),
		ContainSubstring("anybody who can write to the store")))
	w.edit(func(controlPlane *controlplanev1.QuoinControlPlane) { controlPlane.Spec.Recovery = nil })

	w.quorum, w.now = true, w.now.Add(time.Hour)
	for range 3 {
		w.settle()
	}
	w.Expect(w.condition().Status).To(Equal(metav1.ConditionTrue))
	w.Expect(w.status().LastGood.Name).NotTo(Or(Equal(forged), Equal(newer.Name)))

	// Where nothing is known of before, nothing is believed.
	w.edit(func(controlPlane *controlplanev1.QuoinControlPlane) {
		controlPlane.Spec.Backup.Schedule, controlPlane.Annotations = "", nil
	})
	w.moved()
	w.settle()
	w.Expect(w.status().LastGood).To(BeNil())
	w.Expect(w.condition().Reason).To(Equal(controlplanev1.NoSnapshotYetReason))
}

// A signing key that is dropped does not make an older snapshot, which another one has signed, the last good one.
func TestTheLastGoodSnapshotStaysWhenItsKeyIsDropped(t *testing.T) {
	spec := toVolume("")
	spec.EncryptionKeyRef.Name = "keys"
	w := newWorld(t, spec)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: "keys"},
		Data: map[string][]byte{"recipients": []byte("age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p")}}
	w.Expect(w.api.Create(t.Context(), secret)).To(Succeed())
	sign := func(keys ...string) {
		secret := &corev1.Secret{}
		w.Expect(w.api.Get(t.Context(), client.ObjectKey{Namespace: key.Namespace, Name: "keys"}, secret)).To(Succeed())
		secret.Data["signing"] = []byte(strings.Join(keys, "\n"))
		w.Expect(w.api.Update(t.Context(), secret)).To(Succeed())
	}
	stays, dropped := strings.Repeat("s", 64), strings.Repeat("d", 64)
	for _, keys := range [][]string{{stays}, {dropped, stays}} {
		sign(keys...)
		w.now = w.now.Add(time.Hour)
		w.request()
		w.now = w.now.Add(2 * time.Second)
		w.settle()
	}
	last := w.status().LastGood
	w.Expect(w.asked).To(HaveLen(2))
	sign(stays)
	w.quorum = false
	w.restart()
	w.settle()
	w.Expect(w.status().LastGood).To(Equal(last))
	w.Expect(w.events()).NotTo(ContainElement(ContainSubstring("SnapshotMissing")))

	// One that a key of today signs is taken at once, without a schedule too.
	w.quorum, w.now = true, w.now.Add(time.Hour)
	w.settle()
	w.Expect(w.status().LastGood.Time.After(last.Time.Time)).To(BeTrue())
	w.now = w.now.Add(time.Hour)
	w.settle()
	w.Expect(w.asked).To(HaveLen(3))
}

// Nobody who takes away the newest ones gets a recovery to begin with an old one unawares.
func TestARecoveryWithAnOlderSnapshotThanTheLastGoodOneNamesItsDigest(t *testing.T) {
	w, shell, older := lost(t, "", "")
	digest := w.status().LastGood.SHA256
	w.quorum, w.now = true, w.now.Add(time.Hour)
	w.settle()
	newer := w.status().LastGood
	w.quorum = false
	w.remove(newer.Name)
	w.recover(older, "", "Fetching")
	w.reconcile()
	w.settle()
	w.Expect(w.status().Restore.Message).To(And(ContainSubstring(newer.Name), ContainSubstring(newer.SHA256),
		ContainSubstring("spec.recovery.snapshot.sha256")))
	w.Expect(shell.uploaded).To(BeEmpty())
	w.sha256 = digest
	w.recover(older, "", "Fetching")
	w.settle()
	w.Expect(w.status().Restore.SHA256).To(HaveLen(64), "%v", w.status().Restore)
}

// What lies on the host is what the spec says now, or is fetched anew.
func TestADigestThatIsEditedAfterTheDeliveryIsHeldAgainstWhatWasDelivered(t *testing.T) {
	w, shell, name := lost(t, "", "")
	digest := w.status().LastGood.SHA256
	w.recover(name, "", "Fetching")
	w.reconcile()
	w.settle()
	w.Expect(w.status().Restore.SHA256).To(HaveLen(64))
	w.sha256 = digest
	w.recover(name, "", "Fetching")
	w.settle()
	w.Expect(shell.removed).To(BeEmpty(), "it is what was delivered")

	w.sha256 = strings.Repeat("ab", 32)
	w.recover(name, "", "Fetching")
	w.Expect(w.status().Restore.For(w.controlPlane().Spec.Recovery)).To(BeFalse(), "nobody goes on with it")
	for range 4 {
		w.settle()
	}
	w.Expect(w.status().Restore).To(And(HaveField("SHA256", ""),
		HaveField("Message", ContainSubstring("and spec.recovery.snapshot.sha256 is "+w.sha256))))
	w.sha256 = digest
	w.recover(name, "", "Fetching")
	w.settle()
	w.Expect(w.status().Restore.SHA256).To(HaveLen(64), "%v", w.status().Restore)
}

// A manager runs for months: what is taken away meanwhile is seen while it runs, whether there is a schedule or not.
func TestTheStoreIsLookedIntoWhileTheManagerRuns(t *testing.T) {
	for name, schedule := range map[string]string{"between two that are due": "0 0 * * *", "without a schedule": ""} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, toVolume(schedule))
			w.request()
			w.now = w.now.Add(2 * time.Second)
			result := w.settle()
			w.Expect(result.RequeueAfter).To(And(BeNumerically(">", 0), BeNumerically("<=", lookInterval)))
			last := w.status().LastGood
			w.Expect(last).NotTo(BeNil())
			w.events()
			for range 3 {
				w.now = w.now.Add(lookInterval)
				w.told = nil
				w.Expect(w.settle().RequeueAfter).To(And(BeNumerically(">", 0), BeNumerically("<=", lookInterval)))
				w.Expect(w.told).To(BeEmpty(), "nothing has changed")
			}

			w.remove(last.Name)
			w.now = w.now.Add(lookInterval - time.Minute)
			w.settle()
			w.Expect(w.events()).To(BeEmpty(), "it is not looked into at every reconcile")
			w.quorum, w.now = false, w.now.Add(time.Minute)
			w.settle()
			w.Expect(w.events()).To(ContainElement(HavePrefix("Warning SnapshotMissing ")))
			w.Expect(w.condition().Reason).To(Equal(controlplanev1.SnapshotMissingReason))
			w.Expect(w.status().LastGood).To(Equal(last))
			w.quorum, w.now = true, w.now.Add(20*time.Minute)
			w.settle()
			w.Expect(w.condition().Status).To(Equal(metav1.ConditionTrue))
			w.Expect(w.status().LastGood.Name).NotTo(Equal(last.Name))
			if schedule != "" {
				w.now = w.now.Truncate(24 * time.Hour).Add(24*time.Hour - 5*time.Minute)
				w.Expect(w.settle().RequeueAfter).To(Equal(5 * time.Minute))
			}
		})
	}
}

// A store that does not answer a look is told of until it does, and is not asked more often than for a snapshot.
func TestAStoreThatDoesNotAnswerALookIsToldOf(t *testing.T) {
	w := newWorld(t, toVolume("0 0 * * *"))
	w.settle()
	clusters, aside := filepath.Join(w.volume, "clusters"), filepath.Join(w.t.TempDir(), "clusters")
	w.Expect(os.Rename(clusters, aside)).To(Succeed())
	w.Expect(os.WriteFile(clusters, nil, 0o600)).To(Succeed())
	w.now = w.now.Add(lookInterval)
	last := time.Duration(0)
	for range 4 {
		wait := w.settle().RequeueAfter
		w.Expect(wait).To(BeNumerically(">", last))
		w.Expect(w.condition().Reason).To(Equal(controlplanev1.BackupStoreUnavailableReason))
		last, w.now = wait, w.now.Add(wait)
	}
	w.Expect(os.Remove(clusters)).To(Succeed())
	w.Expect(os.Rename(aside, clusters)).To(Succeed())
	w.Expect(w.settle().RequeueAfter).To(BeNumerically("~", lookInterval, time.Second))
	w.Expect(w.condition().Status).To(Equal(metav1.ConditionTrue))
}

// A look that fails puts off no snapshot that is due before the next look.
func TestALookThatFailsPutsOffNoSnapshot(t *testing.T) {
	w := newWorld(t, toVolume("0 0 * * *"))
	w.settle()
	due := w.now.Truncate(24 * time.Hour).Add(24 * time.Hour)
	w.now = due.Add(-20 * time.Minute)
	clusters, aside := filepath.Join(w.volume, "clusters"), filepath.Join(w.t.TempDir(), "clusters")
	w.Expect(os.Rename(clusters, aside)).To(Succeed())
	w.Expect(os.WriteFile(clusters, nil, 0o600)).To(Succeed())
	for w.now.Before(due) {
		w.now = w.now.Add(w.settle().RequeueAfter)
		w.Expect(w.condition().Reason).To(Equal(controlplanev1.BackupStoreUnavailableReason))
	}
	w.Expect(w.now).To(Equal(due))
	w.Expect(w.settle().RequeueAfter).To(Equal(lastRetry), "what fails when it is due waits as long as ever")
	w.Expect(os.Remove(clusters)).To(Succeed())
	w.Expect(os.Rename(aside, clusters)).To(Succeed())
	w.now = w.now.Add(lastRetry)
	w.settle()
	w.Expect(w.condition().Status).To(Equal(metav1.ConditionTrue))
	w.Expect(w.status().LastGood.Time.Time).To(BeTemporally("==", due.Add(lastRetry)))
}
