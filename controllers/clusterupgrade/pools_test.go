// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterupgrade

import (
	"context"
	"slices"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
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

// Each step says which hosts serve the Machines that it replaces, by the claims that hosts have, and what holds a pool
// by its own spec and by the RolloutPolicy that selects it. Another host makes no other plan and no event.
func TestStepsNameTheHostsOfTheirMachines(t *testing.T) {
	taken := freeHost("h1", "plane", "*")
	taken.Spec.ConsumerRef = &infrav1.ConsumerReference{Namespace: namespace, Name: "infra-cp-1", Machine: "cp-1"}
	policy := &quoinv1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "p"}}
	policy.Spec.ClusterName = "c1"
	slow := &metav1.LabelSelector{MatchLabels: map[string]string{"pace": "slow"}}
	policy.Spec.Groups = []quoinv1.RolloutGroup{{Name: "slow", PauseAfter: quoinv1.RolloutPauseCanary,
		MachineDeployments: quoinv1.RolloutSelector{Labels: slow}}}
	w := newWorld(t, taken, policy)
	machine, pool := &clusterv1.Machine{}, &clusterv1.MachineDeployment{}
	w.Expect(w.client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "cp-1"}, machine)).To(Succeed())
	machine.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group,
		Kind: "QuoinMachine", Name: "infra-cp-1"}
	w.Expect(w.client.Update(t.Context(), machine)).To(Succeed())
	w.Expect(w.client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "green"}, pool)).To(Succeed())
	pool.Labels["pace"], pool.Spec.Rollout.Strategy.Type = "slow", clusterv1.OnDeleteMachineDeploymentStrategyType
	w.Expect(w.client.Update(t.Context(), pool)).To(Succeed())
	w.reconcile()

	steps, plan := w.upgrade().Status.Steps, w.upgrade().Status.Plan.ID
	w.Expect(steps[2].Change).To(Equal(quoinv1.UpgradeStepReplace))
	w.Expect(steps[2].Machines).To(Equal(&quoinv1.UpgradeStepMachines{Count: ptr.To[int32](3),
		Hosts: []string{"Machine cp-0", "Machine cp-2", "hosts/h1"}}))
	w.Expect(steps[3].Change).To(Equal(quoinv1.UpgradeStepUpdate))
	w.Expect(steps[7].Machines.Count).To(HaveValue(BeEquivalentTo(2)))
	var holds []quoinv1.UpgradeHoldType
	for _, hold := range steps[6].Holds {
		holds = append(holds, hold.Type)
	}
	w.Expect(holds).To(Equal([]quoinv1.UpgradeHoldType{quoinv1.UpgradeHoldVersion, quoinv1.UpgradeHoldOnDelete,
		quoinv1.UpgradeHoldPause}))
	w.Expect(steps[7].Holds).To(HaveLen(1), "no group has pool blue, so that it comes last")

	told := len(w.events.Events)
	host := w.host("h1")
	host.Spec.ConsumerRef = nil
	w.Expect(w.client.Update(t.Context(), host)).To(Succeed())
	w.reconcile()
	hosts := w.upgrade().Status.Steps[2].Machines.Hosts
	w.Expect(hosts).To(Equal([]string{"Machine cp-0", "Machine cp-1", "Machine cp-2"}))
	w.Expect(w.upgrade().Status.Plan.ID).To(Equal(plan))
	w.Expect(w.events.Events).To(HaveLen(told))
}
