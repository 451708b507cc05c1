// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/quoin-dev/cluster-api-provider-quoin/hack/components/repository"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/integration/rig"
)

// TestClusterctlInstallsAndUpgradesARelease has the stock binary install a release into a real API server, and then the next
// one: what a folder of releases is for. Nothing runs there; test/e2e/install sees it run.
func TestClusterctlInstallsAndUpgradesARelease(t *testing.T) {
	if os.Getenv(rig.AssetsVariable) == "" {
		t.Skipf("%s is not set: `make test-unit` sets it", rig.AssetsVariable)
	}
	g := NewWithT(t)
	ctx := t.Context()
	plane, err := rig.Start(ctx, rig.Options{
		Name: "release", Providers: []string{repository.CoreLabel, repository.BootstrapLabel},
	})
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() {
		if err := plane.Stop(); err != nil {
			t.Error(err)
		}
	})
	folder := filepath.Join(t.TempDir(), "dist")
	releaseInto(t, arguments{folder: folder, version: "v0.1.0", image: testImage})
	g.Expect(addProviders(plane.Repository.Config, folder)).To(Succeed())
	_, _, err = plane.Clusterctl(ctx, nil, "init", "--core=cluster-api", "--bootstrap=kubeadm", "--control-plane=quoin",
		"--infrastructure=quoin")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(versions(t, plane.Client)).To(And(
		HaveKeyWithValue("infrastructure-quoin", "v0.1.0"), HaveKeyWithValue("control-plane-quoin", "v0.1.0")))
	g.Expect(images(t, plane.Client)).To(HaveEach(testImage + ":v0.1.0"))
	g.Expect(images(t, plane.Client)).To(HaveLen(2))

	releaseInto(t, arguments{folder: folder, version: "v0.1.1", image: testImage})
	_, _, err = plane.Clusterctl(ctx, nil, "upgrade", "apply", "--control-plane=quoin:v0.1.1", "--infrastructure=quoin:v0.1.1")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(versions(t, plane.Client)).To(And(
		HaveKeyWithValue("infrastructure-quoin", "v0.1.1"), HaveKeyWithValue("control-plane-quoin", "v0.1.1")))
	g.Expect(images(t, plane.Client)).To(HaveEach(testImage + ":v0.1.1"))
}

// addProviders adds the entries of a release to another clusterctl.yaml, as docs/install.md says.
func addProviders(config, folder string) error {
	all := map[string]any{}
	for _, path := range []string{config, filepath.Join(folder, configName)} {
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		one := map[string]any{}
		if err := yaml.Unmarshal(content, &one); err != nil {
			return err
		}
		before, _ := all["providers"].([]any)
		added, _ := one["providers"].([]any)
		for key, value := range one {
			all[key] = value
		}
		all["providers"] = append(before, added...)
	}
	content, err := yaml.Marshal(all)
	if err != nil {
		return err
	}
	return os.WriteFile(config, content, 0o644)
}

// versions of the installed providers, by their labels, as clusterctl records them.
func versions(t *testing.T, c client.Client) map[string]string {
	t.Helper()
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(schema.GroupVersionKind{Group: "clusterctl.cluster.x-k8s.io", Version: "v1alpha3", Kind: "ProviderList"})
	if err := c.List(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, one := range list.Items {
		found[one.GetName()], _, _ = unstructured.NestedString(one.Object, "version")
	}
	return found
}

// images of our managers' Deployments, by namespace and name.
func images(t *testing.T, c client.Client) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, label := range repository.OwnLabels() {
		list := &appsv1.DeploymentList{}
		if err := c.List(t.Context(), list, client.MatchingLabels{"cluster.x-k8s.io/provider": label}); err != nil {
			t.Fatal(err)
		}
		for _, one := range list.Items {
			found[one.Namespace+"/"+one.Name] = one.Spec.Template.Spec.Containers[0].Image
		}
	}
	return found
}
