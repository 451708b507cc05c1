// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package rolloutpolicy

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/egress"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/rollout"
)

// validated is a world whose policy validates, with a shop that a check asks.
type validated struct {
	*world
	workload client.Client
	// ill shops fail the check; asked is how often they were.
	ill   atomic.Bool
	asked atomic.Int32
}

func newValidated(t *testing.T) *validated {
	v := &validated{world: newWorld(t, machineOf("new-0", "v2"), machineOf("new-1", "v2"), hostedBy("new-0", ""),
		hostedBy("new-1", ""))}
	shop := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		v.asked.Add(1)
		if v.ill.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	t.Cleanup(shop.Close)
	v.workload = fake.NewFakeClient()
	policy := v.policy()
	v.adjust(policy, func() {
		policy.Spec.SoakSeconds = nil
		policy.Spec.Validation = &quoinv1.RolloutValidation{SuccessThreshold: ptr.To[int32](2),
			Checks: []quoinv1.RolloutCheck{{Name: "shop", HTTP: &quoinv1.RolloutHTTPCheck{URL: shop.URL}}}}
	})
	v.restart()
	return v
}

// restart has another process begin, which is connected to the Cluster.
func (v *validated) restart() {
	v.world.restart()
	v.r.ClusterCache = clustercache.NewFakeClusterCache(v.workload, client.ObjectKey{Namespace: namespace, Name: "c1"}, nodesWatch)
	v.t.Cleanup(v.r.looker.begun().Close)
}

// looks waits for the end of a look, and has what it found decided by.
func (v *validated) looks() {
	v.t.Helper()
	v.reconcile()
	<-v.r.looker.begun().Events()
	v.reconcile()
}

// joins has the Machine's Node be there too.
func (v *validated) joins(name string) {
	v.world.joins(name)
	v.Expect(v.workload.Create(v.t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}})).
		To(Succeed())
}

func (v *validated) record() *quoinv1.RolloutValidationStatus { return v.policy().Status.Validation }

// One look before the first Machine; two of them, and a person's check, before it counts; a failure takes back what
// there was. Each is in the status, and another process goes on with it.
//
// Proves: S3-10, S3-21, K-7
func TestAMachineCountsWhenTheClusterIsValidated(t *testing.T) {
	v := newValidated(t)
	v.reconcile()
	v.looks()
	v.Expect(v.admitted("new-0")).To(BeTrue(), "the Cluster was looked at first")
	v.Expect(v.admitted("new-1")).To(BeFalse())
	v.Expect(v.asked.Load()).To(BeEquivalentTo(1))
	v.Expect(v.record().Results).To(HaveExactElements(HaveField("Name", "Nodes"), HaveField("Name", "Pods"),
		And(HaveField("Name", "shop"), HaveField("Status", quoinv1.RolloutCheckPassed))))

	v.clock.Step(time.Minute)
	v.joins("new-0")
	v.looks()
	v.Expect(rollout.Gated(v.machine("new-0"))).To(BeTrue())
	v.Expect(v.record().Machines).To(ConsistOf(And(HaveField("Name", "new-0"), HaveField("Successes", BeEquivalentTo(1)))))
	v.Expect(conditions.GetMessage(v.machine("new-0"), quoinv1.MachineRolloutValidatedCondition)).
		To(ContainSubstring("1 of 2 looks"))
	result := v.reconcile()
	v.Expect(result.RequeueAfter).To(Equal(10 * time.Second))

	v.restart() // what was found is not lost, and not found a second time
	v.Expect(v.reconcile().RequeueAfter).To(Equal(10 * time.Second))
	v.Expect(v.asked.Load()).To(BeEquivalentTo(2))
	v.ill.Store(true)
	v.clock.Step(10 * time.Second)
	v.looks()
	v.Expect(v.record().Machines).To(BeEmpty())
	v.Expect(v.record().Results[2].Message).To(Equal("the status is 503 and should be 200"))
	v.Expect(v.reconcile().RequeueAfter).To(Equal(30 * time.Second))
	v.Expect(conditions.GetMessage(v.machine("new-0"), quoinv1.MachineRolloutValidatedCondition)).
		To(ContainSubstring("the Cluster does not validate, and is looked at again: shop: the status is 503"))

	v.ill.Store(false)
	v.clock.Step(30 * time.Second)
	v.looks()
	v.Expect(rollout.Gated(v.machine("new-0"))).To(BeTrue())
	v.clock.Step(10 * time.Second)
	v.looks()
	v.Expect(rollout.Gated(v.machine("new-0"))).To(BeFalse())
	v.Expect(v.admitted("new-1")).To(BeTrue())
}

// A process that dies at any write makes looks again, and invents none.
//
// Proves: S3-10, K-7
func TestNoLookIsInventedWhereverAProcessDies(t *testing.T) {
	for at := 1; at <= 10; at++ {
		t.Run(fmt.Sprint("at write ", at), func(t *testing.T) {
			v := newValidated(t)
			v.reconcile()
			v.looks()
			v.joins("new-0")
			from := v.writes
			v.kills = func(write int) bool { return write == from+at }
			successes := 0
			for range 4 {
				v.clock.Step(10 * time.Second)
				before := v.asked.Load()
				_, err := v.r.Reconcile(t.Context(), v.request())
				if err == nil && !rollout.Gated(v.machine("new-0")) {
					break
				}
				if !errors.Is(err, errKilled) {
					v.Expect(err).NotTo(HaveOccurred())
					<-v.r.looker.begun().Events()
					_, err = v.r.Reconcile(t.Context(), v.request())
				}
				if errors.Is(err, errKilled) {
					v.restart()
				}
				successes += int(v.asked.Load() - before)
				if !rollout.Gated(v.machine("new-0")) {
					break
				}
			}
			v.Expect(rollout.Gated(v.machine("new-0"))).To(BeFalse())
			v.Expect(successes).To(BeNumerically(">=", 2))
		})
	}
}

// What looks found before a pause, and one that was made and not taken then, are none of so many in a row after it.
//
// Proves: K-7
func TestNoLookOfBeforeAPauseCounts(t *testing.T) {
	for by, pause := range pauses {
		t.Run(by, func(t *testing.T) {
			v := newValidated(t)
			v.reconcile()
			v.looks()
			v.clock.Step(time.Minute)
			v.joins("new-0")
			v.looks()
			v.Expect(v.record().Machines).To(ConsistOf(HaveField("Successes", BeEquivalentTo(1))))
			once := func() {
				t.Helper()
				_, err := v.r.Reconcile(t.Context(), v.request())
				v.Expect(err).NotTo(HaveOccurred())
			}
			v.clock.Step(10 * time.Second)
			once()
			<-v.r.looker.begun().Events()
			v.isPausedFor(time.Hour, pause)
			once()
			v.Expect(rollout.Gated(v.machine("new-0"))).To(BeTrue())
			v.Expect(v.record().Machines).To(BeEmpty())
			<-v.r.looker.begun().Events()
			v.reconcile()
			v.Expect(v.record().Machines).To(ConsistOf(HaveField("Successes", BeEquivalentTo(1))))
			v.Expect(rollout.Gated(v.machine("new-0"))).To(BeTrue())
			v.clock.Step(10 * time.Second)
			v.looks()
			v.Expect(rollout.Gated(v.machine("new-0"))).To(BeFalse())
		})
	}
}

func (w *world) request() ctrl.Request {
	return ctrl.Request{NamespacedName: client.ObjectKey{Namespace: namespace, Name: "c1"}}
}

// A cache that is behind shows the record before a failure: no success is added to that.
//
// Proves: K-7
func TestACacheThatIsBehindInventsNoSuccess(t *testing.T) {
	v := newValidated(t)
	v.reconcile()
	v.looks()
	v.joins("new-0")
	v.clock.Step(time.Minute)
	v.looks()
	behind := v.policy()
	v.Expect(behind.Status.Validation.Machines[0].Successes).To(BeEquivalentTo(1))
	v.ill.Store(true)
	v.clock.Step(10 * time.Second)
	v.looks()
	v.ill.Store(false)
	v.r.Client = interceptor.NewClient(v.client, interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch,
		list client.ObjectList, options ...client.ListOption) error {
		if policies, is := list.(*quoinv1.RolloutPolicyList); is {
			policies.Items = []quoinv1.RolloutPolicy{*behind.DeepCopy()}
			return nil
		}
		return c.List(ctx, list, options...)
	}})
	v.clock.Step(30 * time.Second)
	_, err := v.r.Reconcile(t.Context(), v.request())
	v.Expect(err).NotTo(HaveOccurred())
	<-v.r.looker.begun().Events()
	result, err := v.r.Reconcile(t.Context(), v.request())
	v.Expect(err).NotTo(HaveOccurred())
	v.Expect(result.RequeueAfter).To(Equal(cacheLag))
	v.Expect(rollout.Gated(v.machine("new-0"))).To(BeTrue())
	v.Expect(v.record().Machines).To(BeEmpty())
}

// A Cluster that cannot be reached does not validate, and after the timeout it is said who is waited for.
//
// Proves: S3-10, C16
func TestAClusterThatCannotBeReachedDoesNotValidate(t *testing.T) {
	v := newValidated(t)
	v.r.ClusterCache = unreachable{}
	v.reconcile()
	v.looks()
	v.Expect(v.admitted("new-0")).To(BeFalse())
	v.Expect(v.record().Results).To(ConsistOf(HaveField("Message", "its API server cannot be reached: it is down")))
	v.clock.Step(15 * time.Minute)
	v.reconcile()
	v.Expect(conditions.IsTrue(v.policy(), quoinv1.RolloutPolicyStalledCondition)).To(BeTrue())
	v.Expect(conditions.GetReason(v.policy(), quoinv1.RolloutPolicyStalledCondition)).To(
		Equal(quoinv1.ValidationFailedReason))
	v.Expect(conditions.GetMessage(v.policy(), quoinv1.RolloutPolicyStalledCondition)).To(And(
		ContainSubstring("MachineDeployment blue was not validated within 15m0s: Cluster: its API server"),
		ContainSubstring("successThreshold of 0")))
	policy := v.policy()
	v.adjust(policy, func() { policy.Spec.Validation.SuccessThreshold = ptr.To[int32](0) })
	v.reconcile()
	v.Expect(v.admitted("new-0")).To(BeTrue())
	v.Expect(conditions.IsTrue(v.policy(), quoinv1.RolloutPolicyStalledCondition)).To(BeFalse())
}

// Checks ask no address that the manager does not connect to.
func TestAnAddressThatIsRefusedIsNotAsked(t *testing.T) {
	v := newValidated(t)
	v.r.Egress = egress.NewKnowing(nil, nil)
	v.reconcile()
	v.looks()
	v.Expect(v.record().Results).To(ContainElement(HaveField("Message",
		ContainSubstring("is refused: it is the manager's own"))))
	v.Expect(v.asked.Load()).To(BeZero())
}

// A canary that is healthy and with which a person's check fails for its whole time is a template that failed. Nothing
// was completed here, so that is all that is said.
func TestATemplateFailsThatIsNotValidated(t *testing.T) {
	v := newValidated(t)
	policy := v.policy()
	v.adjust(policy, func() { policy.Spec.OnFailure = quoinv1.RolloutFailureRollback })
	v.reconcile()
	v.looks()
	host := hostedBy("new-0", "")
	v.adjust(host, func() { host.Spec.ProviderID = "quoin://new-0" })
	v.clock.Step(time.Minute)
	v.joins("new-0")
	v.ill.Store(true)
	v.looks()
	v.Expect(v.record().Results[2].Machines).To(Equal([]string{"new-0"}))
	refused := func() string {
		return conditions.GetReason(v.policy(), quoinv1.RolloutPolicyRolledBackCondition)
	}
	v.clock.Step(14 * time.Minute)
	v.looks()
	v.Expect(refused()).To(BeEmpty())
	v.clock.Step(time.Minute)
	v.looks()
	v.Expect(refused()).To(Equal(quoinv1.RollbackRefusedReason))
	v.Expect(v.message(quoinv1.RolloutPolicyRolledBackCondition)).To(ContainSubstring("no template of MachineDeployment blue"))
}

type unreachable struct{ clustercache.ClusterCache }

// GetUncachedClient implements clustercache.ClusterCache.
func (unreachable) GetUncachedClient(context.Context, client.ObjectKey) (client.Client, error) {
	return nil, errors.New("it is down")
}

// Watch implements clustercache.ClusterCache.
func (unreachable) Watch(context.Context, client.ObjectKey, clustercache.Watcher) error {
	return clustercache.ErrClusterNotConnected
}

// What nobody needs any more is not looked at, and its end changes nothing.
func TestALookThatNobodyNeedsIsDropped(t *testing.T) {
	v := newValidated(t)
	v.reconcile()
	policy := v.policy()
	v.adjust(policy, func() { policy.Spec.Validation = nil })
	v.reconcile()
	<-v.r.looker.begun().Events()
	v.reconcile()
	v.Expect(v.record()).To(BeNil())
	v.Expect(v.admitted("new-0")).To(BeTrue())
	cluster := &clusterv1.Cluster{}
	v.read(cluster, "c1")
	_, _, running := v.r.looker.begun().Running(client.ObjectKeyFromObject(cluster))
	v.Expect(running).To(BeFalse())
}
