//go:build e2e

// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/e2e/lab"
)

// replacing is a Machine of the first cluster that is being replaced while the providers are.
type replacing struct {
	site    *site
	cluster *lab.Cluster
	role    func(*clusterv1.Machine) bool
	former  string
	host    *lab.Host
	joins   int
	writer  *lab.Writer
}

// replaceControlPlane asks for another Machine of the control plane, as `kubectl edit` of its spec.rollout.after does.
func (s *site) replaceControlPlane(ctx context.Context, g Gomega) *replacing {
	return s.replace(ctx, g, util.IsControlPlaneMachine, func(c *lab.Cluster) error {
		return c.EditControlPlane(ctx, func(spec *controlplanev1.QuoinControlPlaneSpec) {
			spec.Rollout.After = metav1.Now()
		})
	})
}

// replaceWorker asks for another worker in the same way.
func (s *site) replaceWorker(ctx context.Context, g Gomega) *replacing {
	worker := func(machine *clusterv1.Machine) bool { return !util.IsControlPlaneMachine(machine) }
	return s.replace(ctx, g, worker, func(c *lab.Cluster) error {
		workers, err := c.WorkerDeployment(ctx)
		if err != nil {
			return err
		}
		before := client.MergeFrom(workers.DeepCopy())
		workers.Spec.Rollout.After = metav1.Now()
		return s.lab.Management.Patch(ctx, workers, before)
	})
}

// replace asks for the replacement of the one Machine of a role, and returns when kubeadm joins the next one's host.
func (s *site) replace(
	ctx context.Context, g Gomega, role func(*clusterv1.Machine) bool, ask func(*lab.Cluster) error,
) *replacing {
	cluster, err := s.lab.Open(ctx, lab.ClusterSpec{Name: "first", Workers: 1})
	g.Expect(err).NotTo(HaveOccurred())
	r := &replacing{site: s, cluster: cluster, role: role}
	machines := r.machines(ctx, g)
	g.Expect(machines).To(HaveLen(1))
	r.former = machines[0].Name
	joins := map[string]int{}
	for _, host := range s.lab.Hosts {
		joins[host.Name], err = s.lab.KubeadmCalls(ctx, host, "join")
		g.Expect(err).NotTo(HaveOccurred())
	}
	r.writer, err = cluster.Write(ctx)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(ask(cluster)).To(Succeed())
	g.Eventually(func(g Gomega) {
		for _, machine := range r.machines(ctx, g) {
			if machine.Name == r.former {
				continue
			}
			own := &infrav1.QuoinMachine{}
			key := client.ObjectKey{Namespace: machine.Namespace, Name: machine.Spec.InfrastructureRef.Name}
			g.Expect(s.lab.Management.Get(ctx, key, own)).To(Succeed())
			g.Expect(own.Status.HostRef).NotTo(BeNil())
			r.host, err = s.lab.Host(own.Status.HostRef.Name)
			g.Expect(err).NotTo(HaveOccurred())
		}
		g.Expect(r.host).NotTo(BeNil())
		r.joins = joins[r.host.Name]
		g.Expect(r.joined(ctx, g)).To(Equal(1))
	}).WithContext(ctx).WithTimeout(5 * time.Minute).WithPolling(200 * time.Millisecond).Should(Succeed())
	return r
}

// goesOn holds that the replacement was still under way when the providers had been replaced, and that it then ends as
// any other: with one join, no other Machine touched, and nothing lost that an API server acknowledged.
func (r *replacing) goesOn(ctx context.Context, g Gomega) {
	names := func() []string {
		var names []string
		for _, machine := range r.machines(ctx, g) {
			names = append(names, machine.Name)
		}
		return names
	}
	both := names()
	g.Expect(both).To(And(HaveLen(2), ContainElement(r.former)), "%s left before the providers were replaced", r.former)
	g.Eventually(names).WithContext(ctx).WithTimeout(10 * time.Minute).WithPolling(time.Second).
		ShouldNot(ContainElement(r.former))
	g.Expect(r.cluster.AwaitReady(ctx, 5*time.Minute, lab.NewVersion, lab.NewVersion)).To(Succeed())
	g.Expect(both).To(ContainElements(names()), "the Machine that joined meanwhile is the one that stays")
	g.Expect(r.joined(ctx, g)).To(Equal(1))
	r.writer.Stop()
	r.site.lab.Printf("   while Machine %s was replaced: %s", r.former, r.writer.Report())
	lost, err := r.writer.Lost(ctx)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(r.writer.Acknowledged()).NotTo(BeEmpty())
	g.Expect(lost).To(BeEmpty())
}

func (r *replacing) machines(ctx context.Context, g Gomega) []clusterv1.Machine {
	all, err := r.cluster.Machines(ctx)
	g.Expect(err).NotTo(HaveOccurred())
	var machines []clusterv1.Machine
	for i := range all {
		if r.role(&all[i]) {
			machines = append(machines, all[i])
		}
	}
	return machines
}

// joined counts the joins of the next Machine's host since the replacement was asked for.
func (r *replacing) joined(ctx context.Context, g Gomega) int {
	joins, err := r.site.lab.KubeadmCalls(ctx, r.host, "join")
	g.Expect(err).NotTo(HaveOccurred())
	return joins - r.joins
}
