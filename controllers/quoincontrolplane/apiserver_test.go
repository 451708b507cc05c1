// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoincontrolplane

import (
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/controllers/quoincontrolplane/desired"
	"github.com/quoin-dev/cluster-api-provider-quoin/controllers/quoincontrolplane/observe"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
)

// hostOf is the host of a Machine, which knows whom it serves.
func (w *world) hostOf(name string) *infrav1.QuoinHost {
	w.t.Helper()
	host := &infrav1.QuoinHost{}
	w.g.Expect(w.mgmt.Get(w.t.Context(), client.ObjectKey{Namespace: "hosts", Name: "h-" + name}, host)).To(Succeed())
	return host
}

// said is what the host of a Machine says of its API server.
func (w *world) said(name string, status metav1.ConditionStatus, reason, message string) {
	w.t.Helper()
	host := w.hostOf(name)
	conditions.Set(host, metav1.Condition{Type: infrav1.HostAPIServerStoppedCondition, Status: status, Reason: reason,
		Message: message})
	w.g.Expect(w.mgmt.Status().Update(w.t.Context(), host)).To(Succeed())
}

// drainedLeaver is the Machine of three that leaves, drained, whose host is known.
func drainedLeaver(t *testing.T) (*world, string) {
	w, names := three(t)
	// In the time that a host really has.
	w.r.Timings = DefaultTimings()
	w.reconcile()
	w.edit(outdate)
	w.reconcile()
	for _, machine := range w.machines() {
		if w.infra(machine.Name).Spec.ProviderID == "" {
			w.provision(machine.Name)
		}
	}
	w.reconcile()
	for _, name := range names {
		if !w.machine(name).DeletionTimestamp.IsZero() {
			w.drained(name)
			w.serves(name)
			return w, name
		}
	}
	w.t.Fatal("nobody leaves")
	return nil, ""
}

// serves takes back what left says.
func (w *world) serves(name string) {
	w.t.Helper()
	infra := w.infra(name)
	delete(infra.Annotations, infrav1.StopAPIServerAnnotation)
	w.g.Expect(w.mgmt.Update(w.t.Context(), infra)).To(Succeed())
	host := w.hostOf(name)
	conditions.Delete(host, infrav1.HostAPIServerStoppedCondition)
	w.g.Expect(w.mgmt.Status().Update(w.t.Context(), host)).To(Succeed())
}

func (w *world) asked(name string) string {
	return w.infra(name).Annotations[infrav1.StopAPIServerAnnotation]
}

func TestTheMemberGoesWhenTheAPIServerHasLeft(t *testing.T) {
	w, name := drainedLeaver(t)
	g := w.g
	g.Expect(w.asked(name)).To(BeEmpty())
	w.reconcile()
	asked := w.asked(name)
	g.Expect(time.Parse(time.RFC3339, asked)).To(BeTemporally("~", time.Now(), time.Minute))
	g.Expect(w.etcd.removed).To(BeEmpty())
	g.Expect(w.plane().Status.Operation.WaitingOn).To(ContainSubstring(controlplane.ReasonAPIServerLeaves))

	w.said(name, metav1.ConditionFalse, infrav1.HostStepRunningReason, "")
	w.r = w.again()
	w.reconcile()
	g.Expect(w.etcd.removed).To(BeEmpty())
	g.Expect(w.asked(name)).To(Equal(asked), "its time does not begin anew with each manager")

	w.said(name, metav1.ConditionTrue, infrav1.HostAPIServerStoppedReason, "")
	w.reconcile()
	g.Expect(w.etcd.removed).To(HaveLen(1))
	g.Expect(w.hasHook(name)).To(BeFalse())
}

// again is the reconciler of the next manager.
func (w *world) again() *Reconciler {
	return &Reconciler{Client: w.mgmt, APIReader: w.mgmt, Hosts: noHosts{}, Etcd: w.etcd, Recorder: w.r.Recorder,
		ClusterCache: w.r.ClusterCache, Timings: w.r.Timings}
}

// A host that does not answer, or cannot, holds nobody up for ever, and everybody is told.
func TestAnAPIServerThatStaysHoldsNothingUp(t *testing.T) {
	for name, c := range map[string]struct {
		happens func(w *world, name string)
		why     string
	}{
		"its kubelet does not end it": {func(w *world, name string) {
			w.said(name, metav1.ConditionFalse, infrav1.HostStepFailedReason, "the kubelet has not ended it")
		}, "the kubelet has not ended it"},
		"its time is over": {func(w *world, name string) {
			infra := w.infra(name)
			infra.Annotations[infrav1.StopAPIServerAnnotation] = time.Now().Add(-DefaultTimings().APIServerStop - time.Minute).
				UTC().Format(time.RFC3339)
			w.g.Expect(w.mgmt.Update(w.t.Context(), infra)).To(Succeed())
		}, "has not ended it within 2m0s"},
		"it is silent": {func(w *world, name string) {
			host := w.hostOf(name)
			host.Status.UnreachableSince = ptr.To(metav1.NewTime(time.Now().Add(-DefaultTimings().APIServerStop - time.Minute)))
			w.g.Expect(w.mgmt.Status().Update(w.t.Context(), host)).To(Succeed())
		}, "does not answer"},
	} {
		t.Run(name, func(t *testing.T) {
			w, machine := drainedLeaver(t)
			w.reconcile()
			w.g.Expect(w.etcd.removed).To(BeEmpty())
			c.happens(w, machine)
			w.reconcile()
			w.g.Expect(w.etcd.removed).To(HaveLen(1))
			recorder := w.r.Recorder.(*events.FakeRecorder)
			var told []string
			for len(recorder.Events) > 0 {
				told = append(told, <-recorder.Events)
			}
			w.g.Expect(told).To(ContainElement(And(HavePrefix(corev1.EventTypeWarning+" "+controlplane.ReasonAPIServerStays),
				ContainSubstring(c.why))))
		})
	}
}

func TestAHostThatStoppedItsAPIServerWakesTheControlPlane(t *testing.T) {
	g := NewWithT(t)
	before := &infrav1.QuoinHost{}
	after := before.DeepCopy()
	conditions.Set(after, metav1.Condition{Type: infrav1.HostAPIServerStoppedCondition, Status: metav1.ConditionTrue,
		Reason: infrav1.HostAPIServerStoppedReason})
	g.Expect(hostStoppedAPIServer().Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after})).To(BeTrue())
	g.Expect(hostStoppedAPIServer().Update(event.UpdateEvent{ObjectOld: after, ObjectNew: after})).To(BeFalse())
	g.Expect(hostStoppedAPIServer().Update(event.UpdateEvent{ObjectOld: after, ObjectNew: before})).To(BeFalse())
}

// shutdown is how an API server that is asked to end was told to do that.
func shutdown(server bootstrapv1.APIServer) (flags []string) {
	for _, arg := range server.ExtraArgs {
		if strings.HasPrefix(arg.Name, "shutdown-") {
			flags = append(flags, arg.Name+"="+*arg.Value)
		}
	}
	return flags
}

const (
	defaultDelay   = "shutdown-delay-duration=8s"
	defaultWatches = "shutdown-watch-termination-grace-period=5s"
)

func TestAPIServersOfNewMachinesEndInOrder(t *testing.T) {
	w, _ := three(t)
	g := w.g
	configs := &bootstrapv1.KubeadmConfigList{}
	g.Expect(w.mgmt.List(t.Context(), configs)).To(Succeed())
	g.Expect(configs.Items).To(HaveLen(3))
	for _, config := range configs.Items {
		g.Expect(shutdown(config.Spec.ClusterConfiguration.APIServer)).To(Equal([]string{defaultDelay, defaultWatches}))
	}
	// That is what kubeadm join reads.
	stored := &corev1.ConfigMap{}
	g.Expect(w.workload.Get(t.Context(), client.ObjectKey{Namespace: metav1.NamespaceSystem,
		Name: observe.KubeadmConfigName},
		stored)).To(Succeed())
	g.Expect(strings.Count(stored.Data["ClusterConfiguration"], "shutdown-delay-duration")).To(Equal(1))
	g.Expect(strings.Count(stored.Data["ClusterConfiguration"], "shutdown-watch-termination-grace-period")).To(Equal(1))
	g.Expect(shutdown(w.plane().Spec.KubeadmConfigSpec.ClusterConfiguration.APIServer)).
		To(BeEmpty(), "the spec is the user's")
}

// Machines that are older than a default keep what they have until something else replaces them.
func TestNobodyIsReplacedForADefault(t *testing.T) {
	for name, had := range map[string][]bootstrapv1.Arg{
		"none of them": nil, "the delay alone": {desired.ShutdownDelay}, "the watches alone": {desired.WatchTermination},
	} {
		t.Run(name, func(t *testing.T) {
			w, names := three(t)
			g := w.g
			for _, name := range names {
				config := &bootstrapv1.KubeadmConfig{}
				g.Expect(w.mgmt.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, config)).To(Succeed())
				config.Spec.ClusterConfiguration.APIServer.ExtraArgs = had
				g.Expect(w.mgmt.Update(t.Context(), config)).To(Succeed())
			}
			w.reconcile()
			g.Expect(w.machines()).To(HaveLen(3))
			g.Expect(w.plane().Status.UpToDateReplicas).To(HaveValue(BeEquivalentTo(3)))
			// Whoever asks for one gets it everywhere.
			w.edit(func(plane *controlplanev1.QuoinControlPlane) {
				plane.Spec.KubeadmConfigSpec.ClusterConfiguration.APIServer.ExtraArgs = []bootstrapv1.Arg{
					{Name: desired.ShutdownDelay.Name, Value: ptr.To("5s")}}
			})
			w.reconcile()
			g.Expect(w.machines()).To(HaveLen(4), "the first of three that are replaced")
			w.reconcile()
			config := &bootstrapv1.KubeadmConfig{}
			g.Expect(w.mgmt.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: w.machines()[0].Name}, config)).
				To(Succeed())
			g.Expect(shutdown(config.Spec.ClusterConfiguration.APIServer)).
				To(Equal([]string{"shutdown-delay-duration=5s", defaultWatches}))
		})
	}
}

// Whoever takes a flag back gets the default, which replaces what has the flag.
func TestWhoTakesAFlagBackGetsTheDefault(t *testing.T) {
	w, names := three(t)
	g := w.g
	for _, name := range names {
		config := &bootstrapv1.KubeadmConfig{}
		g.Expect(w.mgmt.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, config)).To(Succeed())
		config.Spec.ClusterConfiguration.APIServer.ExtraArgs = []bootstrapv1.Arg{
			{Name: desired.WatchTermination.Name, Value: ptr.To("20s")}}
		g.Expect(w.mgmt.Update(t.Context(), config)).To(Succeed())
	}
	w.reconcile()
	g.Expect(w.machines()).To(HaveLen(4), "the first of three that are replaced")
}
