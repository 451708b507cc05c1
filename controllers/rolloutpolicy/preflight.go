// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package rolloutpolicy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/blang/semver/v4"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"
)

// unmade says why no Machine can be made of the MachineSet's templates from here; empty when one can. Cluster API asks
// for much of this before it makes one (machineset_preflight.go).
func unmade(set *clusterv1.MachineSet, all []clusterv1.Machine) string {
	spec := set.Spec.Template.Spec
	config := spec.Bootstrap.ConfigRef
	switch {
	case !set.DeletionTimestamp.IsZero() || annotations.HasPaused(set):
		return fmt.Sprintf("MachineSet %s is paused or deleted", set.Name)
	case set.Annotations[clusterv1.DisableMachineCreateAnnotation] == "true":
		return fmt.Sprintf("MachineSet %s has the annotation %s", set.Name, clusterv1.DisableMachineCreateAnnotation)
	case config.IsDefined() && (config.APIGroup != bootstrapv1.GroupVersion.Group ||
		config.Kind != configKind+clusterv1.TemplateSuffix):
		return fmt.Sprintf("it bootstraps by a %s, and only by a KubeadmConfigTemplate one is made here", config.Kind)
	}
	of, err := semver.ParseTolerant(spec.Version)
	if err != nil {
		return fmt.Sprintf("version %q cannot be read", spec.Version)
	}
	for i := range all {
		if _, is := all[i].Labels[clusterv1.MachineControlPlaneLabel]; !is {
			continue
		}
		version, err := semver.ParseTolerant(all[i].Spec.Version)
		if err == nil && !sameMinor(version, of) {
			return fmt.Sprintf("kubeadm of %s does not join a control plane of %s", spec.Version, all[i].Spec.Version)
		}
	}
	return ""
}

// skewed says why Cluster API makes no Machine of the MachineSet, beside API servers of another version
// (kubeadmVersionPreflightCheck and controlPlaneVersionPreflightCheck in machineset_preflight.go); empty when it does,
// or when that is not known.
func skewed(
	cluster *clusterv1.Cluster, pool *clusterv1.MachineDeployment, set *clusterv1.MachineSet, runs []string,
) string {
	if set == nil || len(runs) == 0 {
		return ""
	}
	spec := set.Spec.Template.Spec
	checks := func(check clusterv1.MachineSetPreflightCheck) bool {
		skips := strings.Split(set.Annotations[clusterv1.MachineSetSkipPreflightChecksAnnotation], ",")
		return !slices.ContainsFunc(skips, func(skip string) bool {
			skip = strings.TrimSpace(skip)
			return skip == string(check) || skip == string(clusterv1.MachineSetPreflightCheckAll)
		})
	}
	exactly := cluster.Spec.Topology.IsDefined() && checks(clusterv1.MachineSetPreflightCheckControlPlaneVersionSkew)
	kubeadm := spec.Bootstrap.ConfigRef.Kind == configKind+clusterv1.TemplateSuffix &&
		checks(clusterv1.MachineSetPreflightCheckKubeadmVersionSkew)
	of, err := semver.ParseTolerant(spec.Version)
	for _, version := range runs {
		is, unread := semver.ParseTolerant(version)
		if err != nil || unread != nil || (!exactly || is.EQ(of)) && (!kubeadm || sameMinor(is, of)) {
			return ""
		}
	}
	wayOut := "give it that version"
	if _, owned := pool.Labels[clusterv1.ClusterTopologyOwnedLabel]; owned {
		wayOut = "its topology gives it that version when others are done, unless its upgrade is deferred or held there"
	}
	return fmt.Sprintf("MachineDeployment %s is of %s and the control plane of %s, beside which Cluster API makes no "+
		"such Machine: %s", pool.Name, spec.Version, runs[0], wayOut)
}

// sameMinor reports whether kubeadm of one of the versions joins a control plane of the other.
func sameMinor(a, b semver.Version) bool { return a.Major == b.Major && a.Minor == b.Minor }
