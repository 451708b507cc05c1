// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

func TestPoolIsWhatReplacesAMachine(t *testing.T) {
	g := NewWithT(t)
	machine := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "m1"}}
	g.Expect(Pool(machine)).To(BeEmpty())
	machine.OwnerReferences = []metav1.OwnerReference{{Kind: "Cluster", Name: "c1"},
		{Kind: "MachineSet", Name: "workers-abc", Controller: ptr.To(true)}}
	g.Expect(Pool(machine)).To(Equal("team/workers-abc"))
	machine.Labels = map[string]string{clusterv1.MachineDeploymentNameLabel: "workers"}
	g.Expect(Pool(machine)).To(Equal("team/workers"), "a rollout makes another MachineSet of the same pool")
	machine.Labels = map[string]string{clusterv1.MachineControlPlaneNameLabel: "c1-control-plane"}
	g.Expect(Pool(machine)).To(Equal("team/c1-control-plane"))
}
