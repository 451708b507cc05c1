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

// Unmounted names what moves and rests on a volume of the managers that those of the target do not have, by their
// Deployments: snapshots in a volume, and bundles that are sent from a folder.
func Unmounted(
	planes []controlplanev1.QuoinControlPlane, templates []infrav1.QuoinMachineTemplate, managers []appsv1.Deployment,
) []string {
	var missing []string
	for i := range planes {
		backup := planes[i].Spec.Backup
		if backup != nil && backup.Store.Volume != nil && !slices.ContainsFunc(managers, keepsBackups) {
			missing = append(missing, "snapshots of QuoinControlPlane "+planes[i].Name+" (--backup-directory)")
		}
	}
	for i := range templates {
		bundle := templates[i].Spec.Template.Spec.Artifacts.Bundle
		if bundle == nil || bundle.Delivery != infrav1.BundleDeliveryPush || !strings.HasPrefix(bundle.Location, "/") {
			continue
		}
		if !slices.ContainsFunc(managers, func(d appsv1.Deployment) bool { return mounts(d, bundle.Location) }) {
			missing = append(missing, "bundles of QuoinMachineTemplate "+templates[i].Name+" ("+bundle.Location+")")
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
