// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/cluster-api/util/contract"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/hack/components/repository"
)

// The specs build on each other, and the last one judges what all of them made the managers do.
var _ = Describe("The providers", Ordered, ContinueOnFailure, func() {
	Context("as clusterctl init installs them", func() {
		It("are in clusterctl's inventory, each with its version", func(ctx SpecContext) {
			providers := &unstructured.UnstructuredList{}
			providers.SetGroupVersionKind(schema.GroupVersionKind{
				Group: "clusterctl.cluster.x-k8s.io", Version: "v1alpha3", Kind: "ProviderList",
			})
			Expect(plane.Client.List(ctx, providers)).To(Succeed())
			installed := map[string]any{}
			for _, provider := range providers.Items {
				installed[provider.GetName()] = provider.Object["version"]
			}
			for _, written := range plane.Repository.Providers {
				Expect(installed).To(HaveKeyWithValue(written.Label, written.Version))
			}
			Expect(installed).To(HaveLen(len(repository.Labels())))
		})

		It("follow one contract, so that clusterctl finds nothing to say", func(ctx SpecContext) {
			plan, _, err := plane.Clusterctl(ctx, nil, "upgrade", "plan")
			Expect(err).NotTo(HaveOccurred())
			Expect(plan).To(ContainSubstring("v1beta2"))
			Expect(plan).To(ContainSubstring("quoin"))
		})

		It("bring CRDs that Cluster API's managers can find by kind and contract", func(ctx SpecContext) {
			crds := &apiextensionsv1.CustomResourceDefinitionList{}
			Expect(plane.Client.List(ctx, crds)).To(Succeed())
			seen := 0
			for _, crd := range crds.Items {
				if crd.Spec.Group != infrav1.GroupVersion.Group && crd.Spec.Group != controlplanev1.GroupVersion.Group {
					continue
				}
				seen++
				Expect(crd.Name).To(Equal(contract.CalculateCRDName(crd.Spec.Group, crd.Spec.Names.Kind)))
				Expect(crd.Labels).To(HaveKeyWithValue("cluster.x-k8s.io/v1beta2", "v1alpha1"), crd.Name)
			}
			Expect(seen).To(BeNumerically(">=", 7))
		})

		It("have managers that serve metrics", func(ctx SpecContext) {
			for label, manager := range plane.Managers {
				request, err := http.NewRequestWithContext(ctx, http.MethodGet, manager.Diagnostics+"/metrics", http.NoBody)
				Expect(err).NotTo(HaveOccurred())
				response, err := http.DefaultClient.Do(request)
				Expect(err).NotTo(HaveOccurred(), label)
				Expect(response.Body.Close()).To(Succeed())
				Expect(response).To(HaveHTTPStatus(http.StatusOK), label)
			}
		})
	})

	Context("with clusterctl generate cluster", func() {
		It("render every template to objects that the API server accepts", func(ctx SpecContext) {
			files, err := filepath.Glob(filepath.Join(plane.Root, "templates", "cluster-template*.yaml"))
			Expect(err).NotTo(HaveOccurred())
			Expect(files).NotTo(BeEmpty())
			for i, file := range files {
				flavor := strings.TrimPrefix(strings.TrimSuffix(strings.TrimPrefix(filepath.Base(file), "cluster-template"), ".yaml"), "-")
				By(fmt.Sprintf("rendering flavor %q", flavor))
				manifests, err := generate(ctx, fmt.Sprintf("rendered-%d", i), flavor)
				Expect(err).NotTo(HaveOccurred())
				Expect(os.WriteFile(filepath.Join(plane.Dir, "generated-"+filepath.Base(file)), []byte(manifests), 0o644)).To(Succeed())
				_, err = plane.Kubectl(ctx, manifests, "apply", "--dry-run=server", "-f", "-")
				Expect(err).NotTo(HaveOccurred())
			}
		})
	})

	Context("with a ClusterClass", topology)

	Context("with an inventory of hosts", moves)

	Context("in two replicas", replicas)

	Context("under their own ServiceAccounts", func() {
		It("ask for nothing that their roles do not allow", func(ctx SpecContext) {
			// A restart lists and watches everything once more, now that there is something to list.
			for label := range plane.Managers {
				Expect(plane.RestartManager(ctx, label)).To(Succeed())
			}
			Consistently(plane.Refusals).WithTimeout(5 * time.Second).Should(BeEmpty())
			requests, err := plane.Requests()
			Expect(err).NotTo(HaveOccurred())
			for label, manager := range plane.Managers {
				Expect(requests[manager.User]).To(BeNumerically(">", 0), "requests of %s", label)
				content, err := os.ReadFile(manager.Log)
				Expect(err).NotTo(HaveOccurred())
				Expect(string(content)).NotTo(ContainSubstring("is forbidden: User"), manager.Log)
			}
		})
	})
})
