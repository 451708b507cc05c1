// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package estatetest makes the objects of an estate of clusters of a distribution, for tests of what asks package
// observed.
package estatetest

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew/observed"
)

// Releases of the distribution: a pool of 1.27.8 or 1.28.6 is younger than the next minor, 1.32 and 1.34 were left out.
const Releases = `
- {version: v1.26.3, released: 2023-05-02}
- {version: v1.27.2, released: 2023-08-01}
- {version: v1.28.1, released: 2024-01-15}
- {version: v1.27.8, released: 2024-03-04}
- {version: v1.29.0, released: 2024-04-29}
- {version: v1.28.6, released: 2024-06-03}
- {version: v1.29.4, released: 2024-07-01, pools: [v1.29.4, v1.28.6]}
- {version: v1.30.0, released: 2024-08-27}
- {version: v1.30.100-gke.96, released: 2024-09-25}
- {version: v1.31.0}
- {version: v1.33.0}
- {version: v1.35.0}
`

// Estate of Clusters in one namespace, which are made of the distribution's releases.
type Estate struct {
	// Tool is the version of the tool; there is no catalog without one.
	Tool  string
	Gates []string
	// Clusters are the versions of their API servers, by name.
	Clusters map[string]string
	// Managing names the Cluster that all of the objects live in; none in a bootstrap cluster.
	Managing string
}

// Objects of the estate.
func (e Estate) Objects(namespace string) []client.Object {
	var objects []client.Object
	if e.Tool != "" {
		objects = append(objects, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace,
			Name: observed.CatalogName},
			Data: map[string]string{observed.CatalogKey: fmt.Sprintf("tool: %s\ngates: [%s]\nreleases:%s", e.Tool,
				strings.Join(e.Gates, ", "), Releases)}})
	}
	for _, name := range slices.Sorted(maps.Keys(e.Clusters)) {
		machine := Machine(namespace, name, name+"-cp", e.Clusters[name])
		machine.Labels[clusterv1.MachineControlPlaneLabel] = ""
		machine.Status.NodeRef.Name = machine.Name
		machine.Status.NodeInfo = &corev1.NodeSystemInfo{MachineID: "m-" + name, SystemUUID: "s-" + name}
		objects = append(objects, machine, &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name,
			Annotations: map[string]string{skew.PolicyAnnotation: "Distribution"}}})
		if name == e.Managing {
			objects = append(objects, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1",
				Labels: map[string]string{observed.ControlPlaneNodeLabel: ""}},
				Status: corev1.NodeStatus{NodeInfo: *machine.Status.NodeInfo}})
		}
	}
	return append(objects, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "nobodys"}})
}

// Machine is a worker of the Cluster that runs a version.
func Machine(namespace, cluster, name, version string) *clusterv1.Machine {
	return &clusterv1.Machine{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name,
			Labels: map[string]string{clusterv1.ClusterNameLabel: cluster}},
		Spec: clusterv1.MachineSpec{ClusterName: cluster, Version: version},
	}
}

// Workers are that many Machines of the Cluster in 50 MachineDeployments, whose kubelets are of a version.
func Workers(namespace, cluster, version string, count int) []client.Object {
	var workers []client.Object
	for i := range count {
		worker := Machine(namespace, cluster, fmt.Sprintf("w%d", i), version)
		worker.Labels[clusterv1.MachineDeploymentNameLabel] = fmt.Sprintf("md-%d", i%50)
		worker.Status.NodeRef.Name = worker.Name
		worker.Status.NodeInfo = &corev1.NodeSystemInfo{KubeletVersion: version}
		workers = append(workers, worker)
	}
	return workers
}

// StaticPod of a component of the control plane, on Node "a".
func StaticPod(component, tag string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: component + "-a",
			Labels: map[string]string{"tier": "control-plane", "component": component}},
		Spec: corev1.PodSpec{NodeName: "a",
			Containers: []corev1.Container{{Name: component, Image: "quoin.test/" + component + ":" + tag}}},
	}
}

// KubeProxy is the DaemonSet of kube-proxy.
func KubeProxy(tag string) *appsv1.DaemonSet {
	daemonSet := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "kube-proxy"}}
	daemonSet.Spec.Template.Spec.Containers = []corev1.Container{{Name: "kube-proxy",
		Image: "quoin.test/kube-proxy:" + tag}}
	return daemonSet
}
