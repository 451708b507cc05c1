// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package manager_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/manager"
)

// held keeps what was deleted, as the hooks and the hosts of real Machines do.
const held = "test.example.com/held"

// judgesDeletions deletes control-plane Machines and Clusters in every way there is. No controller acts: the control
// planes are paused.
func judgesDeletions(t *testing.T, c client.Client, config *rest.Config) {
	t.Run("one Machine, and then a second", func(t *testing.T) {
		g := NewWithT(t)
		e := newEstate(t, c, "one")
		g.Expect(c.Delete(t.Context(), e.machines[0])).To(Succeed())
		g.Expect(c.Delete(t.Context(), e.machines[1])).To(MatchError(And(
			ContainSubstring("Machine cp-1 cannot be deleted now"),
			ContainSubstring("wait until there is a replacement for cp-0"),
			ContainSubstring("annotate it with quoin.cluster.x-k8s.io/allow-quorum-loss"))))
		g.Expect(c.Delete(t.Context(), e.machines[0])).To(Succeed(), "what is being deleted already may be deleted again")
		e.expectLeaving(t, 1)
	})
	t.Run("as our own controller", func(t *testing.T) {
		g := NewWithT(t)
		e := newEstate(t, c, "own")
		own := impersonating(t, config, "system:serviceaccount:quoin-control-plane-system:quoin-control-plane-manager")
		g.Expect(own.Delete(t.Context(), e.machines[0])).To(Succeed())
		g.Expect(own.Delete(t.Context(), e.machines[1])).To(MatchError(ContainSubstring("cannot be deleted now")))
		e.expectLeaving(t, 1)
	})
	t.Run("through another version of the API", func(t *testing.T) {
		g := NewWithT(t)
		e := newEstate(t, c, "versions")
		g.Expect(c.Delete(t.Context(), e.machines[0])).To(Succeed())
		old := &unstructured.Unstructured{}
		old.SetAPIVersion("cluster.x-k8s.io/v1beta1")
		old.SetKind("Machine")
		old.SetNamespace(e.namespace)
		old.SetName("cp-1")
		g.Expect(c.Delete(t.Context(), old)).To(MatchError(ContainSubstring("cannot be deleted now")))
	})
	t.Run("all Machines at once", func(t *testing.T) {
		g := NewWithT(t)
		e := newEstate(t, c, "collection")
		err := c.DeleteAllOf(t.Context(), &clusterv1.Machine{}, client.InNamespace(e.namespace))
		g.Expect(err).To(MatchError(ContainSubstring("cannot be deleted now")))
		e.expectLeaving(t, 1)
	})
	t.Run("all Machines in parallel", func(t *testing.T) {
		g := NewWithT(t)
		e := newEstate(t, c, "parallel")
		results := make([]error, len(e.machines))
		var all sync.WaitGroup
		for i := range e.machines {
			all.Go(func() { results[i] = c.Delete(t.Context(), e.machines[i]) })
		}
		all.Wait()
		// How many pass is a matter of luck, and of the hooks on real Machines. None is refused for another reason.
		passed := 0
		for _, err := range results {
			if err == nil {
				passed++
			} else {
				g.Expect(err).To(MatchError(ContainSubstring("cannot be deleted now")))
			}
		}
		g.Expect(passed).To(BeNumerically(">=", 1))
		e.expectLeaving(t, passed)
	})
	t.Run("in a dry run", func(t *testing.T) {
		g := NewWithT(t)
		e := newEstate(t, c, "dry")
		for _, machine := range e.machines {
			g.Expect(c.Delete(t.Context(), machine, client.DryRunAll)).To(Succeed())
		}
		e.expectLeaving(t, 0)
		g.Expect(c.Delete(t.Context(), e.machines[0])).To(Succeed())
		g.Expect(c.Delete(t.Context(), e.machines[1], client.DryRunAll)).
			To(MatchError(ContainSubstring("cannot be deleted now")))
		e.annotate(t, 1, controlplanev1.AllowQuorumLossAnnotation, "a rehearsal")
		g.Expect(c.Delete(t.Context(), e.machines[1], client.DryRunAll)).To(Succeed())
		e.expectLeaving(t, 1)
		g.Consistently(func() []string { return events(t, c, e.namespace) }, "1s").Should(BeEmpty())
	})
	t.Run("against the verdict, with a reason", func(t *testing.T) {
		g := NewWithT(t)
		e := newEstate(t, c, "override")
		g.Expect(c.Delete(t.Context(), e.machines[0])).To(Succeed())
		e.annotate(t, 1, controlplanev1.AllowQuorumLossAnnotation, "the site burned down")
		g.Expect(c.Delete(t.Context(), e.machines[1])).To(Succeed())
		g.Eventually(func() []string { return events(t, c, e.namespace) }, "10s").Should(ConsistOf(And(
			ContainSubstring("QuorumLossAllowed"), ContainSubstring("the site burned down"))))
	})
	t.Run("by a membership that was read too long ago", func(t *testing.T) {
		g := NewWithT(t)
		e := newEstate(t, c, "stale")
		e.read(t, time.Now().Add(-10*time.Minute))
		g.Expect(c.Delete(t.Context(), e.machines[0])).To(MatchError(ContainSubstring("last read 10m")))
	})
	t.Run("with its Cluster, control plane or Namespace", func(t *testing.T) {
		for name, above := range map[string]func(*estate) client.Object{
			"with-cluster":       func(e *estate) client.Object { return e.cluster },
			"with-control-plane": func(e *estate) client.Object { return e.plane },
			"with-namespace": func(e *estate) client.Object {
				return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: e.namespace}}
			},
		} {
			g := NewWithT(t)
			e := newEstate(t, c, name)
			g.Expect(c.Delete(t.Context(), above(e))).To(Succeed())
			g.Expect(c.DeleteAllOf(t.Context(), &clusterv1.Machine{}, client.InNamespace(e.namespace))).To(Succeed())
			e.expectLeaving(t, 3)
		}
	})
	t.Run("a protected Cluster", func(t *testing.T) {
		g := NewWithT(t)
		e := newEstate(t, c, "protected")
		patch := func(annotations string) {
			g.Expect(c.Patch(t.Context(), e.cluster, client.RawPatch("application/merge-patch+json",
				[]byte(`{"metadata":{"annotations":{`+annotations+`}}}`)))).To(Succeed())
		}
		patch(`"quoin.cluster.x-k8s.io/protect":""`)
		refused := MatchError(And(ContainSubstring("is protected"),
			ContainSubstring("quoin.cluster.x-k8s.io/confirm-deletion: protected")))
		g.Expect(c.Delete(t.Context(), e.cluster)).To(refused)
		g.Expect(c.DeleteAllOf(t.Context(), &clusterv1.Cluster{}, client.InNamespace(e.namespace))).To(refused)
		patch(`"quoin.cluster.x-k8s.io/confirm-deletion":"protected"`)
		g.Expect(c.Delete(t.Context(), e.cluster)).To(Succeed())

		doomed := newEstate(t, c, "protected-in-vain")
		e = doomed
		patch(`"quoin.cluster.x-k8s.io/protect":""`)
		g.Expect(c.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: doomed.namespace}})).
			To(Succeed())
		g.Expect(c.Delete(t.Context(), doomed.cluster)).To(Succeed())
	})
	t.Run("whose Node is not seen", func(t *testing.T) { judgesUnseenNodes(t, c, config) })
	t.Run("while nobody answers", func(t *testing.T) { whileNobodyAnswers(t, c, config) })
}

// whileNobodyAnswers shows what the absence of the manager stops: nothing but what only it can answer for.
func whileNobodyAnswers(t *testing.T, c client.Client, config *rest.Config) {
	g := NewWithT(t)
	ours, doomed := newEstate(t, c, "silence"), newEstate(t, c, "silence-doomed")
	// Others' Machines are in the same Cluster, to differ in nothing else.
	worker := ours.machine("worker")
	delete(worker.Labels, clusterv1.MachineControlPlaneLabel)
	worker.OwnerReferences = nil
	kubeadm := ours.machine("kubeadm")
	kubeadm.OwnerReferences[0].Kind = "KubeadmControlPlane"
	moved := ours.machine("moved")
	moved.Annotations = map[string]string{clusterctlv1.DeleteForMoveAnnotation: ""}
	leaving, moving, let := ours.machine("leaving"), ours.machine("moving"), ours.machine("let")
	joining := ours.machine("joining")
	for _, machine := range []*clusterv1.Machine{joining, moving, let} { // the Node of none is found
		machine.Spec.ProviderID, machine.OwnerReferences = "quoin://"+machine.Name, nil
		delete(machine.Labels, clusterv1.MachineControlPlaneLabel)
	}
	moving.Annotations = map[string]string{clusterctlv1.DeleteForMoveAnnotation: ""}
	let.Annotations = map[string]string{infrav1.DeleteUndrainedAnnotation: ""}
	protected := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: ours.namespace, Name: "protected",
		Annotations: map[string]string{controlplanev1.ProtectAnnotation: ""}}}
	protected.Spec.Paused = ptr.To(true)
	other := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: ours.namespace, Name: "other"}}
	other.Spec.Paused = ptr.To(true)
	for _, object := range []client.Object{worker, kubeadm, moved, leaving, joining, moving, let, protected, other} {
		g.Expect(c.Create(t.Context(), object)).To(Succeed())
	}
	g.Expect(c.Delete(t.Context(), leaving)).To(Succeed())
	g.Expect(c.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: doomed.namespace}})).To(Succeed())
	silence(t, c)

	unanswered := MatchError(ContainSubstring("failed calling webhook"))
	g.Eventually(func() error {
		return c.Delete(t.Context(), ours.machines[0], client.DryRunAll)
	}, "10s").Should(unanswered)
	g.Expect(c.Delete(t.Context(), protected, client.DryRunAll)).To(unanswered)
	g.Expect(c.Delete(t.Context(), joining, client.DryRunAll)).To(unanswered)
	for _, object := range []client.Object{worker, kubeadm, moved, leaving, moving, let, other} {
		g.Expect(c.Delete(t.Context(), object)).To(Succeed(), object.GetName())
	}

	// The namespace controller of a real cluster.
	asController := impersonating(t, config, "system:serviceaccount:kube-system:namespace-controller")
	g.Expect(asController.DeleteAllOf(t.Context(), &clusterv1.Machine{}, client.InNamespace(doomed.namespace))).
		To(Succeed())
	doomed.expectLeaving(t, 3)
}

// impersonating is a client of a user who may do everything.
func impersonating(t *testing.T, config *rest.Config, user string) client.Client {
	t.Helper()
	as := rest.CopyConfig(config)
	as.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:masters"}}
	c, err := client.New(as, client.Options{Scheme: manager.Scheme()})
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return c
}

// silence points the webhooks of deletions to where nobody listens, and back when the test ends.
func silence(t *testing.T, c client.Client) {
	t.Helper()
	g := NewWithT(t)
	configurations := &admissionregistrationv1.ValidatingWebhookConfigurationList{}
	g.Expect(c.List(t.Context(), configurations)).To(Succeed())
	silenced := 0
	for i := range configurations.Items {
		before, after := &configurations.Items[i], configurations.Items[i].DeepCopy()
		for j := range after.Webhooks {
			if strings.HasPrefix(after.Webhooks[j].Name, "deletion.") {
				after.Webhooks[j].ClientConfig.URL = ptr.To("https://127.0.0.1:1/nobody")
				silenced++
			}
		}
		g.Expect(c.Patch(t.Context(), after, client.MergeFrom(before))).To(Succeed())
	}
	g.Expect(silenced).To(Equal(4))
}

// estate is a Namespace with a Cluster of three healthy control-plane Machines; its control plane is paused.
type estate struct {
	c         client.Client
	namespace string
	cluster   *clusterv1.Cluster
	plane     *controlplanev1.QuoinControlPlane
	machines  []*clusterv1.Machine
}

func newEstate(t *testing.T, c client.Client, name string) *estate {
	t.Helper()
	g := NewWithT(t)
	e := &estate{c: c, namespace: "deletion-" + name}
	g.Expect(c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: e.namespace}})).To(Succeed())
	e.cluster = &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: e.namespace, Name: name,
		Finalizers: []string{held}}}
	e.cluster.Spec.Paused = ptr.To(false)
	g.Expect(c.Create(t.Context(), e.cluster)).To(Succeed())

	e.plane = &controlplanev1.QuoinControlPlane{}
	g.Expect(c.Get(t.Context(), client.ObjectKey{Namespace: "tenant", Name: "quick-control-plane"}, e.plane)).To(Succeed())
	e.plane.ObjectMeta = metav1.ObjectMeta{Namespace: e.namespace, Name: "cp", Finalizers: []string{held},
		Labels:      map[string]string{clusterv1.ClusterNameLabel: name},
		Annotations: map[string]string{clusterv1.PausedAnnotation: ""}}
	e.plane.Spec.Replicas = ptr.To[int32](3)
	g.Expect(c.Create(t.Context(), e.plane)).To(Succeed())
	for i := range 3 {
		machine := e.machine(fmt.Sprintf("cp-%d", i))
		g.Expect(c.Create(t.Context(), machine)).To(Succeed())
		machine.Status.NodeRef.Name = fmt.Sprintf("node-%d", i)
		g.Expect(c.Status().Update(t.Context(), machine)).To(Succeed())
		e.machines = append(e.machines, machine)
	}
	e.read(t, time.Now())
	return e
}

// machine is a control-plane Machine that was not created yet.
func (e *estate) machine(name string) *clusterv1.Machine {
	machine := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{
		Namespace: e.namespace, Name: name, Finalizers: []string{held},
		Labels: map[string]string{clusterv1.ClusterNameLabel: e.cluster.Name, clusterv1.MachineControlPlaneLabel: ""},
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion: controlplanev1.GroupVersion.String(), Kind: "QuoinControlPlane", Name: "cp", UID: e.plane.UID,
			Controller: ptr.To(true)}},
	}}
	machine.Spec.ClusterName = e.cluster.Name
	machine.Spec.Bootstrap.DataSecretName = ptr.To("none")
	machine.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{
		APIGroup: "infrastructure.cluster.x-k8s.io", Kind: "QuoinMachine", Name: name}
	return machine
}

// read notes in the status that etcd was read.
func (e *estate) read(t *testing.T, at time.Time) {
	t.Helper()
	before := e.plane.DeepCopy()
	etcd := &controlplanev1.EtcdStatus{Agreed: ptr.To(true), ObservedTime: metav1.NewTime(at)}
	for i, machine := range e.machines {
		etcd.Members = append(etcd.Members, controlplanev1.EtcdMember{Name: fmt.Sprintf("node-%d", i),
			ID:      fmt.Sprintf("%x", i+1),
			Machine: machine.Name, Role: "Voter", Healthy: ptr.To(true)})
	}
	e.plane.Status.Etcd = etcd
	NewWithT(t).Expect(e.c.Status().Patch(t.Context(), e.plane, client.MergeFrom(before))).To(Succeed())
}

func (e *estate) annotate(t *testing.T, i int, key, value string) {
	t.Helper()
	before := e.machines[i].DeepCopy()
	e.machines[i].Annotations = map[string]string{key: value}
	NewWithT(t).Expect(e.c.Patch(t.Context(), e.machines[i], client.MergeFrom(before))).To(Succeed())
}

func (e *estate) expectLeaving(t *testing.T, want int) {
	t.Helper()
	g := NewWithT(t)
	machines := &clusterv1.MachineList{}
	g.Expect(e.c.List(t.Context(), machines, client.InNamespace(e.namespace))).To(Succeed())
	leaving := 0
	for i := range machines.Items {
		if !machines.Items[i].DeletionTimestamp.IsZero() {
			leaving++
		}
	}
	g.Expect(leaving).To(Equal(want))
	g.Expect(machines.Items).To(HaveLen(3))
}

// events of the control plane in a namespace that a webhook told.
func events(t *testing.T, c client.Client, namespace string) []string {
	t.Helper()
	list := &eventsv1.EventList{}
	NewWithT(t).Expect(c.List(t.Context(), list, client.InNamespace(namespace))).To(Succeed())
	var texts []string
	for _, event := range list.Items {
		if event.ReportingController == "quoincontrolplane-admission" {
			texts = append(texts, event.Reason+": "+event.Note)
		}
	}
	return texts
}
