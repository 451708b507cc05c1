// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// Pool names the machines that replace each other: "namespace/name" of the Machine's MachineDeployment or control
// plane, or of whatever owns it when no label tells. Empty for a Machine that nothing would replace.
func Pool(machine metav1.Object) string {
	for _, label := range []string{clusterv1.MachineDeploymentNameLabel, clusterv1.MachineControlPlaneNameLabel} {
		if name := machine.GetLabels()[label]; name != "" {
			return machine.GetNamespace() + "/" + name
		}
	}
	if owner := metav1.GetControllerOfNoCopy(machine); owner != nil {
		return machine.GetNamespace() + "/" + owner.Name
	}
	return ""
}
