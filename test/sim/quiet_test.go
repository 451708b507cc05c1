// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"strings"
	"sync"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	plans "github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/run"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim/kube"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim/machine"
)

// TestAPauseWaitsForTheJobThatItMeets pauses a Cluster, as clusterctl move does first, while kubeadm join runs on one of its
// hosts. The annotation that clusterctl waits for stays until the job has ended, also when the manager is killed meanwhile.
func TestAPauseWaitsForTheJobThatItMeets(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	ctx := t.Context()
	joining, goOn := make(chan struct{}), make(chan struct{})
	once, end := sync.OnceFunc(func() { close(joining) }), sync.OnceFunc(func() { close(goOn) })
	t.Cleanup(end)
	l := newLab(t, newFleet(t, kube.Options{OnPhase: func(_ *machine.Machine, verb, phase string) {
		if verb == "join" && phase == "tls-bootstrap" {
			once()
			<-goOn
		}
	}}, nil), "quiet")
	free, err := l.fleet.Add("quiet-free")
	g.Expect(err).NotTo(HaveOccurred())
	cluster := &clusterv1.Cluster{}
	key := client.ObjectKey{Namespace: l.key.Namespace, Name: "c"}
	g.Expect(l.plane.Client.Get(ctx, key, cluster)).To(Succeed())
	l.untilState(infrav1.HostStateAvailable)
	l.addMachine()
	l.create(&infrav1.QuoinCluster{ObjectMeta: metav1.ObjectMeta{
		Namespace: key.Namespace, Name: key.Name, Labels: map[string]string{clusterv1.ClusterNameLabel: key.Name},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster", Name: cluster.Name, UID: cluster.UID}},
	}})
	quoinCluster := func() *infrav1.QuoinCluster {
		c := &infrav1.QuoinCluster{}
		g.Expect(l.plane.Client.Get(ctx, key, c)).To(Succeed())
		return c
	}
	blocks := func() bool { _, ok := quoinCluster().Annotations[clusterctlv1.BlockMoveAnnotation]; return ok }
	says := func() string { return conditions.GetMessage(quoinCluster(), infrav1.ClusterMovableCondition) }
	hold := func() *infrav1.HostHold {
		h := &infrav1.QuoinHost{}
		g.Expect(l.plane.Client.Get(ctx, client.ObjectKey{Namespace: key.Namespace, Name: free.Name}, h)).To(Succeed())
		return h.Spec.HeldFor
	}
	pause := func(paused bool) {
		patch := client.MergeFrom(cluster.DeepCopy())
		cluster.Spec.Paused = ptr.To(paused)
		g.Expect(l.plane.Client.Patch(ctx, cluster, patch)).To(Succeed())
	}
	g.Eventually(blocks).WithTimeout(patience).Should(BeTrue())
	l.until("joining", func(*infrav1.QuoinHost) bool {
		select {
		case <-joining:
			return true
		default:
			return false
		}
	})
	// Not before the first host is taken, which is then the only one.
	l.create(quoinHost(free, key.Namespace))

	pause(true)
	waits := And(ContainSubstring("plan provision-"), ContainSubstring("runs (kubeadm-join)"))
	g.Eventually(says).WithTimeout(patience).Should(waits)
	g.Expect(blocks()).To(BeTrue())
	g.Eventually(hold).WithTimeout(patience).Should(HaveField("Clusters", []string{"c"}))
	l.kill()
	l.until("asked by the next manager", func(h *infrav1.QuoinHost) bool {
		return strings.Contains(conditions.GetMessage(h, infrav1.HostQuietCondition), "runs (kubeadm-join)")
	})
	g.Expect(says()).To(waits)
	g.Expect(blocks()).To(BeTrue())

	end()
	g.Eventually(blocks).WithTimeout(patience).Should(BeFalse(), says)
	host := l.object()
	g.Expect(host.Status.Operation.Phase).To(Equal(string(plans.Succeeded)))
	g.Expect(host.Status.State).NotTo(Equal(infrav1.HostStateProvisioned), "what follows from the end is for whoever has the host next")
	g.Expect(l.joins()).To(Equal(1))

	pause(false)
	g.Eventually(blocks).WithTimeout(patience).Should(BeTrue())
	g.Eventually(hold).WithTimeout(patience).Should(BeNil())
	l.untilState(infrav1.HostStateProvisioned)
	g.Expect(l.joins()).To(Equal(1))
}
