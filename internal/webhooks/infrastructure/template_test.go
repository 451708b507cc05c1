// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package infrastructure

import (
	"context"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
)

// What an upgrade records of one cluster is no property of a class of them. A template that has it already stays.
func TestATemplateRecordsNoUpgrade(t *testing.T) {
	template := &infrav1.QuoinClusterTemplate{}
	_, err := clusterTemplates.ValidateCreate(t.Context(), template)
	expectRefusal(t, err, "")
	template.Spec.Template.Spec.Version = "v1.36.3"
	_, err = clusterTemplates.ValidateCreate(t.Context(), template)
	expectRefusal(t, err, "leave it out, and set spec.topology.version of the Cluster")
	_, err = clusterTemplates.ValidateUpdate(t.Context(), template, template)
	expectRefusal(t, err, "")
}

func TestTemplatesAreNotChangedInPlace(t *testing.T) {
	request := func(dryRun bool) context.Context {
		return admission.NewContextWithRequest(t.Context(),
			admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{DryRun: ptr.To(dryRun)}})
	}
	now := metav1.Now()
	topology := metav1.ObjectMeta{Annotations: map[string]string{clusterv1.TopologyDryRunAnnotation: ""}}
	for name, c := range map[string]struct {
		dryRun  bool
		meta    metav1.ObjectMeta
		changed bool
		refused bool
	}{
		"unchanged":                          {false, metav1.ObjectMeta{}, false, false},
		"labeled":                            {false, metav1.ObjectMeta{Labels: map[string]string{"a": "b"}}, false, false},
		"changed":                            {false, metav1.ObjectMeta{}, true, true},
		"changed, a dry run of a person":     {true, metav1.ObjectMeta{}, true, true},
		"changed, a dry run of the topology": {true, topology, true, false},
		"changed, with the mark but not a dry run": {false, topology, true, true},
		"changed, and being deleted":               {false, metav1.ObjectMeta{DeletionTimestamp: &now}, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			machines := [2]*infrav1.QuoinMachineTemplate{{}, {ObjectMeta: c.meta}}
			clusters := [2]*infrav1.QuoinClusterTemplate{{}, {ObjectMeta: c.meta}}
			machineRefusal, clusterRefusal := "", ""
			if c.changed {
				machines[1].Spec.Template.Spec = machine().Spec
				clusters[1].Spec.Template.Spec = cluster("", keepalived(51)).Spec
			}
			if c.refused {
				machineRefusal = "a QuoinMachineTemplate cannot be changed in place, because what was made from it would not " +
					"follow (changed: artifacts.bundle.location): make a new template"
				clusterRefusal = "a QuoinClusterTemplate cannot be changed in place"
			}
			_, err := machineTemplates.ValidateUpdate(request(c.dryRun), machines[0], machines[1])
			expectRefusal(t, err, machineRefusal)
			_, err = clusterTemplates.ValidateUpdate(request(c.dryRun), clusters[0], clusters[1])
			expectRefusal(t, err, clusterRefusal)
		})
	}
}

// A pool whose hosts are shared consents to them without being replaced.
func TestATemplateMayAcceptHostsOfOtherNamespacesLater(t *testing.T) {
	before := &infrav1.QuoinMachineTemplate{}
	before.Spec.Template.Spec = machine().Spec
	after := before.DeepCopy()
	after.Spec.Template.Spec.HostNamespaces = []string{"team", "pool"}
	_, err := machineTemplates.ValidateUpdate(t.Context(), before, after)
	expectRefusal(t, err, "")
	_, err = machineTemplates.ValidateUpdate(t.Context(), after, before)
	expectRefusal(t, err, "")
	after.Spec.Template.Spec.HostNamespaces = []string{"team-*"}
	_, err = machineTemplates.ValidateUpdate(t.Context(), before, after)
	expectRefusal(t, err, "patterns are not understood")
}
