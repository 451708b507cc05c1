// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoincontrolplane

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/meta/testrestmapper"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/applyconfigurations"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/controllers/quoincontrolplane/desired"
	"github.com/quoin-dev/cluster-api-provider-quoin/controllers/quoincontrolplane/observe"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/etcd"
)

const (
	namespace = "default"
	oldVer    = "v1.35.4"
	newVer    = "v1.36.3"
)

var key = client.ObjectKey{Namespace: namespace, Name: "cp"}

// world is a management cluster with one control plane, the workload cluster that it runs, and its etcd. Its methods do
// what Cluster API's controllers, hosts and kubeadm do.
type world struct {
	t        *testing.T
	g        *WithT
	mgmt     client.Client
	workload client.Client
	etcd     *fakeEtcd
	// up: the workload cluster answers.
	up bool
	// fail makes the named write fail once: "create KubeadmConfig".
	fail string
	// refuseApply makes every server-side apply fail.
	refuseApply bool
	// failDelete makes the next deletion of a Machine fail.
	failDelete bool
	// clockAhead is how far the clock of the test was set ahead.
	clockAhead time.Duration
	// onPatchStatus is called before each patch of a status.
	onPatchStatus func(client.Object)
	r             *Reconciler
}

// fakeEtcd is a membership. Its members are healthy unless told.
type fakeEtcd struct {
	members []etcd.Member
	removed []uint64
	moved   []uint64
	err     error
	// noQuorum: the list is what one member remembers.
	noQuorum bool
	// corrupt are members that are gone, and for which an alarm CORRUPT is raised.
	corrupt []uint64
	// reads counts the readings.
	reads int
}

func (f *fakeEtcd) Read(_ context.Context, endpoints []etcd.Endpoint, _ etcd.Credentials) (etcd.Cluster, error) {
	f.reads++
	if f.err != nil {
		return etcd.Cluster{}, f.err
	}
	if len(endpoints) == 0 {
		return etcd.Cluster{}, errors.New("no endpoints")
	}
	return etcd.Cluster{Members: slices.Clone(f.members), Agreed: !f.noQuorum, Corrupt: f.corrupt}, nil
}

func (f *fakeEtcd) MoveLeader(_ context.Context, leader etcd.Endpoint, _ etcd.Credentials, to uint64) error {
	f.moved = append(f.moved, to)
	for i := range f.members {
		if f.members[i].Leader && f.members[i].Name != leader.Name {
			return fmt.Errorf("%s does not lead", leader.Name)
		}
		f.members[i].Leader = f.members[i].ID == to
	}
	return nil
}

func (f *fakeEtcd) RemoveMember(_ context.Context, endpoints []etcd.Endpoint, _ etcd.Credentials, id uint64) error {
	if len(endpoints) == 0 {
		return errors.New("no other endpoint")
	}
	f.removed = append(f.removed, id)
	f.members = slices.DeleteFunc(f.members, func(m etcd.Member) bool { return m.ID == id })
	return nil
}

func (f *fakeEtcd) join(name, address string, learner bool) {
	f.members = append(f.members, etcd.Member{ID: uint64(len(f.members) + len(f.removed) + 1), Name: name,
		Learner: learner,
		Leader:  len(f.members) == 0, Answers: true, PeerAddresses: []string{address}})
}

type noHosts struct{}

func (noHosts) DialHost(context.Context, *infrav1.QuoinHost, string, string) (net.Conn, error) {
	return nil, errors.New("not in this test")
}

func (noHosts) HoldHost(context.Context, *infrav1.QuoinHost) (func(context.Context) error, error) {
	return func(context.Context) error { return nil }, nil
}

// testScheme, and what fake clients derive from it, take a second to make and are only read.
var (
	testScheme = sync.OnceValue(func() *runtime.Scheme {
		scheme := runtime.NewScheme()
		for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme,
			clusterv1.AddToScheme, bootstrapv1.AddToScheme, infrav1.AddToScheme, quoinv1.AddToScheme, controlplanev1.AddToScheme} {
			if err := add(scheme); err != nil {
				panic(err)
			}
		}
		return scheme
	})
	testMapper = sync.OnceValue(func() meta.RESTMapper {
		return testrestmapper.TestOnlyStaticRESTMapper(testScheme())
	})
	testConverters = sync.OnceValue(func() []managedfields.TypeConverter {
		return []managedfields.TypeConverter{applyconfigurations.NewTypeConverter(clientgoscheme.Scheme),
			managedfields.NewDeducedTypeConverter()}
	})
)

// newFake is a fake client before it is built.
func newFake() *fake.ClientBuilder {
	return fake.NewClientBuilder().WithScheme(testScheme()).WithRESTMapper(testMapper()).
		WithTypeConverters(testConverters()...)
}

// quickTimings are those of hosts of which a member that two readings in a row find silent is dead.
func quickTimings() Timings {
	timings := DefaultTimings()
	timings.DeadMember, timings.SkippedDrain, timings.APIServerStop = time.Millisecond, time.Microsecond, time.Millisecond
	timings.OrphanedMember = time.Millisecond
	return timings
}

func newWorld(t *testing.T, replicas int32, edit ...func(*controlplanev1.QuoinControlPlane)) *world {
	t.Helper()
	w := &world{t: t, g: NewWithT(t), etcd: &fakeEtcd{}}
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "c", UID: "cluster-uid"}}
	cluster.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint{Host: "10.0.0.100", Port: 6443}
	cluster.Spec.ControlPlaneRef = clusterv1.ContractVersionedObjectReference{APIGroup: controlplanev1.GroupVersion.Group,
		Kind: desired.ControlPlaneKind, Name: "cp"}
	cluster.Status.Initialization.InfrastructureProvisioned = ptr.To(true)
	plane := &controlplanev1.QuoinControlPlane{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "cp",
		UID: "plane-uid", Generation: 1,
		Labels: map[string]string{clusterv1.ClusterNameLabel: "c"},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster", Name: "c",
			UID: "cluster-uid"}}}}
	plane.Spec.Replicas, plane.Spec.Version = ptr.To(replicas), oldVer
	plane.Spec.MachineTemplate.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{
		APIGroup: infrav1.GroupVersion.Group, Kind: "QuoinMachineTemplate", Name: "cp"}
	plane.Spec.KubeadmConfigSpec.ClusterConfiguration.ImageRepository = "quoin.test"
	// Quicker to make than RSA keys.
	plane.Spec.KubeadmConfigSpec.ClusterConfiguration.EncryptionAlgorithm = bootstrapv1.EncryptionAlgorithmECDSAP256
	for _, change := range edit {
		change(plane)
	}
	template := &infrav1.QuoinMachineTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "cp"}}
	template.Spec.Template.Spec.Artifacts.Bundle = &infrav1.Bundle{Location: "/opt/{{version}}"}
	template.Spec.Template.Spec.HostNamespaces = []string{namespace, "hosts"}
	w.mgmt = newFake().
		WithObjects(cluster, plane, template, crd("quoinmachinetemplates")).
		WithStatusSubresource(&clusterv1.Cluster{}, &clusterv1.Machine{}, &controlplanev1.QuoinControlPlane{},
			&infrav1.QuoinMachine{}, &infrav1.QuoinHost{}).
		WithInterceptorFuncs(interceptor.Funcs{Create: w.create, Delete: w.delete, Apply: w.apply,
			SubResourcePatch: w.patchStatus}).
		Build()
	w.spare("spare")
	w.workload = newFake().WithStatusSubresource(&corev1.Node{}, &corev1.Pod{}).
		WithIndex(&corev1.Pod{}, "spec.nodeName", func(object client.Object) []string {
			return []string{object.(*corev1.Pod).Spec.NodeName}
		}).Build()
	w.r = &Reconciler{Client: w.mgmt, APIReader: w.mgmt, Hosts: noHosts{}, Etcd: w.etcd,
		Recorder:     events.NewFakeRecorder(1000),
		ClusterCache: clustercache.NewFakeEmptyClusterCache(),
		Timings:      quickTimings()}
	return w
}

// spare makes a host that is free for a further Machine.
func (w *world) spare(name string) {
	w.t.Helper()
	host := &infrav1.QuoinHost{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	w.g.Expect(w.mgmt.Create(w.t.Context(), host)).To(Succeed())
	host.Status.State = infrav1.HostStateAvailable
	conditions.Set(host, metav1.Condition{Type: infrav1.HostReadyCondition, Status: metav1.ConditionTrue,
		Reason: infrav1.HostAvailableReason})
	w.g.Expect(w.mgmt.Status().Update(w.t.Context(), host)).To(Succeed())
}

// noSpare gives the spare host to somebody else.
func (w *world) noSpare() {
	w.t.Helper()
	w.g.Expect(w.mgmt.Delete(w.t.Context(), &infrav1.QuoinHost{ObjectMeta: metav1.ObjectMeta{Namespace: namespace,
		Name: "spare"}})).To(Succeed())
}

func (w *world) create(
	ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption,
) error {
	kind := object.GetObjectKind().GroupVersionKind().Kind
	if kind == "" {
		kind = strings.TrimPrefix(fmt.Sprintf("%T", object), "*v1beta2.")
	}
	if w.fail != "" && w.fail == "create "+kind {
		w.fail = ""
		return errors.New("the manager was killed")
	}
	if object.GetUID() == "" {
		object.SetUID(newUID(kind, object.GetName()))
	}
	return c.Create(ctx, object, options...)
}

func (w *world) delete(
	ctx context.Context, c client.WithWatch, object client.Object, options ...client.DeleteOption,
) error {
	if _, ok := object.(*clusterv1.Machine); ok && w.failDelete {
		w.failDelete = false
		return errors.New("the manager was killed")
	}
	return c.Delete(ctx, object, options...)
}

func (w *world) apply(
	ctx context.Context, c client.WithWatch, object runtime.ApplyConfiguration, options ...client.ApplyOption,
) error {
	if w.refuseApply {
		return errors.New("admission says no")
	}
	if made, ok := object.(client.Object); ok && w.fail == "apply a Machine made ahead" && isHeld(made) {
		return errors.New("admission says no")
	}
	if len((&client.ApplyOptions{}).ApplyOptions(options).DryRun) > 0 {
		// A fake client would store it.
		return nil
	}
	if err := c.Apply(ctx, object, options...); err != nil {
		return err
	}
	// A fake client gives none to what an apply makes.
	applied, ok := object.(client.Object)
	if !ok || applied.GetUID() != "" {
		return nil
	}
	made := &unstructured.Unstructured{}
	made.SetGroupVersionKind(applied.GetObjectKind().GroupVersionKind())
	if err := c.Get(ctx, client.ObjectKeyFromObject(applied), made); err != nil {
		return err
	}
	made.SetUID(newUID(made.GetKind(), made.GetName()))
	made.SetCreationTimestamp(metav1.Now())
	applied.SetUID(made.GetUID())
	return c.Update(ctx, made)
}

func (w *world) patchStatus(
	ctx context.Context, c client.Client, resource string, object client.Object, patch client.Patch,
	options ...client.SubResourcePatchOption,
) error {
	if w.onPatchStatus != nil {
		w.onPatchStatus(object)
	}
	return c.SubResource(resource).Patch(ctx, object, patch, options...)
}

func crd(plural string) *apiextensionsv1.CustomResourceDefinition {
	return &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{
		Name: plural + "." + infrav1.GroupVersion.Group, Labels: map[string]string{"cluster.x-k8s.io/v1beta2": "v1alpha1"}}}
}

// reconcile runs the controller until it changes nothing more by itself.
func (w *world) reconcile() {
	w.t.Helper()
	for range 12 {
		w.once()
	}
}

func (w *world) once() {
	w.t.Helper()
	_, err := w.r.Reconcile(w.t.Context(), ctrl.Request{NamespacedName: key})
	w.g.Expect(err).NotTo(HaveOccurred())
}

func (w *world) plane() *controlplanev1.QuoinControlPlane {
	w.t.Helper()
	plane := &controlplanev1.QuoinControlPlane{}
	w.g.Expect(w.mgmt.Get(w.t.Context(), key, plane)).To(Succeed())
	return plane
}

func (w *world) edit(change func(*controlplanev1.QuoinControlPlane)) {
	w.t.Helper()
	plane := w.plane()
	change(plane)
	w.g.Expect(w.mgmt.Update(w.t.Context(), plane)).To(Succeed())
}

// machines, oldest first.
func (w *world) machines() []clusterv1.Machine {
	w.t.Helper()
	list := &clusterv1.MachineList{}
	w.g.Expect(w.mgmt.List(w.t.Context(), list)).To(Succeed())
	slices.SortFunc(list.Items, func(a, b clusterv1.Machine) int {
		return strings.Compare(a.Annotations["born"], b.Annotations["born"])
	})
	return list.Items
}

var born int

// provision does what hosts, kubeadm and Cluster API do for a Machine, up to a Node with a voting etcd member.
func (w *world) provision(name string) {
	w.t.Helper()
	w.bootstrapped(name, w.claim(name))
}

// claim takes a host for a Machine, and tells its address.
func (w *world) claim(name string) string {
	w.t.Helper()
	ctx := w.t.Context()
	born++
	address := fmt.Sprintf("10.0.0.%d", born)
	machine := w.machine(name)
	host := &infrav1.QuoinHost{ObjectMeta: metav1.ObjectMeta{Namespace: "hosts", Name: "h-" + name}}
	host.Spec.NodeNetwork.Addresses = []string{address}
	host.Spec.ConsumerRef = &infrav1.ConsumerReference{Namespace: namespace, Name: name, Machine: name, Claim: "1"}
	host.Spec.ConsumerNamespaces = []string{namespace}
	w.g.Expect(w.mgmt.Create(ctx, host)).To(Succeed())
	host.Status.State = infrav1.HostStateProvisioned
	w.g.Expect(w.mgmt.Status().Update(ctx, host)).To(Succeed())
	infra := w.infra(name)
	infra.Spec.ProviderID = "quoin://hosts/h-" + name + "/1"
	infra.SetOwnerReferences(append(infra.OwnerReferences,
		*metav1.NewControllerRef(machine, clusterv1.GroupVersion.WithKind("Machine"))))
	w.g.Expect(w.mgmt.Update(ctx, infra)).To(Succeed())
	infra.Status.HostRef = &infrav1.HostReference{Namespace: "hosts", Name: "h-" + name}
	w.g.Expect(w.mgmt.Status().Update(ctx, infra)).To(Succeed())
	return address
}

// bootstrapped is a Machine whose host has run its bootstrap data.
func (w *world) bootstrapped(name, address string) {
	w.t.Helper()
	ctx := w.t.Context()
	infra, machine := w.infra(name), w.machine(name)
	infra.Status.Initialization.Provisioned = ptr.To(true)
	infra.Status.AddonVersions = []string{machine.Spec.Version}
	w.g.Expect(w.mgmt.Status().Update(ctx, infra)).To(Succeed())
	machine.Spec.ProviderID = infra.Spec.ProviderID
	machine.Annotations["born"] = fmt.Sprintf("%09d", born)
	w.g.Expect(w.mgmt.Update(ctx, machine)).To(Succeed())
	machine.Status.NodeRef.Name = "n-" + name
	w.g.Expect(w.mgmt.Status().Update(ctx, machine)).To(Succeed())
	w.startNode(machine, address)
}

// startNode has the Machine's node run in the workload cluster, with a voting etcd member.
func (w *world) startNode(machine *clusterv1.Machine, address string) {
	w.t.Helper()
	ctx, name := w.t.Context(), machine.Name
	if !w.up {
		w.start(machine.Spec.Version)
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n-" + name}}
	node.Status.NodeInfo.KubeletVersion = machine.Spec.Version
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	w.g.Expect(w.workload.Create(ctx, node)).To(Succeed())
	w.g.Expect(w.workload.Status().Update(ctx, node)).To(Succeed())
	for _, pod := range desired.StaticPods {
		w.g.Expect(w.workload.Create(ctx, readyPod(pod.Component+"-n-"+name))).To(Succeed())
	}
	w.etcd.join("n-"+name, address, false)
}

func readyPod(name string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: name,
		Labels: observe.StaticPodLabels}}
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	return pod
}

// start is what kubeadm init leaves in the workload cluster.
func (w *world) start(version string) {
	w.t.Helper()
	ctx := w.t.Context()
	w.up = true
	w.r.ClusterCache = clustercache.NewFakeClusterCache(w.workload, client.ObjectKey{Namespace: namespace, Name: "c"},
		"quoincontrolplane-nodes")
	system := metav1.NamespaceSystem
	w.g.Expect(w.workload.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: system,
		Name: observe.KubeadmConfigName},
		Data: map[string]string{"ClusterConfiguration": "apiVersion: kubeadm.k8s.io/v1beta4\nkind: " +
			"ClusterConfiguration\nkubernetesVersion: " + version +
			"\nimageRepository: quoin.test\nfeatureGates:\n  ControlPlaneKubeletLocalMode: true\n"}})).To(Succeed())
	w.g.Expect(w.workload.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: system,
		Name: observe.CoreDNS},
		Data: map[string]string{"Corefile": ".:53 {\n    errors\n    health\n    ready\n    kubernetes cluster.local\n    " +
			"forward . /etc/resolv.conf\n    cache 30\n}\n"}})).To(Succeed())
	w.g.Expect(w.workload.Create(ctx, &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: system,
		Name: observe.KubeProxy},
		Spec: appsv1.DaemonSetSpec{Template: podTemplate(observe.KubeProxy, "quoin.test/kube-proxy:"+version)}})).
		To(Succeed())
	dns := map[string]string{"k8s-app": "kube-dns"}
	template := podTemplate(observe.CoreDNS, "quoin.test/coredns:v1.13.1")
	template.Labels = dns
	w.g.Expect(w.workload.Create(ctx, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: system,
		Name: observe.CoreDNS},
		Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: dns}, Template: template}})).To(Succeed())
}

func podTemplate(name, image string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: name, Image: image}}}}
}

func (w *world) machine(name string) *clusterv1.Machine {
	w.t.Helper()
	machine := &clusterv1.Machine{}
	w.g.Expect(w.mgmt.Get(w.t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, machine)).To(Succeed())
	return machine
}

func (w *world) infra(name string) *infrav1.QuoinMachine {
	w.t.Helper()
	infra := &infrav1.QuoinMachine{}
	w.g.Expect(w.mgmt.Get(w.t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, infra)).To(Succeed())
	return infra
}

// provisionedWorker has a worker run on the host.
func (w *world) provisionedWorker(host *infrav1.HostReference) {
	w.t.Helper()
	infra := &infrav1.QuoinMachine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "worker",
		Labels: map[string]string{clusterv1.ClusterNameLabel: "c"}}}
	w.g.Expect(w.mgmt.Create(w.t.Context(), infra)).To(Succeed())
	infra.Status.HostRef, infra.Status.Initialization.Provisioned = host, ptr.To(true)
	w.g.Expect(w.mgmt.Status().Update(w.t.Context(), infra)).To(Succeed())
}

// fetchImages gives every host the images it was asked for.
func (w *world) fetchImages() {
	w.t.Helper()
	list := &infrav1.QuoinMachineList{}
	w.g.Expect(w.mgmt.List(w.t.Context(), list)).To(Succeed())
	for i := range list.Items {
		infra := &list.Items[i]
		for _, version := range infra.Spec.AddonVersions {
			if !slices.Contains(infra.Status.AddonVersions, version) {
				infra.Status.AddonVersions = append(infra.Status.AddonVersions, version)
			}
		}
		w.g.Expect(w.mgmt.Status().Update(w.t.Context(), infra)).To(Succeed())
	}
}

// drained is a deleting Machine whose node was drained and that Cluster API holds by its pre-terminate hooks only.
func (w *world) drained(name string) {
	w.t.Helper()
	machine := w.machine(name)
	machine.Status.Deletion = &clusterv1.MachineDeletionStatus{NodeDrainStartTime: metav1.Now(),
		WaitForNodeVolumeDetachStartTime: metav1.Now()}
	w.g.Expect(w.mgmt.Status().Update(w.t.Context(), machine)).To(Succeed())
	w.undrained(name)
}

// left is a Machine whose host has ended its API server, as all have when a drain is over but in tests of just that.
func (w *world) left(name string) {
	w.t.Helper()
	infra := w.infra(name)
	if infra.Spec.ProviderID != "quoin://hosts/h-"+name+"/1" {
		return
	}
	metav1.SetMetaDataAnnotation(&infra.ObjectMeta, infrav1.StopAPIServerAnnotation, time.Now().UTC().Format(time.RFC3339))
	w.g.Expect(w.mgmt.Update(w.t.Context(), infra)).To(Succeed())
	w.said(name, metav1.ConditionTrue, infrav1.HostAPIServerStoppedReason, "")
}

// undrained is one whose drain Cluster API has skipped.
func (w *world) undrained(name string) {
	w.t.Helper()
	machine := w.machine(name)
	w.g.Expect(machine.DeletionTimestamp).NotTo(BeNil(), "Machine %s is not being deleted", name)
	conditions.Set(machine, metav1.Condition{Type: clusterv1.MachineDeletingCondition, Status: metav1.ConditionTrue,
		Reason: clusterv1.MachineDeletingWaitingForPreTerminateHookReason, Message: "waiting"})
	w.g.Expect(w.mgmt.Status().Update(w.t.Context(), machine)).To(Succeed())
	w.left(name)
}

// hold keeps a Machine in the API while it is being deleted, as its finalizer does.
func (w *world) hold(name string) {
	w.t.Helper()
	machine := w.machine(name)
	machine.Finalizers = []string{clusterv1.MachineFinalizer}
	w.g.Expect(w.mgmt.Update(w.t.Context(), machine)).To(Succeed())
}

// gone ends the deletion of a Machine with everything that belonged to it.
func (w *world) gone(name string) {
	w.t.Helper()
	ctx := w.t.Context()
	for _, object := range []client.Object{w.infra(name),
		&bootstrapv1.KubeadmConfig{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}} {
		w.g.Expect(client.IgnoreNotFound(w.mgmt.Delete(ctx, object))).To(Succeed())
	}
	machine := w.machine(name)
	machine.Finalizers = nil
	if err := w.mgmt.Update(ctx, machine); err != nil && !apierrors.IsNotFound(err) {
		w.g.Expect(err).NotTo(HaveOccurred())
	}
}

func (w *world) hasHook(name string) bool {
	_, has := w.machine(name).Annotations[controlplanev1.PreTerminateHookAnnotation]
	return has
}

func (w *world) hasDrainHook(name string) bool {
	_, has := w.machine(name).Annotations[controlplanev1.PreDrainHookAnnotation]
	return has
}

func (w *world) condition(name string) metav1.Condition {
	w.t.Helper()
	condition := conditions.Get(w.plane(), name)
	w.g.Expect(condition).NotTo(BeNil(), "condition %s", name)
	return *condition
}

func (w *world) image(object client.Object, name string) string {
	w.t.Helper()
	w.g.Expect(w.workload.Get(w.t.Context(), client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: name}, object)).
		To(Succeed())
	switch o := object.(type) {
	case *appsv1.DaemonSet:
		return imageOf(o.Spec.Template.Spec.Containers, name)
	case *appsv1.Deployment:
		return imageOf(o.Spec.Template.Spec.Containers, name)
	}
	return ""
}

func imageOf(containers []corev1.Container, name string) string {
	for _, container := range containers {
		if container.Name == name {
			return container.Image
		}
	}
	return ""
}

func (w *world) configVersion() string {
	w.t.Helper()
	config := &corev1.ConfigMap{}
	w.g.Expect(w.workload.Get(w.t.Context(), client.ObjectKey{Namespace: metav1.NamespaceSystem,
		Name: observe.KubeadmConfigName},
		config)).To(Succeed())
	for _, line := range strings.Split(config.Data["ClusterConfiguration"], "\n") {
		if version, ok := strings.CutPrefix(line, "kubernetesVersion: "); ok {
			return version
		}
	}
	return ""
}

func (w *world) secret(name string) *corev1.Secret {
	w.t.Helper()
	stored := &corev1.Secret{}
	w.g.Expect(w.mgmt.Get(w.t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, stored)).To(Succeed())
	return stored
}
