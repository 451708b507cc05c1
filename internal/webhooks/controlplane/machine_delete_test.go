// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane/plan"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/quorum"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/clienttest"
)

// estate is what stands around a Machine that is to be deleted: a control plane of some Machines, each with a healthy
// member, all read a few seconds ago. Deleted is the first Machine, m0.
type estate struct {
	namespace *corev1.Namespace
	cluster   *clusterv1.Cluster
	plane     *controlplanev1.QuoinControlPlane
	machines  []*clusterv1.Machine
	hosts     []*infrav1.QuoinHost
	// selector of hosts in the template.
	selector *metav1.LabelSelector
	// kubelets is what the cluster tells its kubelets; nothing in it can be read when it is empty.
	kubelets string
	gone     []client.Object
	// infra are the QuoinMachines.
	infra []*infrav1.QuoinMachine
}

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func newEstate(members int) *estate {
	e := &estate{
		namespace: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "prod"}},
		cluster:   &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "c"}},
		plane:     controlPlane(replicas(int32(members))),
		selector:  &metav1.LabelSelector{MatchLabels: map[string]string{"role": "control-plane"}},
	}
	e.plane.Status.Etcd = &controlplanev1.EtcdStatus{Agreed: ptr.To(true),
		ObservedTime: metav1.NewTime(noon.Add(-20 * time.Second))}
	for i := range members {
		e.addMachine(fmt.Sprintf("m%d", i), fmt.Sprintf("n%d", i))
		role := "Voter"
		if i == 0 {
			role = "Leader"
		}
		e.plane.Status.Etcd.Members = append(e.plane.Status.Etcd.Members, controlplanev1.EtcdMember{
			Name: fmt.Sprintf("n%d", i), ID: fmt.Sprintf("%x", 0xa0+i), Machine: fmt.Sprintf("m%d", i), Role: role,
			State: string(quorum.MemberHealthy), Healthy: ptr.To(true),
		})
	}
	return e
}

func (e *estate) addMachine(name, node string) *clusterv1.Machine {
	machine := &clusterv1.Machine{
		TypeMeta: metav1.TypeMeta{APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "prod", Name: name,
			Labels:      map[string]string{clusterv1.ClusterNameLabel: "c", clusterv1.MachineControlPlaneLabel: ""},
			Annotations: map[string]string{},
			Finalizers:  []string{clusterv1.MachineFinalizer},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: controlplanev1.GroupVersion.String(), Kind: "QuoinControlPlane", Name: "cp", UID: "1",
				Controller: ptr.To(true)}},
		},
		Spec:   clusterv1.MachineSpec{ClusterName: "c"},
		Status: clusterv1.MachineStatus{NodeRef: clusterv1.MachineNodeReference{Name: node}},
	}
	e.machines = append(e.machines, machine)
	return machine
}

func (e *estate) member(i int) *controlplanev1.EtcdMember { return &e.plane.Status.Etcd.Members[i] }

// found has the member of m0 be in a state, and where there is a Machine m1 that one leave.
func found(state quorum.MemberState) func(*estate) {
	return func(e *estate) {
		e.member(0).State, e.member(0).Healthy = string(state), ptr.To(state == quorum.MemberHealthy)
		if len(e.machines) > 1 {
			goes(e.machines[1])
		}
	}
}

func (e *estate) addHost(labels map[string]string, state infrav1.HostState) {
	host := &infrav1.QuoinHost{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: fmt.Sprintf("h%d", len(e.hosts)),
		Labels: labels}}
	host.Status.State = state
	host.Status.Conditions = []metav1.Condition{{Type: infrav1.HostReadyCondition, Status: metav1.ConditionTrue}}
	e.hosts = append(e.hosts, host)
}

// clone has the last host be a copy of the one that m0 has in Cluster c.
func (e *estate) clone() {
	copied := e.hosts[len(e.hosts)-1]
	copied.Status.Facts = &infrav1.HostFacts{MachineID: "4f1c"}
	e.addHost(nil, infrav1.HostStateProvisioned)
	used := e.hosts[len(e.hosts)-1]
	used.Status.Facts = copied.Status.Facts
	used.Spec.ConsumerRef = &infrav1.ConsumerReference{Namespace: "prod", Name: "m0", Machine: "m0"}
	e.infra = []*infrav1.QuoinMachine{{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "m0",
		Labels: map[string]string{clusterv1.ClusterNameLabel: "c"}}}}
}

func (e *estate) remove(object client.Object) { e.gone = append(e.gone, object) }

func goes(object client.Object) {
	now := metav1.NewTime(noon)
	object.SetDeletionTimestamp(&now)
	object.SetFinalizers([]string{"a/b"})
}

func (e *estate) scheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	scheme := clienttest.Scheme(corev1.AddToScheme, clusterv1.AddToScheme, controlplanev1.AddToScheme,
		infrav1.AddToScheme)
	return scheme
}

// ask deletes the first Machine.
func (e *estate) ask(
	t *testing.T, recorder events.EventRecorder, change func(*admissionv1.AdmissionRequest), failing ...runtime.Object,
) admission.Response {
	t.Helper()
	scheme := e.scheme(t)
	template := &infrav1.QuoinMachineTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "cp"}}
	template.Spec.Template.Spec.HostSelector = e.selector
	objects := []client.Object{e.namespace, e.cluster, e.plane, template}
	for _, machine := range e.machines {
		objects = append(objects, machine)
	}
	for _, host := range e.hosts {
		objects = append(objects, host)
	}
	for _, infra := range e.infra {
		objects = append(objects, infra)
	}
	builder := tired(fake.NewClientBuilder().WithScheme(scheme), failing...)
	for _, object := range objects {
		exists := true
		for _, gone := range e.gone {
			exists = exists && gone != object
		}
		if exists {
			builder = builder.WithObjects(object)
		}
	}
	reader := builder.Build()
	webhook := &MachineDeletionWebhook{Reader: reader, Hosts: reader, Recorder: recorder,
		now: func() time.Time { return noon }, decoder: admission.NewDecoder(scheme)}
	webhook.Workload = func(context.Context, client.ObjectKey) (client.Reader, error) {
		if e.kubelets == "" {
			return nil, errors.New("no route")
		}
		return fake.NewFakeClient(&corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "kubelet-config"},
			Data:       map[string]string{"kubelet": e.kubelets}}), nil
	}
	request := deletionOf(t, e.machines[0])
	request.UserInfo = authenticationv1.UserInfo{Username: "jane"}
	if change != nil {
		change(&request.AdmissionRequest)
	}
	return webhook.Handle(t.Context(), request)
}

func TestMachineDeletion(t *testing.T) {
	annotate := func(key, value string) func(*estate) {
		return func(e *estate) { e.machines[0].Annotations[key] = value }
	}
	hold := annotate(infrav1.HoldClaimAnnotation, "")
	stray := func(e *estate) {
		e.member(2).Machine, e.member(2).Name = "", "x2"
		e.remove(e.machines[2])
	}
	// The Machine has no Node, and there is a member that may be its own.
	besideStray := func(e *estate) {
		e.machines[0].Status.NodeRef = clusterv1.MachineNodeReference{}
		e.member(0).Machine, e.member(0).Name = "", "a0"
		goes(e.machines[1])
	}
	// A move drops the status of all Machines, and of the control plane; provider IDs say that they were nodes.
	movedAway := func(then func(*estate)) func(*estate) {
		return func(e *estate) {
			for i, machine := range e.machines {
				machine.Status.NodeRef = clusterv1.MachineNodeReference{}
				machine.Spec.ProviderID = fmt.Sprintf("quoin://metal/h%d/1", i)
			}
			then(e)
		}
	}
	for name, c := range map[string]struct {
		members int
		given   func(*estate)
		refusal string
	}{
		// What there is nothing to judge of, in a cluster that is past judging: it lost its quorum long ago.
		"one that is being deleted already": {3, func(e *estate) { goes(e.machines[0]); goes(e.machines[1]) }, ""},
		"one that was moved away":           {1, annotate(clusterctlv1.DeleteForMoveAnnotation, ""), ""},
		"one of another control plane": {1, func(e *estate) {
			e.machines[0].OwnerReferences[0].Kind = "KubeadmControlPlane"
		}, ""},
		"one of a control plane of other people": {1, func(e *estate) {
			e.machines[0].OwnerReferences[0].APIVersion = "example.com/v1"
		}, ""},
		"one that nobody controls": {1, func(e *estate) {
			e.machines[0].OwnerReferences[0].Controller = nil
		}, ""},
		"while the Namespace is deleted":     {1, func(e *estate) { goes(e.namespace) }, ""},
		"while the Namespace is gone":        {1, func(e *estate) { e.remove(e.namespace) }, ""},
		"while the Cluster is deleted":       {1, func(e *estate) { goes(e.cluster) }, ""},
		"when the Cluster is gone":           {1, func(e *estate) { e.remove(e.cluster) }, ""},
		"while the control plane is deleted": {1, func(e *estate) { goes(e.plane) }, ""},
		"when the control plane is gone":     {1, func(e *estate) { e.remove(e.plane) }, ""},
		"one without Node and member": {3, func(e *estate) {
			e.machines[0].Status.NodeRef = clusterv1.MachineNodeReference{}
			e.plane.Status.Etcd.Members = e.plane.Status.Etcd.Members[1:]
			goes(e.machines[1])
		}, ""},
		"one without Node while etcd was never read": {1, func(e *estate) {
			e.machines[0].Status.NodeRef = clusterv1.MachineNodeReference{}
			e.plane.Status.Etcd = nil
		}, ""},

		"one that was a node, after a move, before etcd was read": {3, movedAway(func(e *estate) {
			e.plane.Status.Etcd = nil
		}), "not read"},
		"the same while the last reading is old, and knows no member of it": {3, movedAway(func(e *estate) {
			e.plane.Status.Etcd.Members = e.plane.Status.Etcd.Members[1:]
			e.plane.Status.Etcd.ObservedTime = metav1.NewTime(noon.Add(-181 * time.Second))
		}), "3m1s"},
		"the same while the last reading is just not old": {3, movedAway(func(e *estate) {
			e.plane.Status.Etcd.Members = e.plane.Status.Etcd.Members[1:]
			e.plane.Status.Etcd.ObservedTime = metav1.NewTime(noon.Add(-180 * time.Second))
			e.plane.Status.Etcd.Agreed = ptr.To(false)
		}), ""},
		"the same when etcd was read, and has no member of it": {3, movedAway(func(e *estate) {
			e.plane.Status.Etcd.Members = e.plane.Status.Etcd.Members[1:]
		}), ""},

		// One of several.
		"one of three": {3, func(*estate) {}, ""},
		"one of five":  {5, func(*estate) {}, ""},
		"one of five while one leaves": {5, func(e *estate) {
			goes(e.machines[1])
		}, "on their way out already: m1"},
		"one of five while two leave": {5, func(e *estate) { goes(e.machines[1]); goes(e.machines[2]) },
			"m1, m2"},
		"one of five while another is dead": {5, func(e *estate) { e.member(1).Healthy = ptr.To(false) },
			"m0 cannot be deleted"},
		"the dead one of five": {5, func(e *estate) { e.member(0).Healthy = ptr.To(false) }, ""},
		"one of three while one leaves": {3, func(e *estate) {
			goes(e.machines[1])
		}, "wait until there is a replacement for m1"},
		"the last of three": {3, func(e *estate) { goes(e.machines[1]); goes(e.machines[2]) },
			"wait until there is a replacement for m1 and m2"},
		"one of two of which one leaves, where nobody said how many are wanted": {2, func(e *estate) {
			e.plane.Spec.Replicas = nil
			goes(e.machines[1])
		}, "without m0 etcd would have 0 of 1 wanted voters; on their way out already: m1"},
		"a healthy one of three while another is unhealthy": {3, func(e *estate) {
			e.member(1).Healthy = ptr.To(false)
		}, "m0 cannot be deleted"},
		"the unhealthy one of three": {3, func(e *estate) { e.member(0).Healthy = ptr.To(false) }, ""},
		"one of three while a fourth took over": {3, func(e *estate) {
			e.addMachine("m3", "n3")
			e.plane.Status.Etcd.Members = append(e.plane.Status.Etcd.Members,
				controlplanev1.EtcdMember{Name: "n3", ID: "a3", Machine: "m3", Role: "Voter", Healthy: ptr.To(true)})
		}, ""},
		"one of three whose other Machine is gone though its member is not": {3, func(e *estate) {
			e.remove(e.machines[1])
		}, "m0 cannot be deleted"},
		"one of three whose host does not say which member it has": {3, func(e *estate) {
			e.member(0).Machine, e.member(1).Machine = "", ""
			e.member(0).Name, e.member(1).Name = "x0", "x1"
			goes(e.machines[1])
		}, "there is a replacement for m1"},
		"one of three while one leaves whose host does not say which member it has": {3, func(e *estate) {
			e.member(1).Machine, e.member(1).Name = "", "x1"
			goes(e.machines[1])
		}, "wait until there is a replacement for m1"},
		"one of three whose host does not say which member it has, as one leaves that a fourth took over from": {4, func(e *estate) {
			e.member(0).Machine, e.member(2).Machine = "", ""
			e.plane.Spec.Replicas = ptr.To[int32](3)
			goes(e.machines[1])
		}, ""},
		"one of three while one leaves that was made ahead, beside a member without a Machine": {4, func(e *estate) {
			e.member(3).Machine, e.member(3).Name = "", "x3"
			e.machines[3].Annotations[infrav1.HoldClaimAnnotation] = ""
			e.plane.Spec.Replicas = ptr.To[int32](3)
			goes(e.machines[3])
		}, ""},
		"the unhealthy one of three while another's host does not say which member it has": {3, func(e *estate) {
			e.member(0).Healthy = ptr.To(false)
			e.member(1).Machine, e.member(1).Name = "", "x1"
		}, ""},
		"one of five whose host does not say which member it has, as another's does not": {5, func(e *estate) {
			e.member(0).Machine, e.member(1).Machine = "", ""
		}, ""},
		"one of five, of two whose hosts do not say which member they have, of which one is dead": {5, func(e *estate) {
			e.member(0).Machine, e.member(1).Machine = "", ""
			e.member(1).Healthy = ptr.To(false)
		}, "m0 cannot be deleted"},
		"one of three of which no Machine has another": {3, stray, ""},
		"one of three of which no Machine has another, which a person gave up": {3, func(e *estate) {
			stray(e)
			e.plane.Annotations = map[string]string{controlplanev1.RemoveEtcdMemberAnnotation: "a2"}
		}, "m0 cannot be deleted"},
		"one of three whose node's name another member has": {3, func(e *estate) {
			e.member(1).Machine, e.member(1).Name = "", "n0"
		}, ""},
		// A vote that is not cast now is one all the same, unless its member is dead.
		"one of three that was missed a moment ago, while one leaves": {3, found(quorum.MemberWavering),
			"on their way out already: m1"},
		"one of three that hangs while its disk goes on, while one leaves": {3, found(quorum.MemberSlow),
			"on their way out already: m1"},
		"one of three that is full, while one leaves": {3, found(quorum.MemberFull),
			"on their way out already: m1"},
		"one of three that nobody could ask, while one leaves": {3, found(quorum.MemberUnasked),
			"on their way out already: m1"},
		"one of three that is dead, while one leaves": {3, found(quorum.MemberDead), ""},
		"one of three that is not healthy as a former release tells it, while one leaves": {3, found(""),
			"on their way out already: m1"},
		"a learner that answers, while one leaves": {3, func(e *estate) {
			found(quorum.MemberLearner)(e)
			e.member(0).Role, e.member(0).Healthy = "Learner", ptr.To(true)
		}, ""},
		"a learner": {3, func(e *estate) { e.member(0).Role = "Learner" }, ""},
		"one without Node while a member has no Machine":         {3, besideStray, "m0 cannot be deleted"},
		"one that was made ahead, while a member has no Machine": {3, func(e *estate) { besideStray(e); hold(e) }, ""},
		"one that was to wait for a host and has a member": {3, func(e *estate) {
			e.machines[0].Status.NodeRef = clusterv1.MachineNodeReference{}
			hold(e)
			goes(e.machines[1])
		}, "m0 cannot be deleted"},
		"one that was to wait for a host and has one, while a member has no Machine": {3, func(e *estate) {
			besideStray(e)
			hold(e)
			e.machines[0].Spec.ProviderID = "quoin://prod/h0/1"
		}, "m0 cannot be deleted"},

		// What nobody knows.
		"etcd was never read": {3, func(e *estate) { e.plane.Status.Etcd = nil }, "the control plane has not read it yet"},
		"etcd was read, and told of no member": {3, func(e *estate) { e.plane.Status.Etcd.Members = nil },
			"the control plane has not read it yet"},
		"etcd was read who knows when": {3, func(e *estate) { e.plane.Status.Etcd.ObservedTime = metav1.Time{} },
			"the control plane has not read it yet"},
		"etcd was read long ago": {3, func(e *estate) {
			e.plane.Status.Etcd.ObservedTime = metav1.NewTime(noon.Add(-181 * time.Second))
		}, "3m1s"},
		"etcd was read before the clock was set back": {3, func(e *estate) {
			e.plane.Status.Etcd.ObservedTime = metav1.NewTime(noon.Add(181 * time.Second))
		}, "3m1s"},
		"etcd was read by a clock that is ahead a little": {3, func(e *estate) {
			e.plane.Status.Etcd.ObservedTime = metav1.NewTime(noon.Add(2 * time.Second))
		}, ""},
		"etcd was read just in time": {3, func(e *estate) {
			e.plane.Status.Etcd.ObservedTime = metav1.NewTime(noon.Add(-180 * time.Second))
		}, ""},
		"etcd cannot agree on changes": {3, func(e *estate) {
			e.plane.Status.Etcd.Agreed = ptr.To(false)
		}, "m0 cannot be deleted"},

		// The only one. A hook keeps it until its replacement votes, so a replacement must be possible.
		"the only one, with a free host": {1, func(e *estate) {
			e.addHost(map[string]string{"role": "control-plane"}, infrav1.HostStateAvailable)
		}, ""},
		"the only one, with a free host that its template does not accept": {1, func(e *estate) {
			e.addHost(map[string]string{"role": "control-plane"}, infrav1.HostStateAvailable)
			e.hosts[0].Namespace, e.hosts[0].Spec.ConsumerNamespaces = "hostile", []string{"*"}
		}, "free host"},
		"the only one, with a free host that is a copy of its own": {1, func(e *estate) {
			e.addHost(map[string]string{"role": "control-plane"}, infrav1.HostStateAvailable)
			e.clone()
		}, "free host"},
		"the only one, with a free host that is a copy of another Cluster's": {1, func(e *estate) {
			e.addHost(map[string]string{"role": "control-plane"}, infrav1.HostStateAvailable)
			e.clone()
			e.infra[0].Labels[clusterv1.ClusterNameLabel] = "another"
		}, ""},
		"the only one, with a free host that is a copy of another namespace's": {1, func(e *estate) {
			e.addHost(map[string]string{"role": "control-plane"}, infrav1.HostStateAvailable)
			e.clone()
			e.infra[0].Namespace, e.hosts[1].Spec.ConsumerRef.Namespace = "dev", "dev"
		}, ""},
		"the only one, with a free host of cgroup v1": {1, func(e *estate) {
			e.addHost(map[string]string{"role": "control-plane"}, infrav1.HostStateAvailable)
			e.hosts[0].Status.Facts = &infrav1.HostFacts{CgroupVersion: 1, KubeletOnCgroupV1: ptr.To(false)}
			e.kubelets = "kind: KubeletConfiguration"
		}, "free host"},
		"the only one, with a free host of cgroup v1, in a cluster that allows it": {1, func(e *estate) {
			e.addHost(map[string]string{"role": "control-plane"}, infrav1.HostStateAvailable)
			e.hosts[0].Status.Facts = &infrav1.HostFacts{CgroupVersion: 1, KubeletOnCgroupV1: ptr.To(false)}
			e.kubelets = "failCgroupV1: false"
		}, ""},
		"the only one, with a free host of cgroup v1, by its kubelet's arguments": {1, func(e *estate) {
			e.addHost(map[string]string{"role": "control-plane"}, infrav1.HostStateAvailable)
			e.hosts[0].Status.Facts = &infrav1.HostFacts{CgroupVersion: 1, KubeletOnCgroupV1: ptr.To(false)}
			e.kubelets = "kind: KubeletConfiguration"
			e.plane.Spec.KubeadmConfigSpec.JoinConfiguration.NodeRegistration.KubeletExtraArgs = []bootstrapv1.Arg{
				{Name: "fail-cgroupv1", Value: ptr.To("false")}}
		}, ""},
		"the only one, with a free host of cgroup v1, while nothing answers": {1, func(e *estate) {
			e.addHost(map[string]string{"role": "control-plane"}, infrav1.HostStateAvailable)
			e.hosts[0].Status.Facts = &infrav1.HostFacts{CgroupVersion: 1, KubeletOnCgroupV1: ptr.To(false)}
		}, ""},
		"the only one, without a host": {1, func(*estate) {}, "free host"},
		"the only one, whose host does not say which member it has": {1, func(e *estate) {
			e.addHost(map[string]string{"role": "control-plane"}, infrav1.HostStateAvailable)
			e.member(0).Machine = ""
		}, "m0 cannot be deleted"},
		"the only one, beside one made ahead": {1, func(e *estate) {
			e.addMachine("ahead", "").Annotations[infrav1.HoldClaimAnnotation] = ""
		}, "free host"},
		"the only one, with a host of another kind": {1, func(e *estate) {
			e.addHost(nil, infrav1.HostStateAvailable)
		}, "free host"},
		"the only one, with a host of any kind, which its template accepts": {1, func(e *estate) {
			e.addHost(nil, infrav1.HostStateAvailable)
			e.selector = nil
		}, ""},
		"the only one, with a host, whose template selects by what is none": {1, func(e *estate) {
			e.addHost(nil, infrav1.HostStateAvailable)
			e.selector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
				{Key: "role", Operator: "Near"}}}
		}, "free host"},
		"the only one, with a host in use": {1, func(e *estate) {
			e.addHost(map[string]string{"role": "control-plane"}, infrav1.HostStateProvisioned)
		}, "free host"},
		"the only one, whose template is gone": {1, func(e *estate) {
			e.addHost(map[string]string{"role": "control-plane"}, infrav1.HostStateAvailable)
			e.plane.Spec.MachineTemplate.Spec.InfrastructureRef.Name = "gone"
		}, "free host that QuoinMachineTemplate gone selects"},
		"the only one, whose template is gone, by annotation": {1, func(e *estate) {
			e.plane.Spec.MachineTemplate.Spec.InfrastructureRef.Name = "gone"
			e.machines[0].Annotations[controlplanev1.AllowQuorumLossAnnotation] = "the site burned down"
		}, ""},
		"the only one, which does not answer": {1, func(e *estate) {
			e.addHost(map[string]string{"role": "control-plane"}, infrav1.HostStateAvailable)
			e.member(0).Healthy = ptr.To(false)
		}, "repair its etcd member"},
		"the only one, whose database is full": {1, func(e *estate) {
			e.addHost(map[string]string{"role": "control-plane"}, infrav1.HostStateAvailable)
			found(quorum.MemberFull)(e)
		}, "make room in its database, so that a replacement can join: compact etcd"},
		"the only one, whose database is full, while etcd agrees on nothing": {1, func(e *estate) {
			found(quorum.MemberFull)(e)
			e.plane.Status.Etcd.Agreed = ptr.To(false)
		}, "repair its etcd member"},
		"the only voter, while another joins": {1, func(e *estate) {
			e.plane.Spec.Replicas = ptr.To[int32](3)
			e.addMachine("m1", "")
		}, ""},
		"the only voter, while another joins, but read long ago": {1, func(e *estate) {
			e.addMachine("m1", "")
			e.plane.Status.Etcd.ObservedTime = metav1.NewTime(noon.Add(-time.Hour))
		}, "1h0m0s"},
		"the only voter, while the other leaves": {1, func(e *estate) {
			goes(e.addMachine("m1", "n1"))
		}, "there is a replacement for m1"},
		"the old one of one, once the new one votes": {2, func(e *estate) { e.plane.Spec.Replicas = ptr.To[int32](1) }, ""},

		// External etcd.
		"one of two with external etcd": {2, func(e *estate) { externalEtcd(e.plane); e.plane.Status.Etcd = nil }, ""},
		"the last of two with external etcd": {2, func(e *estate) {
			externalEtcd(e.plane)
			goes(e.machines[1])
		}, "without an API server"},
		"the only one with external etcd": {1, func(e *estate) {
			externalEtcd(e.plane)
		}, "raise spec.replicas of QuoinControlPlane cp"},
		"one with external etcd while the other has no Node": {2, func(e *estate) {
			externalEtcd(e.plane)
			e.machines[1].Status.NodeRef = clusterv1.MachineNodeReference{}
		}, "without an API server"},

		// The override.
		"by annotation": {1, annotate(controlplanev1.AllowQuorumLossAnnotation, "the site burned down"), ""},
		"by annotation without a reason": {1, annotate(controlplanev1.AllowQuorumLossAnnotation, " "),
			"a reason as its value"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			e := newEstate(c.members)
			c.given(e)

			response := e.ask(t, events.NewFakeRecorder(10), nil)

			if c.refusal == "" {
				g.Expect(response.Allowed).To(BeTrue(), "%v", response.Result)
				g.Expect(response.Warnings).NotTo(ContainElement(""))
				return
			}
			g.Expect(response.Allowed).To(BeFalse())
			g.Expect(response.Result.Code).To(BeEquivalentTo(403))
			g.Expect(response.Result.Message).To(And(
				ContainSubstring(c.refusal),
				// Every way out.
				ContainSubstring("lower spec.replicas of QuoinControlPlane cp"),
				ContainSubstring("delete Cluster c"),
				ContainSubstring(controlplanev1.AllowQuorumLossAnnotation),
			))
		})
	}
}

// What was let through against the verdict is on record: in the API server's audit log, as an Event, and in the answer.
func TestMachineDeletionOverride(t *testing.T) {
	g := NewWithT(t)
	recorder := events.NewFakeRecorder(1)
	e := newEstate(1)
	e.machines[0].Annotations[controlplanev1.AllowQuorumLossAnnotation] = "the site burned down"

	response := e.ask(t, recorder, func(r *admissionv1.AdmissionRequest) { r.DryRun = ptr.To(true) })
	g.Expect(response.Allowed).To(BeTrue())
	g.Expect(recorder.Events).NotTo(Receive(), "a dry run has no side effects")

	response = e.ask(t, recorder, nil)
	g.Expect(response.Allowed).To(BeTrue())
	g.Expect(response.AuditAnnotations).To(And(HaveKeyWithValue("allow-quorum-loss", "the site burned down"),
		HaveKey("verdict")))
	g.Expect(response.Warnings).To(ConsistOf(ContainSubstring("lets Machine m0 go")))
	g.Expect(recorder.Events).To(Receive(And(
		ContainSubstring("Warning QuorumLossAllowed jane deletes Machine m0"), ContainSubstring("the site burned down"))))

	// An override that is not needed changes nothing.
	e = newEstate(3)
	e.machines[0].Annotations[controlplanev1.AllowQuorumLossAnnotation] = "to be sure"
	response = e.ask(t, recorder, nil)
	g.Expect(response.Allowed).To(BeTrue())
	g.Expect(response.AuditAnnotations).To(BeEmpty())
	g.Expect(recorder.Events).NotTo(Receive())
}

// What is advised about the first Machine of a cluster that never answered is not refused: one that was no node yet is
// replaced at a person's word, and of one that was, which may hold the only data, the Cluster is deleted.
func TestWhatIsAdvisedAboutAFirstMachineIsAllowed(t *testing.T) {
	for _, ran := range []bool{false, true} {
		g, e := NewWithT(t), newEstate(1)
		e.plane.Status = controlplanev1.QuoinControlPlaneStatus{}
		e.machines[0].Status.NodeRef = clusterv1.MachineNodeReference{}
		state := controlplane.State{Replicas: 1, Version: "v1.36.3", StackedEtcd: true, Certificates: true, Initialized: ran,
			Unanswered: true, Machines: []controlplane.Machine{{Name: "m0", Version: "v1.36.3", HostClaimed: true,
				UpToDate: true, Bootstrapped: ran, Hook: true, DrainHook: true}}}
		if ran {
			e.machines[0].Spec.ProviderID = "quoin://metal/h0/1"
		}
		advice := plan.Assess(state).Step.Message
		g.Expect(strings.Contains(advice, clusterv1.RemediateMachineAnnotation)).To(Equal(!ran), advice)
		g.Expect(strings.Contains(advice, "delete the Cluster")).To(Equal(ran), advice)

		g.Expect(e.ask(t, events.NewFakeRecorder(1), nil).Allowed).To(Equal(!ran))
		e.cluster.TypeMeta = metav1.TypeMeta{APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster"}
		webhook := &ClusterDeletionWebhook{decoder: admission.NewDecoder(e.scheme(t))}
		g.Expect(webhook.Handle(t.Context(), deletionOf(t, e.cluster)).Allowed).To(BeTrue())
		goes(e.cluster)
		g.Expect(e.ask(t, events.NewFakeRecorder(1), nil).Allowed).To(BeTrue(), "it goes with its Cluster")
	}
}

// What is lost is said to whom the deletion is allowed, and the ways on to whom it is not, in their order.
func TestWhatIsSaidOfAMachineDeletion(t *testing.T) {
	g := NewWithT(t)
	e := newEstate(1)
	e.addHost(map[string]string{"role": "control-plane"}, infrav1.HostStateAvailable)
	g.Expect(e.ask(t, nil, nil).Warnings).To(ConsistOf("Machine m0 holds the only vote in etcd: it stays until a " +
		"replacement votes"))

	const unread = "etcd's members are not known: the control plane has not read it yet."
	const instead = "make a control-plane host reachable. If the cluster is lost, restore it, or delete the Cluster; to " +
		"have fewer control-plane Machines, lower spec.replicas of QuoinControlPlane cp; to be rid of the cluster, delete " +
		"Cluster c; to delete it all the same, annotate it with " + controlplanev1.AllowQuorumLossAnnotation + ": <reason>."
	e = newEstate(3)
	e.plane.Status.Etcd = nil
	g.Expect(e.ask(t, nil, nil).Result.Message).To(Equal("Machine m0 cannot be deleted now: " + unread + " Instead: " +
		instead))
	goes(e.machines[1])
	goes(e.machines[2])
	g.Expect(e.ask(t, nil, nil).Result.Message).To(Equal("Machine m0 cannot be deleted now: " + unread +
		" Being deleted already: m1, m2. Instead: wait until there is a replacement for m1 and m2; " + instead))
}

// Whoever cannot see cannot judge.
func TestMachineDeletionThatCannotBeJudged(t *testing.T) {
	for _, broken := range []runtime.Object{&corev1.Namespace{}, &clusterv1.Cluster{}, &controlplanev1.QuoinControlPlane{},
		&clusterv1.MachineList{}, &infrav1.QuoinMachineTemplate{}, &infrav1.QuoinHostList{}, &infrav1.QuoinMachineList{},
		&corev1.Secret{}} {
		e := newEstate(1)
		e.addHost(map[string]string{"role": "control-plane"}, infrav1.HostStateAvailable)
		e.hosts[0].Status.Facts = &infrav1.HostFacts{CgroupVersion: 1, KubeletOnCgroupV1: ptr.To(false)}
		e.plane.Spec.KubeadmConfigSpec.Files = []bootstrapv1.File{{Path: "/patch",
			ContentFrom: bootstrapv1.FileSource{Secret: bootstrapv1.SecretFileSource{Name: "patch", Key: "patch"}}}}
		expectTired(t, e.ask(t, events.NewFakeRecorder(1), nil, broken))
	}
	g := NewWithT(t)
	response := newEstate(1).ask(t, nil, func(r *admissionv1.AdmissionRequest) { r.OldObject.Raw = nil })
	g.Expect(response.Result.Code).To(BeEquivalentTo(400))

	// Whether the only voter has a host for its replacement is not asked about a learner.
	e := newEstate(2)
	found(quorum.MemberLearner)(e)
	e.member(0).Role = "Learner"
	g.Expect(e.ask(t, nil, nil, &infrav1.QuoinMachineTemplate{}).Allowed).To(BeTrue())
}

// What a move copies is no longer being deleted there, so a deletion in between would be lost.
func TestADeletionWhileTheClusterIsPausedIsRefused(t *testing.T) {
	g := NewWithT(t)
	e := newEstate(3)
	e.cluster.Spec.Paused = ptr.To(true)
	response := e.ask(t, nil, nil)
	g.Expect(response.Allowed).To(BeFalse())
	g.Expect(response.Result.Message).To(And(ContainSubstring("Cluster c is paused"), ContainSubstring("lost in the copy"),
		ContainSubstring(`'{"spec":{"paused":false}}'`)))

	e.machines[0].Annotations[controlplanev1.AllowQuorumLossAnnotation] = "I know"
	g.Expect(e.ask(t, nil, nil).Allowed).To(BeFalse(), "the word is about etcd, and not about a move")

	moved := newEstate(3)
	moved.cluster.Spec.Paused = ptr.To(true)
	moved.machines[0].Annotations[clusterctlv1.DeleteForMoveAnnotation] = ""
	g.Expect(moved.ask(t, nil, nil).Allowed).To(BeTrue(), "the mover itself")

	going := newEstate(3)
	going.cluster.Spec.Paused = ptr.To(true)
	goes(going.cluster)
	g.Expect(going.ask(t, nil, nil).Allowed).To(BeTrue(), "nothing of the cluster is to stay")
}
