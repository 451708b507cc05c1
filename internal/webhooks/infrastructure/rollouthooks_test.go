// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package infrastructure

import (
	"encoding/json"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
)

// What a MachineSet puts back again and again would hold every Machine for ever.
func TestHooksOfRolloutsAreRefusedInTemplates(t *testing.T) {
	for annotation, refusal := range map[string]string{
		quoinv1.RolloutPreDrainHookAnnotation:                                     "Use another name",
		quoinv1.RolloutPreTerminateHookAnnotation:                                 "Use another name",
		infrav1.HoldClaimAnnotation:                                               "set suspend for their group of a RolloutPolicy",
		clusterv1.PreDrainDeleteHookAnnotationPrefix + "/storage":                 "",
		clusterv1.DeleteMachineAnnotation + "=quoin.cluster.x-k8s.io/rollout 1-2": "Leave it out",
		clusterv1.DeleteMachineAnnotation + "=yes":                                "",
	} {
		t.Run(annotation, func(t *testing.T) {
			g := NewWithT(t)
			set := &clusterv1.MachineSet{}
			key, value, _ := strings.Cut(annotation, "=")
			set.Spec.Template.Annotations = map[string]string{key: value}
			raw, err := json.Marshal(set)
			g.Expect(err).NotTo(HaveOccurred())
			response := refuseTemplateHooks(t.Context(), admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
				Object: runtime.RawExtension{Raw: raw}}})
			g.Expect(response.Allowed).To(Equal(refusal == ""))
			g.Expect(response.Result.Message).To(ContainSubstring(refusal))
		})
	}
}
