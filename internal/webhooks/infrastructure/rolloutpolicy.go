// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package infrastructure

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/rollout"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/webhooks"
)

// +kubebuilder:webhook:verbs=create;update,path=/validate-quoin-cluster-x-k8s-io-v1alpha1-rolloutpolicy,mutating=false,failurePolicy=fail,matchPolicy=Equivalent,groups=quoin.cluster.x-k8s.io,resources=rolloutpolicies,versions=v1alpha1,name=validation.rolloutpolicy.quoin.cluster.x-k8s.io,sideEffects=None,admissionReviewVersions=v1

// RolloutPolicyWebhook validates RolloutPolicies.
type RolloutPolicyWebhook struct {
	webhooks.Deletable[*quoinv1.RolloutPolicy]

	// Reader reads the Cluster, its MachineDeployments and other policies.
	Reader client.Reader
}

var _ admission.Validator[*quoinv1.RolloutPolicy] = &RolloutPolicyWebhook{}

func (w *RolloutPolicyWebhook) setup(mgr ctrl.Manager) error {
	return ctrl.NewWebhookManagedBy(mgr, &quoinv1.RolloutPolicy{}).WithValidator(w).Complete()
}

// ValidateCreate refuses a policy that cannot be kept: windows that never open, limits and selectors that mean nothing,
// a group for the control plane, and an order that the Cluster's topology does not leave to it.
func (w *RolloutPolicyWebhook) ValidateCreate(
	ctx context.Context, policy *quoinv1.RolloutPolicy,
) (admission.Warnings, error) {
	moved, err := webhooks.Moved(ctx, w.Reader, policy, policy.Spec.ClusterName)
	if err != nil || moved {
		return nil, err
	}
	return w.validate(ctx, policy, nil)
}

// ValidateUpdate refuses what ValidateCreate refuses, but for what is so already: a former release admitted it, and who
// suspends a group need not mend its strategy.
func (w *RolloutPolicyWebhook) ValidateUpdate(
	ctx context.Context, before, after *quoinv1.RolloutPolicy,
) (admission.Warnings, error) {
	if !after.DeletionTimestamp.IsZero() || webhooks.Unchanged(before.Spec, after.Spec) {
		return nil, nil
	}
	return w.validate(ctx, after, before)
}

// newReasons are those of the reasons that are not known already.
func newReasons(reasons, known field.ErrorList) field.ErrorList {
	return slices.DeleteFunc(reasons, func(reason *field.Error) bool {
		return slices.ContainsFunc(known, func(one *field.Error) bool { return one.Error() == reason.Error() })
	})
}

// validate a policy; before is what it was, nil for a new one.
func (w *RolloutPolicyWebhook) validate(
	ctx context.Context, policy, before *quoinv1.RolloutPolicy,
) (admission.Warnings, error) {
	var known field.ErrorList
	if before != nil {
		known = validateRollout(&before.Spec)
	}
	if reasons := newReasons(validateRollout(&policy.Spec), known); len(reasons) > 0 {
		return nil, refuseRollout(policy, reasons)
	}
	warnings, err := w.others(ctx, policy)
	if err != nil {
		return nil, err
	}
	cluster := &clusterv1.Cluster{}
	key := client.ObjectKey{Namespace: policy.Namespace, Name: policy.Spec.ClusterName}
	switch err := w.Reader.Get(ctx, key, cluster); {
	case apierrors.IsNotFound(err):
		return warnings, nil // it may be made after its policy
	case err != nil:
		return nil, apierrors.NewInternalError(fmt.Errorf("read Cluster %s: %w", key, err))
	}
	pools := &clusterv1.MachineDeploymentList{}
	if err := w.Reader.List(ctx, pools, client.InNamespace(policy.Namespace)); err != nil {
		return nil, apierrors.NewInternalError(fmt.Errorf("list the MachineDeployments of Cluster %s: %w", key, err))
	}
	pools.Items = slices.DeleteFunc(pools.Items, func(pool clusterv1.MachineDeployment) bool {
		return !rollout.Leads(cluster.Name, &pool)
	})
	if before != nil {
		known = validateRolloutOf(before, cluster, pools.Items)
	}
	warnings = slices.Concat(warnings, impatient(policy, pools.Items), withheld(policy, cluster, pools.Items))
	return warnings, refuseRollout(policy, newReasons(validateRolloutOf(policy, cluster, pools.Items), known))
}

// others warns of a policy that another one of the Cluster keeps from holding.
func (w *RolloutPolicyWebhook) others(
	ctx context.Context, policy *quoinv1.RolloutPolicy,
) (admission.Warnings, error) {
	policies := &quoinv1.RolloutPolicyList{}
	if err := w.Reader.List(ctx, policies, client.InNamespace(policy.Namespace)); err != nil {
		return nil, apierrors.NewInternalError(fmt.Errorf("list the RolloutPolicies of %s: %w", policy.Namespace, err))
	}
	holds := rollout.Of(policies.Items, policy.Spec.ClusterName)
	if holds == nil || holds.Name == policy.Name {
		return nil, nil
	}
	return admission.Warnings{fmt.Sprintf("RolloutPolicy %s of Cluster %s is older and holds alone: put the groups of "+
		"both into one of them and delete the other", holds.Name, policy.Spec.ClusterName)}, nil
}

// validateRollout says what of a policy cannot be kept whatever its Cluster is.
func validateRollout(spec *quoinv1.RolloutPolicySpec) field.ErrorList {
	var reasons field.ErrorList
	path := field.NewPath("spec")
	for i, window := range spec.Windows {
		if err := rollout.Window(window); err != nil {
			reasons = append(reasons, field.Invalid(path.Child("windows").Index(i), window.Start, err.Error()))
		}
	}
	reasons = append(reasons, validateStrategy(path.Child("strategy"), spec.Strategy)...)
	for i, group := range spec.Groups {
		at := path.Child("groups").Index(i)
		if group.Strategy != nil { // with what it inherits
			reasons = append(reasons, validateStrategy(at.Child("strategy"), rollout.StrategyOf(spec, i))...)
		}
		if group.MachineDeployments.Labels == nil {
			continue
		}
		labels := at.Child("machineDeployments", "labels")
		selector, err := metav1.LabelSelectorAsSelector(group.MachineDeployments.Labels)
		if err != nil {
			reasons = append(reasons, field.Invalid(labels, group.Name, err.Error()))
			continue
		}
		requirements, _ := selector.Requirements()
		for _, r := range requirements {
			if r.Key() == clusterv1.MachineControlPlaneLabel && !slices.Contains(
				[]selection.Operator{selection.DoesNotExist, selection.NotIn, selection.NotEquals}, r.Operator()) {
				reasons = append(reasons, field.Forbidden(labels, ofControlPlane("what label "+r.Key()+" is on")))
			}
		}
	}
	return reasons
}

func validateStrategy(path *field.Path, strategy *quoinv1.RolloutStrategy) field.ErrorList {
	if strategy == nil {
		return nil
	}
	limits, err := rollout.Resolve(*strategy, 1)
	switch {
	case err != nil:
		return field.ErrorList{field.Invalid(path, strategy.MaxSurge.String(), err.Error())}
	case limits == (rollout.Limits{}):
		return field.ErrorList{field.Invalid(path, "0", "maxSurge and maxUnavailable cannot both be 0, or nothing could "+
			"ever be replaced: give one of them a number above 0")}
	case limits.Surge == 0 && strategy.MinAvailable != nil && strategy.MinAvailable.String() == "100%":
		return field.ErrorList{field.Invalid(path, "100%", "minAvailable 100% leaves no Machine to replace where maxSurge "+
			"is 0: lower it, or give maxSurge a number above 0")}
	}
	return nil
}

// validateRolloutOf says what of a policy cannot be kept for its Cluster.
func validateRolloutOf(
	policy *quoinv1.RolloutPolicy, cluster *clusterv1.Cluster, all []clusterv1.MachineDeployment,
) field.ErrorList {
	var reasons field.ErrorList
	var pools []rollout.Pool
	controlPlane := cluster.Spec.ControlPlaneRef.Name
	for i := range all {
		pools = append(pools, rollout.Pool{Name: all[i].Name, Labels: all[i].Labels})
		if all[i].Name == controlPlane {
			controlPlane = "" // a MachineDeployment may have that name as well
		}
	}
	path := field.NewPath("spec", "groups")
	for i, group := range policy.Spec.Groups {
		if controlPlane != "" && slices.Contains(group.MachineDeployments.Names, controlPlane) {
			reasons = append(reasons, field.Forbidden(path.Index(i).Child("machineDeployments", "names"),
				ofControlPlane(cluster.Spec.ControlPlaneRef.Kind+" "+controlPlane)))
		}
	}
	why, err := rollout.Misordered(pools, &policy.Spec, rollout.TopologyOf(cluster, all))
	if err != nil {
		why = err.Error()
	}
	if why != "" {
		reasons = append(reasons, field.Forbidden(path, why))
	}
	return reasons
}

// provisionTime is the annotation of a MachineDeployment by which the cluster autoscaler waits longer for its Nodes.
const provisionTime = "cluster.x-k8s.io/autoscaling-options-maxnodeprovisiontime"

// impatient warns of MachineDeployments whose autoscaler takes a Machine that is held for one that failed, and lowers
// replicas.
func impatient(policy *quoinv1.RolloutPolicy, pools []clusterv1.MachineDeployment) admission.Warnings {
	var warnings admission.Warnings
	for i := range pools {
		_, scaled := pools[i].Annotations[clusterv1.AutoscalerMaxSizeAnnotation]
		_, patient := pools[i].Annotations[provisionTime]
		place, err := rollout.Select(&policy.Spec, pools[i].Name, pools[i].Labels)
		if scaled && !patient && err == nil && place >= 0 {
			pool := rollout.Pool{Name: pools[i].Name, Labels: pools[i].Labels}
			warnings = append(warnings, fmt.Sprintf("the cluster autoscaler gives up Machines of MachineDeployment %s that are "+
				"held for long, and lowers replicas: put %s with a time longer than any hold, such as 168h, into %s",
				pool.Name, provisionTime, pool.AnnotationsOf()))
		}
	}
	return warnings
}

// withheld warns of groups that are suspended while their topology counts them among those that it upgrades at once.
func withheld(
	policy *quoinv1.RolloutPolicy, cluster *clusterv1.Cluster, pools []clusterv1.MachineDeployment,
) admission.Warnings {
	var warnings admission.Warnings
	topology := rollout.TopologyOf(cluster, pools)
	for i := range pools {
		place, err := rollout.Select(&policy.Spec, pools[i].Name, pools[i].Labels)
		if err != nil || place < 0 || len(policy.Spec.Groups) == 0 || !ptr.Deref(policy.Spec.Groups[place].Suspend, false) {
			continue
		}
		if why := topology.Withholds(pools[i].Name); why != "" {
			warnings = append(warnings, fmt.Sprintf("MachineDeployment %s is suspended, and others go on%s", pools[i].Name, why))
		}
	}
	return warnings
}

// ofControlPlane refuses a group for the control plane, which would inherit what workers may do.
func ofControlPlane(what string) string {
	return what + " is the control plane: it comes before all workers by itself, and surges by one Machine at most, as " +
		"spec.rollout.strategy of the QuoinControlPlane says. Leave it out"
}

func refuseRollout(policy *quoinv1.RolloutPolicy, reasons field.ErrorList) error {
	return webhooks.Refuse(quoinv1.GroupVersion, "RolloutPolicy", policy.Name, reasons)
}
