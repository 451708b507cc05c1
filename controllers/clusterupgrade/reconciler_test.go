// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterupgrade

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/preflight"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/upgrade"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/clienttest"
)

const namespace = "prod"

var key = client.ObjectKey{Namespace: namespace, Name: "to-v1.36"}

// world is Cluster c1 with three Nodes of a control plane and two pools, and one ClusterUpgrade.
type world struct {
	*WithT
	t      *testing.T
	client client.WithWatch
	r      *Reconciler
	clock  *clocktesting.FakeClock
	events *events.FakeRecorder
	// blocks is what PreflightChecks find.
	blocks string
	// held is why a policy keeps kube-proxy from its version; empty when none does.
	held string
	// topology are the versions that a ClusterClass lists; nil when the Cluster is none.
	topology []string
	// foreign is whose control plane it is, when another provider's.
	foreign *foreign
	// kills tells after which writes the process is cut off; writes counts them.
	kills  func(write int) bool
	writes int
	// sets are the versions that were written.
	sets []string
}

var errKilled = errors.New("the process was killed")

func newWorld(t *testing.T, objects ...client.Object) *world {
	t.Helper()
	w := &world{WithT: NewWithT(t), t: t, kills: func(int) bool { return false }, events: events.NewFakeRecorder(1000),
		clock: clocktesting.NewFakeClock(time.Date(2026, 11, 23, 8, 0, 0, 0, time.UTC))}
	scheme := clienttest.Scheme(clientgoscheme.AddToScheme, clusterv1.AddToScheme, apiextensionsv1.AddToScheme,
		controlplanev1.AddToScheme, infrav1.AddToScheme, quoinv1.AddToScheme)
	of := metav1.ObjectMeta{Namespace: namespace, Name: "c1", UID: "1",
		Labels: map[string]string{clusterv1.ClusterNameLabel: "c1"}}
	cluster, infra, plane := &clusterv1.Cluster{ObjectMeta: of}, &infrav1.QuoinCluster{ObjectMeta: of},
		&controlplanev1.QuoinControlPlane{ObjectMeta: of}
	cluster.Status.Initialization.ControlPlaneInitialized = ptr.To(true)
	cluster.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group,
		Kind: "QuoinCluster", Name: "c1"}
	cluster.Spec.ControlPlaneRef = clusterv1.ContractVersionedObjectReference{APIGroup: controlplanev1.GroupVersion.Group,
		Kind: "QuoinControlPlane", Name: "c1"}
	plane.Spec.Version, plane.Spec.Replicas = "v1.34.4", ptr.To[int32](3)
	wanted := &quoinv1.ClusterUpgrade{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, UID: "u",
		CreationTimestamp: metav1.NewTime(w.clock.Now())}}
	wanted.Spec = quoinv1.ClusterUpgradeSpec{ClusterName: "c1", Version: "v1.36.3", Via: []string{"v1.35.4"}}
	all := []client.Object{cluster, infra, plane, wanted}
	for i := range 3 {
		machine := machineOf(fmt.Sprintf("cp-%d", i), "")
		machine.Labels[clusterv1.MachineControlPlaneLabel] = ""
		all = append(all, machine)
	}
	for _, name := range []string{"blue", "green"} {
		pool := &clusterv1.MachineDeployment{ObjectMeta: of}
		pool.Name, pool.UID = name, ""
		pool.Spec.ClusterName, pool.Spec.Replicas, pool.Spec.Template.Spec.Version = "c1", ptr.To[int32](2), "v1.34.4"
		all = append(all, pool, machineOf(name+"-0", name), machineOf(name+"-1", name))
	}
	w.client = fake.NewClientBuilder().WithScheme(scheme).WithObjects(append(all, objects...)...).
		WithStatusSubresource(cluster, infra, plane, wanted, &clusterv1.MachineDeployment{}, &quoinv1.PreflightCheck{}).
		Build()
	w.restart()
	return w
}

func machineOf(name, pool string) *clusterv1.Machine {
	machine := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name,
		Labels: map[string]string{clusterv1.ClusterNameLabel: "c1"}}}
	if pool != "" {
		machine.Labels[clusterv1.MachineDeploymentNameLabel] = pool
	}
	machine.Spec.ClusterName, machine.Spec.Version, machine.Status.NodeRef.Name = "c1", "v1.34.4", name
	return machine
}

// restart has a process begin that knows nothing of the one before.
func (w *world) restart() {
	wrote := func(err error, object client.Object, patch client.Patch) error {
		if err != nil {
			return err
		}
		data, err := patch.Data(object)
		w.Expect(err).NotTo(HaveOccurred())
		if _, own := object.(*quoinv1.ClusterUpgrade); !own && strings.Contains(string(data), `"version":"`) {
			w.sets = append(w.sets, fmt.Sprintf("%T %s %s", object, object.GetName(), versionIn(string(data))))
		}
		return w.count()
	}
	writer := interceptor.NewClient(w.client, interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch,
			options ...client.PatchOption) error {
			copied := object.DeepCopyObject().(client.Object)
			return wrote(c.Patch(ctx, object, patch, options...), copied, patch)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, of string, object client.Object, patch client.Patch,
			options ...client.SubResourcePatchOption) error {
			copied := object.DeepCopyObject().(client.Object)
			return wrote(c.SubResource(of).Patch(ctx, object, patch, options...), copied, patch)
		},
		Create: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption) error {
			object.SetCreationTimestamp(metav1.NewTime(w.clock.Now()))
			return errors.Join(c.Create(ctx, object, options...), w.count())
		},
	})
	w.r = &Reconciler{Client: writer, APIReader: w.client, Recorder: w.events, Clock: w.clock}
}

func (w *world) count() error {
	w.writes++
	if w.kills(w.writes) {
		return errKilled
	}
	return nil
}

func versionIn(patch string) string {
	_, after, _ := strings.Cut(patch, `"version":"`)
	version, _, _ := strings.Cut(after, `"`)
	return version
}

// reconcile until nothing is written any more; a killed process is followed by another one.
func (w *world) reconcile() ctrl.Result {
	w.t.Helper()
	for range 50 {
		before := w.writes
		result, err := w.r.Reconcile(w.t.Context(), ctrl.Request{NamespacedName: key})
		if errors.Is(err, errKilled) {
			w.restart()
			continue
		}
		w.Expect(err).NotTo(HaveOccurred())
		if w.writes == before {
			return result
		}
	}
	w.t.Fatal("it never stops to write")
	return ctrl.Result{}
}

// advance has the Cluster go on by one step, and reports whether there was one.
func (w *world) advance() bool {
	w.t.Helper()
	w.clock.Step(10 * time.Second)
	checks := &quoinv1.PreflightCheckList{}
	w.Expect(w.client.List(w.t.Context(), checks)).To(Succeed())
	for i := range checks.Items {
		if check := &checks.Items[i]; check.Status.CompletionTime.IsZero() {
			check.Status.Verdict, check.Status.CompletionTime = quoinv1.VerdictPass, metav1.NewTime(w.clock.Now())
			if w.blocks != "" {
				check.Status.Verdict = quoinv1.VerdictBlock
			}
			conditions.Set(check, metav1.Condition{Type: quoinv1.PreflightCheckPassedCondition, Status: metav1.ConditionTrue,
				Reason: "Test", Message: w.blocks})
			w.Expect(w.client.Status().Update(w.t.Context(), check)).To(Succeed())
			return true
		}
	}
	if w.foreign != nil && w.advanceForeign() || w.foreign == nil && w.advancePlane() {
		return true
	}
	for _, name := range []string{"blue", "green"} {
		pool := &clusterv1.MachineDeployment{}
		w.Expect(w.client.Get(w.t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, pool)).To(Succeed())
		if w.roll(pool.Spec.Template.Spec.Version, client.MatchingLabels{clusterv1.MachineDeploymentNameLabel: name}) {
			return true
		}
		if ptr.Deref(pool.Status.UpToDateReplicas, 0) != 2 {
			pool.Status.Replicas, pool.Status.UpToDateReplicas, pool.Status.AvailableReplicas = ptr.To[int32](2), ptr.To[int32](2),
				ptr.To[int32](2)
			w.Expect(w.client.Status().Update(w.t.Context(), pool)).To(Succeed())
			return true
		}
	}
	return false
}

// advancePlane has the control plane go on by one step.
func (w *world) advancePlane() bool {
	plane := w.plane()
	return w.roll(plane.Spec.Version, client.HasLabels{clusterv1.MachineControlPlaneLabel}) || w.settle(plane) ||
		w.chain(plane)
}

// settle has the control plane tell that all is as it is to be, add-ons after everything else.
func (w *world) settle(plane *controlplanev1.QuoinControlPlane) bool {
	status, said, is, reason := &plane.Status, "of "+plane.Spec.Version, metav1.ConditionTrue, "Test"
	if w.held != "" {
		said, is, reason = w.held, metav1.ConditionFalse, controlplanev1.VersionSkewReason
	}
	if ptr.Deref(status.UpToDateReplicas, 0) == 3 && conditions.GetMessage(plane, "AddonsUpToDate") == said {
		return false
	}
	status.Replicas, status.UpToDateReplicas, status.AvailableReplicas = ptr.To[int32](3), ptr.To[int32](3), ptr.To[int32](3)
	conditions.Set(plane, metav1.Condition{Type: controlplanev1.ControlPlaneAddonsUpToDateCondition,
		Status: is, Reason: reason, Message: said})
	w.Expect(w.client.Status().Update(w.t.Context(), plane)).To(Succeed())
	return true
}

// chain does what Cluster API does with a topology: one minor of the control plane after another, then the pools.
func (w *world) chain(plane *controlplanev1.QuoinControlPlane) bool {
	wanted := w.cluster().Spec.Topology.Version
	if w.topology == nil {
		return false
	}
	if plane.Spec.Version != wanted {
		plane.Spec.Version = w.topology[slices.Index(w.topology, plane.Spec.Version)+1]
		w.Expect(w.client.Update(w.t.Context(), plane)).To(Succeed())
		return true
	}
	pools := &clusterv1.MachineDeploymentList{}
	w.Expect(w.client.List(w.t.Context(), pools)).To(Succeed())
	changed := false
	for i := range pools.Items {
		if pool := &pools.Items[i]; pool.Spec.Template.Spec.Version != wanted {
			pool.Spec.Template.Spec.Version, changed = wanted, true
			w.Expect(w.client.Update(w.t.Context(), pool)).To(Succeed())
		}
	}
	return changed
}

func (w *world) cluster() *clusterv1.Cluster {
	w.t.Helper()
	found := &clusterv1.Cluster{}
	w.Expect(w.client.Get(w.t.Context(), client.ObjectKey{Namespace: namespace, Name: "c1"}, found)).To(Succeed())
	return found
}

// roll replaces one Machine.
func (w *world) roll(version string, of client.ListOption) bool {
	machines := &clusterv1.MachineList{}
	w.Expect(w.client.List(w.t.Context(), machines, of)).To(Succeed())
	for i := range machines.Items {
		if machine := &machines.Items[i]; machine.Spec.Version != version {
			machine.Spec.Version = version
			w.Expect(w.client.Update(w.t.Context(), machine)).To(Succeed())
			return true
		}
	}
	return false
}

// run until nothing moves any more.
func (w *world) run() {
	w.t.Helper()
	for range 300 {
		result := w.reconcile()
		if w.advance() {
			continue
		}
		if result.RequeueAfter == 0 || result.RequeueAfter > time.Hour || w.waitsForAPerson() {
			return
		}
		w.clock.Step(result.RequeueAfter)
	}
	w.t.Fatal("it never ends")
}

// waitsForAPerson reports whether the upgrade only looks again whether somebody mended what holds it.
func (w *world) waitsForAPerson() bool {
	return slices.Contains([]string{quoinv1.RevertedReason, quoinv1.AheadReason, quoinv1.NoPlanReason,
		quoinv1.HopsUnknownReason}, w.reason())
}

func (w *world) upgrade() *quoinv1.ClusterUpgrade {
	w.t.Helper()
	found := &quoinv1.ClusterUpgrade{}
	w.Expect(w.client.Get(w.t.Context(), key, found)).To(Succeed())
	return found
}

func (w *world) plane() *controlplanev1.QuoinControlPlane {
	w.t.Helper()
	found := &controlplanev1.QuoinControlPlane{}
	w.Expect(w.client.Get(w.t.Context(), client.ObjectKey{Namespace: namespace, Name: "c1"}, found)).To(Succeed())
	return found
}

func (w *world) edit(change func(*quoinv1.ClusterUpgrade)) {
	w.t.Helper()
	found := w.upgrade()
	change(found)
	w.Expect(w.client.Update(w.t.Context(), found)).To(Succeed())
}

func (w *world) reason() string {
	w.t.Helper()
	return conditions.GetReason(w.upgrade(), quoinv1.ClusterUpgradeProgressingCondition)
}

// recorded are the events since the last time.
func (w *world) recorded() string {
	var all []string
	for {
		select {
		case event := <-w.events.Events:
			all = append(all, event)
		default:
			return strings.Join(all, "\n")
		}
	}
}

// whole are the versions that the story writes, in their order.
var whole = []string{
	"*v1alpha1.QuoinCluster c1 v1.36.3",
	"*v1alpha1.QuoinControlPlane c1 v1.35.4",
	"*v1alpha1.QuoinControlPlane c1 v1.36.3",
	"*v1beta2.MachineDeployment blue v1.36.3",
	"*v1beta2.MachineDeployment green v1.36.3",
	"*v1alpha1.QuoinCluster c1 v1.36.3", // its status
}

func (w *world) expectEnd() {
	w.t.Helper()
	w.expectEndOf(7, whole...)
}

// expectEndOf looks at the end of an upgrade of as many Nodes, which wrote these versions.
func (w *world) expectEndOf(nodes int32, sets ...string) {
	w.t.Helper()
	found, infra := w.upgrade(), &infrav1.QuoinCluster{}
	w.Expect(conditions.IsTrue(found, quoinv1.ClusterUpgradeCompletedCondition)).To(BeTrue(), "%+v", found.Status)
	w.Expect(found.Status.Version).To(Equal("v1.36.3"))
	w.Expect(found.Status.Versions).To(ConsistOf(clusterv1.StatusVersion{Version: "v1.36.3", Replicas: nodes}))
	w.Expect(w.client.Get(w.t.Context(), client.ObjectKey{Namespace: namespace, Name: "c1"}, infra)).To(Succeed())
	w.Expect(infra.Spec.Version).To(Equal("v1.36.3"))
	w.Expect(infra.Status.Version).To(Equal("v1.36.3"))
	w.Expect(w.sets).To(Equal(sets))
}

// Proves: S0-1, S0-2, S0-3, S0-47, S0-54, S0-56, S0-58, S0-59
func TestAnUpgradeOfTwoHops(t *testing.T) {
	w := newWorld(t)
	w.run()
	w.expectEnd()
	found := w.upgrade()
	w.Expect(found.OwnerReferences).To(ConsistOf(HaveField("Kind", "Cluster")))
	w.Expect(found.Labels).To(HaveKeyWithValue(clusterv1.ClusterNameLabel, "c1"))
	w.Expect(found.Status.AddonsVersion).To(Equal("v1.36.3"))
	w.Expect(found.Status.ControlPlaneVersions).To(ConsistOf(clusterv1.StatusVersion{Version: "v1.36.3", Replicas: 3}))
	for _, step := range found.Status.Steps {
		w.Expect(step.State).To(Equal(quoinv1.UpgradeStepDone), "%+v", step)
	}
	check := &quoinv1.PreflightCheck{}
	w.Expect(w.client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "to-v1.36-preflight-1"}, check)).
		To(Succeed())
	w.Expect(metav1.IsControlledBy(check, found)).To(BeTrue())
	w.Expect(w.recorded()).To(And(ContainSubstring("Normal Planned plan "), ContainSubstring("Normal Begun "),
		ContainSubstring("Normal StepDone ControlPlane QuoinControlPlane c1 -> v1.35.4 took "),
		ContainSubstring("Normal Completed the Cluster was healthy at v1.36.3")))
	before := w.writes
	w.reconcile()
	w.Expect(w.writes).To(Equal(before), "nothing is written any more")
}

// Proves: C2
//
// What a pool had stands in the steps; it may return there, and nobody brings it back.
func TestAPoolReturnsToWhatItHad(t *testing.T) {
	w := newWorld(t)
	w.run()
	w.expectEnd()
	recorded := map[string][]string{}
	for _, step := range w.upgrade().Status.Steps {
		if step.Type == quoinv1.UpgradeStepWorkers {
			recorded[step.Object] = step.From
		}
	}
	w.Expect(recorded).To(Equal(map[string][]string{"MachineDeployment blue": {"v1.34.4"},
		"MachineDeployment green": {"v1.34.4"}}))
	pool, before := &clusterv1.MachineDeployment{}, len(w.sets)
	w.Expect(w.client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "blue"}, pool)).To(Succeed())
	pool.Spec.Template.Spec.Version = recorded["MachineDeployment blue"][0]
	w.Expect(w.client.Update(t.Context(), pool)).To(Succeed())
	w.run()
	w.Expect(w.sets).To(HaveLen(before))
	w.Expect(w.client.Get(t.Context(), client.ObjectKeyFromObject(pool), pool)).To(Succeed())
	w.Expect(pool.Spec.Template.Spec.Version).To(Equal("v1.34.4"))
}

// Whatever write a process dies after, the next one writes what is missing, and nothing twice: after each write, and
// after each second or third one, so that others are followed by what the same process does next.
func TestAKillAfterAnyWriteLosesNothing(t *testing.T) {
	for every := 1; every <= 3; every++ {
		for first := range every {
			w := newWorld(t)
			w.kills = func(write int) bool { return write%every == first }
			w.run()
			w.expectEnd()
		}
	}
}

// Proves: S0-50
func TestABlockingPreflightTouchesNothing(t *testing.T) {
	w := newWorld(t)
	w.blocks = "Nodes: Node w-1: Ready is False"
	w.reconcile()
	for range 40 {
		w.advance()
		w.clock.Step(w.reconcile().RequeueAfter)
	}
	for w.reason() != quoinv1.BlockedReason {
		w.advance()
		w.reconcile()
	}
	w.Expect(w.sets).To(BeEmpty())
	w.Expect(conditions.GetMessage(w.upgrade(), quoinv1.ClusterUpgradeProgressingCondition)).
		To(ContainSubstring("Node w-1: Ready is False"))
	checks := &quoinv1.PreflightCheckList{}
	w.Expect(w.client.List(t.Context(), checks)).To(Succeed())
	w.Expect(len(checks.Items)).To(BeNumerically("<=", 3), "old ones go")
	w.Expect(w.recorded()).To(ContainSubstring("Warning Blocked"))
	w.blocks = ""
	w.run()
	w.expectEnd()
}

func TestAPlanIsApproved(t *testing.T) {
	w := newWorld(t)
	w.edit(func(u *quoinv1.ClusterUpgrade) { u.Spec.Approve = quoinv1.UpgradeApprovalManual })
	w.run()
	w.Expect(w.sets).To(BeEmpty())
	w.Expect(w.reason()).To(Equal(quoinv1.ApprovalRequiredReason))
	w.edit(func(u *quoinv1.ClusterUpgrade) { u.Spec.ApprovedPlan = "another" })
	w.run()
	w.Expect(w.sets).To(BeEmpty())
	w.edit(func(u *quoinv1.ClusterUpgrade) { u.Spec.ApprovedPlan = u.Status.Plan.ID })
	w.run()
	w.expectEnd()
}

// A tool that sets the version back is named, and not fought.
func TestAVersionThatIsSetBack(t *testing.T) {
	w := newWorld(t)
	for len(w.sets) < 2 {
		w.reconcile()
		w.advance()
	}
	set := func(version string) {
		plane := w.plane()
		before := plane.DeepCopy()
		plane.Spec.Version = version
		w.Expect(w.client.Patch(t.Context(), plane, client.MergeFrom(before))).To(Succeed())
	}
	w.r.APIReader = interceptor.NewClient(w.client, interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch,
		key client.ObjectKey, object client.Object, options ...client.GetOption) error {
		defer func() {
			entry := func(manager, fields string, minute int) metav1.ManagedFieldsEntry {
				return metav1.ManagedFieldsEntry{Manager: manager, Operation: metav1.ManagedFieldsOperationApply,
					Time:     ptr.To(metav1.NewTime(time.Date(2026, 11, 23, 8, minute, 0, 0, time.UTC))),
					FieldsV1: metav1.NewFieldsV1(fields)}
			}
			object.SetManagedFields([]metav1.ManagedFieldsEntry{
				entry("quoin", `{"f:spec":{"f:version":{}}}`, 1),
				entry("argocd", `{"f:spec":{"f:replicas":{},"f:version":{}}}`, 2),
				entry("kubectl", `{"f:spec":{"f:replicas":{}},"f:metadata":{"f:version":{}}}`, 3)})
		}()
		return c.Get(ctx, key, object, options...)
	}})
	set("v1.34.4")
	w.run()
	w.Expect(w.reason()).To(Equal(quoinv1.RevertedReason))
	w.Expect(conditions.GetMessage(w.upgrade(), quoinv1.ClusterUpgradeProgressingCondition)).To(ContainSubstring(
		"QuoinControlPlane c1 was set back from v1.35.4 to v1.34.4 by argocd (Apply): have that write v1.35.4"))
	w.Expect(w.recorded()).To(ContainSubstring("Warning Reverted"))
	w.Expect(w.sets).To(HaveLen(2))
	set("v1.35.4")
	w.run()
	w.expectEnd()
}

func TestNothingIsWritten(t *testing.T) {
	for name, change := range map[string]func(*clusterv1.Cluster, *quoinv1.ClusterUpgrade){
		"while the Cluster is paused": func(c *clusterv1.Cluster, _ *quoinv1.ClusterUpgrade) { c.Spec.Paused = ptr.To(true) },
		"while it is paused itself": func(_ *clusterv1.Cluster, u *quoinv1.ClusterUpgrade) {
			u.Annotations = map[string]string{clusterv1.PausedAnnotation: ""}
		},
		"while its spec says so": func(_ *clusterv1.Cluster, u *quoinv1.ClusterUpgrade) { u.Spec.Paused = ptr.To(true) },
		"when it was moved away": func(_ *clusterv1.Cluster, u *quoinv1.ClusterUpgrade) {
			u.Annotations = map[string]string{clusterctlv1.DeleteForMoveAnnotation: ""}
		},
		"while the Cluster is being deleted": func(c *clusterv1.Cluster, _ *quoinv1.ClusterUpgrade) {
			c.Finalizers = []string{"example.com/kept"}
		},
		"of a Cluster that is not there": func(_ *clusterv1.Cluster, u *quoinv1.ClusterUpgrade) { u.Spec.ClusterName = "none" },
		"before the control plane is up": func(c *clusterv1.Cluster, _ *quoinv1.ClusterUpgrade) {
			c.Status.Initialization.ControlPlaneInitialized = nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			cluster, found := w.cluster(), w.upgrade()
			change(cluster, found)
			status := cluster.Status.DeepCopy()
			w.Expect(w.client.Update(t.Context(), cluster)).To(Succeed())
			cluster.Status = *status
			w.Expect(w.client.Status().Update(t.Context(), cluster)).To(Succeed())
			w.Expect(w.client.Update(t.Context(), found)).To(Succeed())
			if len(cluster.Finalizers) > 0 {
				w.Expect(w.client.Delete(t.Context(), cluster)).To(Succeed())
			}
			w.run()
			w.Expect(w.sets).To(BeEmpty())
			if found := w.upgrade(); conditions.IsTrue(found, quoinv1.ClusterUpgradePausedCondition) {
				w.Expect(found.OwnerReferences).To(BeEmpty(), "not even who owns it")
				w.Expect(found.Labels).To(BeEmpty())
			}
			checks := &quoinv1.PreflightCheckList{}
			w.Expect(w.client.List(t.Context(), checks)).To(Succeed())
			w.Expect(checks.Items).To(BeEmpty())
		})
	}
}

// The one that began first goes on, and the other one waits for its end.
func TestOneUpgradeAtATime(t *testing.T) {
	other := &quoinv1.ClusterUpgrade{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "a-second", UID: "s",
		CreationTimestamp: metav1.NewTime(time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC))}}
	other.Spec = quoinv1.ClusterUpgradeSpec{ClusterName: "c1", Version: "v1.35.4"}
	w := newWorld(t, other)
	w.run()
	w.Expect(w.sets).To(BeEmpty())
	w.Expect(w.reason()).To(Equal(quoinv1.AnotherUpgradeReason))
	w.Expect(w.r.ofCluster(t.Context(), other)).To(BeEmpty(), "an object without the label of its Cluster")
	w.Expect(w.r.ofCluster(t.Context(), w.plane())).To(HaveLen(2))
	w.Expect(w.client.Delete(t.Context(), other)).To(Succeed())
	w.run()
	w.expectEnd()
}

// An upgrade that waits for its window is not late, and says when that opens. Who takes the windows away wakes it.
//
// Proves: C16
func TestClosedWindowsAreNoDelay(t *testing.T) {
	policy := &quoinv1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "weekends"}}
	policy.Spec.ClusterName = "c1"
	policy.Spec.Windows = []quoinv1.RolloutWindow{{Days: []quoinv1.RolloutDay{"Saturday"}, Start: "08:00",
		DurationMinutes: ptr.To[int32](120)}}
	w := newWorld(t, policy)
	w.reconcile()
	w.advance()
	w.reconcile()
	w.Expect(upgrade.Begun(w.upgrade())).To(BeTrue())
	w.clock.Step(48 * time.Hour)
	again := w.reconcile().RequeueAfter
	w.Expect(conditions.IsTrue(w.upgrade(), quoinv1.ClusterUpgradeStalledCondition)).To(BeFalse())
	w.Expect(conditions.GetMessage(w.upgrade(), quoinv1.ClusterUpgradeProgressingCondition)).To(
		ContainSubstring("the next one opens Sat 2026-11-28 08:00 UTC"))
	w.Expect(w.clock.Now().Add(again)).To(BeTemporally("<=", time.Date(2026, 11, 28, 8, 0, 0, 0, time.UTC)))
	w.Expect(w.r.ofCluster(t.Context(), policy)).To(ConsistOf(ctrl.Request{NamespacedName: key}))
	w.Expect(w.client.Delete(t.Context(), policy)).To(Succeed())
	w.reconcile()
	w.Expect(conditions.IsTrue(w.upgrade(), quoinv1.ClusterUpgradeStalledCondition)).To(BeTrue())
}

// A move drops every status, and what was done is not done again.
func TestAMoveDropsTheStatus(t *testing.T) {
	w := newWorld(t)
	drop := func() {
		found := w.upgrade()
		found.Status = quoinv1.ClusterUpgradeStatus{}
		w.Expect(w.client.Status().Update(t.Context(), found)).To(Succeed())
	}
	for len(w.sets) < 4 {
		w.reconcile()
		w.advance()
	}
	drop()
	w.run()
	w.expectEnd()
	drop()
	w.run()
	w.expectEnd()
}

// Of a preflight that was moved only the verdict is left, and an annotation is all that says so.
func TestAPreflightThatWasMovedIsMadeAgain(t *testing.T) {
	w := newWorld(t)
	w.edit(func(u *quoinv1.ClusterUpgrade) { u.Spec.Approve = quoinv1.UpgradeApprovalManual })
	w.run()
	checks := &quoinv1.PreflightCheckList{}
	w.Expect(w.client.List(t.Context(), checks)).To(Succeed())
	w.Expect(checks.Items).To(HaveLen(1))
	conditions.Set(&checks.Items[0], metav1.Condition{Type: quoinv1.PreflightCheckCompletedCondition,
		Status: metav1.ConditionTrue, Reason: quoinv1.MovedReason, Message: "moved"})
	w.Expect(w.client.Status().Update(t.Context(), &checks.Items[0])).To(Succeed())
	w.run()
	w.Expect(w.client.List(t.Context(), checks)).To(Succeed())
	w.Expect(checks.Items).To(HaveLen(2))
	w.Expect(w.sets).To(BeEmpty())
	w.edit(func(u *quoinv1.ClusterUpgrade) { u.Spec.ApprovedPlan = u.Status.Plan.ID })
	w.run()
	w.expectEnd()
}

// After a move the Cluster is paused for a while, and what the move dropped is restored when that ends. Later, news of
// the Cluster are no matter of an upgrade that is done.
func TestAMoveEndsWithThePause(t *testing.T) {
	w := newWorld(t)
	w.run()
	w.Expect(w.r.ofCluster(t.Context(), w.cluster())).To(BeEmpty())
	found, infra, cluster := w.upgrade(), &infrav1.QuoinCluster{}, w.cluster()
	w.Expect(w.client.Get(t.Context(), client.ObjectKeyFromObject(cluster), infra)).To(Succeed())
	found.Status, infra.Status.Version, cluster.Spec.Paused = quoinv1.ClusterUpgradeStatus{}, "", ptr.To(true)
	w.Expect(w.client.Status().Update(t.Context(), found)).To(Succeed())
	w.Expect(w.client.Status().Update(t.Context(), infra)).To(Succeed())
	w.Expect(w.client.Update(t.Context(), cluster)).To(Succeed())
	w.reconcile()
	w.Expect(w.client.Get(t.Context(), client.ObjectKeyFromObject(cluster), infra)).To(Succeed())
	w.Expect(infra.Status.Version).To(BeEmpty())
	cluster.Spec.Paused = nil
	w.Expect(w.client.Update(t.Context(), cluster)).To(Succeed())
	w.Expect(w.r.ofCluster(t.Context(), cluster)).To(ConsistOf(ctrl.Request{NamespacedName: key}))
	w.reconcile()
	w.Expect(w.client.Get(t.Context(), client.ObjectKeyFromObject(cluster), infra)).To(Succeed())
	w.Expect(infra.Status.Version).To(Equal("v1.36.3"))
	w.Expect(w.r.ofCluster(t.Context(), cluster)).To(BeEmpty())
}

// Add-ons that do not follow say why, and how to go on without them.
func TestAddonsThatDoNotFollow(t *testing.T) {
	w := newWorld(t)
	plane := w.plane()
	conditions.Set(plane, metav1.Condition{Type: controlplanev1.ControlPlaneAddonsUpToDateCondition,
		Status: metav1.ConditionFalse, Reason: "Test", Message: "CoreDNS has a tag of its own"})
	w.Expect(w.client.Status().Update(t.Context(), plane)).To(Succeed())
	seen, err := w.r.observe(t.Context(), w.client, w.upgrade())
	w.Expect(err).NotTo(HaveOccurred())
	w.Expect(seen.world.ControlPlane.Addons).To(And(ContainSubstring("CoreDNS has a tag of its own"),
		ContainSubstring("controlplane.cluster.x-k8s.io/skip-coredns of QuoinControlPlane c1")))
}

// A kube-proxy that waits for what no pool has waits for a person, who learns that once; the upgrade goes on by itself
// then.
func TestAddonsThatAPolicyHolds(t *testing.T) {
	w := newWorld(t)
	for len(w.sets) < 2 {
		w.reconcile()
		w.advance()
	}
	w.held = "kube-proxy keeps v1.34.4: beside Machine lone"
	w.settle(w.plane())
	w.run()
	w.Expect(w.sets).To(Equal(whole[:2]), "no other version is set meanwhile")
	w.Expect(w.reason()).To(Equal(quoinv1.AddonsHeldReason))
	found := w.upgrade()
	w.Expect(conditions.IsFalse(found, quoinv1.ClusterUpgradeProgressingCondition)).To(BeTrue())
	w.Expect(found.Status.Step).To(HaveSuffix(string(quoinv1.UpgradeStepAddons)))
	w.Expect(conditions.GetMessage(found, quoinv1.ClusterUpgradeProgressingCondition)).To(And(ContainSubstring(w.held),
		ContainSubstring("controlplane.cluster.x-k8s.io/skip-kube-proxy")))
	w.Expect(strings.Count(w.recorded(), "Warning "+quoinv1.AddonsHeldReason)).To(Equal(1))
	w.held = ""
	w.run()
	w.expectEnd()
}

// What the cache does not know yet keeps a version from being set: what runs is asked anew right before.
//
// Proves: R9
func TestAVersionIsSetByWhatRunsNow(t *testing.T) {
	w := newWorld(t)
	for len(w.sets) < 1 {
		w.reconcile()
		w.advance()
	}
	w.r.APIReader = interceptor.NewClient(w.client, interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch,
		list client.ObjectList, options ...client.ListOption) error {
		err := c.List(ctx, list, options...)
		if machines, are := list.(*clusterv1.MachineList); are {
			old := machineOf("lone", "")
			old.Spec.Version = "v1.31.4"
			machines.Items = append(machines.Items, *old)
		}
		return err
	}})
	for range 10 {
		w.reconcile()
	}
	w.Expect(w.sets).To(Equal(whole[:1]))
	w.Expect(w.reason()).To(Equal(quoinv1.NoPlanReason))
	w.Expect(conditions.GetMessage(w.upgrade(), quoinv1.ClusterUpgradeProgressingCondition)).To(ContainSubstring(
		"kubelet v1.31.4 of Machine lone is older than API server v1.35.4"))
	w.r.APIReader = w.client
	w.run()
	w.expectEnd()
}

// A MachineDeployment that is being deleted gets no version. What its kubelets run counts until they are gone.
func TestAPoolThatIsBeingDeleted(t *testing.T) {
	w := newWorld(t)
	green := &clusterv1.MachineDeployment{}
	w.Expect(w.client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "green"}, green)).To(Succeed())
	green.Finalizers = []string{clusterv1.MachineDeploymentFinalizer}
	w.Expect(w.client.Update(t.Context(), green)).To(Succeed())
	w.Expect(w.client.Delete(t.Context(), green)).To(Succeed())
	w.run()
	w.Expect(conditions.IsTrue(w.upgrade(), quoinv1.ClusterUpgradeCompletedCondition)).To(BeTrue(), "%+v",
		w.upgrade().Status)
	w.Expect(w.sets).To(Equal(slices.Concat(whole[:4], whole[5:])))
	w.Expect(w.upgrade().Status.Versions).To(ConsistOf(clusterv1.StatusVersion{Version: "v1.34.4", Replicas: 2},
		clusterv1.StatusVersion{Version: "v1.36.3", Replicas: 5}))
}

// One that is made again under the same name finds checks of the former one, which stay with the Cluster; and it knows
// how long steps took.
func TestAnUpgradeIsMadeAgain(t *testing.T) {
	w := newWorld(t)
	w.blocks = "Nodes: none"
	for w.reconcile(); w.reason() != quoinv1.BlockedReason; w.reconcile() {
		w.advance()
	}
	former := w.upgrade()
	w.Expect(w.client.Delete(t.Context(), former)).To(Succeed())
	again := &quoinv1.ClusterUpgrade{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, UID: "v"},
		Spec: former.Spec}
	w.Expect(w.client.Create(t.Context(), again)).To(Succeed())
	past := &quoinv1.ClusterUpgrade{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: "past",
		Annotations: map[string]string{quoinv1.ClusterUpgradeCompletedAnnotation: "2026-01-01T00:00:00Z past/" + former.Spec.Version}},
		Spec: former.Spec}
	past.Status.Steps = []quoinv1.UpgradeStep{{Type: quoinv1.UpgradeStepWorkers, Object: "MachineDeployment blue",
		To: "v1.34.4", State: quoinv1.UpgradeStepDone, StartTime: metav1.NewTime(w.clock.Now().Add(-time.Hour)),
		CompletionTime: metav1.NewTime(w.clock.Now().Add(-time.Hour + 95*time.Second))}}
	status := past.Status
	w.Expect(w.client.Create(t.Context(), past)).To(Succeed())
	past.Status = status
	w.Expect(w.client.Status().Update(t.Context(), past)).To(Succeed())
	w.blocks = ""
	w.run()
	w.expectEnd()
	w.Expect(w.upgrade().Status.Steps).To(ContainElement(And(HaveField("Object", "MachineDeployment blue"),
		HaveField("EstimatedSeconds", HaveValue(BeEquivalentTo(95))))))
}

// What an API server or a webhook refuses is told. What another attempt may do is tried again, and told of nobody.
func TestAWriteThatFails(t *testing.T) {
	kind := schema.GroupKind{Group: controlplanev1.GroupVersion.Group, Kind: "QuoinControlPlane"}
	left := field.Forbidden(field.NewPath("spec", "version"), "workers would be left behind (R9)")
	for name, c := range map[string]struct {
		failure error
		refused bool
	}{
		"an invalid one":  {apierrors.NewInvalid(kind, "c1", field.ErrorList{left}), true},
		"a forbidden one": {apierrors.NewForbidden(schema.GroupResource{}, "c1", errors.New("left behind (R9)")), true},
		"one that a webhook refuses": {&apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: 400,
			Message: `admission webhook "versions.example.com" denied the request: left behind (R9)`}}, true},
		"a timeout": {apierrors.NewTimeoutError("left behind (R9)", 1), false},
		"a webhook that does not answer": {apierrors.NewInternalError(
			errors.New(`failed calling webhook "versions.example.com": left behind (R9)`)), false},
		"too many":      {apierrors.NewTooManyRequests("left behind (R9)", 1), false},
		"no connection": {errors.New("connection refused: left behind (R9)"), false},
		"a conflict":    {apierrors.NewConflict(schema.GroupResource{}, "c1", errors.New("left behind (R9)")), false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			failed := false
			w.r.Client = interceptor.NewClient(w.client, interceptor.Funcs{
				Patch: func(ctx context.Context, to client.WithWatch, object client.Object, patch client.Patch,
					options ...client.PatchOption) error {
					if _, is := object.(*controlplanev1.QuoinControlPlane); is {
						failed = true
						return c.failure
					}
					return to.Patch(ctx, object, patch, options...)
				}})
			var result ctrl.Result
			var err error
			for range 60 {
				if result, err = w.r.Reconcile(t.Context(), ctrl.Request{NamespacedName: key}); failed {
					break
				}
				w.advance()
			}
			if apierrors.IsConflict(c.failure) {
				w.Expect(result.RequeueAfter).To(Equal(cacheLag))
				w.Expect(err).NotTo(HaveOccurred())
			} else {
				w.Expect(err).To(MatchError(ContainSubstring("left behind (R9)")))
			}
			w.Expect(w.reason() == quoinv1.RefusedReason).To(Equal(c.refused))
			if !apierrors.IsConflict(c.failure) {
				w.clock.Step(25 * time.Hour)
				_, err = w.r.Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
				w.Expect(err).To(HaveOccurred())
				w.Expect(conditions.IsTrue(w.upgrade(), quoinv1.ClusterUpgradeStalledCondition)).To(BeTrue())
			}
			w.restart()
			w.run()
			w.sets = append([]string{whole[0]}, w.sets...) // which was written before
			w.expectEnd()
		})
	}
}

// What an upgrade rests on and may not be read, or is not there, is told until it may.
func TestWhatMayNotBeRead(t *testing.T) {
	for name, failure := range map[string]error{
		"forbidden": apierrors.NewForbidden(schema.GroupResource{Resource: "quoinclusters"}, "c1", errors.New("no role")),
		"gone":      apierrors.NewNotFound(schema.GroupResource{Resource: "quoinclusters"}, "c1"),
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.r.APIReader = interceptor.NewClient(w.client, interceptor.Funcs{Get: func(ctx context.Context,
				c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
				if _, is := object.(*infrav1.QuoinCluster); is {
					return failure
				}
				return c.Get(ctx, key, object, options...)
			}})
			_, err := w.r.Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
			w.Expect(err).To(MatchError(failure), "so that it is tried again")
			w.Expect(w.reason()).To(Equal(quoinv1.NotReadReason))
			w.Expect(conditions.GetMessage(w.upgrade(), quoinv1.ClusterUpgradeProgressingCondition)).
				To(ContainSubstring("read QuoinCluster prod/c1: "))
			w.Expect(w.recorded()).To(ContainSubstring("Warning NotRead"))
			w.restart()
			w.run()
			w.expectEnd()
		})
	}
}

// A topology gets one version, and Cluster API does the rest.
//
// Proves: C3
func TestATopologyIsSetOnce(t *testing.T) {
	class := &clusterv1.ClusterClass{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "quoin"}}
	class.Spec.KubernetesVersions = []string{"v1.34.4", "v1.35.4", "v1.36.3"}
	w := newWorld(t, class)
	w.topology = class.Spec.KubernetesVersions
	cluster := w.cluster()
	cluster.Spec.Topology = clusterv1.Topology{ClassRef: clusterv1.ClusterClassRef{Name: "quoin"}, Version: "v1.34.4"}
	w.Expect(w.client.Update(t.Context(), cluster)).To(Succeed())
	w.edit(func(u *quoinv1.ClusterUpgrade) { u.Spec.Via = nil })
	w.run()
	w.Expect(conditions.IsTrue(w.upgrade(), quoinv1.ClusterUpgradeCompletedCondition)).To(BeTrue())
	w.Expect(w.upgrade().Status.Plan.Hops).To(Equal([]string{"v1.35.4", "v1.36.3"}))
	w.Expect(w.sets).To(Equal([]string{"*v1alpha1.QuoinCluster c1 v1.36.3", "*v1beta2.Cluster c1 v1.36.3",
		"*v1alpha1.QuoinCluster c1 v1.36.3"}))
}

// The Cluster is looked at for the upgrade that is asked for.
func TestAPreflightKnowsWhichWorkersAreRaised(t *testing.T) {
	w := newWorld(t)
	w.edit(func(u *quoinv1.ClusterUpgrade) { u.Spec.Workers = quoinv1.UpgradeWorkersAsNeeded })
	w.run()
	checks := &quoinv1.PreflightCheckList{}
	w.Expect(w.client.List(t.Context(), checks)).To(Succeed())
	w.Expect(checks.Items).NotTo(BeEmpty())
	for _, check := range checks.Items {
		w.Expect(check.Spec.Workers).To(Equal(quoinv1.UpgradeWorkersAsNeeded))
	}
}

func TestAllChecksAreThere(t *testing.T) {
	var names []string
	for _, check := range preflight.Checks() {
		names = append(names, check.Name)
	}
	slices.Sort(names)
	NewWithT(t).Expect(upgrade.AllChecks).To(Equal(names))
}
