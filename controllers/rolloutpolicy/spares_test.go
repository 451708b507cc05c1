// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package rolloutpolicy

import (
	"context"
	"errors"
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/rollout"
)

// hostIn is a host in a state, of a Machine unless that is empty.
func hostIn(name string, state infrav1.HostState, consumer string) *infrav1.QuoinHost {
	host := &infrav1.QuoinHost{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	if consumer != "" {
		host.Spec.ConsumerRef = &infrav1.ConsumerReference{Namespace: namespace, Name: consumer, Machine: consumer,
			Claim: infrav1.ClaimOf(consumer)}
	}
	host.Status.State = state
	conditions.Set(host, metav1.Condition{Type: infrav1.HostReadyCondition, Status: metav1.ConditionTrue, Reason: "Test"})
	return host
}

// withoutSpare is a world of two hosts that both old Machines have; a canary was admitted and finds none.
func withoutSpare(t *testing.T, when quoinv1.RolloutWithoutSpare, more ...client.Object) *world {
	t.Helper()
	objects := append([]client.Object{machineOf("new-0", "v2"), hostedBy("new-0", "")}, more...)
	for i := range 2 {
		objects = append(objects, hostIn(fmt.Sprint("host-", i), infrav1.HostStateProvisioned, fmt.Sprint("old-", i)))
	}
	w := newWorld(t, objects...)
	policy := w.policy()
	w.adjust(policy, func() { policy.Spec.WhenNoSpare = when })
	for i := range 2 {
		w.joins(fmt.Sprint("old-", i))
		old := w.machine(fmt.Sprint("old-", i))
		w.adjust(old, func() { old.Finalizers = []string{clusterv1.MachineFinalizer} })
	}
	w.reconcile()
	w.Expect(w.admitted("new-0")).To(BeTrue())
	w.Expect(w.leaving()).To(BeEmpty())
	w.findsNone("new-0")
	return w
}

func (w *world) findsNone(name string) {
	infra := &infrav1.QuoinMachine{ObjectMeta: metav1.ObjectMeta{Name: name}}
	w.adjust(infra, func() {
		conditions.Set(infra, metav1.Condition{Type: infrav1.MachineHostClaimedCondition, Status: metav1.ConditionFalse,
			Reason: infrav1.MachineNoMatchingHostReason, Message: "no free host matches: 2 in use"})
	})
}

// leaving are the Machines that are being deleted.
func (w *world) leaving() []string {
	var names []string
	list := &clusterv1.MachineList{}
	w.Expect(w.client.List(w.t.Context(), list)).To(Succeed())
	for i := range list.Items {
		if !list.Items[i].DeletionTimestamp.IsZero() {
			names = append(names, list.Items[i].Name)
		}
	}
	return names
}

func (w *world) poolMessage() string { return w.policy().Status.MachineDeployments[0].Message }

// One Machine goes, with the reason on it, whatever write the process dies at, and no second one follows.
//
// Proves: S3-1, S3-19
func TestWithoutASpareOneMachineIsRemoved(t *testing.T) {
	for _, every := range []int{0, 1, 2, 3} {
		t.Run(fmt.Sprint("killed at every write of ", every), func(t *testing.T) {
			w := withoutSpare(t, quoinv1.RolloutWithoutSpareRemoveFirst)
			w.kills = func(write int) bool { return every > 0 && write%every == 0 && write < 40 }
			w.reconcile()
			w.Expect(w.leaving()).To(ConsistOf("old-0"))
			w.Expect(w.machine("old-0").Annotations).To(HaveKeyWithValue(quoinv1.RolloutDeletedAnnotation,
				ContainSubstring("no host is free")))
			w.Expect(w.poolMessage()).To(ContainSubstring("Machine old-0 leaves its host"))
		})
	}
}

func TestWithoutConsentNothingIsRemoved(t *testing.T) {
	w := withoutSpare(t, quoinv1.RolloutWithoutSpareWait)
	w.reconcile()
	w.Expect(w.leaving()).To(BeEmpty())
	w.Expect(w.poolMessage()).To(ContainSubstring("set spec.whenNoSpare to RemoveFirst"))
	w.Expect(conditions.GetReason(w.policy(), quoinv1.RolloutPolicyProgressingCondition)).To(Equal(quoinv1.HeldReason))
}

// A host that is free, that is prepared, or that another Machine leaves is waited for.
func TestAHostThatComesIsWaitedFor(t *testing.T) {
	gone := hostedBy("gone", "quoin://prod/host-2/gone")
	gone.Finalizers = []string{"test/stays"}
	for name, more := range map[string][]client.Object{
		"free":     {hostIn("host-2", infrav1.HostStateAvailable, "")},
		"prepared": {hostIn("host-2", infrav1.HostStateCleaning, "")},
		"left":     {hostIn("host-2", infrav1.HostStateProvisioned, "gone"), gone},
		"claimed":  {hostIn("host-2", infrav1.HostStateClaimed, "new-0")},
	} {
		t.Run(name, func(t *testing.T) {
			w := withoutSpare(t, quoinv1.RolloutWithoutSpareRemoveFirst, more...)
			if name == "left" {
				w.Expect(w.client.Delete(t.Context(), gone.DeepCopy())).To(Succeed())
			}
			w.reconcile()
			w.Expect(w.leaving()).To(BeEmpty(), w.poolMessage())
		})
	}
}

// A host that is reserved for control planes is none that a worker gets, free or under another worker: to wait for it were
// to wait for ever, and one that leaves it helps nobody.
func TestAReservedHostDoesNotHelpAWorker(t *testing.T) {
	spare := hostIn("host-2", infrav1.HostStateAvailable, "")
	metav1.SetMetaDataLabel(&spare.ObjectMeta, infrav1.ReservedForLabel, infrav1.ReservedForControlPlane)
	w := withoutSpare(t, quoinv1.RolloutWithoutSpareRemoveFirst, spare)
	host := &infrav1.QuoinHost{ObjectMeta: metav1.ObjectMeta{Name: "host-0"}}
	w.adjust(host, func() { host.Labels = spare.Labels })
	w.reconcile()
	w.Expect(w.leaving()).To(ConsistOf("old-1"), w.poolMessage())
}

// A host that is left may not answer for a while, as when it boots after its reset. One in quarantine comes back to
// nobody before a person has seen to it.
func TestAHostThatIsLeftIsWaitedForWhileItDoesNotAnswer(t *testing.T) {
	for state, waits := range map[infrav1.HostState]bool{infrav1.HostStateCleaning: true,
		infrav1.HostStateQuarantined: false} {
		t.Run(string(state), func(t *testing.T) {
			// It was taken for a third Machine, which goes: as many as wanted serve without it.
			left, gone, infra := hostIn("host-2", state, "old-2"), machineOf("old-2", "v1"), hostedBy("old-2", "")
			infra.Spec.ProviderID = fmt.Sprintf("quoin://%s/host-2/old-2", namespace)
			gone.Finalizers = []string{clusterv1.MachineFinalizer}
			w := withoutSpare(t, quoinv1.RolloutWithoutSpareRemoveFirst, left, gone, infra)
			w.Expect(w.client.Delete(t.Context(), w.machine("old-2"))).To(Succeed())
			host := &infrav1.QuoinHost{ObjectMeta: metav1.ObjectMeta{Name: "host-2"}}
			w.adjust(host, func() { host.Status.UnreachableSince = ptr.To(metav1.NewTime(w.clock.Now())) })
			w.reconcile()
			if waits {
				w.Expect(w.leaving()).To(ConsistOf("old-2"), w.poolMessage())
			} else {
				w.Expect(w.leaving()).To(ConsistOf("old-2", "old-0"), w.poolMessage())
			}
		})
	}
}

// A Machine of another pool that waits for a host, and gives none back, would take the one that is freed for a new one.
func TestAHostThatAnotherPoolWouldTakeIsNotFreed(t *testing.T) {
	amber := &clusterv1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "amber", UID: "amber"}}
	amber.Spec = clusterv1.MachineDeploymentSpec{ClusterName: "c1", Replicas: ptr.To[int32](1), Template: template("v3")}
	set := setOf(amber, "v3")
	set.Spec.Replicas = ptr.To[int32](1)
	rival, infra := machineOf("rival", "v3"), hostedBy("rival", "")
	rival.Labels[clusterv1.MachineDeploymentNameLabel] = "amber"
	rival.Spec.Version = "v1.36.3"
	w := withoutSpare(t, quoinv1.RolloutWithoutSpareRemoveFirst, amber, set, rival, infra)
	w.findsNone("rival")
	for i := range 2 { // whether it starts on control groups v1 only its bootstrap data say
		host := &infrav1.QuoinHost{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("host-", i)}}
		w.adjust(host, func() {
			host.Status.Facts = &infrav1.HostFacts{CgroupVersion: 1, KubeletOnCgroupV1: ptr.To(false)}
		})
	}
	w.reconcile()
	w.Expect(w.leaving()).To(BeEmpty())
	message := func() string {
		for _, progress := range w.policy().Status.MachineDeployments {
			if progress.Name == "blue" {
				return progress.Message
			}
		}
		return ""
	}
	w.Expect(message()).To(ContainSubstring("Machine rival finds no host either"))
	for i := range 2 { // it can have no host of these
		host := &infrav1.QuoinHost{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("host-", i)}}
		w.adjust(host, func() { host.Labels = map[string]string{"disk": "slow"} })
	}
	w.adjust(infra, func() {
		infra.Spec.HostSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"disk": "fast"}}
	})
	w.reconcile()
	w.Expect(w.leaving()).To(ConsistOf("old-0"), message())
}

// Hosts that the new Machine could not have stay with their Machines.
func TestAHostThatDoesNotHelpIsNotFreed(t *testing.T) {
	w := withoutSpare(t, quoinv1.RolloutWithoutSpareRemoveFirst)
	infra := &infrav1.QuoinMachine{ObjectMeta: metav1.ObjectMeta{Name: "new-0"}}
	w.adjust(infra, func() {
		infra.Spec.HostSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"disk": "fast"}}
	})
	w.reconcile()
	w.Expect(w.leaving()).To(BeEmpty())
	w.Expect(w.poolMessage()).To(ContainSubstring("add a host"))
	host := &infrav1.QuoinHost{ObjectMeta: metav1.ObjectMeta{Name: "host-1"}}
	w.adjust(host, func() { host.Labels = map[string]string{"disk": "fast"} })
	w.reconcile()
	w.Expect(w.leaving()).To(ConsistOf("old-1"))
}

// A host that names a Machine, which has another one, is none that is freed when it goes.
func TestAHostThatOnlyNamesAMachineDoesNotHelp(t *testing.T) {
	usurper := hostIn("a-host", infrav1.HostStateProvisioned, "old-1")
	usurper.Labels = map[string]string{"disk": "fast"}
	w := withoutSpare(t, quoinv1.RolloutWithoutSpareRemoveFirst, usurper)
	infra := &infrav1.QuoinMachine{ObjectMeta: metav1.ObjectMeta{Name: "new-0"}}
	w.adjust(infra, func() {
		infra.Spec.HostSelector = &metav1.LabelSelector{MatchLabels: usurper.Labels}
	})
	w.reconcile()
	w.Expect(w.leaving()).To(BeEmpty())
	w.Expect(w.poolMessage()).To(ContainSubstring("add a host"))
}

// A host that its new Machine would not accept is not freed for it, and one of a stranger is not waited for.
func TestAHostThatIsNotAcceptedDoesNotHelp(t *testing.T) {
	stranger := hostIn("host-2", infrav1.HostStateAvailable, "")
	stranger.Namespace, stranger.Spec.ConsumerNamespaces = "hostile", []string{"*"}
	w := withoutSpare(t, quoinv1.RolloutWithoutSpareRemoveFirst, stranger)
	infra := &infrav1.QuoinMachine{ObjectMeta: metav1.ObjectMeta{Name: "new-0"}}
	w.adjust(infra, func() { infra.Spec.HostNamespaces = []string{"elsewhere"} })
	w.reconcile()
	w.Expect(w.leaving()).To(BeEmpty())
	w.adjust(infra, func() { infra.Spec.HostNamespaces = nil })
	w.reconcile()
	w.Expect(w.leaving()).To(HaveLen(1))
}

// Who wrote the Machine after it was read comes first.
func TestAMachineThatSomebodyWroteIsNotRemoved(t *testing.T) {
	w := withoutSpare(t, quoinv1.RolloutWithoutSpareRemoveFirst)
	stale := w.machine("old-0")
	machine := w.machine("old-0")
	w.adjust(machine, func() { metav1.SetMetaDataAnnotation(&machine.ObjectMeta, "test/keep", "") })
	err := w.r.remove(t.Context(), w.policy(), stale, rollout.Decision{Reason: rollout.NoSpare})
	w.Expect(err).To(HaveOccurred())
	w.Expect(w.leaving()).To(BeEmpty())
}

// A host that a pool takes for a replacement is not free for the next pool.
func TestTwoPoolsDoNotCountTheSameHost(t *testing.T) {
	w := newWorld(t)
	s := &spares{promised: map[types.UID]bool{}}
	for _, name := range []string{"host-0", "host-1"} {
		host := hostIn(name, infrav1.HostStateAvailable, "")
		host.UID = types.UID(name)
		s.hosts = append(s.hosts, *host)
	}
	set := &clusterv1.MachineSet{}
	free := func(wants int) int { return s.free(w.machine("old-0"), set, hostedBy("old-0", ""), wants) }
	w.Expect(free(1)).To(Equal(2))
	w.Expect(free(1)).To(Equal(1))
	w.Expect(free(1)).To(Equal(0))
}

// The hosts of a large fleet are read only where a Machine finds none.
func TestHostsAreNotReadForNothing(t *testing.T) {
	w := withoutSpare(t, quoinv1.RolloutWithoutSpareWait)
	s, err := w.r.spares(t.Context(), failingReader{}, &clusterv1.Cluster{}, []infrav1.QuoinMachine{{}})
	w.Expect(err).NotTo(HaveOccurred())
	w.Expect(s.hosts).To(BeEmpty())
}

type failingReader struct{ client.Reader }

func (failingReader) List(context.Context, client.ObjectList, ...client.ListOption) error {
	return errors.New("nobody is to read this")
}
