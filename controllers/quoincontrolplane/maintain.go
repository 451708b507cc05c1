// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoincontrolplane

import (
	"context"
	"fmt"
	"maps"

	"github.com/blang/semver/v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kerrors "k8s.io/apimachinery/pkg/util/errors"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/collections"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/controllers/quoincontrolplane/desired"
	"github.com/quoin-dev/cluster-api-provider-quoin/controllers/quoincontrolplane/observe"
)

// maintain keeps house by what was observed, and reports whether the reconcile may go on: not when it deleted what a
// creation left behind. It runs after the observation, because only that shows whether a host serves another management
// cluster, and whether kubeadm init has run: before, a Machine that was pre-created would seem to be like any other,
// and be allowed a host. What it changes rests on live reads.
func (r *Reconciler) maintain(ctx context.Context, p *reconciliation) bool {
	o := p.observation
	forgetAttempt(p.controlPlane, o.State.Remediation.Pending)
	if !p.controlPlane.DeletionTimestamp.IsZero() || len(o.State.StaleHosts) > 0 {
		return true
	}
	deleted, err := r.deleteLeftovers(ctx, &o.Inventory)
	if err == nil && deleted && len(p.failures) == 0 {
		return false
	}
	p.failures = append(p.failures, err)
	if !p.cached {
		p.failures = append(p.failures, p.configErr, r.propagate(ctx, &o.Inventory))
	}
	return true
}

// readMachines reads the control plane's Machines and adopts those that nobody owns.
func (r *Reconciler) readMachines(
	ctx context.Context, subject *observe.Subject, cached bool,
) (collections.Machines, error) {
	machines, err := r.sources().Machines(ctx, subject, cached)
	if err != nil {
		return nil, err
	}
	return r.adopt(ctx, subject.ControlPlane, machines, cached)
}

// adopt makes the control plane the owner of Machines that nobody owns, and returns all that it owns then. By a cache
// it adopts none: a Machine may have an owner by now, and the control plane may be gone, whose Machines were orphaned
// on purpose.
func (r *Reconciler) adopt(
	ctx context.Context, controlPlane *controlplanev1.QuoinControlPlane, machines observe.Machines, cached bool,
) (collections.Machines, error) {
	owned := maps.Clone(machines.Owned)
	if cached || len(machines.Unowned) == 0 {
		return owned, nil
	}
	live := &controlplanev1.QuoinControlPlane{}
	if err := r.APIReader.Get(ctx, client.ObjectKeyFromObject(controlPlane), live); err != nil {
		return nil, fmt.Errorf("reading the QuoinControlPlane before it adopts Machines: %w", err)
	}
	if live.UID != controlPlane.UID || !live.DeletionTimestamp.IsZero() {
		return nil, fmt.Errorf("adopting Machines: QuoinControlPlane %s was deleted just now", controlPlane.Name)
	}
	// Either all or none: half of a control plane would be completed by new Machines.
	for _, machine := range machines.Unowned {
		if err := adoptable(live, machine); err != nil {
			return nil, err
		}
	}
	for _, machine := range machines.Unowned {
		adopted := machine.DeepCopy()
		adopted.SetOwnerReferences(util.EnsureOwnerRef(machine.GetOwnerReferences(), desired.ControllerRef(controlPlane)))
		patch := client.MergeFromWithOptions(machine, client.MergeFromWithOptimisticLock{})
		if err := r.Client.Patch(ctx, adopted, patch); err != nil {
			return nil, fmt.Errorf("adopting Machine %s: %w", machine.Name, err)
		}
		owned.Insert(adopted)
	}
	return owned, nil
}

// adoptable says why a Machine cannot be adopted, and what to do; nil when it can.
func adoptable(controlPlane *controlplanev1.QuoinControlPlane, machine *clusterv1.Machine) error {
	refusal := func(why string) error {
		return fmt.Errorf("adopting Machine %s: %s, so remove its label %s or delete it", machine.Name, why,
			clusterv1.MachineControlPlaneLabel)
	}
	if kind := machine.Spec.Bootstrap.ConfigRef.Kind; kind != desired.ConfigKind {
		return refusal(fmt.Sprintf("its bootstrap configuration is of kind %q, not %s", kind, desired.ConfigKind))
	}
	if machine.Spec.Version == "" {
		return nil
	}
	wanted, err := semver.ParseTolerant(controlPlane.Spec.Version)
	if err != nil {
		return fmt.Errorf("version %q: %w", controlPlane.Spec.Version, err)
	}
	has, err := semver.ParseTolerant(machine.Spec.Version)
	if err != nil || !util.IsSupportedVersionSkew(wanted, has) {
		return refusal(fmt.Sprintf("its version %s is more than one minor away from %s", machine.Spec.Version,
			controlPlane.Spec.Version))
	}
	return nil
}

// complete makes the KubeadmConfigs that Machines lack.
func (r *Reconciler) complete(ctx context.Context, inv *observe.Inventory) error {
	if !inv.ControlPlane.DeletionTimestamp.IsZero() {
		return nil
	}
	var failures []error
	for _, machine := range inv.Incomplete() {
		failures = append(failures, r.createConfig(ctx, inv, machine))
	}
	return kerrors.NewAggregate(failures)
}

// createConfig makes the KubeadmConfig of a Machine, as owned by it. Cluster API reconciles each object at most once a
// second, so one that was made before its Machine, or at the same time, would cost two reconciles more.
func (r *Reconciler) createConfig(ctx context.Context, inv *observe.Inventory, machine *clusterv1.Machine) error {
	// A second Machine is never made for an init, whatever is known at the moment: a move of the objects loses the status.
	config, err := desired.Config(inv.ControlPlane, inv.Cluster.Name, machine.Name, machine.Spec.Version,
		inv.Initialized() || len(inv.Machines) > 1)
	if err != nil {
		return err
	}
	config.Name = machine.Spec.Bootstrap.ConfigRef.Name
	config.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(machine,
		clusterv1.GroupVersion.WithKind(desired.MachineKind))}
	if err := r.Client.Create(ctx, config); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating KubeadmConfig %s: %w", config.Name, err)
	}
	return nil
}

// deleteLeftovers deletes what a creation that was cut off left behind. It reports whether there was anything.
func (r *Reconciler) deleteLeftovers(ctx context.Context, inv *observe.Inventory) (bool, error) {
	var failures []error
	for _, object := range inv.Leftovers {
		ctrl.LoggerFrom(ctx).Info("Deleting what was made for a Machine that was never made", "object", object.GetName())
		// Only as it was read: by now a Machine may own it.
		version := object.GetResourceVersion()
		err := r.Client.Delete(ctx, object, client.Preconditions{ResourceVersion: &version})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			failures = append(failures, fmt.Errorf("deleting %s, whose Machine was never made: %w", object.GetName(), err))
		}
	}
	return len(inv.Leftovers) > 0, kerrors.NewAggregate(failures)
}
