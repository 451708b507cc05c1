// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinmachine

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/owner"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/hostaccess"
)

// deadWorld is a machine that is provisioned on a fenced host, and whose Machine is being drained; change makes it less
// so.
func deadWorld(
	t *testing.T, change func(*clusterv1.Machine, *infrav1.QuoinHost, *corev1.Node),
) (*world, client.WithWatch) {
	t.Helper()
	now := metav1.NewTime(time.Now().Truncate(time.Second))
	machine, quoinMachine := owned("m1", uid1)
	machine.DeletionTimestamp, machine.Finalizers = &now, []string{clusterv1.MachineFinalizer}
	machine.Status.NodeRef = clusterv1.MachineNodeReference{Name: "n1"}
	quoinMachine.Spec.ProviderID = "quoin://team/h1/0123abcd"
	h := host("h1", "")
	h.Spec.ConsumerRef = &infrav1.ConsumerReference{Namespace: "team", Name: "m1", Machine: "m1", Claim: "0123abcd"}
	h.Status.State = infrav1.HostStateProvisioned
	setCondition(h, infrav1.HostFencedCondition, metav1.ConditionTrue, infrav1.HostFencedReason, "the power is off")
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Spec: corev1.NodeSpec{
		ProviderID: "quoin://team/h1/0123abcd", Taints: []corev1.Taint{{Key: "kept", Effect: corev1.TaintEffectNoSchedule}},
	}}
	if change != nil {
		change(machine, h, node)
	}
	w := newWorld(t, cluster(), machine, quoinMachine, h)
	workload := fake.NewClientBuilder().WithObjects(node).Build()
	w.r.ClusterCache = clustercache.NewFakeClusterCache(workload, client.ObjectKey{Namespace: "team", Name: "c1"})
	return w, workload
}

func taints(t *testing.T, workload client.Client) []string {
	t.Helper()
	node := &corev1.Node{}
	NewWithT(t).Expect(workload.Get(context.Background(), client.ObjectKey{Name: "n1"}, node)).To(Succeed())
	var out []string
	for _, taint := range node.Spec.Taints {
		out = append(out, taint.ToString())
	}
	return out
}

const outOfServiceText = "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"

func TestTheVolumesOfAFencedHostAreFreedWhileItsMachineDrains(t *testing.T) {
	w, workload := deadWorld(t, nil)
	w.g.Expect(w.reconcile("m1").RequeueAfter).To(BeZero())
	w.g.Expect(taints(t, workload)).To(Equal([]string{"kept:NoSchedule", outOfServiceText}))
	w.g.Expect(w.machine("m1").DeletionTimestamp).To(BeNil(), "Cluster API deletes it when the volumes are free")
	w.reconcile("m1")
	w.g.Expect(taints(t, workload)).To(HaveLen(2), "once")
}

func TestNoVolumeIsFreedThatANodeMayStillWriteTo(t *testing.T) {
	for name, change := range map[string]func(*clusterv1.Machine, *infrav1.QuoinHost, *corev1.Node){
		"the host is not fenced": func(_ *clusterv1.Machine, h *infrav1.QuoinHost, _ *corev1.Node) {
			setCondition(h, infrav1.HostFencedCondition, metav1.ConditionFalse, infrav1.HostNotFencedReason, "")
		},
		"nobody asked": func(_ *clusterv1.Machine, h *infrav1.QuoinHost, _ *corev1.Node) {
			h.Status.Conditions = nil
		},
		"the Machine is wanted": func(m *clusterv1.Machine, _ *infrav1.QuoinHost, _ *corev1.Node) {
			m.DeletionTimestamp = nil
		},
		"the Node is that of another claim": func(_ *clusterv1.Machine, _ *infrav1.QuoinHost, n *corev1.Node) {
			n.Spec.ProviderID = "quoin://team/h1/ffffffff"
		},
		"the Machine has no Node": func(m *clusterv1.Machine, _ *infrav1.QuoinHost, _ *corev1.Node) {
			m.Status.NodeRef = clusterv1.MachineNodeReference{}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, workload := deadWorld(t, change)
			w.reconcile("m1")
			w.g.Expect(taints(t, workload)).To(Equal([]string{"kept:NoSchedule"}))
		})
	}
}

// A cache that lags behind still says that the host is fenced, or that it has this claim.
func TestNoVolumeIsFreedOnTheWordOfACacheThatLags(t *testing.T) {
	for name, since := range map[string]func(*infrav1.QuoinHost){
		"it answers again": func(h *infrav1.QuoinHost) { h.Status.Conditions = nil },
		"its claim ended":  func(h *infrav1.QuoinHost) { h.Spec.ConsumerRef = nil },
		"it has another":   func(h *infrav1.QuoinHost) { h.Spec.ConsumerRef.Claim = "ffffffff" },
	} {
		t.Run(name, func(t *testing.T) {
			w, workload := deadWorld(t, nil)
			w.r.APIReader = interceptor.NewClient(w.client, interceptor.Funcs{
				Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object,
					options ...client.GetOption) error {
					err := c.Get(ctx, key, o, options...)
					if h, ok := o.(*infrav1.QuoinHost); ok && err == nil {
						since(h)
					}
					return err
				},
			})
			w.reconcile("m1")
			w.g.Expect(taints(t, workload)).To(Equal([]string{"kept:NoSchedule"}))
		})
	}
}

// holding confirms what each host is said to, and remembers who was asked and let go.
type holding struct {
	errs        map[string]error
	asked, free []string
}

func (h *holding) HoldHost(_ context.Context, host *infrav1.QuoinHost) (func(context.Context) error, error) {
	h.asked = append(h.asked, host.Name)
	if err := h.errs[host.Name]; err != nil {
		return nil, err
	}
	return func(context.Context) error { h.free = append(h.free, host.Name); return nil }, nil
}

func TestANodeIsDeclaredOutOfServiceOnlyWhileAnotherHostHoldsItsOwnerRecord(t *testing.T) {
	stale := &owner.StaleError{Ours: owner.Record{Generation: 1}, Holder: owner.Record{Generation: 2}}
	silent := errors.New("no route to host")
	for name, c := range map[string]struct {
		errs    map[string]error
		asked   []string
		tainted bool
	}{
		"the control plane confirms":         {nil, []string{"cp"}, true},
		"the control plane is silent":        {map[string]error{"cp": silent}, []string{"cp", "w"}, true},
		"all are silent":                     {map[string]error{"cp": silent, "w": silent}, []string{"cp", "w"}, false},
		"one serves another and is believed": {map[string]error{"cp": stale}, []string{"cp"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			w, workload := deadWorld(t, nil)
			for name, controlPlane := range map[string]bool{"w": false, "cp": true} {
				machine, _ := owned("m-"+name, "u-"+name)
				if controlPlane {
					machine.Labels = map[string]string{clusterv1.ClusterNameLabel: "c1", clusterv1.MachineControlPlaneLabel: ""}
				}
				h := host(name, "")
				h.Spec.ConsumerRef = &infrav1.ConsumerReference{Namespace: "team", Name: "m-" + name, Machine: "m-" + name,
					Claim: "u-" + name}
				machine.Spec.ProviderID = h.ProviderID()
				w.g.Expect(w.client.Create(context.Background(), machine)).To(Succeed())
				w.g.Expect(w.client.Create(context.Background(), h)).To(Succeed())
			}
			elsewhere := host("elsewhere", "")
			elsewhere.Spec.ConsumerRef = &infrav1.ConsumerReference{Namespace: "team", Name: "x", Machine: "x", Claim: "x"}
			w.g.Expect(w.client.Create(context.Background(), elsewhere)).To(Succeed())
			hosts := &holding{errs: c.errs}
			w.r.Hosts = hosts
			result, err := w.r.Reconcile(context.Background(), request("m1"))
			for n := 0; err == nil && len(hosts.asked) == 0 && n < 3; n++ { // the finalizer and the condition Paused come first
				result, err = w.r.Reconcile(context.Background(), request("m1"))
			}
			w.g.Expect(err).NotTo(HaveOccurred())
			w.g.Expect(hosts.asked).To(Equal(c.asked))
			if !c.tainted {
				w.g.Expect(taints(t, workload)).To(Equal([]string{"kept:NoSchedule"}))
				w.g.Expect(result.RequeueAfter).To(Equal(outOfServiceRetry))
				return
			}
			w.g.Expect(taints(t, workload)).To(ContainElement(outOfServiceText))
			w.g.Expect(hosts.free).To(Equal(c.asked[len(c.asked)-1:]), "let go at once")
		})
	}
}

// silent hosts take a connection, and say nothing.
type silent struct{}

func (silent) HoldHost(ctx context.Context, _ *infrav1.QuoinHost) (func(context.Context) error, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestSilentHostsHoldUpAWorkerOnceAndNotOneAfterTheOther(t *testing.T) {
	w, _ := deadWorld(t, nil)
	for _, name := range []string{"a", "b", "c"} {
		machine, _ := owned("m-"+name, "u-"+name)
		machine.Labels = map[string]string{clusterv1.ClusterNameLabel: "c1"}
		h := host(name, "")
		h.Spec.ConsumerRef = &infrav1.ConsumerReference{Namespace: "team", Name: "m-" + name, Machine: "m-" + name,
			Claim: "u-" + name}
		machine.Spec.ProviderID = h.ProviderID()
		w.g.Expect(w.client.Create(context.Background(), machine)).To(Succeed())
		w.g.Expect(w.client.Create(context.Background(), h)).To(Succeed())
	}
	w.r.Hosts = silent{}
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		_, err := w.r.hold(t.Context(), &observation{cluster: cluster(), host: host("h1", "")})
		w.g.Expect(err).To(MatchError(ContainSubstring("no host of Cluster c1 confirms")))
		w.g.Expect(time.Since(begin)).To(Equal(hostaccess.HoldTimeout))
	})
}

func TestAPausedMachineFreesNothing(t *testing.T) {
	w, workload := deadWorld(t, nil)
	c := cluster()
	w.g.Expect(w.client.Get(context.Background(), client.ObjectKeyFromObject(c), c)).To(Succeed())
	c.Spec.Paused = ptr.To(true)
	w.g.Expect(w.client.Update(context.Background(), c)).To(Succeed())
	w.reconcile("m1")
	w.g.Expect(taints(t, workload)).To(Equal([]string{"kept:NoSchedule"}))
}

func TestAWorkloadClusterThatIsNotConnectedIsAskedLater(t *testing.T) {
	w, workload := deadWorld(t, nil)
	connected := w.r.ClusterCache
	w.r.ClusterCache = clustercache.NewFakeEmptyClusterCache()
	w.g.Expect(w.reconcile("m1").RequeueAfter).To(Equal(outOfServiceRetry))
	w.r.ClusterCache = connected
	w.reconcile("m1")
	w.g.Expect(taints(t, workload)).To(ContainElement(outOfServiceText))
}

func TestANodeThatCannotBeTaintedHoldsUpNothingElse(t *testing.T) {
	w, workload := deadWorld(t, nil)
	w.r.ClusterCache = clustercache.NewFakeClusterCache(interceptor.NewClient(workload, interceptor.Funcs{
		Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
			return errors.New("the API server is away")
		},
	}), client.ObjectKey{Namespace: "team", Name: "c1"})
	w.g.Expect(w.reconcile("m1").RequeueAfter).To(Equal(outOfServiceRetry))

	w.delete("m1")
	w.updateHost("h1", func(h *infrav1.QuoinHost) {
		h.Status.State = infrav1.HostStateQuarantined
		setCondition(h, infrav1.HostCleanCondition, metav1.ConditionFalse, infrav1.HostAbandonedReason, "")
	})
	w.reconcile("m1")
	w.g.Expect(w.deleted("m1")).To(BeTrue())
}

func TestANodeThatIsGoneNeedsNoTaint(t *testing.T) {
	w, workload := deadWorld(t, nil)
	w.g.Expect(workload.Delete(context.Background(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}})).
		To(Succeed())
	w.g.Expect(w.reconcile("m1").RequeueAfter).To(BeZero())
}
