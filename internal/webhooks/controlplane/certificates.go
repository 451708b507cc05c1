// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"cmp"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	"sigs.k8s.io/cluster-api/util/secret"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
)

// validateMachines refuses what no Machine can be made of, and what would make each outdated as soon as it is made.
// What an earlier release admitted goes along with its objects, and is not refused again when something else is edited.
func validateMachines(
	path *field.Path, machine *controlplanev1.MachinePropagatedSpec, rollout *controlplanev1.QuoinControlPlaneRollout,
	kubeadm *bootstrapv1.KubeadmConfigSpec,
) field.ErrorList {
	reasons := validateTaints(path.Child("machineTemplate", "spec", "taints"), machine.Taints)
	reasons = append(reasons, validateCertificateDays(path, rollout, &kubeadm.ClusterConfiguration)...)
	return append(reasons, validateKubeadmConfigSpec(path.Child("kubeadmConfigSpec"), kubeadm)...)
}

// unlessBefore leaves out the reasons that held before: who edits something else did not bring them about.
func unlessBefore(before, after field.ErrorList) field.ErrorList {
	return slices.DeleteFunc(after, func(reason *field.Error) bool {
		return slices.ContainsFunc(before, func(old *field.Error) bool { return old.Error() == reason.Error() })
	})
}

// validateCertificateDays refuses certificates that outlive their CA, and a rollout that begins before they are made.
// Where the days are not set, kubeadm makes certificates for a year, which the schema keeps the rollout below.
func validateCertificateDays(
	path *field.Path, rollout *controlplanev1.QuoinControlPlaneRollout, cluster *bootstrapv1.ClusterConfiguration,
) field.ErrorList {
	valid := cluster.CertificateValidityPeriodDays
	if valid == 0 {
		return nil
	}
	var reasons field.ErrorList
	if most := cmp.Or(cluster.CACertificateValidityPeriodDays, secret.DefaultCACertificatesExpiryDays); valid > most {
		reasons = append(reasons, field.Invalid(
			path.Child("kubeadmConfigSpec", "clusterConfiguration", "certificateValidityPeriodDays"), valid, fmt.Sprintf(
				"certificates do not outlive their CA: set it to caCertificateValidityPeriodDays (%d) or less", most)))
	}
	if days := rollout.Before.CertificatesExpiryDays; days != nil && *days >= valid {
		reasons = append(reasons, field.Invalid(path.Child("rollout", "before", "certificatesExpiryDays"), *days,
			fmt.Sprintf("each new Machine would be replaced at once, for ever: set it to less than "+
				"certificateValidityPeriodDays (%d)", valid)))
	}
	return reasons
}
