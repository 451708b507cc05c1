// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
)

// rack is a Cluster on hosts that answer what a test says.
type rack struct {
	t          *testing.T
	management []client.Object
	workload   []client.Object
	// says is what a host prints, by its name; one without an entry reaches everything. silent are those that fail.
	says   map[string]string
	silent map[string]error
	// scripts that each host ran.
	scripts map[string]*atomic.Pointer[string]
}

// newRack has members cp-1 and cp-2 at 10.0.0.1 and 10.0.0.2, a worker w at 10.0.0.9, and a free host.
func newRack(t *testing.T) *rack {
	r := &rack{t: t, says: map[string]string{}, silent: map[string]error{}, scripts: map[string]*atomic.Pointer[string]{}}
	for name, address := range map[string]string{"cp-1": "10.0.0.1", "cp-2": "10.0.0.2", "w": "10.0.0.9"} {
		of := machine(name, "v1.35.4", strings.HasPrefix(name, "cp"))
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address}}
		host := r.host(name)
		host.Spec.ConsumerRef = &infrav1.ConsumerReference{Namespace: "prod", Machine: name, Claim: "c-" + name}
		of.Spec.ProviderID = host.ProviderID()
		r.management, r.workload = append(r.management, of, host), append(r.workload, node)
	}
	free := r.host("free")
	free.Status.State = infrav1.HostStateAvailable
	free.Status.Conditions = []metav1.Condition{{Type: clusterv1.ReadyCondition, Status: metav1.ConditionTrue}}
	r.management = append(r.management, free)
	return r
}

func (r *rack) host(name string) *infrav1.QuoinHost {
	r.scripts[name] = &atomic.Pointer[string]{}
	return &infrav1.QuoinHost{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: name}}
}

func (r *rack) subject() Subject {
	s := subject(r.t, r.management, r.workload)
	s.Cluster.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint{Host: "10.0.0.100", Port: 6443}
	s.ControlPlane = plane(func(*controlplanev1.QuoinControlPlane) {})
	s.Connect = func(_ context.Context, host *infrav1.QuoinHost) (ssh.Host, error) {
		if err := r.silent[host.Name]; err != nil {
			return nil, err
		}
		return answering{text: r.says[host.Name] + "end\n", ran: r.scripts[host.Name]}, nil
	}
	return s
}

// answering is a host that runs no script.
type answering struct {
	ssh.Host
	text string
	ran  *atomic.Pointer[string]
}

func (a answering) Run(_ context.Context, command ssh.Command) (ssh.Result, error) {
	a.ran.Store(&command.Script)
	return ssh.Result{Stdout: a.text}, nil
}

// asked are the endpoints that the host was asked for.
func (r *rack) asked(host string) []string {
	var all []string
	for line := range strings.SplitSeq(ptr.Deref(r.scripts[host].Load(), ""), " &\n") {
		if words := strings.Fields(line[strings.LastIndex(line, "\n")+1:]); len(words) == 3 &&
			slices.Contains([]string{"port", "named"}, words[0]) {
			all = append(all, strings.Trim(words[1], "'")+":"+words[2])
		}
	}
	return all
}

// Proves: S0-48
func TestConnectivityAsksEachHostForWhatItNeeds(t *testing.T) {
	g := NewWithT(t)
	r := newRack(t)
	expect(t, lookAtConnectivity, r.subject())
	g.Expect(r.asked("cp-1")).To(ConsistOf("10.0.0.100:6443", "10.0.0.2:6443", "10.0.0.2:2379", "10.0.0.2:2380",
		"10.0.0.2:10250", "10.0.0.9:10250"))
	everyone := []string{"10.0.0.100:6443", "10.0.0.1:6443", "10.0.0.2:6443"}
	g.Expect(r.asked("w")).To(ConsistOf(everyone))
	g.Expect(r.asked("free")).To(ConsistOf(everyone), "it becomes a node")

	// Where etcd runs elsewhere no host has it, and a name is asked as one.
	s := r.subject()
	s.ControlPlane.Spec.KubeadmConfigSpec.ClusterConfiguration.Etcd.External.Endpoints = []string{"https://10.9.0.1:2379"}
	s.ControlPlane.Spec.KubeadmConfigSpec.InitConfiguration.LocalAPIEndpoint.BindPort = 7443
	s.Cluster.Spec.ControlPlaneEndpoint.Host = "api.prod.test"
	expect(t, lookAtConnectivity, s)
	g.Expect(r.asked("cp-1")).To(ConsistOf("api.prod.test:6443", "10.0.0.2:7443", "10.0.0.2:10250", "10.0.0.9:10250"))

	joined := &bootstrapv1.JoinControlPlane{LocalAPIEndpoint: bootstrapv1.APIEndpoint{BindPort: 8443}}
	s.ControlPlane.Spec.KubeadmConfigSpec.JoinConfiguration.ControlPlane = joined
	expect(t, lookAtConnectivity, s)
	g.Expect(r.asked("w")).To(ContainElement("10.0.0.2:8443"))
}

func TestConnectivity(t *testing.T) {
	for name, c := range map[string]struct {
		host, says string
		want       []string
		message    string
	}{
		"no route": {"w", "noroute 10.0.0.2\nsilent 10.0.0.2 6443\n", []string{"Block QuoinHost prod/w NoRoute"},
			"it has no route to 10.0.0.2"},
		"etcd is filtered": {"cp-1", "silent 10.0.0.2 2380\n", []string{"Block QuoinHost prod/cp-1 NoAnswer"},
			"it gets no answer from etcd of Node cp-2 at 10.0.0.2:2380"},
		"an API server is away": {"w", "refused 10.0.0.1 6443\n", []string{"Block QuoinHost prod/w Refused"},
			"nothing listens for it as the API server of Node cp-1 at 10.0.0.1:6443"},
		"the endpoint": {"cp-2", "silent 10.0.0.100 6443\n", []string{"Block QuoinHost prod/cp-2 NoAnswer"},
			"it gets no answer from the Cluster's endpoint at 10.0.0.100:6443"},
		"a kubelet": {"cp-1", "silent 10.0.0.9 10250\n", []string{"Warn QuoinHost prod/cp-1 NoAnswer"},
			"it gets no answer from the kubelet of Node w at 10.0.0.9:10250"},
		"a kubelet beside an API server": {"cp-1", "refused 10.0.0.2 10250\nrefused 10.0.0.2 6443\n",
			[]string{"Block QuoinHost prod/cp-1 Refused", "Warn QuoinHost prod/cp-1 Refused"}, ""},
		"a free host": {"free", "silent 10.0.0.100 6443\n", []string{"Warn QuoinHost prod/free NoAnswer"},
			"is free, and it gets no answer from the Cluster's endpoint at 10.0.0.100:6443"},
		"a name": {"w", "unresolved api.prod.test\n", []string{"Block QuoinHost prod/w NameUnresolved"},
			"it resolves no api.prod.test"},
		"no programs": {"w", "lacks ip\n", []string{"Warn QuoinHost prod/w NotLookedAt"},
			"what it reaches is not known, for it has no ip"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRack(t)
			r.says[c.host] = c.says
			findings := expect(t, lookAtConnectivity, r.subject(), c.want...)
			for _, finding := range findings {
				NewWithT(t).Expect(finding.Fix).NotTo(BeEmpty())
			}
			if c.message != "" {
				NewWithT(t).Expect(findings[0].Message).To(Equal(c.message))
			}
		})
	}
}

// A host that the upgrade touches is named, and blocks; one that it does not touch is named.
func TestConnectivityNamesSilentHosts(t *testing.T) {
	r := newRack(t)
	for _, name := range []string{"cp-1", "w", "free"} {
		r.silent[name] = errors.New("no way there: kubeadm join --token abcdef.0123456789abcdef")
	}
	s := r.subject()
	findings := expect(t, lookAtConnectivity, s, "Block QuoinHost prod/cp-1 Silent", "Block QuoinHost prod/w Silent",
		"Warn QuoinHost prod/free Silent")
	NewWithT(t).Expect(findings[0].Message).To(And(ContainSubstring("no way there"), Not(ContainSubstring("0123456789abcdef"))))

	s.Version = "v1.35.4" // so nobody leaves
	expect(t, lookAtConnectivity, s, "Block QuoinHost prod/cp-1 Silent", "Warn QuoinHost prod/w Silent",
		"Warn QuoinHost prod/free Silent")
}

// Nobody connects to a host that is detached.
func TestConnectivityLeavesDetachedHostsAlone(t *testing.T) {
	r := newRack(t)
	for _, object := range r.management {
		if host, ok := object.(*infrav1.QuoinHost); ok && host.Name == "w" {
			host.Annotations = map[string]string{infrav1.DetachedAnnotation: ""}
		}
	}
	expect(t, lookAtConnectivity, r.subject(), "Warn QuoinHost prod/w NotLookedAt")
	NewWithT(t).Expect(r.scripts["w"].Load()).To(BeNil())
}

// Some of very many hosts are asked, those of the control plane among them, a few at a time; the others are named.
func TestConnectivityIsBounded(t *testing.T) {
	g := NewWithT(t)
	r := newRack(t)
	for i := range mostHosts {
		host := r.host(fmt.Sprintf("a-%04d", i)) // before the others by its name
		host.Status.State = infrav1.HostStateAvailable
		host.Status.Conditions = []metav1.Condition{{Type: clusterv1.ReadyCondition, Status: metav1.ConditionTrue}}
		r.management = append(r.management, host)
	}
	s := r.subject()
	connect, now, most := s.Connect, atomic.Int32{}, atomic.Int32{}
	s.Connect = func(ctx context.Context, host *infrav1.QuoinHost) (ssh.Host, error) {
		at := now.Add(1)
		defer now.Add(-1)
		for before := most.Load(); at > before && !most.CompareAndSwap(before, at); before = most.Load() {
		}
		time.Sleep(2 * time.Millisecond) // so that the others come as well, if they may
		return connect(ctx, host)
	}
	left := expect(t, lookAtConnectivity, s, "Warn  NotLookedAt")
	g.Expect(left[0].Message).To(HavePrefix("4 hosts were not asked, for one look asks 200: a-0197, "))
	for _, name := range []string{"cp-1", "cp-2", "w"} {
		g.Expect(r.scripts[name].Load()).NotTo(BeNil(), name)
	}
	g.Expect(r.scripts["free"].Load()).To(BeNil(), "it is one of those that were left out")
	g.Expect(most.Load()).To(BeNumerically("<=", hostsAtOnce))

	// When the time is over, those that were not asked yet are not taken for silent.
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, findings, err := lookAtConnectivity(ended, s)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(says(findings)).To(ContainElement("Warn QuoinHost prod/cp-1 NotLookedAt"))
}
