// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
)

// validateRecovery refuses what can be known to be no recovery of a lost quorum. What only the hosts know, they refuse.
func validateRecovery(path *field.Path, before, after *controlplanev1.QuoinControlPlane, now time.Time) field.ErrorList {
	wanted := after.Spec.Recovery
	if wanted == nil || equality.Semantic.DeepEqual(before.Spec.Recovery, wanted) {
		return nil
	}
	if after.Spec.KubeadmConfigSpec.ClusterConfiguration.Etcd.External.IsDefined() {
		return field.ErrorList{field.Forbidden(path, "etcd is external: restore it where it runs")}
	}
	var reasons field.ErrorList
	if slices.Contains(wanted.GiveUp, wanted.Machine) {
		reasons = append(reasons, field.Invalid(path.Child("giveUp"), strings.Join(wanted.GiveUp, ", "),
			fmt.Sprintf("Machine %s is the one that survives: name the others", wanted.Machine)))
	}
	if etcd := after.Status.Etcd; etcd != nil && ptr.Deref(etcd.Agreed, false) && now.Sub(etcd.ObservedTime.Time) < membershipMaxAge {
		reasons = append(reasons, field.Forbidden(path, fmt.Sprintf("etcd had a quorum of %d voters at %s, and a recovery throws data away: "+
			"ask for one only while Available is False with the reason QuorumLost, or when etcd has not answered for %s; to replace Machines, annotate "+
			"them with cluster.x-k8s.io/remediate-machine", ptr.Deref(etcd.Voters, 0), etcd.ObservedTime.UTC().Format(time.RFC3339), membershipMaxAge)))
	}
	return reasons
}
