// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"slices"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew"
)

// Of pools that stay where they are nothing is asked.
func TestPoolsThatStayBlockNothing(t *testing.T) {
	const needed = quoinv1.UpgradeWorkersAsNeeded
	everything := func(pool, node string) []string {
		return []string{"Block PodDisruptionBudget shop/of-" + node + " AllowsNoDisruption",
			"Block PersistentVolume of-" + node + " LocalData", "Block MachineDeployment " + pool + " NoSpareHost",
			"Block Node " + node + " RuntimeEnded"}
	}
	both := append(everything("blue", "b"), everything("green", "g")...)
	for name, c := range map[string]struct {
		workers  quoinv1.UpgradeWorkers
		blue     string
		topology bool
		policy   string
		want     []string
	}{
		"all are asked for":     {workers: quoinv1.UpgradeWorkersAll, blue: "v1.34.1", want: both},
		"nobody says":           {blue: "v1.34.1", want: both},
		"only what has to be":   {workers: needed, blue: "v1.34.1", want: everything("green", "g")[:3]},
		"a rollout on its way":  {workers: needed, blue: "v1.35.4", want: append(everything("blue", "b")[:3], everything("green", "g")[:3]...)},
		"a topology raises all": {workers: needed, blue: "v1.34.1", topology: true, want: both},
		"no plan is known":      {workers: needed, blue: "v1.34.1", policy: "ours", want: both},
	} {
		t.Run(name, func(t *testing.T) {
			// green is too old for the target, and is raised to what the control plane runs before.
			management := []client.Object{machine("cp", "v1.35.4", true), &infrav1.QuoinMachineTemplate{
				ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "worker"}}}
			workload := []client.Object{shop(), node("cp", ready)}
			for _, pool := range []struct{ name, node, runs, asked string }{
				{"blue", "b", "v1.34.1", c.blue}, {"green", "g", "v1.32.1", "v1.32.1"}} {
				of := &clusterv1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: pool.name,
					Labels: map[string]string{clusterv1.ClusterNameLabel: "c1"}}}
				of.Spec.Template.Spec.Version = pool.asked
				of.Spec.Template.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{
					APIGroup: infrav1.GroupVersion.Group, Kind: "QuoinMachineTemplate", Name: "worker"}
				has := machine(pool.node, pool.runs, false)
				has.Labels[clusterv1.MachineDeploymentNameLabel] = pool.name
				management = append(management, of, has)
				on, guard := node(pool.node, ready), budget("of-"+pool.node, 0, 1, 1, 1)
				on.Status.NodeInfo.ContainerRuntimeVersion = "containerd://1.7.28"
				guard.Spec.Selector.MatchLabels["app"] = pool.node
				volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "of-" + pool.node}}
				volume.Spec.Local = &corev1.LocalVolumeSource{Path: "/data"}
				volume.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "shop", Name: "of-" + pool.node}
				volume.Status.Phase = corev1.VolumeBound
				workload = append(workload, on, guard, volume,
					web("on-"+pool.node, pool.node, labeled("app", pool.node), claims("of-"+pool.node)))
			}
			for _, on := range slices.Clone(workload) {
				if _, is := on.(*corev1.Node); is {
					workload = append(workload, lease(on.GetName()))
				}
			}
			class := &clusterv1.ClusterClass{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "quoin"}}
			s := subject(t, append(management, class), workload)
			s.Workers, s.Cluster.Annotations = c.workers, map[string]string{skew.PolicyAnnotation: c.policy}
			if c.topology {
				s.Cluster.Spec.Topology = clusterv1.Topology{ClassRef: clusterv1.ClusterClassRef{Name: "quoin"}, Version: "v1.35.4"}
			}
			var all []quoinv1.Finding
			for _, check := range []looker{lookAtDisruption, lookAtVolumes, lookAtSupply, lookAtNodes} {
				_, findings, err := check(t.Context(), s)
				NewWithT(t).Expect(err).NotTo(HaveOccurred())
				all = append(all, findings...)
			}
			NewWithT(t).Expect(says(all)).To(ConsistOf(c.want))
		})
	}
}

var ready = corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue}

// The plan that is shown is the one that is asked for.
func TestVersionPathLeavesPoolsWhereTheyMayStay(t *testing.T) {
	s := subject(t, []client.Object{machine("cp", "v1.35.4", true), machine("w", "v1.34.1", false)}, nil)
	s.Workers = quoinv1.UpgradeWorkersAsNeeded
	message, _, err := lookAtVersionPath(t.Context(), s)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	NewWithT(t).Expect(message).To(ContainSubstring("control plane v1.35.4 -> v1.36.3"))
	NewWithT(t).Expect(message).NotTo(ContainSubstring("MachineDeployment blue"))
}
