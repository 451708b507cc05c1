// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinmachine

import (
	"context"
	"errors"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
)

// Proves: R20
//
// A host with cgroup v1 is left alone where nothing tells the kubelet to start on it.
func TestAKubeletStartsOnCgroupV1WhenItIsToldTo(t *testing.T) {
	const (
		patch = "write_files:\n- path: /etc/kubernetes/patches/kubeletconfiguration.yaml\n  content: |\n    " +
			"failCgroupV1: false\n"
		argument = "    nodeRegistration:\n      kubeletExtraArgs:\n      - name: fail-cgroupv1\n        value: \"false\"\n"
		mapped   = "    kubeletExtraArgs:\n      fail-cgroupv1: \"false\"\n"
		set      = "failCgroupV1: true\nfailSwapOn: false\n"
	)
	no := ptr.To(false)
	for name, c := range map[string]struct {
		version, data string
		cgroup        int32
		starts        *bool
		initialized   bool
		shared        *string
		disconnected  bool
		held          bool
	}{
		"cgroup v2":                        {version: "v1.36.3", cgroup: 2},
		"on a host that tells it":          {version: "v1.36.3", cgroup: 1, starts: ptr.To(true)},
		"on a host that was not asked":     {version: "v1.36.3", cgroup: 1, starts: nil},
		"of before":                        {version: "v1.34.4", cgroup: 1, starts: no},
		"with nothing told":                {version: "v1.35.4", cgroup: 1, starts: no, held: true},
		"with a patch":                     {version: "v1.35.4", cgroup: 1, starts: no, data: patch},
		"with an argument":                 {version: "v1.35.4", cgroup: 1, starts: no, data: argument},
		"with an argument of a former API": {version: "v1.35.4", cgroup: 1, starts: no, data: mapped},
		"told to fail":                     {version: "v1.35.4", cgroup: 1, starts: no, data: set, held: true},
		"told with the whole cluster": {version: "v1.35.4", cgroup: 1, starts: no, initialized: true,
			shared: ptr.To("failCgroupV1: false\n")},
		"told to fail with the whole cluster": {version: "v1.35.4", cgroup: 1, starts: no, initialized: true,
			shared: ptr.To("failCgroupV1: true\n"), held: true},
		"told nothing with the whole cluster": {version: "v1.35.4", cgroup: 1, starts: no, initialized: true,
			shared: ptr.To("kind: KubeletConfiguration\n"), held: true},
		"of a cluster without a configuration": {version: "v1.35.4", cgroup: 1, starts: no, initialized: true},
		"of a cluster that is unreadable": {version: "v1.35.4", cgroup: 1, starts: no, initialized: true,
			shared: ptr.To("a: [")},
		"of a cluster that nobody is connected to": {version: "v1.35.4", cgroup: 1, starts: no, initialized: true,
			disconnected: true},
		"in a cluster that is about to be made, v1": {version: "v1.36.3", cgroup: 1, starts: no,
			shared: ptr.To("failCgroupV1: false\n"), held: true},
	} {
		t.Run(name, func(t *testing.T) {
			machine, quoinMachine := owned("m1", uid1)
			machine.Spec.Version = c.version
			made, free := cluster(), host("h1", "")
			made.Status.Initialization.ControlPlaneInitialized = ptr.To(c.initialized)
			free.Status.Facts = &infrav1.HostFacts{CgroupVersion: c.cgroup, KubeletOnCgroupV1: c.starts}
			secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "m1-bootstrap"},
				Data: map[string][]byte{"value": []byte(c.data)}}
			w := newWorld(t, made, machine, quoinMachine, free, secret)
			workload := fake.NewClientBuilder()
			if c.shared != nil {
				workload.WithObjects(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system",
					Name: "kubelet-config"},
					Data: map[string]string{"kubelet": *c.shared}})
			}
			w.r.ClusterCache = clustercache.NewFakeClusterCache(workload.Build(), client.ObjectKeyFromObject(made))
			if c.disconnected {
				w.r.ClusterCache = clustercache.NewFakeEmptyClusterCache()
			}
			result := w.reconcile("m1")
			w.g.Expect(w.host("h1").Spec.ConsumerRef == nil).To(Equal(c.held))
			if c.held {
				w.expect("m1", infrav1.MachineHostClaimedCondition, metav1.ConditionFalse, infrav1.MachineNoMatchingHostReason,
					"cgroup v1", "failCgroupV1: false", "R20")
				w.g.Expect(result.RequeueAfter).To(Equal(unseenRecheck))
			}
		})
	}
}

// What cannot be read decides nothing, and is read again.
func TestBootstrapDataThatCannotBeRead(t *testing.T) {
	machine, quoinMachine := owned("m1", uid1)
	machine.Spec.Version = "v1.35.4"
	free := host("h1", "")
	free.Status.Facts = &infrav1.HostFacts{CgroupVersion: 1, KubeletOnCgroupV1: ptr.To(false)}
	w := newWorld(t, cluster(), machine, quoinMachine, free)
	w.r.APIReader = interceptor.NewClient(w.client, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object,
			options ...client.GetOption) error {
			if _, secret := object.(*corev1.Secret); secret {
				return errors.New("no route")
			}
			return c.Get(ctx, key, object, options...)
		},
	})
	_, err := w.r.failsOnCgroupV1(t.Context(), &observation{machine: machine, cluster: &clusterv1.Cluster{}},
		[]infrav1.QuoinHost{*free})
	w.g.Expect(err).To(MatchError(ContainSubstring("reading the bootstrap data team/m1-bootstrap")))
	w.r.APIReader = w.client
	w.g.Expect(w.r.failsOnCgroupV1(t.Context(), &observation{machine: machine, cluster: &clusterv1.Cluster{}},
		[]infrav1.QuoinHost{*free})).To(BeTrue(),
		"data that are gone tell nothing")
}

// A control plane counts its hosts by the same rule, so its Machines are kept from them too.
//
// Proves: R20
func TestAControlPlaneIsKeptFromCgroupV1(t *testing.T) {
	machine, quoinMachine := owned("m1", uid1)
	machine.Spec.Version = "v1.35.4"
	machine.Labels = map[string]string{clusterv1.ClusterNameLabel: "c1", clusterv1.MachineControlPlaneLabel: ""}
	free := host("h1", "")
	free.Status.Facts = &infrav1.HostFacts{CgroupVersion: 1, KubeletOnCgroupV1: ptr.To(false)}
	w := newWorld(t, cluster(), machine, quoinMachine, free)
	w.reconcile("m1")
	w.g.Expect(w.host("h1").Spec.ConsumerRef).To(BeNil())
}
