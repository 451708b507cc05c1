// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoincontrolplane

import (
	"fmt"
	"maps"

	"github.com/blang/semver/v4"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controlplane/kubeadm/pkg/desiredstate"
	"sigs.k8s.io/cluster-api/util/labels/format"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
)

func controllerRef(plane *controlplanev1.QuoinControlPlane) metav1.OwnerReference {
	return *metav1.NewControllerRef(plane, controlplanev1.GroupVersion.WithKind(controlPlaneKind))
}

// makerRef says who made an object for a Machine. It is no controller reference: that will be the Machine's, and until
// then it marks what a creation that was cut off left behind.
func makerRef(plane *controlplanev1.QuoinControlPlane) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: controlplanev1.GroupVersion.String(), Kind: controlPlaneKind, Name: plane.Name, UID: plane.UID}
}

func keyAlgorithm(plane *controlplanev1.QuoinControlPlane) bootstrapv1.EncryptionAlgorithmType {
	if algorithm := plane.Spec.KubeadmConfigSpec.ClusterConfiguration.EncryptionAlgorithm; algorithm != "" {
		return algorithm
	}
	return bootstrapv1.EncryptionAlgorithmRSA2048
}

// fixedLabels are those that no template can change: the Machine's selector, and what finds its parts.
func (s *scope) fixedLabels() map[string]string {
	return map[string]string{
		clusterv1.ClusterNameLabel:         s.cluster.Name,
		clusterv1.MachineControlPlaneLabel: "",
		// A name may be too long for a label's value; then the value is a hash.
		clusterv1.MachineControlPlaneNameLabel: format.MustFormatValue(s.plane.Name),
	}
}

// labels of Machines and of what belongs to them.
func (s *scope) labels() map[string]string {
	result := maps.Clone(s.plane.Spec.MachineTemplate.ObjectMeta.Labels)
	if result == nil {
		result = map[string]string{}
	}
	maps.Copy(result, s.fixedLabels())
	return result
}

func (s *scope) annotations() map[string]string {
	result := maps.Clone(s.plane.Spec.MachineTemplate.ObjectMeta.Annotations)
	if result == nil {
		result = map[string]string{}
	}
	// It is for single Machines; in a template it would hold each of them for ever.
	delete(result, infrav1.HoldClaimAnnotation)
	return result
}

// desiredMachine is the Machine that the spec asks for. Of an existing one, what only a new Machine may get is kept.
func (s *scope) desiredMachine(name string, existing *clusterv1.Machine) *clusterv1.Machine {
	template := s.plane.Spec.MachineTemplate.Spec
	annotations := s.annotations()
	// On every Machine from the start, so that none can be drained before etcd can do without its member, or lose its host
	// before that member was removed.
	annotations[controlplanev1.PreDrainHookAnnotation] = s.holdOwner()
	annotations[controlplanev1.PreTerminateHookAnnotation] = s.holdOwner()
	machine := &clusterv1.Machine{
		TypeMeta: metav1.TypeMeta{APIVersion: clusterv1.GroupVersion.String(), Kind: machineKind},
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: s.plane.Namespace, Labels: s.labels(), Annotations: annotations,
			OwnerReferences: []metav1.OwnerReference{controllerRef(s.plane)},
			// Cluster API's own, which it would add in a look of its own, a second before it does anything else. Always, because
			// what is not applied again is taken away.
			Finalizers: []string{clusterv1.MachineFinalizer},
		},
		Spec: clusterv1.MachineSpec{
			ClusterName:     s.cluster.Name,
			Version:         s.plane.Spec.Version,
			MinReadySeconds: template.MinReadySeconds,
			ReadinessGates:  s.readinessGates(),
			Taints:          template.Taints,
			Deletion: clusterv1.MachineDeletionSpec{
				NodeDrainTimeoutSeconds:        template.Deletion.NodeDrainTimeoutSeconds,
				NodeVolumeDetachTimeoutSeconds: template.Deletion.NodeVolumeDetachTimeoutSeconds,
				NodeDeletionTimeoutSeconds:     template.Deletion.NodeDeletionTimeoutSeconds,
			},
		},
	}
	if existing != nil {
		if replaces, ok := existing.Annotations[controlplanev1.RemediationForAnnotation]; ok {
			// What is not applied again is taken away.
			machine.Annotations[controlplanev1.RemediationForAnnotation] = replaces
		}
		if s.isPrepared(existing) {
			machine.Annotations[infrav1.HoldClaimAnnotation] = ""
		}
		// With the UID an apply can only change this Machine, never make it anew after it is gone.
		machine.UID = existing.UID
		machine.Spec.Version = existing.Spec.Version
		machine.Spec.FailureDomain = existing.Spec.FailureDomain
		machine.Spec.InfrastructureRef = existing.Spec.InfrastructureRef
		machine.Spec.Bootstrap.ConfigRef = existing.Spec.Bootstrap.ConfigRef
	}
	return machine
}

// readinessGates are ours and the user's, each once.
func (s *scope) readinessGates() []clusterv1.MachineReadinessGate {
	var gates []clusterv1.MachineReadinessGate
	known := map[string]bool{}
	add := func(gate clusterv1.MachineReadinessGate) {
		if !known[gate.ConditionType] {
			known[gate.ConditionType] = true
			gates = append(gates, gate)
		}
	}
	for _, condition := range s.machineConditions() {
		add(clusterv1.MachineReadinessGate{ConditionType: condition})
	}
	for _, gate := range s.plane.Spec.MachineTemplate.Spec.ReadinessGates {
		add(gate)
	}
	return gates
}

// machineConditions are the conditions that the control plane sets on each Machine's readiness.
func (s *scope) machineConditions() []string {
	var types []string
	for _, pod := range staticPods {
		if !pod.etcd || s.stackedEtcd() {
			types = append(types, pod.condition)
		}
	}
	if s.stackedEtcd() {
		types = append(types, controlplanev1.MachineEtcdMemberHealthyCondition)
	}
	return types
}

// desiredConfig is the KubeadmConfig that the spec asks for, for a Machine of the given version.
func (s *scope) desiredConfig(name, version string, join bool) (*bootstrapv1.KubeadmConfig, error) {
	spec := s.plane.Spec.KubeadmConfigSpec.DeepCopy()
	if join {
		spec.InitConfiguration = bootstrapv1.InitConfiguration{}
		// Set, also when empty: it tells a join of a control plane from one of a worker, and from an init.
		if spec.JoinConfiguration.ControlPlane == nil {
			spec.JoinConfiguration.ControlPlane = &bootstrapv1.JoinControlPlane{}
		}
	} else {
		spec.JoinConfiguration = bootstrapv1.JoinConfiguration{}
	}
	parsed, err := semver.ParseTolerant(version)
	if err != nil {
		return nil, fmt.Errorf("version %q: %w", version, err)
	}
	// Until 1.36 kubeadm needs a gate so that a control-plane kubelet talks to its own API server (R17).
	desiredstate.DefaultFeatureGates(spec, parsed)
	defaultAPIServer(&spec.ClusterConfiguration.APIServer)
	return &bootstrapv1.KubeadmConfig{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: s.plane.Namespace, Labels: s.fixedLabels(),
			OwnerReferences: []metav1.OwnerReference{makerRef(s.plane)},
		},
		Spec: *spec,
	}, nil
}
