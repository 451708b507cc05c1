// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package etcdbackup

import (
	"encoding/pem"
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"testing"

	"filippo.io/age"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/controller-runtime/pkg/client"

	. "github.com/onsi/gomega"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/secretprotection"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/secrettest"
)

func bucketWorld(t *testing.T) *world {
	t.Helper()
	w := newWorld(t, &controlplanev1.EtcdBackup{
		Store: controlplanev1.BackupStore{S3: &controlplanev1.BackupBucket{
			Endpoint: "https://192.0.2.1", Bucket: "snapshots", CredentialsRef: controlplanev1.SecretReference{Name: "bucket"}}},
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
				w, tokens := bucketWorld(t), secrettest.Tokens{}
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
				for range 3 {
					w.reconcile()
				}
				text := w.surface()
				w.Expect(tokens.Leaks(text)).To(BeEmpty())
				w.Expect(text).To(ContainSubstring(bad.said), "else nobody read it")
			})
		}
	}
}

// An object store quotes what it was sent, and what it made of that.
func TestNoSecretOfAnObjectStoreSurfaces(t *testing.T) {
	identity, err := age.GenerateX25519Identity()
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	w := bucketWorld(t)
	keys := secrettest.Tokens{accessKeyIDKey: secrettest.Draw(), secretAccessKeyKey: secrettest.Draw()}
	signs := secrettest.Tokens{signingKey: secrettest.Draw() + "\n" + secrettest.Draw()}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(answer http.ResponseWriter, r *http.Request) {
		answer.Header().Set("Content-Type", "application/xml")
		answer.WriteHeader(http.StatusForbidden)
		_, _ = fmt.Fprintf(answer, "<Error><Code>%s</Code><Message>no such key: %s %s</Message></Error>",
			keys[accessKeyIDKey], html.EscapeString(r.Header.Get("Authorization")), html.EscapeString(keys.Printed()))
	}))
	server.StartTLS()
	t.Cleanup(server.Close)
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	for name, data := range map[string]map[string]string{
		"bucket": {accessKeyIDKey: keys[accessKeyIDKey], secretAccessKeyKey: keys[secretAccessKeyKey],
			authorityKey: string(authority)},
		"recipients": {recipientsKey: identity.Recipient().String(), signingKey: signs[signingKey]},
	} {
		stored := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: name},
			Data: map[string][]byte{}}
		for field, value := range data {
			stored.Data[field] = []byte(value)
		}
		w.Expect(w.api.Update(t.Context(), stored)).To(Succeed())
	}
	w.edit(func(controlPlane *controlplanev1.QuoinControlPlane) {
		controlPlane.Spec.Backup.Store.S3.Endpoint = server.URL
	})
	w.request()
	w.settle()
	text := w.surface()
	w.Expect(text).To(ContainSubstring("no such key: "), "else nobody was asked")
	w.Expect(append(keys.Leaks(text), signs.Leaks(text)...)).To(BeEmpty())
}

// What a recovery opens a snapshot with is read on the manager alone, and no host hears of it.
func TestNoSecretOfARecoverySurfaces(t *testing.T) {
	identity, err := age.GenerateX25519Identity()
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	other, err := age.GenerateX25519Identity()
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	for name, c := range map[string]struct{ held, said string }{
		"it opens the snapshot":   {identity.String(), "make room there"},
		"it is another one":       {other.String(), "identity did not match any of the recipients"},
		"it is cut off":           {identity.String()[:60], "it holds no age private keys"},
		"it is something else":    {secrettest.Draw(), "it holds no age private keys"},
		"a line of it is no key":  {identity.String() + "\n" + secrettest.Draw(), "it holds no age private keys"},
		"it is a key of another":  {"AGE-SECRET-KEY-" + secrettest.Draw(), "it holds no age private keys"},
		"it is for a kind of age": {"AGE-PLUGIN-" + secrettest.Draw(), "it holds no age private keys"},
	} {
		t.Run(name, func(t *testing.T) {
			tokens := secrettest.Tokens{identityKey: c.held}
			w, shell, snapshot := lost(t, identity.Recipient().String(), c.held)
			shell.refuse = &ssh.ExitError{Code: 1, Stderr: "make room there"}
			w.recover(snapshot, "keys", "Fetching")
			w.reconcile()
			w.settle()
			text := w.surface()
			w.Expect(text).To(ContainSubstring(c.said), "else nobody read it")
			w.Expect(tokens.Leaks(text)).To(BeEmpty())
			w.Expect(tokens.Leaks(shell.scripts.String())).To(BeEmpty())
		})
	}
}
