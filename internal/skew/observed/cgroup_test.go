// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package observed

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
)

// Proves: R20
//
// A kubelet is told to start on cgroup v1 by what kubeadm reads on the host, in whatever form that comes.
func TestBootstrapDataThatTellOfCgroupV1(t *testing.T) {
	const merged = "apiVersion: kubelet.config.k8s.io/v1beta1\nfailCgroupV1: false\n"
	zip := func(text string) string {
		var zipped bytes.Buffer
		writer := gzip.NewWriter(&zipped)
		_, err := writer.Write([]byte(text))
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
		NewWithT(t).Expect(writer.Close()).To(Succeed())
		return zipped.String()
	}
	encode := func(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }
	for name, c := range map[string]struct {
		content, encoding string
		starts            bool
	}{
		"a merged patch":           {content: merged, starts: true},
		"base64":                   {content: encode(merged), encoding: "base64", starts: true},
		"gzip in base64":           {content: encode(zip(merged)), encoding: "gzip+base64", starts: true},
		"told to fail, in base64":  {content: encode("failCgroupV1: true\n"), encoding: "base64"},
		"of an encoding that lies": {content: merged[:8] + "!", encoding: "base64"},
		"a JSON patch":             {content: `[{"op":"add","path":"/failCgroupV1","value":false}]`, starts: true},
		"in another order":         {content: `[{"value": false, "path": "/failCgroupV1", "op": "replace"}]`, starts: true},
		"a JSON patch in YAML":     {content: "- op: replace\n  path: /failCgroupV1\n  value: false\n", starts: true},
		"a JSON patch in base64": {content: encode(`[{"op":"add","path":"/failCgroupV1","value":false}]`),
			encoding: "base64", starts: true},
		"a JSON patch that asks":  {content: `[{"op":"test","path":"/failCgroupV1","value":false}]`},
		"a JSON patch that fails": {content: `[{"op":"add","path":"/failCgroupV1","value":true}]`},
		"of another setting":      {content: `[{"op":"add","path":"/failSwapOn","value":false}]`},
		"the last operation counts": {content: "- {op: add, path: /failCgroupV1, value: false}\n" +
			"- {op: add, path: /failCgroupV1, value: true}\n"},
	} {
		t.Run(name, func(t *testing.T) {
			data := fmt.Sprintf("## template: jinja\n#cloud-config\nwrite_files:\n- path: /etc/kubernetes/patches/"+
				"kubeletconfiguration0.yaml\n  owner: root:root\n  encoding: %q\n  content: %q\nhostname: "+
				"'{{ ds.meta_data.local_hostname }}'\n", c.encoding, c.content)
			NewWithT(t).Expect(StartsOnCgroupV1([]byte(data))).To(Equal(c.starts))
		})
	}
}

// What costs a read is only read when nothing before it tells the kubelet to start.
func TestAKubeletThatFailsOnCgroupV1(t *testing.T) {
	const starts = "failCgroupV1: false"
	unread := errors.New("no route")
	for name, c := range map[string]struct {
		cgroups          []int32
		version, data    string
		unread           error
		shared           bool
		reads, asks, bad bool
	}{
		"none has it":        {cgroups: []int32{2, 2}, version: "v1.35.1", shared: true},
		"a kubelet that may": {cgroups: []int32{1}, version: "v1.34.1", shared: true},
		"one of them has it": {cgroups: []int32{2, 1}, version: "v1.35.1", shared: true, reads: true, asks: true,
			bad: true},
		"the bootstrap data tell":  {cgroups: []int32{1}, version: "v1.35.1", data: starts, shared: true, reads: true},
		"the cluster tells":        {cgroups: []int32{1}, version: "v1.35.1", reads: true, asks: true},
		"data that cannot be read": {cgroups: []int32{1}, version: "v1.35.1", unread: unread, shared: true, reads: true},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			hosts, read, asked := make([]infrav1.QuoinHost, len(c.cgroups)), false, false
			for i, version := range c.cgroups {
				hosts[i].Status.Facts = &infrav1.HostFacts{CgroupVersion: version, KubeletOnCgroupV1: ptr.To(false)}
			}
			bad, err := FailsOnCgroupV1(hosts, c.version, func() ([]byte, error) {
				read = true
				return []byte(c.data), c.unread
			}, func() bool {
				asked = true
				return c.shared
			})
			g.Expect(errors.Is(err, c.unread)).To(BeTrue(), "%v", err)
			g.Expect([]bool{bad, read, asked}).To(Equal([]bool{c.bad, c.reads, c.asks}))
		})
	}
}

// The next Machine of a control plane makes the cluster or joins it, and its files may come from Secrets.
func TestTheKubeletSettingsOfAControlPlane(t *testing.T) {
	const patch = "failCgroupV1: false\n"
	arguments := []bootstrapv1.Arg{{Name: "fail-cgroupv1", Value: ptr.To("false")}}
	from := bootstrapv1.File{Path: "/etc/patch.yaml", ContentFrom: bootstrapv1.FileSource{
		Secret: bootstrapv1.SecretFileSource{Name: "patches", Key: "kubelet"}}}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "patches"},
		Data: map[string][]byte{"kubelet": []byte(patch)}}
	for name, c := range map[string]struct {
		files       []bootstrapv1.File
		init, join  []bootstrapv1.Arg
		initialized bool
		secrets     []client.Object
		starts      bool
	}{
		"nothing":              {},
		"the first Machine":    {init: arguments, starts: true},
		"one of others, later": {init: arguments, initialized: true},
		"a later Machine":      {join: arguments, initialized: true, starts: true},
		"a file":               {files: []bootstrapv1.File{{Path: "/a", Content: patch}}, starts: true},
		"an encoded file": {files: []bootstrapv1.File{{Path: "/a", Encoding: bootstrapv1.Base64,
			Content: base64.StdEncoding.EncodeToString([]byte(patch))}}, starts: true},
		"a Secret's":              {files: []bootstrapv1.File{from}, secrets: []client.Object{secret}, starts: true},
		"a Secret's that is gone": {files: []bootstrapv1.File{from}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			spec := &bootstrapv1.KubeadmConfigSpec{Files: c.files}
			spec.InitConfiguration.NodeRegistration.KubeletExtraArgs = c.init
			spec.JoinConfiguration.NodeRegistration.KubeletExtraArgs = c.join
			data, err := KubeletSettings(t.Context(), fake.NewClientBuilder().WithObjects(c.secrets...).Build(), "team", spec,
				c.initialized)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(StartsOnCgroupV1(data)).To(Equal(c.starts), string(data))
		})
	}
	silent := interceptor.NewClient(fake.NewFakeClient(), interceptor.Funcs{Get: func(context.Context, client.WithWatch,
		client.ObjectKey, client.Object, ...client.GetOption) error {
		return errors.New("no route")
	}})
	spec := &bootstrapv1.KubeadmConfigSpec{Files: []bootstrapv1.File{from}}
	_, err := KubeletSettings(t.Context(), silent, "team", spec, true)
	NewWithT(t).Expect(err).To(MatchError("reading Secret team/patches of file /etc/patch.yaml: no route"))
}

// Kubelets that join fail unless their cluster tells them to start; one that cannot be read may do so.
func TestWhatAClusterTellsItsKubelets(t *testing.T) {
	for config, fails := range map[string]bool{"failCgroupV1: false": false, "failCgroupV1: true": true,
		"failSwapOn: false": true, "": true, "failCgroupV1: [": false} {
		shared := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "kubelet-config"},
			Data: map[string]string{"kubelet": config}}
		NewWithT(t).Expect(SharedFailsOnCgroupV1(t.Context(), fake.NewFakeClient(shared))).To(Equal(fails), config)
	}
	NewWithT(t).Expect(SharedFailsOnCgroupV1(t.Context(), fake.NewFakeClient())).To(BeFalse())
}
