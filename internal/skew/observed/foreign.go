// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package observed

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/external"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Hosted are the versions of a control plane that tells them itself, having no Machines that would: that of another
// provider, read by Cluster API's contract.
func Hosted(ctx context.Context, reader client.Reader, cluster *clusterv1.Cluster) ([]string, error) {
	ref := cluster.Spec.ControlPlaneRef
	if !ref.IsDefined() || ref.Kind == "QuoinControlPlane" {
		return nil, nil
	}
	found, err := external.GetObjectFromContractVersionedRef(ctx, reader, ref, cluster.Namespace)
	if err != nil {
		return nil, fmt.Errorf("read the control plane of Cluster %s: %w", cluster.Name, err)
	}
	return VersionsOf(found), nil
}

// VersionsOf are the versions that a control plane tells to run, each once, from the oldest: status.versions, or else
// status.version, which is the oldest alone.
func VersionsOf(controlPlane *unstructured.Unstructured) []string {
	var versions []string
	entries, _, _ := unstructured.NestedSlice(controlPlane.Object, "status", "versions")
	for _, entry := range entries {
		if of, is := entry.(map[string]any); is {
			if version, _, _ := unstructured.NestedString(of, "version"); version != "" {
				versions = append(versions, version)
			}
		}
	}
	oldest, _, _ := unstructured.NestedString(controlPlane.Object, "status", "version")
	if len(versions) == 0 && oldest != "" {
		return []string{oldest}
	}
	return versions
}
