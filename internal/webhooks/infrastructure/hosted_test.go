// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package infrastructure

import (
	"context"
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/clienttest"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/estatetest"
)

// Proves: S0-23, R2
//
// A control plane without Machines tells by itself what it runs, and pools are judged by that. One that cannot be read
// keeps nobody from anything.
func TestAPoolOfAHostedControlPlane(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "others"}, "c1", nil)
	for name, c := range map[string]struct {
		pool                     string
		gone, machines           bool
		fails                    error
		refusal, warning, broken string
	}{
		"of its version":                 {pool: "v1.35.4"},
		"on the way to its next version": {pool: "v1.36.3", warning: "no host is claimed"},
		"too new":                        {pool: "v1.37.0", refusal: "R2"},
		"too old":                        {pool: "v1.31.0", refusal: "bring it to v1.32 or later"},
		"with Machines, which tell":      {pool: "v1.37.0", machines: true, warning: "no host is claimed"},
		"that is not there":              {pool: "v1.37.0", gone: true, warning: "not judged"},
		"that nobody let us read":        {pool: "v1.37.0", fails: forbidden, warning: "not judged"},
		"whose API server is ill":        {pool: "v1.35.4", fails: context.DeadlineExceeded, broken: "deadline"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			var objects []client.Object
			if c.machines {
				machine := estatetest.Machine("prod", "c1", "cp", "v1.36.3")
				machine.Labels[clusterv1.MachineControlPlaneLabel], machine.Status.NodeRef.Name = "", "cp"
				objects = append(objects, machine)
			}
			webhook, _ := hosted(t, c.gone, c.fails, objects...)
			deployment := &clusterv1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "blue"}}
			deployment.Spec.ClusterName, deployment.Spec.Template.Spec.Version = "c1", c.pool
			response := webhook.handleDeployment(t.Context(), update(t, deployment))
			g.Expect(response.Allowed).To(Equal(c.refusal == "" && c.broken == ""))
			g.Expect(response.Result.Message).To(ContainSubstring(c.refusal + c.broken))
			if c.warning == "" {
				g.Expect(response.Warnings).To(BeEmpty())
			} else {
				g.Expect(response.Warnings).To(ConsistOf(ContainSubstring(c.warning)))
			}
		})
	}
}

// hosted is a webhook beside a Cluster whose control plane has no Machines and tells that it runs v1.35.4, unless it is
// gone or reading it fails.
func hosted(t *testing.T, gone bool, fails error, objects ...client.Object) (*VersionWebhook, *clusterv1.Cluster) {
	t.Helper()
	scheme := clienttest.Scheme(clusterv1.AddToScheme, apiextensionsv1.AddToScheme)
	crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{
		Name: "others.controlplane.example.com", Labels: map[string]string{"cluster.x-k8s.io/v1beta2": "v1"}}}
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "c1"}}
	cluster.Spec.ControlPlaneRef = clusterv1.ContractVersionedObjectReference{APIGroup: "controlplane.example.com",
		Kind: "Other", Name: "c1"}
	cluster.Status.Initialization.ControlPlaneInitialized = ptr.To(true)
	objects = append(objects, crd, cluster)
	if !gone {
		objects = append(objects, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "controlplane.example.com/v1",
			"kind":       "Other", "metadata": map[string]any{"namespace": "prod", "name": "c1"},
			"status": map[string]any{"versions": []any{map[string]any{"version": "v1.35.4", "replicas": int64(1)}}}}})
	}
	reader := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
		WithInterceptorFuncs(interceptor.Funcs{Get: func(ctx context.Context, under client.WithWatch,
			key client.ObjectKey, object client.Object, options ...client.GetOption) error {
			if _, is := object.(*unstructured.Unstructured); is && fails != nil {
				return fails
			}
			return under.Get(ctx, key, object, options...)
		}}).Build()
	return &VersionWebhook{Reader: reader, decoder: admission.NewDecoder(scheme)}, cluster
}

// Proves: R8, R9, S1-17
//
// The topology of such a control plane is judged by what that tells, too.
func TestATopologyOfAHostedControlPlane(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "others"}, "c1", nil)
	for name, c := range map[string]struct {
		to, worker, policy       string
		gone, plans, alone       bool
		fails                    error
		refusal, warning, broken string
	}{
		"with a worker that may stay":             {to: "v1.36.3", worker: "v1.34.1"},
		"with one that Cluster API raises before": {to: "v1.36.3", worker: "v1.32.1"},
		"with one that nobody raises":             {to: "v1.36.3", worker: "v1.32.1", alone: true, refusal: "(R9)"},
		"with one that is too old for its policy": {to: "v1.36.3", worker: "v1.33.1", policy: "Kubernetes-1.24",
			refusal: "(S1-17)"},
		"over two minors, of which none is listed": {to: "v1.37.0", worker: "v1.35.4", refusal: "(R8)"},
		"with an extension that plans":             {to: "v1.36.3", worker: "v1.32.1", plans: true, refusal: "(R9)"},
		"that is not there":                        {to: "v1.36.3", worker: "v1.32.1", gone: true, warning: "not compared"},
		"that nobody let us read": {to: "v1.36.3", worker: "v1.32.1", fails: forbidden,
			warning: "not compared"},
		"whose API server is ill": {to: "v1.36.3", worker: "v1.34.1", fails: context.DeadlineExceeded,
			broken: "deadline"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			class := &clusterv1.ClusterClass{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "other"}}
			if c.plans {
				class.Spec.Upgrade.External.GenerateUpgradePlanExtension = "plans.example"
			}
			worker := estatetest.Machine("prod", "c1", "w", c.worker)
			if !c.alone {
				worker.Labels[clusterv1.MachineDeploymentNameLabel] = "blue"
			}
			webhook, cluster := hosted(t, c.gone, c.fails, worker, class)
			cluster.Annotations = map[string]string{skew.PolicyAnnotation: c.policy}
			cluster.Spec.Topology = clusterv1.Topology{ClassRef: clusterv1.ClusterClassRef{Name: "other"}, Version: c.to}
			response := webhook.handleTopology(t.Context(), update(t, cluster))
			g.Expect(response.Allowed).To(Equal(c.refusal == "" && c.broken == ""), response.Result.Message)
			g.Expect(response.Result.Message).To(ContainSubstring(c.refusal + c.broken))
			if c.warning == "" {
				g.Expect(response.Warnings).To(BeEmpty())
			} else {
				g.Expect(response.Warnings).To(ConsistOf(ContainSubstring(c.warning)))
			}
		})
	}
}

// Proves: S1-25
//
// Where kube-proxy has to be of its kubelet's minor, a pool is compared with the one that runs, which never goes back.
func TestAPoolBesideKubeProxy(t *testing.T) {
	for name, c := range map[string]struct {
		pool, proxy, policy string
		mute, alone         bool
		refusal, warning    string
	}{
		"older than it": {pool: "v1.34.1", proxy: "v1.35.4", policy: "Kubernetes-1.24",
			refusal: "(S1-25)"},
		"older than it, and may be":         {pool: "v1.34.1", proxy: "v1.35.4"},
		"of its minor":                      {pool: "v1.35.1", proxy: "v1.35.4", policy: "Kubernetes-1.24"},
		"newer than it, so that it follows": {pool: "v1.35.1", proxy: "v1.34.4", policy: "Kubernetes-1.24"},
		"older than one that is left alone": {pool: "v1.34.1", proxy: "v1.35.4", policy: "Kubernetes-1.24", alone: true},
		"in a cluster that is mute": {pool: "v1.34.1", proxy: "v1.35.4", policy: "Kubernetes-1.24", mute: true,
			warning: "not compared"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			webhook, cluster := hosted(t, false, nil)
			annotate := func(object client.Object, key, value string) {
				patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, key, value)
				writer, is := webhook.Reader.(client.Client)
				g.Expect(is).To(BeTrue())
				g.Expect(writer.Patch(t.Context(), object, client.RawPatch(types.MergePatchType, []byte(patch)))).To(Succeed())
			}
			annotate(cluster, skew.PolicyAnnotation, c.policy)
			if c.alone {
				plane := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "controlplane.example.com/v1",
					"kind": "Other", "metadata": map[string]any{"namespace": "prod", "name": "c1"}}}
				annotate(plane, "controlplane.cluster.x-k8s.io/skip-kube-proxy", "")
			}
			webhook.Workload = func(context.Context, client.ObjectKey) (client.Reader, error) {
				if c.mute {
					return nil, context.DeadlineExceeded
				}
				return fake.NewClientBuilder().WithObjects(estatetest.KubeProxy(c.proxy)).Build(), nil
			}
			deployment := &clusterv1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "blue"}}
			deployment.Spec.ClusterName, deployment.Spec.Template.Spec.Version = "c1", c.pool
			response := webhook.handleDeployment(t.Context(), update(t, deployment))
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
