// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package etcdbackup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"filippo.io/age"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/async"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/backup"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/etcd"
)

// files in the directory of the control plane.
func (w *world) files() []string {
	entries, err := os.ReadDir(filepath.Join(w.volume, "clusters", key.Namespace, key.Name))
	if !os.IsNotExist(err) {
		w.Expect(err).NotTo(HaveOccurred())
	}
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

func TestNothingIsConfigured(t *testing.T) {
	w := newWorld(t, nil)
	w.Expect(w.settle().RequeueAfter).To(BeZero())
	w.Expect(w.status()).To(BeNil())
	w.Expect(w.condition()).To(BeNil())
	w.Expect(w.asked).To(BeEmpty())
	w.Expect(w.told).To(BeEmpty())
	w.Expect(os.ReadDir(w.volume)).To(BeEmpty())
}

func TestBySchedule(t *testing.T) {
	w := newWorld(t, toVolume("0 */6 * * *"))
	// The first one at once: a cluster without any is worse off than one with an old one.
	result := w.settle()
	first := w.status()
	w.Expect(first.LastGood.Time.UTC()).To(Equal(w.now.Truncate(time.Second)))
	w.Expect(first.LastGood.Revision).To(HaveValue(BeEquivalentTo(51)))
	w.Expect(first.LastGood.Encrypted).To(HaveValue(BeFalse()))
	w.Expect(first.LastAttemptTime.UTC()).To(Equal(first.LastGood.Time.UTC()))
	w.Expect(first.Count).To(HaveValue(BeEquivalentTo(1)))
	w.Expect(first.NextTime.UTC()).To(Equal(time.Date(2026, 11, 21, 18, 0, 0, 0, time.UTC)))
	w.Expect(w.condition().Status).To(Equal(metav1.ConditionTrue))
	w.Expect(w.condition().Reason).To(Equal(controlplanev1.SnapshotVerifiedReason))
	w.Expect(w.files()).To(ConsistOf(first.LastGood.Name, first.LastGood.Name+".json"))
	w.Expect(result.RequeueAfter).To(Equal(lookInterval))
	// Not from the leader.
	w.Expect(w.asked).To(Equal([]string{"node-m2"}))
	w.Expect(w.events()).To(ConsistOf(HavePrefix("Normal BackupSucceeded Snapshot " + first.LastGood.Name +
		" of revision 51 (")))
	w.Expect(testutil.ToFloat64(lastGood.WithLabelValues("prod", "cp"))).To(BeEquivalentTo(w.now.Unix()))
	w.Expect(testutil.ToFloat64(size.WithLabelValues("prod", "cp"))).To(BeEquivalentTo(len(w.snapshot)))

	// Nothing until it is time, whatever happens to the object.
	told := len(w.told)
	w.now = w.now.Add(5*time.Hour + 59*time.Minute + 59*time.Second)
	w.Expect(w.settle().RequeueAfter).To(Equal(time.Second))
	w.Expect(w.told).To(HaveLen(told))
	for range 3 {
		w.now = w.now.Add(6 * time.Hour)
		w.settle()
	}
	// Of the four the spec keeps two, and the last one of the day before, unless somebody wants none.
	w.Expect(w.asked).To(HaveLen(4))
	w.Expect(w.status().Count).To(HaveValue(BeEquivalentTo(3)))
	w.Expect(w.files()).To(HaveLen(6))
	w.Expect(w.files()).NotTo(ContainElement(first.LastGood.Name))
	w.edit(func(controlPlane *controlplanev1.QuoinControlPlane) {
		controlPlane.Spec.Backup.KeepDaily = ptr.To[int32](0)
	})
	w.now = w.now.Add(6 * time.Hour)
	w.settle()
	w.Expect(w.status().Count).To(HaveValue(BeEquivalentTo(2)))
	// By hours one more stays.
	w.edit(func(controlPlane *controlplanev1.QuoinControlPlane) {
		controlPlane.Spec.Backup.KeepHourly, controlPlane.Spec.Backup.KeepWeekly = ptr.To[int32](4), ptr.To[int32](1)
	})
	w.now = w.now.Add(6 * time.Hour)
	w.settle()
	w.Expect(w.status().Count).To(HaveValue(BeEquivalentTo(3)))
}

func TestAskedByARollout(t *testing.T) {
	w := newWorld(t, toVolume(""))
	w.Expect(w.settle().RequeueAfter).To(Equal(lookInterval))
	w.Expect(w.condition().Status).To(Equal(metav1.ConditionUnknown))
	w.Expect(w.condition().Message).To(ContainSubstring("before the next rollout"))
	w.Expect(w.asked).To(BeEmpty())

	w.request()
	requested := w.status().RequestedTime
	// In the second of the request it might have begun before it.
	wait := w.settle().RequeueAfter
	w.Expect(wait).To(BeNumerically("<=", time.Second))
	w.Expect(w.asked).To(BeEmpty())
	w.now = w.now.Add(wait)
	w.settle()
	w.Expect(w.status().LastGood.Time.After(requested.Time)).To(BeTrue())
	w.Expect(w.status().RequestedTime).To(Equal(requested))
	w.Expect(w.asked).To(HaveLen(1))
	// It was taken: nobody waits for another.
	w.now = w.now.Add(time.Hour)
	w.settle()
	w.Expect(w.asked).To(HaveLen(1))
	w.request()
	w.now = w.now.Add(time.Second)
	w.settle()
	w.Expect(w.asked).To(HaveLen(2))
}

// A snapshot that waits for one of the slots that all clusters share begins when it has one. What is written meanwhile
// is in it, and it answers who asks meanwhile.
func TestASnapshotThatWaitsForASlotBeginsWhenItHasOne(t *testing.T) {
	for name, fails := range map[string]bool{"it succeeds": false, "it fails": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, toVolume("0 */6 * * *"))
			w.reconcile()
			<-w.r.calls.Events() // looked
			slots := make(chan struct{})
			for i := range maxConcurrent {
				other := client.ObjectKey{Namespace: fmt.Sprint("other-", i), Name: key.Name}
				_, _, _ = async.Do(w.r.calls, other, opTake, 0, func(ctx context.Context) (found, error) {
					select {
					case <-slots:
					case <-ctx.Done():
					}
					return found{}, nil
				})
			}
			w.reconcile()
			_, waits := w.r.calls.Waits(key)
			w.Expect(waits).To(BeTrue())
			w.now = w.now.Add(2 * time.Hour)
			w.request()
			w.now = w.now.Add(time.Minute)
			began := w.now.Truncate(time.Second)
			if fails {
				w.snapshot = w.snapshot[:len(w.snapshot)-1]
			}
			close(slots)
			result := w.settle()
			w.Expect(w.status().LastAttemptTime.UTC()).To(Equal(began))
			if fails {
				w.Expect(result.RequeueAfter).To(Equal(firstRetry))
				return
			}
			w.Expect(w.status().LastGood.Time.UTC()).To(Equal(began))
			w.Expect(w.status().LastGood.Name).To(HavePrefix(began.Format("20060102T150405Z-")))
			w.settle()
			w.Expect(w.asked).To(HaveLen(1))
		})
	}
}

func TestWorkersDoNotWait(t *testing.T) {
	w := newWorld(t, toVolume("0 * * * *"))
	w.hold = make(chan struct{})
	w.reconcile()
	<-w.r.calls.Events() // looked
	began := time.Now()
	w.reconcile()
	w.Expect(w.reconcile().RequeueAfter).To(BeZero())
	w.Expect(time.Since(began)).To(BeNumerically("<", 10*time.Second))
	w.Expect(w.status().LastAttemptTime.IsZero()).To(BeFalse())
	w.Expect(w.status().LastGood).To(BeNil())
	w.Expect(w.condition().Message).To(Equal("The first snapshot is being taken"))
	close(w.hold)
	w.settle()
	w.Expect(w.status().LastGood).NotTo(BeNil())
}

// Status is written field by field: the one who asks, and the one who runs the control plane, write to it as well.
func TestWritesOnlyWhatIsItsOwn(t *testing.T) {
	w := newWorld(t, toVolume("0 * * * *"))
	w.request()
	before := w.controlPlane()
	w.told = nil
	w.now = w.now.Add(time.Second)
	w.settle()
	for _, patch := range w.told {
		w.Expect(patch).NotTo(ContainSubstring("requestedTime"))
		w.Expect(patch).NotTo(ContainSubstring("replicas"))
	}
	after := w.controlPlane()
	w.Expect(conditions.Get(after, "Available")).To(Equal(conditions.Get(before, "Available")))
	after.Status.Backup, after.Status.Conditions, after.ResourceVersion = before.Status.Backup, before.Status.Conditions,
		before.ResourceVersion
	w.Expect(after.Annotations).To(HaveLen(1))
	w.Expect(after.Annotations).To(HaveKey(controlplanev1.LastGoodSnapshotAnnotation))
	after.Annotations = before.Annotations
	w.Expect(after).To(Equal(before))
}

func TestWhichMemberIsAsked(t *testing.T) {
	member := func(id uint64, change func(*etcd.Member)) etcd.Member {
		m := etcd.Member{ID: id, Name: string(rune('a' - 1 + id)), Answers: true}
		change(&m)
		return m
	}
	plain := func(*etcd.Member) {}
	leader := func(m *etcd.Member) { m.Leader = true }
	for name, test := range map[string]struct {
		members []etcd.Member
		want    string
	}{
		"not the leader":              {[]etcd.Member{member(1, leader), member(2, plain), member(3, plain)}, "bca"},
		"the leader when it is alone": {[]etcd.Member{member(1, leader)}, "a"},
		"the one that is least behind": {[]etcd.Member{member(1, leader), member(2, func(m *etcd.Member) { m.Lag = 10 }),
			member(3, func(m *etcd.Member) { m.Lag = 2 })}, "cba"},
		"not one that is far behind": {[]etcd.Member{member(1, leader), member(2, func(m *etcd.Member) {
			m.Lag = 1001
		})}, "a"},
		"not a learner": {[]etcd.Member{member(1, leader), member(2, func(m *etcd.Member) {
			m.Learner = true
		})}, "a"},
		"not a silent one": {[]etcd.Member{member(1, leader), member(2, func(m *etcd.Member) {
			m.Answers = false
		})}, "a"},
		"not an unstarted one": {[]etcd.Member{member(1, leader), member(2, func(m *etcd.Member) {
			m.Name = ""
		})}, "a"},
		"not a corrupt one": {[]etcd.Member{member(1, leader), member(2, func(m *etcd.Member) {
			m.Alarms = []string{"CORRUPT"}
		})}, "a"},
		"also a full one": {[]etcd.Member{member(1, leader), member(2, func(m *etcd.Member) {
			m.Alarms = []string{"NOSPACE"}
		})}, "ba"},
	} {
		t.Run(name, func(t *testing.T) {
			var got strings.Builder
			for _, m := range eligible(etcd.Cluster{Members: test.members}) {
				got.WriteString(m.Name)
			}
			NewWithT(t).Expect(got.String()).To(Equal(test.want))
		})
	}
}

func TestTheNextMemberIsAsked(t *testing.T) {
	w := newWorld(t, toVolume("0 * * * *"))
	w.refuse["node-m2"] = errors.New("connection lost")
	w.settle()
	w.Expect(w.asked).To(Equal([]string{"node-m2", "node-m3"}))
	w.Expect(w.condition().Status).To(Equal(metav1.ConditionTrue))
}

// Without a quorum nobody knows whose data is up to date, and the snapshots that are there may be all that is left.
func TestWithoutAQuorum(t *testing.T) {
	w := newWorld(t, toVolume("0 * * * *"))
	w.settle()
	w.quorum = false
	w.now = w.now.Add(time.Hour)
	w.settle()
	w.Expect(w.asked).To(HaveLen(1))
	w.Expect(w.condition().Status).To(Equal(metav1.ConditionFalse))
	w.Expect(w.condition().Reason).To(Equal(controlplanev1.EtcdUnavailableReason))
	w.Expect(w.condition().Message).To(ContainSubstring("no quorum"))
	w.Expect(w.status().LastGood).NotTo(BeNil())
	w.Expect(w.files()).To(HaveLen(2))
}

func TestTriesAgain(t *testing.T) {
	w := newWorld(t, toVolume("0 * * * *"))
	good := w.snapshot
	w.snapshot = good[:len(good)-1]
	w.Expect(w.settle().RequeueAfter).To(Equal(firstRetry))
	w.Expect(w.condition().Status).To(Equal(metav1.ConditionFalse))
	w.Expect(w.condition().Reason).To(Equal(controlplanev1.SnapshotDamagedReason))
	w.Expect(w.events()).To(ConsistOf(HavePrefix("Warning BackupFailed No snapshot of etcd: ")))
	w.Expect(w.files()).To(BeEmpty())
	w.Expect(w.status().LastGood).To(BeNil())

	w.Expect(w.settle().RequeueAfter).To(Equal(firstRetry))
	w.Expect(w.asked).To(HaveLen(1))
	w.now = w.now.Add(firstRetry)
	w.Expect(w.settle().RequeueAfter).To(Equal(2 * firstRetry))
	w.Expect(w.asked).To(HaveLen(2))
	// Who asks anew is not made to wait for the rest of the time, but a little.
	w.now = w.now.Add(firstRetry)
	w.request()
	w.now = w.now.Add(time.Second)
	w.snapshot = good
	w.settle()
	w.Expect(w.asked).To(HaveLen(3))
	w.Expect(w.condition().Status).To(Equal(metav1.ConditionTrue))
	w.Expect(backoff(100)).To(Equal(lastRetry))
}

// A store that hangs is a failure like any other: it is told, and not tried again at once for ever.
func TestStalledIsNotCanceled(t *testing.T) {
	w := newWorld(t, toVolume("0 * * * *"))
	w.settle()
	w.events()
	w.r.known[key].running = opTake
	_, _, _ = async.Do(w.r.calls, key, opTake, 0, func(context.Context) (found, error) {
		return found{}, fmt.Errorf("%w: %w (%w)", backup.ErrStore, context.Canceled, backup.ErrStalled)
	})
	w.now = w.now.Add(time.Hour)
	w.Expect(w.settle().RequeueAfter).To(Equal(firstRetry))
	w.Expect(w.condition().Status).To(Equal(metav1.ConditionFalse))
	w.Expect(w.condition().Reason).To(Equal(controlplanev1.BackupStoreUnavailableReason))
	w.Expect(w.events()).To(ConsistOf(HavePrefix("Warning BackupFailed ")))
}

func TestDirectoryIsMissing(t *testing.T) {
	w := newWorld(t, toVolume("0 * * * *"))
	w.r.Directory = ""
	w.Expect(w.settle().RequeueAfter).To(Equal(firstRetry))
	w.Expect(w.condition().Status).To(Equal(metav1.ConditionFalse))
	w.Expect(w.condition().Reason).To(Equal(controlplanev1.BackupDirectoryMissingReason))
	w.Expect(w.condition().Message).To(ContainSubstring("--backup-directory"))
	w.Expect(w.asked).To(BeEmpty())
	// The user takes another store, and is not made to wait.
	w.Expect(w.api.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "bucket"},
		Data: map[string][]byte{"accessKeyID": []byte("id"), "secretAccessKey": []byte("geheim")}})).To(Succeed())
	w.edit(func(p *controlplanev1.QuoinControlPlane) {
		p.Spec.Backup.Store = controlplanev1.BackupStore{S3: &controlplanev1.BackupBucket{Endpoint: "http://127.0.0.1:1",
			Bucket:         "snapshots",
			CredentialsRef: controlplanev1.SecretReference{Name: "bucket"}}}
	})
	w.settle()
	w.Expect(w.condition().Reason).To(Equal(controlplanev1.BackupStoreUnavailableReason))
	w.Expect(w.condition().Message).NotTo(ContainSubstring("geheim"))
}

func TestSecretsAreMissing(t *testing.T) {
	spec := toVolume("0 * * * *")
	spec.EncryptionKeyRef.Name = "recipients"
	w := newWorld(t, spec)
	w.settle()
	w.Expect(w.condition().Reason).To(Equal(controlplanev1.BackupSecretInvalidReason))
	w.Expect(w.condition().Message).To(Equal("Secret recipients does not exist in namespace prod"))
	identity, err := age.GenerateX25519Identity()
	w.Expect(err).NotTo(HaveOccurred())
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "recipients"},
		Data: map[string][]byte{"recipients": []byte(identity.String())}}
	w.Expect(w.api.Create(t.Context(), secret)).To(Succeed())
	w.now = w.now.Add(firstRetry)
	w.settle()
	w.Expect(w.condition().Message).To(ContainSubstring("private key"))
	w.Expect(w.condition().Message).NotTo(ContainSubstring(identity.String()))
	w.Expect(w.asked).To(BeEmpty())
	w.Expect(w.api.Get(t.Context(), client.ObjectKeyFromObject(secret), secret)).To(Succeed())
	secret.Data["recipients"] = []byte(identity.Recipient().String())
	w.Expect(w.api.Update(t.Context(), secret)).To(Succeed())
	w.now = w.now.Add(lastRetry)
	w.settle()
	w.Expect(w.condition().Status).To(Equal(metav1.ConditionTrue))
	w.Expect(w.status().LastGood.Encrypted).To(HaveValue(BeTrue()))
	w.Expect(w.status().LastGood.Name).To(HaveSuffix(".db.age"))
}

// A Secret that was away for a moment, while no snapshot was due, is no failure any more once it is back.
func TestMendedWhileNothingIsDue(t *testing.T) {
	spec := toVolume("0 */6 * * *")
	spec.EncryptionKeyRef.Name = "recipients"
	w := newWorld(t, spec)
	identity, err := age.GenerateX25519Identity()
	w.Expect(err).NotTo(HaveOccurred())
	secret := func() *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "recipients"},
			Data: map[string][]byte{"recipients": []byte(identity.Recipient().String())}}
	}
	w.Expect(w.api.Create(t.Context(), secret())).To(Succeed())
	w.settle()
	w.Expect(w.condition().Status).To(Equal(metav1.ConditionTrue))
	kept := secret()
	w.Expect(w.api.Get(t.Context(), client.ObjectKeyFromObject(kept), kept)).To(Succeed())
	kept.Finalizers = nil
	w.Expect(w.api.Update(t.Context(), kept)).To(Succeed())
	w.Expect(w.api.Delete(t.Context(), kept)).To(Succeed())
	w.now = w.now.Add(time.Minute)
	w.Expect(w.settle().RequeueAfter).To(Equal(firstRetry))
	w.Expect(w.condition().Reason).To(Equal(controlplanev1.BackupSecretInvalidReason))
	w.Expect(w.api.Create(t.Context(), secret())).To(Succeed())
	w.now = w.now.Add(firstRetry)
	w.Expect(w.settle().RequeueAfter).To(BeNumerically(">", 10*time.Minute))
	w.Expect(w.condition().Status).To(Equal(metav1.ConditionTrue))
	w.Expect(w.asked).To(HaveLen(1))
}

// A volume whose server does not answer holds up whoever opens it: that is no worker.
func TestWorkersOpenNoVolume(t *testing.T) {
	w := newWorld(t, toVolume("0 * * * *"))
	pipe := filepath.Join(t.TempDir(), "hangs")
	w.Expect(syscall.Mkfifo(pipe, 0o600)).To(Succeed())
	// Opening a pipe waits for who writes to it.
	w.r.Directory = pipe
	t.Cleanup(func() {
		if writer, err := os.OpenFile(pipe, os.O_RDWR, 0); err == nil {
			time.AfterFunc(time.Minute, func() { _ = writer.Close() })
		}
	})
	returned := make(chan struct{})
	go func() { w.reconcile(); close(returned) }()
	w.Eventually(returned, 20*time.Second).Should(BeClosed())
}

// After a move to another management cluster the objects have no status: it is made again.
func TestStatusComesFromTheStore(t *testing.T) {
	w := newWorld(t, toVolume("0 */6 * * *"))
	w.settle()
	known := w.status()
	w.moved()
	w.now = w.now.Add(time.Minute)
	w.settle()
	w.Expect(w.status().LastGood).To(Equal(known.LastGood))
	w.Expect(w.status().Count).To(Equal(known.Count))
	w.Expect(w.status().NextTime).To(Equal(known.NextTime))
	w.Expect(w.condition().Status).To(Equal(metav1.ConditionTrue))
	w.Expect(w.asked).To(HaveLen(1))

	// A volume that is not the same one any more has nothing, and nothing else may be believed.
	w.Expect(os.RemoveAll(filepath.Join(w.volume, "clusters"))).To(Succeed())
	w.restart()
	w.settle()
	w.Expect(w.asked).To(HaveLen(2))
	w.Expect(w.status().LastGood.Name).NotTo(Equal(known.LastGood.Name))
}

// A control plane that is made anew under the name of an old one finds that one's snapshots, and counts none of them.
func TestAnotherClusterOfTheSameName(t *testing.T) {
	w := newWorld(t, toVolume("0 */6 * * *"))
	w.settle()
	old := w.status().LastGood.Name
	secret := &corev1.Secret{}
	w.Expect(w.api.Get(t.Context(), client.ObjectKey{Namespace: "prod", Name: "c-etcd"}, secret)).To(Succeed())
	secret.Data["tls.crt"], secret.Data["tls.key"] = certificate(w.WithT)
	w.Expect(w.api.Update(t.Context(), secret)).To(Succeed())
	w.now = w.now.Add(time.Minute)
	w.settle()
	w.Expect(w.asked).To(HaveLen(2))
	w.Expect(w.status().LastGood.Name).NotTo(Equal(old))
	w.Expect(w.status().Count).To(HaveValue(BeEquivalentTo(1)))
	w.Expect(w.files()).To(ContainElement(old))
}

// What made the process end once is not done again the moment that it is back, also when the clock was set back meanwhile.
func TestAnAttemptThatWasCutOff(t *testing.T) {
	for name, back := range map[string]time.Duration{"at once": 0, "by a clock that was ahead": -5 * time.Hour} {
		t.Run(name, func(t *testing.T) { attemptIsCutOff(t, back) })
	}
}

func attemptIsCutOff(t *testing.T, back time.Duration) {
	w := newWorld(t, toVolume("0 */6 * * *"))
	w.hold = make(chan struct{})
	w.reconcile()
	<-w.r.calls.Events()
	w.reconcile()
	w.Expect(w.status().LastAttemptTime.IsZero()).To(BeFalse())
	w.r.calls.Close()
	w.hold = nil
	w.restart()
	w.asked = nil
	w.now = w.now.Add(10*time.Second + back)
	wait := 20 * time.Second
	if back != 0 {
		wait = 30 * time.Second // since it is seen
	}
	w.Expect(w.settle().RequeueAfter).To(BeNumerically("~", wait, time.Second))
	w.Expect(w.asked).To(BeEmpty())
	w.now = w.now.Add(wait)
	w.settle()
	w.Expect(w.asked).To(HaveLen(1))
	w.Expect(w.condition().Status).To(Equal(metav1.ConditionTrue))
}

func TestStandsBack(t *testing.T) {
	for name, stop := range map[string]func(*world){
		"a paused Cluster": func(w *world) {
			cluster := &clusterv1.Cluster{}
			w.Expect(w.api.Get(w.t.Context(), client.ObjectKey{Namespace: "prod", Name: "c"}, cluster)).To(Succeed())
			paused := true
			cluster.Spec.Paused = &paused
			w.Expect(w.api.Update(w.t.Context(), cluster)).To(Succeed())
		},
		"a paused control plane": func(w *world) {
			w.edit(func(p *controlplanev1.QuoinControlPlane) {
				p.Annotations = map[string]string{clusterv1.PausedAnnotation: ""}
			})
		},
		"a control plane that was moved": func(w *world) {
			w.edit(func(p *controlplanev1.QuoinControlPlane) {
				p.Annotations = map[string]string{clusterctlv1.DeleteForMoveAnnotation: ""}
			})
		},
		"a control plane that is being deleted": func(w *world) {
			w.Expect(w.api.Delete(w.t.Context(), w.controlPlane())).To(Succeed())
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, toVolume("0 * * * *"))
			w.hold = make(chan struct{})
			w.reconcile()
			<-w.r.calls.Events()
			w.reconcile()
			w.Eventually(func() int { w.mu.Lock(); defer w.mu.Unlock(); return len(w.asked) }).Should(Equal(1))
			stop(w)
			told := len(w.told)
			// What runs ends: its host or its object may be somebody else's from now on.
			w.Expect(w.settle().RequeueAfter).To(BeZero())
			w.now = w.now.Add(24 * time.Hour)
			w.Expect(w.settle().RequeueAfter).To(BeZero())
			quiet := conditions.IsTrue(w.controlPlane(), controlplanev1.ControlPlaneBackupQuietCondition)
			w.Expect(quiet).To(Equal(strings.Contains(name, "paused")), "a move waits for the end")
			for _, said := range w.told[told:] {
				w.Expect(said).To(ContainSubstring(controlplanev1.ControlPlaneBackupQuietCondition))
			}
			w.Expect(w.files()).To(BeEmpty())
			w.Expect(w.events()).To(BeEmpty())
		})
	}
}

func TestBackupIsTakenOutOfTheSpec(t *testing.T) {
	w := newWorld(t, toVolume("0 * * * *"))
	w.settle()
	w.edit(func(p *controlplanev1.QuoinControlPlane) { p.Spec.Backup = nil })
	w.settle()
	w.Expect(w.status()).To(BeNil())
	w.Expect(w.controlPlane().Annotations).To(BeEmpty())
	w.Expect(w.condition()).To(BeNil())
	// What was taken stays.
	w.Expect(w.files()).To(HaveLen(2))
	w.Expect(testutil.CollectAndCount(lastGood)).To(BeZero())
}

// A management cluster whose objects are older than what a host of the control plane serves stores nothing, and deletes
// nothing of what the one that manages it has stored, whatever its own spec.backup says about that.
func TestAPlaneThatStayedBehindLeavesTheStoreAlone(t *testing.T) {
	w := newWorld(t, toVolume("0 * * * *"))
	w.settle()
	stored, asked := w.files(), len(w.asked)
	w.Expect(stored).NotTo(BeEmpty())
	host := &infrav1.QuoinHost{}
	w.Expect(w.api.Get(t.Context(), client.ObjectKey{Namespace: "hosts", Name: "m1"}, host)).To(Succeed())
	conditions.Set(host, metav1.Condition{Type: infrav1.HostReadyCondition, Status: metav1.ConditionFalse,
		Reason: infrav1.HostStaleClaimReason, Message: "it serves generation 9 of its claim"})
	w.Expect(w.api.Status().Update(t.Context(), host)).To(Succeed())
	w.edit(func(p *controlplanev1.QuoinControlPlane) { p.Spec.Backup.Keep = ptr.To[int32](1) })
	w.now = w.now.Add(24 * time.Hour)
	w.settle()
	w.Expect(w.files()).To(Equal(stored))
	w.Expect(w.asked).To(HaveLen(asked))
	w.Expect(w.condition().Message).To(ContainSubstring(
		"Nothing is stored or deleted from here: QuoinHost hosts/m1: it serves generation 9"))
}

func TestNotBeforeThereIsACluster(t *testing.T) {
	w := newWorld(t, toVolume("0 * * * *"))
	controlPlane := w.controlPlane()
	before := controlPlane.DeepCopy()
	controlPlane.Status.Initialization.ControlPlaneInitialized = nil
	w.Expect(w.api.Status().Patch(t.Context(), controlPlane, client.MergeFrom(before))).To(Succeed())
	w.settle()
	w.Expect(w.asked).To(BeEmpty())
	w.Expect(w.condition().Status).To(Equal(metav1.ConditionUnknown))
	w.Expect(w.condition().Message).To(ContainSubstring("not initialized"))
}

func TestWhenDue(t *testing.T) {
	at := func(hour, minute, second int) time.Time {
		return time.Date(2026, 11, 21, hour, minute, second, 0, time.UTC)
	}
	now := at(12, 30, 0)
	for name, test := range map[string]struct {
		schedule    string
		last, asked time.Time
		want        time.Time
	}{
		"nobody wants one":                            {"", time.Time{}, time.Time{}, time.Time{}},
		"never one, by schedule":                      {"0 * * * *", time.Time{}, time.Time{}, now},
		"by schedule":                                 {"0 * * * *", at(12, 0, 0), time.Time{}, at(13, 0, 0)},
		"missed":                                      {"0 * * * *", at(9, 15, 0), time.Time{}, at(10, 0, 0)},
		"from a clock that was ahead":                 {"0 * * * *", at(20, 0, 0), time.Time{}, at(13, 0, 0)},
		"asked":                                       {"", time.Time{}, at(12, 29, 0), at(12, 29, 1)},
		"answered ahead of the clock":                 {"", at(20, 0, 0), at(12, 29, 0), at(12, 29, 1)},
		"asked and answered":                          {"", at(12, 29, 1), at(12, 29, 0), time.Time{}},
		"asked in the same second":                    {"", at(12, 29, 0), at(12, 29, 0), at(12, 29, 1)},
		"asked by a clock that was ahead":             {"", at(12, 0, 0), at(20, 0, 0), time.Time{}},
		"asked by a clock that was a little ahead":    {"", at(12, 0, 0), at(12, 31, 0), at(12, 31, 1)},
		"asked by a clock that was ahead, and missed": {"0 * * * *", at(9, 15, 0), at(20, 0, 0), at(10, 0, 0)},
		"asked before the schedule":                   {"0 * * * *", at(12, 0, 0), at(12, 29, 0), at(12, 29, 1)},
		"asked, and missed before that":               {"0 * * * *", at(9, 15, 0), at(12, 29, 0), at(10, 0, 0)},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			var newest *backup.Metadata
			if !test.last.IsZero() {
				newest = &backup.Metadata{Time: test.last}
			}
			status := &controlplanev1.EtcdBackupStatus{RequestedTime: metav1.NewTime(test.asked)}
			if test.asked.IsZero() {
				status = nil
			}
			due, err := whenDue(&controlplanev1.EtcdBackup{Schedule: test.schedule}, status, newest, now)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(due).To(Equal(test.want))
		})
	}
}

// What a wrong clock dated ahead is not the last good one, unless there is no other.
func TestTheNewestSnapshotIsNotOfTheFuture(t *testing.T) {
	g := NewWithT(t)
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	ahead, recent := backup.Metadata{Name: "ahead", Time: now.Add(time.Hour)}, backup.Metadata{Name: "recent", Time: now.Add(-time.Hour)}
	g.Expect(newestOf([]backup.Metadata{ahead, recent}, now)).To(HaveField("Name", "recent"))
	g.Expect(newestOf([]backup.Metadata{recent}, now)).To(HaveField("Name", "recent"))
	g.Expect(newestOf([]backup.Metadata{ahead}, now)).To(HaveField("Name", "ahead"))
	g.Expect(newestOf(nil, now)).To(BeNil())
}
