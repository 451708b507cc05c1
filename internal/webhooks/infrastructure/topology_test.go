// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package infrastructure

import (
	"context"
	"errors"
	"testing"

	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	kcpv1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/estatetest"
)

// insideEdit is an edit of the version of a topology in whose cluster something runs.
type insideEdit struct {
	from, to string
	// lists are the versions of the ClusterClass.
	lists          []string
	inside         []client.Object
	policy, etcd   string
	gates          map[string]bool
	foreign, plans bool

	refusal, warning string
}

func (c insideEdit) edit(
	t *testing.T, workload func(context.Context, client.ObjectKey) (client.Reader, error),
) admission.Response {
	t.Helper()
	server := estatetest.Machine("prod", "c1", "cp", c.from)
	server.Labels[clusterv1.MachineControlPlaneLabel] = ""
	plane := &controlplanev1.QuoinControlPlane{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "cp"}}
	plane.Spec.Version = c.from
	plane.Spec.KubeadmConfigSpec.ClusterConfiguration.Etcd.Local.ImageTag = c.etcd
	plane.Spec.KubeadmConfigSpec.ClusterConfiguration.FeatureGates = c.gates
	class := &clusterv1.ClusterClass{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "quoin"}}
	class.Spec.KubernetesVersions = c.lists
	if c.plans {
		class.Spec.Upgrade.External.GenerateUpgradePlanExtension = "plans.example"
	}
	crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{
		Name:   "kubeadmcontrolplanes." + controlplanev1.GroupVersion.Group,
		Labels: map[string]string{"cluster.x-k8s.io/v1beta2": "v1beta2"}}}
	webhook := versionWebhook(t, []client.Object{server, plane, class, crd})
	webhook.Workload = workload
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "c1",
		Annotations: map[string]string{skew.PolicyAnnotation: c.policy}}}
	cluster.Spec.Topology = clusterv1.Topology{ClassRef: clusterv1.ClusterClassRef{Name: "quoin"}, Version: c.to}
	cluster.Spec.ControlPlaneRef = clusterv1.ContractVersionedObjectReference{Kind: "QuoinControlPlane", Name: "cp",
		APIGroup: controlplanev1.GroupVersion.Group}
	if c.foreign {
		cluster.Spec.ControlPlaneRef.Kind = "KubeadmControlPlane"
	}
	cluster.Status.Initialization.ControlPlaneInitialized = ptr.To(true)
	return webhook.handleTopology(t.Context(), update(t, cluster))
}

// A kube-proxy that another provider's control plane leaves alone is judged as a preflight judges it.
func TestAKubeProxyThatAnotherControlPlaneLeavesAlone(t *testing.T) {
	for _, alone := range []bool{false, true} {
		server := estatetest.Machine("prod", "c1", "cp", "v1.36.3")
		server.Labels[clusterv1.MachineControlPlaneLabel] = ""
		crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{
			Name: "others.controlplane.example.com", Labels: map[string]string{"cluster.x-k8s.io/v1beta2": "v1"}}}
		other := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "controlplane.example.com/v1",
			"kind": "Other", "metadata": map[string]any{"namespace": "prod", "name": "c1"}}}
		if alone {
			other.SetAnnotations(map[string]string{kcpv1.SkipKubeProxyAnnotation: ""})
		}
		webhook := versionWebhook(t, []client.Object{server, crd, other})
		webhook.Workload = func(context.Context, client.ObjectKey) (client.Reader, error) {
			return fake.NewClientBuilder().WithObjects(estatetest.KubeProxy("v1.36.3")).Build(), nil
		}
		cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "c1",
			Annotations: map[string]string{skew.PolicyAnnotation: "Kubernetes-1.24"}}}
		cluster.Spec.Topology = clusterv1.Topology{ClassRef: clusterv1.ClusterClassRef{Name: "quoin"}, Version: "v1.37.0"}
		cluster.Spec.ControlPlaneRef = clusterv1.ContractVersionedObjectReference{Kind: "Other", Name: "c1",
			APIGroup: "controlplane.example.com"}
		cluster.Status.Initialization.ControlPlaneInitialized = ptr.To(true)
		response := webhook.handleTopology(t.Context(), update(t, cluster))
		NewWithT(t).Expect(response.Allowed).To(Equal(alone), "left alone %v: %s", alone, response.Result.Message)
	}
}

// Proves: R4, R6, R17, R18, S1-7, S1-16, S1-25
//
// What runs as pods in the cluster, and what kubeadm makes of etcd, is judged of a topology as of a control plane whose
// version somebody edits, at each hop.
func TestWhatRunsInsideFitsTheVersionsOfATopology(t *testing.T) {
	chain := []string{"v1.32.4", "v1.33.4", "v1.34.1", "v1.35.4", "v1.36.3", "v1.37.0"}
	off := map[string]bool{"ControlPlaneKubeletLocalMode": false}
	for name, c := range map[string]insideEdit{
		"kube-proxy of four minors before": {from: "v1.36.3", to: "v1.37.0",
			inside:  []client.Object{estatetest.KubeProxy("v1.33.1")},
			refusal: "kube-proxy v1.33.1 of DaemonSet kube-proxy is older than API server v1.37.0 by 4 minors"},
		"kube-proxy of three minors before": {from: "v1.36.3", to: "v1.37.0",
			inside: []client.Object{estatetest.KubeProxy("v1.34.1")}},
		"kube-proxy of three minors before 1.24": {from: "v1.36.3", to: "v1.37.0", policy: "Kubernetes-1.24",
			inside: []client.Object{estatetest.KubeProxy("v1.34.1")}, refusal: "(S1-25)"},
		"one kube-proxy for kubelets of two minors, 1.24": {from: "v1.36.3", to: "v1.37.0", policy: "Kubernetes-1.24",
			inside: []client.Object{estatetest.KubeProxy("v1.36.3")}, refusal: "(S1-25)"},
		"a scheduler of two minors before": {from: "v1.36.3", to: "v1.37.0",
			inside: []client.Object{estatetest.StaticPod("kube-apiserver", "v1.36.3"), estatetest.StaticPod("kube-scheduler",
				"v1.34.3")},
			refusal: "(R9)"},
		"a scheduler that follows its API server": {from: "v1.34.1", to: "v1.36.3", lists: chain,
			inside: []client.Object{estatetest.StaticPod("kube-apiserver", "v1.34.1"), estatetest.StaticPod("kube-scheduler",
				"v1.34.1")}},
		"a manager of two minors before, 1.24": {from: "v1.36.3", to: "v1.37.0", policy: "Kubernetes-1.24",
			inside: []client.Object{estatetest.StaticPod("kube-apiserver", "v1.36.3"),
				estatetest.StaticPod("kube-controller-manager", "v1.34.3")},
			refusal: "(S1-16)"},
		"etcd that may not become 3.6": {from: "v1.33.4", to: "v1.34.1",
			inside:  []client.Object{estatetest.StaticPod("etcd", "3.5.21-0")},
			refusal: "only v3.5.26 and later may: bring it there first"},
		"etcd that may not at the first of two": {from: "v1.33.4", to: "v1.35.4", lists: chain,
			inside: []client.Object{estatetest.StaticPod("etcd", "3.5.21-0")}, refusal: "(R18)"},
		"etcd that depends on the first of two": {from: "v1.32.4", to: "v1.34.1", lists: chain,
			inside:  []client.Object{estatetest.StaticPod("etcd", "3.5.16-0")},
			warning: "if v1.33.4 brings an earlier one (R18)"},
		"etcd of its own tag": {from: "v1.33.4", to: "v1.35.4", lists: chain, etcd: "3.5.21-0",
			inside: []client.Object{estatetest.StaticPod("etcd", "3.5.21-0")}},
		"etcd of another provider's control plane": {from: "v1.33.4", to: "v1.34.1", foreign: true,
			inside: []client.Object{estatetest.StaticPod("etcd", "3.5.21-0")}},
		"kubelets that reach any API server":   {from: "v1.35.4", to: "v1.36.3", gates: off},
		"kubelets that do at the first of two": {from: "v1.34.1", to: "v1.36.3", lists: chain, gates: off, refusal: "(R17)"},
		"etcd below an extension, one step away": {from: "v1.33.4", to: "v1.34.1", plans: true,
			inside: []client.Object{estatetest.StaticPod("etcd", "3.5.21-0")}, refusal: "(R18)"},
		"etcd below an extension, further away": {from: "v1.33.4", to: "v1.35.4", plans: true,
			inside: []client.Object{estatetest.StaticPod("etcd", "3.5.21-0")}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			response := c.edit(t, func(context.Context, client.ObjectKey) (client.Reader, error) {
				return fake.NewClientBuilder().WithObjects(c.inside...).Build(), nil
			})
			g.Expect(response.Allowed).To(Equal(c.refusal == ""), response.Result.Message)
			g.Expect(response.Result.Message).To(ContainSubstring(c.refusal))
			if c.warning == "" {
				g.Expect(response.Warnings).To(BeEmpty())
			} else {
				g.Expect(response.Warnings).To(ConsistOf(ContainSubstring(c.warning)))
			}
		})
	}
}

// A cluster that does not answer says nothing, and the edit of its topology is told so.
func TestATopologyWhoseClusterDoesNotAnswerIsNotCompared(t *testing.T) {
	g := NewWithT(t)
	response := insideEdit{from: "v1.36.3", to: "v1.37.0"}.edit(t,
		func(context.Context, client.ObjectKey) (client.Reader, error) { return nil, errors.New("no route") })
	g.Expect(response.Allowed).To(BeTrue(), response.Result.Message)
	g.Expect(response.Warnings).To(ConsistOf(And(ContainSubstring("kube-proxy, etcd"), ContainSubstring("no route"))))
}
