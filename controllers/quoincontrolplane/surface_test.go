// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoincontrolplane

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/secret"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/secrettest"
)

// The Secrets of a Cluster are its authorities and its kubeconfig. What is wrong with them is said without a word of
// them.
func TestNoSecretOfAClusterSurfaces(t *testing.T) {
	purposes := []secret.Purpose{secret.ClusterCA, secret.EtcdCA, secret.FrontProxyCA, secret.ServiceAccount,
		secret.Kubeconfig}
	block := func(kind, token string) string {
		return "-----BEGIN " + kind + "-----\n" + token + "\n-----END " + kind + "-----\n"
	}
	kubeconfig := func(certificate, key string) string {
		return "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters:\n- {name: c, cluster: {server: x}}\n" +
			"contexts:\n- {name: c, context: {cluster: c, user: u}}\nusers:\n- name: u\n  user:\n" +
			"    client-certificate-data: " + certificate + "\n    client-key-data: " + key + "\n"
	}
	encoded := func(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }
	for name, c := range map[string]struct {
		// content of a Secret's keys with a token.
		content func(token string) map[string]string
		// said of the kubeconfig, or of etcd's authority.
		said []string
	}{
		"no PEM": {func(token string) map[string]string {
			return map[string]string{secret.TLSCrtDataName: token, secret.TLSKeyDataName: token,
				secret.KubeconfigDataName: token}
		}, []string{"kubeconfig Secret", "etcd authority's certificate"}},
		"PEM of something else": {func(token string) map[string]string {
			return map[string]string{secret.TLSCrtDataName: block("CERTIFICATE", token),
				secret.TLSKeyDataName:     block("EC PRIVATE KEY", token),
				secret.KubeconfigDataName: kubeconfig(encoded(block("CERTIFICATE", token)), encoded(block("PRIVATE KEY", token)))}
		}, []string{"kubeconfig Secret", "etcd authority's certificate"}},
		"a key that is none": {func(token string) map[string]string {
			return map[string]string{secret.TLSKeyDataName: block("EC PRIVATE KEY", token),
				secret.KubeconfigDataName: kubeconfig(token+"!", token)}
		}, []string{"kubeconfig Secret", "etcd authority's key"}},
		"broken YAML": {func(token string) map[string]string {
			return map[string]string{secret.TLSKeyDataName: token + ": *" + token,
				secret.KubeconfigDataName: "users:\n  " + token + ": [" + token + "\n- " + token}
		}, []string{"kubeconfig Secret", "etcd authority's key"}},
		"another type": {func(token string) map[string]string {
			return map[string]string{secret.KubeconfigDataName: "apiVersion: v1\nkind: Config\nusers: " + token + "\n"}
		}, []string{"kubeconfig Secret"}},
		"an unknown kind": {func(token string) map[string]string {
			return map[string]string{secret.KubeconfigDataName: "apiVersion: v1\nkind: Config\n" + token + ": " + token + "\n"}
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1)
			initialized(t, w)
			tokens, text := secrettest.Tokens{}, &strings.Builder{}
			ctx := ctrl.LoggerInto(t.Context(), funcr.New(func(prefix, args string) {
				text.WriteString(prefix + args + "\n")
			}, funcr.Options{Verbosity: 10}))
			for _, purpose := range purposes {
				cluster := client.ObjectKey{Namespace: namespace, Name: "c"}
				stored, err := secret.GetFromNamespacedName(ctx, w.mgmt, cluster, purpose)
				w.g.Expect(err).NotTo(HaveOccurred())
				tokens[string(purpose)] = secrettest.Draw()
				for field, content := range c.content(tokens[string(purpose)]) {
					if _, has := stored.Data[field]; has {
						stored.Data[field] = []byte(content)
					}
				}
				w.g.Expect(w.mgmt.Update(ctx, stored)).To(Succeed())
			}
			for range 6 {
				if _, err := w.r.Reconcile(ctx, ctrl.Request{NamespacedName: key}); err != nil {
					text.WriteString(err.Error() + "\n")
				}
			}
			for _, list := range []client.ObjectList{&controlplanev1.QuoinControlPlaneList{}, &clusterv1.MachineList{},
				&bootstrapv1.KubeadmConfigList{}, &infrav1.QuoinMachineList{}, &clusterv1.ClusterList{}, &corev1.EventList{}} {
				w.g.Expect(w.mgmt.List(ctx, list)).To(Succeed())
				data, err := json.Marshal(list)
				w.g.Expect(err).NotTo(HaveOccurred())
				text.Write(data)
			}
			for said := w.r.Recorder.(*events.FakeRecorder).Events; len(said) > 0; {
				fmt.Fprintln(text, <-said)
			}
			w.g.Expect(tokens.Leaks(text.String())).To(BeEmpty())
			for _, said := range c.said {
				w.g.Expect(text.String()).To(ContainSubstring(said), "else nobody read them")
			}
		})
	}
}
