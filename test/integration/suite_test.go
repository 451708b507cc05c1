// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package integration proves that our providers and Cluster API's own managers work together, without containers.
package integration

import (
	"os"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/quoin-dev/cluster-api-provider-quoin/test/integration/rig"
)

const (
	// namespace of the clusters.
	namespace = "tenant"
	// oldVersion and newVersion of Kubernetes; nothing of them is installed here.
	oldVersion, newVersion = "v1.35.4", "v1.36.3"
)

// plane is the management plane that all specs share.
var plane *rig.Rig

func TestIntegration(t *testing.T) {
	if os.Getenv(rig.AssetsVariable) == "" {
		t.Skipf("%s is not set: `make test-integration` sets it", rig.AssetsVariable)
	}
	RegisterFailHandler(Fail)
	logf.SetLogger(GinkgoLogr)
	SetDefaultEventuallyTimeout(3 * time.Minute)
	SetDefaultEventuallyPollingInterval(200 * time.Millisecond)
	RunSpecs(t, "management plane")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	By("starting an API server")
	var err error
	plane, err = rig.Start(ctx, rig.Options{
		Name: "suite",
		// ClusterClass is behind a gate.
		Variables: map[string]string{"CLUSTER_TOPOLOGY": "true"},
	})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(plane.Stop()).To(Succeed()) })
	GinkgoWriter.Println("logs and kubeconfigs:", plane.Dir)

	By("installing the providers")
	output, err := plane.Init(ctx)
	Expect(err).NotTo(HaveOccurred())
	GinkgoWriter.Println(output)

	By("running the managers")
	Expect(plane.StartManagers(ctx)).To(Succeed())
	Expect(plane.Client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})).To(Succeed())
	// With empty caches every manager is built first, while the other packages' tests are compiled: that alone took ten
	// minutes.
}, NodeTimeout(30*time.Minute))
