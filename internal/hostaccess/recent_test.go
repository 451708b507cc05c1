// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package hostaccess

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sshtest"
)

// counted is a reader that says how often Secrets were read.
func counted(c client.WithWatch, reads *int) client.Reader {
	return interceptor.NewClient(c, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object,
			options ...client.GetOption) error {
			*reads++
			return c.Get(ctx, key, object, options...)
		},
	})
}

func TestASecretIsKeptForSecondsOnly(t *testing.T) {
	g := NewWithT(t)
	stored, reads, now := secret(corev1.SecretTypeSSHAuth, map[string][]byte{"a": []byte("1")}), 0, time.Now()
	c := fake.NewClientBuilder().WithObjects(stored).Build()
	r := recently(counted(c, &reads))
	r.now = func() time.Time { return now }
	read := func() string {
		found := &corev1.Secret{}
		g.Expect(r.Get(t.Context(), client.ObjectKeyFromObject(stored), found)).To(Succeed())
		value := string(found.Data["a"])
		found.Data["a"][0] = 'x'
		return value
	}
	g.Expect(read()).To(Equal("1"))
	g.Expect(read()).To(Equal("1"), "what one reader does to it, no other sees")
	g.Expect(reads).To(Equal(1))

	changed := stored.DeepCopy()
	changed.Data["a"] = []byte("2")
	changed.ResourceVersion = ""
	g.Expect(c.Update(t.Context(), changed)).To(Succeed())
	now = now.Add(lasting)
	g.Expect(read()).To(Equal("2"))
	g.Expect(reads).To(Equal(2))

	r.forget(client.ObjectKeyFromObject(stored))
	g.Expect(c.Delete(t.Context(), changed)).To(Succeed())
	g.Expect(r.Get(t.Context(), client.ObjectKeyFromObject(stored), &corev1.Secret{})).
		To(MatchError(ContainSubstring("not found")))
	g.Expect(r.Get(t.Context(), client.ObjectKeyFromObject(stored), &corev1.Secret{})).
		To(MatchError(ContainSubstring("not found")))
	g.Expect(reads).To(Equal(4), "what is not there is looked for each time")
}

func TestASecretThatIsReadNoLongerIsNotHeld(t *testing.T) {
	g := NewWithT(t)
	now := time.Now()
	stored := func(name string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "hosts", Name: name}}
	}
	r := recently(fake.NewClientBuilder().WithObjects(stored("a"), stored("b"), stored("c")).Build())
	r.now = func() time.Time { return now }
	read := func(name string) {
		g.Expect(r.Get(t.Context(), client.ObjectKey{Namespace: "hosts", Name: name}, &corev1.Secret{})).To(Succeed())
	}
	read("a")
	now = now.Add(lasting / 2)
	read("b")
	now = now.Add(lasting / 2)
	read("c")
	g.Expect(r.read).To(And(HaveLen(2), HaveKey(client.ObjectKey{Namespace: "hosts", Name: "b"}),
		HaveKey(client.ObjectKey{Namespace: "hosts", Name: "c"})))
}

func TestConnectionsFromAHostReadItsSecretOnceUntilItLeadsNowhere(t *testing.T) {
	g, server, host, first := setup(t)
	key, err := first.Identify(t.Context(), host)
	g.Expect(err).NotTo(HaveOccurred())
	host.Spec.HostKeys = []string{key}
	stored := &corev1.Secret{}
	g.Expect(first.reader.Get(t.Context(), client.ObjectKey{Namespace: "hosts", Name: "ssh"}, stored)).To(Succeed())
	good := stored.Data[corev1.SSHAuthPrivateKey]
	_, bad := sshtest.NewKeyPair()
	stored.ResourceVersion, stored.Data[corev1.SSHAuthPrivateKey] = "", bad
	c, reads := fake.NewClientBuilder().WithObjects(stored).Build(), 0
	connector := New(counted(c, &reads), ssh.PoolOptions{DialTimeout: 5 * time.Second})
	defer connector.Close()
	began := time.Now()
	connector.recent.now = func() time.Time { return began }

	_, err = connector.DialHost(t.Context(), host, "tcp", "127.0.0.1:1")
	var refused *ssh.AuthError
	g.Expect(err).To(BeAssignableToTypeOf(refused))
	g.Expect(c.Get(t.Context(), client.ObjectKeyFromObject(stored), stored)).To(Succeed())
	stored.Data[corev1.SSHAuthPrivateKey] = good
	g.Expect(c.Update(t.Context(), stored)).To(Succeed())
	for range 3 {
		// The host is reached, and nothing listens there.
		_, err = connector.DialHost(t.Context(), host, "tcp", "127.0.0.1:1")
		g.Expect(err).To(HaveOccurred())
		g.Expect(err).NotTo(BeAssignableToTypeOf(refused))
	}
	g.Expect(reads).To(Equal(2), "once in vain, and once more")
	g.Expect(server.Accepted()).To(BeNumerically(">=", 1))

	_, err = connector.Connect(t.Context(), host)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(reads).To(Equal(3), "who works on a host always reads it")
	_, err = connector.ConnectAgain(t.Context(), host)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(reads).To(Equal(3), "who asks again has read it just now")
}
