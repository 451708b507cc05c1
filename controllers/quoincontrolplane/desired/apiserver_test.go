// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package desired_test

import (
	"os"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/quoin-dev/cluster-api-provider-quoin/controllers/quoincontrolplane/desired"
)

// grace is what the kubelet gives the pod of an API server to end, before it kills it.
const grace = 30 * time.Second

// An API server that somebody watches ends by itself when it is asked to, and its watches with it, before it is killed.
func TestAnAPIServerThatIsWatchedEndsByItself(t *testing.T) {
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		t.Skip("KUBEBUILDER_ASSETS does not say where the API server is")
	}
	g := NewWithT(t)
	var server bootstrapv1.APIServer
	desired.DefaultAPIServer(&server)
	env := &envtest.Environment{ControlPlaneStopTimeout: grace}
	for _, arg := range server.ExtraArgs {
		env.ControlPlane.GetAPIServer().Configure().Set(arg.Name, *arg.Value)
	}
	config, err := env.Start()
	g.Expect(err).NotTo(HaveOccurred())
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		_ = env.Stop()
		t.Fatal(err)
	}
	watch, err := client.CoreV1().Namespaces().Watch(t.Context(), metav1.ListOptions{})
	stopped := env.Stop() // says so when it was not gone after the grace
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(stopped).To(Succeed())
	g.Eventually(watch.ResultChan()).WithTimeout(time.Second).Should(BeClosed())
}
