// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinhost

import (
	"context"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
)

func credentialsSecret(name string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "hosts", Name: name}}
}

// secret is nil when there is none.
func (w *world) secret(name string) *corev1.Secret {
	secret := &corev1.Secret{}
	err := w.client.Get(context.Background(), client.ObjectKey{Namespace: "hosts", Name: name}, secret)
	if apierrors.IsNotFound(err) {
		return nil
	}
	w.g.Expect(err).NotTo(HaveOccurred())
	return secret
}

func TestTheSecretsOfAHostMoveWithItAndStay(t *testing.T) {
	host := newHost()
	host.Spec.Bastion = &infrav1.Bastion{Address: "192.0.2.1", CredentialsRef: &infrav1.SecretReference{Name: "jump"}}
	host.Spec.BMC = &infrav1.BMC{Address: "https://192.0.2.2", CredentialsRef: infrav1.SecretReference{Name: "bmc"}}
	w := newWorld(t, host, credentialsSecret("ssh"), credentialsSecret("jump"), credentialsSecret("bmc"),
		credentialsSecret("other"))
	w.untilState(infrav1.HostStateAvailable)
	for _, name := range []string{"ssh", "jump", "bmc"} {
		w.g.Expect(w.secret(name).Labels).To(HaveKey(clusterctlv1.ClusterctlMoveLabel), name)
		w.g.Expect(w.secret(name).Finalizers).To(ConsistOf(infrav1.HostSecretFinalizer), name)
		w.g.Expect(w.secret(name).OwnerReferences).To(BeEmpty(), name)
	}
	w.g.Expect(w.secret("other").Labels).To(BeEmpty())
	w.g.Expect(w.secret("other").Finalizers).To(BeEmpty())

	w.update(func(h *infrav1.QuoinHost) { h.Spec.CredentialsRef.Name, h.Spec.Bastion = "other", nil })
	w.reconcile()
	w.g.Expect(w.secret("ssh").Finalizers).To(BeEmpty())
	w.g.Expect(w.secret("jump").Finalizers).To(BeEmpty())
	w.g.Expect(w.secret("other").Finalizers).To(ConsistOf(infrav1.HostSecretFinalizer))
	w.g.Expect(w.secret("bmc").Finalizers).To(ConsistOf(infrav1.HostSecretFinalizer))
}

// kubectl delete namespace deletes everything at once: the key is there until the last host is clean.
func TestTheKeyStaysUntilTheHostIsClean(t *testing.T) {
	w := claimedWorld(t, false)
	second := newHost()
	second.Name, second.UID = "h2", "other-uid"
	w.create(credentialsSecret("ssh"), second)
	w.untilState(infrav1.HostStateProvisioned)
	for _, object := range []client.Object{w.secret("ssh"), w.host()} {
		w.g.Expect(w.client.Delete(t.Context(), object)).To(Succeed())
	}
	deleteMachine(w)
	w.until("clean", (*infrav1.QuoinHost).Released)
	w.g.Expect(w.secret("ssh")).NotTo(BeNil())
	finish(w, &infrav1.QuoinMachine{}, "qm1")
	finish(w, &clusterv1.Machine{}, "m1")
	for range 20 {
		if err := w.client.Get(t.Context(), w.key, &infrav1.QuoinHost{}); err != nil {
			break
		}
		w.reconcile()
	}
	w.g.Expect(apierrors.IsNotFound(w.client.Get(t.Context(), w.key, &infrav1.QuoinHost{}))).To(BeTrue())
	w.g.Expect(w.secret("ssh")).NotTo(BeNil(), "the other host needs it still")

	w.key.Name = "h2"
	w.reconcile()
	w.g.Expect(w.client.Delete(t.Context(), w.host())).To(Succeed())
	w.reconcile()
	w.g.Expect(w.secret("ssh")).To(BeNil())
}

func TestAPausedHostTouchesNoSecret(t *testing.T) {
	host := newHost()
	host.Annotations = map[string]string{clusterv1.PausedAnnotation: ""}
	w := newWorld(t, host, credentialsSecret("ssh"))
	w.linger(3)
	w.g.Expect(w.secret("ssh").Labels).To(BeEmpty())
	w.g.Expect(w.secret("ssh").Finalizers).To(BeEmpty())
}
