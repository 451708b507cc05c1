// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterupgrade

import (
	"context"
	"slices"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// Proves: C10
//
// Pools come by their names, and what they run with them, in whatever order a cache has them: a plan that changed with
// that would be made anew at each look.
func TestPoolsAreObservedByTheirNames(t *testing.T) {
	green := machineOf("green-2", "green")
	green.Spec.Version = "v1.33.1"
	leaving := &clusterv1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "amber",
		Labels: map[string]string{clusterv1.ClusterNameLabel: "c1"}, Finalizers: []string{"test.example.com/kept"}}}
	leaving.Spec.ClusterName = "c1"
	w := newWorld(t, green, leaving, machineOf("amber-0", "amber"))
	w.Expect(w.client.Delete(t.Context(), leaving)).To(Succeed())
	for name, order := range map[string]func([]clusterv1.MachineDeployment){
		"as they come": func([]clusterv1.MachineDeployment) {},
		"reversed":     slices.Reverse[[]clusterv1.MachineDeployment],
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			reader := interceptor.NewClient(w.client, interceptor.Funcs{List: func(ctx context.Context,
				under client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
				if err := under.List(ctx, list, options...); err != nil {
					return err
				}
				if pools, is := list.(*clusterv1.MachineDeploymentList); is {
					order(pools.Items)
				}
				return nil
			}})
			seen := &observation{cluster: w.cluster(), objects: map[string]client.Object{}}
			g.Expect(lookAtPools(t.Context(), reader, seen)).To(Succeed())
			var names []string
			for _, pool := range seen.world.Pools {
				names = append(names, pool.Object)
			}
			g.Expect(names).To(Equal([]string{"MachineDeployment blue", "MachineDeployment green"}))
			g.Expect(seen.world.Pools[0]).To(HaveField("Runs", []string{"v1.34.4", "v1.34.4"}))
			g.Expect(seen.world.Pools[1]).To(HaveField("Runs", ConsistOf("v1.34.4", "v1.34.4", "v1.33.1")))
			g.Expect(seen.world.Others).To(ContainElement(HaveField("Object", "Machine amber-0")),
				"a pool that is being deleted is none")
		})
	}
}
