// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoincontrolplane

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/controllers/quoincontrolplane/desired"
)

func request() ctrl.Request { return ctrl.Request{NamespacedName: key} }

func TestDeletionWaitsForWorkersThenTakesAll(t *testing.T) {
	w := newWorld(t, 1)
	g := w.g
	name := initialized(t, w)
	worker := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "worker",
		Labels: map[string]string{clusterv1.ClusterNameLabel: "c"}}}
	worker.Spec.ClusterName = "c"
	g.Expect(w.mgmt.Create(t.Context(), worker)).To(Succeed())
	g.Expect(w.mgmt.Delete(t.Context(), w.plane())).To(Succeed())
	w.reconcile()
	g.Expect(w.machine(name).DeletionTimestamp).To(BeNil())
	g.Expect(w.condition(controlplanev1.ControlPlaneDeletingCondition)).To(And(
		HaveField("Status", metav1.ConditionTrue), HaveField("Reason", controlplanev1.WaitingForWorkersDeletionReason),
		HaveField("Message", ContainSubstring("\n* Machines: worker"))))
	g.Expect(w.mgmt.Delete(t.Context(), worker)).To(Succeed())
	w.reconcile()
	g.Expect(w.machine(name).DeletionTimestamp).NotTo(BeNil())
	g.Expect(w.hasHook(name)).To(BeFalse(), "no ceremony for etcd when everything goes")
	g.Expect(w.etcd.removed).To(BeEmpty())
	w.gone(name)
	w.once()
	g.Expect(client.IgnoreNotFound(w.mgmt.Get(t.Context(), key, &controlplanev1.QuoinControlPlane{}))).To(Succeed())
	g.Expect(w.mgmt.Get(t.Context(), key, &controlplanev1.QuoinControlPlane{})).NotTo(Succeed(), "the finalizer is gone")
}

// Somebody deletes the only Machine: it is kept until a replacement votes.
//
// Proves: S2-24, S2-28
func TestOnlyMachineIsKeptUntilReplaced(t *testing.T) {
	w := newWorld(t, 1)
	g := w.g
	first := initialized(t, w)
	g.Expect(w.mgmt.Delete(t.Context(), w.machine(first))).To(Succeed())
	w.drained(first)
	w.reconcile()
	g.Expect(w.hasHook(first)).To(BeTrue())
	g.Expect(w.machines()).To(HaveLen(2), "a replacement is made")
	second := other(w, first)
	w.provision(second)
	w.reconcile()
	g.Expect(w.etcd.removed).To(Equal([]uint64{1}))
	g.Expect(w.hasHook(first)).To(BeFalse())
}

// What cannot be written to the Machines that stay does not keep the one that leaves, and is told.
func TestFailuresDoNotHoldUpDepartures(t *testing.T) {
	w := newWorld(t, 3)
	g := w.g
	first := initialized(t, w)
	second := other(w, first)
	w.hold(second)
	w.edit(func(p *controlplanev1.QuoinControlPlane) {
		p.Spec.MachineTemplate.ObjectMeta.Labels = map[string]string{"a": "b"}
	})
	w.refuseApply = true
	g.Expect(w.mgmt.Delete(t.Context(), w.machine(second))).To(Succeed())
	_, err := w.r.Reconcile(t.Context(), request())
	g.Expect(err).To(MatchError(ContainSubstring("admission says no")))
	g.Expect(w.hasHook(second)).To(BeFalse())
	g.Expect(w.condition(controlplanev1.ControlPlaneRollingOutCondition).Message).To(ContainSubstring("admission says no"))
}

// What cannot be written to the Machines that stay keeps nothing from going that casts no vote, and is told. A Machine
// whose member votes stays until it can be, and nothing is made until then.
func TestFailuresDoNotHoldUpTheEndOfADeadMember(t *testing.T) {
	w, names := three(t)
	g := w.g
	refused := func(machines int) {
		t.Helper()
		for range 4 {
			_, err := w.r.Reconcile(t.Context(), request())
			g.Expect(err).To(MatchError(ContainSubstring("admission says no")))
		}
		g.Expect(w.machines()).To(HaveLen(machines), "nothing is made")
	}
	w.edit(func(p *controlplanev1.QuoinControlPlane) {
		p.Spec.MachineTemplate.ObjectMeta.Labels = map[string]string{"a": "b"}
	})
	w.refuseApply = true
	w.noSpare()
	w.mark(names[1])
	refused(3)
	g.Expect(w.machine(names[1]).DeletionTimestamp).To(BeNil(), "its member votes")

	w.silence(names[1])
	refused(3)
	g.Expect(w.machine(names[1]).DeletionTimestamp).NotTo(BeNil())
	g.Expect(w.hasDrainHook(names[1])).To(BeFalse())
	w.drained(names[1])
	refused(3)
	g.Expect(w.etcd.removed).To(Equal([]uint64{2}))
	g.Expect(w.hasHook(names[1])).To(BeFalse())
	w.gone(names[1])
	refused(2)
	w.refuseApply = false
	w.reconcile()
	g.Expect(w.machines()).To(HaveLen(3), "its replacement")
}

// Each failure has the next reconcile come later, and what is counted begins anew after a gap in which nobody looked.
// However long something is refused, reconciles come often enough for the counting of silence, or nobody would ever be
// dead.
func TestFailuresThatGoOnEndNoCountOfSilence(t *testing.T) {
	failing := func(t *testing.T) (w *world, names []string, retry func(times int)) {
		t.Helper()
		w, names = three(t)
		clock, limiter := clocktesting.NewFakePassiveClock(time.Now()), limiterOf(w)
		w.r.Clock, w.r.Timings = clock, DefaultTimings()
		w.noSpare()
		w.edit(func(p *controlplanev1.QuoinControlPlane) {
			p.Spec.MachineTemplate.ObjectMeta.Labels = map[string]string{"a": "b"}
		})
		w.refuseApply = true
		retry = func(times int) {
			t.Helper()
			for range times {
				_, err := w.r.Reconcile(t.Context(), request())
				w.g.Expect(err).To(MatchError(ContainSubstring("admission says no")))
				clock.SetTime(clock.Now().Add(limiter.When(request())))
			}
		}
		retry(20)
		return w, names, retry
	}
	t.Run("a dead member", func(t *testing.T) {
		w, names, retry := failing(t)
		w.annotate(names[1], clusterv1.RemediateMachineAnnotation, "")
		w.silence(names[1])
		retry(1)
		w.g.Expect(w.machine(names[1]).DeletionTimestamp).To(BeNil(), "it may be back")
		retry(3)
		w.g.Expect(w.machine(names[1]).DeletionTimestamp).NotTo(BeNil())
	})
	t.Run("an orphaned member", func(t *testing.T) {
		w, _, retry := failing(t)
		w.etcd.join("n-lost", "10.0.0.99", false)
		w.etcd.members[3].Answers = false
		retry(8)
		w.g.Expect(w.etcd.removed).To(BeEmpty(), "it may be back for ten minutes")
		retry(8)
		w.g.Expect(w.etcd.removed).To(Equal([]uint64{4}))
	})
}

// limiterOf is what spaces the retries of a controller as it is set up.
func limiterOf(w *world) workqueue.TypedRateLimiter[ctrl.Request] {
	w.t.Helper()
	mgr, err := ctrl.NewManager(&rest.Config{Host: "https://quoin.test"}, ctrl.Options{Scheme: testScheme(),
		Metrics:        metricsserver.Options{BindAddress: "0"},
		MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return testMapper(), nil }})
	w.g.Expect(err).NotTo(HaveOccurred())
	r := &Reconciler{Client: w.mgmt, APIReader: w.mgmt, Hosts: noHosts{}, ClusterCache: w.r.ClusterCache,
		Recorder: w.r.Recorder}
	options := controller.Options{SkipNameValidation: ptr.To(true)}
	w.g.Expect(r.SetupWithManager(w.t.Context(), mgr, options)).To(Succeed())
	// controller-runtime has no other way to it.
	field := reflect.ValueOf(r.controller).Elem().FieldByName("RateLimiter")
	limiter, ok := field.Interface().(workqueue.TypedRateLimiter[ctrl.Request])
	w.g.Expect(ok).To(BeTrue())
	return limiter
}

// What is refused is refused before anything is made: a QuoinMachine is deleted and made again else, for ever.
func TestARefusedMachineLeavesNothingBehind(t *testing.T) {
	w := newWorld(t, 1)
	w.refuseApply = true
	var refused error
	for range 5 {
		_, err := w.r.Reconcile(t.Context(), request())
		refused = errors.Join(refused, err)
		var made infrav1.QuoinMachineList
		w.g.Expect(w.mgmt.List(t.Context(), &made)).To(Succeed())
		w.g.Expect(made.Items).To(BeEmpty())
	}
	w.g.Expect(refused).To(MatchError(ContainSubstring("admission says no")))
}

// A Machine may go while its conditions are being written.
func TestWhatIsGoneIsNoFailure(t *testing.T) {
	w := newWorld(t, 1)
	g := w.g
	name := initialized(t, w)
	w.onPatchStatus = func(object client.Object) {
		if object.GetName() == name {
			w.onPatchStatus = nil
			w.gone(name)
			_ = w.mgmt.Delete(t.Context(), &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}})
		}
	}
	w.etcd.members[0].Alarms = []string{"NOSPACE"}
	w.once()
	g.Expect(w.onPatchStatus).To(BeNil(), "no condition was written")
}

// A join that runs may add its etcd member after etcd was read.
func TestHostIsKeptWhileItsJoinRuns(t *testing.T) {
	w := newWorld(t, 3)
	g := w.g
	first := initialized(t, w)
	second := other(w, first)
	w.hold(second)
	host := &infrav1.QuoinHost{ObjectMeta: metav1.ObjectMeta{Namespace: "hosts", Name: "h2"}}
	g.Expect(w.mgmt.Create(t.Context(), host)).To(Succeed())
	host.Status.Operation = &infrav1.HostOperation{ID: "provision-2", Phase: "Running"}
	g.Expect(w.mgmt.Status().Update(t.Context(), host)).To(Succeed())
	infra := w.infra(second)
	infra.Spec.ProviderID = "quoin://hosts/h2/2"
	g.Expect(w.mgmt.Update(t.Context(), infra)).To(Succeed())
	g.Expect(w.mgmt.Delete(t.Context(), w.machine(second))).To(Succeed())
	w.drained(second)
	w.reconcile()
	g.Expect(w.hasHook(second)).To(BeTrue())
	host.Status.Operation.Phase = "Failed"
	g.Expect(w.mgmt.Status().Update(t.Context(), host)).To(Succeed())
	w.once()
	g.Expect(w.hasHook(second)).To(BeFalse())
}

// The cache may hold labeled Secrets only.
func TestEtcdAuthorityOutsideTheCache(t *testing.T) {
	w := newWorld(t, 1)
	w.r.SecretCachingClient = newFake().Build()
	initialized(t, w)
	w.g.Expect(w.condition(controlplanev1.ControlPlaneEtcdClusterHealthyCondition).Status).To(Equal(metav1.ConditionTrue))
}

// Parts are judged as remains by Machines that were read after them, never before.
func TestMachinesAreReadAfterTheirParts(t *testing.T) {
	w := newWorld(t, 1)
	w.reconcile()
	var reads []string
	record := func(which string) interceptor.Funcs {
		return interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList,
			options ...client.ListOption) error {
			reads = append(reads, fmt.Sprintf("%s %T", which, list))
			return c.List(ctx, list, options...)
		}}
	}
	// What looks like the remains of a creation is not believed to the cache.
	w.g.Expect(w.mgmt.Create(t.Context(), &infrav1.QuoinMachine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace,
		Name:            "cp-cut",
		Labels:          map[string]string{clusterv1.ClusterNameLabel: "c"},
		OwnerReferences: []metav1.OwnerReference{desired.MakerRef(w.plane())}}})).To(Succeed())
	mgmt := w.mgmt.(client.WithWatch)
	w.r.Client = interceptor.NewClient(mgmt, record("cache"))
	w.r.APIReader = interceptor.NewClient(mgmt, record("live"))
	w.once()
	parts, machines := -1, -1
	for i, read := range reads {
		switch read {
		case "cache *v1alpha1.QuoinMachineList":
			parts = i
		case "live *v1beta2.MachineList":
			machines = i
		}
	}
	w.g.Expect(parts).To(BeNumerically(">=", 0))
	w.g.Expect(machines).To(BeNumerically(">", parts), "%v", reads)
}

func TestMachineWithoutHostGoesAtOnce(t *testing.T) {
	w := newWorld(t, 3)
	g := w.g
	first := initialized(t, w)
	second := other(w, first)
	w.hold(second)
	g.Expect(w.mgmt.Delete(t.Context(), w.machine(second))).To(Succeed())
	w.once()
	g.Expect(w.hasHook(second)).To(BeFalse())
}

// An etcd that cannot be read keeps every host.
func TestUnreadableEtcdKeepsHosts(t *testing.T) {
	w := newWorld(t, 1)
	g := w.g
	first := initialized(t, w)
	w.etcd.err = errors.New("tunnel refused")
	g.Expect(w.mgmt.Delete(t.Context(), w.machine(first))).To(Succeed())
	w.drained(first)
	w.reconcile()
	g.Expect(w.hasHook(first)).To(BeTrue())
	g.Expect(w.machines()).To(HaveLen(1))
}

func TestCertificatesAreNotMadeTwice(t *testing.T) {
	w := newWorld(t, 1)
	g := w.g
	initialized(t, w)
	g.Expect(w.mgmt.Delete(t.Context(), w.secret("c-etcd"))).To(Succeed())
	// A move of the objects takes status away.
	plane := w.plane()
	plane.Status = controlplanev1.QuoinControlPlaneStatus{}
	g.Expect(w.mgmt.Status().Update(t.Context(), plane)).To(Succeed())
	w.reconcile()
	g.Expect(w.condition(controlplanev1.ControlPlaneCertificatesAvailableCondition)).To(And(
		HaveField("Status", metav1.ConditionFalse), HaveField("Message", ContainSubstring("c-etcd"))))
}
