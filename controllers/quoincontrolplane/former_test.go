// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoincontrolplane

import (
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	utilyaml "sigs.k8s.io/cluster-api/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/controllers/quoincontrolplane/observe"
)

// former is a world of what an earlier controller left: a control plane of one Machine. Keys are not kept in files.
func former(t *testing.T, file string) *world {
	t.Helper()
	keys := newWorld(t, 1)
	keys.reconcile()
	w := newWorld(t, 1)
	content, err := os.ReadFile(file)
	w.g.Expect(err).NotTo(HaveOccurred())
	objects, err := utilyaml.ToUnstructured(content)
	w.g.Expect(err).NotTo(HaveOccurred())
	for i := range objects {
		made, err := testScheme().New(objects[i].GroupVersionKind())
		w.g.Expect(err).NotTo(HaveOccurred())
		w.g.Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(objects[i].Object, made)).To(Succeed())
		object := made.(client.Object)
		if secret, ok := object.(*corev1.Secret); ok {
			generated := &corev1.Secret{}
			if err := keys.mgmt.Get(t.Context(), client.ObjectKeyFromObject(secret), generated); !apierrors.IsNotFound(err) {
				w.g.Expect(err).NotTo(HaveOccurred())
			}
			secret.Data = generated.Data
		}
		w.g.Expect(client.IgnoreNotFound(w.mgmt.Delete(t.Context(), object.DeepCopyObject().(client.Object)))).To(Succeed())
		stored := object.DeepCopyObject().(client.Object)
		w.g.Expect(w.mgmt.Create(t.Context(), stored)).To(Succeed())
		if _, has := objects[i].Object["status"]; has {
			object.SetResourceVersion(stored.GetResourceVersion())
			w.g.Expect(w.mgmt.Status().Update(t.Context(), object)).To(Succeed())
		}
	}
	return w
}

// Proves: S0-14
//
// What earlier controllers left in the API goes on as it is, and to another version when that is asked for.
func TestAControlPlaneOfAnEarlierControllerIsUpgraded(t *testing.T) {
	files, err := filepath.Glob("../../test/former/*-control-plane.yaml")
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	NewWithT(t).Expect(files).NotTo(BeEmpty())
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			w := former(t, file)
			g := w.g
			g.Expect(w.machines()).To(HaveLen(1))
			first := w.machines()[0]
			w.startNode(&first, w.claim(first.Name))
			w.reconcile()
			g.Expect(w.machines()).To(HaveLen(1), "a later controller alone replaces nothing")
			g.Expect(w.machine(first.Name).DeletionTimestamp).To(BeNil())
			for _, condition := range []string{controlplanev1.ControlPlaneAvailableCondition,
				controlplanev1.ControlPlaneEtcdClusterHealthyCondition} {
				g.Expect(w.condition(condition).Status).To(Equal(metav1.ConditionTrue), w.condition(condition).Message)
			}

			w.edit(func(p *controlplanev1.QuoinControlPlane) { p.Spec.Version = newVer })
			w.reconcile()
			w.fetchImages()
			w.reconcile()
			g.Expect(w.machines()).To(HaveLen(2))
			second := other(w, first.Name)
			w.provision(second)
			w.hold(second)
			w.reconcile()
			w.fetchImages()
			w.reconcile()
			g.Expect(w.machine(first.Name).DeletionTimestamp).NotTo(BeNil())
			w.drained(first.Name)
			w.reconcile()
			g.Expect(w.hasHook(first.Name)).To(BeFalse())
			w.gone(first.Name)
			w.reconcile()
			g.Expect(w.plane().Status.Versions).To(ConsistOf(clusterv1.StatusVersion{Version: newVer, Replicas: 1}))
			g.Expect(w.image(&appsv1.DaemonSet{}, observe.KubeProxy)).To(Equal("quoin.test/kube-proxy:" + newVer))
		})
	}
}
