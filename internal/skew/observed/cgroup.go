// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package observed

import (
	"context"
	"regexp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/cloudinit"
)

// startsOnCgroupV1 finds a kubelet's setting in bootstrap data: in a patch of its configuration, or as an argument,
// which kubeadm takes as a map or as a list of names and values.
var startsOnCgroupV1 = regexp.MustCompile(`(?i)\bfail-?cgroupv1["']?(\s*[:=]|\s+value:)\s*["']?false\b`)

// StartsOnCgroupV1 reports whether bootstrap data tell the kubelet to start on a host with cgroup v1 (R20). Their files
// are read as they will lie on the host, whatever they are encoded with here.
func StartsOnCgroupV1(bootstrapData []byte) bool {
	if startsOnCgroupV1.Match(bootstrapData) {
		return true
	}
	config, err := cloudinit.Parse(bootstrapData, cloudinit.InstanceData("node", "node", "zone"))
	return err == nil && slices.ContainsFunc(config.Files, func(file cloudinit.File) bool {
		return startsOnCgroupV1.Match(file.Content) || patchesFailCgroupV1(file.Content)
	})
}

// patchesFailCgroupV1 reports whether a file is a JSON patch, which may be written as YAML, that unsets failCgroupV1.
func patchesFailCgroupV1(content []byte) bool {
	var operations []struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value any    `json:"value"`
	}
	if err := yaml.Unmarshal(content, &operations); err != nil {
		return false
	}
	starts := false
	for _, operation := range operations {
		if operation.Path == "/failCgroupV1" && (operation.Op == "add" || operation.Op == "replace") {
			starts = operation.Value == false
		}
	}
	return starts
}

// SharedFailsOnCgroupV1 reports whether the configuration that kubeadm gives each node that joins leaves its kubelet to
// fail on a host with cgroup v1. A cluster that cannot be read may tell it to start.
func SharedFailsOnCgroupV1(ctx context.Context, workload client.Reader) bool {
	config := &corev1.ConfigMap{}
	key := client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: "kubelet-config"}
	if err := workload.Get(ctx, key, config); err != nil {
		return false
	}
	var shared struct {
		FailCgroupV1 *bool `json:"failCgroupV1,omitempty"`
	}
	err := yaml.Unmarshal([]byte(config.Data["kubelet"]), &shared)
	return err == nil && ptr.Deref(shared.FailCgroupV1, true)
}
