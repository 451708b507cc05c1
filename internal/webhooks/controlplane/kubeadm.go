// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"fmt"

	"github.com/coredns/corefile-migration/migration"
	"k8s.io/apimachinery/pkg/util/validation/field"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	kcpv1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	bootstrapadmission "sigs.k8s.io/cluster-api/bootstrap/kubeadm/webhooks/admission"
	"sigs.k8s.io/cluster-api/util/container"
	versionutil "sigs.k8s.io/cluster-api/util/version"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/webhooks"
)

// validateKubeadmConfigSpec refuses what the kubeadm bootstrap provider would refuse in each KubeadmConfig, by its
// own rules, and what a host could not carry out.
func validateKubeadmConfigSpec(path *field.Path, spec *bootstrapv1.KubeadmConfigSpec) field.ErrorList {
	if spec.Format == bootstrapv1.Ignition {
		return field.ErrorList{field.NotSupported(path.Child("format"), spec.Format,
			[]bootstrapv1.Format{bootstrapv1.CloudConfig})}
	}
	reasons := bootstrapadmission.Validate(spec, true, path)
	cluster, clusterPath := &spec.ClusterConfiguration, path.Child("clusterConfiguration")
	for _, image := range []struct {
		path *field.Path
		tag  string
	}{
		{clusterPath.Child("dns", "imageTag"), cluster.DNS.ImageTag},
		{clusterPath.Child("etcd", "local", "imageTag"), cluster.Etcd.Local.ImageTag},
	} {
		if !container.ImageTagIsValid(image.tag) {
			reasons = append(reasons, field.Invalid(image.path, image.tag,
				"an image tag holds letters, digits, underscores, dots and dashes only; leave it out to take the one that "+
					"belongs to the version"))
		}
	}
	if tag := cluster.DNS.ImageTag; tag != "" && container.ImageTagIsValid(tag) {
		// The update of CoreDNS compares versions, to migrate its configuration.
		if _, err := versionutil.ParseTolerantImageTag(tag); err != nil {
			reasons = append(reasons, field.Invalid(clusterPath.Child("dns", "imageTag"), tag,
				"give a version of CoreDNS, such as v1.14.2; leave it out to take the one that belongs to the version"))
		}
	}
	for _, arg := range cluster.Etcd.Local.ExtraArgs {
		if arg.Name == "name" {
			// By its name, which stays when another one is put before it: see unlessBefore.
			reasons = append(reasons, field.Forbidden(clusterPath.Child("etcd", "local", "extraArgs").Key(arg.Name),
				"etcd members have the names of their Nodes, by which kubeadm finds them: leave name out"))
		}
	}
	if cluster.Etcd.Local.IsDefined() && cluster.Etcd.External.IsDefined() {
		reasons = append(reasons, field.Forbidden(clusterPath.Child("etcd"),
			"etcd is either local or external: remove one of the two"))
	}
	return reasons
}

// validateDNSFollows refuses versions of CoreDNS between which its configuration cannot be migrated: the update after
// the rollout would fail (validateCoreDNSVersion in Cluster API's kubeadmcontrolplane.go).
func validateDNSFollows(before, after *controlplanev1.QuoinControlPlane) field.ErrorList {
	old := before.Spec.KubeadmConfigSpec.ClusterConfiguration.DNS.ImageTag
	tag := after.Spec.KubeadmConfigSpec.ClusterConfiguration.DNS.ImageTag
	if _, alone := after.Annotations[kcpv1.SkipCoreDNSAnnotation]; alone || old == tag {
		return nil
	}
	from, err := versionutil.ParseTolerantImageTag(old)
	if err != nil {
		return nil // what runs is not known
	}
	to, err := versionutil.ParseTolerantImageTag(tag)
	if err != nil || versionutil.Compare(to, from, versionutil.WithoutPreReleases()) == 0 {
		return nil
	}
	err = migration.ValidUpMigration(versionutil.MajorMinorPatch(from).String(), versionutil.MajorMinorPatch(to).String())
	if err == nil {
		return nil
	}
	return field.ErrorList{field.Forbidden(
		field.NewPath("spec", "kubeadmConfigSpec", "clusterConfiguration", "dns", "imageTag"), fmt.Sprintf(
			"cannot migrate CoreDNS up to '%s' from '%s': %v; leave the tag out to take the one that belongs to the version, "+
				"or update CoreDNS yourself and annotate the control plane with %s", to, from, err, kcpv1.SkipCoreDNSAnnotation))}
}

// validateClusterConfigurationFollows refuses changes of the cluster configuration that a rollout cannot carry out.
// New Machines join with the configuration that lies in the cluster's kubeadm-config ConfigMap; a change gets there
// only by one of the mutators of Cluster API's controlplane/kubeadm/pkg (Workload.Update...InKubeadmConfigMap and
// their like). Everything else in a KubeadmConfigSpec is part of a Machine's own bootstrap data and simply follows.
func validateClusterConfigurationFollows(
	path *field.Path, before, after *bootstrapv1.ClusterConfiguration,
) field.ErrorList {
	var reasons field.ErrorList
	if before.Etcd.External.IsDefined() != after.Etcd.External.IsDefined() {
		reasons = append(reasons, field.Forbidden(path.Child("etcd", "external"),
			"the data of a cluster cannot move between stacked and external etcd: make a new cluster"))
	}
	changes, err := webhooks.Changes(withFollowing(before, after), after)
	if err != nil {
		return append(reasons, field.InternalError(path, err))
	}
	for _, change := range changes {
		reasons = append(reasons, field.Forbidden(path.Child(change), fmt.Sprintf(
			"%s is fixed when the cluster is made, and no later Machine would follow a change: put the old value back, or "+
				"make a new cluster", change)))
	}
	return reasons
}

// withFollowing is before with all the fields of after for which there is a mutator, and dns, which UpdateCoreDNS
// carries into the cluster. A field that a later version of kubeadm adds is frozen until somebody looks at it.
func withFollowing(before, after *bootstrapv1.ClusterConfiguration) *bootstrapv1.ClusterConfiguration {
	followed := before.DeepCopy()
	followed.Etcd = after.Etcd
	followed.APIServer = after.APIServer
	followed.ControllerManager = after.ControllerManager
	followed.Scheduler = after.Scheduler
	followed.DNS = after.DNS
	followed.ImageRepository = after.ImageRepository
	followed.FeatureGates = after.FeatureGates
	followed.CertificateValidityPeriodDays = after.CertificateValidityPeriodDays
	followed.EncryptionAlgorithm = after.EncryptionAlgorithm
	return followed
}
