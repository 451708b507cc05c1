// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinmachine

import (
	"context"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
)

// redoEvery is how often a deletion that was refused is asked for again.
const redoEvery = time.Minute

// A deletion that is under way when the objects move does not move with them: the mover copies no deletionTimestamp.
// The Machine would come alive again, and its MachineSet would pick another one. So the deletion is written down as
// soon as it is seen, also while the Cluster is paused, and done again where the Machine has arrived.

// deletionUnderWay reports whether the deletion of the Machine is to be written down: it is, and the mover did not ask
// for it.
func deletionUnderWay(machine *clusterv1.Machine) bool {
	_, moved := machine.Annotations[clusterctlv1.DeleteForMoveAnnotation]
	return !machine.DeletionTimestamp.IsZero() && !moved &&
		machine.Annotations[infrav1.DeletionAnnotation] != string(machine.UID)
}

// deletionLost reports whether the Machine was being deleted when it was copied, and is not any more.
func deletionLost(machine *clusterv1.Machine) bool {
	uid, noted := machine.Annotations[infrav1.DeletionAnnotation]
	return noted && machine.DeletionTimestamp.IsZero() && uid != string(machine.UID)
}

// noteDeletion writes down on the Machine that it is being deleted. A MachineSet that has too many Machines after a
// move then picks the same one.
func (r *Reconciler) noteDeletion(ctx context.Context, v *observation) error {
	if v.machine == nil || !deletionUnderWay(v.machine) {
		return nil
	}
	machine := v.machine.DeepCopy()
	if machine.Annotations == nil {
		machine.Annotations = map[string]string{}
	}
	machine.Annotations[infrav1.DeletionAnnotation] = string(machine.UID)
	if _, set := machine.Annotations[clusterv1.DeleteMachineAnnotation]; !set {
		machine.Annotations[clusterv1.DeleteMachineAnnotation] = ""
	}
	// Exactly the Machine that was read: a mover replaces its annotations just before it takes it away.
	err := r.Client.Patch(ctx, machine, client.MergeFromWithOptions(v.machine, client.MergeFromWithOptimisticLock{}))
	switch {
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		// An event tells what became of it.
		return nil
	case err != nil:
		return fmt.Errorf("writing down the deletion of Machine %s/%s: %w", machine.Namespace, machine.Name, err)
	}
	v.machine = machine
	return nil
}

// redoDeletion deletes a Machine again whose deletion was lost in a move, and returns when to look again; zero when
// there is nothing to do. Admission refuses it while Cluster API would take the Machine for one that never had a Node,
// and may refuse it as any deletion; meanwhile the Machine is one like all others.
func (r *Reconciler) redoDeletion(
	ctx context.Context, quoinMachine *infrav1.QuoinMachine, v *observation,
) (time.Duration, error) {
	if v.machine == nil || !deletionLost(v.machine) {
		return 0, nil
	}
	machine := v.machine
	err := r.Client.Delete(ctx, machine.DeepCopy(), client.Preconditions{UID: &machine.UID})
	switch {
	case apierrors.IsForbidden(err):
		kind, reason := "Warning", "DeletionRefused"
		if strings.Contains(err.Error(), infrav1.DeleteUndrainedAnnotation) { // its Node is not found, as a rule for seconds
			kind, reason = "Normal", "DeletionWaits"
		}
		r.event(quoinMachine, machine, kind, reason,
			"Machine %s was being deleted before it was moved, and cannot be now: %v", machine.Name, err)
		return redoEvery, nil
	case client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err):
		return 0, fmt.Errorf("deleting Machine %s/%s again, whose deletion was lost in a move: %w", machine.Namespace,
			machine.Name, err)
	case err == nil:
		r.event(quoinMachine, machine, "Normal", "DeletionResumed",
			"Machine %s was being deleted before it was moved, and is again", machine.Name)
	}
	// The Machine's event brings us back.
	return redoEvery, nil
}

func (r *Reconciler) event(
	quoinMachine *infrav1.QuoinMachine, about client.Object, kind, reason, format string, args ...any,
) {
	if r.Recorder != nil {
		r.Recorder.Eventf(quoinMachine, about, kind, reason, reason, format, args...)
	}
}
