// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package rolloutpolicy

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/objectpatch"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/rollout"
)

// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machines,verbs=delete

// departure is what decides when a Machine leaves.
func departure(
	machine *clusterv1.Machine, sets []*clusterv1.MachineSet, domains map[string]string,
) rollout.Departure {
	d := rollout.Departure{Domain: domains[machine.Spec.InfrastructureRef.Name], MarkedByUs: rollout.Marked(machine),
		Condemned: rollout.DeletedFor(machine) != ""}
	mark, marked := machine.Annotations[clusterv1.DeleteMachineAnnotation]
	// The QuoinMachine's controller gives it without a value to whatever is being deleted.
	noted := mark == "" && machine.Annotations[infrav1.DeletionAnnotation] == string(machine.UID)
	d.Marked = marked && !noted
	_, d.Last = machine.Annotations[quoinv1.RolloutLastAnnotation]
	if d.Domain == "" {
		d.Domain = machine.Spec.FailureDomain
	}
	for _, set := range sets {
		if metav1.IsControlledBy(machine, set) {
			d.Set, d.SetMade = set.Name, set.CreationTimestamp.Time
		}
	}
	return d
}

// domainsOf are the failure domains of the hosts, by QuoinMachine.
func domainsOf(machines []infrav1.QuoinMachine) map[string]string {
	domains := map[string]string{}
	for i := range machines {
		domains[machines[i].Name] = machines[i].Status.FailureDomain
	}
	return domains
}

// deletes reports whether the plan deletes a Machine.
func deletes(plan rollout.Result) bool {
	for _, d := range plan.Decisions {
		if d.Action == rollout.Delete {
			return true
		}
	}
	return false
}

// current reports whether what a deletion rests on is as it was read from the cache: a template that was reverted
// meanwhile has nothing deleted. The Machines themselves were read live.
func (r *Reconciler) current(ctx context.Context, seen *observation, read ...client.Object) (bool, error) {
	for _, pool := range seen.pools {
		read = append(read, pool)
	}
	for _, was := range read {
		is := was.DeepCopyObject().(client.Object) //nolint:forcetypeassert // a copy is what it is a copy of
		if err := r.APIReader.Get(ctx, client.ObjectKeyFromObject(was), is); err != nil {
			return false, client.IgnoreNotFound(err)
		}
		if is.GetUID() != was.GetUID() || is.GetResourceVersion() != was.GetResourceVersion() {
			return false, nil
		}
	}
	return true, nil
}

// mark has the Machine's MachineSet delete it first, or not any more. It leaves a person's mark as it is.
func (r *Reconciler) mark(ctx context.Context, machine *clusterv1.Machine, on bool) error {
	before := machine.DeepCopy()
	if !rollout.SetMark(machine, on) {
		return nil
	}
	if err := r.Client.Patch(ctx, machine, objectpatch.OnlyOf(before)); err != nil {
		return fmt.Errorf("mark Machine %s for deletion: %w", client.ObjectKeyFromObject(machine), err)
	}
	return nil
}

// remove deletes exactly the Machine that was read, after it wrote down why: a process that ends in between goes on
// with the same one. A deletion that fails leaves all others of its pool as they are, or more would be missing than may
// be (K-9).
func (r *Reconciler) remove(
	ctx context.Context, policy *quoinv1.RolloutPolicy, machine *clusterv1.Machine, d rollout.Decision,
) error {
	key := client.ObjectKeyFromObject(machine)
	if rollout.DeletedFor(machine) == "" {
		before := machine.DeepCopy()
		metav1.SetMetaDataAnnotation(&machine.ObjectMeta, quoinv1.RolloutDeletedAnnotation,
			rollout.Deletion(machine, r.Clock.Now(), d))
		if err := r.Client.Patch(ctx, machine, objectpatch.OnlyOf(before)); err != nil {
			return fmt.Errorf("write down why Machine %s is deleted: %w", key, err)
		}
	}
	err := r.Client.Delete(ctx, machine.DeepCopy(), client.Preconditions{UID: &machine.UID,
		ResourceVersion: &machine.ResourceVersion})
	switch {
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return client.IgnoreNotFound(err)
	case err != nil:
		r.Recorder.Eventf(policy, machine, corev1.EventTypeWarning, "DeleteFailed", string(d.Action),
			"%s is to be replaced, and nothing else of its MachineDeployment is begun before it is: %v", d.Machine, err)
		return fmt.Errorf("delete Machine %s: %w", key, err)
	}
	return nil
}

// unmark takes our marks and gates off Machines of pools that the plan is not about, because no group selects them any
// more.
func (r *Reconciler) unmark(ctx context.Context, seen *observation, plan rollout.Result) error {
	var failures []error
	about := map[string]bool{}
	for _, progress := range plan.Progress {
		about[progress.Pool] = true
	}
	for _, pool := range seen.state.Pools {
		if about[pool.Name] || plan.Problem != "" {
			continue
		}
		for _, m := range pool.Machines {
			if !m.MarkedByUs && !m.Condemned && !m.Gated || m.Deleting {
				continue
			}
			machine := seen.machines[m.Name]
			err := error(nil)
			if m.Gated { // the condition first, as in release
				err = r.unshow(ctx, machine)
			}
			if err == nil {
				err = r.recordRefusal(machine, rollout.Unmark, r.ungate(ctx, machine))
			}
			failures = append(failures, client.IgnoreNotFound(err))
		}
	}
	return errors.Join(failures...)
}
