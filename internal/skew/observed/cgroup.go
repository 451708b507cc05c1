// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package observed

import (
	"context"
	"fmt"
	"regexp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/cloudinit"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/placement"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew"
)

// FailsOnCgroupV1 reports whether a kubelet of the version would not start on those of the hosts that have cgroup v1
// (R20): neither the host itself, nor the bootstrap data, nor the configuration of all kubelets of the cluster tell it
// to. What comes later is only read when nothing before it does.
func FailsOnCgroupV1(
	hosts []infrav1.QuoinHost, version string, bootstrapData func() ([]byte, error), sharedFails func() bool,
) (bool, error) {
	if !slices.ContainsFunc(hosts, func(host infrav1.QuoinHost) bool {
		return skew.CgroupEnded(placement.CgroupOf(host.Status.Facts), version) != ""
	}) {
		return false, nil
	}
	data, err := bootstrapData()
	if err != nil || StartsOnCgroupV1(data) {
		return false, err
	}
	return sharedFails(), nil
}

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

// KubeletSettings is a cloud-config of all that the bootstrap data of a control plane's next Machine will tell its
// kubelet: that of the first Machine of a cluster that is not initialized yet.
func KubeletSettings(
	ctx context.Context, reader client.Reader, namespace string, spec *bootstrapv1.KubeadmConfigSpec, initialized bool,
) ([]byte, error) {
	type file struct {
		Path     string `json:"path"`
		Encoding string `json:"encoding,omitempty"`
		Content  string `json:"content"`
	}
	registration := spec.InitConfiguration.NodeRegistration
	if initialized {
		registration = spec.JoinConfiguration.NodeRegistration
	}
	arguments, err := yaml.Marshal(registration)
	if err != nil {
		return nil, err
	}
	files := []file{{Path: "/run/kubeadm/kubeadm.yaml", Content: string(arguments)}}
	for _, written := range spec.Files {
		content := written.Content
		if written.ContentFrom.IsDefined() {
			from, data := written.ContentFrom.Secret, &corev1.Secret{}
			key := client.ObjectKey{Namespace: namespace, Name: from.Name}
			if err := client.IgnoreNotFound(reader.Get(ctx, key, data)); err != nil {
				return nil, fmt.Errorf("reading Secret %s of file %s: %w", key, written.Path, err)
			}
			content = string(data.Data[from.Key])
		}
		files = append(files, file{Path: written.Path, Encoding: string(written.Encoding), Content: content})
	}
	text, err := yaml.Marshal(map[string]any{"write_files": files})
	return append([]byte("#cloud-config\n"), text...), err
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
