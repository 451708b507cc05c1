// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
)

func template(changes ...func(*controlplanev1.QuoinControlPlaneTemplate)) *controlplanev1.QuoinControlPlaneTemplate {
	t := &controlplanev1.QuoinControlPlaneTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "t"}}
	for _, apply := range changes {
		apply(t)
	}
	return t
}

func TestControlPlaneTemplateSpec(t *testing.T) {
	for name, c := range map[string]struct {
		change  func(*controlplanev1.QuoinControlPlaneTemplate)
		refusal string
	}{
		"empty": {func(*controlplanev1.QuoinControlPlaneTemplate) {}, ""},
		"ignition": {func(t *controlplanev1.QuoinControlPlaneTemplate) {
			t.Spec.Template.Spec.KubeadmConfigSpec.Format = bootstrapv1.Ignition
		}, "spec.template.spec.kubeadmConfigSpec.format"},
		"a hook": {func(t *controlplanev1.QuoinControlPlaneTemplate) {
			t.Spec.Template.Spec.MachineTemplate.ObjectMeta.Annotations = map[string]string{
				controlplanev1.PreTerminateHookAnnotation: ""}
		}, "spec.template.spec.machineTemplate.metadata.annotations"},
		"a hook, of a template that was moved": {func(t *controlplanev1.QuoinControlPlaneTemplate) {
			t.OwnerReferences = []metav1.OwnerReference{{Kind: "ClusterClass", Name: "c"}}
			t.Spec.Template.Spec.MachineTemplate.ObjectMeta.Annotations = map[string]string{
				controlplanev1.PreTerminateHookAnnotation: ""}
		}, "spec.template.spec.machineTemplate.metadata.annotations"},
		"a time that is none": {func(t *controlplanev1.QuoinControlPlaneTemplate) {
			t.Spec.Template.Spec.Backup = &controlplanev1.EtcdBackup{Schedule: "daily"}
		}, "spec.template.spec.backup.schedule"},
		"a label that is none": {func(t *controlplanev1.QuoinControlPlaneTemplate) {
			t.Spec.Template.ObjectMeta.Labels = map[string]string{"a": "not a label!"}
		}, "spec.template.metadata.labels"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := controlPlaneTemplates.ValidateCreate(t.Context(), template(c.change))
			expectRefusal(t, err, c.refusal)
		})
	}
}

func TestControlPlaneTemplateIsNotChangedInPlace(t *testing.T) {
	request := func(dryRun bool) context.Context {
		return admission.NewContextWithRequest(t.Context(),
			admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{DryRun: ptr.To(dryRun)}})
	}
	topology := func(t *controlplanev1.QuoinControlPlaneTemplate) {
		t.Annotations = map[string]string{clusterv1.TopologyDryRunAnnotation: ""}
	}
	changed := func(t *controlplanev1.QuoinControlPlaneTemplate) {
		t.Spec.Template.Spec.KubeadmConfigSpec.PreKubeadmCommands = []string{"true"}
	}
	const refusal = "a QuoinControlPlaneTemplate cannot be changed in place, because what was made from it would not " +
		"follow (changed: kubeadmConfigSpec.preKubeadmCommands)"
	for name, c := range map[string]struct {
		dryRun  bool
		after   *controlplanev1.QuoinControlPlaneTemplate
		refusal string
	}{
		"unchanged":                                {false, template(), ""},
		"changed":                                  {false, template(changed), refusal},
		"changed, a dry run of a person":           {true, template(changed), refusal},
		"changed, a dry run of the topology":       {true, template(changed, topology), ""},
		"changed, with the mark but not a dry run": {false, template(changed, topology), refusal},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := controlPlaneTemplates.ValidateUpdate(request(c.dryRun), template(), c.after)
			expectRefusal(t, err, c.refusal)
		})
	}
}
