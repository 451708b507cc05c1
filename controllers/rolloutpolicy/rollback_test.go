// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package rolloutpolicy

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/rollout"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/steady"
)

// failing is a world whose template v1 was completed, and whose v2 has a Machine with a host that never joins.
func failing(t *testing.T, kills func(write int) bool) *world {
	t.Helper()
	w := recording(t, kills)
	w.tries()
	return w
}

// recording is a world whose template v1 was completed, and whose policy sets others back after ten minutes.
func recording(t *testing.T, kills func(write int) bool) *world {
	t.Helper()
	w := newWorld(t, &infrav1.QuoinMachineTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "blue"}})
	w.kills = kills
	policy := w.policy()
	w.adjust(policy, func() {
		policy.Spec.OnFailure, policy.Spec.DeadlineSeconds = quoinv1.RolloutFailureRollback, ptr.To[int32](600)
	})
	w.joins("old-0")
	w.joins("old-1")
	w.edits("v1")
	w.reconcile()
	w.Expect(w.policy().Status.MachineDeployments[0].Completed).To(Equal("blue-v1"))
	w.Expect(w.policy().Status.MachineDeployments[0].Recorded).To(Equal("blue-v1"))
	return w
}

// edits the template.
func (w *world) edits(version string) {
	w.t.Helper()
	blue := w.blue()
	w.adjust(blue, func() { blue.Spec.Template.Spec.Version = version })
}

// tries v2 until its deadline is over.
func (w *world) tries() {
	w.t.Helper()
	w.edits("v2")
	name := fmt.Sprintf("new-%d", w.writes)
	w.make(machineOf(name, "v2"), hostedBy(name, "quoin://"+name))
	w.reconcile()
	w.clock.Step(10 * time.Minute)
	w.reconcile()
}

// completes a template: its Machines count, and all others are gone.
func (w *world) completes(version string) {
	w.t.Helper()
	blue, machines := w.blue(), &clusterv1.MachineList{}
	w.adjust(blue, func() { blue.Spec.Template = template(version) })
	w.Expect(client.IgnoreAlreadyExists(w.client.Create(w.t.Context(), setOf(blue, version)))).To(Succeed())
	w.Expect(w.client.List(w.t.Context(), machines)).To(Succeed())
	for i := range machines.Items {
		w.Expect(w.client.Delete(w.t.Context(), &machines.Items[i])).To(Succeed())
	}
	for i := range 2 {
		name := fmt.Sprintf("%s-%d-%d", version, w.writes, i)
		w.make(machineOf(name, version), hostedBy(name, "quoin://"+name))
		w.joins(name)
	}
	w.clock.Step(time.Hour)
	w.reconcile()
	w.Expect(w.policy().Status.MachineDeployments[0].Completed).To(Equal("blue-" + version))
}

func (w *world) blue() *clusterv1.MachineDeployment {
	w.t.Helper()
	blue := &clusterv1.MachineDeployment{}
	w.read(blue, "blue")
	return blue
}

func (w *world) recorded() []string {
	var all []string
	for {
		select {
		case event := <-w.events.Events:
			all = append(all, event)
		default:
			return all
		}
	}
}

func (w *world) message(condition string) string { return conditions.GetMessage(w.policy(), condition) }

// The template before is restored, whatever write the process dies at, once; nothing is deleted by us.
//
// Proves: C2, C16
func TestAFailedTemplateIsSetBack(t *testing.T) {
	for _, every := range []int{0, 1, 2, 3} {
		t.Run(fmt.Sprint("killed at every write of ", every), func(t *testing.T) {
			w := failing(t, func(write int) bool { return every > 0 && write%every == 0 && write < 40 })
			blue := w.blue()
			w.Expect(blue.Spec.Template.Spec.Version).To(Equal("v1"))
			w.Expect(blue.Annotations[quoinv1.RolledBackAnnotation]).To(ContainSubstring("does not count: BootstrapConfigReady"))
			w.Expect(conditions.IsTrue(w.policy(), quoinv1.RolloutPolicyRolledBackCondition)).To(BeTrue())
			w.Expect(w.message(quoinv1.RolloutPolicyRolledBackCondition)).To(ContainSubstring("Give it one that works"))
			machines := &clusterv1.MachineList{}
			w.Expect(w.client.List(t.Context(), machines)).To(Succeed())
			w.Expect(machines.Items).To(HaveLen(3))
			if every == 0 {
				w.Expect(w.recorded()).To(ContainElement(HavePrefix("Warning RolledBack MachineDeployment blue")))
			}
			w.edits("v3")
			w.reconcile()
			w.Expect(conditions.IsFalse(w.policy(), quoinv1.RolloutPolicyRolledBackCondition)).To(BeTrue())
		})
	}
}

// While Cluster API's own connection to a Cluster is cut, or after its managers were away, its objects say of a Machine
// that works that it does not. A template is set back by what the API server of that Cluster says itself.
func TestATemplateIsNotSetBackForWhatNobodySees(t *testing.T) {
	w := recording(t, func(int) bool { return false })
	scheme := runtime.NewScheme()
	w.Expect(corev1.AddToScheme(scheme)).To(Succeed())
	w.workload = fake.NewClientBuilder().WithScheme(scheme).Build()
	w.restart()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	ready := func(status corev1.ConditionStatus) {
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status}}
		w.Expect(w.workload.Status().Update(t.Context(), node)).To(Succeed())
	}
	refused := func(why string) {
		w.t.Helper()
		w.Expect(w.blue().Spec.Template.Spec.Version).To(Equal("v2"))
		w.Expect(conditions.GetReason(w.policy(), quoinv1.RolloutPolicyRolledBackCondition)).To(
			Equal(quoinv1.RollbackRefusedReason))
		w.Expect(w.message(quoinv1.RolloutPolicyRolledBackCondition)).To(And(ContainSubstring(why),
			ContainSubstring("MachineDeployment blue")))
	}
	connected := w.r.ClusterCache
	w.r.ClusterCache = clustercache.NewFakeClusterCache(w.workload, client.ObjectKey{Name: "another"}, nodesWatch)
	w.tries()
	refused("cannot be reached")
	w.Expect(w.reconcile().RequeueAfter).To(And(BeNumerically(">", 0), BeNumerically("<=", workloadRetry)), "it is asked again")

	w.r.ClusterCache = connected
	machines := &infrav1.QuoinMachineList{}
	w.Expect(w.client.List(t.Context(), machines)).To(Succeed())
	for _, machine := range machines.Items {
		if strings.HasPrefix(machine.Name, "new-") {
			node.Spec.ProviderID = machine.Spec.ProviderID
		}
	}
	w.Expect(w.workload.Create(t.Context(), node)).To(Succeed())
	ready(corev1.ConditionTrue)
	w.reconcile()
	refused("its Node n1 is Ready")

	ready(corev1.ConditionFalse)
	w.reconcile()
	w.Expect(w.blue().Spec.Template.Spec.Version).To(Equal("v1"))
}

// A template that is tried for a moment when the clock is set forward by a day has not failed.
func TestAClockThatIsSetForwardSetsNoTemplateBack(t *testing.T) {
	w := recording(t, func(int) bool { return false })
	elapsed := time.Duration(0)
	w.r.Clock = steady.From(w.clock.Now, func() time.Duration { return elapsed })
	w.edits("v2")
	w.make(machineOf("new-0", "v2"), hostedBy("new-0", "quoin://new-0"))
	w.reconcile()
	w.clock.Step(24 * time.Hour)
	w.reconcile()
	for range 9 {
		w.clock.Step(time.Minute)
		elapsed += time.Minute
		w.reconcile()
		w.Expect(w.blue().Spec.Template.Spec.Version).To(Equal("v2"))
	}
	w.clock.Step(time.Minute)
	elapsed += time.Minute
	w.reconcile()
	w.Expect(w.blue().Spec.Template.Spec.Version).To(Equal("v1"))
}

// A host that does not become a Node says nothing about a template, nor does a process that begins anew forget that
// it failed. What another host may mend no more than this one is held against the template.
//
// Proves: C2, C16
func TestAFailedHostSetsNoTemplateBack(t *testing.T) {
	w := failing(t, func(int) bool { return false })
	fails := func(name, reason string) {
		host := &infrav1.QuoinMachine{}
		w.read(host, name)
		w.adjust(host, func() {
			conditions.Set(host, metav1.Condition{Type: infrav1.MachineHostProvisionedCondition, Status: metav1.ConditionFalse,
				Reason: reason, Message: "host prod/h1: the disk is full"})
		})
	}
	trial := func() quoinv1.RolloutTrial { return w.policy().Status.MachineDeployments[0].Trial }
	blue := w.blue()
	w.adjust(blue, func() {
		delete(blue.Annotations, quoinv1.RolledBackAnnotation)
		blue.Spec.Template = template("v3")
	})
	third := machineOf("third", "v3")
	third.Annotations = map[string]string{quoinv1.RolloutAdmittedAnnotation: rollout.Admission(third, w.clock.Now())}
	w.make(setOf(blue, "v3"), third, hostedBy("third", "quoin://prod/h1/3"))
	fails("third", infrav1.HostStepFailedReason)
	w.reconcile()
	w.Expect(trial()).To(Equal(quoinv1.RolloutTrial{MachineSet: "blue-v3", Host: "prod/h1", Failed: "third"}))
	w.restart()
	w.clock.Step(time.Hour)
	w.reconcile()
	w.Expect(w.blue().Spec.Template.Spec.Version).To(Equal("v3"))
	w.Expect(w.message(quoinv1.RolloutPolicyStalledCondition)).To(And(ContainSubstring("StepFailed: host prod/h1: the disk"),
		ContainSubstring("Delete the Machine")))

	w.Expect(w.client.Delete(t.Context(), machineOf("third", "v3"))).To(Succeed())
	w.make(machineOf("fourth", "v3"), hostedBy("fourth", "quoin://prod/h2/4"))
	fails("fourth", infrav1.HostStepFailedReason)
	w.reconcile()
	w.Expect(trial().Host).To(Equal("prod/h1"))
	w.Expect(trial().Since.Time).To(BeTemporally("==", w.clock.Now()))
	w.clock.Step(599 * time.Second)
	w.reconcile()
	w.Expect(w.blue().Spec.Template.Spec.Version).To(Equal("v3"))
	w.clock.Step(time.Second)
	w.reconcile()
	w.Expect(w.blue().Spec.Template.Spec.Version).To(Equal("v1"))
}

// Bootstrap data that cannot be carried out are the template's.
func TestBootstrapDataThatAreInvalidSetATemplateBack(t *testing.T) {
	of := hostedBy("new", "quoin://new")
	conditions.Set(of, metav1.Condition{Type: infrav1.MachineHostProvisionedCondition, Status: metav1.ConditionFalse,
		Reason: infrav1.HostBootstrapDataInvalidReason})
	NewWithT(t).Expect(hostOf(of)).To(Equal(host{claimed: true}))
}

// Cluster API deletes a MachineSet with its last Machine: what was recorded is enough. What changes in place stays as a
// person changed it since.
func TestTheRecordOutlivesTheMachineSet(t *testing.T) {
	w := failing(t, func(int) bool { return false })
	w.edits("v2")
	blue := w.blue()
	w.adjust(blue, func() {
		delete(blue.Annotations, quoinv1.RolledBackAnnotation)
		blue.Spec.Template.Labels = map[string]string{"tier": "web"}
		blue.Spec.Template.Spec.Deletion.NodeDrainTimeoutSeconds = ptr.To[int32](5)
	})
	for _, gone := range []client.Object{setOf(blue, "v1"), machineOf("old-0", "v1"), machineOf("old-1", "v1")} {
		w.Expect(w.client.Delete(t.Context(), gone)).To(Succeed())
	}
	w.reconcile()
	w.clock.Step(time.Hour)
	w.reconcile()
	blue = w.blue()
	w.Expect(blue.Spec.Template.Spec.Version).To(Equal("v1"))
	w.Expect(blue.Spec.Template.Labels).To(HaveKeyWithValue("tier", "web"))
	w.Expect(blue.Spec.Template.Spec.Deletion.NodeDrainTimeoutSeconds).To(HaveValue(BeEquivalentTo(5)))
}

// A tool that writes the failed template again is not fought.
func TestATemplateIsSetBackOnce(t *testing.T) {
	w := failing(t, func(int) bool { return false })
	w.recorded()
	w.edits("v2")
	w.reconcile()
	w.clock.Step(time.Hour)
	w.reconcile()
	w.Expect(w.blue().Spec.Template.Spec.Version).To(Equal("v2"))
	w.Expect(conditions.GetReason(w.policy(), quoinv1.RolloutPolicyRolledBackCondition)).To(
		Equal(quoinv1.RollbackRefusedReason))
	w.Expect(w.message(quoinv1.RolloutPolicyRolledBackCondition)).To(ContainSubstring("is there again"))
	w.Expect(w.recorded()).To(ContainElement(HavePrefix("Warning RollbackRefused")))
}

// When another template is completed, what failed before it and what was restored are forgotten: either may come again.
func TestACompletedTemplateEndsAnAttempt(t *testing.T) {
	for _, every := range []int{0, 1, 2} {
		t.Run(fmt.Sprint("killed at every write of ", every), func(t *testing.T) {
			w := failing(t, func(write int) bool { return every > 0 && write%every == 0 && write < 100 })
			w.completes("v3")
			w.Expect(w.blue().Annotations).NotTo(HaveKey(quoinv1.RolledBackAnnotation))
			w.completes("v1")
			w.Expect(conditions.GetReason(w.policy(), quoinv1.RolloutPolicyRolledBackCondition)).To(
				Equal(quoinv1.NothingRolledBackReason))
			w.tries()
			w.Expect(w.blue().Spec.Template.Spec.Version).To(Equal("v1"))
			w.Expect(conditions.IsTrue(w.policy(), quoinv1.RolloutPolicyRolledBackCondition)).To(BeTrue())
			w.completes("v1")
			w.Expect(w.blue().Annotations).To(HaveKey(quoinv1.RolledBackAnnotation), "it is what was restored")
		})
	}
}

// What another one writes again and again, what a topology makes, what needs something that is gone, and what an
// admission refuses, is left as it is; the message says whose it is.
//
// Proves: C2
func TestATemplateIsNotSetBackAgainst(t *testing.T) {
	for name, c := range map[string]struct {
		change func(w *world)
		says   string
	}{
		"a topology": {func(w *world) {
			blue := w.blue()
			w.adjust(blue, func() { blue.Labels = map[string]string{clusterv1.ClusterTopologyOwnedLabel: ""} })
		}, "spec.topology.version"},
		"somebody who applies": {func(w *world) {
			w.r.APIReader = interceptor.NewClient(w.client, interceptor.Funcs{Get: func(ctx context.Context,
				c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
				defer object.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "flux",
					Operation: metav1.ManagedFieldsOperationApply,
					FieldsV1:  metav1.NewFieldsV1(`{"f:spec":{"f:template":{"f:spec":{"f:version":{}}}}}`)}})
				return c.Get(ctx, key, object, options...)
			}})
		}, "spec.template.spec.version of MachineDeployment blue is written by flux (Apply)"},
		"a template that is gone": {func(w *world) {
			gone := &infrav1.QuoinMachineTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "blue"}}
			w.Expect(w.client.Delete(w.t.Context(), gone)).To(Succeed())
		}, "QuoinMachineTemplate blue"},
		"a record that is gone": {func(w *world) {
			gone := &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "blue-v1"}}
			w.Expect(w.client.Delete(w.t.Context(), gone)).To(Succeed())
		}, "no template of MachineDeployment blue is recorded"},
		"a version that skew forbids": {func(w *world) {
			w.r.Client = interceptor.NewClient(w.client, interceptor.Funcs{Patch: func(ctx context.Context,
				c client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
				if _, is := object.(*clusterv1.MachineDeployment); is {
					return apierrors.NewForbidden(schema.GroupResource{Resource: "machinedeployments"}, "blue",
						errors.New("v1 is four minors behind"))
				}
				return c.Patch(ctx, object, patch, options...)
			}})
		}, "v1 is four minors behind"},
	} {
		t.Run(name, func(t *testing.T) {
			w := failing(t, func(int) bool { return false })
			blue := w.blue()
			w.adjust(blue, func() { delete(blue.Annotations, quoinv1.RolledBackAnnotation) })
			w.edits("v2")
			c.change(w)
			w.reconcile()
			w.clock.Step(time.Hour)
			w.reconcile()
			w.Expect(w.blue().Spec.Template.Spec.Version).To(Equal("v2"))
			w.Expect(conditions.GetReason(w.policy(), quoinv1.RolloutPolicyRolledBackCondition)).To(
				Equal(quoinv1.RollbackRefusedReason))
			w.Expect(w.message(quoinv1.RolloutPolicyRolledBackCondition)).To(ContainSubstring(c.says))
		})
	}
}

// A canary that was proved and waits for a person is not set back, nor called late, for a moment in which it is not
// healthy: what the status remembers of it is enough, in whatever process. Nothing is written while it waits.
//
// Proves: C16
func TestWhatWasProvedHasItsDeadlineAgain(t *testing.T) {
	w := failing(t, func(int) bool { return false })
	policy := w.policy()
	w.adjust(policy, func() { policy.Spec.PauseAfter, policy.Spec.SoakSeconds = quoinv1.RolloutPauseCanary, nil })
	blue, machines := w.blue(), &clusterv1.MachineList{}
	w.adjust(blue, func() { delete(blue.Annotations, quoinv1.RolledBackAnnotation) })
	w.edits("v2")
	w.Expect(w.client.List(t.Context(), machines)).To(Succeed())
	w.Expect(w.client.Delete(t.Context(), &machines.Items[0])).To(Succeed())
	const name = "canary"
	host := hostedBy(name, "")
	w.make(machineOf(name, "v2"), host)
	w.reconcile()
	w.adjust(host, func() { host.Spec.ProviderID = "quoin://canary" })
	w.joins(name)
	w.reconcile()
	w.Expect(w.policy().Status.PausedAfter).To(Equal(name))
	proved := w.policy().Status.MachineDeployments[0].Proved
	w.Expect(proved).To(ConsistOf(And(HaveField("Name", name), HaveField("Lost", BeZero()))))
	writes := w.writes
	w.clock.Step(48 * time.Hour)
	w.reconcile()
	w.Expect(w.writes).To(Equal(writes))

	canary := w.machine(name)
	conditions.Set(canary, metav1.Condition{Type: clusterv1.MachineNodeHealthyCondition, Status: metav1.ConditionFalse,
		Reason: "Gone", LastTransitionTime: metav1.NewTime(w.clock.Now())})
	w.Expect(w.client.Status().Update(t.Context(), canary)).To(Succeed())
	w.reconcile()
	w.restart()
	w.clock.Step(9 * time.Minute)
	w.reconcile()
	w.Expect(w.blue().Spec.Template.Spec.Version).To(Equal("v2"))
	w.Expect(conditions.IsTrue(w.policy(), quoinv1.RolloutPolicyStalledCondition)).To(BeFalse())
	w.Expect(w.policy().Status.MachineDeployments[0].Proved[0].Since).To(Equal(proved[0].Since))
	w.clock.Step(time.Minute)
	w.reconcile()
	w.Expect(w.blue().Spec.Template.Spec.Version).To(Equal("v1"))
}

// What a person pauses, the Cluster or the policy alone, is tried no longer: what was left of its deadline is left when
// it goes on, in whatever process.
//
// Proves: C16
func TestAPauseTakesNothingOfADeadline(t *testing.T) {
	for by, pause := range pauses {
		t.Run(by, func(t *testing.T) {
			w := recording(t, func(int) bool { return false })
			w.edits("v2")
			w.make(machineOf("canary", "v2"), hostedBy("canary", "quoin://canary"))
			w.reconcile()
			w.clock.Step(9 * time.Minute)
			for range 2 {
				w.isPausedFor(31*time.Minute, pause)
				w.restart()
				w.reconcile()
				w.Expect(w.blue().Spec.Template.Spec.Version).To(Equal("v2"))
			}
			w.clock.Step(59 * time.Second)
			w.reconcile()
			w.Expect(w.blue().Spec.Template.Spec.Version).To(Equal("v2"))
			w.clock.Step(time.Second)
			w.reconcile()
			w.Expect(w.blue().Spec.Template.Spec.Version).To(Equal("v1"))
		})
	}
}

// While Cluster API has a Machine paused, and until it goes on with it, it is late for nothing.
func TestWhatClusterAPIPausesIsNotLate(t *testing.T) {
	w := recording(t, func(int) bool { return false })
	policy, host := w.policy(), hostedBy("canary", "")
	w.adjust(policy, func() { policy.Spec.OnFailure = quoinv1.RolloutFailureStop })
	w.edits("v2")
	w.make(machineOf("canary", "v2"), host)
	w.reconcile()
	w.adjust(host, func() { host.Spec.ProviderID = "quoin://canary" })
	paused := func(is metav1.ConditionStatus) {
		canary := w.machine("canary")
		conditions.Delete(canary, clusterv1.PausedCondition) // or a change of it would be as of now
		conditions.Set(canary, metav1.Condition{Type: clusterv1.PausedCondition, Status: is, Reason: "Test",
			LastTransitionTime: metav1.NewTime(w.clock.Now())})
		w.Expect(w.client.Status().Update(t.Context(), canary)).To(Succeed())
	}
	late := func() bool {
		w.reconcile()
		return conditions.IsTrue(w.policy(), quoinv1.RolloutPolicyStalledCondition)
	}
	paused(metav1.ConditionTrue)
	w.isPausedFor(time.Hour, pauses["the Cluster"])
	w.Expect(late()).To(BeFalse(), "Cluster API comes to it in a moment")
	paused(metav1.ConditionFalse)
	w.clock.Step(599 * time.Second)
	w.Expect(late()).To(BeFalse())
	w.clock.Step(time.Second)
	w.Expect(late()).To(BeTrue())
	w.Expect(w.message(quoinv1.RolloutPolicyStalledCondition)).To(HavePrefix("Machine canary goes on after a pause since"))
}

// Since when Cluster API goes on with a Machine is said by its condition, which a new Machine has as well.
func TestSinceWhenAMachineGoesOn(t *testing.T) {
	g, now := NewWithT(t), time.Date(2026, 11, 23, 8, 0, 0, 0, time.UTC)
	machine := machineOf("new", "v2")
	machine.CreationTimestamp = metav1.NewTime(now.Add(-time.Hour))
	g.Expect(resumedAt(machine, now)).To(BeZero())
	for _, c := range []struct {
		is    metav1.ConditionStatus
		since time.Duration
		want  time.Time
	}{
		{metav1.ConditionTrue, -time.Minute, now},
		{metav1.ConditionFalse, -time.Minute, now.Add(-time.Minute)},
		{metav1.ConditionFalse, time.Minute - time.Hour, now.Add(time.Minute - time.Hour)},
		{metav1.ConditionFalse, 59*time.Second - time.Hour, time.Time{}},
	} {
		machine.Status.Conditions = []metav1.Condition{{Type: clusterv1.PausedCondition, Status: c.is,
			LastTransitionTime: metav1.NewTime(now.Add(c.since))}}
		g.Expect(resumedAt(machine, now)).To(BeTemporally("==", c.want), "%+v", c)
	}
	machine.Annotations = map[string]string{clusterv1.PausedAnnotation: ""}
	machine.Status.Conditions[0].Status = metav1.ConditionTrue
	g.Expect(resumedAt(machine, now)).To(BeZero(), "a person paused it by itself")
}

// One record is kept for each MachineDeployment, which goes with it; none where nothing is set back.
func TestRecords(t *testing.T) {
	w := failing(t, func(int) bool { return false })
	kept := &appsv1.ControllerRevisionList{}
	w.Expect(w.client.List(t.Context(), kept)).To(Succeed())
	w.Expect(kept.Items).To(HaveLen(1))
	w.Expect(metav1.IsControlledBy(&kept.Items[0], w.blue())).To(BeTrue())
	w.edits("v2")
	for _, name := range []string{"old-0", "old-1"} {
		w.Expect(w.client.Delete(t.Context(), w.machine(name))).To(Succeed())
	}
	machines := &clusterv1.MachineList{}
	w.Expect(w.client.List(t.Context(), machines)).To(Succeed())
	w.make(machineOf("more", "v2"), hostedBy("more", "quoin://more"))
	w.joins("more")
	w.joins(machines.Items[0].Name)
	w.clock.Step(time.Hour)
	w.reconcile()
	w.clock.Step(time.Hour)
	w.reconcile()
	w.Expect(w.policy().Status.MachineDeployments[0].Completed).To(Equal("blue-v2"))
	w.Expect(w.client.List(t.Context(), kept)).To(Succeed())
	w.Expect(kept.Items).To(ConsistOf(HaveField("Name", "blue-v2")))

	// Nor is one of a pool that is seen first while none of its Machines is well.
	for _, onFailure := range []quoinv1.RolloutFailure{quoinv1.RolloutFailureStop, quoinv1.RolloutFailureRollback} {
		w = newWorld(t, &infrav1.QuoinMachineTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "blue"}})
		policy := w.policy()
		w.adjust(policy, func() { policy.Spec.OnFailure = onFailure })
		for _, name := range []string{"old-0", "old-1"} {
			if onFailure == quoinv1.RolloutFailureStop {
				w.joins(name)
			} else {
				w.meets(name, clusterv1.MachineBootstrapConfigReadyCondition, clusterv1.MachineInfrastructureReadyCondition)
			}
		}
		w.edits("v1")
		w.reconcile()
		w.Expect(w.policy().Status.MachineDeployments[0].Completed).To(Equal("blue-v1"))
		w.Expect(w.client.List(t.Context(), kept)).To(Succeed())
		w.Expect(kept.Items).To(BeEmpty(), "%s", onFailure)
	}
	w.joins("old-0")
	w.reconcile()
	w.Expect(w.client.List(t.Context(), kept)).To(Succeed())
	w.Expect(kept.Items).To(HaveLen(1), "one is well")
}
