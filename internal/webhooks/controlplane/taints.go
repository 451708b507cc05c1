// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/feature"
)

// validateTaints refuses what Cluster API's core refuses on each Machine (internal/util/taints/validation.go). A taint
// that only core refused would let no Machine be made or changed any more.
func validateTaints(path *field.Path, taints []clusterv1.MachineTaint) field.ErrorList {
	var reasons field.ErrorList
	if len(taints) > 0 && !feature.Gates.Enabled(feature.MachineTaintPropagation) {
		reasons = append(reasons, field.Forbidden(path, "taints are not allowed to be set when the feature gate "+
			"MachineTaintPropagation is disabled: enable it in this manager and in Cluster API's core manager "+
			"(EXP_MACHINE_TAINT_PROPAGATION=true), or set kubeadmConfigSpec's nodeRegistration.taints"))
	}
	for i, taint := range taints {
		key := path.Index(i).Child("key")
		if why := refuseTaintKey(taint.Key); why != "" {
			reasons = append(reasons, field.Invalid(key, taint.Key, why))
		}
		for _, why := range validation.IsQualifiedName(taint.Key) {
			reasons = append(reasons, field.Invalid(key, taint.Key, why))
		}
	}
	return reasons
}

// refuseTaintKey says to whom a taint belongs that is not for Machines; "" when it is.
func refuseTaintKey(key string) string {
	const outOfService = "node.kubernetes.io/out-of-service"
	switch {
	case key == clusterv1.NodeUninitializedTaint.Key, key == clusterv1.NodeOutdatedRevisionTaint.Key:
		return "taint key is not allowed: Cluster API sets it and takes it off"
	case strings.HasPrefix(key, "node.kubernetes.io/") && key != outOfService:
		return "taint key must not have the prefix node.kubernetes.io/, except for " + outOfService
	case strings.HasPrefix(key, "node.cloudprovider.kubernetes.io/"):
		return "taint key must not have the prefix node.cloudprovider.kubernetes.io/"
	case key == "node-role.kubernetes.io/master":
		return "taint is deprecated since 1.24 and should not be used anymore: set node-role.kubernetes.io/control-plane"
	}
	return ""
}
