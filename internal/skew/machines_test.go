// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package skew

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// machine of a version; node is what its Node reports, if there is one.
func machine(name, version, node string, controlPlane bool) clusterv1.Machine {
	made := clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: clusterv1.MachineSpec{Version: version}}
	if controlPlane {
		made.Labels = map[string]string{clusterv1.MachineControlPlaneLabel: ""}
	}
	if node != "" {
		made.Status.NodeRef.Name = name
		made.Status.NodeInfo = &corev1.NodeSystemInfo{KubeletVersion: node}
	}
	return made
}

func TestTheWorldOfMachines(t *testing.T) {
	worker := func(name, version string) Running {
		return Running{Component: Kubelet, Version: version, Object: "Machine " + name}
	}
	for name, c := range map[string]struct {
		machines []clusterv1.Machine
		servers  []string
		workers  []Running
	}{
		"nothing": {},
		"workers, with a Node and without": {
			machines: []clusterv1.Machine{machine("w1", "v1.36.3", "v1.35.4", false), machine("w2", "v1.36.3", "", false)},
			workers:  []Running{worker("w1", "v1.35.4"), worker("w2", "v1.36.3")}},
		"a Node that reports no version": {
			machines: []clusterv1.Machine{machine("w1", "v1.36.3", "unknown", false)},
			workers:  []Running{worker("w1", "v1.36.3")}},
		"a control plane that has one Node": {
			machines: []clusterv1.Machine{machine("c1", "v1.37.0", "v1.36.3", true), machine("c2", "v1.37.0", "", true),
				machine("w1", "v1.36.3", "", false)},
			servers: []string{"v1.36.3"}, workers: []Running{worker("w1", "v1.36.3")}},
		"a control plane that has two": {
			machines: []clusterv1.Machine{machine("c1", "v1.37.0", "", true), machine("c2", "v1.36.3", "v1.36.3", true),
				machine("c3", "v1.37.0", "v1.37.0", true)},
			servers: []string{"v1.36.3", "v1.37.0"}},
		"a control plane that has none yet": {
			machines: []clusterv1.Machine{machine("c1", "v1.37.0", "", true), machine("c2", "v1.36.3", "", true)},
			servers:  []string{"v1.37.0", "v1.36.3"}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			world := WorldOf(c.machines)
			g.Expect(world.APIServers).To(Equal(c.servers))
			g.Expect(append([]Running(nil), world.Components...)).To(Equal(c.workers))
			for i, running := range world.Components {
				g.Expect(Runs(&c.machines[len(c.machines)-len(c.workers)+i])).To(Equal(running.Version))
			}
		})
	}
}

func TestThePoliciesOfACluster(t *testing.T) {
	for chosen, c := range map[string]struct {
		names []string
		asks  bool
	}{
		"":                             {[]string{"Kubernetes"}, false},
		"Kubernetes-1.24":              {[]string{"Kubernetes", "Kubernetes-1.24"}, false},
		"Distribution":                 {[]string{"Kubernetes", "Distribution"}, true},
		"Distribution,Kubernetes-1.24": {[]string{"Kubernetes", "Distribution", "Kubernetes-1.24"}, true},
	} {
		t.Run(chosen, func(t *testing.T) {
			g := NewWithT(t)
			cluster := &clusterv1.Cluster{}
			cluster.Annotations = map[string]string{PolicyAnnotation: chosen}
			found, err := PoliciesOf(cluster)
			g.Expect(err).NotTo(HaveOccurred())
			var names []string
			for _, policy := range found {
				names = append(names, policy.Name)
			}
			g.Expect(names).To(Equal(c.names))
			g.Expect(AskForEstate(found)).To(Equal(c.asks))
		})
	}
	_, err := PoliciesOf(&clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "blue",
		Annotations: map[string]string{PolicyAnnotation: "Kubernets"}}})
	NewWithT(t).Expect(err).To(MatchError(ContainSubstring("annotation " + PolicyAnnotation + " of Cluster blue: ")))
}
