// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package infrastructure

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/Masterminds/semver/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/webhooks"
)

// +kubebuilder:webhook:verbs=create;update,path=/validate-infrastructure-cluster-x-k8s-io-v1alpha1-quoinmachine,mutating=false,failurePolicy=fail,matchPolicy=Equivalent,groups=infrastructure.cluster.x-k8s.io,resources=quoinmachines,versions=v1alpha1,name=validation.quoinmachine.infrastructure.cluster.x-k8s.io,sideEffects=None,admissionReviewVersions=v1

// MachineWebhook validates QuoinMachines.
type MachineWebhook struct {
	webhooks.Deletable[*infrav1.QuoinMachine]
}

var _ admission.Validator[*infrav1.QuoinMachine] = &MachineWebhook{}

func (w *MachineWebhook) setup(mgr ctrl.Manager) error {
	return ctrl.NewWebhookManagedBy(mgr, &infrav1.QuoinMachine{}).WithValidator(w).Complete()
}

// ValidateCreate refuses a selector, a provider ID, versions or a source of artifacts that mean nothing, and hooks that
// are not a user's.
func (w *MachineWebhook) ValidateCreate(_ context.Context, machine *infrav1.QuoinMachine) (admission.Warnings, error) {
	path := field.NewPath("spec")
	reasons := append(validateMachineSpec(path, &machine.Spec), validateArtifacts(path, &machine.Spec)...)
	return artifactWarnings(&machine.Spec), refuseMachine(machine, append(reasons, validateHooks(path, machine)...))
}

// ValidateUpdate refuses what ValidateCreate refuses, to change what the host was chosen and installed by, and
// hooks that come too late.
func (w *MachineWebhook) ValidateUpdate(
	_ context.Context, before, after *infrav1.QuoinMachine,
) (admission.Warnings, error) {
	if webhooks.Unchanged(before.Spec, after.Spec) {
		return nil, nil
	}
	late := validateNoNewHooks(before, after)
	if !after.DeletionTimestamp.IsZero() {
		return nil, refuseMachine(after, late)
	}
	reasons := slices.Concat(late, validateMachineSpec(field.NewPath("spec"), &after.Spec),
		validateHooks(field.NewPath("spec"), after))
	kept, err := validateMachineStays(&before.Spec, &after.Spec)
	if err != nil {
		return nil, err
	}
	return nil, refuseMachine(after, append(reasons, kept...))
}

func refuseMachine(machine *infrav1.QuoinMachine, reasons field.ErrorList) error {
	return webhooks.Refuse(infrav1.GroupVersion, "QuoinMachine", machine.Name, reasons)
}

// quoin://<namespace>/<host>/<claim>
var providerID = regexp.MustCompile(`^quoin://[a-z0-9-]+/[a-z0-9.-]+/[A-Za-z0-9-]+$`)

func validateMachineSpec(path *field.Path, spec *infrav1.QuoinMachineSpec) field.ErrorList {
	var reasons field.ErrorList
	if spec.ProviderID != "" && !providerID.MatchString(spec.ProviderID) {
		reasons = append(reasons, field.Invalid(path.Child("providerID"), spec.ProviderID,
			"leave it empty: it is set to quoin://<namespace>/<host>/<claim> when a host is claimed"))
	}
	if _, err := metav1.LabelSelectorAsSelector(spec.HostSelector); err != nil {
		reasons = append(reasons, field.Invalid(path.Child("hostSelector"), spec.HostSelector, fmt.Sprintf(
			"no host could ever match: %v. Correct the selector, or leave it out to allow every host", err)))
	}
	reasons = append(reasons, validateNamespaces(path.Child("hostNamespaces"), spec.HostNamespaces)...)
	for i, version := range spec.AddonVersions {
		if _, err := semver.StrictNewVersion(strings.TrimPrefix(version, "v")); err != nil ||
			!strings.HasPrefix(version, "v") {
			reasons = append(reasons, field.Invalid(path.Child("addonVersions").Index(i), version,
				"give a whole Kubernetes version, such as v1.36.3"))
		}
	}
	return reasons
}

// validateMachineStays refuses to change what cannot follow. The hosts' namespaces can be changed: a Machine that waits
// has to be able to consent, and one that has its host is not asked again.
func validateMachineStays(before, after *infrav1.QuoinMachineSpec) (field.ErrorList, error) {
	path := field.NewPath("spec")
	var reasons field.ErrorList
	if before.ProviderID != "" && before.ProviderID != after.ProviderID {
		reasons = append(reasons, field.Forbidden(path.Child("providerID"), fmt.Sprintf(
			"the node registered as %s and keeps that name: delete the Machine to get another host", before.ProviderID)))
	}
	for _, frozen := range []struct {
		name          string
		before, after any
	}{
		{"hostSelector", before.HostSelector, after.HostSelector},
		{"artifacts", before.Artifacts, after.Artifacts},
	} {
		changes, err := webhooks.Changes(frozen.before, frozen.after)
		if err != nil {
			return nil, apierrors.NewInternalError(err)
		}
		if len(changes) > 0 {
			reasons = append(reasons, field.Forbidden(path.Child(frozen.name),
				"the host was chosen and installed by it: make a new QuoinMachineTemplate and refer to it, and the Machine is "+
					"replaced; "+
					"add-on images come from the artifacts of the new template before that"))
		}
	}
	return reasons, nil
}
