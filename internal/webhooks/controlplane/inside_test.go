// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"cmp"
	"context"
	"errors"
	"testing"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	kcpv1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/clienttest"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/estatetest"
)

func leftAlone(o *controlplanev1.QuoinControlPlane) {
	o.Annotations = map[string]string{kcpv1.SkipKubeProxyAnnotation: ""}
}

func etcdTag(tag string) change {
	return configuration(func(c *bootstrapv1.ClusterConfiguration) { c.Etcd.Local.ImageTag = tag })
}

// insideEdit is an edit of a control plane in whose cluster something runs.
type insideEdit struct {
	from, to string
	// runs is the version of the API server; from when empty.
	runs           string
	inside         []client.Object
	before, after  change
	policy, worker string
	// pool is the MachineDeployment of the worker.
	pool string
	// none says that no API server runs.
	none    bool
	refusal string
}

func (c insideEdit) edit(
	t *testing.T, workload func(context.Context, client.ObjectKey) (client.Reader, error),
) ([]string, error) {
	t.Helper()
	scheme := clienttest.Scheme(clientgoscheme.AddToScheme, clusterv1.AddToScheme)
	runs := cmp.Or(c.runs, c.from)
	server := estatetest.Machine("prod", "c1", "cp", runs)
	server.Labels[clusterv1.MachineControlPlaneLabel] = ""
	objects := []client.Object{server, &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "c1",
		Annotations: map[string]string{skew.PolicyAnnotation: c.policy}}}}
	if c.none {
		objects = objects[1:]
	}
	if c.worker != "" {
		worker := estatetest.Machine("prod", "c1", "w1", c.worker)
		worker.Labels[clusterv1.MachineDeploymentNameLabel] = c.pool
		objects = append(objects, worker)
	}
	webhook := &ControlPlaneWebhook{Reader: fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build(),
		Workload: workload}
	ofCluster := func(o *controlplanev1.QuoinControlPlane) {
		o.Labels = map[string]string{clusterv1.ClusterNameLabel: "c1"}
	}
	before, after := c.before, c.after
	if before == nil {
		before = unchanged
	}
	if after == nil {
		after = unchanged
	}
	return webhook.ValidateUpdate(t.Context(), controlPlane(ofCluster, version(c.from), running(runs), before),
		controlPlane(ofCluster, version(c.to), after))
}

// Proves: R4, R6, R7, R17, R18, S1-7, S1-8, S1-16, S1-25, S1-27
//
// What runs as pods in the cluster has to fit before its control plane is raised.
func TestWhatRunsInsideFitsTheNextVersion(t *testing.T) {
	gate := func(on bool) change {
		return configuration(func(c *bootstrapv1.ClusterConfiguration) {
			c.FeatureGates = map[string]bool{"ControlPlaneKubeletLocalMode": on}
		})
	}
	for name, c := range map[string]insideEdit{
		"kube-proxy of three minors before": {from: "v1.36.3", to: "v1.37.0",
			inside: []client.Object{estatetest.KubeProxy("v1.34.1")}},
		"kube-proxy of four minors before": {from: "v1.36.3", to: "v1.37.0",
			inside:  []client.Object{estatetest.KubeProxy("v1.33.1")},
			refusal: "kube-proxy v1.33.1 of DaemonSet kube-proxy is older than API server v1.37.0 by 4 minors"},
		"kube-proxy of two minors before 1.24": {from: "v1.36.3", to: "v1.37.0",
			inside: []client.Object{estatetest.KubeProxy("v1.34.1")}, policy: "Kubernetes-1.24", refusal: "(S1-27)"},
		"kube-proxy far from a kubelet": {from: "v1.36.3", to: "v1.37.0",
			inside: []client.Object{estatetest.KubeProxy("v1.38.1")}, worker: "v1.34.1", refusal: "(R7)"},
		"kube-proxy near a kubelet": {from: "v1.36.3", to: "v1.37.0",
			inside: []client.Object{estatetest.KubeProxy("v1.36.1")}, worker: "v1.34.1"},
		"kube-proxy unlike a kubelet, 1.24": {from: "v1.36.3", to: "v1.37.0",
			inside: []client.Object{estatetest.KubeProxy("v1.36.3")}, worker: "v1.35.1", policy: "Kubernetes-1.24",
			refusal: "(S1-25)"},
		"kube-proxy like a kubelet, 1.24": {from: "v1.36.3", to: "v1.37.0",
			inside: []client.Object{estatetest.KubeProxy("v1.36.3")}, worker: "v1.36.1", policy: "Kubernetes-1.24"},
		"kube-proxy unlike a kubelet, 1.24, left alone": {from: "v1.36.3", to: "v1.37.0", after: leftAlone,
			inside: []client.Object{estatetest.KubeProxy("v1.36.3")}, worker: "v1.35.1", policy: "Kubernetes-1.24"},
		"kube-proxy of four minors before, left alone": {from: "v1.36.3", to: "v1.37.0", after: leftAlone,
			inside:  []client.Object{estatetest.KubeProxy("v1.33.1")},
			refusal: "kube-proxy v1.33.1 of DaemonSet kube-proxy, which is left to you, is older than API server v1.37.0"},
		"a scheduler of the minor before": {from: "v1.36.3", to: "v1.37.0",
			inside: []client.Object{estatetest.StaticPod("kube-apiserver", "v1.36.3"), estatetest.StaticPod("kube-scheduler",
				"v1.35.3")}},
		"a scheduler of two minors before": {from: "v1.36.3", to: "v1.37.0",
			inside: []client.Object{estatetest.StaticPod("kube-apiserver", "v1.36.3"), estatetest.StaticPod("kube-scheduler",
				"v1.34.3")},
			refusal: "(R9)"},
		"a manager of two minors before, 1.24": {from: "v1.36.3", to: "v1.37.0",
			inside: []client.Object{estatetest.StaticPod("kube-apiserver", "v1.36.3"),
				estatetest.StaticPod("kube-controller-manager", "v1.34.3")},
			policy: "Kubernetes-1.24", refusal: "(S1-16)"},
		"a scheduler of who knows which server": {from: "v1.36.3", to: "v1.37.0",
			inside: []client.Object{estatetest.StaticPod("kube-scheduler", "v1.35.3")}, refusal: "(R9)"},
		"a scheduler of who knows which server, 1.24": {from: "v1.36.3", to: "v1.37.0", policy: "Kubernetes-1.24",
			inside: []client.Object{estatetest.StaticPod("kube-scheduler", "v1.35.3")}, refusal: "(S1-16)"},
		"a scheduler that fits both servers, 1.24": {from: "v1.36.3", to: "v1.37.0", policy: "Kubernetes-1.24",
			inside: []client.Object{estatetest.StaticPod("kube-scheduler", "v1.36.3")}},
		"etcd that may become 3.6": {from: "v1.33.4", to: "v1.34.1",
			inside: []client.Object{estatetest.StaticPod("etcd", "3.5.26-0")}},
		"etcd that may not": {from: "v1.33.4", to: "v1.34.1",
			inside:  []client.Object{estatetest.StaticPod("etcd", "3.5.21-0")},
			refusal: "only v3.5.26 and later may: bring it there first"},
		"etcd that is brought there": {from: "v1.33.4", to: "v1.33.4",
			inside: []client.Object{estatetest.StaticPod("etcd", "3.5.21-0")}, after: etcdTag("3.5.26-0")},
		"etcd, whatever the policy awaits": {from: "v1.33.4", to: "v1.33.4",
			inside: []client.Object{estatetest.StaticPod("etcd", "3.5.21-0")}, after: etcdTag("3.5.26-0"),
			policy: "Distribution"},
		"etcd of others": {from: "v1.33.4", to: "v1.34.1",
			inside: []client.Object{estatetest.StaticPod("etcd", "3.5.21-0")}, before: externalEtcd, after: externalEtcd},
		"etcd that is brought too far": {from: "v1.33.4", to: "v1.33.4",
			inside: []client.Object{estatetest.StaticPod("etcd", "3.5.21-0")}, after: etcdTag("3.6.8-0"), refusal: "(R18)"},
		"etcd that stays, by its tag": {from: "v1.33.4", to: "v1.34.1",
			inside: []client.Object{estatetest.StaticPod("etcd", "3.5.21-0")}, before: etcdTag("3.5.21-0"),
			after: etcdTag("3.5.21-0")},
		"etcd that goes back": {from: "v1.34.4", to: "v1.34.4",
			inside: []client.Object{estatetest.StaticPod("etcd", "3.6.8-0")}, after: etcdTag("3.5.26-0"), refusal: "(R21)"},
		"kubelets that reach any API server": {from: "v1.34.4", to: "v1.35.4", before: gate(false), after: gate(false),
			refusal: "(R17)"},
		"kubelets that reach their own": {from: "v1.34.4", to: "v1.35.4", before: gate(false), after: gate(true)},
		"kubelets that reach any while a version waits": {from: "v1.35.4", to: "v1.35.4", runs: "v1.34.4", after: gate(false),
			refusal: "(R17)"},
		"a patch, whatever they reach": {from: "v1.34.4", to: "v1.34.5", before: gate(false), after: gate(false)},
	} {
		t.Run(name, func(t *testing.T) {
			warnings, err := c.edit(t, func(context.Context, client.ObjectKey) (client.Reader, error) {
				return fake.NewClientBuilder().WithObjects(c.inside...).Build(), nil
			})
			expectRefusal(t, err, c.refusal)
			NewWithT(t).Expect(warnings).NotTo(ContainElement(ContainSubstring("kube-proxy")))
		})
	}
}

// A refusal for what is too old says which pool is to be raised to what first.
func TestARefusalNamesTheWay(t *testing.T) {
	old := insideEdit{from: "v1.36.3", to: "v1.37.0", worker: "v1.33.1", pool: "blue"}
	_, err := old.edit(t, nil)
	expectRefusal(t, err, "bring it to v1.34 or later first; raise MachineDeployment blue to v1.36.3 first, then the "+
		"control plane to v1.37.0")
	old.pool = ""
	_, err = old.edit(t, nil)
	expectRefusal(t, err, "bring it to v1.34 or later first")
	NewWithT(t).Expect(err).NotTo(MatchError(ContainSubstring("raise")))
}

// A cluster that does not answer says nothing, and the edit is told so; one without a kubeconfig is not asked.
func TestAClusterThatDoesNotAnswerIsNotCompared(t *testing.T) {
	g := NewWithT(t)
	raised := insideEdit{from: "v1.36.3", to: "v1.37.0"}
	warnings, err := raised.edit(t, func(context.Context, client.ObjectKey) (client.Reader, error) {
		return nil, errors.New("no route")
	})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(warnings).To(ConsistOf(And(ContainSubstring("kube-proxy, etcd"), ContainSubstring("no route"))))
	missing := apierrors.NewNotFound(schema.GroupResource{Resource: "secrets"}, "c1-kubeconfig")
	warnings, err = raised.edit(t, func(context.Context, client.ObjectKey) (client.Reader, error) { return nil, missing })
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(warnings).To(BeEmpty())
	g.Expect(raised.edit(t, nil)).To(BeEmpty())
	retagged := insideEdit{from: "v1.36.3", to: "v1.36.3", after: etcdTag("3.6.9-0")}
	warnings, err = retagged.edit(t, func(context.Context, client.ObjectKey) (client.Reader, error) {
		return nil, errors.New("no route")
	})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(warnings).To(ConsistOf(ContainSubstring("no route")))
	asked := func(context.Context, client.ObjectKey) (client.Reader, error) { return nil, errors.New("asked") }
	raised.none = true
	g.Expect(raised.edit(t, asked)).To(BeEmpty(), "nothing runs that could tell")
	skipped := insideEdit{from: "v1.35.4", to: "v1.37.0", policy: "Kubernetes-1.24"}
	warnings, err = skipped.edit(t, asked)
	expectRefusal(t, err, "go to v1.36 first (R8, S1-14)")
	g.Expect(warnings).To(BeEmpty(), "it is refused in any case")
}

// Whoever cannot see cannot judge, and an edit of something else needs no judgement.
func TestAVersionThatCannotBeJudged(t *testing.T) {
	estate := estatetest.Estate{Tool: "v1.31.0", Clusters: clusters{"c1": "v1.30.0"}}
	ofCluster := func(c *controlplanev1.QuoinControlPlane) {
		c.Labels = map[string]string{clusterv1.ClusterNameLabel: "c1"}
		c.OwnerReferences = []metav1.OwnerReference{{Kind: "Cluster", Name: "c1"}}
	}
	before := controlPlane(ofCluster, version("v1.30.0"), running("v1.30.0"))
	for _, c := range []struct {
		broken runtime.Object
		policy string
	}{{&clusterv1.Cluster{}, ""}, {&clusterv1.MachineList{}, ""}, {&clusterv1.ClusterList{}, "Distribution"}} {
		g := NewWithT(t)
		objects := estate.Objects("prod")
		for _, object := range objects {
			if cluster, ok := object.(*clusterv1.Cluster); ok {
				cluster.Annotations[skew.PolicyAnnotation] = c.policy
			}
		}
		scheme := clienttest.Scheme(clientgoscheme.AddToScheme, clusterv1.AddToScheme)
		webhook := &ControlPlaneWebhook{Reader: tired(fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...),
			c.broken).Build()}
		_, err := webhook.ValidateUpdate(t.Context(), before, controlPlane(ofCluster, version("v1.31.0")))
		g.Expect(err).To(MatchError(ContainSubstring("the API server is tired")), "%T", c.broken)
		_, err = webhook.ValidateUpdate(t.Context(), before, controlPlane(ofCluster, version("v1.30.0"), replicas(3)))
		g.Expect(err).NotTo(HaveOccurred())
		_, err = webhook.ValidateCreate(t.Context(), before)
		_, reads := c.broken.(*clusterv1.Cluster)
		g.Expect(err != nil).To(Equal(reads), "%T", c.broken)
	}
	unknown := insideEdit{from: "v1.36.3", to: "v1.37.0", policy: "Soon"}
	_, err := unknown.edit(t, nil)
	expectRefusal(t, err, "spec.version: Forbidden: annotation "+skew.PolicyAnnotation+" of Cluster c1")
}
