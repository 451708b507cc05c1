// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package etcdbackup

import (
	"fmt"
	"testing"
	"time"

	"filippo.io/age"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/backup"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/memorytest"
)

// Half go while their store is looked into, and half when it was. One in three is moved to another management cluster,
// and leaves its Secrets. One stays all the time.
func TestNothingIsRememberedOfControlPlanesThatAreGone(t *testing.T) {
	w := newWorld(t, toVolume("0 */6 * * *"))
	w.settle()
	stays, authority := w.controlPlane(), &corev1.Secret{}
	w.Expect(w.api.Get(t.Context(), client.ObjectKey{Namespace: "prod", Name: "c-etcd"}, authority)).To(Succeed())
	identity, err := age.GenerateX25519Identity()
	w.Expect(err).NotTo(HaveOccurred())
	series := func() int {
		return testutil.CollectAndCount(lastGood) + testutil.CollectAndCount(size) + testutil.CollectAndCount(duration) +
			testutil.CollectAndCount(attempts)
	}
	own, counted, most := memorytest.Entries(w.r), series(), map[string]int{}
	for i := range memorytest.Lives {
		key := client.ObjectKey{Namespace: key.Namespace, Name: fmt.Sprintf("cp%d", i)}
		reconcile := func() {
			t.Helper()
			_, err := w.r.Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
			w.Expect(err).NotTo(HaveOccurred())
		}
		ends := func() {
			for w.r.busy(key) {
				<-w.r.calls.Events()
			}
		}
		meta := metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, UID: types.UID(key.Name)}
		cluster, plane := &clusterv1.Cluster{ObjectMeta: meta}, stays.DeepCopy()
		plane.ObjectMeta, plane.Status.Backup = meta, nil
		plane.OwnerReferences = []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster",
			Name: key.Name, UID: meta.UID}}
		plane.Spec.Backup.EncryptionKeyRef = controlplanev1.SecretReference{Name: key.Name + "-keys"}
		objects := []client.Object{cluster, plane,
			&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name + "-etcd"},
				Data: authority.Data},
			&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name + "-keys"},
				Data: map[string][]byte{"recipients": []byte(identity.Recipient().String())}}}
		for _, object := range objects {
			w.Expect(w.api.Create(t.Context(), object)).To(Succeed())
		}
		reconcile()
		for path, n := range memorytest.Entries(w.r) {
			most[path] = max(most[path], n-own[path])
		}
		if i%2 == 0 {
			ends()
			reconcile()
			observe(key, time.Second, nil)
			observeNewest(key, &backup.Metadata{})
		}
		if i%3 == 2 {
			w.Expect(w.api.Get(t.Context(), key, plane)).To(Succeed())
			plane.Annotations, plane.Finalizers = map[string]string{clusterctlv1.DeleteForMoveAnnotation: ""}, nil
			w.Expect(w.api.Update(t.Context(), plane)).To(Succeed())
		}
		w.Expect(w.api.Delete(t.Context(), plane)).To(Succeed())
		reconcile()
		ends()
		for _, object := range objects {
			w.Expect(client.IgnoreNotFound(w.api.Delete(t.Context(), object))).To(Succeed())
		}
	}
	w.Expect(most).To(And(HaveKeyWithValue(".known", 1), HaveKeyWithValue(".calls.calls", 1),
		HaveKeyWithValue(".protection.seen", 1)), memorytest.Text(most))
	w.Expect(memorytest.Text(memorytest.Entries(w.r))).To(Equal(memorytest.Text(own)))
	w.Expect(series()).To(Equal(counted))
}
