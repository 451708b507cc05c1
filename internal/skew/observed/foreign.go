// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package observed

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/external"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew"
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

// WithHosted adds to a world without API servers those of a control plane that tells them itself. One that is not
// there, or that nobody let us read, leaves the world as it was, and unread says why.
func WithHosted(
	ctx context.Context, reader client.Reader, cluster *clusterv1.Cluster, world skew.World,
) (found skew.World, unread string, err error) {
	if len(world.APIServers) > 0 {
		return world, "", nil
	}
	versions, err := Hosted(ctx, reader, cluster)
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return world, err.Error(), nil
	}
	world.APIServers = versions
	return world, "", err
}

// annotationsOf are those of the Cluster's control plane, whoever provides it; none where it is not there, and where
// nobody let us read it.
func annotationsOf(ctx context.Context, reader client.Reader, cluster *clusterv1.Cluster) (map[string]string, error) {
	if !cluster.Spec.ControlPlaneRef.IsDefined() {
		return nil, nil
	}
	found, err := external.GetObjectFromContractVersionedRef(ctx, reader, cluster.Spec.ControlPlaneRef, cluster.Namespace)
	switch {
	case apierrors.IsNotFound(err) || apierrors.IsForbidden(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read the control plane of Cluster %s: %w", cluster.Name, err)
	}
	return found.GetAnnotations(), nil
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
