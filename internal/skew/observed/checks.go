// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package observed

import (
	"context"
	"fmt"
	"slices"
	"strings"

	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew"
)

// StoppedBy are Cluster API's checks before it makes a Machine of the template that fail for its version beside a
// control plane of another one, but for those that Skipped has (kubeadmVersionPreflightCheck and
// controlPlaneVersionPreflightCheck in core/reconcilers/machineset/machineset_preflight.go). None fails for what is no
// version.
func StoppedBy(
	cluster *clusterv1.Cluster, template clusterv1.MachineSpec, controlPlane string, skipped []string,
) []string {
	of, err := skew.Parse(template.Version)
	is, unread := skew.Parse(controlPlane)
	if err != nil || unread != nil {
		return nil
	}
	var checks []string
	if kubeadmTemplate(template) && skew.OtherMinor(template.Version, controlPlane) {
		checks = append(checks, string(clusterv1.MachineSetPreflightCheckKubeadmVersionSkew))
	}
	if cluster.Spec.Topology.IsDefined() && of.String() != is.String() {
		checks = append(checks, string(clusterv1.MachineSetPreflightCheckControlPlaneVersionSkew))
	}
	return slices.DeleteFunc(checks, func(check string) bool {
		return slices.Contains(skipped, check) || slices.Contains(skipped, string(clusterv1.MachineSetPreflightCheckAll))
	})
}

// Skipped are those of Cluster API's checks that it leaves out for a MachineSet or MachineDeployment of the template:
// by the annotation of the object itself, or else by that of its bootstrap template where that is a
// KubeadmConfigTemplate; Cluster API asks those of other providers too.
func Skipped(
	ctx context.Context, reader client.Reader, of client.Object, template clusterv1.MachineSpec,
) ([]string, error) {
	skip := of.GetAnnotations()[clusterv1.MachineSetSkipPreflightChecksAnnotation]
	if skip == "" && kubeadmTemplate(template) {
		config, key := &bootstrapv1.KubeadmConfigTemplate{}, client.ObjectKey{Namespace: of.GetNamespace(),
			Name: template.Bootstrap.ConfigRef.Name}
		if err := client.IgnoreNotFound(reader.Get(ctx, key, config)); err != nil {
			return nil, fmt.Errorf("read KubeadmConfigTemplate %s: %w", key, err)
		}
		skip = config.Annotations[clusterv1.MachineSetSkipPreflightChecksAnnotation]
	}
	var checks []string
	for check := range strings.SplitSeq(skip, ",") {
		if check = strings.TrimSpace(check); check != "" {
			checks = append(checks, check)
		}
	}
	return checks, nil
}

func kubeadmTemplate(template clusterv1.MachineSpec) bool {
	ref := template.Bootstrap.ConfigRef
	return ref.Kind == "KubeadmConfigTemplate" && ref.APIGroup == bootstrapv1.GroupVersion.Group
}
