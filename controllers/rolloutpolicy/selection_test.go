// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package rolloutpolicy

import (
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/event"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/rollout"
)

// upToDate is a world whose two Machines are at the present template, on hosts, with Nodes that can be read.
func upToDate(t *testing.T) (*world, client.Client) {
	t.Helper()
	var hosts []client.Object
	for i := range 2 {
		hosts = append(hosts, hostIn(fmt.Sprint("host-", i), infrav1.HostStateProvisioned, fmt.Sprint("old-", i)))
	}
	w := newWorld(t, hosts...)
	policy, blue := w.policy(), &clusterv1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Name: "blue"}}
	w.adjust(policy, func() { policy.Spec.WhenNoSpare = quoinv1.RolloutWithoutSpareRemoveFirst })
	w.adjust(blue, func() { blue.Spec.Template = template("v1") })
	nodes := fake.NewClientBuilder().Build()
	for i := range 2 {
		name := fmt.Sprint("old-", i)
		w.joins(name)
		machine := w.machine(name)
		w.adjust(machine, func() { machine.Finalizers = []string{clusterv1.MachineFinalizer} })
		w.Expect(nodes.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})).To(Succeed())
	}
	w.restart()
	w.connect(nodes)
	w.reconcile()
	w.Expect(w.leaving()).To(BeEmpty())
	return w, nodes
}

func (w *world) connect(nodes client.Client) {
	w.r.ClusterCache = clustercache.NewFakeClusterCache(nodes, client.ObjectKey{Namespace: namespace, Name: "c1"}, nodesWatch)
}

func mark(object client.Object) {
	annotations := object.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[quoinv1.NeedsUpdateAnnotation] = ""
	object.SetAnnotations(annotations)
}

// A mark on the Machine, its Node or its host is enough, and the Machine says why it was deleted.
//
// Proves: S3-3, S3-5
func TestAMarkedMachineIsReplaced(t *testing.T) {
	w, _ := upToDate(t)
	machine := w.machine("old-1")
	w.adjust(machine, func() { mark(machine) })
	w.reconcile()
	w.Expect(w.leaving()).To(ConsistOf("old-1"))
	w.Expect(w.machine("old-1").Annotations).To(HaveKeyWithValue(quoinv1.RolloutDeletedAnnotation,
		ContainSubstring("needs-update on the Machine")))
	other := w.machine("old-0")
	w.adjust(other, func() { mark(other) })
	w.reconcile()
	w.Expect(w.leaving()).To(ConsistOf("old-1"), "one is missing already")
}

// What takes the place of the last marked Machine is led like every other new one, by a process that did not see the
// marked one as well; a Machine of a scale-up is not.
func TestWhatTakesThePlaceOfAMarkedMachineIsGated(t *testing.T) {
	w, _ := upToDate(t)
	machine := w.machine("old-1")
	w.adjust(machine, func() { mark(machine) })
	w.reconcile()
	w.Expect(w.policy().Status.MachineDeployments).To(ConsistOf(And(HaveField("Selected", "old-1"),
		HaveField("DoneOf", HaveValue(BeEquivalentTo(2))))))
	w.adjust(machine, func() { machine.Finalizers = nil })
	w.restart()
	w.reconcile()
	w.make(machineOf("new-0", "v1"), hostedBy("new-0", ""))
	w.reconcile()
	w.Expect(rollout.Gated(w.machine("new-0"))).To(BeTrue())

	w.joins("new-0")
	w.clock.Step(time.Hour)
	w.reconcile()
	w.Expect(rollout.Gated(w.machine("new-0"))).To(BeFalse())
	w.Expect(w.policy().Status.MachineDeployments).To(ConsistOf(HaveField("Selected", BeEmpty())))
	blue := &clusterv1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Name: "blue"}}
	w.adjust(blue, func() { blue.Spec.Replicas = ptr.To[int32](3) })
	w.make(machineOf("new-1", "v1"), hostedBy("new-1", ""))
	w.reconcile()
	w.Expect(rollout.AdmittedAt(w.machine("new-1"))).NotTo(BeZero())
	w.Expect(rollout.Gated(w.machine("new-1"))).To(BeFalse())
}

func TestAMachineIsReplacedWhoseNodeIsMarked(t *testing.T) {
	w, nodes := upToDate(t)
	node := &corev1.Node{}
	w.Expect(nodes.Get(t.Context(), client.ObjectKey{Name: "old-1"}, node)).To(Succeed())
	mark(node)
	w.Expect(nodes.Update(t.Context(), node)).To(Succeed())
	connected := w.r.ClusterCache
	w.r.ClusterCache = clustercache.NewFakeClusterCache(nodes, client.ObjectKey{Name: "another"})
	w.reconcile()
	w.Expect(w.leaving()).To(BeEmpty(), "the Cluster does not answer")
	w.r.ClusterCache = connected
	w.reconcile()
	w.Expect(w.leaving()).To(ConsistOf("old-1"))
}

// The mark of a host is for the Machine that is on it when it is made, and not for the next one. It is not lost whatever
// write the process dies at.
func TestAMarkOnAHostIsForOneMachine(t *testing.T) {
	for _, every := range []int{0, 1, 2, 3} {
		t.Run(fmt.Sprint("killed at every write of ", every), func(t *testing.T) {
			w, _ := upToDate(t)
			host := &infrav1.QuoinHost{ObjectMeta: metav1.ObjectMeta{Name: "host-1"}}
			w.adjust(host, func() { mark(host) })
			w.Expect(w.r.ofHost(t.Context(), host)).To(HaveLen(1))
			begin := w.writes
			w.kills = func(write int) bool { return every > 0 && write%every == 0 && write < begin+40 }
			w.reconcile()
			w.Expect(w.leaving()).To(ConsistOf("old-1"))
			w.Expect(w.machine("old-1").Annotations).To(HaveKeyWithValue(quoinv1.RolloutDeletedAnnotation,
				ContainSubstring("QuoinHost prod/host-1")))
			w.read(host, "host-1")
			w.Expect(isMarked(host)).To(BeFalse())
		})
	}
}

// Whoever may write a QuoinHost could have any Machine replaced by a mark on it.
func TestTheMarkOfAHostThatOnlyNamesAMachineStays(t *testing.T) {
	w, _ := upToDate(t)
	machine := w.machine("old-1")
	w.adjust(machine, func() { machine.Spec.ProviderID = "quoin://prod/host-1/old-1" })
	host := hostIn("usurper", infrav1.HostStateProvisioned, "old-1")
	mark(host)
	w.make(host)
	w.reconcile()
	w.Expect(w.leaving()).To(BeEmpty())
	w.read(host, host.Name)
	w.Expect(isMarked(host)).To(BeTrue())
}

// Hosts of Machines that no policy selects keep their marks, and so do free ones.
func TestMarksOfOthersStay(t *testing.T) {
	w, _ := upToDate(t)
	for _, host := range []*infrav1.QuoinHost{hostIn("host-2", infrav1.HostStateAvailable, ""),
		hostIn("host-3", infrav1.HostStateProvisioned, "control-plane-0")} {
		mark(host)
		w.make(host)
		w.reconcile()
		w.read(host, host.Name)
		w.Expect(isMarked(host)).To(BeTrue(), host.Name)
		w.Expect(w.r.ofHost(t.Context(), host)).To(BeEmpty())
	}
	policy := w.policy()
	w.adjust(policy, func() {
		policy.Spec.Groups = []quoinv1.RolloutGroup{{Name: "g", MachineDeployments: quoinv1.RolloutSelector{Names: []string{"green"}}}}
	})
	host := &infrav1.QuoinHost{ObjectMeta: metav1.ObjectMeta{Name: "host-1"}}
	w.adjust(host, func() { mark(host) })
	w.reconcile()
	w.read(host, "host-1")
	w.Expect(isMarked(host)).To(BeTrue())
	w.Expect(w.leaving()).To(BeEmpty())
}

// A template gives its annotations to every Machine: what takes the place of a marked one would be marked for ever.
func TestAMarkInATemplateMarksNobody(t *testing.T) {
	w, _ := upToDate(t)
	set := &clusterv1.MachineSet{ObjectMeta: metav1.ObjectMeta{Name: "blue-v1"}}
	w.adjust(set, func() {
		set.Spec.Template.Annotations = map[string]string{quoinv1.NeedsUpdateAnnotation: ""}
	})
	machine := w.machine("old-1")
	w.adjust(machine, func() { mark(machine) })
	w.reconcile()
	w.Expect(w.leaving()).To(BeEmpty())
}

func TestOnlyMarksBringAClusterHere(t *testing.T) {
	g := NewWithT(t)
	plain, marked := &corev1.Node{}, &corev1.Node{}
	mark(marked)
	of := markChanges()
	g.Expect(of.Create(event.CreateEvent{Object: plain})).To(BeFalse())
	g.Expect(of.Create(event.CreateEvent{Object: marked})).To(BeTrue())
	g.Expect(of.Update(event.UpdateEvent{ObjectOld: plain, ObjectNew: plain})).To(BeFalse())
	g.Expect(of.Update(event.UpdateEvent{ObjectOld: marked, ObjectNew: plain})).To(BeTrue())
	g.Expect(of.Delete(event.DeleteEvent{Object: marked})).To(BeFalse())
}
