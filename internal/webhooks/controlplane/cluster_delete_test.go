// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"testing"

	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/clienttest"
)

func TestClusterDeletion(t *testing.T) {
	const protect, confirm = controlplanev1.ProtectAnnotation, controlplanev1.ConfirmDeletionAnnotation
	for name, c := range map[string]struct {
		annotations   map[string]string
		deleting      bool
		namespaceGoes bool
		namespaceGone bool
		refusal       string
	}{
		"a Cluster like any other": {},
		"a protected one": {annotations: map[string]string{protect: ""}, refusal: confirm +
			": c (it has none)"},
		"one that is protected for naught": {annotations: map[string]string{protect: "", confirm: "c"}},
		"one confirmed by another name": {annotations: map[string]string{protect: "", confirm: "d"},
			refusal: `it says "d"`},
		"one confirmed with true": {annotations: map[string]string{protect: "", confirm: "true"},
			refusal: `it says "true"`},
		"one that was moved away": {annotations: map[string]string{protect: "",
			clusterctlv1.DeleteForMoveAnnotation: ""}},
		"one that is being deleted":   {annotations: map[string]string{protect: ""}, deleting: true},
		"one whose Namespace goes":    {annotations: map[string]string{protect: ""}, namespaceGoes: true},
		"one whose Namespace is gone": {annotations: map[string]string{protect: ""}, namespaceGone: true},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			scheme := clienttest.Scheme(corev1.AddToScheme, clusterv1.AddToScheme)
			namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "prod"}}
			if c.namespaceGoes {
				goes(namespace)
			}
			builder := fake.NewClientBuilder().WithScheme(scheme)
			if !c.namespaceGone {
				builder = builder.WithObjects(namespace)
			}
			cluster := &clusterv1.Cluster{
				TypeMeta:   metav1.TypeMeta{APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster"},
				ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "c", Annotations: c.annotations}}
			if c.deleting {
				goes(cluster)
			}
			webhook := &ClusterDeletionWebhook{Reader: builder.Build(), decoder: admission.NewDecoder(scheme)}

			response := webhook.Handle(t.Context(), deletionOf(t, cluster))

			g.Expect(response.Allowed).To(Equal(c.refusal == ""))
			if c.refusal != "" {
				g.Expect(response.Result.Message).To(And(ContainSubstring(c.refusal), ContainSubstring("Cluster c is protected")))
			}
		})
	}
}

func TestClusterDeletionThatCannotBeJudged(t *testing.T) {
	g := NewWithT(t)
	webhook := &ClusterDeletionWebhook{decoder: admission.NewDecoder(runtime.NewScheme())}
	g.Expect(webhook.Handle(t.Context(), admission.Request{}).Result.Code).To(BeEquivalentTo(400))
	ofPlane := &ControlPlaneDeletionWebhook{decoder: webhook.decoder}
	g.Expect(ofPlane.Handle(t.Context(), admission.Request{}).Result.Code).To(BeEquivalentTo(400))

	scheme := clienttest.Scheme(corev1.AddToScheme, clusterv1.AddToScheme, controlplanev1.AddToScheme)
	cluster := &clusterv1.Cluster{TypeMeta: metav1.TypeMeta{APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "c",
			Annotations: map[string]string{controlplanev1.ProtectAnnotation: ""}}}
	plane := &controlplanev1.QuoinControlPlane{
		TypeMeta: metav1.TypeMeta{APIVersion: controlplanev1.GroupVersion.String(), Kind: "QuoinControlPlane"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "cp", OwnerReferences: []metav1.OwnerReference{
			{APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster", Name: "c", UID: "2"}}}}
	reader := tired(fake.NewClientBuilder().WithScheme(scheme).WithObjects(cluster), &corev1.Namespace{}).Build()
	webhook.Reader, webhook.decoder = reader, admission.NewDecoder(scheme)
	ofPlane.Reader, ofPlane.decoder = reader, webhook.decoder
	expectTired(t, webhook.Handle(t.Context(), deletionOf(t, cluster)))
	expectTired(t, ofPlane.Handle(t.Context(), deletionOf(t, plane)))
	ofPlane.Reader = tired(fake.NewClientBuilder().WithScheme(scheme), &clusterv1.Cluster{}).Build()
	expectTired(t, ofPlane.Handle(t.Context(), deletionOf(t, plane)))
}

// deletionOf an object, as an API server asks for it.
func deletionOf(t *testing.T, object client.Object) admission.Request {
	t.Helper()
	raw, err := json.Marshal(object)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{Operation: admissionv1.Delete,
		Namespace: object.GetNamespace(), OldObject: runtime.RawExtension{Raw: raw}}}
}

// tired has the client fail to read objects and lists of these types.
func tired(builder *fake.ClientBuilder, failing ...runtime.Object) *fake.ClientBuilder {
	fails := func(object runtime.Object) error {
		if slices.ContainsFunc(failing, func(broken runtime.Object) bool {
			return reflect.TypeOf(broken) == reflect.TypeOf(object)
		}) {
			return errors.New("the API server is tired")
		}
		return nil
	}
	return builder.WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object,
			options ...client.GetOption) error {
			return cmp.Or(fails(object), c.Get(ctx, key, object, options...))
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			return cmp.Or(fails(list), c.List(ctx, list, options...))
		},
	})
}

// expectTired holds a response against what whoever cannot see answers.
func expectTired(t *testing.T, response admission.Response) {
	t.Helper()
	g := NewWithT(t)
	g.Expect(response.Allowed).To(BeFalse())
	g.Expect(response.Result.Code).To(BeEquivalentTo(500))
	g.Expect(response.Result.Message).To(ContainSubstring("the API server is tired"))
}

// The control plane of a protected Cluster is no way around the protection.
func TestControlPlaneDeletion(t *testing.T) {
	protected := func(c *clusterv1.Cluster) {
		c.Annotations = map[string]string{controlplanev1.ProtectAnnotation: ""}
	}
	for name, c := range map[string]struct {
		cluster func(*clusterv1.Cluster)
		plane   func(*controlplanev1.QuoinControlPlane)
		without bool
		goes    bool
		refused bool
	}{
		"that of a Cluster like any other": {},
		"that of a protected one":          {cluster: protected, refused: true},
		"that of one confirmed by name": {cluster: func(c *clusterv1.Cluster) {
			protected(c)
			c.Annotations[controlplanev1.ConfirmDeletionAnnotation] = "c"
		}},
		"that of one that is being deleted": {cluster: func(c *clusterv1.Cluster) { protected(c); goes(c) }},
		"that of one that is gone":          {without: true},
		"that of one whose Namespace goes":  {cluster: protected, goes: true},
		"one that is being deleted": {cluster: protected, plane: func(p *controlplanev1.QuoinControlPlane) {
			goes(p)
		}},
		"one that no Cluster has": {cluster: protected, plane: func(p *controlplanev1.QuoinControlPlane) {
			p.OwnerReferences = nil
		}},
		"one of a Cluster of another kind": {cluster: protected, plane: func(p *controlplanev1.QuoinControlPlane) {
			p.OwnerReferences[0].APIVersion = "example.com/v1"
		}},
		"one that was moved away": {cluster: protected, plane: func(p *controlplanev1.QuoinControlPlane) {
			p.Annotations = map[string]string{clusterctlv1.DeleteForMoveAnnotation: ""}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			scheme := clienttest.Scheme(corev1.AddToScheme, clusterv1.AddToScheme, controlplanev1.AddToScheme)
			namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "prod"}}
			if c.goes {
				goes(namespace)
			}
			builder := fake.NewClientBuilder().WithScheme(scheme).WithObjects(namespace)
			if !c.without {
				cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "c"}}
				if c.cluster != nil {
					c.cluster(cluster)
				}
				builder = builder.WithObjects(cluster)
			}
			plane := &controlplanev1.QuoinControlPlane{
				TypeMeta: metav1.TypeMeta{APIVersion: controlplanev1.GroupVersion.String(), Kind: "QuoinControlPlane"},
				ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "cp", OwnerReferences: []metav1.OwnerReference{
					{APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster", Name: "c", UID: "2"}}}}
			if c.plane != nil {
				c.plane(plane)
			}
			webhook := &ControlPlaneDeletionWebhook{Reader: builder.Build(), decoder: admission.NewDecoder(scheme)}

			response := webhook.Handle(t.Context(), deletionOf(t, plane))

			g.Expect(response.Allowed).To(Equal(!c.refused), "%v", response.Result)
			if c.refused {
				g.Expect(response.Result.Message).To(And(ContainSubstring("Cluster c is protected"),
					ContainSubstring("QuoinControlPlane cp"), ContainSubstring(controlplanev1.ConfirmDeletionAnnotation+": c")))
			}
		})
	}
}
