// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
)

// lookAtVolumes looks for data that stay on a host when its Node leaves: the host is reset then.
func lookAtVolumes(ctx context.Context, s Subject) (string, []quoinv1.Finding, error) {
	leaving, err := s.leaving(ctx)
	if err != nil {
		return "", nil, err
	}
	pods, err := s.podsByNode(ctx)
	if err != nil {
		return "", nil, err
	}
	volumes, nodes := &corev1.PersistentVolumeList{}, &corev1.NodeList{}
	if err := s.Workload.List(ctx, volumes); err != nil {
		return "", nil, fmt.Errorf("list the PersistentVolumes: %w", err)
	}
	if err := s.Workload.List(ctx, nodes); err != nil {
		return "", nil, fmt.Errorf("list the Nodes: %w", err)
	}
	leaves := map[string]bool{}
	for _, machine := range leaving {
		leaves[machine.Status.NodeRef.Name] = true
	}
	claimed := map[client.ObjectKey]*corev1.PersistentVolume{}
	for i := range volumes.Items {
		volume := &volumes.Items[i]
		// What is released or failed nobody asks for any more.
		if claim := volume.Spec.ClaimRef; claim != nil && volume.Status.Phase == corev1.VolumeBound {
			claimed[client.ObjectKey{Namespace: claim.Namespace, Name: claim.Name}] = volume
		}
	}
	var findings []quoinv1.Finding
	found := map[string]bool{}
	for i := range nodes.Items {
		node := &nodes.Items[i]
		if !leaves[node.Name] {
			continue
		}
		for j := range pods[node.Name] {
			pod := &pods[node.Name][j]
			for _, finding := range judgePodVolumes(pod, node, claimed) {
				if key := finding.Object + finding.Message; !found[key] { // pods may share one
					found[key] = true
					findings = append(findings, finding)
				}
			}
		}
	}
	return fmt.Sprintf("volumes of the pods on %d Nodes", len(leaving)), findings, nil
}

func judgePodVolumes(
	pod *corev1.Pod, node *corev1.Node, claimed map[client.ObjectKey]*corev1.PersistentVolume,
) []quoinv1.Finding {
	if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return nil
	}
	var findings []quoinv1.Finding
	for _, volume := range pod.Spec.Volumes {
		if claim := volume.PersistentVolumeClaim; claim != nil {
			key := client.ObjectKey{Namespace: pod.Namespace, Name: claim.ClaimName}
			if bound := claimed[key]; bound != nil && onDiskOf(bound, node) {
				findings = append(findings, blocks("PersistentVolume "+bound.Name, "LocalData", fmt.Sprintf(
					"holds the data of claim %s on the disk of Node %s, and pod %s loses them when that is replaced", key,
					node.Name, pod.Name),
					"bring the data elsewhere; or, if they may be lost or another replica has them, skip this check and say so"))
			}
		}
		if path := volume.HostPath; path != nil && keeps(path) && !onEachNode(pod) && writes(pod, volume.Name) {
			findings = append(findings, warns("Pod "+pod.Namespace+"/"+pod.Name, "HostPath", fmt.Sprintf(
				"writes to %s of Node %s, and does not find that on another", path.Path, node.Name),
				"have it keep its data in a claim, if it needs them"))
		}
	}
	return findings
}

// onDiskOf reports whether the volume can be used on this Node alone: it names one as local volumes do, or its kind is
// one that knows no other. Drivers such as TopoLVM and OpenEBS give each Node a label of its own, with its name.
func onDiskOf(volume *corev1.PersistentVolume, node *corev1.Node) bool {
	if volume.Spec.Local != nil || volume.Spec.HostPath != nil {
		return true
	}
	affinity := volume.Spec.NodeAffinity
	if affinity == nil || affinity.Required == nil || len(affinity.Required.NodeSelectorTerms) == 0 {
		return false
	}
	names := []string{node.Name, node.Labels[corev1.LabelHostname]}
	onlyThis := func(r corev1.NodeSelectorRequirement) bool {
		return r.Operator == corev1.NodeSelectorOpIn && len(r.Values) == 1 && slices.Contains(names, r.Values[0])
	}
	return !slices.ContainsFunc(affinity.Required.NodeSelectorTerms, func(term corev1.NodeSelectorTerm) bool {
		return !slices.ContainsFunc(term.MatchExpressions, onlyThis) && !slices.ContainsFunc(term.MatchFields, onlyThis)
	})
}

// keeps reports whether there is something at the path that a reboot leaves there.
func keeps(path *corev1.HostPathVolumeSource) bool {
	if path.Type != nil && *path.Type != corev1.HostPathUnset && *path.Type != corev1.HostPathDirectory &&
		*path.Type != corev1.HostPathDirectoryOrCreate {
		return false
	}
	return !slices.ContainsFunc([]string{"/dev", "/proc", "/run", "/sys", "/tmp", "/var/run"}, func(root string) bool {
		return path.Path == root || strings.HasPrefix(path.Path, root+"/")
	})
}

// onEachNode reports whether the pod is one of those that each Node has of its own.
func onEachNode(pod *corev1.Pod) bool {
	owner := metav1.GetControllerOf(pod)
	_, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]
	return mirror || owner != nil && owner.Kind == "DaemonSet"
}

// writes reports whether a container of the pod may write to the volume.
func writes(pod *corev1.Pod, volume string) bool {
	return slices.ContainsFunc(slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers), func(c corev1.Container) bool {
		return slices.ContainsFunc(c.VolumeMounts, func(mount corev1.VolumeMount) bool {
			return mount.Name == volume && !mount.ReadOnly
		})
	})
}
