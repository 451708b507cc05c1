// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package secretprotection

import (
	"context"
	"errors"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"

	"github.com/quoin-dev/cluster-api-provider-quoin/test/clienttest"
)

const finalizer = "quoin.test/secret-protection"

// bench is an API server with ConfigMaps that refer to Secrets.
type bench struct {
	*WithT
	t      *testing.T
	client client.Client
	p      *Protection
	now    time.Time
	gets   int
	// fails makes the next write of a Secret fail.
	fails error
	// needed are the Secrets that something else needs.
	needed map[string]bool
}

func newBench(t *testing.T, objects ...client.Object) *bench {
	t.Helper()
	b := &bench{WithT: NewWithT(t), t: t, now: time.Now(), needed: map[string]bool{}}
	b.client = clienttest.Unmanaged(clientgoscheme.Scheme).WithObjects(objects...).
		WithInterceptorFuncs(interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object,
				options ...client.GetOption) error {
				if _, ok := object.(*metav1.PartialObjectMetadata); ok {
					b.gets++
				}
				return c.Get(ctx, key, object, options...)
			},
			Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch,
				options ...client.PatchOption) error {
				if _, ok := object.(*metav1.PartialObjectMetadata); ok && b.fails != nil {
					err := b.fails
					b.fails = nil
					return err
				}
				return c.Patch(ctx, object, patch, options...)
			},
		}).Build()
	b.restart()
	return b
}

// restart forgets what the process knew.
func (b *bench) restart() {
	b.p = &Protection{Client: b.client, Reader: b.client, Finalizer: finalizer, Now: func() time.Time { return b.now }}
}

func (b *bench) referrer(secrets ...string) Referrer {
	object := &corev1.ConfigMap{}
	b.Expect(b.client.Get(b.t.Context(), client.ObjectKey{Namespace: "n", Name: "host"}, object)).To(Succeed())
	return Referrer{Object: object, Secrets: names(secrets...), NeededElsewhere: func(_ context.Context,
		name string) (bool, error) {
		return b.needed[name], nil
	}}
}

func (b *bench) secret(name string) *corev1.Secret {
	secret := &corev1.Secret{}
	err := b.client.Get(b.t.Context(), client.ObjectKey{Namespace: "n", Name: name}, secret)
	if apierrors.IsNotFound(err) {
		return nil
	}
	b.Expect(err).NotTo(HaveOccurred())
	return secret
}

func (b *bench) keep(secrets ...string) []Verdict {
	b.t.Helper()
	verdicts, err := b.p.Keep(b.t.Context(), b.referrer(secrets...))
	b.Expect(err).NotTo(HaveOccurred())
	return verdicts
}

func (b *bench) recorded() string {
	return b.referrer().Object.GetAnnotations()[ProtectedSecretsAnnotation]
}

func host() client.Object {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "host",
		Annotations: map[string]string{"a": "b"}}}
}

func key(name string, changes ...func(*corev1.Secret)) *corev1.Secret {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name},
		Data: map[string][]byte{"ssh-privatekey": []byte("secret")}}
	for _, change := range changes {
		change(secret)
	}
	return secret
}

func ownedBy(apiVersion, kind string) func(*corev1.Secret) {
	return func(s *corev1.Secret) {
		s.OwnerReferences = []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: "o", UID: "u"}}
	}
}

func TestASecretThatIsReferredToMovesAndStays(t *testing.T) {
	b := newBench(t, host(), key("ssh", func(s *corev1.Secret) { s.Finalizers = []string{"somebody/else"} }))
	b.Expect(b.keep("ssh", "later")).To(BeEmpty())
	secret := b.secret("ssh")
	b.Expect(secret.Labels).To(HaveKeyWithValue(clusterctlv1.ClusterctlMoveLabel, ""))
	b.Expect(secret.Finalizers).To(ConsistOf("somebody/else", finalizer))
	b.Expect(secret.OwnerReferences).To(BeEmpty())
	b.Expect(secret.Data).To(HaveLen(1))
	b.Expect(b.recorded()).To(Equal("later,ssh"), "also one that does not exist yet")
	b.Expect(b.referrer().Object.GetAnnotations()).To(HaveKeyWithValue("a", "b"))

	b.Expect(b.client.Create(t.Context(), key("later"))).To(Succeed())
	b.keep("ssh", "later")
	b.Expect(b.secret("later").Finalizers).To(ConsistOf(finalizer))

	b.Expect(b.client.Delete(t.Context(), b.secret("later"))).To(Succeed())
	b.Expect(b.secret("later")).NotTo(BeNil(), "a hasty delete takes no key away")
	b.now = b.now.Add(recheck)
	verdicts := b.keep("ssh", "later")
	b.Expect(verdicts).To(HaveLen(1))
	b.Expect(verdicts[0].Reason).To(Equal(DeletingReason))
	b.Expect(verdicts[0].Message).To(And(ContainSubstring("n/later"), ContainSubstring("make another Secret")))

	b.keep("ssh")
	b.Expect(b.secret("later")).To(BeNil(), "nothing refers to it any more")
	b.Expect(b.recorded()).To(Equal("ssh"))
	b.Expect(b.p.Release(t.Context(), b.referrer("ssh"))).To(Succeed())
	b.Expect(b.secret("ssh").Finalizers).To(ConsistOf("somebody/else"))
}

// Who dies between two writes leaves no finalizer that nobody takes away.
func TestAKilledManagerForgetsNoSecret(t *testing.T) {
	b := newBench(t, host(), key("old"), key("new"))
	b.fails = errors.New("the API server is away")
	_, err := b.p.Keep(t.Context(), b.referrer("old"))
	b.Expect(err).To(MatchError(ContainSubstring("the API server is away")))
	b.Expect(b.recorded()).To(Equal("old"), "before its finalizer")
	b.keep("old", "new")
	b.fails = errors.New("the API server is away")
	_, err = b.p.Keep(t.Context(), b.referrer("new"))
	b.Expect(err).To(MatchError(ContainSubstring("the API server is away")))
	b.Expect(b.recorded()).To(Equal("new,old"), "until its finalizer is gone")
	b.restart()
	b.keep("new")
	b.Expect(b.secret("old").Finalizers).To(BeEmpty())
	b.Expect(b.secret("new").Finalizers).To(ConsistOf(finalizer))
	b.Expect(b.recorded()).To(Equal("new"))
}

func TestASecretThatAnotherNeedsIsNotReleased(t *testing.T) {
	b := newBench(t, host(), key("ssh"))
	b.keep("ssh")
	b.needed["ssh"] = true
	b.keep()
	b.Expect(b.secret("ssh").Finalizers).To(ConsistOf(finalizer))
	b.Expect(b.recorded()).To(BeEmpty(), "the other one has it in its own list")
}

func TestASecretIsLookedAtNowAndThen(t *testing.T) {
	b := newBench(t, host(), key("ssh"))
	for range 5 {
		b.keep("ssh")
	}
	b.Expect(b.gets).To(Equal(1))
	stripped := b.secret("ssh")
	stripped.Labels, stripped.Finalizers = nil, nil
	b.Expect(b.client.Update(t.Context(), stripped)).To(Succeed())
	b.now = b.now.Add(recheck)
	b.keep("ssh")
	b.Expect(b.secret("ssh").Finalizers).To(ConsistOf(finalizer))
	b.Expect(b.secret("ssh").Labels).To(HaveKey(clusterctlv1.ClusterctlMoveLabel))
}

func TestASecretThatClusterctlIsMovingIsNotTouched(t *testing.T) {
	b := newBench(t, host(), key("ssh", func(s *corev1.Secret) {
		s.Annotations = map[string]string{clusterctlv1.DeleteForMoveAnnotation: ""}
		s.Finalizers = []string{finalizer}
	}))
	b.Expect(b.keep("ssh")).To(BeEmpty())
	b.Expect(b.secret("ssh").Labels).To(BeEmpty())
	b.Expect(b.p.Release(t.Context(), b.referrer("ssh"))).To(Succeed())
	b.Expect(b.secret("ssh").Finalizers).To(ConsistOf(finalizer))
}

func TestASecretWithAForeignOwnerIsReportedAndNotLabeled(t *testing.T) {
	b := newBench(t, host(), key("ssh", ownedBy("external-secrets.io/v1", "ExternalSecret")))
	verdicts := b.keep("ssh")
	b.Expect(verdicts).To(HaveLen(1))
	b.Expect(verdicts[0].Owner).To(Equal("ExternalSecret o"))
	b.Expect(verdicts[0].Message).To(And(ContainSubstring("Secret n/ssh"), ContainSubstring("before the move")))
	b.Expect(b.secret("ssh").Labels).To(BeEmpty())
	b.Expect(b.secret("ssh").Finalizers).To(ConsistOf(finalizer), "its host is released with it")
	b.now = b.now.Add(recheck)
	b.Expect(b.keep("ssh")).To(BeEmpty(), "once is enough")
}

func TestWhatClusterctlTakesAlong(t *testing.T) {
	labeled := func(s *corev1.Secret) { s.Labels = map[string]string{clusterctlv1.ClusterctlMoveLabel: ""} }
	for name, c := range map[string]struct {
		secret *corev1.Secret
		reason string
	}{
		"a label":                {key("s", labeled), ""},
		"no label":               {key("s"), NotLabeledReason},
		"an owner that moves":    {key("s", ownedBy("bootstrap.cluster.x-k8s.io/v1beta2", "KubeadmConfig")), ""},
		"a Cluster as its owner": {key("s", ownedBy("cluster.x-k8s.io/v1beta2", "Cluster")), ""},
		"a label and a foreign owner": {key("s", labeled, ownedBy("bitnami.com/v1alpha1", "SealedSecret")),
			ForeignOwnerReason},
		"an owner of the core group": {key("s", labeled, ownedBy("v1", "ConfigMap")), ForeignOwnerReason},
		"a similar group":            {key("s", labeled, ownedBy("notcluster.x-k8s.io/v1", "X")), ForeignOwnerReason},
		"a deletion": {key("s", labeled, func(s *corev1.Secret) {
			now := metav1.Now()
			s.DeletionTimestamp = &now
		}), DeletingReason},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			verdict := Movable(c.secret)
			g.Expect(verdict.Reason).To(Equal(c.reason))
			g.Expect(verdict.Allowed).To(Equal(c.reason == ""))
			g.Expect(verdict.Message == "").To(Equal(verdict.Allowed))
		})
	}
}
