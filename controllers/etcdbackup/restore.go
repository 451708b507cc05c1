// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package etcdbackup

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/backup"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/text"
)

// The calls about the snapshot that spec.recovery names.
const (
	opDeliver = "deliver"
	opDiscard = "discard"
)

// longestReason of a host within an event, which takes no more than 1024 characters.
const longestReason = 300

// encryptedSuffix is how the name of an encrypted snapshot ends.
const encryptedSuffix = ".age"

// identityKey is the data key of the Secret that spec.recovery.snapshot.identityRef names.
const identityKey = "identity"

// delivery is what is known of bringing a snapshot to a host besides status.backup.restore.
type delivery struct {
	// done are data that a host has verified: status may not say so yet.
	done *controlplanev1.EtcdRestoreStatus
	// failures in a row, and when the last one was.
	failures int
	failedAt time.Time
	// undiscarded is why the last attempt to remove what was brought failed; nil before one.
	undiscarded error
}

// restore brings the snapshot that spec.recovery names to the host of the survivor, and takes away what nobody wants
// any more. It says whether nothing else may begin now, and when to look again.
//
// That a file is about to be brought is told before it is begun, so that whoever comes after a kill knows where to look
// for it.
func (r *Reconciler) restore(ctx context.Context, s *reconciliation) (wait time.Duration, handled bool) {
	recovery, have := s.controlPlane.Spec.Recovery, s.restored()
	recorded := s.controlPlane.Annotations[controlplanev1.RecoveryAnnotation]
	wanted := recovery != nil && recovery.Snapshot != nil && s.controlPlane.Spec.Backup != nil &&
		controlplane.ReadRecoveryRecord(recorded, recovery.ID).State == controlplane.RecoveryFetching
	// Members may be stopped by now, so what the survivor's host is to take stays, whatever the request says meanwhile.
	begun := have != nil && controlplane.ReadRecoveryRecord(recorded, have.RecoveryID).Holds(have.Machine, have.Snapshot)
	if have != nil && have.SHA256 == "" && wanted {
		// Nothing was verified yet, so it goes on with the digest that is asked for now.
		asked := have.DeepCopy()
		if asked.SnapshotSHA256 = recovery.Snapshot.SHA256; asked.For(recovery) && *asked != *have {
			have = asked
			s.setRestored(have)
		}
	}
	switch {
	case begun && (recovery != nil && recovery.ID == have.RecoveryID || r.mayBeUsed(ctx, s, have)):
		return 0, false
	case have != nil && wanted && have.For(recovery):
		if have.SHA256 != "" {
			return 0, false
		}
	case have != nil && wanted && have.Machine != recovery.Machine && s.known.delivery.undiscarded != nil:
		r.leaveBehind(s, have)
		return time.Second, true
	case have != nil:
		return r.discard(ctx, s, have)
	case !wanted:
		return 0, false
	default:
		s.known.delivery = delivery{}
		s.setRestored(&controlplanev1.EtcdRestoreStatus{RecoveryID: recovery.ID, Machine: recovery.Machine,
			Snapshot: recovery.Snapshot.Name, SnapshotSHA256: recovery.Snapshot.SHA256,
			Message: "it is looked for in the store"})
		return time.Second, true
	}
	if wait := s.putOff(); wait > 0 {
		return wait, true
	}
	return r.beginDelivery(ctx, s, recovery), true
}

// beginDelivery starts the call, or says why it cannot.
func (r *Reconciler) beginDelivery(
	ctx context.Context, s *reconciliation, recovery *controlplanev1.EtcdRecovery,
) time.Duration {
	job := deliveryJob{recoveryID: recovery.ID, snapshot: recovery.Snapshot.Name,
		sha256: recovery.Snapshot.SHA256, spool: r.Spool}
	// Whoever can write to the store can make one, while nobody can read what is there.
	if s.controlPlane.Spec.Backup.EncryptionKeyRef.Name != "" && !strings.HasSuffix(job.snapshot, encryptedSuffix) {
		return s.deliveryFailed(fmt.Sprintf("snapshot %s is not encrypted, and spec.backup.encryptionKeyRef is set: anybody "+
			"who can write to the store may have made it. Name one that ends with %s; or, when you know it by its "+
			"checksum, take encryptionKeyRef away until the recovery is over", job.snapshot, encryptedSuffix))
	}
	var problem *failure
	if job.target, problem = r.target(ctx, s); problem != nil {
		return s.deliveryFailed(problem.message)
	}
	job.last = s.lastGood(job.target)
	if name := recovery.Snapshot.IdentityRef.Name; name != "" {
		data, problem := r.secret(ctx, s, name, identityKey)
		if problem != nil {
			return s.deliveryFailed(problem.message)
		}
		var err error
		if job.identities, err = backup.ParseIdentities(data[identityKey]); err != nil {
			return s.deliveryFailed(fmt.Sprintf("Secret %s, key %s: %v", name, identityKey, err))
		}
	}
	_, host, err := r.hostOfMachine(ctx, s, recovery.Machine)
	if err == nil && host == nil {
		err = fmt.Errorf("Machine %s has no host", recovery.Machine) //nolint:staticcheck // the name of a kind
	}
	if err != nil {
		return s.deliveryFailed(err.Error())
	}
	job.host, job.connect = host, func(ctx context.Context) (ssh.Host, error) { return r.Hosts.ConnectOnce(ctx, host) }
	s.setMessage("it is fetched, checked and sent")
	r.start(s, opDeliver, snapshotTimeout, job.run)
	return 0
}

// discard removes what was brought to a host, and then forgets it. A host that serves somebody else by now was reset.
func (r *Reconciler) discard(
	ctx context.Context, s *reconciliation, have *controlplanev1.EtcdRestoreStatus,
) (time.Duration, bool) {
	if s.putOff() > 0 {
		// Snapshots of a cluster that lives do not wait for a host that does not.
		return 0, false
	}
	if have.SHA256 != "" {
		// Who puts the recovery back meanwhile, or edits it back, does not begin with what is about to go.
		s.known.delivery = delivery{}
		left := have.DeepCopy()
		left.SHA256, left.SizeBytes, left.Message = "", nil, "no recovery wants it, so it is removed"
		s.setRestored(left)
		return time.Second, true
	}
	_, host, err := r.hostOfMachine(ctx, s, have.Machine)
	switch {
	case err != nil:
		return s.deliveryFailed(err.Error()), true
	case host == nil:
		s.forgetRestored()
		return time.Second, true
	}
	id := infrav1.RecoverOperation(have.RecoveryID)
	r.start(s, opDiscard, listTimeout, func(ctx context.Context) (found, error) {
		conn, err := r.Hosts.ConnectOnce(ctx, host)
		if err != nil {
			return found{}, err
		}
		return found{}, discardFrom(ctx, conn, host, id)
	})
	return 0, true
}

// leaveBehind forgets what was brought to a host on which it could not be removed: what another host is to get does not
// wait for one that may never answer again. Nothing begins with what is left there: a host is ordered to begin only
// with data that were brought to it and verified since, and compares their digest.
func (r *Reconciler) leaveBehind(s *reconciliation, have *controlplanev1.EtcdRestoreStatus) {
	r.event(s, corev1.EventTypeWarning, "SnapshotLeftBehind",
		fmt.Sprintf("What recovery %s brought of snapshot %s to the host of Machine %s could not be removed: %s. It is not "+
			"waited for any more, because Machine %s is wanted now. Should that host come back without a reset, remove %s "+
			"there: it may hold the cluster's Secrets", have.RecoveryID, have.Snapshot, have.Machine,
			text.Shorten(s.known.delivery.undiscarded.Error(), longestReason), s.controlPlane.Spec.Recovery.Machine,
			deliveredIn(have.RecoveryID)))
	s.forgetRestored()
}

// collectDelivery takes the result of a call of restore.
func (r *Reconciler) collectDelivery(ctx context.Context, s *reconciliation, op string, result found, err error) {
	log := ctrl.LoggerFrom(ctx).WithValues("call", op)
	have := s.restored()
	switch {
	case errors.Is(err, errGone) || errors.Is(err, context.Canceled) && !errors.Is(err, backup.ErrStalled):
	case err != nil:
		log.Error(err, "A call about the snapshot of a recovery failed")
		if op == opDiscard {
			s.known.delivery.undiscarded = err
			s.deliveryFailed("it could not be removed: " + err.Error())
			return
		}
		s.deliveryFailed(err.Error())
		if have != nil {
			r.event(s, corev1.EventTypeWarning, "SnapshotDeliveryFailed",
				fmt.Sprintf("Snapshot %s could not be brought to the host of Machine %s: %v", have.Snapshot, have.Machine, err))
		}
	case op == opDiscard:
		log.Info("Removed the data of a snapshot from a host")
		s.forgetRestored()
	case have != nil:
		done := have.DeepCopy()
		done.SHA256, done.SizeBytes, done.Message = result.delivered.SHA256, ptr.To(result.delivered.Size),
			"it is there, and verified"
		done.SnapshotSHA256 = result.stored
		s.known.delivery = delivery{done: done}
		s.setRestored(done)
		log.Info("Brought the data of a snapshot to a host", "name", done.Snapshot, "machine", done.Machine, "size",
			result.delivered.Size)
		r.event(s, corev1.EventTypeNormal, "SnapshotDelivered",
			fmt.Sprintf("The data of snapshot %s (%.1f MiB) are on the host of Machine %s, verified",
				done.Snapshot, float64(result.delivered.Size)/(1<<20), done.Machine))
	}
}

// quorumMaxAge is how old a reading of etcd may be by which a quorum is there. It is less than the age up to which the
// webhook admits no recovery beside one, so it is none of the time before the loss.
const quorumMaxAge = 2 * time.Minute

// mayBeUsed reports whether data on the host of a recovery that began, and that nobody asks for any more, may still be
// used. The host takes them when it has its part and has not ended it. Without a part, who puts the recovery back goes
// on with it, as long as no quorum is there, with which it is void.
func (r *Reconciler) mayBeUsed(ctx context.Context, s *reconciliation, have *controlplanev1.EtcdRestoreStatus) bool {
	infra, host, err := r.hostOfMachine(ctx, s, have.Machine)
	if err != nil || infra == nil || host == nil {
		return err != nil
	}
	if order := infra.Spec.EtcdRecovery; order != nil && order.ID == have.RecoveryID {
		operation := host.Status.Operation
		return operation == nil || operation.ID != infrav1.RecoverOperation(order.ID) || !operation.Final()
	}
	return !quorate(s.controlPlane) || controlplane.ReadingAge(s.controlPlane.Status.Etcd, s.now) > quorumMaxAge
}

// hostOfMachine reads the QuoinMachine and the host of one of the control plane's Machines; each is
// nil when there is none.
func (r *Reconciler) hostOfMachine(
	ctx context.Context, s *reconciliation, name string,
) (*infrav1.QuoinMachine, *infrav1.QuoinHost, error) {
	machine := &clusterv1.Machine{}
	if err := r.Client.Get(ctx, client.ObjectKey{Namespace: s.controlPlane.Namespace, Name: name}, machine); err != nil {
		return nil, nil, client.IgnoreNotFound(err)
	}
	return r.hostOf(ctx, machine)
}

// restored is what is to be told, or what status says, unless this process knows better: what was read may be older
// than what was written.
func (s *reconciliation) restored() *controlplanev1.EtcdRestoreStatus {
	if s.restoring != nil {
		return *s.restoring
	}
	var recorded *controlplanev1.EtcdRestoreStatus
	if s.controlPlane.Status.Backup != nil {
		recorded = s.controlPlane.Status.Backup.Restore
	}
	if done := s.known.delivery.done; done != nil && recorded != nil && recorded.RecoveryID == done.RecoveryID &&
		recorded.Machine == done.Machine && recorded.Snapshot == done.Snapshot {
		return done
	}
	return recorded
}

// setRestored is told at the end of the reconcile.
func (s *reconciliation) setRestored(restored *controlplanev1.EtcdRestoreStatus) {
	s.restoring = &restored
}

func (s *reconciliation) forgetRestored() {
	s.known.delivery = delivery{}
	s.setRestored(nil)
}

// setMessage says what goes on.
func (s *reconciliation) setMessage(message string) {
	if have := s.restored(); have != nil {
		changed := have.DeepCopy()
		changed.Message = text.Shorten(message, longestMessage)
		s.setRestored(changed)
	}
}

// deliveryFailed says why, and how long to wait.
func (s *reconciliation) deliveryFailed(message string) time.Duration {
	s.known.delivery.failures++
	s.known.delivery.failedAt = s.now
	s.setMessage(message)
	return s.putOff()
}

// putOff is how long the next attempt waits.
func (s *reconciliation) putOff() time.Duration {
	if s.known.delivery.failures == 0 {
		return 0
	}
	return max(0, s.known.delivery.failedAt.Add(backoff(s.known.delivery.failures)).Sub(s.now))
}
