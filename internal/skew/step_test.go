// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package skew

import (
	"fmt"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// Proves: R9, R12, S0-20, S0-30, S1-17, S1-24
//
// Each rule holds a target or warns of it, and lets another one pass in silence.
func TestVectorsOfTargets(t *testing.T) {
	var vectors []struct {
		releaseVector
		Policies, Scheduler, Refuses, Edit string
	}
	read(t, "targets", &vectors)
	releases := catalog(t)
	for i, v := range vectors {
		t.Run(fmt.Sprintf("%d %s", i, v.Row), func(t *testing.T) {
			g := NewWithT(t)
			chosen, err := Policies(v.Policies)
			g.Expect(err).NotTo(HaveOccurred())
			world := v.world(releases)
			if v.Scheduler != "" {
				world.Components = append(world.Components, Running{Component: Scheduler, Version: v.Scheduler, Object: "Pod s1"})
			}
			refusal, warning := Target(chosen, world, v.To)
			for part, said := range map[*string]string{&v.Refuses: refusal, &v.Warns: warning} {
				g.Expect(said).To(ContainSubstring(*part))
				g.Expect(said == "").To(Equal(*part == ""), said)
			}
		})
	}
}

// thousands are steps of the control plane of 5,000 nodes of one version.
var thousands = []struct{ policy, name, at, to, kubelet string }{
	{"Kubernetes", "legal", "v1.36.3", "v1.37.0", "v1.36.1"},
	{"Kubernetes", "warned", "v1.36.3", "v1.37.0", "v1.34.1"},
	{"Kubernetes", "refused", "v1.36.3", "v1.37.0", "v1.33.1"},
	{"Distribution", "legal", "v1.29.500-gke.163", "v1.30.100-gke.96", "v1.29.300-gke.185"},
	{"Distribution", "refused", "v1.29.500-gke.163", "v1.30.100-gke.96", "v1.16.6"},
	{"Distribution", "refused/patch", "v1.29.100-gke.251", "v1.29.300-gke.185", "v1.28.100-gke.146"},
	{"Distribution", "legal/patch", "v1.29.100-gke.251", "v1.29.300-gke.185", "v1.28.500-gke.120"},
}

// nodes are Machines of which the first three are of the control plane.
func nodes(at, kubelet string) []clusterv1.Machine {
	var machines []clusterv1.Machine
	for i := range 5000 {
		version := kubelet
		if i < 3 {
			version = at
		}
		machines = append(machines, machine(fmt.Sprintf("m%d", i), version, version, i < 3))
	}
	return machines
}

// Of thousands that differ in nothing but their names, only the name costs something.
func TestThousandsOfNodesAreJudgedOnce(t *testing.T) {
	for _, c := range thousands {
		t.Run(c.policy+"/"+c.name, func(t *testing.T) {
			machines, estate := nodes(c.at, c.kubelet), &Estate{Catalog: catalog(t)}
			chosen, _ := Policies(c.policy)
			NewWithT(t).Expect(testing.AllocsPerRun(1, func() {
				world := WorldOf(machines)
				world.Estate = estate
				LeftBehind(chosen, world, c.to)
			})).To(BeNumerically("<", 2*len(machines)))
		})
	}
}

// BenchmarkLeftBehind judges a step of the control plane when it is legal, with a warning, and refused.
func BenchmarkLeftBehind(b *testing.B) {
	for _, c := range thousands {
		b.Run(c.policy+"/"+c.name, func(b *testing.B) {
			world := WorldOf(nodes(c.at, c.kubelet))
			world.Estate = &Estate{Catalog: catalog(b)}
			chosen, _ := Policies(c.policy)
			for b.Loop() {
				refusal, warning := LeftBehind(chosen, world, c.to)
				if (refusal != "") != strings.HasPrefix(c.name, "refused") || (warning != "") != (c.name == "warned") {
					b.Fatal(refusal, warning)
				}
			}
		})
	}
}
