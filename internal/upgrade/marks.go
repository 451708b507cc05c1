// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"cmp"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
)

// Mark is the value of an annotation that remembers when something was done for the upgrade. It names the upgrade:
// annotations go along when a manifest is copied, and then nothing was done for what it became.
func Mark(of *quoinv1.ClusterUpgrade, at time.Time) string {
	return at.UTC().Format(time.RFC3339) + " " + of.Name + "/" + of.Spec.Version
}

// markedAt is when the annotation was written, and whether it was for this upgrade.
func markedAt(of *quoinv1.ClusterUpgrade, annotation string) (time.Time, bool) {
	value, _, _ := strings.Cut(of.Annotations[annotation], " ")
	at, err := time.Parse(time.RFC3339, value)
	return at, err == nil && of.Annotations[annotation] == Mark(of, at)
}

// Begun reports whether something may have been touched for the upgrade.
func Begun(of *quoinv1.ClusterUpgrade) bool {
	_, marked := markedAt(of, quoinv1.ClusterUpgradeBegunAnnotation)
	return marked
}

// Order compares two upgrades of one Cluster by which is carried out first: what began first, then what was made first.
func Order(a, b *quoinv1.ClusterUpgrade) int {
	switch begun := Begun(a); {
	case begun == Begun(b):
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	case begun:
		return -1
	}
	return 1
}

// Settled reports whether nothing is left to write for the upgrade, also not of what a move dropped.
func Settled(of *quoinv1.ClusterUpgrade) bool {
	return Completed(of) && of.Status.Versions != nil &&
		!meta.IsStatusConditionTrue(of.Status.Conditions, quoinv1.ClusterUpgradePausedCondition)
}

// Completed reports whether everything was done for the upgrade.
func Completed(of *quoinv1.ClusterUpgrade) bool {
	return !CompletedAt(of).IsZero()
}

// CompletedAt is when everything was done for the upgrade, also where a move made the object anew; zero before that.
func CompletedAt(of *quoinv1.ClusterUpgrade) time.Time {
	at, marked := markedAt(of, quoinv1.ClusterUpgradeCompletedAnnotation)
	if !marked {
		return time.Time{}
	}
	return at
}

// Leaves reports whether the upgrade is deleted, or was moved away: nothing is done for it here any more.
func Leaves(of *quoinv1.ClusterUpgrade) bool {
	_, moved := of.Annotations[clusterctlv1.DeleteForMoveAnnotation]
	return moved || !of.DeletionTimestamp.IsZero()
}

// Ended reports whether nothing more is done for the upgrade here: everything was, or it leaves.
func Ended(of *quoinv1.ClusterUpgrade) bool { return Completed(of) || Leaves(of) }
