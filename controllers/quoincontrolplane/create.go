// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoincontrolplane

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/storage/names"
	"k8s.io/utils/ptr"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/external"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/controllers/quoincontrolplane/desired"
	"github.com/quoin-dev/cluster-api-provider-quoin/controllers/quoincontrolplane/observe"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
)

// createMachine makes a Machine that may have a host at once.
func (r *Reconciler) createMachine(
	ctx context.Context, o *observe.Observation, attempt *controlplane.Attempt, step controlplane.Step,
) (controlplane.Effect, error) {
	name := newName(o.ControlPlane)
	machine := desired.Machine(o.ControlPlane, o.Cluster.Name, name, nil, false)
	if err := place(machine, attempt, step.FailureDomain); err != nil {
		return controlplane.Effect{}, err
	}
	join := step.Kind == controlplane.CreateMachine
	return controlplane.Effect{Made: name, Detail: ": " + name}, r.createObjects(ctx, o, machine, join)
}

func newName(controlPlane *controlplanev1.QuoinControlPlane) string {
	return names.SimpleNameGenerator.GenerateName(controlPlane.Name + "-")
}

// place says where a Machine that may have a host belongs, and whose place it takes.
func place(machine *clusterv1.Machine, attempt *controlplane.Attempt, domain string) error {
	if attempt != nil {
		text, err := json.Marshal(attempt)
		if err != nil {
			return err
		}
		machine.Annotations[controlplanev1.RemediationForAnnotation] = string(text)
	}
	machine.Spec.FailureDomain = domain
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
	if err := addHostHook(o.ControlPlane, infra); err != nil {
		return fmt.Errorf("adding our hook to %s %s: %w", infra.GetKind(), name, err)
	}
	machine.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{
		APIGroup: infra.GroupVersionKind().Group, Kind: infra.GetKind(), Name: name}
	machine.Spec.Bootstrap.ConfigRef = clusterv1.ContractVersionedObjectReference{
		APIGroup: bootstrapv1.GroupVersion.Group, Kind: desired.ConfigKind, Name: name}
	// A Machine that is refused would leave a QuoinMachine behind each time.
	if err := r.apply(ctx, machine.DeepCopy(), machineManager, client.DryRunAll); err != nil {
		return fmt.Errorf("asking whether Machine %s may be created: %w", name, err)
	}
	if err := r.Client.Create(ctx, infra); err != nil {
		return fmt.Errorf("creating %s %s: %w", infra.GetKind(), name, err)
	}
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

// A Machine that is pre-created carries infrav1.HoldClaimAnnotation from its creation. Cluster API gives it all that it
// needs, but no host is claimed for it, and it has no failure domain. To allow it a host is one write of the Machine,
// which takes the annotation off and says where it belongs: whoever sees the one sees the other.

// preCreateMachine makes a Machine before it may have a host.
func (r *Reconciler) preCreateMachine(
	ctx context.Context, o *observe.Observation, step controlplane.Step,
) (controlplane.Effect, error) {
	machine := desired.Machine(o.ControlPlane, o.Cluster.Name, newName(o.ControlPlane), nil, true)
	if err := r.createObjects(ctx, o, machine, true); err != nil {
		return controlplane.Effect{}, err
	}
	r.history.PreCreation.Note(o.ControlPlane.UID, o.Machines[step.Machine].UID, r.Clock.Now(), true)
	return controlplane.Effect{Detail: ": " + machine.Name}, nil
}

// postpone goes on without a Machine that could not be pre-created. Nothing depends on it: what was awaited before
// still is, and what is wrong is reported where it delays something.
func (r *Reconciler) postpone(ctx context.Context, o *observe.Observation, step controlplane.Step, err error) {
	ctrl.LoggerFrom(ctx).Info(step.Message + ", which failed: " + err.Error())
	if machine := o.Machines[step.Machine]; machine != nil {
		r.history.PreCreation.Note(o.ControlPlane.UID, machine.UID, r.Clock.Now(), false)
	}
}

// allowHostClaim lets a pre-created Machine have a host, and returns it as it is then. By a patch and no apply: whoever
// else may own the annotation, it goes.
func (r *Reconciler) allowHostClaim(
	ctx context.Context, o *observe.Observation, attempt *controlplane.Attempt, step controlplane.Step,
) (*clusterv1.Machine, error) {
	machine := o.Machines[step.Machine]
	allowed := machine.DeepCopy()
	delete(allowed.Annotations, infrav1.HoldClaimAnnotation)
	if err := place(allowed, attempt, step.FailureDomain); err != nil {
		return nil, err
	}
	if err := r.Client.Patch(ctx, allowed, client.MergeFrom(machine)); err != nil {
		return nil, fmt.Errorf("allowing Machine %s a host: %w", machine.Name, err)
	}
	r.noteApplied(&o.Inventory, allowed)
	return allowed, nil
}
