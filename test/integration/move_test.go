// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/integration/rig"
)

// moves are the specs of an inventory that goes to another management cluster.
func moves() {
	const site = "site"
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: site, Name: "fleet-key"}, Type: corev1.SecretTypeSSHAuth,
		StringData: map[string]string{corev1.SSHAuthPrivateKey: "no key at all"}}
	host := &infrav1.QuoinHost{ObjectMeta: metav1.ObjectMeta{Namespace: site, Name: "srv-1"}, Spec: infrav1.QuoinHostSpec{
		Address: "0.0.0.10", User: "ops", CredentialsRef: infrav1.SecretReference{Name: secret.Name},
	}}
	var target *rig.Rig

	BeforeAll(func(ctx SpecContext) {
		var err error
		target, err = rig.Start(ctx, rig.Options{Name: "target", Variables: map[string]string{"CLUSTER_TOPOLOGY": "true"}})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() { Expect(target.Stop()).To(Succeed()) })
		_, err = target.Init(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(target.StartManagers(ctx)).To(Succeed())
	}, NodeTimeout(4*time.Minute))

	It("is moved with its keys by the stock clusterctl, and nobody labels anything", func(ctx SpecContext) {
		Expect(plane.Client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: site}})).To(Succeed())
		for _, object := range []client.Object{secret.DeepCopy(), host.DeepCopy()} {
			Expect(plane.Client.Create(ctx, object)).To(Succeed())
		}
		Eventually(func(g Gomega, ctx SpecContext) {
			found := &corev1.Secret{}
			g.Expect(plane.Client.Get(ctx, client.ObjectKeyFromObject(secret), found)).To(Succeed())
			g.Expect(found.Labels).To(HaveKey(clusterctlv1.ClusterctlMoveLabel))
			g.Expect(found.Finalizers).To(ConsistOf(infrav1.HostSecretFinalizer))
		}).WithContext(ctx).Should(Succeed())

		_, output, err := plane.Clusterctl(ctx, nil, "move", "-n", site, "--to-kubeconfig", target.Kubeconfig)
		Expect(err).NotTo(HaveOccurred())
		GinkgoWriter.Println(output)
		for _, object := range []client.Object{secret.DeepCopy(), host.DeepCopy()} {
			Expect(target.Client.Get(ctx, client.ObjectKeyFromObject(object), object)).To(Succeed())
			Expect(apierrors.IsNotFound(plane.Client.Get(ctx, client.ObjectKeyFromObject(object), object))).To(BeTrue())
		}
	}, NodeTimeout(4*time.Minute))

	It("keeps a key that is deleted as long as a host needs it, and lets the namespace end", func(ctx SpecContext) {
		Expect(target).NotTo(BeNil())
		Expect(target.Client.Delete(ctx, secret.DeepCopy())).To(Succeed())
		Expect(target.Client.Get(ctx, client.ObjectKeyFromObject(secret), secret)).To(Succeed())
		Expect(secret.DeletionTimestamp).NotTo(BeNil())
		_, err := target.Kubectl(ctx, "", "delete", "namespace", site, "--timeout=60s")
		Expect(err).NotTo(HaveOccurred())
		Expect(target.Refusals()).To(BeEmpty())
	}, NodeTimeout(2*time.Minute))
}
