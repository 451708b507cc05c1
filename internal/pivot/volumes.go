// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package pivot

import (
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
)

// Volumes says what is missing of what moves and rests on a volume of the managers, by the Deployments of those of the
// target: snapshots in a volume, and bundles that are sent from a folder. Snapshots that are there stay in the source's
// volume, which goes with it, unless both sides have the same one; nobody can see that from here.
func Volumes(
	planes []controlplanev1.QuoinControlPlane, templates []infrav1.QuoinMachineTemplate, managers []appsv1.Deployment,
) []string {
	var missing []string
	for i := range planes {
		backup := planes[i].Spec.Backup
		switch {
		case backup == nil || backup.Store.Volume == nil:
		case !slices.ContainsFunc(managers, keepsBackups):
			missing = append(missing, "its managers have no volume for snapshots of QuoinControlPlane "+planes[i].Name+
				" (--backup-directory)")
		default:
			missing = append(missing, "snapshots of QuoinControlPlane "+planes[i].Name+" until now stay in the source's "+
				"volume: unless both sides have one, copy them, or make one on the target before the source goes")
		}
	}
	for i := range templates {
		bundle := templates[i].Spec.Template.Spec.Artifacts.Bundle
		if bundle == nil || bundle.Delivery != infrav1.BundleDeliveryPush || !strings.HasPrefix(bundle.Location, "/") {
			continue
		}
		if !slices.ContainsFunc(managers, func(d appsv1.Deployment) bool { return mounts(d, bundle.Location) }) {
			missing = append(missing, "its managers have no volume for bundles of QuoinMachineTemplate "+
				templates[i].Name+" ("+bundle.Location+")")
		}
	}
	return missing
}

func keepsBackups(manager appsv1.Deployment) bool {
	for _, container := range manager.Spec.Template.Spec.Containers {
		for _, arg := range container.Args {
			if directory, ok := strings.CutPrefix(arg, "--backup-directory="); ok && mounts(manager, directory) {
				return true
			}
		}
	}
	return false
}

// mounts reports whether a path of the manager lies in a volume.
func mounts(manager appsv1.Deployment, path string) bool {
	for _, container := range manager.Spec.Template.Spec.Containers {
		for _, mount := range container.VolumeMounts {
			if strings.HasPrefix(path+"/", strings.TrimSuffix(mount.MountPath, "/")+"/") {
				return true
			}
		}
	}
	return false
}
