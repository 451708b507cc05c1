// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package preflightcheck

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/egress"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/preflight"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/clienttest"
)

// down is a Cluster that cannot be reached.
type down struct{ clustercache.ClusterCache }

func (down) GetUncachedClient(context.Context, client.ObjectKey) (client.Client, error) {
	return nil, errors.New("connection refused")
}

func (down) GetRESTConfig(context.Context, client.ObjectKey) (*rest.Config, error) {
	return nil, errors.New("connection refused")
}

// world is one PreflightCheck of Cluster c1, and what has been looked at.
type world struct {
	*WithT
	t      *testing.T
	client client.WithWatch
	r      *Reconciler
	events *events.FakeRecorder
	looked int
	// egress is what the last check was given.
	egress *egress.Rules
	// hold keeps a check from its end until something is sent.
	hold chan struct{}
}

var key = client.ObjectKey{Namespace: "prod", Name: "to-v1.36"}

func newWorld(t *testing.T, funcs interceptor.Funcs) *world {
	t.Helper()
	w := &world{WithT: NewWithT(t), t: t, events: events.NewFakeRecorder(16), hold: make(chan struct{}, 16)}
	scheme := clienttest.Scheme(clientgoscheme.AddToScheme, clusterv1.AddToScheme, controlplanev1.AddToScheme,
		quoinv1.AddToScheme)
	check := &quoinv1.PreflightCheck{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name},
		Spec: quoinv1.PreflightCheckSpec{ClusterName: "c1", Version: "v1.36.3"}}
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "c1", UID: "1"}}
	cluster.Status.Initialization.ControlPlaneInitialized = ptr.To(true)
	w.client = clienttest.Unmanaged(scheme).WithObjects(check, cluster).
		WithStatusSubresource(check, cluster).WithInterceptorFuncs(funcs).Build()
	w.r = &Reconciler{Client: w.client, APIReader: w.client, ClusterCache: down{}, Recorder: w.events,
		Checks: []preflight.Check{{Name: "Nodes", Look: w.look}}}
	w.r.prepare()
	t.Cleanup(func() { w.r.calls.Close() })
	return w
}

func (w *world) look(ctx context.Context, s preflight.Subject) (string, []quoinv1.Finding, error) {
	w.looked++
	w.egress = s.Egress
	select {
	case <-w.hold:
	case <-ctx.Done():
	}
	return "", nil, s.Workload.List(ctx, &clusterv1.MachineList{})
}

func (w *world) reconcile() error {
	_, err := w.r.Reconcile(w.t.Context(), ctrl.Request{NamespacedName: key})
	return err
}

func (w *world) check() *quoinv1.PreflightCheck {
	w.t.Helper()
	check := &quoinv1.PreflightCheck{}
	w.Expect(w.client.Get(w.t.Context(), key, check)).To(Succeed())
	return check
}

func (w *world) reason() string {
	w.t.Helper()
	return conditions.GetReason(w.check(), quoinv1.PreflightCheckCompletedCondition)
}

// settle reconciles at what the checks send when they end.
func (w *world) settle() error {
	w.t.Helper()
	select {
	case <-w.r.calls.Events():
	case <-time.After(time.Minute):
		w.t.Fatal("nothing ended")
	}
	return w.reconcile()
}

func TestAClusterThatCannotBeReachedIsBlockedOnce(t *testing.T) {
	w := newWorld(t, interceptor.Funcs{})
	w.r.Egress = egress.New(nil, nil)
	w.Expect(w.reconcile()).To(Succeed()) // the condition Paused
	w.Expect(w.reconcile()).To(Succeed())
	w.Expect(w.reason()).To(Equal(quoinv1.RunningReason))
	w.Expect(w.check().Status.Verdict).To(BeEmpty())
	w.hold <- struct{}{}
	w.Expect(w.settle()).To(Succeed())
	w.Expect(w.egress).To(BeIdenticalTo(w.r.Egress), "it connects to no other address than the controller")
	found := w.check()
	w.Expect(found.Status.Verdict).To(Equal(quoinv1.VerdictBlock))
	w.Expect(found.Status.Checks[0].Findings[0].Message).To(ContainSubstring("connection refused"))
	w.Expect(found.Status.CompletionTime.IsZero()).To(BeFalse())
	w.Expect(<-w.events.Events).To(HavePrefix("Warning Blocked Nodes: "))
	w.Expect(w.reconcile()).To(Succeed())
	w.Expect(w.looked).To(Equal(1), "what was found stays")
}

func TestNothingIsLookedAtThatIsPausedOrGoes(t *testing.T) {
	for name, change := range map[string]func(*clusterv1.Cluster, *quoinv1.PreflightCheck){
		"the Cluster is paused": func(c *clusterv1.Cluster, _ *quoinv1.PreflightCheck) { c.Spec.Paused = ptr.To(true) },
		"it is paused itself": func(_ *clusterv1.Cluster, p *quoinv1.PreflightCheck) {
			p.Annotations = map[string]string{clusterv1.PausedAnnotation: ""}
		},
		"it was moved": func(_ *clusterv1.Cluster, p *quoinv1.PreflightCheck) {
			p.Annotations = map[string]string{clusterctlv1.DeleteForMoveAnnotation: ""}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, interceptor.Funcs{})
			for range 2 {
				w.Expect(w.reconcile()).To(Succeed())
			}
			w.Expect(w.reason()).To(Equal(quoinv1.RunningReason))
			// What runs is cut off, and its end changes nothing.
			cluster, check := &clusterv1.Cluster{}, w.check()
			w.Expect(w.client.Get(t.Context(), client.ObjectKey{Namespace: "prod", Name: "c1"}, cluster)).To(Succeed())
			change(cluster, check)
			w.Expect(w.client.Update(t.Context(), cluster)).To(Succeed())
			w.Expect(w.client.Update(t.Context(), check)).To(Succeed())
			w.Expect(w.reconcile()).To(Succeed())
			w.Expect(w.settle()).To(Succeed())
			w.Expect(w.check().Status.Verdict).To(BeEmpty())
			_, _, running := w.r.calls.Running(key)
			w.Expect(running).To(BeFalse())
		})
	}
}

// A process that dies at any write leaves what the next one begins again.
func TestAResultThatCouldNotBeWrittenIsFoundAgain(t *testing.T) {
	refused := true
	w := newWorld(t, interceptor.Funcs{SubResourcePatch: func(ctx context.Context, c client.Client, of string,
		object client.Object, patch client.Patch, options ...client.SubResourcePatchOption) error {
		if data, err := patch.Data(object); err == nil && refused && strings.Contains(string(data), "completionTime") {
			refused = false
			return errors.New("the API server went away")
		}
		return c.SubResource(of).Patch(ctx, object, patch, options...)
	}})
	for range 2 {
		w.Expect(w.reconcile()).To(Succeed())
	}
	w.hold <- struct{}{}
	w.Expect(w.settle()).To(MatchError(ContainSubstring("went away")))
	w.Expect(w.check().Status.Verdict).To(BeEmpty())
	w.Expect(w.events.Events).To(BeEmpty(), "no event says what is not written")
	w.hold <- struct{}{}
	w.Expect(w.reconcile()).To(Succeed())
	w.Expect(w.settle()).To(Succeed())
	w.Expect(w.check().Status.Verdict).To(Equal(quoinv1.VerdictBlock))
	w.Expect(w.looked).To(Equal(2))
	w.Expect(w.events.Events).To(HaveLen(1))
}

// A cache that is behind shows a PreflightCheck that nobody has begun, and what was found stays all the same, also when
// its checks are made again and end before the cache has caught up.
func TestAResultOutlivesAStaleCache(t *testing.T) {
	for name, begun := range map[string]bool{"before it was begun": false, "while it ran": true} {
		t.Run(name, func(t *testing.T) {
			var stale *quoinv1.PreflightCheck
			w := newWorld(t, interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey,
				object client.Object, options ...client.GetOption) error {
				if check, ok := object.(*quoinv1.PreflightCheck); ok && stale != nil {
					stale.DeepCopyInto(check)
					return nil
				}
				return c.Get(ctx, key, object, options...)
			}})
			clock := clocktesting.NewFakePassiveClock(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
			w.r.Clock = clock
			w.Expect(w.reconcile()).To(Succeed())
			before := w.check()
			w.Expect(w.reconcile()).To(Succeed())
			if begun {
				before = w.check()
			}
			w.hold <- struct{}{}
			w.Expect(w.settle()).To(Succeed())
			want := w.check()
			w.Expect(want.Status.Verdict).To(Equal(quoinv1.VerdictBlock))
			stale = before
			clock.SetTime(clock.Now().Add(time.Hour))
			w.Expect(w.reconcile()).To(Succeed(), "a cache catches up by itself")
			w.hold <- struct{}{}
			w.Expect(w.settle()).To(Succeed())
			stale = nil
			w.Expect(w.check()).To(Equal(want))
			w.Expect(w.looked).To(Equal(2), "it was not known that it had been looked")
			w.Expect(w.events.Events).To(HaveLen(1))
			w.Expect(w.reconcile()).To(Succeed())
			_, _, running := w.r.calls.Running(key)
			w.Expect(running).To(BeFalse())
		})
	}
}

// A move copies neither status nor UID. What was looked at is not looked at again for that, and a copied manifest is
// another question.
func TestAVerdictThatWasReachedOutlivesAMove(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*quoinv1.PreflightCheck)
		stays  bool
	}{
		"moved":                           {func(*quoinv1.PreflightCheck) {}, true},
		"copied under another name":       {func(p *quoinv1.PreflightCheck) { p.Annotations = renamed(p.Annotations) }, false},
		"copied for another version":      {func(p *quoinv1.PreflightCheck) { p.Spec.Version = "v1.37.0" }, false},
		"copied for another Cluster":      {func(p *quoinv1.PreflightCheck) { p.Spec.ClusterName = "c2" }, false},
		"moved from before it was marked": {func(p *quoinv1.PreflightCheck) { p.Annotations = nil }, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, interceptor.Funcs{})
			for range 2 {
				w.Expect(w.reconcile()).To(Succeed())
			}
			w.hold <- struct{}{}
			w.Expect(w.settle()).To(Succeed())
			<-w.events.Events
			before := w.check()
			w.Expect(w.client.Delete(t.Context(), w.check())).To(Succeed())
			moved := &quoinv1.PreflightCheck{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name,
				Annotations: before.Annotations}, Spec: before.Spec}
			c.change(moved)
			w.Expect(w.client.Create(t.Context(), moved)).To(Succeed())
			for range 3 {
				w.Expect(w.reconcile()).To(Succeed())
			}
			found := w.check()
			w.Expect(w.events.Events).To(BeEmpty())
			if !c.stays {
				w.Expect(found.Status.Verdict).To(BeEmpty())
				w.Expect(w.reason()).NotTo(Equal(quoinv1.MovedReason))
				return
			}
			_, _, running := w.r.calls.Running(key)
			w.Expect(running).To(BeFalse())
			w.Expect(found.Status.Verdict).To(Equal(quoinv1.VerdictBlock))
			w.Expect(found.Status.CompletionTime.Equal(&before.Status.CompletionTime)).To(BeTrue())
			w.Expect(w.reason()).To(Equal(quoinv1.MovedReason))
			passed := conditions.Get(found, quoinv1.PreflightCheckPassedCondition)
			w.Expect(passed.Status).To(Equal(metav1.ConditionFalse))
			w.Expect(passed.Message).To(ContainSubstring("make another PreflightCheck"))
			w.Expect(w.looked).To(Equal(1))
		})
	}
}

// renamed are the annotations that the object would have if it had been made under another name.
func renamed(of map[string]string) map[string]string {
	made := map[string]string{}
	for key, value := range of {
		made[key] = strings.ReplaceAll(value, " to-v1.36 ", " to-v1.35 ")
	}
	return made
}

// What a ClusterUpgrade does itself, its check advises nobody to do.
func TestTheCheckOfAClusterUpgradeIsKnown(t *testing.T) {
	for name, c := range map[string]struct {
		owner metav1.OwnerReference
		want  bool
	}{
		"nobody's":             {},
		"a ClusterUpgrade's":   {metav1.OwnerReference{APIVersion: "quoin.cluster.x-k8s.io/v1alpha1", Kind: "ClusterUpgrade"}, true},
		"a later version's":    {metav1.OwnerReference{APIVersion: "quoin.cluster.x-k8s.io/v1", Kind: "ClusterUpgrade"}, true},
		"a Cluster's":          {metav1.OwnerReference{APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster"}, false},
		"another's namesake's": {metav1.OwnerReference{APIVersion: "theirs.test/v1", Kind: "ClusterUpgrade"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, interceptor.Funcs{})
			check := w.check()
			if c.owner.Kind != "" {
				c.owner.Name, c.owner.UID, c.owner.Controller = "up", "2", ptr.To(true)
				check.OwnerReferences = []metav1.OwnerReference{c.owner}
				w.Expect(w.client.Update(t.Context(), check)).To(Succeed())
			}
			subjects := make(chan preflight.Subject, 1)
			w.r.Checks[0].Look = func(_ context.Context, s preflight.Subject) (string, []quoinv1.Finding, error) {
				subjects <- s
				return "", nil, nil
			}
			w.Expect(w.reconcile()).To(Succeed()) // the condition Paused
			w.Expect(w.reconcile()).To(Succeed())
			w.Expect((<-subjects).Upgraded).To(Equal(c.want))
		})
	}
}
