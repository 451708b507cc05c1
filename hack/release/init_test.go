// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/quoin-dev/cluster-api-provider-quoin/hack/components/repository"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/manager"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/pivot"
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
	for _, label := range repository.OwnLabels() {
		deployment := deploymentOf(t, plane.Client, label)
		g.Expect(createPod(t, plane.Client, deployment, func(*corev1.PodSpec) {})).To(Succeed())
		g.Expect(createPod(t, plane.Client, deployment, func(pod *corev1.PodSpec) {
			pod.Containers[0].SecurityContext.AllowPrivilegeEscalation = nil
		})).To(MatchError(ContainSubstring(`violates PodSecurity "restricted:latest"`)))
		expectReachPod(t, plane.Client, deployment)
		expectPolicy(t, plane.Client, deployment)
		expectReplicas(g, deployment)
	}

	releaseInto(t, arguments{folder: folder, version: "v0.1.1", image: testImage})
	_, _, err = plane.Clusterctl(ctx, nil, "upgrade", "apply", "--contract=v1beta2")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(versions(t, plane.Client)).To(And(
		HaveKeyWithValue("infrastructure-quoin", "v0.1.1"), HaveKeyWithValue("control-plane-quoin", "v0.1.1")))
	g.Expect(images(t, plane.Client)).To(HaveEach(testImage + ":v0.1.1"))

	// Without versions nothing goes back; with them it does, as docs/install.md says.
	_, _, err = plane.Clusterctl(ctx, nil, "upgrade", "apply", "--contract=v1beta2")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(images(t, plane.Client)).To(HaveEach(testImage + ":v0.1.1"))
	_, _, err = plane.Clusterctl(ctx, nil, "upgrade", "apply", "--control-plane=quoin:v0.1.0", "--infrastructure=quoin:v0.1.0")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(versions(t, plane.Client)).To(And(
		HaveKeyWithValue("infrastructure-quoin", "v0.1.0"), HaveKeyWithValue("control-plane-quoin", "v0.1.0")))
	g.Expect(images(t, plane.Client)).To(HaveEach(testImage + ":v0.1.0"))
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

// deploymentOf is the manager of a provider.
func deploymentOf(t *testing.T, c client.Client, label string) *appsv1.Deployment {
	t.Helper()
	list := &appsv1.DeploymentList{}
	if err := c.List(t.Context(), list, client.MatchingLabels{"cluster.x-k8s.io/provider": label}); err != nil {
		t.Fatal(err)
	}
	if len(list.Items) != 1 {
		t.Fatalf("%d Deployments of %s instead of one", len(list.Items), label)
	}
	return &list.Items[0]
}

// createPod creates what the Deployment's controller would, where the API server judges it, and removes it again.
func createPod(t *testing.T, c client.Client, deployment *appsv1.Deployment, change func(*corev1.PodSpec)) error {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: deployment.Namespace, Name: "judged", Labels: deployment.Spec.Template.Labels},
		Spec:       *deployment.Spec.Template.Spec.DeepCopy(),
	}
	change(&pod.Spec)
	if err := c.Create(t.Context(), pod); err != nil {
		return err
	}
	return c.Delete(t.Context(), pod, client.GracePeriodSeconds(0))
}

// expectReachPod creates the Pod of a pivot that asks what is reached, where the API server judges it, and removes it again.
func expectReachPod(t *testing.T, c client.Client, deployment *appsv1.Deployment) {
	t.Helper()
	g := NewWithT(t)
	pod, err := pivot.ReachPod(deployment, "prod", pivot.Question{Looks: []pivot.Look{{Address: "10.0.0.1", Port: 22, SSH: true}}})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(c.Create(t.Context(), pod)).To(Succeed())
	g.Expect(pod.Spec.Containers[0].Args).To(ContainElement(HavePrefix("--allowed-networks=")))
	selector, err := metav1.LabelSelectorAsSelector(deployment.Spec.Selector)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(selector.Matches(labels.Set(pod.Labels))).To(BeTrue(), "NetworkPolicies apply to it")
	g.Expect(c.Delete(t.Context(), pod, client.GracePeriodSeconds(0))).To(Succeed())
}

// expectPolicy compares the NetworkPolicy of a manager with the Service of its webhooks and with its own ports.
func expectPolicy(t *testing.T, c client.Client, deployment *appsv1.Deployment) {
	t.Helper()
	g := NewWithT(t)
	policies, services := &networkingv1.NetworkPolicyList{}, &corev1.ServiceList{}
	g.Expect(c.List(t.Context(), policies, client.InNamespace(deployment.Namespace))).To(Succeed())
	g.Expect(c.List(t.Context(), services, client.InNamespace(deployment.Namespace))).To(Succeed())
	g.Expect(policies.Items).To(HaveLen(1))
	spec := policies.Items[0].Spec
	selector, err := metav1.LabelSelectorAsSelector(&spec.PodSelector)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(selector.Matches(labels.Set(deployment.Spec.Template.Labels))).To(BeTrue())
	g.Expect(spec.PolicyTypes).To(ConsistOf(networkingv1.PolicyTypeIngress))
	named := map[string]bool{}
	for _, port := range deployment.Spec.Template.Spec.Containers[0].Ports {
		named[port.Name] = true
	}
	opened := map[string]bool{}
	for _, rule := range spec.Ingress {
		g.Expect(rule.From).To(BeEmpty(), "API servers may be anywhere")
		for _, port := range rule.Ports {
			g.Expect(named).To(HaveKey(port.Port.StrVal))
			opened[port.Port.StrVal] = true
		}
	}
	for _, service := range services.Items {
		for _, port := range service.Spec.Ports {
			g.Expect(opened).To(HaveKey(port.TargetPort.StrVal), service.Name)
		}
	}
	g.Expect(opened).To(HaveLen(2), "the webhooks and the metrics")
}

// expectReplicas expects two Pods that one node can run, and that have the time to end.
func expectReplicas(g Gomega, deployment *appsv1.Deployment) {
	g.Expect(deployment.Spec.Replicas).To(HaveValue(BeEquivalentTo(2)))
	pod := deployment.Spec.Template.Spec
	g.Expect(pod.PriorityClassName).To(Equal("system-cluster-critical"), "Pods of users are preempted for it")
	g.Expect(pod.Affinity).To(BeNil())
	g.Expect(pod.TopologySpreadConstraints).To(HaveLen(1))
	spread := pod.TopologySpreadConstraints[0]
	g.Expect(spread.WhenUnsatisfiable).To(Equal(corev1.ScheduleAnyway))
	g.Expect(spread.LabelSelector.MatchLabels).To(Equal(deployment.Spec.Selector.MatchLabels))
	g.Expect(pod.Tolerations).To(ContainElement(HaveField("Key", "node-role.kubernetes.io/control-plane")))
	pause := time.Duration(pod.Containers[0].Lifecycle.PreStop.Sleep.Seconds) * time.Second
	g.Expect(time.Duration(*pod.TerminationGracePeriodSeconds)*time.Second).To(
		BeNumerically(">", pause+manager.ShutdownTimeout), "or a lease is not handed over")
}

// images of our managers' Deployments, by namespace and name.
func images(t *testing.T, c client.Client) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, label := range repository.OwnLabels() {
		deployment := deploymentOf(t, c, label)
		found[deployment.Namespace+"/"+deployment.Name] = deployment.Spec.Template.Spec.Containers[0].Image
	}
	return found
}
