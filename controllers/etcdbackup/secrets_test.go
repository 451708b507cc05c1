// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package etcdbackup

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"filippo.io/age"
	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	. "github.com/onsi/gomega"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/secretprotection"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/secrettest"
)

func bucketWorld(t *testing.T) *world {
	t.Helper()
	w := newWorld(t, &controlplanev1.EtcdBackup{
		Store: controlplanev1.BackupStore{S3: &controlplanev1.BackupBucket{
			Endpoint: "https://192.0.2.1", Bucket: "b", CredentialsRef: controlplanev1.SecretReference{Name: "bucket"}}},
		EncryptionKeyRef: controlplanev1.SecretReference{Name: "recipients"},
	})
	for _, name := range []string{"bucket", "recipients", "other"} {
		w.Expect(w.api.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace,
			Name: name}})).To(Succeed())
	}
	return w
}

func (w *world) finalizers(name string) []string {
	secret := &corev1.Secret{}
	err := w.api.Get(w.t.Context(), client.ObjectKey{Namespace: key.Namespace, Name: name}, secret)
	if apierrors.IsNotFound(err) {
		return []string{"gone"}
	}
	w.Expect(err).NotTo(HaveOccurred())
	_, labeled := secret.Labels[clusterctlv1.ClusterctlMoveLabel]
	w.Expect(labeled).To(Equal(len(secret.Finalizers) > 0), name)
	return secret.Finalizers
}

func TestTheSecretsOfBackupsMoveAndStay(t *testing.T) {
	w := bucketWorld(t)
	w.settle()
	w.Expect(w.finalizers("bucket")).To(ConsistOf(controlplanev1.BackupSecretFinalizer))
	w.Expect(w.finalizers("recipients")).To(ConsistOf(controlplanev1.BackupSecretFinalizer))
	w.Expect(w.finalizers("other")).To(BeEmpty())
	w.Expect(w.controlPlane().Finalizers).To(ConsistOf(controlplanev1.ControlPlaneFinalizer,
		controlplanev1.BackupSecretFinalizer))

	// A hasty deletion, and the end of the control plane.
	w.Expect(w.api.Delete(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace,
		Name: "bucket"}})).To(Succeed())
	w.reconcile()
	w.Expect(w.api.Delete(t.Context(), w.controlPlane())).To(Succeed())
	w.reconcile()
	w.Expect(w.finalizers("bucket")).To(ConsistOf("gone"))
	w.Expect(w.controlPlane().Finalizers).To(ConsistOf(controlplanev1.ControlPlaneFinalizer))
}

func TestBackupsThatAreNoLongerWantedReleaseTheirSecrets(t *testing.T) {
	w := bucketWorld(t)
	w.settle()
	controlPlane := w.controlPlane()
	controlPlane.Spec.Backup = nil
	w.Expect(w.api.Update(t.Context(), controlPlane)).To(Succeed())
	w.settle()
	controlPlane = w.controlPlane()
	w.Expect(controlPlane.Finalizers).To(ConsistOf(controlplanev1.ControlPlaneFinalizer))
	w.Expect(secretprotection.Holds(controlPlane)).To(BeFalse())
	for _, name := range []string{"bucket", "recipients"} {
		secret := &corev1.Secret{}
		w.Expect(w.api.Get(t.Context(), client.ObjectKey{Namespace: key.Namespace, Name: name}, secret)).To(Succeed())
		w.Expect(secret.Finalizers).To(BeEmpty())
	}
}

func TestAPausedControlPlaneTouchesNoSecret(t *testing.T) {
	w := bucketWorld(t)
	cluster := &clusterv1.Cluster{}
	w.Expect(w.api.Get(t.Context(), client.ObjectKey{Namespace: key.Namespace, Name: "c"}, cluster)).To(Succeed())
	cluster.Spec.Paused = ptr.To(true)
	w.Expect(w.api.Update(t.Context(), cluster)).To(Succeed())
	w.reconcile()
	w.Expect(w.finalizers("bucket")).To(BeEmpty())
	w.Expect(w.controlPlane().Finalizers).To(ConsistOf(controlplanev1.ControlPlaneFinalizer))
}

// What is wrong with a Secret is said without a word of any: etcd's authority, the keys of a bucket and of encryption.
func TestNoSecretOfABackupSurfaces(t *testing.T) {
	identity, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	forms := []func(token string) string{
		func(token string) string { return token[:31] },
		func(token string) string {
			return "-----BEGIN EC PRIVATE KEY-----\n" + token + "\n-----END EC PRIVATE KEY-----\n"
		},
		func(token string) string { return "AGE-SECRET-KEY-" + token },
		func(token string) string { return "age1" + token },
	}
	for _, bad := range []struct{ secret, field, said string }{
		{"c-etcd", "tls.crt", ""}, {"c-etcd", "tls.key", ""}, {"recipients", recipientsKey, "Secret recipients, key"},
		{"recipients", signingKey, ""}, {"bucket", authorityKey, ""},
	} {
		for i, form := range forms {
			t.Run(fmt.Sprint(bad.secret, " ", bad.field, " ", i), func(t *testing.T) {
				w, text, tokens := bucketWorld(t), &strings.Builder{}, secrettest.Tokens{}
				fields := map[string][]string{"bucket": {accessKeyIDKey, secretAccessKeyKey}, "recipients": {signingKey}}
				fields[bad.secret] = append(fields[bad.secret], bad.field)
				for name := range fields {
					stored := &corev1.Secret{}
					w.Expect(w.api.Get(t.Context(), client.ObjectKey{Namespace: key.Namespace, Name: name}, stored)).To(Succeed())
					if stored.Data == nil {
						stored.Data = map[string][]byte{}
					}
					if name == "recipients" {
						stored.Data[recipientsKey] = []byte(identity.Recipient().String())
					}
					for _, field := range fields[name] {
						token := secrettest.Draw()
						tokens[name+" "+field], stored.Data[field] = token[:31], []byte(token)
						if name == bad.secret && field == bad.field {
							stored.Data[field] = []byte(form(token))
						}
					}
					w.Expect(w.api.Update(t.Context(), stored)).To(Succeed())
				}
				ctx := ctrl.LoggerInto(t.Context(), funcr.New(func(prefix, args string) {
					text.WriteString(prefix + args + "\n")
				}, funcr.Options{Verbosity: 10}))
				for range 3 {
					if _, err := w.r.Reconcile(ctx, ctrl.Request{NamespacedName: key}); err != nil {
						text.WriteString(err.Error() + "\n")
					}
				}
				data, err := json.Marshal(w.controlPlane())
				w.Expect(err).NotTo(HaveOccurred())
				fmt.Fprintln(text, string(data), w.told, w.events())
				w.Expect(tokens.Leaks(text.String())).To(BeEmpty())
				w.Expect(text.String()).To(ContainSubstring(bad.said), "else nobody read it")
			})
		}
	}
}
