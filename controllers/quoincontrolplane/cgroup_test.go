// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoincontrolplane

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
)

// Proves: R20
//
// A host with cgroup v1 is no spare where nothing tells the kubelet of the next Machine to start on it.
func TestHostsWithCgroupV1AreCounted(t *testing.T) {
	argument := []bootstrapv1.Arg{{Name: "fail-cgroupv1", Value: ptr.To("false")}}
	for name, c := range map[string]struct {
		version string
		edit    func(*bootstrapv1.KubeadmConfigSpec)
		shared  string
		init    bool
		fails   bool
	}{
		"with nothing told": {version: "v1.35.4", shared: "a: b", fails: true},
		"of before":         {version: "v1.34.4", shared: "a: b"},
		"with an argument": {version: "v1.35.4", shared: "a: b", edit: func(spec *bootstrapv1.KubeadmConfigSpec) {
			spec.JoinConfiguration.NodeRegistration.KubeletExtraArgs = argument
		}},
		"with an argument of the first Machine": {version: "v1.35.4", shared: "a: b", fails: true,
			edit: func(spec *bootstrapv1.KubeadmConfigSpec) {
				spec.InitConfiguration.NodeRegistration.KubeletExtraArgs = argument
			}},
		"the first Machine, with an argument": {version: "v1.35.4", init: true,
			edit: func(spec *bootstrapv1.KubeadmConfigSpec) {
				spec.InitConfiguration.NodeRegistration.KubeletExtraArgs = argument
			}},
		"the first Machine": {version: "v1.35.4", init: true, shared: "failCgroupV1: false", fails: true},
		"with a file": {version: "v1.35.4", shared: "a: b", edit: func(spec *bootstrapv1.KubeadmConfigSpec) {
			spec.Files = []bootstrapv1.File{{Path: "/p/kubeletconfiguration.yaml", Content: "failCgroupV1: false\n"}}
		}},
		"with a file from a Secret": {version: "v1.35.4", shared: "a: b", edit: func(spec *bootstrapv1.KubeadmConfigSpec) {
			spec.Files = []bootstrapv1.File{{Path: "/p/kubeletconfiguration.yaml",
				ContentFrom: bootstrapv1.FileSource{Secret: bootstrapv1.SecretFileSource{Name: "patches", Key: "kubelet"}}}}
		}},
		"with a file from no Secret": {version: "v1.35.4", shared: "a: b", fails: true,
			edit: func(spec *bootstrapv1.KubeadmConfigSpec) {
				spec.Files = []bootstrapv1.File{{Path: "/p/kubeletconfiguration.yaml",
					ContentFrom: bootstrapv1.FileSource{Secret: bootstrapv1.SecretFileSource{Name: "none", Key: "kubelet"}}}}
			}},
		"told with the whole cluster": {version: "v1.35.4", shared: "failCgroupV1: false"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1)
			w.g.Expect(w.mgmt.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace,
				Name: "patches"}, Data: map[string][]byte{"kubelet": []byte("failCgroupV1: false\n")}})).To(Succeed())
			w.g.Expect(w.workload.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
				Namespace: metav1.NamespaceSystem, Name: "kubelet-config"},
				Data: map[string]string{"kubelet": c.shared}})).To(Succeed())
			cluster := client.ObjectKey{Namespace: namespace, Name: "c"}
			w.r.ClusterCache = clustercache.NewFakeClusterCache(w.workload, cluster)
			w.edit(func(p *controlplanev1.QuoinControlPlane) {
				p.Spec.Version = c.version
				if c.edit != nil {
					c.edit(&p.Spec.KubeadmConfigSpec)
				}
			})
			spare := &infrav1.QuoinHost{}
			w.g.Expect(w.mgmt.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "spare"}, spare)).To(Succeed())
			spare.Status.Facts = &infrav1.HostFacts{CgroupVersion: 1, KubeletOnCgroupV1: ptr.To(false)}
			w.g.Expect(w.mgmt.Status().Update(t.Context(), spare)).To(Succeed())
			p := w.reconciliation()
			p.subject.ControlPlane.Status.Initialization.ControlPlaneInitialized = ptr.To(!c.init)
			w.g.Expect(w.r.ownTemplate(t.Context(), p)).To(Succeed())
			lists, err := w.r.list(t.Context(), p)
			w.g.Expect(err).NotTo(HaveOccurred())
			inventory, err := w.r.sources().Inventory(t.Context(), lists, p.machines)
			w.g.Expect(err).NotTo(HaveOccurred())
			w.g.Expect(inventory.Spare.Free).To(Equal(map[bool]int{true: 0, false: 1}[c.fails]))
			if c.fails {
				w.g.Expect(inventory.Spare.Why).To(ContainSubstring("cgroup v1"))
			}
		})
	}
}
