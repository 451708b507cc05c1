// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package observed

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	kcpv1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	containerutil "sigs.k8s.io/cluster-api/util/container"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew"
)

// insideTimeout bounds what is asked of a workload cluster.
const insideTimeout = 5 * time.Second

// apiServer is the component of the pods whose versions bound the others of their node.
const apiServer skew.Component = "kube-apiserver"

// Inside is what runs as pods in a workload cluster, told by the tags of images: the static pods that kubeadm makes, of
// which the controller-manager and the scheduler talk to the API server of their own node, and kube-proxy beside each
// version of a kubelet in the world. A tag that is no version tells nothing. A cloud-controller-manager is left out,
// since its makers number it as they like.
func Inside(ctx context.Context, workload client.Reader, world skew.World) ([]skew.Running, error) {
	pods := &corev1.PodList{}
	static := client.MatchingLabels{"tier": "control-plane"}
	if err := workload.List(ctx, pods, client.InNamespace(metav1.NamespaceSystem), static); err != nil {
		return nil, fmt.Errorf("list the pods of the control plane: %w", err)
	}
	daemonSet := &appsv1.DaemonSet{}
	key := client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: string(skew.KubeProxy)}
	if err := client.IgnoreNotFound(workload.Get(ctx, key, daemonSet)); err != nil {
		return nil, fmt.Errorf("read DaemonSet %s: %w", key, err)
	}
	return append(StaticPods(pods.Items), proxies(daemonSet.Spec.Template.Spec, world)...), nil
}

// Workloads connects to workload clusters, as Cluster API's ClusterCache does.
type Workloads interface {
	GetUncachedClient(ctx context.Context, cluster client.ObjectKey) (client.Client, error)
}

// WithProxy has the components of the world be what runs as pods in the Cluster where one of the policies asks for
// kube-proxy: nothing while that cannot be read, for no Machine joins a cluster that does not answer.
func WithProxy(
	ctx context.Context, reader client.Reader, workloads Workloads, cluster *clusterv1.Cluster, policies []skew.Policy,
	world skew.World,
) (skew.World, error) {
	if !skew.AskForProxy(policies) {
		return world, nil
	}
	inside, err := insideOf(ctx, workloads, cluster, world)
	if world.Components = nil; err != nil {
		return world, nil //nolint:nilerr // as above
	}
	world.Components, err = KeepProxyOf(ctx, reader, cluster, nil, inside)
	return world, err
}

func insideOf(
	ctx context.Context, workloads Workloads, cluster *clusterv1.Cluster, world skew.World,
) ([]skew.Running, error) {
	if workloads == nil {
		return nil, nil
	}
	workload, err := workloads.GetUncachedClient(ctx, client.ObjectKeyFromObject(cluster))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, insideTimeout)
	defer cancel()
	return Inside(ctx, workload, world)
}

// StaticPods are the components of a control plane that run as these pods, told by the tags of their images.
func StaticPods(pods []corev1.Pod) []skew.Running {
	servers := map[string]string{}
	for _, pod := range pods {
		if componentOf(pod) == apiServer {
			servers[pod.Spec.NodeName] = versionOf(pod.Spec, string(apiServer))
		}
	}
	var found []skew.Running
	for _, pod := range pods {
		running := skew.Running{Component: componentOf(pod), Object: "Pod " + pod.Name}
		switch running.Component {
		case skew.ControllerManager, skew.Scheduler:
			running.APIServer = servers[pod.Spec.NodeName]
		case skew.Etcd:
		default:
			continue
		}
		if running.Version = versionOf(pod.Spec, string(running.Component)); running.Version != "" {
			found = append(found, running)
		}
	}
	return found
}

func componentOf(pod corev1.Pod) skew.Component { return skew.Component(pod.Labels["component"]) }

func proxies(pod corev1.PodSpec, world skew.World) []skew.Running {
	version := versionOf(pod, string(skew.KubeProxy))
	if version == "" {
		return nil
	}
	found := skew.Running{Component: skew.KubeProxy, Version: version, Object: "DaemonSet kube-proxy"}
	kubelets := map[string]bool{}
	var beside []skew.Running
	for _, running := range world.Components {
		if running.Component == skew.Kubelet && !kubelets[running.Version] {
			kubelets[running.Version] = true
			one := found
			one.Kubelet, one.Object = running.Version, found.Object+" beside "+running.Object
			beside = append(beside, one)
		}
	}
	if len(beside) == 0 {
		return []skew.Running{found}
	}
	return beside
}

// KeepProxyOf is KeepProxy by the Cluster's control plane, whoever provides it: by the given QuoinControlPlane, or as
// it is read where none is given. One that is not there, or that nobody let us read, leaves nothing alone.
func KeepProxyOf(
	ctx context.Context, reader client.Reader, cluster *clusterv1.Cluster, own *controlplanev1.QuoinControlPlane,
	inside []skew.Running,
) ([]skew.Running, error) {
	if own != nil {
		return KeepProxy(inside, own.Annotations), nil
	}
	annotations, err := annotationsOf(ctx, reader, cluster)
	return KeepProxy(inside, annotations), err
}

// KeepProxy is what runs inside where the annotations of a control plane leave kube-proxy alone: that keeps its version
// while the API servers are raised, and by which kubelets it runs is whose it is. As long as kubeadm alone is not to
// install one, a kube-proxy that is there follows all the same.
func KeepProxy(inside []skew.Running, annotations map[string]string) []skew.Running {
	if _, alone := annotations[kcpv1.SkipKubeProxyAnnotation]; !alone {
		return inside
	}
	kept, of := []skew.Running(nil), (*skew.Running)(nil)
	for i := range inside {
		if inside[i].Component == skew.KubeProxy {
			of = &inside[i]
		} else {
			kept = append(kept, inside[i])
		}
	}
	if of != nil {
		kept = append(kept, skew.Running{Component: skew.KubeProxy, Version: of.Version, Kept: true,
			Object: "DaemonSet kube-proxy, which is left to you,"})
	}
	return kept
}

// versionOf is the tag of the named container's image; empty when it has none that is a version.
func versionOf(pod corev1.PodSpec, name string) string {
	for _, container := range pod.Containers {
		if container.Name != name {
			continue
		}
		if image, err := containerutil.ImageFromString(container.Image); err == nil {
			if _, err := skew.Parse(image.Tag); err == nil {
				return image.Tag
			}
		}
	}
	return ""
}

// KubeadmOf is what kubeadm is told of a control plane, as far as versions depend on it.
func KubeadmOf(version string, configuration *bootstrapv1.ClusterConfiguration) skew.Kubeadm {
	return skew.Kubeadm{Version: version, EtcdTag: configuration.Etcd.Local.ImageTag,
		ExternalEtcd: configuration.Etcd.External.IsDefined(), FeatureGates: configuration.FeatureGates}
}
