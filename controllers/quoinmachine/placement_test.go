// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinmachine

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
)

func TestWhyNoHostWasTakenIsCountedUntilOneIs(t *testing.T) {
	machine, quoinMachine := owned("m1", uid1)
	maintained, away, used := host("h1", ""), host("h2", ""), host("h3", "")
	maintained.Spec.Maintenance = &infrav1.Maintenance{Reason: "new disks"}
	away.Annotations = map[string]string{infrav1.DetachedAnnotation: ""}
	used.Spec.ConsumerRef = &infrav1.ConsumerReference{Namespace: "team", Name: "other", Machine: "other",
		Claim: "ffffffff"}
	w := newWorld(t, cluster(), machine, quoinMachine, maintained, away, used)
	w.reconcile("m1")
	w.expect("m1", infrav1.MachineReadyCondition, metav1.ConditionFalse, infrav1.MachineNoMatchingHostReason,
		"no free host matches: 1 in use, 1 detached, 1 in maintenance")
	w.g.Expect(w.machine("m1").Status.Candidates).To(Equal([]infrav1.HostCandidates{
		{Reason: "in use", Hosts: 1}, {Reason: "detached", Hosts: 1}, {Reason: "in maintenance", Hosts: 1},
	}))

	w.updateHost("h1", func(h *infrav1.QuoinHost) { h.Spec.Maintenance = nil })
	w.reconcile("m1")
	w.g.Expect(w.machine("m1").Status.HostRef.Name).To(Equal("h1"))
	w.g.Expect(w.machine("m1").Status.Candidates).To(BeEmpty())
}

func TestALongSelectorIsCutInTheCounts(t *testing.T) {
	machine, quoinMachine := owned("m1", uid1)
	quoinMachine.Spec.HostSelector = &metav1.LabelSelector{MatchLabels: map[string]string{strings.Repeat("r",
		63): strings.Repeat("v", 63)}}
	w := newWorld(t, cluster(), machine, quoinMachine, host("h1", ""))
	w.reconcile("m1")
	candidates := w.machine("m1").Status.Candidates
	w.g.Expect(candidates).To(HaveLen(1))
	w.g.Expect([]rune(candidates[0].Reason)).To(HaveLen(maxReason))
}

func TestTheReplacementOfAFailedMachineGoesToAnotherHost(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	machine, quoinMachine := owned("m1", uid1)
	machine.Labels = map[string]string{clusterv1.MachineDeploymentNameLabel: "workers"}
	failed := host("h1", "")
	failed.Status.LastFailure = &infrav1.HostFailure{Time: metav1.NewTime(now.Add(-30 * time.Minute)),
		Pool: "team/workers", Reason: infrav1.HostStepFailedReason}
	w := newWorld(t, cluster(), machine, quoinMachine, failed, host("h2", ""))
	w.r.Clock = clocktesting.NewFakePassiveClock(now)
	w.reconcile("m1")
	w.g.Expect(w.machine("m1").Status.HostRef.Name).To(Equal("h2"))

	// A machine of another pool takes it: what failed there need not fail here.
	other, quoinOther := owned("m2", "99999999-0000-0000-0000-000000000000")
	other.Labels = map[string]string{clusterv1.MachineDeploymentNameLabel: "storage"}
	w.g.Expect(w.client.Create(context.Background(), other)).To(Succeed())
	w.g.Expect(w.client.Create(context.Background(), quoinOther)).To(Succeed())
	w.reconcile("m2")
	w.g.Expect(w.machine("m2").Status.HostRef.Name).To(Equal("h1"))
}

func TestTheFormerHostOfThePoolIsPreferredWhenTheTemplateSaysSo(t *testing.T) {
	for preference, want := range map[infrav1.HostPreference]string{
		"": "h1", infrav1.HostPreferenceAny: "h1", infrav1.HostPreferenceFormer: "h2",
	} {
		machine, quoinMachine := owned("m1", uid1)
		machine.Labels = map[string]string{clusterv1.MachineControlPlaneNameLabel: "cp"}
		quoinMachine.Spec.HostPreference = preference
		former := host("h2", "")
		former.Annotations = map[string]string{infrav1.FormerPoolAnnotation: "team/cp"}
		w := newWorld(t, cluster(), machine, quoinMachine, host("h1", ""), former)
		w.reconcile("m1")
		w.g.Expect(w.machine("m1").Status.HostRef.Name).To(Equal(want), string(preference))
	}
}

// A namespace that may claim a host learns nothing that opens the host: its machines live from claim to release without
// anybody reading a Secret for them.
func TestAHostOfAnotherNamespaceServesWithoutItsSecretsBeingRead(t *testing.T) {
	machine, quoinMachine := owned("m1", uid1)
	quoinMachine.Spec.HostNamespaces = []string{"hosts"}
	offered, hidden := host("b", ""), host("a", "")
	offered.Namespace, hidden.Namespace = "hosts", "hosts"
	offered.Spec.ConsumerNamespaces = []string{"team"}
	w := newWorld(t, cluster(), machine, quoinMachine, offered, hidden)
	noSecrets := interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object,
			options ...client.GetOption) error {
			if _, is := o.(*corev1.Secret); is {
				return errors.New("a Secret was read")
			}
			return c.Get(ctx, key, o, options...)
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			if _, is := list.(*corev1.SecretList); is {
				return errors.New("Secrets were listed")
			}
			return c.List(ctx, list, options...)
		},
	}
	w.r.Client = interceptor.NewClient(w.client, noSecrets)
	w.r.APIReader = w.r.Client
	w.reconcile("m1")
	w.g.Expect(w.machine("m1").Status.HostRef).To(Equal(&infrav1.HostReference{Namespace: "hosts", Name: "b"}),
		"and never the one that is not offered")

	w.delete("m1")
	released := &infrav1.QuoinHost{}
	w.g.Expect(w.client.Get(context.Background(), client.ObjectKey{Namespace: "hosts", Name: "b"}, released)).To(Succeed())
	released.Status.Operation = &infrav1.HostOperation{ID: "reset-0123abcd", Phase: "Succeeded"}
	setCondition(released, infrav1.HostCleanCondition, metav1.ConditionTrue, infrav1.HostReleasePendingReason, "")
	w.g.Expect(w.client.Status().Update(context.Background(), released)).To(Succeed())
	w.reconcile("m1")
	w.g.Expect(w.deleted("m1")).To(BeTrue())
}

// hostile is a machine that a tenant registered in a namespace of his own, and offers to every other.
func hostile(name string) *infrav1.QuoinHost {
	h := host(name, "")
	h.Namespace, h.Spec.ConsumerNamespaces = "hostile", []string{"*"}
	return h
}

func TestAHostThatNobodyAcceptedIsNotClaimed(t *testing.T) {
	machine, quoinMachine := owned("m1", uid1)
	trusting, accepting := owned("m2", "99999999-0000-0000-0000-000000000000")
	accepting.Spec.HostNamespaces = []string{"hostile"}
	used := hostile("h2")
	used.Spec.ConsumerRef = &infrav1.ConsumerReference{Namespace: "others", Name: "x", Machine: "x", Claim: "ffffffff"}
	w := newWorld(t, cluster(), machine, quoinMachine, trusting, accepting, used)
	w.reconcile("m1")
	w.reconcile("m2")
	w.expect("m1", infrav1.MachineReadyCondition, metav1.ConditionFalse, infrav1.MachineNoMatchingHostReason,
		"no free host matches: 1 in a namespace that spec.hostNamespaces does not name")
	w.expect("m2", infrav1.MachineReadyCondition, metav1.ConditionFalse, infrav1.MachineNoMatchingHostReason,
		"no free host matches: 1 in use")

	w.g.Expect(w.client.Create(context.Background(), hostile("h1"))).To(Succeed())
	w.reconcile("m1")
	w.g.Expect(w.machine("m1").Spec.ProviderID).To(BeEmpty())
	at, later := woken(t, nil, hostile("h1"))
	w.g.Expect(at).To(BeEmpty(), "nobody looks whom it does not concern")
	w.g.Expect(later).To(Equal([]string{"m1"}))
	quoinMachine = w.machine("m1")
	quoinMachine.Spec.HostNamespaces = []string{"team", "hostile"}
	w.g.Expect(w.client.Update(context.Background(), quoinMachine)).To(Succeed())
	w.reconcile("m1")
	w.g.Expect(w.machine("m1").Spec.ProviderID).To(Equal("quoin://hostile/h1/0123abcd"))
}

// Whoever may write QuoinHosts can write any claim into one. It binds nobody, and keeps nobody from going.
func TestAClaimThatAHostCameWithDoesNotBindTheMachine(t *testing.T) {
	machine, quoinMachine := owned("m1", uid1)
	imposed := hostile("h1")
	imposed.Spec.ConsumerRef = &infrav1.ConsumerReference{Namespace: "team", Name: "m1", Machine: "m1", Claim: "0123abcd"}
	w := newWorld(t, cluster(), machine, quoinMachine, imposed)
	w.reconcile("m1")
	w.g.Expect(w.machine("m1").Spec.ProviderID).To(BeEmpty())
	w.g.Expect(w.client.Create(context.Background(), host("own", ""))).To(Succeed())
	w.r.counts = counts{}
	w.reconcile("m1")
	w.g.Expect(w.machine("m1").Spec.ProviderID).To(Equal("quoin://team/own/0123abcd"))

	machine, quoinMachine = owned("m1", uid1)
	w = newWorld(t, cluster(), machine, quoinMachine, imposed.DeepCopy())
	w.reconcile("m1")
	w.delete("m1")
	w.reconcile("m1")
	w.g.Expect(w.deleted("m1")).To(BeTrue())
}

// An accepted host binds a QuoinMachine no more when its claim names somebody else's Machine: the bootstrap data are
// those of the Machine.
func TestAClaimThatNamesAnotherMachineDoesNotBind(t *testing.T) {
	machine, quoinMachine := owned("m1", uid1)
	imposed := host("h1", "")
	imposed.Spec.ConsumerRef = &infrav1.ConsumerReference{Namespace: "team", Name: "m1", Machine: "cp", Claim: "0123abcd"}
	w := newWorld(t, cluster(), machine, quoinMachine, imposed)
	w.reconcile("m1")
	w.g.Expect(w.machine("m1").Spec.ProviderID).To(BeEmpty())
	w.delete("m1")
	w.reconcile("m1")
	w.g.Expect(w.deleted("m1")).To(BeTrue())
}

// A claim that was made before hosts had to be accepted stays with its Machine.
func TestAClaimOfAHostThatWasNeverAcceptedStays(t *testing.T) {
	machine, quoinMachine := owned("m1", uid1)
	quoinMachine.Spec.ProviderID = "quoin://hostile/h1/0123abcd"
	had := hostile("h1")
	had.Spec.ConsumerRef = &infrav1.ConsumerReference{Namespace: "team", Name: "m1", Machine: "m1", Claim: "0123abcd"}
	w := newWorld(t, cluster(), machine, quoinMachine, had, host("own", ""))
	w.reconcile("m1")
	w.g.Expect(w.machine("m1").Status.HostRef.Name).To(Equal("h1"))
	w.g.Expect(w.host("own").Spec.ConsumerRef).To(BeNil())
}

func TestTheClaimOfADetachedHostDoesNotEnd(t *testing.T) {
	machine, quoinMachine := owned("m1", uid1)
	w := newWorld(t, cluster(), machine, quoinMachine, host("h1", ""))
	w.reconcile("m1")
	w.delete("m1")
	w.updateHost("h1", func(h *infrav1.QuoinHost) {
		h.Annotations = map[string]string{infrav1.DetachedAnnotation: ""}
		h.Status.Operation = &infrav1.HostOperation{ID: "reset-0123abcd", Phase: "Succeeded"}
		setCondition(h, infrav1.HostReadyCondition, metav1.ConditionFalse, infrav1.HostDetachedReason, "detached by a person")
		setCondition(h, infrav1.HostCleanCondition, metav1.ConditionTrue, infrav1.HostReleasePendingReason, "")
	})
	w.reconcile("m1")
	w.g.Expect(w.deleted("m1")).To(BeFalse())
	w.expect("m1", infrav1.MachineReadyCondition, metav1.ConditionFalse, infrav1.MachineReleasingReason,
		"detached by a person")
	w.updateHost("h1", func(h *infrav1.QuoinHost) { delete(h.Annotations, infrav1.DetachedAnnotation) })
	w.reconcile("m1")
	w.g.Expect(w.deleted("m1")).To(BeTrue())
}

func TestMachinesSpreadAmongThoseOfTheirRole(t *testing.T) {
	member, quoinMember := owned("cp1", "99999999-0000-0000-0000-000000000000")
	quoinMember.Labels[clusterv1.MachineControlPlaneLabel] = ""
	worker, quoinWorker := owned("w1", uid1)
	w := newWorld(t, cluster(), member, quoinMember, worker, quoinWorker, host("h1", "rack-a"), host("h2", "rack-a"),
		host("h3", "rack-b"))
	w.reconcile("cp1")
	w.g.Expect(w.machine("cp1").Status.HostRef.Name).To(Equal("h1"))
	w.reconcile("w1")
	w.g.Expect(w.machine("w1").Status.HostRef.Name).To(Equal("h2"), "the first worker shares its rack with no worker")
}
