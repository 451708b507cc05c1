// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package rolloutpolicy

import (
	"context"
	"fmt"
	"slices"

	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew/observed"
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
	if _, err := skew.Parse(spec.Version); err != nil {
		return err.Error()
	}
	for i := range all {
		if _, is := all[i].Labels[clusterv1.MachineControlPlaneLabel]; !is {
			continue
		}
		if skew.OtherMinor(all[i].Spec.Version, spec.Version) {
			return fmt.Sprintf("kubeadm of %s does not join a control plane of %s", spec.Version, all[i].Spec.Version)
		}
	}
	return ""
}

// skewed says why Cluster API makes no Machine of the MachineSet, beside API servers of another version; empty when it
// does, or when that is not known. Its flag --machineset-preflight-checks is not known here, by default all checks are
// made.
func skewed(
	ctx context.Context, reader client.Reader, cluster *clusterv1.Cluster, pool *clusterv1.MachineDeployment,
	set *clusterv1.MachineSet, runs []string,
) (string, error) {
	if set == nil || len(runs) == 0 {
		return "", nil
	}
	spec := set.Spec.Template.Spec
	makes := func(skipped []string) bool {
		return slices.ContainsFunc(runs, func(version string) bool {
			return len(observed.StoppedBy(cluster, spec, version, skipped)) == 0
		})
	}
	if makes(nil) {
		return "", nil
	}
	skipped, err := observed.Skipped(ctx, reader, set, spec)
	if err != nil || makes(skipped) {
		return "", err
	}
	wayOut := "give it that version"
	if _, owned := pool.Labels[clusterv1.ClusterTopologyOwnedLabel]; owned {
		wayOut = "its topology gives it that version when others are done, unless its upgrade is deferred or held there"
	}
	return fmt.Sprintf("MachineDeployment %s is of %s and the control plane of %s, beside which Cluster API makes no "+
		"such Machine: %s", pool.Name, spec.Version, runs[0], wayOut), nil
}
