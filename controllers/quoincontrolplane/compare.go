// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoincontrolplane

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	kubeadmpkg "sigs.k8s.io/cluster-api/controlplane/kubeadm/pkg"

	"github.com/quoin-dev/cluster-api-provider-quoin/controllers/quoincontrolplane/desired"
)

// compare finds out, for each Machine, what of the spec only a new Machine can have. Everything else is propagated.
func (s *scope) compare() error {
	s.outdated = map[string][]string{}
	now := s.clock.Now()
	for name, machine := range s.machines {
		var reasons []string
		if machine.Spec.Version != s.plane.Spec.Version {
			// The Cluster's controller recognizes a version change by these words.
			reasons = append(reasons, fmt.Sprintf("Version %s, %s required", machine.Spec.Version, s.plane.Spec.Version))
		}
		if reason := s.compareTemplate(machine); reason != "" {
			reasons = append(reasons, reason)
		}
		if reason := s.compareAge(machine, now); reason != "" {
			reasons = append(reasons, reason)
		}
		same, err := s.sameConfig(machine)
		if err != nil {
			return fmt.Errorf("comparing the KubeadmConfig of Machine %s: %w", name, err)
		}
		if !same {
			reasons = append(reasons, "KubeadmConfig is not up-to-date")
		}
		s.outdated[name] = reasons
	}
	return nil
}

// compareTemplate compares by the template's name: templates do not change.
func (s *scope) compareTemplate(machine *clusterv1.Machine) string {
	infra := s.infra[machine.Name]
	if infra == nil {
		// What cannot be read is not replaced for it.
		return ""
	}
	ref := s.plane.Spec.MachineTemplate.Spec.InfrastructureRef
	name, known := infra.Annotations[clusterv1.TemplateClonedFromNameAnnotation]
	kind, knownKind := infra.Annotations[clusterv1.TemplateClonedFromGroupKindAnnotation]
	if !known || !knownKind || name == ref.Name && kind == ref.GroupKind().String() {
		return ""
	}
	return fmt.Sprintf("%s is not up-to-date", machine.Spec.InfrastructureRef.Kind)
}

// sameConfig compares what kubeadm and cloud-init were told with what the spec would tell them now. The Machine that
// ran init is compared as if it had joined, and when that differs as what it is: a difference between initConfiguration
// and joinConfiguration alone is no reason to replace it.
func (s *scope) sameConfig(machine *clusterv1.Machine) (bool, error) {
	current := s.configs[machine.Name]
	if current == nil {
		return true, nil
	}
	same, err := s.sameConfigAs(machine, current, true)
	if err != nil || same || current.Spec.JoinConfiguration.ControlPlane != nil {
		return same, err
	}
	return s.sameConfigAs(machine, current, false)
}

func (s *scope) sameConfigAs(machine *clusterv1.Machine, current *bootstrapv1.KubeadmConfig, join bool) (bool, error) {
	// Of the Machine's own version: defaults that change with the version are no difference of their own.
	wanted, err := desired.Config(s.plane, s.cluster.Name, machine.Name, machine.Spec.Version, join)
	if err != nil {
		return false, err
	}
	desired.SpareOlder(s.plane, wanted, current)
	wanted, current = kubeadmpkg.PrepareKubeadmConfigsForDiff(wanted, current, join)
	return equality.Semantic.DeepEqual(&wanted.Spec, &current.Spec), nil
}
