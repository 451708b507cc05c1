// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"encoding/json"
	"fmt"
	"regexp"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"sigs.k8s.io/yaml"

	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim/machine"
)

// patchesConfig is where kubeadm finds patches.
type patchesConfig struct {
	Directory string `json:"directory"`
}

// patchFile is how kubeadm wants patches named: the target, whatever comes first among several, and the kind.
var patchFile = regexp.MustCompile(`^(etcd|kube-apiserver|kube-controller-manager|kube-scheduler|kubeletconfiguration|corednsdeployment)[^.+\n]*(\+(?:json|merge|strategic)?)?.*\.(json|yaml)$`)

// patched is a static pod with its patches applied in the order of their names.
func (h *planeHost) patched(pod *corev1.Pod) (*corev1.Pod, error) {
	if h.patches == "" {
		return pod, nil
	}
	names, err := h.p.ReadDir(h.patches)
	if err != nil {
		return nil, fmt.Errorf("could not list patch files for path %q: %w", h.patches, err)
	}
	content, err := json.Marshal(pod)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		match := patchFile.FindStringSubmatch(name)
		if len(match) < 3 || match[1] != pod.Name {
			continue
		}
		if match[2] != "" && match[2] != "+strategic" {
			return nil, fmt.Errorf("simulated: patches of the kind %s are not known", name)
		}
		patch, err := h.p.ReadFile(h.patches + "/" + name)
		if err != nil {
			return nil, err
		}
		if patch, err = yaml.YAMLToJSON(patch); err != nil {
			return nil, err
		}
		if content, err = strategicpatch.StrategicMergePatch(content, patch, corev1.Pod{}); err != nil {
			return nil, fmt.Errorf("could not apply the following patch of type %q to target %q: %w", "strategic", pod.Name, err)
		}
	}
	result := &corev1.Pod{}
	return result, json.Unmarshal(content, result)
}

// hostPaths are the volumes of the host that the first container of a pod mounts. A volume that nobody mounts is not looked at.
func hostPaths(pod *corev1.Pod) []*corev1.HostPathVolumeSource {
	var found []*corev1.HostPathVolumeSource
	for _, mount := range pod.Spec.Containers[0].VolumeMounts {
		for _, volume := range pod.Spec.Volumes {
			if volume.Name == mount.Name && volume.HostPath != nil {
				found = append(found, volume.HostPath)
			}
		}
	}
	return found
}

// setUp is the kubelet's part in mounting them, once for each pod: what has a type must be of that type.
func setUp(p *machine.Process, pod *corev1.Pod) error {
	for _, volume := range hostPaths(pod) {
		kind := corev1.HostPathUnset
		if volume.Type != nil {
			kind = *volume.Type
		}
		stat, err := p.Stat(volume.Path)
		switch {
		case kind == corev1.HostPathUnset:
		case kind == corev1.HostPathDirectoryOrCreate && err != nil:
			if err := p.MkdirAll(volume.Path, 0o755); err != nil {
				return err
			}
		case kind == corev1.HostPathDirectory || kind == corev1.HostPathDirectoryOrCreate:
			if err != nil || !stat.Mode.IsDir() {
				return fmt.Errorf("hostPath type check failed: %s is not a directory", volume.Path)
			}
		case kind == corev1.HostPathFile:
			if err != nil || !stat.Mode.IsRegular() {
				return fmt.Errorf("hostPath type check failed: %s is not a file", volume.Path)
			}
		default:
			return fmt.Errorf("simulated: a volume of the host of type %s is not known", kind)
		}
	}
	return nil
}

// bind is the runtime's part, for each container: what is not there becomes a directory, but for a link that leads nowhere.
func bind(p *machine.Process, pod *corev1.Pod) error {
	for _, volume := range hostPaths(pod) {
		if _, err := p.Stat(volume.Path); err == nil {
			continue
		}
		if err := p.MkdirAll(volume.Path, 0o755); err != nil {
			return fmt.Errorf("failed to mkdir %q: %w", volume.Path, err)
		}
	}
	return nil
}
