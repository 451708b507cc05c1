// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/Masterminds/semver/v3"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew/observed"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew/plan"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/webhooks"
)

// +kubebuilder:webhook:verbs=create;update,path=/mutate-controlplane-cluster-x-k8s-io-v1alpha1-quoincontrolplane,mutating=true,failurePolicy=fail,matchPolicy=Equivalent,groups=controlplane.cluster.x-k8s.io,resources=quoincontrolplanes,versions=v1alpha1,name=default.quoincontrolplane.controlplane.cluster.x-k8s.io,sideEffects=None,admissionReviewVersions=v1
// +kubebuilder:webhook:verbs=create;update,path=/validate-controlplane-cluster-x-k8s-io-v1alpha1-quoincontrolplane,mutating=false,failurePolicy=fail,matchPolicy=Equivalent,groups=controlplane.cluster.x-k8s.io,resources=quoincontrolplanes,versions=v1alpha1,name=validation.quoincontrolplane.controlplane.cluster.x-k8s.io,sideEffects=None,admissionReviewVersions=v1
// +kubebuilder:rbac:groups="",resources=configmaps,resourceNames=quoin-releases,verbs=get
// +kubebuilder:rbac:groups="",resources=nodes,verbs=list

// ControlPlaneWebhook defaults and validates QuoinControlPlanes.
type ControlPlaneWebhook struct {
	webhooks.Deletable[*controlplanev1.QuoinControlPlane]

	// Reader reads the Cluster as it is, of every namespace. Its Machines may be seconds old: gates ask again.
	Reader client.Reader
	// Workload reads a workload cluster; nothing in it is read when it is nil.
	Workload webhooks.Workload
}

var (
	_ admission.Defaulter[*controlplanev1.QuoinControlPlane] = &ControlPlaneWebhook{}
	_ admission.Validator[*controlplanev1.QuoinControlPlane] = &ControlPlaneWebhook{}
)

func (w *ControlPlaneWebhook) setup(mgr ctrl.Manager) error {
	return ctrl.NewWebhookManagedBy(mgr, &controlplanev1.QuoinControlPlane{}).WithDefaulter(w).WithValidator(w).Complete()
}

// Default makes one replica of none said, and writes a version the way Cluster API does, with a leading v. A version
// that is not one stays as it was typed, so that the refusal shows what was typed.
func (w *ControlPlaneWebhook) Default(_ context.Context, controlPlane *controlplanev1.QuoinControlPlane) error {
	if controlPlane.Spec.Replicas == nil {
		controlPlane.Spec.Replicas = ptr.To[int32](1)
	}
	if _, err := semver.StrictNewVersion(controlPlane.Spec.Version); err == nil {
		controlPlane.Spec.Version = "v" + controlPlane.Spec.Version
	}
	return nil
}

// ValidateCreate refuses a control plane that could not be built. Of one that is moved, what an earlier release
// admitted stays admitted.
func (w *ControlPlaneWebhook) ValidateCreate(
	ctx context.Context, controlPlane *controlplanev1.QuoinControlPlane,
) (admission.Warnings, error) {
	spec := &controlPlane.Spec
	reasons := validateSpec(spec)
	moved, err := webhooks.Moved(ctx, w.Reader, controlPlane, controlPlane.Labels[clusterv1.ClusterNameLabel])
	if err != nil {
		return nil, err
	}
	if !moved {
		reasons = append(reasons, validateMachinesOf(spec)...)
	}
	return nil, refuse(controlPlane, reasons)
}

// ValidateUpdate refuses what ValidateCreate refuses, versions that cannot follow the one before, and changes of the
// kubeadm configuration that nothing would carry into the running cluster.
func (w *ControlPlaneWebhook) ValidateUpdate(
	ctx context.Context, before, after *controlplanev1.QuoinControlPlane,
) (admission.Warnings, error) {
	if !after.DeletionTimestamp.IsZero() {
		return nil, nil
	}
	reasons := validateMembersToRemove(before, after)
	if webhooks.Unchanged(before.Spec, after.Spec) {
		return nil, refuse(after, reasons)
	}
	path := field.NewPath("spec")
	reasons = append(reasons, validateSpec(&after.Spec)...)
	reasons = append(reasons, unlessBefore(validateMachinesOf(&before.Spec), validateMachinesOf(&after.Spec))...)
	reasons = append(reasons, validateRecovery(path.Child("recovery"), before, after, time.Now())...)
	follows := validateVersionFollows(path.Child("version"), before, after.Spec.Version, nil, nil)
	warnings, reached, err := w.validateTarget(ctx, path, before, after, len(follows) > 0)
	if err != nil {
		return nil, err
	}
	if len(reached) > 0 {
		follows = reached
	}
	reasons = append(reasons, follows...)
	reasons = append(reasons, validateClusterConfigurationFollows(
		path.Child("kubeadmConfigSpec", "clusterConfiguration"),
		&before.Spec.KubeadmConfigSpec.ClusterConfiguration, &after.Spec.KubeadmConfigSpec.ClusterConfiguration)...)
	return warnings, refuse(after, append(reasons, validateDNSFollows(before, after)...))
}

// validateTarget compares what kubeadm is to make with what runs, and with what the Cluster's policies ask beside. A
// version that the default policy refuses is not looked at further than for the rules by which others refuse it too.
func (w *ControlPlaneWebhook) validateTarget(
	ctx context.Context, path *field.Path, before, after *controlplanev1.QuoinControlPlane, refused bool,
) (admission.Warnings, field.ErrorList, error) {
	cluster := &clusterv1.Cluster{}
	// An edit that drops the label is one of the same Cluster.
	key := client.ObjectKey{Namespace: after.Namespace,
		Name: cmp.Or(after.Labels[clusterv1.ClusterNameLabel], before.Labels[clusterv1.ClusterNameLabel])}
	previous := observed.KubeadmOf(before.Spec.Version, &before.Spec.KubeadmConfigSpec.ClusterConfiguration)
	next := observed.KubeadmOf(after.Spec.Version, &after.Spec.KubeadmConfigSpec.ClusterConfiguration)
	raised := previous.Version != next.Version
	same := previous.EtcdTag == next.EtcdTag && maps.Equal(previous.FeatureGates, next.FeatureGates)
	// What API servers run already mixes nothing that is not mixed, and is the way back out of a version that is held,
	// whatever is wrong with policies and catalogs.
	back := same && slices.Contains(runningVersions(before), after.Spec.Version)
	if !raised && same || back || key.Name == "" {
		return nil, nil, nil
	}
	if err := w.Reader.Get(ctx, key, cluster); err != nil {
		return nil, nil, client.IgnoreNotFound(err)
	}
	policies, err := skew.PoliciesOf(cluster)
	if err != nil {
		return nil, field.ErrorList{field.Forbidden(path.Child("version"), err.Error())}, nil
	}
	machines, err := observed.Machines(ctx, w.Reader, key)
	if err != nil {
		return nil, nil, err
	}
	world, err := observed.WorldOf(ctx, w.Reader, cluster, policies, machines)
	if err != nil {
		return nil, nil, err
	}
	if skew.AskForEstate(policies) && len(runningVersions(before)) == 0 {
		// What its Machines wait with, because the distribution does not make a cluster of that version, runs nowhere.
		world.APIServers = nil
	}
	if refused {
		return nil, validateVersionFollows(path.Child("version"), before, after.Spec.Version, policies, world.Estate), nil
	}
	var warnings admission.Warnings
	inside, unseen := w.Workload.Inside(ctx, key, world)
	if unseen != "" {
		warnings = append(warnings, unseen)
	}
	inside = observed.KeepProxy(inside, after.Annotations)
	world.Components = append(world.Components, inside...)
	if refused := skew.Summary(next.Judge(policies, world, previous)); refused != "" {
		return nil, field.ErrorList{field.Forbidden(path.Child("version"), refused)}, nil
	}
	if !raised {
		return warnings, nil, nil
	}
	refusal, warning := reach(policies, world, after.Spec.Version, func() plan.State {
		return plan.StateOf(machines).WithAddons(inside)
	})
	if refusal != "" {
		return nil, field.ErrorList{field.Forbidden(path.Child("version"), refusal)}, nil
	}
	return append(warnings, warning...), nil, nil
}

// reach says what keeps a control plane from a version, with what to raise first in its state, or else what to know of
// the version.
func reach(
	policies []skew.Policy, world skew.World, target string, state func() plan.State,
) (refusal string, warnings admission.Warnings) {
	refusal, newest := skew.Distributed(policies, world, target)
	if refusal != "" {
		return refusal, nil
	}
	behind, warning := skew.LeftBehind(policies, world, target)
	if behind != "" {
		return behind + state().Onward(policies, target), nil
	}
	if warning = cmp.Or(warning, newest); warning != "" {
		warnings = admission.Warnings{warning}
	}
	return "", warnings
}

// validateVersionFollows compares a new version with what runs, not with what was asked for last: a version that was
// mistyped can be taken back while nothing runs it, and two edits in a row cannot skip a minor that one edit may not.
// Without policies it is judged by the default one.
func validateVersionFollows(
	path *field.Path, before *controlplanev1.QuoinControlPlane, wanted string, policies []skew.Policy, estate *skew.Estate,
) field.ErrorList {
	if wanted == before.Spec.Version {
		return nil
	}
	if policies == nil {
		policies = skew.DefaultPolicies()
	}
	running := runningVersions(before)
	refused := skew.ControlPlaneSteps(policies, skew.World{APIServers: running, Estate: estate}, wanted)
	if refused == nil {
		return nil
	}
	return field.ErrorList{field.Forbidden(path, refused.Numbered()+waysOn(running, wanted))}
}

// waysOn are the versions after the first, which a refusal for a skipped minor names (", then v1.36, then v1.37.2");
// empty when none lead to the wanted one.
func waysOn(running []string, wanted string) string {
	// A refusal comes with an empty plan, which goes nowhere.
	way, _ := plan.For(plan.Request{State: plan.State{APIServers: running}, Target: wanted,
		Policies: skew.DefaultPolicies()})
	_, rest, _ := strings.Cut(way.Route(), " first")
	return rest
}

// runningVersions are those of the kubelets as last read, which come with the API servers'; of a control plane that
// runs but whose versions are not known, after a move of its objects for one, what was asked for last.
func runningVersions(controlPlane *controlplanev1.QuoinControlPlane) []string {
	var running []string
	for _, entry := range controlPlane.Status.Versions {
		if len(validateVersion(nil, entry.Version)) == 0 {
			running = append(running, entry.Version)
		}
	}
	initialized := ptr.Deref(controlPlane.Status.Initialization.ControlPlaneInitialized, false)
	if len(running) == 0 && initialized && len(validateVersion(nil, controlPlane.Spec.Version)) == 0 {
		return []string{controlPlane.Spec.Version}
	}
	return running
}

func refuse(controlPlane *controlplanev1.QuoinControlPlane, reasons field.ErrorList) error {
	return webhooks.Refuse(controlplanev1.GroupVersion, "QuoinControlPlane", controlPlane.Name, reasons)
}

func validateSpec(spec *controlplanev1.QuoinControlPlaneSpec) field.ErrorList {
	path := field.NewPath("spec")
	template := path.Child("machineTemplate")
	var reasons field.ErrorList
	if spec.Replicas != nil {
		if why := refuseReplicas(*spec.Replicas, spec); why != "" {
			reasons = append(reasons, field.Forbidden(path.Child("replicas"), why))
		}
	}
	reasons = append(reasons, validateVersion(path.Child("version"), spec.Version)...)
	reasons = append(reasons, validateInfrastructureRef(template.Child("spec", "infrastructureRef"),
		spec.MachineTemplate.Spec.InfrastructureRef)...)
	reasons = append(reasons, validateMachineMetadata(template.Child("metadata"), &spec.MachineTemplate.ObjectMeta)...)
	reasons = append(reasons, validateReadinessGates(template.Child("spec", "readinessGates"),
		spec.MachineTemplate.Spec.ReadinessGates)...)
	reasons = append(reasons, validateBackup(path.Child("backup"), spec.Backup, &spec.KubeadmConfigSpec)...)
	return reasons
}

func validateMachinesOf(spec *controlplanev1.QuoinControlPlaneSpec) field.ErrorList {
	return validateMachines(field.NewPath("spec"), &spec.MachineTemplate.Spec.MachinePropagatedSpec, &spec.Rollout,
		&spec.KubeadmConfigSpec)
}

// refuseReplicas tells why a control plane cannot have so many replicas; "" when it can. An even number of etcd
// members survives the loss of no more of them than one less does, and has one more that can be lost.
func refuseReplicas(replicas int32, spec *controlplanev1.QuoinControlPlaneSpec) string {
	switch {
	case replicas <= 0:
		return "a control plane needs at least one replica: delete the Cluster to remove it"
	case replicas%2 == 0 && !spec.KubeadmConfigSpec.ClusterConfiguration.Etcd.External.IsDefined():
		return fmt.Sprintf("%d replicas with stacked etcd survive no more failures than %d do: use an odd number, %d or %d",
			replicas, replicas-1, replicas-1, replicas+1)
	case replicas < 3 && spec.Rollout.Strategy == controlplanev1.RolloutStrategyRemoveFirst:
		return fmt.Sprintf("%d replicas leave nothing to rely on when one is removed before its replacement comes: "+
			"use 3 or more, or set spec.rollout.strategy to Surge or Auto", replicas)
	}
	return ""
}

func validateVersion(path *field.Path, version string) field.ErrorList {
	if _, err := semver.StrictNewVersion(strings.TrimPrefix(version, "v")); err != nil ||
		!strings.HasPrefix(version, "v") {
		return field.ErrorList{field.Invalid(path, version,
			"give a whole Kubernetes version with a leading v and all three numbers, such as v1.36.3")}
	}
	return nil
}

// validateInfrastructureRef allows QuoinMachineTemplates only: the control plane reaches etcd, and holds back the
// release of a host, through the QuoinHosts of its Machines.
func validateInfrastructureRef(path *field.Path, ref clusterv1.ContractVersionedObjectReference) field.ErrorList {
	var reasons field.ErrorList
	if ref.APIGroup != infrav1.GroupVersion.Group {
		reasons = append(reasons, field.NotSupported(path.Child("apiGroup"), ref.APIGroup,
			[]string{infrav1.GroupVersion.Group}))
	}
	if ref.Kind != "QuoinMachineTemplate" {
		reasons = append(reasons, field.NotSupported(path.Child("kind"), ref.Kind, []string{"QuoinMachineTemplate"}))
	}
	if ref.Name == "" {
		reasons = append(reasons, field.Required(path.Child("name"),
			"name the QuoinMachineTemplate that Machines are made from"))
	}
	return reasons
}

// mostReadinessGates is what the API allows a Machine, less those that the control plane adds: one for each static pod
// and one for the etcd member.
const mostReadinessGates = 32 - 5

// validateReadinessGates keeps the room on a Machine that the control plane's own gates need. Without it no Machine
// could be written any more.
func validateReadinessGates(path *field.Path, gates []clusterv1.MachineReadinessGate) field.ErrorList {
	if len(gates) > mostReadinessGates {
		return field.ErrorList{field.TooMany(path, len(gates), mostReadinessGates)}
	}
	return nil
}

// validateMachineMetadata refuses hooks in a template: they would come back each time their owner removes them.
func validateMachineMetadata(path *field.Path, metadata *clusterv1.ObjectMeta) field.ErrorList {
	reasons := metadata.Validate(path)
	for annotation := range metadata.Annotations {
		if strings.HasPrefix(annotation, clusterv1.PreDrainDeleteHookAnnotationPrefix) ||
			strings.HasPrefix(annotation, clusterv1.PreTerminateDeleteHookAnnotationPrefix) {
			reasons = append(reasons, field.Forbidden(path.Child("annotations").Key(annotation),
				"a deletion hook in a template comes back each time it is removed, so that no Machine could ever go: set it on "+
					"Machines"))
		}
	}
	return reasons
}
