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
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
)

// validateRecovery refuses what can be known to be no recovery of a lost quorum. What only the hosts know, they refuse.
func validateRecovery(
	path *field.Path, before, after *controlplanev1.QuoinControlPlane, now time.Time,
) field.ErrorList {
	wanted := after.Spec.Recovery
	if wanted == nil || equality.Semantic.DeepEqual(before.Spec.Recovery, wanted) {
		return nil
	}
	if after.Spec.KubeadmConfigSpec.ClusterConfiguration.Etcd.External.IsDefined() {
		return field.ErrorList{field.Forbidden(path, "etcd is external: restore it where it runs")}
	}
	reasons := validateSnapshot(path.Child("snapshot"), after)
	record := controlplane.ReadRecoveryRecord(before.Annotations[controlplanev1.RecoveryAnnotation], wanted.ID)
	// Hosts were given their parts by what it said then, and two might become clusters of one; also when it was taken away
	// meanwhile. What is as recorded is put back.
	over := record.State == controlplane.RecoveryComplete || record.State == controlplane.RecoveryVoid
	switch edits := before.Spec.Recovery != nil && before.Spec.Recovery.ID == wanted.ID; {
	case over && !edits:
		reasons = append(reasons, field.Forbidden(path.Child("id"), fmt.Sprintf("recovery %s is over, and what was done "+
			"under an id is never done again: ask under another id", wanted.ID)))
	case over || record.Edited(wanted):
		reasons = append(reasons, field.Forbidden(path,
			fmt.Sprintf("recovery %s has begun with what it said then: ask under another id", wanted.ID)))
	}
	if record.Superseded() {
		reasons = append(reasons, field.Forbidden(path.Child("id"), fmt.Sprintf("recovery %s came before another one, and "+
			"what was done under an id is never done again: ask under another id", wanted.ID)))
	}
	if slices.Contains(wanted.GiveUp, wanted.Machine) {
		reasons = append(reasons, field.Invalid(path.Child("giveUp"), strings.Join(wanted.GiveUp, ", "),
			fmt.Sprintf("Machine %s is the one that survives: name the others", wanted.Machine)))
	}
	if etcd := after.Status.Etcd; etcd != nil && ptr.Deref(etcd.Agreed, false) &&
		controlplane.ReadingAge(etcd, now) < controlplane.ReadingMaxAge {
		reasons = append(reasons, field.Forbidden(path,
			fmt.Sprintf("etcd had a quorum of %d voters at %s, and a recovery throws data away: "+
				"ask for one only while Available is False with the reason QuorumLost, or, when no member answers at all, %s "+
				"after that reading; to replace Machines, annotate "+
				"them with cluster.x-k8s.io/remediate-machine", ptr.Deref(etcd.Voters, 0), etcd.ObservedTime.UTC().
				Format(time.RFC3339), controlplane.ReadingMaxAge)))
	}
	return reasons
}

// validateSnapshot refuses a snapshot that could not be had. Whether the store has it, whole, is looked at before any
// member is stopped.
func validateSnapshot(path *field.Path, after *controlplanev1.QuoinControlPlane) field.ErrorList {
	wanted := after.Spec.Recovery
	var reasons field.ErrorList
	if wanted.Snapshot != nil && after.Spec.Backup == nil {
		reasons = append(reasons, field.Forbidden(path,
			"spec.backup is not set, so no store is known: set spec.backup.store to where the snapshot is, "+
				"or make the member's data of it by hand (docs/disaster-recovery.md) and leave snapshot out"))
	}
	return reasons
}
