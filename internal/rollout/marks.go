// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
)

// mark begins the value of Cluster API's delete-machine annotation that is ours. Cluster API takes any value. It is
// ours by its value and not by another annotation, so that who writes it anew, as the autoscaler does, makes it theirs.
// It names the Machine for people to see, and is ours whatever it names: clusterctl move gives Machines other UIDs. In
// templates it is refused.
const mark = "quoin.cluster.x-k8s.io/rollout "

// IsMark reports whether the value of a delete-machine annotation is a rollout's.
func IsMark(value string) bool { return strings.HasPrefix(value, mark) }

// Marked reports whether a rollout has the Machine's MachineSet delete it first.
func Marked(machine *clusterv1.Machine) bool {
	return IsMark(machine.Annotations[clusterv1.DeleteMachineAnnotation])
}

// SetMark has the Machine's MachineSet delete it before others, or takes that back with what was written down about its
// deletion, and reports whether that changes anything. The mark of anybody else stays.
func SetMark(machine *clusterv1.Machine, on bool) (changed bool) {
	_, marked := machine.Annotations[clusterv1.DeleteMachineAnnotation]
	switch {
	case on && marked:
		return false
	case on:
		metav1.SetMetaDataAnnotation(&machine.ObjectMeta, clusterv1.DeleteMachineAnnotation, mark+string(machine.UID))
		return true
	}
	if Marked(machine) {
		delete(machine.Annotations, clusterv1.DeleteMachineAnnotation)
		changed = true
	}
	if DeletedFor(machine) != "" {
		delete(machine.Annotations, quoinv1.RolloutDeletedAnnotation)
		changed = true
	}
	return changed
}

// Deletion is the value of the annotation that says why a rollout deletes the Machine.
func Deletion(machine *clusterv1.Machine, now time.Time, d Decision) string {
	return fmt.Sprintf("%s %s %s: %s", now.UTC().Format(time.RFC3339), machine.UID, d.Reason, d.Message)
}

// DeletedSince is since when a rollout deletes the Machine, as it is written down there; zero when none does.
func DeletedSince(machine *clusterv1.Machine) time.Time {
	at, _, _ := strings.Cut(machine.Annotations[quoinv1.RolloutDeletedAnnotation], " ")
	since, err := time.Parse(time.RFC3339, at)
	if err != nil || DeletedFor(machine) == "" {
		return time.Time{}
	}
	return since
}

// DeletedFor is why a rollout deletes the Machine, as it is written down there; empty when none does. It names its
// Machine, so that one in a template says nothing.
func DeletedFor(machine *clusterv1.Machine) Reason {
	words := strings.SplitN(machine.Annotations[quoinv1.RolloutDeletedAnnotation], " ", 3)
	if len(words) < 3 || words[1] != string(machine.UID) {
		return ""
	}
	reason, _, _ := strings.Cut(words[2], ":")
	return Reason(reason)
}
