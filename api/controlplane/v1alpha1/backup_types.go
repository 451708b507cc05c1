// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// EtcdBackup says when snapshots of etcd are taken, where they go, and how long they stay.
type EtcdBackup struct {
	// store keeps the snapshots, away from the hosts that they protect.
	// +required
	Store BackupStore `json:"store,omitempty,omitzero"`

	// schedule in cron's five fields, in UTC, such as "0 */6 * * *". Without one, a snapshot is taken before a rollout
	// only.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	Schedule string `json:"schedule,omitempty"`

	// maxAgeSeconds: a rollout begins, and goes on to the next Machine, only while the last good snapshot is not older; a
	// newer one is taken first. 3600 when unset.
	// +optional
	// +kubebuilder:validation:Minimum=60
	MaxAgeSeconds *int32 `json:"maxAgeSeconds,omitempty"`

	// keep is how many of the newest good snapshots stay. What neither this nor the fields below keep is deleted once a
	// newer one is verified. 7 when unset.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	Keep *int32 `json:"keep,omitempty"`

	// keepHourly: of each of so many hours in which snapshots were taken, the newest stays. None when unset.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	KeepHourly *int32 `json:"keepHourly,omitempty"`

	// keepDaily: of each of so many days (of UTC) in which snapshots were taken, the newest stays.
	// 7 when unset, so that the snapshots of a rollout do not push out those of former days.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	KeepDaily *int32 `json:"keepDaily,omitempty"`

	// keepWeekly: of each of so many weeks (from Monday) in which snapshots were taken, the newest stays.
	// None when unset.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	KeepWeekly *int32 `json:"keepWeekly,omitempty"`

	// encryptionKeyRef names a Secret in the namespace of the control plane whose data key "recipients" holds age public
	// keys (age1..., one per line). Snapshots are encrypted to them before they leave the manager. Secrets of the workload
	// cluster are in every snapshot: without encryption whoever reads the store reads them. Its data key "signing", if
	// there is one, holds keys for the signatures of what is stored, one per line: the first one signs, each is believed,
	// and what none of them signed does not count as a good snapshot.
	// +optional
	EncryptionKeyRef SecretReference `json:"encryptionKeyRef,omitempty,omitzero"`
}

// SecretNames are the Secrets of the control plane's namespace that its backups need. Sorted, each once; none without
// backups.
func (b *EtcdBackup) SecretNames() []string {
	if b == nil {
		return nil
	}
	names := []string{b.EncryptionKeyRef.Name}
	if b.Store.S3 != nil {
		names = append(names, b.Store.S3.CredentialsRef.Name)
	}
	names = slices.DeleteFunc(names, func(name string) bool { return name == "" })
	slices.Sort(names)
	return slices.Compact(names)
}

// SecretReference names a Secret in the same namespace.
type SecretReference struct {
	// name of the Secret.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
}

// BackupStore keeps snapshots: exactly one of its kinds.
// +kubebuilder:validation:XValidation:rule="(has(self.volume) ? 1 : 0) + (has(self.s3) ? 1 : 0) == 1",message="set exactly one of volume and s3"
type BackupStore struct {
	// volume is a directory of the manager's own volume.
	// +optional
	Volume *BackupVolume `json:"volume,omitempty"`

	// s3 is a bucket of an object store with the S3 protocol.
	// +optional
	S3 *BackupBucket `json:"s3,omitempty"`
}

// BackupVolume is a directory below the one that the manager was given with --backup-directory.
type BackupVolume struct {
	// path below the manager's backup directory, without "..". Snapshots lie in <path>/<namespace>/<control plane>/.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="!self.startsWith('/') && !self.split('/').exists(part, part == '..')",message="must be a relative path without .."
	Path string `json:"path,omitempty"`
}

// BackupBucket is a bucket of an object store with the S3 protocol.
type BackupBucket struct {
	// endpoint is an https URL without a path; http is allowed for loopback addresses only.
	// +required
	// +kubebuilder:validation:MinLength=8
	// +kubebuilder:validation:MaxLength=512
	Endpoint string `json:"endpoint,omitempty"`

	// bucket that exists.
	// +required
	// +kubebuilder:validation:MinLength=3
	// +kubebuilder:validation:MaxLength=63
	Bucket string `json:"bucket,omitempty"`

	// region of the bucket; us-east-1 when unset.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Region string `json:"region,omitempty"`

	// prefix of the objects' names, without slashes at its ends.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	Prefix string `json:"prefix,omitempty"`

	// proxy through which the endpoint is reached: http://<host>:<port>. That of the manager's environment is not used.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:Pattern=`^https?://[A-Za-z0-9._:\[\]-]+/?$`
	Proxy string `json:"proxy,omitempty"`

	// credentialsRef names a Secret in the namespace of the control plane with the data keys accessKeyID and
	// secretAccessKey, and, for an endpoint with an authority of its own, ca.crt.
	// +required
	CredentialsRef SecretReference `json:"credentialsRef,omitempty,omitzero"`
}

// LastGoodSnapshotAnnotation on a QuoinControlPlane holds, as JSON, status.backup.lastGood and store, so that a move of
// the objects, which drops status, does not forget which snapshot is the last good one.
const LastGoodSnapshotAnnotation = "controlplane.cluster.x-k8s.io/quoin-last-good-snapshot"

// EtcdBackupStatus is what is known of the snapshots.
// +kubebuilder:validation:MinProperties=1
type EtcdBackupStatus struct {
	// lastGood is the newest snapshot that was stored and verified. It stays when the store has lost it and has older
	// ones only, until a newer one is taken; BackupHealthy is False with the reason SnapshotMissing then.
	// +optional
	LastGood *BackupRecord `json:"lastGood,omitempty"`

	// store is a digest of spec.backup.store and of the cluster: in another one nobody looks for lastGood.
	// +optional
	// +kubebuilder:validation:MinLength=64
	// +kubebuilder:validation:MaxLength=64
	Store string `json:"store,omitempty"`

	// count of the good snapshots in the store.
	// +optional
	Count *int32 `json:"count,omitempty"`

	// requestedTime: a snapshot is wanted that began at this time or later. Set by the rollout that waits for it.
	// +optional
	RequestedTime metav1.Time `json:"requestedTime,omitempty,omitzero"`

	// lastAttemptTime is when the last attempt began.
	// +optional
	LastAttemptTime metav1.Time `json:"lastAttemptTime,omitempty,omitzero"`

	// nextTime is when the schedule wants the next one.
	// +optional
	NextTime metav1.Time `json:"nextTime,omitempty,omitzero"`

	// restore is the snapshot that spec.recovery brings to a host.
	// +optional
	Restore *EtcdRestoreStatus `json:"restore,omitempty"`
}

// Requested is the time from which on a snapshot is wanted; zero when none is, and when a clock that was ahead wrote it
// down, for nothing would answer it before that time comes. Clocks may differ by a minute.
func (s *EtcdBackupStatus) Requested(now time.Time) time.Time {
	if s == nil || s.RequestedTime.Sub(now) > time.Minute {
		return time.Time{}
	}
	return s.RequestedTime.Time
}

// BackupRecord is one snapshot.
type BackupRecord struct {
	// name in the store, below its path or prefix.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Name string `json:"name,omitempty"`

	// time at which the snapshot was begun: what was written before is in it.
	// +required
	Time metav1.Time `json:"time,omitempty,omitzero"`

	// revision of etcd's data in it.
	// +optional
	Revision *int64 `json:"revision,omitempty"`

	// sizeBytes of the snapshot as etcd sent it, before encryption.
	// +optional
	SizeBytes *int64 `json:"sizeBytes,omitempty"`

	// sha256 of what is stored, in hexadecimal.
	// +optional
	// +kubebuilder:validation:MinLength=64
	// +kubebuilder:validation:MaxLength=64
	SHA256 string `json:"sha256,omitempty"`

	// encrypted tells that it was encrypted.
	// +optional
	Encrypted *bool `json:"encrypted,omitempty"`
}

// Reasons of the BackupHealthy condition.
const (
	// SnapshotVerifiedReason: the last snapshot that was due is stored and verified.
	SnapshotVerifiedReason = "SnapshotVerified"
	// NoSnapshotYetReason: none was taken yet; the message says what that waits for.
	NoSnapshotYetReason = "NoSnapshotYet"
	// BackupDirectoryMissingReason: the store is a volume, and the manager has none.
	BackupDirectoryMissingReason = "BackupDirectoryMissing"
	// BackupSecretInvalidReason: the Secret with the store's credentials or with the recipients is missing or not usable.
	BackupSecretInvalidReason = "BackupSecretInvalid"
	// BackupSpecInvalidReason: spec.backup cannot be carried out.
	BackupSpecInvalidReason = "BackupSpecInvalid"
	// BackupStoreUnavailableReason: the store does not answer or refuses.
	BackupStoreUnavailableReason = "StoreUnavailable"
	// EtcdUnavailableReason: no healthy member of etcd could be asked for a snapshot.
	EtcdUnavailableReason = "EtcdUnavailable"
	// SnapshotDamagedReason: what a member sent, or what the store returned, is not a whole snapshot.
	SnapshotDamagedReason = "SnapshotDamaged"
	// NoRoomReason: the snapshot does not fit into the store or the spool directory.
	NoRoomReason = "NoRoom"
	// SnapshotMissingReason: the last good snapshot is not in the store any more, and no newer one is.
	SnapshotMissingReason = "SnapshotMissing"
	// SnapshotFailedReason: it failed otherwise.
	SnapshotFailedReason = "SnapshotFailed"
)
