// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package etcdbackup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"filippo.io/age"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/backup"
)

// shell is a host that answers what it is asked, and takes what it is given.
type shell struct {
	mu sync.Mutex
	// record is what owner.json says.
	record string
	// refuse is the answer to whatever is written; files is what came, by its path.
	refuse   error
	uploaded map[string]string
	received int64
	removed  []string
	// scripts are all that it was given to run.
	scripts strings.Builder
}

// errUnguarded is the answer to a change that is not tied to the owner record.
var errUnguarded = errors.New("a change without a guard")

func (h *shell) Run(_ context.Context, command ssh.Command) (ssh.Result, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.scripts.WriteString(command.Script)
	guard, script, guarded := strings.Cut(command.Script, "|| exit 76\n")
	if guarded {
		if !strings.Contains(guard, ssh.Quote(h.record)) {
			return ssh.Result{}, &ssh.ExitError{Code: 76}
		}
		command.Script = strings.TrimPrefix(script, "exec 6>&-\n")
	}
	switch {
	case strings.Contains(command.Script, "owner.json"):
		return ssh.Result{Stdout: h.record}, nil
	case strings.Contains(command.Script, "etcd.yaml"):
		return ssh.Result{Stdout: "name node-m1\nurl https://192.0.2.1:2380\n"}, nil
	case strings.Contains(command.Script, "else echo 0"):
		return ssh.Result{Stdout: "0\n"}, nil
	case strings.HasPrefix(command.Script, "rm -rf"):
		if !guarded {
			return ssh.Result{}, errUnguarded
		}
		h.removed = append(h.removed, strings.TrimSpace(command.Script))
		return ssh.Result{}, nil
	case !guarded:
		return ssh.Result{}, errUnguarded
	case h.refuse != nil:
		return ssh.Result{}, h.refuse
	}
	if command.Stdin != nil {
		content, err := io.ReadAll(command.Stdin)
		if strings.Contains(command.Script, "/sums.part") {
			h.uploaded["sums"] = string(content)
		} else {
			h.received += int64(len(content))
		}
		return ssh.Result{}, err
	}
	return ssh.Result{}, nil
}

func (h *shell) Upload(context.Context, string, os.FileMode, []byte) error { return errUnguarded }

func (h *shell) DialContext(context.Context, string, string) (net.Conn, error) {
	return nil, errors.New("not in this test")
}

// lost is a world with one snapshot, whose etcd has no quorum, and the shell of the host of m1.
func lost(t *testing.T, recipients, identity string) (*world, *shell, string) {
	t.Helper()
	spec := toVolume("0 * * * *")
	if recipients != "" {
		spec.EncryptionKeyRef.Name = "keys"
	}
	w := newWorld(t, spec)
	w.Expect(w.api.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace,
		Name: "keys"},
		Data: map[string][]byte{"recipients": []byte(recipients), "identity": []byte(identity)}})).To(Succeed())
	w.settle()
	w.Expect(w.status()).To(HaveField("LastGood", Not(BeNil())), "%v", w.condition())
	shell := &shell{uploaded: map[string]string{}, record: w.claim("m1", "c1")}
	w.host, w.quorum = shell, false
	w.events()
	return w, shell, w.status().LastGood.Name
}

// claim has a host serve the Machine of its name, and returns what its owner.json says.
func (w *world) claim(name, uid string) string {
	w.t.Helper()
	host := &infrav1.QuoinHost{}
	w.Expect(w.api.Get(w.t.Context(), client.ObjectKey{Namespace: "hosts", Name: name}, host)).To(Succeed())
	host.Spec.ConsumerRef = &infrav1.ConsumerReference{Namespace: key.Namespace, Name: name, Machine: name, Claim: uid}
	w.Expect(w.api.Update(w.t.Context(), host)).To(Succeed())
	return fmt.Sprintf(`{"namespace":"hosts","host":%[1]q,"machine":%[1]q,"uid":%[2]q,"generation":1}`, name, uid)
}

// recover asks for a recovery on m1, as far as the control plane's controller has recorded it.
func (w *world) recover(snapshot, identity, state string) {
	w.t.Helper()
	w.edit(func(controlPlane *controlplanev1.QuoinControlPlane) {
		controlPlane.Spec.Recovery = &controlplanev1.EtcdRecovery{ID: "r1", Machine: "m1",
			Snapshot: &controlplanev1.RecoverySnapshot{Name: snapshot, SHA256: w.sha256}}
		controlPlane.Spec.Recovery.Snapshot.IdentityRef.Name = identity
		annotations.AddAnnotations(controlPlane,
			map[string]string{controlplanev1.RecoveryAnnotation: `{"id":"r1","state":"` + state + `"}`})
	})
}

func TestASnapshotIsBroughtToTheHostOfARecoveryAndTakenAwayAfterwards(t *testing.T) {
	identity, err := age.GenerateX25519Identity()
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	w, shell, name := lost(t, identity.Recipient().String(), identity.String())
	w.sha256 = w.status().LastGood.SHA256
	w.recover(name, "keys", "Fetching")
	w.reconcile()
	w.Expect(w.status().Restore).To(HaveField("SHA256", ""),
		"where to look for what is left of it is told before it is begun")
	w.Expect(shell.uploaded).To(BeEmpty())
	// A manager that dies here knows by what it told.
	w.restart()
	w.settle()
	restored := w.status().Restore
	w.Expect(restored).To(And(HaveField("SHA256", HaveLen(64)), HaveField("Machine", "m1"), HaveField("Snapshot", name)),
		"%v", restored)
	w.Expect(shell.uploaded["sums"]).To(And(ContainSubstring("  member/snap/db\n"), ContainSubstring("  member/wal/")))
	w.Expect(shell.received).To(BeNumerically("==", *restored.SizeBytes))
	w.Expect(w.events()).To(ContainElement(ContainSubstring("SnapshotDelivered")))
	w.settle()
	w.Expect(shell.removed).To(BeEmpty())

	w.recover(name, "keys", "Begun")
	w.settle()
	w.Expect(w.status().Restore.SHA256).To(Equal(restored.SHA256), "a host is told of it")

	w.recover(name, "keys", "Complete")
	w.settle()
	w.settle()
	w.Expect(shell.removed).To(ContainElement(HaveSuffix("/recovery/snapshot-recover-r1'")))
	w.Expect(w.status().Restore).To(BeNil())
	w.Expect(os.ReadDir(w.r.Spool)).To(BeEmpty())
}

// Objects that are restored have no status, and no API server answers that could say it anew.
func TestASnapshotIsBroughtWhereStatusIsLost(t *testing.T) {
	w, shell, name := lost(t, "", "")
	w.sha256 = w.status().LastGood.SHA256
	controlPlane := w.controlPlane()
	before := controlPlane.DeepCopy()
	controlPlane.Status = controlplanev1.QuoinControlPlaneStatus{}
	w.Expect(w.api.Status().Patch(t.Context(), controlPlane, client.MergeFrom(before))).To(Succeed())
	w.restart()
	w.recover(name, "", "Fetching")
	w.reconcile()
	w.settle()
	w.Expect(shell.uploaded).To(HaveKey("sums"), "%v", w.status())
}

func TestASnapshotThatCannotBeBroughtSaysWhy(t *testing.T) {
	identity, err := age.GenerateX25519Identity()
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	other, err := age.GenerateX25519Identity()
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	for name, test := range map[string]struct {
		recipients, identity, secret string
		change                       func(w *world, shell *shell, snapshot *string)
		says                         string
	}{
		"it is not in the store": {"", "", "", func(_ *world, _ *shell, snapshot *string) {
			*snapshot = "20200101T000000Z-000000000000.db"
		},
			"has no good snapshot 20200101T000000Z-000000000000.db of this cluster in prod/cp; the newest of 1 is " +
				"20261121T120000Z-"},
		"the key is another one": {identity.Recipient().String(), other.String(), "keys", nil,
			"identity did not match any of the recipients"},
		"the key is none": {identity.Recipient().String(), "AGE-SECRET-KEY-1X", "keys", nil,
			"key identity: it holds no age private keys"},
		"there is no such Secret": {identity.Recipient().String(), "", "absent", nil, "Secret absent does not exist"},
		"it is not encrypted, and others would be": {"", "", "", func(w *world, _ *shell, _ *string) {
			w.Expect(w.api.Create(w.t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: "public"},
				Data: map[string][]byte{"recipients": []byte(identity.Recipient().String())}})).To(Succeed())
			w.edit(func(controlPlane *controlplanev1.QuoinControlPlane) {
				controlPlane.Spec.Backup.EncryptionKeyRef.Name = "public"
			})
		}, "is not encrypted, and spec.backup.encryptionKeyRef is set"},
		"its checksum is another one": {"", "", "", func(w *world, _ *shell, _ *string) {
			// Nobody asks the host, which would not answer.
			w.sha256, w.host = strings.Repeat("ab", 32), nil
		}, "and spec.recovery.snapshot.sha256 is " + strings.Repeat("ab", 32) + ": the store has another snapshot under " +
			"this name"},
		"it is damaged": {"", "", "", func(w *world, _ *shell, snapshot *string) {
			path := filepath.Join(w.volume, "clusters", "prod", "cp", *snapshot)
			content, err := os.ReadFile(path)
			w.Expect(err).NotTo(HaveOccurred())
			content[len(content)/2]++
			w.Expect(os.WriteFile(path, content, 0o600)).To(Succeed())
		}, "the store returned"},
		"the host serves another": {"", "", "", func(_ *world, shell *shell, _ *string) {
			shell.record = strings.Replace(shell.record, "c1", "c2", 1)
		}, "does not say that it serves"},
		"another plane has the host": {"", "", "", func(_ *world, shell *shell, _ *string) {
			shell.record = strings.Replace(shell.record, `:1}`, `:2}`, 1)
		}, "another management plane took over"},
		"the host has no room": {"", "", "", func(_ *world, shell *shell, _ *string) {
			shell.refuse = &ssh.ExitError{Code: 1, Stderr: "make room there"}
		}, "make room there"},
		"the host is off": {"", "", "", func(w *world, _ *shell, _ *string) { w.host = nil }, "switched off"},
	} {
		t.Run(name, func(t *testing.T) {
			w, shell, snapshot := lost(t, test.recipients, test.identity)
			if test.change != nil {
				test.change(w, shell, &snapshot)
			}
			w.recover(snapshot, test.secret, "Fetching")
			w.reconcile()
			w.settle()
			w.Expect(w.status().Restore).To(And(HaveField("SHA256", ""), HaveField("Message", ContainSubstring(test.says))))
			w.Expect(w.status().Restore.Message).NotTo(ContainSubstring("SECRET-KEY-1X"))
			w.Expect(shell.uploaded).To(BeEmpty())
			w.Expect(w.condition().Status).To(Equal(metav1.ConditionTrue), "it is no failure of the backups")
			// It is tried again, not at once.
			w.Expect(w.reconcile().RequeueAfter).To(BeNumerically("~", firstRetry, time.Second))

			w.recover(snapshot, test.secret, "Void")
			w.now = w.now.Add(time.Hour)
			w.settle()
			if w.host != nil {
				w.settle()
				w.Expect(w.status().Restore).To(BeNil(), "nobody wants it any more")
			}
		})
	}
}

// A manager that was killed while it made the data of a member left them in the clear. The next one needs no
// recovery to remove them.
func TestWhatAKilledManagerLeftInTheSpoolIsRemovedAtTheStart(t *testing.T) {
	w := newWorld(t, toVolume("0 * * * *"))
	left := filepath.Join(w.r.Spool, "quoin-restore-1", "data")
	used, release, err := backup.Workspace(w.r.Spool, 1)
	w.Expect(err).NotTo(HaveOccurred())
	defer release()
	w.Expect(os.MkdirAll(left, 0o700)).To(Succeed())
	w.Expect(os.WriteFile(filepath.Join(left, "db"), []byte("Secrets"), 0o600)).To(Succeed())

	begun := &Reconciler{Client: w.api, APIReader: w.api, Spool: w.r.Spool}
	begun.prepare()
	defer begun.calls.Close()
	w.Expect(filepath.Dir(left)).NotTo(BeADirectory())
	w.Expect(used).To(BeADirectory(), "somebody works there")
}

// A key of the sidecars that is set late: what was stored before is not signed, so a new one is taken at once, and a
// recovery takes an old one only from who knows its digest.
func TestAnUnsignedSnapshotIsTakenByItsDigestAlone(t *testing.T) {
	identity, err := age.GenerateX25519Identity()
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	w, shell, name := lost(t, identity.Recipient().String(), identity.String())
	unsigned := w.status().LastGood
	secret := &corev1.Secret{}
	w.Expect(w.api.Get(t.Context(), client.ObjectKey{Namespace: key.Namespace, Name: "keys"}, secret)).To(Succeed())
	secret.Data["signing"] = []byte(strings.Repeat("k", 64))
	w.Expect(w.api.Update(t.Context(), secret)).To(Succeed())
	w.quorum, w.now = true, w.now.Add(time.Minute)
	w.settle()
	w.Expect(w.asked).To(HaveLen(2))
	w.Expect(w.status().Count).To(HaveValue(BeEquivalentTo(1)), "only what is signed counts")
	w.Expect(w.files()).To(ContainElement(name), "and what is not is left")

	w.quorum = false
	w.recover(name, "keys", "Fetching")
	w.reconcile()
	w.settle()
	w.Expect(w.status().Restore.Message).To(ContainSubstring("is not signed with any key of spec.backup.encryptionKeyRef"))
	w.Expect(shell.uploaded).To(BeEmpty())
	w.sha256 = unsigned.SHA256
	w.recover(name, "keys", "Fetching")
	w.settle()
	w.Expect(w.status().Restore.SHA256).To(HaveLen(64), "%v", w.status().Restore)
}

// A recovery that is taken away and put back as it was finds its snapshot where its hosts look for it, or has it
// brought again.
func TestARecoveryThatIsPutBackHasItsSnapshot(t *testing.T) {
	for state, stays := range map[string]bool{"Fetching": false, "Begun": true} {
		t.Run(state, func(t *testing.T) {
			w, shell, name := lost(t, "", "")
			w.recover(name, "", "Fetching")
			w.settle()
			w.settle()
			delivered := w.status().Restore.SHA256
			w.Expect(delivered).To(HaveLen(64), "%v", w.status().Restore)
			received := shell.received
			w.recover(name, "", state)

			w.edit(func(controlPlane *controlplanev1.QuoinControlPlane) { controlPlane.Spec.Recovery = nil })
			w.reconcile()
			w.Expect(shell.removed).To(BeEmpty())
			if stays {
				w.Expect(w.status().Restore.SHA256).To(Equal(delivered), "a host may be about to take it")
			} else {
				w.Expect(w.status().Restore.SHA256).To(BeEmpty(), "nobody begins with what is about to go")
			}
			for range 4 {
				w.settle()
			}

			w.recover(name, "", state)
			for range 4 {
				w.settle()
			}
			w.Expect(w.status().Restore.SHA256).To(Equal(delivered))
			if stays {
				w.Expect(shell.removed).To(BeEmpty())
			} else {
				w.Expect(shell.removed).To(HaveLen(1))
				w.Expect(shell.received).To(Equal(2 * received))
			}
		})
	}
}

// A recovery that is edited and edited back under its id has its snapshot brought again: nobody begins with data that
// are about to be removed, or were.
func TestARecoveryThatIsEditedBackHasItsSnapshot(t *testing.T) {
	const unheard = "after the host removed them, which nobody heard"
	for name, edit := range map[string]func(*controlplanev1.EtcdRecovery){
		"another Machine": func(r *controlplanev1.EtcdRecovery) { r.Machine = "m2" },
		"another snapshot": func(r *controlplanev1.EtcdRecovery) {
			r.Snapshot.Name = "20200101T000000Z-000000000000.db"
		},
		"no snapshot": func(r *controlplanev1.EtcdRecovery) { r.Snapshot = nil },
	} {
		for _, at := range []string{"before they are removed", unheard, "afterwards"} {
			t.Run(name+", "+at, func(t *testing.T) {
				w, shell, snapshot := lost(t, "", "")
				w.recover(snapshot, "", "Fetching")
				w.settle()
				w.settle()
				received := shell.received
				w.Expect(w.status().Restore.SHA256).To(HaveLen(64), "%v", w.status().Restore)

				w.edit(func(controlPlane *controlplanev1.QuoinControlPlane) { edit(controlPlane.Spec.Recovery) })
				w.reconcile()
				w.Expect(shell.removed).To(BeEmpty())
				w.Expect(w.status().Restore.SHA256).To(BeEmpty(), "nobody begins with what is about to go")
				switch at {
				case "afterwards":
					w.settle()
					w.Expect(shell.removed).To(HaveLen(1))
				case unheard:
					w.reconcile()
					w.Eventually(func() []string {
						shell.mu.Lock()
						defer shell.mu.Unlock()
						return shell.removed
					}).Should(HaveLen(1))
					w.restart()
				}

				w.recover(snapshot, "", "Fetching")
				for range 4 {
					w.settle()
				}
				w.Expect(w.status().Restore).To(And(HaveField("SHA256", HaveLen(64)), HaveField("Machine", "m1")))
				w.Expect(shell.received).To(Equal(2*received), "they are brought again")
			})
		}
	}
}

// The data of a recovery that began and was taken away lie in the clear on a host that may live for years. They go when
// nobody can use them any more, whichever manager sees that.
func TestWhatARecoveryThatIsTakenAwayLeavesIsRemoved(t *testing.T) {
	part := func(w *world, phase string) {
		infra, host := &infrav1.QuoinMachine{}, &infrav1.QuoinHost{}
		w.Expect(w.api.Get(t.Context(), client.ObjectKey{Namespace: key.Namespace, Name: "m1"}, infra)).To(Succeed())
		infra.Spec.EtcdRecovery = &infrav1.EtcdRecoveryOrder{ID: "r1", Action: infrav1.EtcdRecoverySurvive}
		w.Expect(w.api.Update(t.Context(), infra)).To(Succeed())
		w.Expect(w.api.Get(t.Context(), client.ObjectKey{Namespace: "hosts", Name: "m1"}, host)).To(Succeed())
		host.Status.Operation = &infrav1.HostOperation{ID: infrav1.RecoverOperation("r1"), Phase: phase}
		w.Expect(w.api.Status().Update(t.Context(), host)).To(Succeed())
	}
	quorum := func(w *world, age time.Duration) {
		controlPlane := w.controlPlane()
		controlPlane.Status.Etcd = &controlplanev1.EtcdStatus{Agreed: ptr.To(true),
			ObservedTime: metav1.NewTime(w.now.Add(-age))}
		w.Expect(w.api.Status().Update(t.Context(), controlPlane)).To(Succeed())
	}
	for name, test := range map[string]struct {
		becomes func(w *world)
		stays   bool
	}{
		"nothing has changed":                             {func(*world) {}, true},
		"its host takes them":                             {func(w *world) { part(w, infrav1.HostOperationRunning); quorum(w, 0) }, true},
		"its host has ended its part":                     {func(w *world) { part(w, infrav1.HostOperationSucceeded) }, false},
		"its host has failed":                             {func(w *world) { part(w, infrav1.HostOperationFailed) }, false},
		"a quorum is there":                               {func(w *world) { quorum(w, time.Minute) }, false},
		"a quorum was there before the loss":              {func(w *world) { quorum(w, time.Hour) }, true},
		"a quorum was there, before a clock was set back": {func(w *world) { quorum(w, -time.Hour) }, true},
		"its Machine is gone, and so its host's": {func(w *world) {
			w.Expect(w.api.Delete(t.Context(), &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace,
				Name: "m1"}})).To(Succeed())
		}, false},
	} {
		check := func(t *testing.T, backup bool) {
			w, shell, snapshot := lost(t, "", "")
			w.recover(snapshot, "", "Fetching")
			w.settle()
			w.settle()
			w.Expect(w.status().Restore.SHA256).To(HaveLen(64), "%v", w.status().Restore)
			w.recover(snapshot, "", "Begun")
			w.edit(func(controlPlane *controlplanev1.QuoinControlPlane) {
				controlPlane.Spec.Recovery = nil
				if !backup {
					controlPlane.Spec.Backup = nil
				}
			})
			test.becomes(w)
			for range 4 {
				w.restart()
				w.settle()
			}
			if test.stays {
				w.Expect(shell.removed).To(BeEmpty())
				w.Expect(w.status().Restore).NotTo(BeNil())
				return
			}
			if backup {
				w.Expect(w.status().Restore).To(BeNil())
			} else {
				w.Expect(w.controlPlane().Status.Backup).To(BeNil())
			}
			if w.api.Get(t.Context(), client.ObjectKey{Namespace: key.Namespace, Name: "m1"}, &clusterv1.Machine{}) == nil {
				w.Expect(shell.removed).To(ContainElement(HaveSuffix("/recovery/snapshot-recover-r1'")))
			}
		}
		t.Run(name, func(t *testing.T) { check(t, true) })
		t.Run(name+", and there are no backups any more", func(t *testing.T) { check(t, false) })
	}
}

// Once a recovery has begun its members may be stopped, and the survivor's host takes what was delivered: that stays,
// whatever is written over the request meanwhile, and goes when somebody else's recovery is recorded.
func TestTheDataOfARecoveryThatHasBegunStay(t *testing.T) {
	const own, withData = `{"id":"r1","state":"Begun","machine":"m1"}`,
		`{"id":"r1","state":"Begun","machine":"m1","snapshot":"SNAPSHOT","data":{"snapshot":"SNAPSHOT","sha256":"0f"}}`
	for name, test := range map[string]struct {
		record string
		edit   func(*controlplanev1.EtcdRecovery)
		stays  bool
	}{
		"another digest": {withData, func(r *controlplanev1.EtcdRecovery) {
			r.Snapshot.SHA256 = strings.Repeat("ab", 32)
		}, true},
		"another digest, and a record that does not say with what it began": {`{"id":"r1","state":"Begun"}`,
			func(r *controlplanev1.EtcdRecovery) { r.Snapshot.SHA256 = strings.Repeat("ab", 32) }, true},
		"another snapshot": {withData, func(r *controlplanev1.EtcdRecovery) {
			r.Snapshot.Name = "20200101T000000Z-000000000000.db"
		}, true},
		"no snapshot":     {withData, func(r *controlplanev1.EtcdRecovery) { r.Snapshot = nil }, true},
		"another Machine": {withData, func(r *controlplanev1.EtcdRecovery) { r.Machine = "m2" }, true},
		"another id, of which nothing is recorded": {withData, func(r *controlplanev1.EtcdRecovery) { r.ID = "r2" }, true},
		"another id, which has begun": {`{"id":"r2","state":"Begun","machine":"m1"}`,
			func(r *controlplanev1.EtcdRecovery) { r.ID, r.Snapshot = "r2", nil }, false},
		"it began with the member's own data": {own, func(r *controlplanev1.EtcdRecovery) { r.Snapshot = nil }, false},
		"it began on another Machine": {strings.ReplaceAll(withData, "m1", "m2"),
			func(r *controlplanev1.EtcdRecovery) { r.Machine = "m2" }, false},
		"it is complete": {`{"id":"r1","state":"Complete"}`, func(*controlplanev1.EtcdRecovery) {}, false},
	} {
		t.Run(name, func(t *testing.T) {
			w, shell, snapshot := lost(t, "", "")
			w.recover(snapshot, "", "Fetching")
			w.settle()
			w.settle()
			delivered := w.status().Restore.DeepCopy()
			w.Expect(delivered.SHA256).To(HaveLen(64), "%v", delivered)
			w.edit(func(controlPlane *controlplanev1.QuoinControlPlane) {
				controlPlane.Annotations[controlplanev1.RecoveryAnnotation] = strings.ReplaceAll(test.record, "SNAPSHOT", snapshot)
				test.edit(controlPlane.Spec.Recovery)
			})
			for range 4 {
				w.restart()
				w.settle()
			}
			if test.stays {
				w.Expect(shell.removed).To(BeEmpty())
				w.Expect(w.status().Restore).To(Equal(delivered))
				return
			}
			w.Expect(shell.removed).To(ContainElement(HaveSuffix("/recovery/snapshot-recover-r1'")))
			w.Expect(w.status().Restore).To(BeNil())
		})
	}
}

// A host that does not answer keeps what was brought to it, and keeps no other host from what it is to get: one attempt
// is made to remove what is there, and an event says where it may lie.
func TestAHostThatDoesNotAnswerKeepsNoOtherFromItsSnapshot(t *testing.T) {
	for name, test := range map[string]struct {
		// id and machine are what the recovery is edited to, and recorded the id of its record then.
		id, machine, recorded string
		// delivered before the host of m1 falls silent, which it does not when it answers.
		delivered, answers bool
	}{
		"under the same id, before anything came": {"r1", "m2", "r1", false, false},
		"under the same id":                       {"r1", "m2", "r1", true, false},
		"under another id, before anything came":  {"r2", "m2", "r2", false, false},
		"under another id":                        {"r2", "m2", "r2", true, false},
		"under another id, recorded later":        {"r2", "m2", "r1", true, false},
		"it answers":                              {"r2", "m2", "r2", true, true},
		"it is the one that is wanted":            {"r2", "m1", "r2", true, false},
	} {
		t.Run(name, func(t *testing.T) {
			w, first, snapshot := lost(t, "", "")
			second := &shell{uploaded: map[string]string{}}
			second.record = w.claim("m2", "c2")
			w.shells = map[string]ssh.Host{"m1": first, "m2": second}
			if !test.delivered {
				w.shells["m1"] = nil
			}
			w.recover(snapshot, "", "Fetching")
			w.settle()
			w.settle()
			w.Expect(w.status().Restore).To(HaveField("Machine", "m1"))
			w.Expect(w.status().Restore.SHA256 != "").To(Equal(test.delivered), "%v", w.status().Restore)

			if !test.answers {
				w.shells["m1"] = nil
			}
			w.edit(func(controlPlane *controlplanev1.QuoinControlPlane) {
				controlPlane.Spec.Recovery.ID, controlPlane.Spec.Recovery.Machine = test.id, test.machine
				controlPlane.Annotations[controlplanev1.RecoveryAnnotation] = `{"id":"` + test.recorded + `","state":"Fetching"}`
			})
			w.connected = nil
			w.events()
			for range 5 {
				w.settle()
			}
			if test.recorded != test.id || test.machine == "m1" {
				w.Expect(w.status().Restore).To(And(HaveField("Machine", "m1"), HaveField("SHA256", ""),
					HaveField("Message", "it could not be removed: switched off")))
				w.Expect(w.connected).To(Equal([]string{"m1"}))
				w.Expect(w.events()).To(BeEmpty())
				if test.machine == "m1" {
					return
				}
				controlPlane := w.controlPlane()
				controlPlane.Annotations[controlplanev1.RecoveryAnnotation] = `{"id":"` + test.id + `","state":"Fetching"}`
				w.Expect(w.api.Update(t.Context(), controlPlane)).To(Succeed())
				for range 5 {
					w.settle()
				}
			}
			w.Expect(w.status().Restore).To(And(HaveField("Machine", "m2"), HaveField("RecoveryID", test.id),
				HaveField("SHA256", HaveLen(64))))
			w.Expect(second.received).To(BeNumerically(">", 0))
			events := w.events()
			w.Expect(events).To(ContainElement(ContainSubstring("SnapshotDelivered")))
			if test.answers {
				w.Expect(first.removed).To(ContainElement(HaveSuffix("/recovery/snapshot-recover-r1'")))
				w.Expect(events).To(HaveLen(1))
				return
			}
			w.Expect(w.connected[0]).To(Equal("m1"))
			w.Expect(w.connected[1:]).To(HaveEach("m2"), "the other one is asked once")
			w.Expect(events).To(HaveLen(2))
			w.Expect(events[0]).To(And(HavePrefix("Warning SnapshotLeftBehind "), ContainSubstring("switched off"),
				ContainSubstring("because Machine m2 is wanted now"),
				ContainSubstring("remove /var/lib/quoin/recovery/snapshot-recover-r1 there")))
		})
	}
}

// Until a snapshot is due, which may be tomorrow, nothing else makes the controller look after what is left.
func TestAQuorumThatIsThereAgainIsLookedAt(t *testing.T) {
	g := NewWithT(t)
	was, is := &controlplanev1.QuoinControlPlane{}, &controlplanev1.QuoinControlPlane{}
	is.Status.Etcd = &controlplanev1.EtcdStatus{Agreed: ptr.To(false)}
	g.Expect(ofInterest().Update(event.UpdateEvent{ObjectOld: was, ObjectNew: is})).To(BeFalse())
	is.Status.Etcd.Agreed = ptr.To(true)
	g.Expect(ofInterest().Update(event.UpdateEvent{ObjectOld: was, ObjectNew: is})).To(BeTrue())
}
