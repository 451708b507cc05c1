// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package secretprotection

import (
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/quoin-dev/cluster-api-provider-quoin/test/memorytest"
)

// What refers to a Secret goes, refers to another one, or outlives it.
func TestNothingIsRememberedOfSecretsThatNobodyNeeds(t *testing.T) {
	b := newBench(t, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "host"}})
	most := 0
	for i := range memorytest.Lives {
		name := fmt.Sprintf("s%d", i)
		b.Expect(b.client.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name}})).
			To(Succeed())
		b.keep(name)
		most = max(most, memorytest.Entries(b.p)[".seen"])
		if i%3 == 2 {
			secret := b.secret(name)
			secret.Finalizers = nil
			b.Expect(b.client.Update(t.Context(), secret)).To(Succeed())
			b.Expect(b.client.Delete(t.Context(), secret)).To(Succeed())
		}
		if i%3 > 0 {
			b.Expect(b.p.Release(t.Context(), b.referrer(name))).To(Succeed())
		}
	}
	b.keep()
	b.Expect(most).To(Equal(1))
	b.Expect(memorytest.Text(memorytest.Entries(b.p))).To(BeEmpty())
}

// A move takes the object away without a release, and its Secret too, or leaves that where it is.
func TestNothingIsRememberedForAnObjectThatWasMovedAway(t *testing.T) {
	b := newBench(t, host(), key("ssh"))
	b.keep("ssh")
	b.p.Forget(client.ObjectKey{Namespace: "n", Name: "other"})
	b.Expect(memorytest.Text(memorytest.Entries(b.p))).To(Equal("seen: 1"))
	b.p.Forget(client.ObjectKey{Namespace: "n", Name: "host"})
	b.Expect(memorytest.Text(memorytest.Entries(b.p))).To(BeEmpty())
	b.keep("ssh")
	b.Expect(b.gets).To(Equal(2), "whoever refers to it looks at it again")
}
