// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	kubeadmpkg "sigs.k8s.io/cluster-api/controlplane/kubeadm/pkg"

	"github.com/quoin-dev/cluster-api-provider-quoin/controllers/quoincontrolplane/desired"
)

// compare finds out, for each Machine, what of the spec only a new Machine can have. Everything else is propagated.
func (inv *Inventory) compare(now time.Time) (map[string][]string, error) {
	outdated := map[string][]string{}
	for name, machine := range inv.Machines {
		var reasons []string
		if machine.Spec.Version != inv.ControlPlane.Spec.Version {
			// The Cluster's controller recognizes a version change by these words.
			reasons = append(reasons, fmt.Sprintf("Version %s, %s required", machine.Spec.Version,
				inv.ControlPlane.Spec.Version))
		}
		if reason := inv.compareTemplate(machine); reason != "" {
			reasons = append(reasons, reason)
		}
		if reason := inv.compareAge(machine, now); reason != "" {
			reasons = append(reasons, reason)
		}
		same, err := inv.sameConfig(machine)
		if err != nil {
			return nil, fmt.Errorf("comparing the KubeadmConfig of Machine %s: %w", name, err)
		}
		if !same {
			reasons = append(reasons, "KubeadmConfig is not up-to-date")
		}
		outdated[name] = reasons
	}
	return outdated, nil
}

// compareTemplate compares by the template's name: templates do not change.
func (inv *Inventory) compareTemplate(machine *clusterv1.Machine) string {
	infra := inv.QuoinMachines[machine.Name]
	if infra == nil {
		// What cannot be read is not replaced for it.
		return ""
	}
	ref := inv.ControlPlane.Spec.MachineTemplate.Spec.InfrastructureRef
	name, known := infra.Annotations[clusterv1.TemplateClonedFromNameAnnotation]
	kind, knownKind := infra.Annotations[clusterv1.TemplateClonedFromGroupKindAnnotation]
	if !known || !knownKind || name == ref.Name && kind == ref.GroupKind().String() {
		return ""
	}
	return fmt.Sprintf("%s is not up-to-date", machine.Spec.InfrastructureRef.Kind)
}

// sameConfig compares what kubeadm and cloud-init were given with what the spec would give them now. The Machine that
// ran init is compared as if it had joined, and when that differs as what it is: a difference between initConfiguration
// and joinConfiguration alone is no reason to replace it.
func (inv *Inventory) sameConfig(machine *clusterv1.Machine) (bool, error) {
	current := inv.KubeadmConfigs[machine.Name]
	if current == nil {
		return true, nil
	}
	same, err := inv.sameConfigAs(machine, current, true)
	if err != nil || same || current.Spec.JoinConfiguration.ControlPlane != nil {
		return same, err
	}
	return inv.sameConfigAs(machine, current, false)
}

func (inv *Inventory) sameConfigAs(
	machine *clusterv1.Machine, current *bootstrapv1.KubeadmConfig, join bool,
) (bool, error) {
	// Of the Machine's own version: defaults that change with the version are no difference of their own.
	wanted, err := desired.Config(inv.ControlPlane, inv.Cluster.Name, machine.Name, machine.Spec.Version, join)
	if err != nil {
		return false, err
	}
	desired.SpareOlder(inv.ControlPlane, wanted, current)
	wanted, current = kubeadmpkg.PrepareKubeadmConfigsForDiff(wanted, current, join)
	return equality.Semantic.DeepEqual(&wanted.Spec, &current.Spec), nil
}

// compareAge reports whether a Machine has to be replaced for its age: because a person set a time after which none of
// those before it stays, or because its certificates run out.
func (inv *Inventory) compareAge(machine *clusterv1.Machine, now time.Time) string {
	rollout := inv.ControlPlane.Spec.Rollout
	if after := rollout.After; !after.IsZero() && after.Time.Before(now) && machine.CreationTimestamp.Before(&after) {
		return fmt.Sprintf("Made before %s (spec.rollout.after)", after.UTC().Format(time.RFC3339))
	}
	expiry := machine.Status.CertificatesExpiryDate
	if days := rollout.Before.CertificatesExpiryDays; days != nil && !expiry.IsZero() && now.AddDate(0, 0, int(*days)).
		After(expiry.Time) {
		return fmt.Sprintf("Certificates expire at %s, within %d days", expiry.UTC().Format(time.RFC3339), *days)
	}
	return ""
}
