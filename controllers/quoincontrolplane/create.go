// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoincontrolplane

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apiserver/pkg/storage/names"
	"k8s.io/utils/ptr"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/external"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/controllers/quoincontrolplane/desired"
	"github.com/quoin-dev/cluster-api-provider-quoin/controllers/quoincontrolplane/observe"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
)

// createMachine makes a Machine that may have a host at once.
func (r *Reconciler) createMachine(
	ctx context.Context, o *observe.Observation, attempt *controlplane.Attempt, join bool,
) (controlplane.Effect, error) {
	name := newName(o.ControlPlane)
	machine := desired.Machine(o.ControlPlane, o.Cluster.Name, name, nil, false)
	if err := place(ctx, o, attempt, machine); err != nil {
		return controlplane.Effect{}, err
	}
	return controlplane.Effect{Made: name, Detail: ": " + name}, r.createObjects(ctx, o, machine, join)
}

func newName(controlPlane *controlplanev1.QuoinControlPlane) string {
	return names.SimpleNameGenerator.GenerateName(controlPlane.Name + "-")
}

// place says where a Machine that may have a host belongs, and whose place it takes.
func place(
	ctx context.Context, o *observe.Observation, attempt *controlplane.Attempt, machine *clusterv1.Machine,
) error {
	if attempt != nil {
		text, err := attemptText(attempt)
		if err != nil {
			return err
		}
		machine.Annotations[controlplanev1.RemediationForAnnotation] = text
	}
	machine.Spec.FailureDomain = o.NextFailureDomain(ctx)
	return nil
}

// createObjects makes a Machine: first the QuoinMachine, which nobody acts on without a Machine, then the Machine. What
// a kill in between leaves behind is removed by deleteLeftovers. The next reconcile completes it by its KubeadmConfig.
func (r *Reconciler) createObjects(
	ctx context.Context, o *observe.Observation, machine *clusterv1.Machine, join bool,
) error {
	if o.Template == nil {
		return errors.New(o.TemplateProblem)
	}
	name := machine.Name
	// What is wrong with it is wrong before anything is made.
	if _, err := desired.Config(o.ControlPlane, o.Cluster.Name, name, machine.Spec.Version, join); err != nil {
		return err
	}
	templateRef := &corev1.ObjectReference{APIVersion: o.Template.GetAPIVersion(), Kind: o.Template.GetKind(),
		Namespace: o.Template.GetNamespace(), Name: o.Template.GetName()}
	infra, err := external.GenerateTemplate(&external.GenerateTemplateInput{
		Template: o.Template.DeepCopy(), TemplateRef: templateRef, Namespace: o.ControlPlane.Namespace, Name: name,
		ClusterName: o.Cluster.Name, OwnerRef: ptr.To(desired.MakerRef(o.ControlPlane)),
		Labels: desired.FixedLabels(o.ControlPlane, o.Cluster.Name),
	})
	if err != nil {
		return fmt.Errorf("making %s %s from its template: %w", o.Template.GetKind(), name, err)
	}
	if err := addRunningAddons(o, infra); err != nil {
		return fmt.Errorf("asking %s %s for add-on images: %w", infra.GetKind(), name, err)
	}
	if err := holdHost(o.ControlPlane, infra); err != nil {
		return fmt.Errorf("holding the host of %s %s: %w", infra.GetKind(), name, err)
	}
	if err := r.Client.Create(ctx, infra); err != nil {
		return fmt.Errorf("creating %s %s: %w", infra.GetKind(), name, err)
	}
	machine.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{
		APIGroup: infra.GroupVersionKind().Group, Kind: infra.GetKind(), Name: name}
	machine.Spec.Bootstrap.ConfigRef = clusterv1.ContractVersionedObjectReference{
		APIGroup: bootstrapv1.GroupVersion.Group, Kind: desired.ConfigKind, Name: name}
	if err := r.apply(ctx, machine, machineManager); err != nil {
		return fmt.Errorf("creating Machine %s: %w", name, err)
	}
	r.noteApplied(&o.Inventory, machine)
	return nil
}

// noteApplied remembers that the Machine is as it is wanted.
func (r *Reconciler) noteApplied(inv *observe.Inventory, machine *clusterv1.Machine) {
	if digest, err := digestOf(desiredMachine(inv, machine)); err == nil {
		r.history.Applied.Set(applied(inv, machine, machineManager), digest)
	}
}

// createConfig makes the KubeadmConfig of a Machine, as owned by it. Cluster API looks at each object at most once a
// second, so one that was made before its Machine, or at the same time, would cost two looks more.
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

// complete makes the KubeadmConfigs of Machines that have none yet.
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
