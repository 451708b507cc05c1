// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package desired says what Machines, their KubeadmConfigs and their metadata are to be like, from the control plane's
// spec alone.
package desired

import (
	"cmp"
	"fmt"
	"maps"

	"github.com/blang/semver/v4"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controlplane/kubeadm/pkg/desiredstate"
	"sigs.k8s.io/cluster-api/util/labels/format"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
)

// Kinds of the objects that a control plane makes or is.
const (
	ControlPlaneKind = "QuoinControlPlane"
	MachineKind      = "Machine"
	ConfigKind       = "KubeadmConfig"
)

// ControllerRef makes the control plane the controller of an object.
func ControllerRef(controlPlane *controlplanev1.QuoinControlPlane) metav1.OwnerReference {
	return *metav1.NewControllerRef(controlPlane, controlplanev1.GroupVersion.WithKind(ControlPlaneKind))
}

// MakerRef says who made an object for a Machine. It is no controller reference: that will be the Machine's, and until
// then it marks what a creation that was cut off left behind.
func MakerRef(controlPlane *controlplanev1.QuoinControlPlane) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: controlplanev1.GroupVersion.String(), Kind: ControlPlaneKind,
		Name: controlPlane.Name, UID: controlPlane.UID}
}

// KeyAlgorithm is that of the cluster's keys.
func KeyAlgorithm(controlPlane *controlplanev1.QuoinControlPlane) bootstrapv1.EncryptionAlgorithmType {
	return cmp.Or(controlPlane.Spec.KubeadmConfigSpec.ClusterConfiguration.EncryptionAlgorithm,
		bootstrapv1.EncryptionAlgorithmRSA2048)
}

// FixedLabels are those that no template can change: the Machine's selector, and what finds its parts.
func FixedLabels(controlPlane *controlplanev1.QuoinControlPlane, cluster string) map[string]string {
	return map[string]string{
		clusterv1.ClusterNameLabel:         cluster,
		clusterv1.MachineControlPlaneLabel: "",
		// A name may be too long for a label's value; then the value is a hash.
		clusterv1.MachineControlPlaneNameLabel: format.MustFormatValue(controlPlane.Name),
	}
}

// Labels of Machines and of what belongs to them.
func Labels(controlPlane *controlplanev1.QuoinControlPlane, cluster string) map[string]string {
	result := map[string]string{}
	maps.Copy(result, controlPlane.Spec.MachineTemplate.ObjectMeta.Labels)
	maps.Copy(result, FixedLabels(controlPlane, cluster))
	return result
}

func annotations(controlPlane *controlplanev1.QuoinControlPlane) map[string]string {
	result := map[string]string{}
	maps.Copy(result, controlPlane.Spec.MachineTemplate.ObjectMeta.Annotations)
	// It is for single Machines; in a template it would hold each of them for ever.
	delete(result, infrav1.HoldClaimAnnotation)
	return result
}

// Machine is the Machine that the spec asks for. Of an existing one, what only a new Machine may get is kept. One that
// is preCreated claims no host yet.
func Machine(
	controlPlane *controlplanev1.QuoinControlPlane, cluster, name string, existing *clusterv1.Machine, preCreated bool,
) *clusterv1.Machine {
	template := controlPlane.Spec.MachineTemplate.Spec
	annotations := annotations(controlPlane)
	// On every Machine from the start, so that none can be drained before etcd can do without its member, or lose its host
	// before that member was removed.
	annotations[controlplanev1.PreDrainHookAnnotation] = HookOwner(controlPlane)
	annotations[controlplanev1.PreTerminateHookAnnotation] = HookOwner(controlPlane)
	machine := &clusterv1.Machine{
		TypeMeta: metav1.TypeMeta{APIVersion: clusterv1.GroupVersion.String(), Kind: MachineKind},
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: controlPlane.Namespace, Labels: Labels(controlPlane, cluster), Annotations: annotations,
			OwnerReferences: []metav1.OwnerReference{ControllerRef(controlPlane)},
			// Cluster API's own, which it would add in a reconcile of its own, a second before it does anything else. Always,
			// because what is not applied again is taken away.
			Finalizers: []string{clusterv1.MachineFinalizer},
		},
		Spec: clusterv1.MachineSpec{
			ClusterName:     cluster,
			Version:         controlPlane.Spec.Version,
			MinReadySeconds: template.MinReadySeconds,
			ReadinessGates:  readinessGates(controlPlane),
			Taints:          template.Taints,
			Deletion: clusterv1.MachineDeletionSpec{
				NodeDrainTimeoutSeconds:        template.Deletion.NodeDrainTimeoutSeconds,
				NodeVolumeDetachTimeoutSeconds: template.Deletion.NodeVolumeDetachTimeoutSeconds,
				NodeDeletionTimeoutSeconds:     template.Deletion.NodeDeletionTimeoutSeconds,
			},
		},
	}
	if preCreated {
		machine.Annotations[infrav1.HoldClaimAnnotation] = ""
	}
	if existing != nil {
		if replaces, ok := existing.Annotations[controlplanev1.RemediationForAnnotation]; ok {
			// What is not applied again is taken away.
			machine.Annotations[controlplanev1.RemediationForAnnotation] = replaces
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
func readinessGates(controlPlane *controlplanev1.QuoinControlPlane) []clusterv1.MachineReadinessGate {
	var gates []clusterv1.MachineReadinessGate
	known := map[string]bool{}
	add := func(gate clusterv1.MachineReadinessGate) {
		if !known[gate.ConditionType] {
			known[gate.ConditionType] = true
			gates = append(gates, gate)
		}
	}
	for _, condition := range MachineConditions(controlPlane) {
		add(clusterv1.MachineReadinessGate{ConditionType: condition})
	}
	for _, gate := range controlPlane.Spec.MachineTemplate.Spec.ReadinessGates {
		add(gate)
	}
	return gates
}

// MachineConditions are the conditions that the control plane sets on each Machine's readiness.
func MachineConditions(controlPlane *controlplanev1.QuoinControlPlane) []string {
	var types []string
	for _, pod := range StaticPods {
		if !pod.Etcd || StackedEtcd(controlPlane) {
			types = append(types, pod.Condition)
		}
	}
	if StackedEtcd(controlPlane) {
		types = append(types, controlplanev1.MachineEtcdMemberHealthyCondition)
	}
	return types
}

// Config is the KubeadmConfig that the spec asks for, for a Machine of the given version.
func Config(
	controlPlane *controlplanev1.QuoinControlPlane, cluster, name, version string, join bool,
) (*bootstrapv1.KubeadmConfig, error) {
	spec := controlPlane.Spec.KubeadmConfigSpec.DeepCopy()
	if join {
		spec.InitConfiguration = bootstrapv1.InitConfiguration{}
		// Set, also when empty: it distinguishes a join of a control plane from one of a worker, and from an init.
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
	DefaultAPIServer(&spec.ClusterConfiguration.APIServer)
	return &bootstrapv1.KubeadmConfig{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: controlPlane.Namespace, Labels: FixedLabels(controlPlane, cluster),
			OwnerReferences: []metav1.OwnerReference{MakerRef(controlPlane)},
		},
		Spec: *spec,
	}, nil
}

// Metadata is an object with nothing but the labels and annotations that the template gives.
func Metadata(
	controlPlane *controlplanev1.QuoinControlPlane, cluster string, object client.Object, kind schema.GroupVersionKind,
) client.Object {
	desired := &unstructured.Unstructured{}
	desired.SetGroupVersionKind(kind)
	desired.SetNamespace(object.GetNamespace())
	desired.SetName(object.GetName())
	desired.SetUID(object.GetUID())
	desired.SetLabels(Labels(controlPlane, cluster))
	desired.SetAnnotations(annotations(controlPlane))
	return desired
}

// StackedEtcd reports whether etcd runs on the control plane's own Machines.
func StackedEtcd(controlPlane *controlplanev1.QuoinControlPlane) bool {
	return !controlPlane.Spec.KubeadmConfigSpec.ClusterConfiguration.Etcd.External.IsDefined()
}

// HookOwner is the value of the control plane's deletion hooks.
func HookOwner(controlPlane *controlplanev1.QuoinControlPlane) string {
	return ControlPlaneKind + "/" + controlPlane.Name
}

// StaticPods of a control-plane node, and the condition of each.
var StaticPods = []struct {
	Component, Condition string
	// Etcd: it is there only with stacked etcd.
	Etcd bool
}{
	{"kube-apiserver", controlplanev1.MachineAPIServerPodHealthyCondition, false},
	{"kube-controller-manager", controlplanev1.MachineControllerManagerPodHealthyCondition, false},
	{"kube-scheduler", controlplanev1.MachineSchedulerPodHealthyCondition, false},
	{"etcd", controlplanev1.MachineEtcdPodHealthyCondition, true},
}
