// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/backup"
)

// validateBackup refuses what no snapshot could be taken with. Whether the store and the Secrets are there is found out
// when one is due: they may come later than the control plane.
func validateBackup(
	path *field.Path, spec *controlplanev1.EtcdBackup, kubeadm *bootstrapv1.KubeadmConfigSpec,
) field.ErrorList {
	if spec == nil {
		return nil
	}
	var reasons field.ErrorList
	if kubeadm.ClusterConfiguration.Etcd.External.IsDefined() {
		reasons = append(reasons, field.Forbidden(path,
			"etcd is external: it is not reached through hosts of this control plane, and must be backed up where it runs"))
	}
	if spec.Schedule != "" {
		if _, err := backup.ParseSchedule(spec.Schedule); err != nil {
			reasons = append(reasons, field.Invalid(path.Child("schedule"), spec.Schedule, err.Error()))
		}
	}
	reasons = append(reasons, validateSecretName(path.Child("encryptionKeyRef", "name"), spec.EncryptionKeyRef.Name)...)
	if volume := spec.Store.Volume; volume != nil {
		if err := backup.ValidatePath(volume.Path); err != nil {
			reasons = append(reasons, field.Invalid(path.Child("store", "volume", "path"), volume.Path, err.Error()))
		}
	}
	if bucket := spec.Store.S3; bucket != nil {
		s3 := path.Child("store", "s3")
		if _, err := backup.ValidateEndpoint(bucket.Endpoint); err != nil {
			// The value is left out: somebody may have written a password into it.
			reasons = append(reasons, field.Forbidden(s3.Child("endpoint"), err.Error()))
		}
		if err := backup.ValidateBucket(bucket.Bucket, bucket.Prefix); err != nil {
			reasons = append(reasons, field.Invalid(s3, bucket.Bucket, err.Error()))
		}
		reasons = append(reasons, validateSecretName(s3.Child("credentialsRef", "name"), bucket.CredentialsRef.Name)...)
	}
	return reasons
}

// validateSecretName takes no name for right: whether one is required, the schema says.
func validateSecretName(path *field.Path, name string) field.ErrorList {
	var reasons field.ErrorList
	if name == "" {
		return nil
	}
	for _, why := range validation.IsDNS1123Subdomain(name) {
		reasons = append(reasons, field.Invalid(path, name, why))
	}
	return reasons
}
