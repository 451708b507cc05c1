// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoincontrolplane

import (
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
)

// A paused host is claimed by nobody, so no Machine is bound to its failure domain.
func TestPausedHostIsNotFree(t *testing.T) {
	w := newWorld(t, 1)
	w.noSpare()
	for name, annotations := range map[string]map[string]string{"r1": nil, "r2": {clusterv1.PausedAnnotation: ""}} {
		host := &infrav1.QuoinHost{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: annotations}}
		host.Spec.FailureDomain = name
		w.g.Expect(w.mgmt.Create(t.Context(), host)).To(Succeed())
		host.Status.State = infrav1.HostStateAvailable
		conditions.Set(host, metav1.Condition{Type: infrav1.HostReadyCondition, Status: metav1.ConditionTrue, Reason: infrav1.HostAvailableReason})
		w.g.Expect(w.mgmt.Status().Update(t.Context(), host)).To(Succeed())
	}
	hosts := &infrav1.QuoinHostList{}
	w.g.Expect(w.mgmt.List(t.Context(), hosts)).To(Succeed())
	s := &scope{plane: w.plane(), template: &unstructured.Unstructured{Object: map[string]any{}}}
	w.g.Expect(s.countSpares(hosts.Items)).To(Succeed())
	w.g.Expect(s.freeDomains).To(HaveLen(1))
	w.g.Expect(s.freeDomains).To(HaveKey("r1"))
	w.g.Expect(s.snapshot.Spare.Free).To(Equal(1))
}
