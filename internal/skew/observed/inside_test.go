// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package observed_test

import (
	"context"
	"errors"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew/observed"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/estatetest"
)

func pod(component, node, image string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: component + "-" + node,
			Labels: map[string]string{"tier": "control-plane", "component": component}},
		Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "sidecar", Image: "quoin.test/x:v9.9.9"},
			{Name: component, Image: image}}},
	}
}

func TestWhatRunsInside(t *testing.T) {
	g := NewWithT(t)
	reader := fake.NewClientBuilder().WithObjects(
		pod("kube-apiserver", "a", "quoin.test/kube-apiserver:v1.36.3"),
		pod("kube-apiserver", "b", "quoin.test/kube-apiserver:v1.35.4"),
		pod("kube-controller-manager", "a", "quoin.test/kube-controller-manager:v1.36.3"),
		pod("kube-scheduler", "b", "quoin.test/kube-scheduler:v1.35.4"),
		pod("kube-scheduler", "c", "quoin.test/kube-scheduler:v1.34.1"),
		pod("etcd", "a", "quoin.test/etcd:3.6.8-0"), pod("etcd", "b", "quoin.test/etcd:ours"),
		pod("kube-vip", "a", "quoin.test/kube-vip:v1.0.0"),
		pod("kube-scheduler", "d",
			"quoin.test/kube-scheduler@sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"),
		estatetest.KubeProxy("v1.35.4"),
	).Build()
	kubelet := func(version, machine string) skew.Running {
		return skew.Running{Component: skew.Kubelet, Version: version, Object: "Machine " + machine}
	}
	world := skew.World{Components: []skew.Running{kubelet("v1.35.4", "w1"), kubelet("v1.35.4", "w2"),
		kubelet("v1.34.1", "w3"),
		{Component: skew.Kubectl, Version: "v1.33.1"}}}
	inside, err := observed.Inside(t.Context(), reader, world)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(inside).To(ConsistOf(
		skew.Running{Component: skew.ControllerManager, Version: "v1.36.3", Object: "Pod kube-controller-manager-a",
			APIServer: "v1.36.3"},
		skew.Running{Component: skew.Scheduler, Version: "v1.35.4", Object: "Pod kube-scheduler-b", APIServer: "v1.35.4"},
		skew.Running{Component: skew.Scheduler, Version: "v1.34.1", Object: "Pod kube-scheduler-c"},
		skew.Running{Component: skew.Etcd, Version: "3.6.8-0", Object: "Pod etcd-a"},
		skew.Running{Component: skew.KubeProxy, Version: "v1.35.4", Object: "DaemonSet kube-proxy beside Machine w1",
			Kubelet: "v1.35.4"},
		skew.Running{Component: skew.KubeProxy, Version: "v1.35.4", Object: "DaemonSet kube-proxy beside Machine w3",
			Kubelet: "v1.34.1"},
	))
	inside, err = observed.Inside(t.Context(), fake.NewFakeClient(estatetest.KubeProxy("v1.35.4")), skew.World{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(inside).To(ConsistOf(skew.Running{Component: skew.KubeProxy, Version: "v1.35.4",
		Object: "DaemonSet kube-proxy"}))
	g.Expect(observed.Inside(t.Context(), fake.NewFakeClient(estatetest.KubeProxy("ours")), world)).To(BeEmpty())
	g.Expect(observed.Inside(t.Context(), fake.NewFakeClient(), world)).To(BeEmpty(), "another one routes services")
}

// Proves: S1-20, R10
//
// What kubeadm starts beside an API server talks to no other, so it comes with it and never before: the components of a
// node are judged by that one, however old the others of the control plane are.
func TestComponentsOfANodeMoveWithItsAPIServer(t *testing.T) {
	policies, err := skew.Policies("Kubernetes-1.24")
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	judge := func(pods ...corev1.Pod) string {
		world := skew.World{APIServers: []string{"v1.36.3", "v1.35.4"}, Components: observed.StaticPods(pods)}
		var found []skew.Violation
		for _, policy := range policies {
			found = append(found, policy.Check(world)...)
		}
		return skew.Summary(found)
	}
	newer := *pod("kube-apiserver", "a", "quoin.test/kube-apiserver:v1.36.3")
	older := *pod("kube-apiserver", "b", "quoin.test/kube-apiserver:v1.35.4")
	for _, component := range []string{"kube-controller-manager", "kube-scheduler"} {
		t.Run(component, func(t *testing.T) {
			g := NewWithT(t)
			of := func(node, version string) corev1.Pod {
				return *pod(component, node, "quoin.test/"+component+":"+version)
			}
			g.Expect(judge(newer, older, of("a", "v1.36.3"), of("b", "v1.35.4"))).To(BeEmpty())
			g.Expect(judge(newer, older, of("b", "v1.36.3"))).To(And(ContainSubstring("is newer than API server v1.35.4"),
				ContainSubstring("R4"), ContainSubstring("S1-")), "it came before its API server")
			g.Expect(judge(newer, of("b", "v1.36.3"))).To(ContainSubstring("S1-8"), "nobody knows which one it reaches")
		})
	}
}

func TestAWorkloadClusterThatDoesNotAnswer(t *testing.T) {
	silent := errors.New("no route")
	for name, funcs := range map[string]interceptor.Funcs{
		"pods": {List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			return silent
		}},
		"kube-proxy": {Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object,
			...client.GetOption) error {
			return silent
		}},
	} {
		_, err := observed.Inside(t.Context(), interceptor.NewClient(fake.NewFakeClient(), funcs), skew.World{})
		NewWithT(t).Expect(err).To(MatchError(And(ContainSubstring(name), ContainSubstring("no route"))))
	}
}
