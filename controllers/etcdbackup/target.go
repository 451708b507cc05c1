// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package etcdbackup

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"path"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/secret"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/backup"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/etcd"
)

// Data keys of the Secrets that spec.backup names.
const (
	accessKeyIDKey     = "accessKeyID"
	secretAccessKeyKey = "secretAccessKey"
	authorityKey       = "ca.crt"
	recipientsKey      = "recipients"
	// signingKey is optional.
	signingKey = "signing"
)

// What stays when the spec does not say.
const (
	defaultKeep      = 7
	defaultKeepDaily = 7
)

// target is where snapshots of a control plane go.
type target struct {
	// open opens the store, to be ended with done. A volume may hang as network file systems do: no worker opens it.
	open func() (store backup.Store, done func(), err error)
	// directory in the store; where names the store for a person.
	directory, where string
	// authority of etcd, as metadata has it, and what a client certificate is made with.
	authority     string
	caCert, caKey []byte
	recipients    backup.Recipients
	signing       backup.SigningKeys
	keep          backup.Retention
	// store and the cluster, as a digest; fingerprint of both and the keys: what was seen in another is worth nothing.
	store, fingerprint string
}

// target finds the store that the spec names, without asking it anything.
func (r *Reconciler) target(ctx context.Context, s *reconciliation) (*target, *failure) {
	spec := s.controlPlane.Spec.Backup
	t := &target{directory: path.Join(s.controlPlane.Namespace, s.controlPlane.Name),
		keep: backup.Retention{Last: int(ptr.Deref(spec.Keep, defaultKeep)), Hourly: int(ptr.Deref(spec.KeepHourly, 0)),
			Daily: int(ptr.Deref(spec.KeepDaily, defaultKeepDaily)), Weekly: int(ptr.Deref(spec.KeepWeekly, 0))}}
	if f := r.readAuthority(ctx, s, t); f != nil {
		return nil, f
	}
	if name := spec.EncryptionKeyRef.Name; name != "" {
		data, f := r.secret(ctx, s, name, recipientsKey)
		if f != nil {
			return nil, f
		}
		var err error
		if t.recipients, err = backup.ParseRecipients(data[recipientsKey]); err != nil {
			return nil, failed(controlplanev1.BackupSecretInvalidReason, fmt.Errorf("Secret %s, key %s: %w", name, recipientsKey, err)) //nolint:staticcheck // the name of a kind
		}
		if raw, ok := data[signingKey]; ok {
			if t.signing, err = backup.ParseSigningKeys(raw); err != nil {
				return nil, failed(controlplanev1.BackupSecretInvalidReason, fmt.Errorf("Secret %s, key %s: %w", name, signingKey, err)) //nolint:staticcheck // the name of a kind
			}
		}
	}
	t.store, t.fingerprint = digestOf(spec.Store, t.authority), digestOf(spec.Store, t.authority, t.signing)
	switch {
	case spec.Store.Volume != nil:
		return t, r.openVolume(spec.Store.Volume, t)
	case spec.Store.S3 != nil:
		return t, r.openBucket(ctx, s, spec.Store.S3, t)
	}
	return nil, failed(controlplanev1.BackupSpecInvalidReason, errors.New("spec.backup.store names no store"))
}

func digestOf(parts ...any) string {
	raw, _ := json.Marshal(parts) // none of them can fail
	digest := sha256.Sum256(raw)
	return hex.EncodeToString(digest[:])
}

func (r *Reconciler) openVolume(spec *controlplanev1.BackupVolume, t *target) *failure {
	if r.Directory == "" {
		return failed(controlplanev1.BackupDirectoryMissingReason,
			errors.New("the store is a volume, and the manager was started without "+
				"--backup-directory: mount a volume into the manager's pod and name its path there, or use an object store "+
				"(docs/backups.md)"))
	}
	t.where = "volume " + spec.Path
	t.open = func() (backup.Store, func(), error) {
		volume, err := backup.OpenVolume(r.Directory, spec.Path)
		if err != nil {
			return nil, nil, err
		}
		return volume, func() { _ = volume.Close() }, nil
	}
	return nil
}

func (r *Reconciler) openBucket(
	ctx context.Context, s *reconciliation, spec *controlplanev1.BackupBucket, t *target,
) *failure {
	data, f := r.secret(ctx, s, spec.CredentialsRef.Name, accessKeyIDKey, secretAccessKeyKey)
	if f != nil {
		return f
	}
	bucket, err := backup.OpenS3(backup.Bucket{Endpoint: spec.Endpoint, Name: spec.Bucket, Region: spec.Region,
		Prefix:      spec.Prefix,
		AccessKeyID: string(data[accessKeyIDKey]), SecretAccessKey: string(data[secretAccessKeyKey]),
		Authority: data[authorityKey], Proxy: spec.Proxy, Control: r.Egress.WithServices().Control})
	if err != nil {
		return failed(controlplanev1.BackupSpecInvalidReason, err)
	}
	t.where = "bucket " + spec.Bucket
	t.open = func() (backup.Store, func(), error) { return bucket, func() {}, nil }
	return nil
}

// secret reads a Secret, which must have the keys.
func (r *Reconciler) secret(
	ctx context.Context, s *reconciliation, name string, keys ...string,
) (map[string][]byte, *failure) {
	found := &corev1.Secret{}
	if err := r.Client.Get(ctx, client.ObjectKey{Namespace: s.controlPlane.Namespace, Name: name}, found); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, failed(controlplanev1.BackupSecretInvalidReason, fmt.Errorf("Secret %s does not exist in namespace %s", name, s.controlPlane.Namespace)) //nolint:staticcheck // the name of a kind
		}
		return nil, failed(controlplanev1.SnapshotFailedReason, fmt.Errorf("reading Secret %s: %w", name, err))
	}
	for _, key := range keys {
		if len(found.Data[key]) == 0 {
			return nil, failed(controlplanev1.BackupSecretInvalidReason, fmt.Errorf("Secret %s has no data key %s", name, key)) //nolint:staticcheck // the name of a kind
		}
	}
	return found.Data, nil
}

// readAuthority reads etcd's authority, which lets us in, and whose certificate is what tells this cluster from another
// of its name, wherever its objects are moved to.
func (r *Reconciler) readAuthority(ctx context.Context, s *reconciliation, t *target) *failure {
	authority, err := secret.GetFromNamespacedName(ctx, r.Client, util.ObjectKey(s.cluster), secret.EtcdCA)
	if err != nil {
		return failed(controlplanev1.EtcdUnavailableReason, fmt.Errorf("reading etcd's authority: %w", err))
	}
	t.caCert, t.caKey = authority.Data[secret.TLSCrtDataName], authority.Data[secret.TLSKeyDataName]
	block, _ := pem.Decode(t.caCert)
	if block == nil {
		return failed(controlplanev1.EtcdUnavailableReason, fmt.Errorf("Secret %s holds no certificate", authority.Name)) //nolint:staticcheck // the name of a kind
	}
	digest := sha256.Sum256(block.Bytes)
	t.authority = hex.EncodeToString(digest[:])
	return nil
}

// credentials for the members, made when they are used: a snapshot may wait for its turn.
func (r *Reconciler) credentials(t *target) func() (etcd.Credentials, error) {
	return func() (etcd.Credentials, error) { return etcd.Mint(t.caCert, t.caKey, r.Clock.Now()) }
}
