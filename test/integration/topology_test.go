// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/ptr"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
)

// generate renders a template of ours as a user would.
func generate(ctx context.Context, name, flavor string) (string, error) {
	// The kernel refuses to connect to network 0, so the managers' attempts to reach the cluster end at once and never
	// leave this machine. Loopback would be refused as a virtual address.
	variables := []string{"CONTROL_PLANE_ENDPOINT_HOST=0.0.0.10", "IMAGE_REPOSITORY=quoin.test"}
	args := []string{
		"generate", "cluster", name, "--target-namespace", namespace, "--infrastructure", "quoin",
		"--kubernetes-version", oldVersion, "--control-plane-machine-count", "3", "--worker-machine-count", "2",
	}
	if flavor != "" {
		args = append(args, "--flavor", flavor)
	}
	manifests, _, err := plane.Clusterctl(ctx, variables, args...)
	return manifests, err
}

// topology are the specs of a Cluster that is made from our ClusterClass. No host exists, so the control plane's
// progress is reported by the spec in our manager's stead.
func topology() {
	const name = "classy"
	cluster := &clusterv1.Cluster{}
	cluster.Namespace, cluster.Name = namespace, name
	controlPlane := &controlplanev1.QuoinControlPlane{}

	workersVersion := func(ctx context.Context) (string, error) {
		deployments := &clusterv1.MachineDeploymentList{}
		err := plane.Client.List(ctx, deployments, client.InNamespace(namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: name})
		if err != nil {
			return "", err
		}
		if len(deployments.Items) != 1 {
			return "", fmt.Errorf("%d MachineDeployments, want one", len(deployments.Items))
		}
		return deployments.Items[0].Spec.Template.Spec.Version, nil
	}
	controlPlaneVersion := func(ctx context.Context) (string, error) {
		err := plane.Client.Get(ctx, client.ObjectKeyFromObject(controlPlane), controlPlane)
		return controlPlane.Spec.Version, err
	}
	// report says that every member of the control plane is at a version.
	report := func(ctx context.Context, version string) {
		GinkgoHelper()
		_, err := controlPlaneVersion(ctx)
		Expect(err).NotTo(HaveOccurred())
		before := controlPlane.DeepCopy()
		replicas := controlPlane.Spec.Replicas
		status := &controlPlane.Status
		status.Initialization.ControlPlaneInitialized = ptr.To(true)
		status.Versions = []clusterv1.StatusVersion{{Version: version, Replicas: ptr.Deref(replicas, 0)}}
		status.Replicas, status.ReadyReplicas, status.AvailableReplicas, status.UpToDateReplicas = replicas, replicas, replicas, replicas
		Expect(plane.Client.Status().Patch(ctx, controlPlane, client.MergeFrom(before))).To(Succeed())
	}

	// needsCluster spares the later specs from failing for want of what the first one makes.
	needsCluster := func() {
		if controlPlane.Name == "" {
			Skip("there is no cluster")
		}
	}

	It("make a QuoinCluster, a QuoinControlPlane and workers of one version", func(ctx SpecContext) {
		manifests, err := generate(ctx, name, "topology")
		Expect(err).NotTo(HaveOccurred())
		// The webhooks' caches learn of the ClusterClass a moment after it was applied.
		Eventually(func() error {
			_, err := plane.Kubectl(ctx, manifests, "apply", "-f", "-")
			return err
		}).Should(Succeed())

		Eventually(func(g Gomega) {
			g.Expect(plane.Client.Get(ctx, client.ObjectKeyFromObject(cluster), cluster)).To(Succeed())
			topology := conditions.Get(cluster, clusterv1.ClusterTopologyReconciledCondition)
			g.Expect(cluster.Spec.InfrastructureRef.Kind).To(Equal("QuoinCluster"), "%+v", topology)
			g.Expect(cluster.Spec.ControlPlaneRef.Kind).To(Equal("QuoinControlPlane"), "%+v", topology)
		}).Should(Succeed())
		controlPlane.Namespace, controlPlane.Name = namespace, cluster.Spec.ControlPlaneRef.Name
		Eventually(controlPlaneVersion).WithContext(ctx).Should(Equal(oldVersion))
		Eventually(workersVersion).WithContext(ctx).Should(Equal(oldVersion))
	})

	It("ask the bootstrap provider for the first control-plane machine's data, and no more than that", func(ctx SpecContext) {
		needsCluster()
		machines := func(ctx context.Context) ([]clusterv1.Machine, error) {
			list := &clusterv1.MachineList{}
			err := plane.Client.List(ctx, list, client.InNamespace(namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: name},
				client.HasLabels{clusterv1.MachineControlPlaneLabel})
			return list.Items, err
		}
		Eventually(func(g Gomega) {
			found, err := machines(ctx)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(found).To(HaveLen(1))
			g.Expect(found[0].Spec.Bootstrap.ConfigRef.Kind).To(Equal("KubeadmConfig"))
			g.Expect(found[0].Spec.InfrastructureRef.Kind).To(Equal("QuoinMachine"))
			g.Expect(found[0].Spec.Bootstrap.DataSecretName).NotTo(BeNil())
		}).Should(Succeed())
		Consistently(machines).WithContext(ctx).WithTimeout(3 * time.Second).Should(HaveLen(1))
	})

	It("carry a new version to the control plane first, and to the workers once it is there [S1-21]", func(ctx SpecContext) {
		needsCluster()
		By("reporting a control plane at the old version")
		before := controlPlane.DeepCopy()
		controlPlane.Annotations = map[string]string{clusterv1.PausedAnnotation: "true"}
		Expect(plane.Client.Patch(ctx, controlPlane, client.MergeFrom(before))).To(Succeed())
		report(ctx, oldVersion)

		By("editing the topology's version")
		Eventually(func() error {
			if err := plane.Client.Get(ctx, client.ObjectKeyFromObject(cluster), cluster); err != nil {
				return err
			}
			before := cluster.DeepCopy()
			cluster.Spec.Topology.Version = newVersion
			return plane.Client.Patch(ctx, cluster, client.MergeFrom(before))
		}).Should(Succeed())

		Eventually(controlPlaneVersion).WithContext(ctx).Should(Equal(newVersion))
		Consistently(workersVersion).WithContext(ctx).WithTimeout(4 * time.Second).Should(Equal(oldVersion))

		By("reporting a control plane at the new version")
		report(ctx, newVersion)
		Eventually(workersVersion).WithContext(ctx).Should(Equal(newVersion))
	})

	It("leave nothing when the Cluster is deleted", func(ctx SpecContext) {
		needsCluster()
		// From here on our manager rules again.
		_, err := controlPlaneVersion(ctx)
		Expect(err).NotTo(HaveOccurred())
		before := controlPlane.DeepCopy()
		delete(controlPlane.Annotations, clusterv1.PausedAnnotation)
		Expect(plane.Client.Patch(ctx, controlPlane, client.MergeFrom(before))).To(Succeed())
		Expect(plane.Client.Delete(ctx, cluster)).To(Succeed())

		for _, list := range []client.ObjectList{
			&clusterv1.ClusterList{}, &clusterv1.MachineList{}, &clusterv1.MachineDeploymentList{}, &bootstrapv1.KubeadmConfigList{},
			&controlplanev1.QuoinControlPlaneList{}, &infrav1.QuoinClusterList{}, &infrav1.QuoinMachineList{},
		} {
			Eventually(func() (int, error) {
				err := plane.Client.List(ctx, list, client.InNamespace(namespace))
				return apimeta.LenList(list), err
			}).WithTimeout(2*time.Minute).Should(BeZero(), "%T", list)
		}
		Eventually(func() ([]corev1.Secret, error) {
			secrets := &corev1.SecretList{}
			err := plane.Client.List(ctx, secrets, client.InNamespace(namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: name})
			return secrets.Items, err
		}).Should(BeEmpty())
	})
}
