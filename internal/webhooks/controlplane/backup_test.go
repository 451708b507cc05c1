// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"testing"

	. "github.com/onsi/gomega"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
)

func backedUp(edit func(*controlplanev1.EtcdBackup)) change {
	return func(c *controlplanev1.QuoinControlPlane) {
		c.Spec.Backup = &controlplanev1.EtcdBackup{Schedule: "0 */6 * * *", Store: controlplanev1.BackupStore{
			Volume: &controlplanev1.BackupVolume{Path: "prod"}}}
		edit(c.Spec.Backup)
	}
}

func bucket(edit func(*controlplanev1.BackupBucket)) change {
	return backedUp(func(b *controlplanev1.EtcdBackup) {
		b.Store = controlplanev1.BackupStore{S3: &controlplanev1.BackupBucket{Endpoint: "https://s3.example.test",
			Bucket: "snapshots",
			Prefix: "prod/etcd", CredentialsRef: controlplanev1.SecretReference{Name: "bucket"}}}
		edit(b.Store.S3)
	})
}

func TestBackup(t *testing.T) {
	for name, test := range map[string]struct {
		change change
		want   string
	}{
		"a volume":    {backedUp(func(*controlplanev1.EtcdBackup) {}), ""},
		"a bucket":    {bucket(func(*controlplanev1.BackupBucket) {}), ""},
		"no schedule": {backedUp(func(b *controlplanev1.EtcdBackup) { b.Schedule = "" }), ""},
		"words": {backedUp(func(b *controlplanev1.EtcdBackup) {
			b.Schedule = "daily"
		}), "five fields of cron"},
		"a descriptor": {backedUp(func(b *controlplanev1.EtcdBackup) {
			b.Schedule = "@every 1s"
		}), "five fields of cron"},
		"seconds": {backedUp(func(b *controlplanev1.EtcdBackup) {
			b.Schedule = "0 0 0 * * *"
		}), "five fields of cron"},
		"a time zone": {backedUp(func(b *controlplanev1.EtcdBackup) {
			b.Schedule = "TZ=UTC 0 0 * * *"
		}), "times are UTC"},
		"half a time zone":    {backedUp(func(b *controlplanev1.EtcdBackup) { b.Schedule = "TZ=" }), "times are UTC"},
		"a day that never is": {backedUp(func(b *controlplanev1.EtcdBackup) { b.Schedule = "0 0 30 2 *" }), "never comes"},
		"a path out": {backedUp(func(b *controlplanev1.EtcdBackup) {
			b.Store.Volume.Path = "a/../../b"
		}), "spec.backup.store.volume.path"},
		"an absolute path": {backedUp(func(b *controlplanev1.EtcdBackup) {
			b.Store.Volume.Path = "/srv"
		}), "no leading slash"},
		"a hidden path": {backedUp(func(b *controlplanev1.EtcdBackup) {
			b.Store.Volume.Path = ".snapshots"
		}), "no empty or hidden element"},
		"a Secret of no name": {backedUp(func(b *controlplanev1.EtcdBackup) {
			b.EncryptionKeyRef.Name = "A/B"
		}), "spec.backup.encryptionKeyRef.name"},
		"no TLS": {bucket(func(b *controlplanev1.BackupBucket) {
			b.Endpoint = "http://s3.example.test"
		}), "loopback addresses only"},
		"no TLS on loopback": {bucket(func(b *controlplanev1.BackupBucket) { b.Endpoint = "http://127.0.0.1:9000" }), ""},
		"a path in an endpoint": {bucket(func(b *controlplanev1.BackupBucket) {
			b.Endpoint = "https://s3.example.test/snapshots"
		}), "must not have a path"},
		"a bucket of no name": {bucket(func(b *controlplanev1.BackupBucket) {
			b.Bucket = "Snap_shots"
		}), "spec.backup.store.s3"},
		"a prefix out": {bucket(func(b *controlplanev1.BackupBucket) { b.Prefix = "../a" }), "prefix"},
		"credentials of no name": {bucket(func(b *controlplanev1.BackupBucket) {
			b.CredentialsRef.Name = "a b"
		}), "credentialsRef"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			_, err := (&ControlPlaneWebhook{}).ValidateCreate(t.Context(), controlPlane(test.change))
			if test.want == "" {
				g.Expect(err).NotTo(HaveOccurred())
				return
			}
			g.Expect(err).To(MatchError(ContainSubstring(test.want)))
		})
	}
	t.Run("of an external etcd", func(t *testing.T) {
		g := NewWithT(t)
		_, err := (&ControlPlaneWebhook{}).ValidateCreate(t.Context(),
			controlPlane(externalEtcd, backedUp(func(*controlplanev1.EtcdBackup) {})))
		g.Expect(err).To(MatchError(ContainSubstring("etcd is external")))
	})
	t.Run("repeats no password", func(t *testing.T) {
		g := NewWithT(t)
		_, err := (&ControlPlaneWebhook{}).ValidateCreate(t.Context(),
			controlPlane(bucket(func(b *controlplanev1.BackupBucket) {
				b.Endpoint = "https://me:geheim@s3.example.test"
			})))
		g.Expect(err).To(MatchError(ContainSubstring("must not carry credentials")))
		g.Expect(err.Error()).NotTo(ContainSubstring("geheim"))
	})
}
