// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinmachine

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	. "github.com/onsi/gomega"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/rollout"
)

// rolledOut is a Machine of MachineDeployment blue, and a policy for that.
func rolledOut(t *testing.T) (*world, *quoinv1.RolloutPolicy) {
	machine, quoinMachine := owned("m1", uid1)
	machine.Labels = map[string]string{clusterv1.ClusterNameLabel: "c1", clusterv1.MachineDeploymentNameLabel: "blue"}
	quoinMachine.Labels = map[string]string{clusterv1.ClusterNameLabel: "c1"}
	blue := &clusterv1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "blue"}}
	blue.Spec.ClusterName = "c1"
	blue.Spec.Template.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{
		APIGroup: infrav1.GroupVersion.Group, Kind: "QuoinMachineTemplate", Name: "blue"}
	policy := &quoinv1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "workers"}}
	policy.Spec.ClusterName = "c1"
	policy.Status.MachineDeployments = []quoinv1.RolloutProgress{{Name: "blue", Message: "MachineDeployment amber comes first"}}
	w := newWorld(t, cluster(), machine, quoinMachine, blue, policy, host("h1", ""))
	return w, policy
}

func (w *world) waitsForRollout(message string) {
	w.t.Helper()
	w.reconcile("m1")
	w.expect("m1", infrav1.MachineHostClaimedCondition, metav1.ConditionFalse, infrav1.MachineWaitingForRolloutReason,
		message)
	w.g.Expect(w.host("h1").Spec.ConsumerRef).To(BeNil())
}

func (w *world) claims() {
	w.t.Helper()
	w.reconcile("m1")
	w.g.Expect(w.host("h1").Spec.ConsumerRef).NotTo(BeNil())
}

// A template gives its annotations to every Machine, so an admission is for one Machine alone.
func TestAWorkerUnderAPolicyClaimsNoHostUntilItIsAdmitted(t *testing.T) {
	w, policy := rolledOut(t)
	w.waitsForRollout("RolloutPolicy workers: MachineDeployment amber comes first")
	w.g.Expect(w.core("m1").Annotations).To(HaveKey(skip), "health checks count from the creation")
	w.g.Expect(w.r.waitingForRollout(t.Context(), policy)).To(ConsistOf(request("m1")))
	w.change("m1", func(m *clusterv1.Machine) {
		m.Annotations[quoinv1.RolloutAdmittedAnnotation] = "2026-11-23T08:00:00Z somebody-else"
	})
	w.waitsForRollout("amber comes first")
	w.change("m1", func(m *clusterv1.Machine) {
		m.Annotations[quoinv1.RolloutAdmittedAnnotation] = rollout.Admission(m, time.Now())
	})
	w.claims()
	w.g.Expect(w.r.waitingForRollout(t.Context(), policy)).To(BeEmpty())
}

// What every Machine waits for first is said first: one that is admitted meanwhile costs no status more than without a
// policy.
func TestAnAdmissionThatComesBeforeTheBootstrapDataCostsNoStatus(t *testing.T) {
	w, _ := rolledOut(t)
	data := ptr.To("m1-bootstrap")
	w.change("m1", func(m *clusterv1.Machine) { m.Spec.Bootstrap.DataSecretName = nil })
	w.reconcile("m1")
	w.expect("m1", infrav1.MachineHostClaimedCondition, metav1.ConditionFalse,
		infrav1.MachineWaitingForBootstrapDataReason, "waiting for the bootstrap data")
	w.change("m1", func(m *clusterv1.Machine) { m.Spec.Bootstrap.DataSecretName = data })
	w.waitsForRollout("amber comes first")
}

func TestNothingWaitsForAPolicyThatIsGone(t *testing.T) {
	w, policy := rolledOut(t)
	w.waitsForRollout("amber comes first")
	w.g.Expect(w.client.Delete(t.Context(), policy)).To(Succeed())
	w.claims()
}

// A MachineDeployment whose next Machines come from another provider is none that a policy leads: nobody would ever
// admit what its old MachineSet makes anew.
func TestNothingWaitsForAPolicyThatDoesNotLeadItsPool(t *testing.T) {
	w, _ := rolledOut(t)
	w.waitsForRollout("amber comes first")
	blue := &clusterv1.MachineDeployment{}
	w.g.Expect(w.client.Get(t.Context(), client.ObjectKey{Namespace: "team", Name: "blue"}, blue)).To(Succeed())
	blue.Spec.Template.Spec.InfrastructureRef.Kind = "OtherMachineTemplate"
	w.g.Expect(w.client.Update(t.Context(), blue)).To(Succeed())
	w.claims()
}

func TestAMachineSaysThatItsPolicyIsPaused(t *testing.T) {
	w, policy := rolledOut(t)
	metav1.SetMetaDataAnnotation(&policy.ObjectMeta, clusterv1.PausedAnnotation, "")
	w.g.Expect(w.client.Update(t.Context(), policy)).To(Succeed())
	w.waitsForRollout("RolloutPolicy workers: it is paused: take annotation cluster.x-k8s.io/paused off it")
	policy.Annotations = nil
	w.g.Expect(w.client.Update(t.Context(), policy)).To(Succeed())
	w.waitsForRollout("amber comes first")
}

func TestAPolicyHoldsWhatItSelects(t *testing.T) {
	w, policy := rolledOut(t)
	group := quoinv1.RolloutGroup{Name: "g", MachineDeployments: quoinv1.RolloutSelector{Labels: &metav1.LabelSelector{
		MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "tier", Operator: "Near"}}}}}
	policy.Spec.Groups = []quoinv1.RolloutGroup{group}
	w.g.Expect(w.client.Update(t.Context(), policy)).To(Succeed())
	w.waitsForRollout("correct the selector")
	policy.Spec.Groups[0].MachineDeployments.Labels.MatchExpressions[0].Operator = metav1.LabelSelectorOpExists
	w.g.Expect(w.client.Update(t.Context(), policy)).To(Succeed())
	w.claims()
}

// A policy is often applied together with what it is for, and a cache may have seen the Machines before it: the policy
// is asked for once more before a host is claimed, or all of them would begin beside its canary, whatever its windows
// say.
func TestAPolicyHoldsWhatIsMadeAMomentAfterIt(t *testing.T) {
	for name, lags := range map[string]interceptor.Funcs{
		"the cache has no policy yet": {List: func(ctx context.Context, c client.WithWatch, list client.ObjectList,
			options ...client.ListOption) error {
			if policies, is := list.(*quoinv1.RolloutPolicyList); is {
				policies.Items = nil
				return nil
			}
			return c.List(ctx, list, options...)
		}},
		"the cache has the policy before it selected the pool": {List: func(ctx context.Context, c client.WithWatch,
			list client.ObjectList, options ...client.ListOption) error {
			err := c.List(ctx, list, options...)
			if policies, is := list.(*quoinv1.RolloutPolicyList); is && len(policies.Items) > 0 {
				policies.Items[0].Spec.Groups = []quoinv1.RolloutGroup{{Name: "g",
					MachineDeployments: quoinv1.RolloutSelector{Names: []string{"amber"}}}}
			}
			return err
		}},
		"the cache has no MachineDeployment yet": {Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey,
			object client.Object, options ...client.GetOption) error {
			if _, is := object.(*clusterv1.MachineDeployment); is {
				return apierrors.NewNotFound(schema.GroupResource{Resource: "machinedeployments"}, key.Name)
			}
			return c.Get(ctx, key, object, options...)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w, _ := rolledOut(t)
			w.r.Client = interceptor.NewClient(w.client, lags)
			w.waitsForRollout("amber comes first")
			w.change("m1", func(m *clusterv1.Machine) {
				m.Annotations[quoinv1.RolloutAdmittedAnnotation] = rollout.Admission(m, time.Now())
			})
			w.claims()

			gone, policy := rolledOut(t)
			gone.r.Client = interceptor.NewClient(gone.client, lags)
			gone.g.Expect(gone.client.Delete(t.Context(), policy)).To(Succeed())
			gone.claims()
		})
	}
}

// The API server is asked for policies when a host is claimed, and by nothing that waits for one.
func TestThePoliciesAreReadOnceForEachClaim(t *testing.T) {
	w, policy := rolledOut(t)
	read := 0
	w.r.APIReader = interceptor.NewClient(w.client, interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch,
		list client.ObjectList, options ...client.ListOption) error {
		if _, is := list.(*quoinv1.RolloutPolicyList); is {
			read++
		}
		return c.List(ctx, list, options...)
	}})
	w.waitsForRollout("amber comes first")
	w.g.Expect(w.client.Delete(t.Context(), policy)).To(Succeed())
	free := w.host("h1")
	w.g.Expect(w.client.Delete(t.Context(), free)).To(Succeed())
	w.reconcile("m1")
	w.expect("m1", infrav1.MachineHostClaimedCondition, metav1.ConditionFalse, infrav1.MachineNoMatchingHostReason, "")
	w.g.Expect(read).To(BeZero())
	free.ResourceVersion = ""
	w.g.Expect(w.client.Create(t.Context(), free)).To(Succeed())
	w.claims()
	w.reconcile("m1")
	w.g.Expect(read).To(Equal(1))
}

// heldLong is a Machine of a MachineSet that a policy held for an hour, and its Cluster, which has a bootstrap token.
func heldLong(t *testing.T, token string) (*world, *quoinv1.RolloutPolicy) {
	w, policy := rolledOut(t)
	const own = "abcdef.0123456789abcdef" //nolint:gosec // of no cluster
	config := &unstructured.Unstructured{Object: map[string]any{}}
	config.SetGroupVersionKind(bootstrapv1.GroupVersion.WithKind("KubeadmConfig"))
	config.SetNamespace("team")
	config.SetName("m1")
	config.SetAnnotations(map[string]string{clusterv1.TemplateClonedFromNameAnnotation: "blue"})
	w.g.Expect(unstructured.SetNestedField(config.Object, own, "spec", "joinConfiguration", "discovery",
		"bootstrapToken", "token")).To(Succeed())
	w.g.Expect(w.client.Create(t.Context(), config)).To(Succeed())
	workload := fake.NewClientBuilder().WithObjects(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{
		Namespace: metav1.NamespaceSystem, Name: "bootstrap-token-" + token}}).Build()
	w.r.ClusterCache = clustercache.NewFakeClusterCache(workload, client.ObjectKeyFromObject(cluster()))
	w.r.Recorder = events.NewFakeRecorder(10)
	w.r.Clock = clocktesting.NewFakePassiveClock(time.Date(2026, 11, 23, 9, 0, 0, 0, time.UTC))
	w.change("m1", func(m *clusterv1.Machine) {
		m.CreationTimestamp = metav1.NewTime(w.r.Clock.Now().Add(-time.Hour))
		set := &clusterv1.MachineSet{ObjectMeta: metav1.ObjectMeta{Name: "blue-1", UID: "set"}}
		m.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(set,
			clusterv1.GroupVersion.WithKind("MachineSet"))}
		m.Spec.Bootstrap.ConfigRef = clusterv1.ContractVersionedObjectReference{APIGroup: bootstrapv1.GroupVersion.Group,
			Kind: "KubeadmConfig", Name: "m1"}
	})
	w.waitsForRollout("amber comes first")
	return w, policy
}

// Where the policy goes nobody looks at the bootstrap token of a Machine that it held, which may be gone as after a long
// pause: the Machine is replaced as the policy would have it, and no host is lost to a join that waits for ever.
func TestAMachineThatNoPolicyHoldsAnyMoreClaimsNoHostWithADeadToken(t *testing.T) {
	released := func(w *world, policy *quoinv1.RolloutPolicy) {
		w.g.Expect(w.client.Delete(w.t.Context(), policy)).To(Succeed())
	}
	for name, c := range map[string]struct {
		token  string
		opens  func(*world, *quoinv1.RolloutPolicy)
		claims bool
	}{
		"the policy is deleted": {"fedcba", released, false},
		"the policy selects it no more": {"fedcba", func(w *world, policy *quoinv1.RolloutPolicy) {
			policy.Spec.Groups = []quoinv1.RolloutGroup{{Name: "g", MachineDeployments: quoinv1.RolloutSelector{
				Names: []string{"amber"}}}}
			w.g.Expect(w.client.Update(w.t.Context(), policy)).To(Succeed())
		}, false},
		"it was admitted before a long pause": {"fedcba", func(w *world, _ *quoinv1.RolloutPolicy) {
			w.change("m1", func(m *clusterv1.Machine) {
				m.Annotations[quoinv1.RolloutAdmittedAnnotation] = rollout.Admission(m, w.r.Clock.Now().Add(-20*time.Minute))
			})
		}, false},
		"the token is there": {"abcdef", released, true},
		"it was admitted a moment ago, with a look at the token": {"fedcba", func(w *world, _ *quoinv1.RolloutPolicy) {
			w.change("m1", func(m *clusterv1.Machine) {
				m.Annotations[quoinv1.RolloutAdmittedAnnotation] = rollout.Admission(m, w.r.Clock.Now())
			})
		}, true},
		"it is young": {"fedcba", func(w *world, policy *quoinv1.RolloutPolicy) {
			now := w.r.Clock.Now().Add(-56 * time.Minute)
			w.r.Clock = clocktesting.NewFakePassiveClock(now)
			released(w, policy)
		}, true},
		"no MachineSet makes another one": {"fedcba", func(w *world, policy *quoinv1.RolloutPolicy) {
			w.change("m1", func(m *clusterv1.Machine) { m.OwnerReferences = nil })
			released(w, policy)
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			w, policy := heldLong(t, c.token)
			c.opens(w, policy)
			if c.claims {
				w.claims()
				w.g.Expect(w.core("m1").DeletionTimestamp.IsZero()).To(BeTrue())
				return
			}
			w.reconcile("m1")
			w.g.Expect(w.host("h1").Spec.ConsumerRef).To(BeNil())
			w.g.Expect(w.core("m1").DeletionTimestamp.IsZero()).To(BeFalse())
			w.g.Expect(w.r.Recorder.(*events.FakeRecorder).Events).To(Receive(And(ContainSubstring("BootstrapTokenGone"),
				ContainSubstring("kube-system/bootstrap-token-abcdef"))))
		})
	}
}

// While its deletion is refused the Machine says why it has no host, and claims none.
func TestAMachineWithADeadTokenThatMayNotBeDeletedSaysSo(t *testing.T) {
	w, policy := heldLong(t, "fedcba")
	w.r.Client = interceptor.NewClient(w.client, interceptor.Funcs{Delete: func(context.Context, client.WithWatch,
		client.Object, ...client.DeleteOption) error {
		return apierrors.NewForbidden(schema.GroupResource{Resource: "machines"}, "m1", errors.New("denied"))
	}})
	w.g.Expect(w.client.Delete(t.Context(), policy)).To(Succeed())
	_, err := w.r.Reconcile(t.Context(), request("m1"))
	w.g.Expect(err).To(MatchError(ContainSubstring("denied")))
	w.g.Expect(w.host("h1").Spec.ConsumerRef).To(BeNil())
	w.expect("m1", infrav1.MachineHostClaimedCondition, metav1.ConditionFalse, infrav1.MachineWaitingForHostReason,
		"bootstrap-token-abcdef")
}

// Where nobody can say whether the token is there no host is claimed for one that may be dead, and the Machine says what
// to do. It is asked for again, and goes on as soon as there is an answer.
func TestAMachineWhoseTokenIsNotKnownClaimsNoHostYet(t *testing.T) {
	for token, claims := range map[string]bool{"abcdef": true, "fedcba": false} {
		w, policy := heldLong(t, token)
		connected := w.r.ClusterCache
		w.r.ClusterCache = clustercache.NewFakeClusterCache(fake.NewClientBuilder().Build(),
			client.ObjectKey{Namespace: "team", Name: "c2"})
		w.g.Expect(w.client.Delete(t.Context(), policy)).To(Succeed())
		for range 2 {
			result, err := w.r.Reconcile(t.Context(), request("m1"))
			w.g.Expect(err).NotTo(HaveOccurred())
			w.g.Expect(result.RequeueAfter).To(Equal(unseenRecheck))
			w.g.Expect(w.host("h1").Spec.ConsumerRef).To(BeNil())
			w.g.Expect(w.core("m1").DeletionTimestamp.IsZero()).To(BeTrue())
			w.expect("m1", infrav1.MachineHostClaimedCondition, metav1.ConditionFalse, infrav1.MachineWaitingForHostReason,
				"connection to the workload cluster is down")
			w.expect("m1", infrav1.MachineHostClaimedCondition, metav1.ConditionFalse, infrav1.MachineWaitingForHostReason,
				"or delete the Machine")
		}
		w.r.ClusterCache = connected
		if claims {
			w.claims()
			continue
		}
		w.reconcile("m1")
		w.g.Expect(w.host("h1").Spec.ConsumerRef).To(BeNil())
		w.g.Expect(w.core("m1").DeletionTimestamp.IsZero()).To(BeFalse())
	}
}
